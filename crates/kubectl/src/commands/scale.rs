//! `kubectl scale`.
use super::{Command, Group};
use crate::builder::{self, ALL, FILES, Info, Request, SELECTOR};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::watching;
use crate::write::{DRY_RUN, DryRun};
use client::source::{Patch, Write};
use serde_json::{Value, json};
use std::ops::ControlFlow;

static FLAGS: &[Flag] = &[
    number("current-replicas", "-1", "Scale only from this size."),
    number("replicas", "0", "The new size; it is needed.").required(),
    text("resource-version", "", "Scale only this version of the object."),
    span("timeout", "0s", "How long to wait until it is so; 0: not at all."),
];

pub static COMMAND: Command = Command {
    name: "scale",
    group: Group::Deploy,
    about: "Set a new size for a deployment, replica set, or replication controller",
    usage: "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    flags: &[FLAGS, FILES, SELECTOR, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[
        "deployment",
        "replicaset",
        "replicationcontroller",
        "statefulset",
    ]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let replicas = arguments.number("replicas");
    if !arguments.given("replicas") {
        return Err("required flag(s) \"replicas\" not set".into());
    }
    if replicas < 0 {
        return Err(
            "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0"
                .into(),
        );
    }
    let expected = arguments.number("current-replicas");
    if expected < -1 {
        return Err("The --current-replicas must specify an integer of -1 or greater".into());
    }
    let dry_run = DryRun::of(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let infos = builder::infos(&cluster, &Request::of(&arguments), true).await?;
    if infos.is_empty() {
        return Err("no objects passed to scale".into());
    }
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    for info in &infos {
        match scale(&cluster, info, &arguments, dry_run).await {
            Ok(()) => {
                let mut object = info.object.clone();
                object["spec"]["replicas"] = replicas.into();
                telling.tell(&object, "scaled", &mut session.out)?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of_all(failures)?;
    let patience = arguments.span("timeout");
    if !patience.is_zero() && dry_run == DryRun::None {
        for info in &infos {
            is_scaled(&cluster, info, replicas, patience).await?;
        }
    }
    Ok(())
}

async fn scale(cluster: &Cluster, info: &Info, arguments: &Arguments, dry_run: DryRun) -> Outcome {
    let place = (&*info.namespace, &*info.name, "scale");
    let expected = arguments.number("current-replicas");
    let version = arguments.text("resource-version");
    if expected >= 0 || !version.is_empty() {
        let scale = cluster.get_part(info.api(), place.0, place.1, place.2).await?;
        check(&scale, expected, version)?;
    }
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let mut patch = json!({ "spec": { "replicas": arguments.number("replicas") } });
    if !version.is_empty() {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
    cluster.patch(info.api(), place, Patch::Merge(patch), &write).await?;
    Ok(())
}

fn check(scale: &Value, expected: i64, version: &str) -> Outcome {
    let is = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if expected >= 0 && is != expected {
        return Err(format!("Expected replicas to be {expected}, was {is}").into());
    }
    let found = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && version != found {
        return Err(format!("Expected resource version to be {version}, was {found}").into());
    }
    Ok(())
}

async fn is_scaled(
    cluster: &Cluster,
    info: &Info,
    replicas: i64,
    patience: std::time::Duration,
) -> Outcome {
    let mut look = |object: Option<&Value>| {
        let Some(object) = object else { return Ok(ControlFlow::Break(())) };
        let has = object["status"]["replicas"].as_i64().unwrap_or(0);
        let seen = object["status"]["observedGeneration"].as_i64().unwrap_or(i64::MAX)
            >= object["metadata"]["generation"].as_i64().unwrap_or(0);
        Ok(if seen && has == replicas { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let waited =
        watching::until(cluster, info.api(), &info.namespace, &info.name, patience, &mut look);
    match waited.await? {
        Some(()) => Ok(()),
        None => Err("timed out waiting for the condition".into()),
    }
}
