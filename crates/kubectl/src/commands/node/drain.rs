//! `kubectl drain`: nothing new comes to a node, and what is there goes.
use super::super::{Command, Group};
use crate::builder::{Info, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, text};
use crate::pods;
use crate::session::Session;
use crate::watching::{self, FOREVER};
use crate::write::{DRY_RUN, DryRun};
use api::status::Status;
use client::source::{Delete, Write};
use serde_json::{Value, json};
use std::cell::RefCell;
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
    offers: Offers::Name("nodes"),
    ..Command::EMPTY
};

/// How long to wait before an eviction is asked for again.
const AGAIN: Duration = Duration::from_secs(5);

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    pod_selector(&arguments)?;
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
                    shown(&failure)
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
    let all = pods_on(cluster, arguments, node).await?;
    let plan = plan(&all, arguments)?;
    if !plan.warnings.is_empty() {
        writeln!(session.err, "Warning: {}", plan.warnings)?;
    }
    if dry_run == DryRun::Client {
        for pod in &plan.pods {
            let (namespace, name) = place(pod);
            writeln!(session.out, "evicting pod {namespace}/{name} (dry run)")?;
        }
        return Ok(());
    }
    let patience = arguments.span("timeout");
    let end = Instant::now() + if patience.is_zero() { FOREVER } else { patience };
    let leave = Leave { cluster, arguments, dry_run, end, session: RefCell::new(session) };
    let outcome = match can_evict(cluster, arguments).await? {
        true => leave.evict(&plan.pods).await,
        false => leave.delete(&plan.pods).await,
    };
    if let Err(failure) = &outcome {
        tell_pending(session, cluster, arguments, node, &shown(failure)).await?;
    }
    outcome
}

/// The labels of pods are to be a selector, before anything is done.
fn pod_selector(arguments: &Arguments) -> Outcome {
    collection(&pods::resource(), "", arguments.text("pod-selector"), "")
        .map(drop)
        .map_err(|_| "--pod-selector=<pod_selector> must be a valid label selector".into())
}

/// The pods of a node, each with what became of the DaemonSet that it is of.
async fn pods_on(
    cluster: &Cluster,
    arguments: &Arguments,
    node: &Info,
) -> Outcome<Vec<(Value, DaemonSet)>> {
    let fields = format!("spec.nodeName={}", node.name);
    let of = collection(&pods::resource(), "", arguments.text("pod-selector"), &fields)?;
    let mut all = Vec::new();
    for pod in cluster.list(of, arguments.number("chunk-size")).await? {
        let set = daemon_set(cluster, &pod).await?;
        all.push((pod, set));
    }
    Ok(all)
}

/// What is left on a node that could not be drained.
async fn tell_pending(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    node: &Info,
    cause: &str,
) -> Outcome {
    let all = pods_on(cluster, arguments, node).await.unwrap_or_default();
    let text = match plan(&all, arguments) {
        Ok(plan) if plan.pods.is_empty() => return Ok(()),
        Ok(plan) => {
            let names = plan.pods.iter().map(|pod| format!("pod/{}\n", place(pod).1));
            format!(
                "There are pending pods in node \"{}\" when an error occurred: {cause}\n{}",
                node.name,
                names.collect::<String>()
            )
        }
        Err(failure) => format!(
            "Following errors occurred while getting the list of pods to delete:\n{}",
            shown(&failure)
        ),
    };
    Ok(write!(session.err, "{text}")?)
}

/// Whether pods are asked to go, which budgets may refuse, or are deleted.
async fn can_evict(cluster: &Cluster, arguments: &Arguments) -> Outcome<bool> {
    if arguments.is("disable-eviction") {
        return Ok(false);
    }
    let pods = cluster.mapper().await?.find("pods")?;
    Ok(pods.subresources.iter().any(|part| part == "eviction"))
}

