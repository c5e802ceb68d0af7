//! `kubectl drain`: nothing new comes to a node, and what is there goes.
use super::super::{Command, Group};
use crate::builder::{Info, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, text};
use crate::pods;
use crate::session::Session;
use crate::watching::{self, FOREVER};
use crate::write::{DRY_RUN, DryRun};
use client::source::{Delete, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::Instant;

static FLAGS: &[Flag] = &[
    number("chunk-size", "500", "How many pods are asked for at a time; 0: all."),
    switch("delete-emptydir-data", "Go on with pods whose data is lost with them."),
    switch("disable-eviction", "Delete pods, whatever their budgets say."),
    switch("force", "Go on with pods that nobody makes again."),
    number("grace-period", "-1", "Seconds to end in; negative: the pod's own."),
    switch("ignore-daemonsets", "Leave pods of DaemonSets alone."),
    text("pod-selector", "", "Only pods with these labels."),
    number(
        "skip-wait-for-delete-timeout",
        "0",
        "Do not wait for pods that have been ending for longer than this.",
    ),
    span("timeout", "0s", "How long to go on; 0: for ever."),
];

pub static DRAIN: Command = Command {
    name: "drain",
    group: Group::Management,
    about: "Drain node in preparation for maintenance",
    usage: "NODE",
    flags: &[FLAGS, SELECTOR, DRY_RUN],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

/// How long to wait before an eviction is asked for again.
const AGAIN: Duration = Duration::from_secs(5);

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let nodes = super::nodes(&cluster, &arguments).await?;
    let dry_run = DryRun::of(&arguments)?;
    for node in &nodes {
        super::mark(session, &cluster, node, true, dry_run).await?;
    }
    let (mut failures, mut left) = (Vec::new(), Vec::new());
    for node in &nodes {
        match drain(session, &cluster, &arguments, node, dry_run).await {
            Ok(()) => writeln!(session.out, "node/{} drained{}", node.name, dry_run.suffix())?,
            Err(failure) => {
                writeln!(
                    session.err,
                    "error: unable to drain node \"{}\" due to error: {}, continuing command...",
                    node.name,
                    failure.text()
                )?;
                left.push(&node.name);
                failures.push(failure);
            }
        }
    }
    if !left.is_empty() {
        writeln!(session.err, "There are pending nodes to be drained:")?;
        for name in left {
            writeln!(session.err, " {name}")?;
        }
    }
    Failure::of_all(failures)
}

async fn drain(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    node: &Info,
    dry_run: DryRun,
) -> Outcome {
    let fields = format!("spec.nodeName={}", node.name);
    let of = collection(&pods::resource(), "", arguments.text("pod-selector"), &fields)?;
    let all = cluster.list(of, arguments.number("chunk-size")).await?;
    let mut alive = Vec::new();
    for pod in &all {
        alive.push(daemon_set_lives(cluster, pod).await?);
    }
    let plan = plan(&all, &alive, arguments)?;
    if !plan.warnings.is_empty() {
        writeln!(session.err, "Warning: {}", plan.warnings)?;
    }
    let end = Instant::now()
        + match arguments.span("timeout") {
            Duration::ZERO => FOREVER,
            some => some,
        };
    for pod in &plan.pods {
        let (namespace, name) = place(pod);
        let verb = if arguments.is("disable-eviction") { "deleting" } else { "evicting" };
        writeln!(session.out, "{verb} pod {namespace}/{name}{}", dry_run.suffix())?;
    }
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let work = plan.pods.iter().map(|pod| send_away(cluster, arguments, pod, dry_run, end));
    let outcomes = futures_util::future::join_all(work).await;
    let mut failures = Vec::new();
    for (pod, outcome) in plan.pods.iter().zip(outcomes) {
        let (_, name) = place(pod);
        match outcome {
            Ok(()) => writeln!(session.out, "pod/{name} evicted{}", dry_run.suffix())?,
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of_all(failures)
}

fn place(pod: &Value) -> (&str, &str) {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Whether a pod is a DaemonSet's that still is.
async fn daemon_set_lives(cluster: &Cluster, pod: &Value) -> Outcome<bool> {
    let Some(owner) = controller(pod).filter(|owner| owner["kind"] == "DaemonSet") else {
        return Ok(false);
    };
    let sets = cluster.mapper().await?.find("daemonsets.apps")?;
    let name = owner["name"].as_str().unwrap_or_default();
    match cluster.get(&sets.api, place(pod).0, name).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure),
    }
}

struct Plan<'p> {
    pods: Vec<&'p Value>,
    warnings: String,
}

/// Names of pods, by what is said of them.
type Told<'t> = BTreeMap<&'t str, Vec<String>>;

/// Which pods go, and what is said about it; a fault if some may not.
fn plan<'p>(all: &'p [Value], alive: &[bool], arguments: &Arguments) -> Outcome<Plan<'p>> {
    let mut chosen = Vec::new();
    let (mut warnings, mut faults): (Told<'_>, Told<'_>) = Default::default();
    for (pod, lives) in all.iter().zip(alive) {
        let (namespace, name) = place(pod);
        let shown = || format!("{namespace}/{name}");
        if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
            continue;
        }
        let ending = pod["metadata"]["deletionTimestamp"].as_str();
        let ending = ending.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let patience = arguments.number("skip-wait-for-delete-timeout");
        let late = |since: jiff::Timestamp| {
            jiff::Timestamp::now().as_second() - since.as_second() > patience
        };
        if patience > 0 && ending.is_some_and(late) {
            continue;
        }
        let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let is_set = controller(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
        if is_set && *lives && !is_over {
            match arguments.is("ignore-daemonsets") {
                true => {
                    warnings.entry("ignoring DaemonSet-managed Pods").or_default().push(shown())
                }
                false => faults
                    .entry("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)")
                    .or_default()
                    .push(shown()),
            }
            continue;
        }
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let keeps = volumes.into_iter().any(|volume| volume.get("emptyDir").is_some());
        // Those that may go are not told: upstream's last word about a pod is that of its controller.
        if keeps && !is_over && !arguments.is("delete-emptydir-data") {
            faults
                .entry("Pods with local storage (use --delete-emptydir-data to override)")
                .or_default()
                .push(shown());
            continue;
        }
        if controller(pod).is_none() && !is_over {
            match arguments.is("force") {
                true => warnings
                    .entry("deleting Pods that declare no controller")
                    .or_default()
                    .push(shown()),
                false => {
                    faults
                        .entry("Pods that declare no controller (use --force to override)")
                        .or_default()
                        .push(shown());
                    continue;
                }
            }
        }
        chosen.push(pod);
    }
    let told = |(text, pods): (&str, Vec<String>)| format!("{text}: {}", pods.join(", "));
    if !faults.is_empty() {
        let faults: Vec<Failure> = faults
            .into_iter()
            .map(|fault| Failure::Plain(format!("cannot delete {}", told(fault))))
            .collect();
        let texts: Vec<String> = faults.iter().map(Failure::text).collect();
        return Err(match &texts[..] {
            [one] => Failure::Plain(one.clone()),
            many => Failure::Plain(format!("[{}]", many.join(", "))),
        });
    }
    let warnings: Vec<String> = warnings.into_iter().map(told).collect();
    Ok(Plan { pods: chosen, warnings: warnings.join("; ") })
}

