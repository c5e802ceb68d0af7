//! Which pod goes first, and what it is told: pods that use more than they asked for, then those of
//! low priority, then those furthest above what they asked for.
use super::decide::Observations;
use super::thresholds::{Signal, Threshold};
use crate::admission;
use crate::pod;
use api::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What one pod uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodUse {
    pub memory: i64,
    pub processes: i64,
    pub containers: BTreeMap<String, ContainerUse>,
    /// Of volumes that live with the pod, by name.
    pub volumes: BTreeMap<String, Disk>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerUse {
    pub memory: i64,
    pub rootfs: Disk,
    pub logs: Disk,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Disk {
    pub bytes: i64,
    pub inodes: i64,
}

impl std::iter::Sum for Disk {
    fn sum<I: Iterator<Item = Disk>>(all: I) -> Disk {
        all.fold(Disk::default(), |sum, one| Disk {
            bytes: sum.bytes + one.bytes,
            inodes: sum.inodes + one.inodes,
        })
    }
}

/// Which of a pod's files count: containers' own layers may be on another disk than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    All,
    Layers,
    LogsAndVolumes,
}

impl PodUse {
    pub fn disk(&self, counted: Counted) -> Disk {
        let layers = self.containers.values().map(|one| one.rootfs);
        let logs = self.containers.values().map(|one| one.logs);
        let volumes = self.volumes.values().copied();
        match counted {
            Counted::All => layers.chain(logs).chain(volumes).sum(),
            Counted::Layers => layers.sum(),
            Counted::LogsAndVolumes => logs.chain(volumes).sum(),
        }
    }
}

pub type Uses = HashMap<String, PodUse>;

/// A pod that is never evicted: the node or the cluster stands on it.
pub fn is_critical(pod: &Pod) -> bool {
    const SYSTEM: i32 = 2_000_000_000;
    let priority = pod::spec(pod).priority;
    pod::is_static(pod) || pod::is_mirror(pod) || priority.is_some_and(|one| one >= SYSTEM)
}

/// The first goes first. `has_image_disk`: images and layers are on a disk of their own.
pub fn rank(pods: &mut [Arc<Pod>], uses: &Uses, signal: Signal, has_image_disk: bool) {
    pods.sort_by_cached_key(|pod| {
        let priority = pod::spec(pod).priority.unwrap_or(0);
        // Of whom nothing is known goes before whom something is known of.
        let Some(used) = uses.get(pod::uid(pod)) else {
            return (false, false, priority, Reverse(0));
        };
        let asked = admission::requests(pod);
        let asked = |name: &str| asked.get(name).copied().unwrap_or(0);
        let (used, asked) = match signal.resource() {
            "memory" => (used.memory, asked("memory")),
            "pids" => return (true, false, priority, Reverse(used.processes)),
            resource => {
                let disk = used.disk(counted(signal, has_image_disk));
                match resource {
                    "inodes" => (disk.inodes, 0),
                    _ => (disk.bytes, asked("ephemeral-storage")),
                }
            }
        };
        (true, used <= asked, priority, Reverse(used - asked))
    });
}

fn counted(signal: Signal, has_image_disk: bool) -> Counted {
    match signal {
        _ if !has_image_disk => Counted::All,
        Signal::NodeFs | Signal::NodeFsInodes => Counted::LogsAndVolumes,
        _ => Counted::Layers,
    }
}

/// What the pod's status and an event say.
pub fn message(
    pod: &Pod,
    used: Option<&PodUse>,
    thresholds: &[&Threshold],
    seen: &Observations,
) -> String {
    let Some(first) = thresholds.first() else { return String::new() };
    let resource = first.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    let told = thresholds.iter().filter(|one| one.signal.resource() == resource);
    let told = told.filter_map(|one| Some((one, seen.get(&one.signal)?))).next();
    if let Some((threshold, seen)) = told {
        let level = threshold.level.shown(threshold.signal, seen.capacity);
        let available = Quantity::new(seen.available, threshold.signal.format());
        text += &format!("Threshold quantity: {level}, available: {available}. ");
    }
    let Some(used) = used else { return text };
    let shown = |amount: i64| Quantity::new(amount, Format::BinarySI).to_string();
    let own = pod::spec(pod).resources.as_ref().and_then(|all| all.requests.as_ref());
    if let Some(asked) = own.and_then(|all| all.get(resource)).filter(|_| resource == "memory") {
        text += &format!(
            "Pod {} was using {}, request is {}, has larger consumption of {resource}. ",
            pod::name(pod),
            shown(used.memory),
            asked.0
        );
    }
    for (_, container) in pod::containers(pod) {
        let Some(used) = used.containers.get(&container.name) else { continue };
        let amount = match resource {
            "memory" => used.memory,
            "ephemeral-storage" => used.rootfs.bytes + used.logs.bytes,
            _ => continue,
        };
        let asked = requested(container, resource);
        if amount > asked.as_ref().map_or(0, Quantity::value) {
            let asked = asked.map_or("0".to_owned(), |asked| asked.to_string());
            text += &format!(
                "Container {} was using {}, request is {asked}, has larger consumption of {resource}. ",
                container.name,
                shown(amount),
            );
        }
    }
    text
}

fn requested(container: &Container, resource: &str) -> Option<Quantity> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    Quantity::parse(&requests.get(resource)?.0).ok()
}