fn place(pod: &Value) -> (&str, &str) {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// What a pod's DaemonSet is.
#[derive(Debug, Clone, PartialEq)]
enum DaemonSet {
    /// It is of none.
    None,
    There,
    /// With what the server says of it.
    Gone(String),
}

async fn daemon_set(cluster: &Cluster, pod: &Value) -> Outcome<DaemonSet> {
    let is_set = |owner: &&Value| owner["kind"] == "DaemonSet" && owner["apiVersion"] == "apps/v1";
    let Some(owner) = controller(pod).filter(is_set).filter(|_| !is_over(pod)) else {
        return Ok(DaemonSet::None);
    };
    let sets = cluster.mapper().await?.find("daemonsets.apps")?;
    let name = owner["name"].as_str().unwrap_or_default();
    match cluster.get(&sets.api, place(pod).0, name).await {
        Ok(_) => Ok(DaemonSet::There),
        Err(failure) if failure.is_not_found() => Ok(DaemonSet::Gone(failure.text())),
        Err(failure) => Err(failure),
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a pod has been ending for longer than anybody waits for it.
fn is_late(pod: &Value, patience: i64) -> bool {
    let ending = pod["metadata"]["deletionTimestamp"].as_str();
    let ending = ending.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let late =
        |since: jiff::Timestamp| jiff::Timestamp::now().as_second() - since.as_second() > patience;
    patience > 0 && ending.is_some_and(late)
}

struct Plan<'p> {
    pods: Vec<&'p Value>,
    warnings: String,
}

/// Which pods go, and what is said about it; a fault if some may not.
fn plan<'p>(all: &'p [(Value, DaemonSet)], arguments: &Arguments) -> Outcome<Plan<'p>> {
    let mut chosen = Vec::new();
    let (mut warnings, mut faults): (BTreeMap<String, Vec<String>>, BTreeMap<String, Vec<String>>) =
        Default::default();
    let forced = arguments.is("force");
    for (pod, set) in all {
        let (namespace, name) = place(pod);
        let shown = format!("{namespace}/{name}");
        let mut fault = |text: &str| faults.entry(text.to_owned()).or_default().push(shown.clone());
        let mut warn =
            |text: &str| warnings.entry(text.to_owned()).or_default().push(shown.clone());
        if is_late(pod, arguments.number("skip-wait-for-delete-timeout")) {
            continue;
        }
        match set {
            DaemonSet::There if arguments.is("ignore-daemonsets") => {
                warn("ignoring DaemonSet-managed Pods");
                continue;
            }
            DaemonSet::There => {
                fault("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)");
                continue;
            }
            DaemonSet::Gone(text) if !forced => {
                fault(text);
                continue;
            }
            DaemonSet::Gone(_) | DaemonSet::None => {}
        }
        if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
            continue;
        }
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let keeps = volumes.into_iter().any(|volume| volume.get("emptyDir").is_some());
        // Those that may go are not told: upstream's last word about a pod is that of its controller.
        if keeps && !is_over(pod) && !arguments.is("delete-emptydir-data") {
            fault("Pods with local storage (use --delete-emptydir-data to override)");
            continue;
        }
        if controller(pod).is_none() && !is_over(pod) {
            if !forced {
                fault("Pods that declare no controller (use --force to override)");
                continue;
            }
            warn("deleting Pods that declare no controller");
        }
        chosen.push(pod);
    }
    let told = |(text, pods): (String, Vec<String>)| format!("{text}: {}", pods.join(", "));
    let faults: Vec<String> =
        faults.into_iter().map(|fault| format!("cannot delete {}", told(fault))).collect();
    if !faults.is_empty() {
        return Err(all_of(faults));
    }
    let warnings: Vec<String> = warnings.into_iter().map(told).collect();
    Ok(Plan { pods: chosen, warnings: warnings.join("; ") })
}

/// Several faults, each told once; even one alone is told as one of several.
fn all_of(faults: Vec<String>) -> Failure {
    let mut all: Vec<String> = Vec::new();
    for fault in faults {
        if !all.contains(&fault) {
            all.push(fault);
        }
    }
    Failure::Many(all.into_iter().map(Failure::Plain).collect())
}

/// Several faults in one line, as upstream's aggregates are shown.
fn shown(failure: &Failure) -> String {
    match failure {
        Failure::Many(all) if all.len() != 1 => {
            let texts: Vec<String> = all.iter().map(shown).collect();
            format!("[{}]", texts.join(", "))
        }
        Failure::Many(all) => shown(&all[0]),
        other => other.text(),
    }
}

/// How pods leave a node.
struct Leave<'l> {
    cluster: &'l Cluster,
    arguments: &'l Arguments,
    dry_run: DryRun,
    end: Instant,
    /// All pods leave at once, and each has something to say.
    session: RefCell<&'l mut Session>,
}