/// Evicts one pod, as often as it takes, and waits until it is gone.
async fn send_away(
    cluster: &Cluster,
    arguments: &Arguments,
    pod: &Value,
    dry_run: DryRun,
    end: Instant,
) -> Outcome {
    let (namespace, name) = place(pod);
    let grace = arguments.number("grace-period");
    let options = Delete {
        grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
        dry_run: dry_run == DryRun::Server,
        ..Delete::default()
    };
    let resource = pods::resource();
    loop {
        let outcome = match arguments.is("disable-eviction") {
            true => cluster.delete(&resource, namespace, name, options.clone()).await,
            false => {
                let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": { "name": name, "namespace": namespace }, "deleteOptions": options.tree() });
                let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
                let place = (namespace, name, "eviction");
                cluster.create_part(&resource, place, &eviction, &write).await
            }
        };
        match outcome {
            Ok(_) => break,
            Err(failure) if failure.is_not_found() => return Ok(()),
            // A budget does not allow it yet.
            Err(Failure::Server(status)) if status.code == 429 => {
                if Instant::now() + AGAIN > end {
                    return Err("global timeout reached".into());
                }
                eprintln!(
                    "error when evicting pods/\"{name}\" -n \"{namespace}\" (will retry after 5s): {}",
                    status.message
                );
                tokio::time::sleep(AGAIN).await;
            }
            Err(failure) => {
                return Err(Failure::Plain(format!(
                    "error when evicting pods/\"{name}\" -n \"{namespace}\": {}",
                    failure.text()
                )));
            }
        }
    }
    if dry_run == DryRun::Server {
        return Ok(());
    }
    let uid = pod["metadata"]["uid"].clone();
    let patience = end.saturating_duration_since(Instant::now());
    let mut look = |now: Option<&Value>| {
        let is_there = now.is_some_and(|now| now["metadata"]["uid"] == uid);
        Ok(if is_there { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    };
    let waited = watching::until(cluster, &resource, namespace, name, patience, &mut look).await?;
    waited.ok_or_else(|| {
        Failure::Plain(format!(
            "error when waiting for pod \"{name}\" in namespace \"{namespace}\" to terminate: global timeout reached"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &str, expected: &str) {
        let pod = |name: &str, owner: Value, volumes: Value| {
            json!({ "metadata": { "name": name, "namespace": "d", "ownerReferences": owner },
                "spec": { "volumes": volumes }, "status": { "phase": "Running" } })
        };
        let owner = |kind: &str| json!([{ "kind": kind, "name": "x", "controller": true }]);
        let all = [
            pod("daemon", owner("DaemonSet"), json!(null)),
            pod("web", owner("ReplicaSet"), json!(null)),
            pod("scratch", owner("ReplicaSet"), json!([{ "emptyDir": {} }])),
            pod("alone", json!(null), json!(null)),
        ];
        let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let arguments =
            Arguments::parse("kubectl drain", DRAIN.flags, &words).expect("flags are good");
        let told = match plan(&all, &[true, false, false, false], &arguments) {
            Ok(plan) => {
                let names: Vec<&str> = plan.pods.iter().map(|pod| place(pod).1).collect();
                format!("{} | {}", names.join(" "), plan.warnings)
            }
            Err(failure) => failure.text(),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn pods_go_that_may() {
        check(
            "",
            "[cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): d/daemon, cannot delete \
             Pods that declare no controller (use --force to override): d/alone, cannot delete Pods with local \
             storage (use --delete-emptydir-data to override): d/scratch]",
        );
        check(
            "--ignore-daemonsets --force --delete-emptydir-data",
            "web scratch alone | deleting Pods that declare no controller: d/alone; ignoring DaemonSet-managed \
             Pods: d/daemon",
        );
    }
}