/// Why a pod has to go that uses more disk than it may, whatever the node has left.
pub fn over_limit(
    pod: &Pod,
    used: &PodUse,
    has_image_disk: bool,
) -> Option<(&'static str, String)> {
    let parse = |text: &str| Quantity::parse(text).ok();
    for volume in pod::spec(pod).volumes.iter().flatten() {
        let Some(source) = &volume.empty_dir else { continue };
        // A limit of memory is kept by the kernel.
        let limit = source.size_limit.as_ref().filter(|_| !is_in_memory(source));
        let Some(limit) = limit.and_then(|limit| parse(&limit.0)) else { continue };
        let bytes = used.volumes.get(&volume.name).map_or(0, |disk| disk.bytes);
        if limit.sign().is_gt() && bytes > limit.value() {
            let why = format!(
                "Usage of EmptyDir volume \"{}\" exceeds the limit \"{limit}\". ",
                volume.name
            );
            return Some(("emptydirfs.limit", why));
        }
    }
    const DISK: &str = "ephemeral-storage";
    // Unlike of memory, a limit of some containers is one of the pod (upstream's `PodLimits`).
    let whole = admission::sum_of_limits(pod).get(DISK).copied();
    if let Some(limit) = whole.filter(|limit| used.disk(Counted::All).bytes > *limit) {
        let limit = Quantity::new(limit, Format::BinarySI);
        let why = format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        );
        return Some(("ephemeralpodfs.limit", why));
    }
    for (_, container) in pod::containers(pod).filter(|(role, _)| *role != pod::Role::Init) {
        let limits = container.resources.as_ref().and_then(|all| all.limits.as_ref());
        let limit = limits.and_then(|all| parse(&all.get(DISK)?.0));
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else { continue };
        let Some(used) = used.containers.get(&container.name) else { continue };
        let layer = if has_image_disk { 0 } else { used.rootfs.bytes };
        if used.logs.bytes + layer > limit.value() {
            let why = format!(
                "Container {} exceeded its local ephemeral storage limit \"{limit}\". ",
                container.name
            );
            return Some(("ephemeralcontainerfs.limit", why));
        }
    }
    None
}

fn is_in_memory(source: &k8s_openapi::api::core::v1::EmptyDirVolumeSource) -> bool {
    source.medium.as_deref().is_some_and(|medium| !medium.is_empty())
}

/// Whether a pod may be evicted for what it keeps on disk: then its files are counted.
pub fn has_disk_limit(pod: &Pod) -> bool {
    let volumes = pod::spec(pod).volumes.iter().flatten();
    let mut limited = volumes.filter_map(|one| one.empty_dir.as_ref());
    limited.any(|source| source.size_limit.is_some() && !is_in_memory(source))
        || admission::sum_of_limits(pod).contains_key("ephemeral-storage")
}

