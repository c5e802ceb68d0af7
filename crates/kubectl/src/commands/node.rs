//! What is done to nodes: `cordon`, `uncordon`, `drain`, `taint`.
mod drain;
mod taint;

pub use drain::DRAIN;
pub use taint::TAINT;

use super::{Command, Group};
use crate::builder::{Info, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use crate::session::Session;
use crate::write::{DRY_RUN, DryRun};
use client::source::{Patch, Write};
use serde_json::json;

pub static CORDON: Command = Command {
    name: "cordon",
    group: Group::Management,
    about: "Mark node as unschedulable",
    usage: "NODE",
    flags: &[SELECTOR, DRY_RUN],
    run: Some(|session, arguments| Box::pin(run(session, arguments, true))),
    offers: Offers::Name("nodes"),
    ..Command::EMPTY
};

pub static UNCORDON: Command = Command {
    name: "uncordon",
    group: Group::Management,
    about: "Mark node as schedulable",
    usage: "NODE",
    flags: &[SELECTOR, DRY_RUN],
    run: Some(|session, arguments| Box::pin(run(session, arguments, false))),
    offers: Offers::Name("nodes"),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments, closes: bool) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let nodes = nodes(&cluster, &arguments).await?;
    let dry_run = DryRun::of(&arguments)?;
    for node in &nodes {
        mark(session, &cluster, node, closes, dry_run).await?;
    }
    Ok(())
}

/// The nodes that words or labels mean.
async fn nodes(cluster: &Cluster, arguments: &Arguments) -> Outcome<Vec<Info>> {
    let selector = arguments.text("selector");
    let words = &arguments.words;
    if words.is_empty() && selector.is_empty() {
        return Err(Failure::Plain(format!(
            "USAGE: {} NODE [flags]\nSee '{} -h' for help and examples",
            arguments.command.trim_start_matches("kubectl "),
            arguments.command
        )));
    }
    if !words.is_empty() && !selector.is_empty() {
        return Err(Failure::Plain(format!(
            "cannot specify both a node name and a --selector option\nSee '{} -h' for help and examples",
            arguments.command
        )));
    }
    let resource = cluster.mapper().await?.find("nodes")?.clone();
    let mut found = Vec::new();
    let mut add = |object: serde_json::Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (namespace, source) = (String::new(), String::new());
        found.push(Info { resource: resource.clone(), namespace, name, object, source });
    };
    for word in words {
        let Some((of, name)) = word.split_once('/') else {
            add(cluster.get(&resource.api, "", word).await?);
            continue;
        };
        let of = &cluster.mapper().await?.find(of)?.api;
        let namespace = if of.is_namespaced() { &*cluster.namespace } else { "" };
        let object = cluster.get(of, namespace, name).await?;
        if of != &resource.api {
            let shown = format!("{}/{}, Resource={}", of.group, of.version, of.plural);
            return Err(Failure::Plain(format!(
                "error: expected resource of type node, got {shown:?}"
            )));
        }
        add(object);
    }
    if words.is_empty() {
        let of = collection(&resource.api, "", selector, "")?;
        cluster.list(of, 500).await?.into_iter().for_each(add);
    }
    Ok(found)
}

async fn mark(
    session: &mut Session,
    cluster: &Cluster,
    node: &Info,
    closes: bool,
    dry_run: DryRun,
) -> Outcome {
    let is_closed = node.object["spec"]["unschedulable"] == true;
    let word = if closes { "cordoned" } else { "uncordoned" };
    if is_closed == closes {
        writeln!(session.out, "node/{} already {word}{}", node.name, dry_run.suffix())?;
        return Ok(());
    }
    if dry_run != DryRun::Client {
        let value = if closes { json!(true) } else { json!(null) };
        let patch = Patch::Strategic(json!({ "spec": { "unschedulable": value } }));
        let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
        if let Err(failure) = cluster.patch(node.api(), ("", &node.name, ""), patch, &write).await {
            let verb = if closes { "cordon" } else { "uncordon" };
            writeln!(
                session.err,
                "error: unable to {verb} node \"{}\": {}",
                node.name,
                failure.text()
            )?;
            // As upstream: it was told, and that is all.
            return Ok(());
        }
    }
    Ok(writeln!(session.out, "node/{} {word}{}", node.name, dry_run.suffix())?)
}
