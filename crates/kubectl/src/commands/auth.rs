//! `kubectl auth`: who one is, and what one may.
mod reconcile;

use super::{Command, Group};
use crate::builder::ALL_NAMESPACES;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::print::{self, Printer, tabs};
use crate::session::Session;
use client::ApiResource;
use client::source::Write;
use serde_json::{Value, json};

pub static COMMAND: Command = Command {
    name: "auth",
    group: Group::Troubleshooting,
    about: "Inspect authorization",
    usage: "SUBCOMMAND",
    children: &[&CAN_I, &reconcile::COMMAND, &WHO_AM_I],
    ..Command::EMPTY
};

static CAN_I_FLAGS: &[Flag] = &[
    switch("list", "List all that one may."),
    switch("no-headers", "Without headers."),
    switch("quiet", "Say it by the exit code alone.").short('q'),
    text("subresource", "", "Subresource: log, scale."),
];

static CAN_I: Command = Command {
    name: "can-i",
    about: "Check whether an action is allowed",
    usage: "VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
    flags: &[CAN_I_FLAGS, ALL_NAMESPACES],
    run: Some(|session, arguments| Box::pin(can_i(session, arguments))),
    ..Command::EMPTY
};

static WHO_AM_I: Command = Command {
    name: "whoami",
    about: "Experimental: Check self subject attributes",
    flags: &[print::FLAGS],
    run: Some(|session, arguments| Box::pin(who_am_i(session, arguments))),
    ..Command::EMPTY
};

/// A question that is asked by creating it.
fn review(group: &str, plural: &str, kind: &str) -> ApiResource {
    ApiResource::custom(group, "v1", plural, kind, api::kinds::Scope::Cluster)
}

const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
];
const PATH_VERBS: [&str; 8] = ["get", "post", "put", "patch", "delete", "head", "options", "*"];

async fn can_i(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.is("list") {
        return list(session, arguments).await;
    }
    if arguments.is("no-headers") {
        return Err("--no-headers cannot be set without --list specified".into());
    }
    let [verb, what] = &arguments.words[..] else {
        return Err("you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl \
                    auth can-i -h' for help and examples."
            .into());
    };
    let cluster = session.cluster(&arguments)?;
    let part = arguments.text("subresource");
    let spec = if what.starts_with('/') {
        if !part.is_empty() {
            return Err("--subresource can not be used with NonResourceURL".into());
        }
        if !PATH_VERBS.contains(&verb.as_str()) {
            writeln!(session.err, "Warning: verb '{verb}' is not a known verb\n")?;
        }
        json!({ "nonResourceAttributes": { "verb": verb, "path": what } })
    } else {
        let (kind, name) = what.split_once('/').unwrap_or((what, ""));
        let namespace = if arguments.is("all-namespaces") { "" } else { &cluster.namespace };
        let (group, resource) = match cluster.mapper().await?.find(kind) {
            _ if kind == "*" => (String::new(), "*".to_owned()),
            Ok(found) => {
                if !found.is_namespaced() && !arguments.is("all-namespaces") {
                    let group = match &*found.api.group {
                        "" => String::new(),
                        group => format!(" in group '{group}'"),
                    };
                    let plural = &found.api.plural;
                    writeln!(
                        session.err,
                        "Warning: resource '{plural}' is not namespace scoped{group}\n"
                    )?;
                }
                (found.api.group.to_string(), found.api.plural.to_string())
            }
            Err(_) => {
                let standard = ["users", "groups"];
                if !standard.contains(&kind) {
                    let text = match kind.split_once('.') {
                        Some((name, group)) => format!("'{name}' in group '{group}'"),
                        None => format!("'{kind}'"),
                    };
                    writeln!(
                        session.err,
                        "Warning: the server doesn't have a resource type {text}\n"
                    )?;
                }
                (String::new(), kind.to_owned())
            }
        };
        if !VERBS.contains(&verb.as_str()) {
            writeln!(session.err, "Warning: verb '{verb}' is not a known verb\n")?;
        }
        json!({ "resourceAttributes": { "namespace": namespace, "verb": verb, "group": group,
            "resource": resource, "subresource": part, "name": name } })
    };
    let question = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": spec });
    let of = review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview");
    let answer = cluster.create(&of, "", &question, &Write::default()).await?;
    let status = &answer["status"];
    let allowed = status["allowed"] == true;
    if !arguments.is("quiet") {
        writeln!(session.out, "{}", verdict(status))?;
    }
    if allowed { Ok(()) } else { Err(Failure::exit(1)) }
}

fn verdict(status: &Value) -> String {
    if status["allowed"] == true {
        return "yes".to_owned();
    }
    let mut text = "no".to_owned();
    for field in ["reason", "evaluationError"] {
        if let Some(why) = status[field].as_str().filter(|why| !why.is_empty()) {
            text.push_str(" - ");
            text.push_str(why);
        }
    }
    text
}