impl Leave<'_> {
    fn say(&self, text: &str) -> Outcome {
        Ok(writeln!(self.session.borrow_mut().out, "{text}")?)
    }

    fn complain(&self, text: &str) -> Outcome {
        Ok(writeln!(self.session.borrow_mut().err, "{text}")?)
    }

    fn options(&self) -> Delete {
        let grace = self.arguments.number("grace-period");
        Delete {
            grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
            dry_run: self.dry_run == DryRun::Server,
            ..Delete::default()
        }
    }

    async fn evict(&self, pods: &[&Value]) -> Outcome {
        let outcomes = futures_util::future::join_all(pods.iter().map(|pod| self.evict_one(pod)));
        let faults = outcomes.await.into_iter().filter_map(Result::err);
        let faults: Vec<String> = faults.map(|failure| failure.text()).collect();
        if faults.is_empty() { Ok(()) } else { Err(all_of(faults)) }
    }

    /// Evicts a pod, as often as it takes, and waits until it is gone.
    async fn evict_one(&self, pod: &Value) -> Outcome {
        let (namespace, name) = place(pod);
        let at = format!("pods/\"{name}\" -n \"{namespace}\"");
        let mut pod = pod.clone();
        loop {
            let suffix = self.dry_run.suffix();
            self.say(&format!("evicting pod {namespace}/{name}{suffix}"))?;
            if Instant::now() >= self.end {
                let patience = self.arguments.text("timeout");
                let patience = api::duration::Duration::parse(patience).unwrap_or_default();
                return Err(format!(
                    "error when evicting {at}: global timeout reached: {patience}"
                )
                .into());
            }
            let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": name, "namespace": namespace },
                "deleteOptions": self.options().tree() });
            let write = Write { dry_run: self.dry_run == DryRun::Server, ..Write::default() };
            let place = (namespace, name, "eviction");
            let resource = pods::resource();
            let asked = self.cluster.create_part(&resource, place, &eviction, &write).await;
            let status = match asked {
                Ok(_) => break,
                Err(failure) if failure.is_not_found() => return Ok(()),
                Err(Failure::Server(status)) => status,
                Err(failure) => {
                    return Err(format!("error when evicting {at}: {}", failure.text()).into());
                }
            };
            let is_ending = !pod["metadata"]["deletionTimestamp"].is_null();
            match (status.code, is_namespace_ending(&status)) {
                // A budget does not allow it yet.
                (429, _) => self.complain(&format!(
                    "error when evicting {at} (will retry after 5s): {}",
                    status.message
                ))?,
                (403, true) if is_ending => break,
                (403, true) => self.complain(&format!(
                    "error when evicting pod \"{name}\" from terminating namespace \"{namespace}\" (will \
                     retry after 5s): {}",
                    status.message
                ))?,
                _ => return Err(format!("error when evicting {at}: {}", status.message).into()),
            }
            tokio::time::sleep(AGAIN).await;
            if let Ok(fresh) = self.cluster.get(&resource, namespace, name).await {
                pod = fresh;
            }
        }
        if self.dry_run == DryRun::Server {
            return Ok(());
        }
        self.wait(&pod, "evicted", "eviction failed").await.map_err(|failure| {
            Failure::Plain(format!(
                "error when waiting for pod \"{name}\" in namespace \"{namespace}\" to terminate: {}",
                failure.text()
            ))
        })
    }

    /// Deletes pods, and then waits for all of them.
    async fn delete(&self, pods: &[&Value]) -> Outcome {
        for pod in pods {
            let (namespace, name) = place(pod);
            match self.cluster.delete(&pods::resource(), namespace, name, self.options()).await {
                Err(failure) if !failure.is_not_found() => return Err(failure),
                _ => {}
            }
        }
        if self.dry_run == DryRun::Server {
            return Ok(());
        }
        let waits = pods.iter().map(|pod| self.wait(pod, "deleted", "deletion failed"));
        futures_util::future::try_join_all(waits).await.map(drop)
    }

    /// Waits until a pod is gone, or is not waited for any longer.
    async fn wait(&self, pod: &Value, done: &str, failed: &str) -> Outcome {
        let (namespace, name) = place(pod);
        let uid = pod["metadata"]["uid"].clone();
        let patience = self.arguments.number("skip-wait-for-delete-timeout");
        let mut look = |now: Option<&Value>| {
            let there = now.filter(|now| now["metadata"]["uid"] == uid);
            Ok(match there {
                Some(now) if is_late(now, patience) => ControlFlow::Break(false),
                Some(_) => ControlFlow::Continue(()),
                None => ControlFlow::Break(true),
            })
        };
        let left = self.end.saturating_duration_since(Instant::now());
        let resource = pods::resource();
        let waited =
            watching::until(self.cluster, &resource, namespace, name, left, &mut look).await;
        match waited {
            Ok(Some(true)) => self.say(&format!("pod/{name} {done}")),
            Ok(Some(false)) => self.say(&format!(
                "pod \"{name}\" has DeletionTimestamp older than {patience} seconds, skipping"
            )),
            Ok(None) => Err("context deadline exceeded".into()),
            Err(failure) => {
                self.say(&format!("pod/{name} {failed}"))?;
                Err(failure)
            }
        }
    }
}