#[cfg(test)]
mod tests {
    use super::super::decide::Seen;
    use super::super::thresholds::{Wishes, default_hard, parse};
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    /// `NAME priority request(Mi)` and what it uses (Mi).
    fn pod(name: &str, priority: i32, request: u32) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "uid": name },
                "spec": { "priority": priority, "containers": [{ "name": "c", "resources": {
                    "requests": { "memory": format!("{request}Mi") } } }] }
            }))
            .unwrap(),
        )
    }

    fn used(memory: i64, disk: i64) -> PodUse {
        let rootfs = Disk { bytes: disk << 20, inodes: disk };
        let one = ContainerUse { memory: memory << 20, rootfs, ..ContainerUse::default() };
        PodUse {
            memory: memory << 20,
            processes: memory,
            containers: [("c".to_owned(), one)].into(),
            ..PodUse::default()
        }
    }

    fn order(signal: Signal) -> String {
        let mut pods = vec![
            pod("modest", 0, 100),
            pod("greedy", 0, 10),
            pod("greedier", 0, 10),
            pod("important", 5, 10),
        ];
        let uses = Uses::from([
            ("modest".to_owned(), used(90, 0)),
            ("greedy".to_owned(), used(50, 7)),
            ("greedier".to_owned(), used(60, 3)),
            ("important".to_owned(), used(500, 1)),
        ]);
        rank(&mut pods, &uses, signal, false);
        pods.iter().map(|pod| pod::name(pod)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn those_above_their_requests_go_first_then_the_unimportant() {
        assert_eq!(order(Signal::Memory), "greedier greedy important modest");
        assert_eq!(order(Signal::NodeFs), "greedy greedier important modest");
        assert_eq!(order(Signal::Pids), "modest greedier greedy important");
    }

    #[test]
    fn a_message_says_what_was_low_and_who_used_it() {
        let thresholds = parse(&Wishes { hard: default_hard(), ..Wishes::default() }).unwrap();
        let memory: Vec<_> = thresholds.iter().filter(|one| one.signal == Signal::Memory).collect();
        let seen =
            Observations::from([(Signal::Memory, Seen { available: 99 << 20, capacity: 4 << 30 })]);
        expect!["The node was low on resource: memory. Threshold quantity: 100Mi, available: 99Mi. Container c was using 50Mi, request is 10Mi, has larger consumption of memory. "]
            .assert_eq(&message(&pod("web", 0, 10), Some(&used(50, 0)), &memory, &seen));
    }

    #[test]
    fn limits_of_disks_are_kept() {
        let check = |spec: serde_json::Value, used: &PodUse| {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            over_limit(&pod, used, false).map(|(signal, why)| format!("{signal}: {why}"))
        };
        let mut with_volume = used(0, 10);
        with_volume.volumes.insert("v".to_owned(), Disk { bytes: 2 << 20, inodes: 1 });
        let volume = |medium: &str| json!({ "containers": [{ "name": "c" }], "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Mi", "medium": medium } }] });
        assert_eq!(
            check(volume(""), &with_volume).unwrap(),
            "emptydirfs.limit: Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "
        );
        assert_eq!(check(volume("Memory"), &with_volume), None);
        let limit = |limit: &str| json!({ "containers": [{ "name": "c", "resources": { "limits": { "ephemeral-storage": limit } } }] });
        assert_eq!(check(limit("20Mi"), &with_volume), None);
        assert_eq!(
            check(limit("11Mi"), &with_volume).unwrap(),
            "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 11Mi. "
        );
        let mut two = limit("5Mi");
        let other = limit("50Mi")["containers"][0].clone();
        two["containers"].as_array_mut().unwrap().push(other);
        two["containers"][1]["name"] = "d".into();
        assert_eq!(
            check(two, &with_volume).unwrap(),
            "ephemeralcontainerfs.limit: Container c exceeded its local ephemeral storage limit \"5Mi\". "
        );
    }
}
