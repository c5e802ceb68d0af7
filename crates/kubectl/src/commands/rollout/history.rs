//! `kubectl rollout history` and `undo`: what a workload was before, and back to that.
use super::super::Command;
use crate::builder::{FILES, Info, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number};
use crate::print::{self, Printer, Telling, name_of, tabs};
use crate::session::Session;
use crate::write::{DRY_RUN, DryRun};
use crate::{last_applied, pods};
use api::patch::strategic;
use client::source::{Patch, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const REVISION: &str = "deployment.kubernetes.io/revision";
const CAUSE: &str = "kubernetes.io/change-cause";

static HISTORY_FLAGS: &[Flag] = &[number("revision", "0", "Show this revision's pod template.")];

pub static HISTORY: Command = Command {
    name: "history",
    about: "View rollout history",
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    flags: &[HISTORY_FLAGS, FILES, SELECTOR, print::FLAGS],
    run: Some(|session, arguments| Box::pin(history(session, arguments))),
    offers: Offers::Resources(&["deployment", "daemonset", "statefulset"]),
    ..Command::EMPTY
};

static UNDO_FLAGS: &[Flag] =
    &[number("to-revision", "0", "The revision to go back to; 0: the one before.")];

pub static UNDO: Command = Command {
    name: "undo",
    about: "Undo a previous rollout",
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    flags: &[UNDO_FLAGS, FILES, SELECTOR, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(undo(session, arguments))),
    offers: Offers::Resources(&["deployment", "daemonset", "statefulset"]),
    ..Command::EMPTY
};

/// What a workload was at one revision.
struct Past {
    /// The workload as it was, or the replica set of then.
    object: Value,
    template: Value,
    cause: String,
}

/// Revisions by number.
async fn pasts(cluster: &Cluster, info: &Info) -> Outcome<BTreeMap<i64, Past>> {
    let mapper = cluster.mapper().await?;
    let selector = pods::selector(&info.object).unwrap_or_default();
    let uid = &info.object["metadata"]["uid"];
    let is_own = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|owner| owner["uid"] == *uid && owner["controller"] == true)
    };
    let kind = info.object["kind"].as_str().unwrap_or_default();
    let among = match kind {
        "Deployment" => "replicasets.apps",
        "DaemonSet" | "StatefulSet" => "controllerrevisions.apps",
        _ => {
            let shown = info.shown();
            let kind = shown.split('/').next().unwrap_or_default();
            return Err(format!("no history viewer has been implemented for \"{kind}\"").into());
        }
    };
    let of = collection(&mapper.find(among)?.api, &info.namespace, &selector, "")?;
    let mut found = BTreeMap::new();
    for object in cluster.list(of, 500).await?.into_iter().filter(is_own) {
        let annotations = &object["metadata"]["annotations"];
        let cause = annotations[CAUSE].as_str().unwrap_or_default().to_owned();
        let (revision, past) = match kind {
            "Deployment" => {
                let revision = annotations[REVISION].as_str().and_then(|text| text.parse().ok());
                (revision, object.clone())
            }
            _ => (object["revision"].as_i64(), restored(info, &object["data"])?),
        };
        let template = past["spec"]["template"].clone();
        if let Some(revision) = revision {
            found.insert(revision, Past { object: past, template, cause });
        }
    }
    Ok(found)
}

/// A set as a revision's patch makes it.
fn restored(info: &Info, data: &Value) -> Outcome<Value> {
    let row = info.api().row.ok_or(Failure::Plain("its kind is not known".to_owned()))?;
    strategic::merge(info.object.clone(), data.clone(), row.ty())
        .map_err(|error| Failure::Plain(error.to_string()))
}

async fn history(session: &mut Session, arguments: Arguments) -> Outcome {
    let wanted = arguments.number("revision");
    if wanted < 0 {
        return Err(format!("revision must be a positive integer: {wanted}").into());
    }
    let cluster = session.cluster(&arguments)?;
    let mut printer = Printer::of(&arguments)?;
    for info in &super::infos(&cluster, &arguments).await? {
        let pasts = pasts(&cluster, info).await?;
        let unknown = || Failure::Plain("unable to find the specified revision".to_owned());
        if let Some(printer) = &mut printer {
            match wanted {
                0 => {
                    for past in pasts.values() {
                        printer.print(&past.object, &mut session.out)?;
                    }
                }
                wanted => {
                    let past = pasts.get(&wanted).ok_or_else(unknown)?;
                    printer.print(&past.object, &mut session.out)?;
                }
            }
            continue;
        }
        let with = if wanted > 0 { format!("with revision #{wanted}") } else { String::new() };
        writeln!(session.out, "{} {with}", name_of(&info.object))?;
        let text = match wanted {
            _ if pasts.is_empty() => "No rollout history found.".to_owned(),
            0 => overview(&pasts),
            wanted => described(pasts.get(&wanted).ok_or_else(unknown)?),
        };
        writeln!(session.out, "{text}")?;
    }
    Ok(())
}

