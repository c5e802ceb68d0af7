//! `kubectl auth reconcile`: roles and bindings get what files say, and keep what they had.
use super::super::Command;
use crate::builder::{self, FILES, Info, Request};
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, switch};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{DRY_RUN, DryRun};
use client::source::Write;
use serde_json::{Value, json};

static FLAGS: &[Flag] = &[
    switch("remove-extra-permissions", "Take away rules that files do not have."),
    switch("remove-extra-subjects", "Take away subjects that files do not have."),
];

pub static COMMAND: Command = Command {
    name: "reconcile",
    about: "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects",
    usage: "-f FILENAME",
    flags: &[FLAGS, FILES, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let request = Request::of(&arguments);
    if !request.has_files() {
        return Err("must specify one of -f and -k".into());
    }
    let cluster = session.cluster(&arguments)?;
    let dry_run = DryRun::of(&arguments)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    for info in builder::file_infos(&cluster, &request).await? {
        let list = match info.object["kind"].as_str() {
            Some("Role" | "ClusterRole") => "rules",
            Some("RoleBinding" | "ClusterRoleBinding") => "subjects",
            _ => continue,
        };
        let removes = match list {
            "rules" => arguments.is("remove-extra-permissions"),
            _ => arguments.is("remove-extra-subjects"),
        };
        let object = reconcile(&cluster, &info, list, removes, dry_run).await?;
        telling.tell(&object, "reconciled", &mut session.out)?;
    }
    Ok(())
}

async fn reconcile(
    cluster: &Cluster,
    info: &Info,
    list: &str,
    removes: bool,
    dry_run: DryRun,
) -> Outcome<Value> {
    let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
    let current = match cluster.get(info.api(), &info.namespace, &info.name).await {
        Ok(current) => current,
        Err(failure) if failure.is_not_found() => {
            return match dry_run {
                DryRun::Client => Ok(info.object.clone()),
                _ => cluster.create(info.api(), &info.namespace, &info.object, &write).await,
            };
        }
        Err(failure) => return Err(failure),
    };
    let wanted = merged(&current, &info.object, list, removes);
    if wanted == current || dry_run == DryRun::Client {
        return Ok(wanted);
    }
    if wanted["roleRef"] != current["roleRef"] {
        // What a binding leads to cannot be changed: it is made again.
        cluster.delete(info.api(), &info.namespace, &info.name, Default::default()).await?;
        return cluster.create(info.api(), &info.namespace, &info.object, &write).await;
    }
    cluster.update(info.api(), (&info.namespace, &info.name, ""), &wanted, &write).await
}

fn merged(current: &Value, wanted: &Value, list: &str, removes: bool) -> Value {
    let mut object = current.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            object["metadata"][field][key] = value.clone();
        }
    }
    if wanted.get("roleRef").is_some() {
        object["roleRef"] = wanted["roleRef"].clone();
    }
    let more = wanted[list].as_array().cloned().unwrap_or_default();
    let mut all = match removes {
        true => Vec::new(),
        false => current[list].as_array().cloned().unwrap_or_default(),
    };
    for one in more {
        if !all.iter().any(|other| is_covered(other, &one)) {
            all.push(one);
        }
    }
    // What was empty stays as it was.
    if !all.is_empty() || current.get(list).is_some() {
        object[list] = json!(all);
    }
    object
}

/// A rule or subject that says at least as much.
fn is_covered(there: &Value, wanted: &Value) -> bool {
    let Some(fields) = wanted.as_object() else { return false };
    fields.iter().all(|(name, value)| match (value, &there[name]) {
        (Value::Array(wanted), Value::Array(there)) => {
            there.contains(&json!("*")) || wanted.iter().all(|one| there.contains(one))
        }
        (wanted, there) => {
            wanted == there
                || (name == "apiGroup" && there.is_null() && wanted.as_str() == Some(""))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_added_unless_they_are_covered() {
        let rule =
            |verbs: &[&str]| json!({ "verbs": verbs, "apiGroups": [""], "resources": ["pods"] });
        let current = json!({ "kind": "Role", "metadata": {}, "rules": [rule(&["get", "list"])] });
        let same = json!({ "rules": [rule(&["get"])] });
        assert_eq!(merged(&current, &same, "rules", false), current);
        let more = json!({ "rules": [rule(&["watch"])] });
        assert_eq!(merged(&current, &more, "rules", false)["rules"].as_array().unwrap().len(), 2);
        assert_eq!(merged(&current, &more, "rules", true)["rules"], json!([rule(&["watch"])]));
    }
}
