//! `kubectl taint`.
use super::super::{Command, Group};
use crate::builder::{self, ALL, Request, SELECTOR};
use crate::complete::Offers;
use crate::editing::Editing;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use serde_json::{Value, json};

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-taint", "Who manages the taints."),
    switch("overwrite", "Change taints that are there already."),
];

pub static TAINT: Command = Command {
    name: "taint",
    group: Group::Management,
    about: "Update the taints on one or more nodes",
    usage: "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    flags: &[FLAGS, SELECTOR, ALL, DRY_RUN, VALIDATE, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&["node"]),
    ..Command::EMPTY
};

#[derive(Debug, PartialEq)]
struct Taint {
    key: String,
    value: String,
    effect: String,
}

/// Taints to be set, and those to go: without an effect, all of their key.
#[derive(Debug, Default, PartialEq)]
struct Taints {
    set: Vec<Taint>,
    remove: Vec<Taint>,
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let is_taint = |word: &&String| word.contains(':') || word.ends_with('-');
    let first = arguments.words.iter().position(|word| is_taint(&word));
    let (named, taints) = arguments.words.split_at(first.unwrap_or(arguments.words.len()));
    if let Some(word) = taints.iter().find(|word| !is_taint(word)) {
        return Err(format!("all resources must be specified before taint changes: {word}").into());
    }
    if named.is_empty() {
        return Err("one or more resources must be specified as <resource> <name>".into());
    }
    if taints.is_empty() {
        return Err("at least one taint update is required".into());
    }
    let changes = parse(taints).map_err(|text| Failure::usage(&arguments.command, text))?;
    let selects = arguments.is("all") || arguments.some("selector").is_some();
    if !selects && named.len() < 2 {
        return Err(
            "at least one resource name must be specified since 'all' parameter is not set".into(),
        );
    }
    let cluster = session.cluster(&arguments)?;
    let kind = cluster.mapper().await?.find(&named[0])?;
    if kind.api.kind != "Node" {
        return Err(
            format!("invalid resource type {}, only node types are supported", named[0]).into()
        );
    }
    let request = Request::of(&arguments).with_words(named);
    let infos = builder::infos(&cluster, &request, true).await?;
    let dry_run = DryRun::of(&arguments)?;
    let overwrite = arguments.is("overwrite");
    let mut failures = Vec::new();
    for info in &infos {
        let done = match changed(&info.object, &changes, overwrite) {
            Ok((_, done)) => done,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        let mut editing = Editing {
            cluster: &cluster,
            write: write::options(&arguments, dry_run)?,
            dry_run,
            local: false,
            done,
            unchanged: done,
            telling: Telling::new(&arguments, DryRun::None)?,
        };
        let edit = |object: &mut Value| {
            object["spec"]["taints"] = changed(object, &changes, overwrite)?.0;
            Ok(())
        };
        if let Err(failure) = editing.each(session, std::slice::from_ref(info), edit).await {
            failures.push(failure);
        }
    }
    Failure::of_all(failures)
}

fn parse(words: &[String]) -> Result<Taints, String> {
    let mut found = Taints::default();
    for word in words {
        let invalid = || format!("invalid taint spec: {word}");
        let (text, removes) = match word.strip_suffix('-') {
            Some(text) => (text, true),
            None => (word.as_str(), false),
        };
        let (pair, effect) = text.split_once(':').unwrap_or((text, ""));
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key.is_empty() || effect.contains(':') || value.contains('=') {
            return Err(invalid());
        }
        let known = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
        let names_all = removes && effect.is_empty();
        if !known && !names_all {
            return Err(match effect {
                "" => invalid(),
                other => format!("invalid taint effect: {other}, unsupported taint effect"),
            });
        }
        let taint = Taint { key: key.into(), value: value.into(), effect: effect.into() };
        let list = if removes { &mut found.remove } else { &mut found.set };
        list.push(taint);
    }
    for taint in &found.set {
        let conflict = found.remove.iter().find(|other| {
            other.key == taint.key && (other.effect.is_empty() || other.effect == taint.effect)
        });
        if let Some(other) = conflict {
            return Err(format!(
                "can not both modify and remove the following taint(s) in the same command: {}={}",
                other.key, other.effect
            ));
        }
    }
    Ok(found)
}

/// A node's taints after it, and what is said of that.
fn changed(node: &Value, changes: &Taints, overwrite: bool) -> Outcome<(Value, &'static str)> {
    let mut all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let is = |one: &Value, taint: &Taint| {
        one["key"] == *taint.key && (taint.effect.is_empty() || one["effect"] == *taint.effect)
    };
    if !overwrite {
        let taken = changes.set.iter().filter(|taint| all.iter().any(|one| is(one, taint)));
        let taken: Vec<String> =
            taken.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        if !taken.is_empty() {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            return Err(format!(
                "node {name} already has {} taint(s) with same effect(s) and --overwrite is false",
                taken.join(",")
            )
            .into());
        }
    }
    let before = all.len();
    for taint in &changes.remove {
        if !all.iter().any(|one| is(one, taint)) {
            let shown = match &*taint.effect {
                "" => taint.key.clone(),
                effect => format!("{}:{effect}", taint.key),
            };
            return Err(format!("taint \"{shown}\" not found").into());
        }
        all.retain(|one| !is(one, taint));
    }
    let removed = before - all.len();
    for taint in &changes.set {
        all.retain(|one| !is(one, taint));
        let mut one = json!({ "key": taint.key, "effect": taint.effect });
        if !taint.value.is_empty() {
            one["value"] = taint.value.as_str().into();
        }
        all.push(one);
    }
    let done = match (changes.set.len(), removed) {
        (0, _) => "untainted",
        (_, 0) => "tainted",
        _ => "modified",
    };
    Ok((if all.is_empty() { Value::Null } else { all.into() }, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_come_and_go() {
        let read =
            |text: &str| parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let node =
            |taints: Value| json!({ "metadata": { "name": "n" }, "spec": { "taints": taints } });
        let set = read("a=b:NoSchedule").unwrap();
        let taint = json!({ "key": "a", "value": "b", "effect": "NoSchedule" });
        assert_eq!(changed(&node(json!(null)), &set, false).unwrap(), (json!([taint]), "tainted"));
        let wrong = changed(&node(json!([taint])), &set, false).unwrap_err();
        assert_eq!(
            wrong.message(),
            "error: node n already has a:NoSchedule taint(s) with same effect(s) and --overwrite is false"
        );
        let gone = read("a-").unwrap();
        assert_eq!(
            changed(&node(json!([taint])), &gone, false).unwrap(),
            (json!(null), "untainted")
        );
        assert_eq!(
            changed(&node(json!(null)), &gone, false).unwrap_err().message(),
            "error: taint \"a\" not found"
        );
        assert!(read("a=b:Never").is_err() && read("=b:NoSchedule").is_err());
        assert!(read("a:NoSchedule a-").is_err());
    }
}