fn is_namespace_ending(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
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
            (pod("daemon", owner("DaemonSet"), json!(null)), DaemonSet::There),
            (pod("orphan", owner("DaemonSet"), json!(null)), DaemonSet::Gone("no set".to_owned())),
            (pod("web", owner("ReplicaSet"), json!(null)), DaemonSet::None),
            (pod("scratch", owner("ReplicaSet"), json!([{ "emptyDir": {} }])), DaemonSet::None),
            (pod("alone", json!(null), json!(null)), DaemonSet::None),
        ];
        let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let arguments =
            Arguments::parse("kubectl drain", DRAIN.flags, &words).expect("flags are good");
        let told = match plan(&all, &arguments) {
            Ok(plan) => {
                let names: Vec<&str> = plan.pods.iter().map(|pod| place(pod).1).collect();
                format!("{} | {}", names.join(" "), plan.warnings)
            }
            Err(failure) => shown(&failure),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn pods_go_that_may() {
        check(
            "",
            "[cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): d/daemon, cannot delete \
             Pods that declare no controller (use --force to override): d/alone, cannot delete Pods with local \
             storage (use --delete-emptydir-data to override): d/scratch, cannot delete no set: d/orphan]",
        );
        check(
            "--ignore-daemonsets --force --delete-emptydir-data",
            "orphan web scratch alone | deleting Pods that declare no controller: d/alone; ignoring DaemonSet-managed \
             Pods: d/daemon",
        );
    }

    use crate::session::tests::{told, world};
    use client::testing::World;

    /// A node with a pod, in a world that can evict; what it answers to that is the test's.
    fn node() -> World {
        let world = world();
        let node =
            client::ApiResource::custom("", "v1", "nodes", "Node", api::kinds::Scope::Cluster);
        world.put_tree(
            &node,
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }),
        );
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "controller": true }]);
        world.put_tree(
            &pods::resource(),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "default",
                "uid": "u", "ownerReferences": owner }, "spec": { "nodeName": "n" } }),
        );
        world
    }

    #[tokio::test]
    async fn pods_are_deleted_where_evictions_are_not_wanted() {
        let world = node();
        assert_eq!(
            told(&world, "drain n --disable-eviction").await,
            "node/n cordoned\npod/p deleted\nnode/n drained\n"
        );
        assert_eq!(told(&world, "drain n").await, "node/n already cordoned\nnode/n drained\n");
    }

    #[tokio::test]
    async fn a_dry_run_tells_what_would_go() {
        assert_eq!(
            told(&node(), "drain n --dry-run=client").await,
            "node/n cordoned (dry run)\nevicting pod default/p (dry run)\nnode/n drained (dry run)\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_asked_again_until_it_is_too_late() {
        let world = node();
        world.refuse(|line| {
            line.contains("eviction")
                .then(|| api::status::Status::too_many_requests("no disruption", 0))
        });
        let text = told(&world, "drain n --timeout=7s").await;
        let again = "evicting pod default/p\nerror when evicting pods/\"p\" -n \"default\" (will retry after 5s): \
                     no disruption\n";
        let late = "error when evicting pods/\"p\" -n \"default\": global timeout reached: 7s";
        assert_eq!(
            text,
            format!(
                "node/n cordoned\n{again}{again}evicting pod default/p\nThere are pending pods in node \"n\" when an \
                 error occurred: {late}\npod/p\nerror: unable to drain node \"n\" due to error: {late}, continuing \
                 command...\nThere are pending nodes to be drained:\n n\n{late}\n"
            )
        );
    }
}