async fn list(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err("list option must be specified with no arguments".into());
    }
    if arguments.is("quiet")
        || arguments.is("all-namespaces")
        || arguments.some("subresource").is_some()
    {
        return Err(
            "list option can't be specified with neither quiet, all-namespaces nor subresource options".into()
        );
    }
    let cluster = session.cluster(&arguments)?;
    let question = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": cluster.namespace } });
    let of = review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview");
    let answer = cluster.create(&of, "", &question, &Write::default()).await?;
    let status = &answer["status"];
    if status["incomplete"] == true {
        let why = status["evaluationError"].as_str().unwrap_or_default();
        writeln!(session.err, "Warning: the list may be incomplete: {why}")?;
    }
    let rows = rules(status, !arguments.is("no-headers"));
    Ok(session.out.write_all(tabs::aligned(&rows).as_bytes())?)
}

/// Rules, taken apart to single resources whose verbs are put together again.
fn rules(status: &Value, with_headers: bool) -> Vec<Vec<String>> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    /// Group, resource, path and names.
    type Key = (String, String, String, String);
    let mut found: Vec<(Key, Vec<String>)> = Vec::new();
    let mut add = |key: Key, verbs: &[String]| {
        // Rules of paths and of single objects stay apart.
        let is_simple = key.2.is_empty() && key.3.is_empty();
        let same = found.iter().position(|(other, _)| is_simple && *other == key);
        let place = same.unwrap_or_else(|| {
            found.push((key, Vec::new()));
            found.len() - 1
        });
        for verb in verbs {
            if !found[place].1.contains(verb) {
                found[place].1.push(verb.clone());
            }
        }
    };
    for rule in status["resourceRules"].as_array().into_iter().flatten() {
        let (verbs, names) = (texts(&rule["verbs"]), texts(&rule["resourceNames"]));
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                if names.is_empty() {
                    add((group.clone(), resource.clone(), String::new(), String::new()), &verbs);
                }
                for name in &names {
                    add((group.clone(), resource.clone(), String::new(), name.clone()), &verbs);
                }
            }
        }
    }
    for rule in status["nonResourceRules"].as_array().into_iter().flatten() {
        let verbs = texts(&rule["verbs"]);
        for url in texts(&rule["nonResourceURLs"]) {
            add((String::new(), String::new(), url, String::new()), &verbs);
        }
    }
    // As Go would print the rules.
    found.sort_by_key(|((group, resource, url, names), verbs)| {
        let group = if resource.is_empty() { String::new() } else { group.clone() };
        format!(
            "Verbs:[{}],APIGroups:[{group}],Resources:[{resource}],ResourceNames:[{names}],NonResourceURLs:[{url}],",
            verbs.join(" ")
        )
    });
    let mut rows = Vec::new();
    if with_headers {
        let headers = ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"];
        rows.push(headers.iter().map(|text| (*text).to_owned()).collect());
    }
    for ((group, resource, url, names), verbs) in found {
        rows.push(vec![
            if group.is_empty() { resource } else { format!("{resource}.{group}") },
            format!("[{url}]"),
            format!("[{names}]"),
            format!("[{}]", verbs.join(" ")),
        ]);
    }
    rows
}

async fn who_am_i(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let of = review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview");
    let answer = cluster.create(&of, "", &question, &Write::default()).await?;
    if let Some(mut printer) = Printer::of(&arguments)? {
        return printer.print(&answer, &mut session.out);
    }
    let user = &answer["status"]["userInfo"];
    let texts = |value: &Value| {
        let all = value.as_array().into_iter().flatten();
        format!("[{}]", all.filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
    };
    let mut rows = vec![vec!["ATTRIBUTE".to_owned(), "VALUE".to_owned()]];
    for (title, field) in [("Username", "username"), ("UID", "uid")] {
        if let Some(text) = user[field].as_str().filter(|text| !text.is_empty()) {
            rows.push(vec![title.to_owned(), text.to_owned()]);
        }
    }
    if user["groups"].is_array() {
        rows.push(vec!["Groups".to_owned(), texts(&user["groups"])]);
    }
    for (key, values) in user["extra"].as_object().into_iter().flatten() {
        rows.push(vec![format!("Extra: {key}"), texts(values)]);
    }
    Ok(session.out.write_all(tabs::aligned(&rows).as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_by_resource() {
        let status = json!({ "resourceRules": [
            { "verbs": ["get"], "apiGroups": ["", "apps"], "resources": ["pods"] },
            { "verbs": ["list", "get"], "apiGroups": [""], "resources": ["pods"] } ],
            "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/healthz"] }] });
        assert_eq!(
            tabs::aligned(&rules(&status, true)),
            "Resources   Non-Resource URLs   Resource Names   Verbs\n\
             pods        []                  []               [get list]\n            \
             [/healthz]          []               [get]\n\
             pods.apps   []                  []               [get]\n"
        );
        assert_eq!(verdict(&json!({ "allowed": false, "reason": "x" })), "no - x");
    }
}