fn overview(pasts: &BTreeMap<i64, Past>) -> String {
    let mut rows = vec![vec!["REVISION".to_owned(), "CHANGE-CAUSE".to_owned()]];
    for (revision, past) in pasts {
        let cause = if past.cause.is_empty() { "<none>" } else { &past.cause };
        rows.push(vec![revision.to_string(), cause.to_owned()]);
    }
    // This table's columns are as wide as what is in them and two more.
    let mut text = String::new();
    let width = rows.iter().map(|row| row[0].len()).max().unwrap_or(0) + 2;
    for row in &rows {
        text.push_str(&format!("{:width$}{}\n", row[0], row[1]));
    }
    text
}

/// The pod template of a revision.
fn described(past: &Past) -> String {
    let mut text = String::from("Pod Template:\n");
    let labels = print::table::labels(&past.template["metadata"]["labels"]).replace(',', "\n\t");
    text.push_str(&format!("  Labels:\t{labels}\n"));
    if !past.cause.is_empty() {
        text.push_str(&format!("  Annotations:\t{CAUSE}: {}\n", past.cause));
    }
    text.push_str("  Containers:\n");
    for container in past.template["spec"]["containers"].as_array().into_iter().flatten() {
        let name = container["name"].as_str().unwrap_or_default();
        let image = container["image"].as_str().unwrap_or_default();
        text.push_str(&format!("   {name}:\n    Image:\t{image}\n"));
    }
    let rows: Vec<Vec<String>> =
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    tabs::aligned(&rows)
}

async fn undo(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let dry_run = DryRun::of(&arguments)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    for info in &super::infos(&cluster, &arguments).await? {
        if last_applied::has(&info.object) {
            writeln!(
                session.err,
                "Warning: resource {} was previously managed with 'kubectl apply'. Rolling back will not update the \
                 {} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider \
                 using 'kubectl apply' with your previous configuration file instead.",
                info.object_name(),
                last_applied::ANNOTATION
            )?;
        }
        let done = roll_back(&cluster, info, arguments.number("to-revision"), dry_run).await?;
        telling.tell(&info.object, &done, &mut session.out)?;
    }
    Ok(())
}

async fn roll_back(cluster: &Cluster, info: &Info, to: i64, dry_run: DryRun) -> Outcome<String> {
    let pasts = pasts(cluster, info).await?;
    let unknown = || Failure::Plain(format!("unable to find specified revision {to} in history"));
    if to < 0 {
        return Err(unknown());
    }
    let is_deployment = info.object["kind"] == "Deployment";
    let past = match to {
        // The newest but one.
        0 => pasts.values().rev().nth(1).ok_or_else(|| match is_deployment {
            true => {
                Failure::Plain(format!("no rollout history found for deployment \"{}\"", info.name))
            }
            false => Failure::Plain("no last revision to roll back to".to_owned()),
        })?,
        to => pasts.get(&to).ok_or_else(unknown)?,
    };
    if dry_run == DryRun::Client {
        return Ok(format!("will roll back to {}", described(past)));
    }
    if is_deployment && info.object["spec"]["paused"] == true {
        return Err("you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and \
                    try again"
            .into());
    }
    let template = without_hash(&past.template);
    if template == without_hash(&info.object["spec"]["template"]) {
        return Ok(format!("skipped rollback (current template already matches revision {to})"));
    }
    let patch = match is_deployment {
        true => json!([
            { "op": "replace", "path": "/spec/template", "value": template },
            { "op": "replace", "path": "/metadata/annotations", "value": annotations(info, past) },
        ]),
        false => json!([{ "op": "replace", "path": "/spec/template", "value": template }]),
    };
    let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
    let place = (&*info.namespace, &*info.name, "");
    cluster.patch(info.api(), place, Patch::Json(patch), &write).await.map_err(|failure| {
        Failure::Plain(format!("failed restoring revision {to}: {}", failure.text()))
    })?;
    Ok("rolled back".to_owned())
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    template
}

/// Those of then, but what tells of the deployment itself.
fn annotations(info: &Info, past: &Past) -> Value {
    let kept = [
        last_applied::ANNOTATION,
        REVISION,
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    ];
    let mut found = serde_json::Map::new();
    for (from, wants_kept) in [(&info.object, true), (&past.object, false)] {
        for (key, value) in from["metadata"]["annotations"].as_object().into_iter().flatten() {
            if kept.contains(&key.as_str()) == wants_kept {
                found.insert(key.clone(), value.clone());
            }
        }
    }
    found.into()
}
