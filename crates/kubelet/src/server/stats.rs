//! `/stats/summary`: what the node and its pods use, in the words of upstream's
//! `stats/v1alpha1.Summary`. The runtime knows of containers and pods, the kernel of the machine.
use super::answer::{self, Refused, Reply};
use crate::found::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::node::{Facts, Usage};
use crate::runtime::{RuntimeError, cri};
use crate::worker::{Kubelet, Measured};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub async fn summary(kubelet: &Arc<Kubelet>, only_cpu_and_memory: bool) -> Result<Reply, Refused> {
    let pods = pods(kubelet).await.map_err(answer::internal)?;
    let images = match only_cpu_and_memory {
        true => None,
        false => kubelet.runtime.image_fs_info(cri::ImageFsInfoRequest {}).await.ok(),
    };
    let facts = Facts::read(&kubelet.config.root);
    let usage = kubelet.counters.usage();
    let now = kubelet.context.now();
    let volumes = kubelet.measured_volumes();
    let stats_of = |pod: &PodUsage| {
        let volumes = volumes.get(pod.uid()).map_or(&[][..], |rows| rows);
        pod_stats(pod, volumes, &facts, now)
    };
    let mut pods: Vec<Value> = pods.iter().map(stats_of).collect();
    let mut node = node(&kubelet.config.node_name, &facts, &usage, images, now);
    if only_cpu_and_memory {
        for one in pods.iter_mut().chain([&mut node]) {
            keep_cpu_and_memory(one);
        }
    }
    Ok(answer::json(&json!({ "node": node, "pods": pods })))
}

/// A pod's usage, and what is known of containers beside it.
pub struct PodUsage {
    pub stats: cri::PodSandboxStats,
    pub listed: Arc<Listed>,
}

/// Every container of the runtime, by its id.
pub type Listed = HashMap<String, cri::Container>;

impl PodUsage {
    fn uid(&self) -> &str {
        self.stats.attributes.as_ref().map_or("", |known| label(&known.labels, POD_UID))
    }

    /// Nanoseconds since 1970.
    pub fn began(&self, id: &str) -> Option<i64> {
        self.listed.get(id).map(|one| one.created_at)
    }
}

pub async fn pods(kubelet: &Kubelet) -> Result<Vec<PodUsage>, RuntimeError> {
    let asked = kubelet.runtime.list_pod_sandbox_stats(Default::default()).await?;
    let listed = kubelet.runtime.list_containers(Default::default()).await?.containers;
    let listed: Arc<Listed> =
        Arc::new(listed.into_iter().map(|one| (one.id.clone(), one)).collect());
    let usage = |stats| PodUsage { stats, listed: listed.clone() };
    Ok(asked.stats.into_iter().map(usage).collect())
}

pub fn label<'a>(labels: &'a HashMap<String, String>, key: &str) -> &'a str {
    labels.get(key).map_or("", String::as_str)
}

fn pod_stats(pod: &PodUsage, volumes: &[Measured], facts: &Facts, now: Timestamp) -> Value {
    let attributes = pod.stats.attributes.clone().unwrap_or_default();
    let linux = pod.stats.linux.clone().unwrap_or_default();
    let containers: Vec<Value> =
        linux.containers.iter().map(|one| container(one, pod, facts)).collect();
    let ephemeral = || volumes.iter().filter(|one| one.is_ephemeral);
    let of_containers = |field: &str| {
        containers.iter().filter_map(|one| one["rootfs"][field].as_u64()).sum::<u64>()
    };
    let used = of_containers("usedBytes") + ephemeral().map(|one| one.usage.used).sum::<u64>();
    let inodes_used =
        of_containers("inodesUsed") + ephemeral().map(|one| one.usage.inodes_used).sum::<u64>();
    let namespace = label(&attributes.labels, POD_NAMESPACE);
    let volumes: Vec<Value> = volumes.iter().map(|one| volume(one, namespace)).collect();
    let began = linux.containers.iter().filter_map(|one| pod.began(&one.attributes.as_ref()?.id));
    let mut shown = json!({
        "podRef": {
            "name": label(&attributes.labels, POD_NAME),
            "namespace": namespace,
            "uid": label(&attributes.labels, POD_UID),
        },
        "startTime": began.min().map_or(json!(Time(now)), time),
        "containers": containers,
        "cpu": linux.cpu.as_ref().map(|cpu| {
            // A pod uses what its containers do.
            let cores = linux.containers.iter().filter_map(|one| one.cpu.as_ref()?.usage_nano_cores);
            let cores = cores.map(|cores| cores.value).sum::<u64>();
            let mut shown = cpu_stats(cpu);
            shown["usageNanoCores"] = json!(cores);
            shown
        }),
        "memory": linux.memory.as_ref().map(memory),
        "io": linux.io.as_ref().map(io),
        "network": linux.network.as_ref().map(network),
        "ephemeral-storage": {
            "time": Time(now), "availableBytes": facts.disk_available, "capacityBytes": facts.disk,
            "usedBytes": used, "inodesFree": facts.inodes_free, "inodes": facts.inodes,
            "inodesUsed": inodes_used,
        },
        "process_stats": linux.process.as_ref().map(|all| json!({ "process_count": value(&all.process_count) })),
    });
    if !volumes.is_empty() {
        shown["volume"] = json!(volumes);
    }
    shown
}

fn volume(one: &Measured, namespace: &str) -> Value {
    let usage = &one.usage;
    let mut shown = json!({
        "time": Time(one.at), "availableBytes": usage.available, "capacityBytes": usage.capacity,
        "usedBytes": usage.used, "inodesFree": usage.inodes_free, "inodes": usage.inodes,
        "inodesUsed": usage.inodes_used, "name": one.volume,
    });
    if let Some(claim) = &one.claim {
        shown["pvcRef"] = json!({ "name": claim, "namespace": namespace });
    }
    shown
}

fn container(one: &cri::ContainerStats, pod: &PodUsage, facts: &Facts) -> Value {
    let attributes = one.attributes.clone().unwrap_or_default();
    json!({
        "name": label(&attributes.labels, CONTAINER_NAME),
        "startTime": pod.began(&attributes.id).map(time),
        "cpu": one.cpu.as_ref().map(cpu_stats),
        "memory": one.memory.as_ref().map(memory),
        "io": one.io.as_ref().map(io),
        "rootfs": one.writable_layer.as_ref().map(|layer| disk(layer, facts)),
        "swap": one.swap.as_ref().map(|swap| json!({
            "time": time(swap.timestamp), "swapUsageBytes": value(&swap.swap_usage_bytes),
            "swapAvailableBytes": value(&swap.swap_available_bytes),
        })),
    })
}

fn node(
    name: &str,
    facts: &Facts,
    usage: &Usage,
    images: Option<cri::ImageFsInfoResponse>,
    now: Timestamp,
) -> Value {
    let first = |all: &[cri::FilesystemUsage]| all.first().map(|one| disk(one, facts));
    let interfaces: Vec<Value> = usage
        .interfaces
        .iter()
        .map(|one| json!({ "name": one.name, "rxBytes": one.rx_bytes, "rxErrors": one.rx_errors, "txBytes": one.tx_bytes, "txErrors": one.tx_errors }))
        .collect();
    let working_set = facts.memory.saturating_sub(facts.memory_available);
    let mut shown_network = interfaces.first().cloned().unwrap_or(json!({ "name": "" }));
    shown_network["time"] = json!(Time(now));
    shown_network["interfaces"] = json!(interfaces);
    let mut shown = json!({
        "nodeName": name,
        "startTime": time(usage.booted.saturating_mul(1_000_000_000)),
        "cpu": { "time": Time(now), "usageNanoCores": usage.nano_cores, "usageCoreNanoSeconds": usage.cpu_nanoseconds },
        "memory": {
            "time": Time(now), "availableBytes": facts.memory_available,
            "usageBytes": facts.memory.saturating_sub(usage.memory_free),
            "workingSetBytes": working_set, "rssBytes": usage.memory_anonymous,
            "pageFaults": usage.page_faults, "majorPageFaults": usage.major_page_faults,
        },
        "network": shown_network,
        "fs": {
            "time": Time(now), "availableBytes": facts.disk_available, "capacityBytes": facts.disk,
            "usedBytes": facts.disk.saturating_sub(facts.disk_free),
            "inodesFree": facts.inodes_free, "inodes": facts.inodes,
            "inodesUsed": facts.inodes.saturating_sub(facts.inodes_free),
        },
        "runtime": {
            "imageFs": images.as_ref().and_then(|all| first(&all.image_filesystems)),
            "containerFs": images.as_ref().and_then(|all| {
                first(&all.container_filesystems).or_else(|| first(&all.image_filesystems))
            }),
        },
        "rlimit": { "time": Time(now), "maxpid": facts.pids, "curproc": facts.pids_used },
        "swap": {
            "time": Time(now), "swapAvailableBytes": usage.swap_free,
            "swapUsageBytes": usage.swap.saturating_sub(usage.swap_free),
        },
    });
    let pressures =
        [("cpu", usage.cpu_pressure), ("memory", usage.memory_pressure), ("io", usage.io_pressure)];
    for (resource, pressure) in pressures {
        let Some(pressure) = pressure else { continue };
        shown[resource]["time"] = json!(Time(now));
        shown[resource]["psi"] = psi(&pressure.into());
    }
    shown
}

/// How long programs had to wait, in microseconds and per cent.
fn psi(stats: &cri::PsiStats) -> Value {
    let data = |data: &Option<cri::PsiData>| {
        let data = data.unwrap_or_default();
        json!({ "total": data.total, "avg10": data.avg10, "avg60": data.avg60, "avg300": data.avg300 })
    };
    json!({ "full": data(&stats.full), "some": data(&stats.some) })
}

fn io(usage: &cri::IoUsage) -> Value {
    let mut shown = json!({ "time": time(usage.timestamp) });
    if let Some(stats) = &usage.psi {
        shown["psi"] = psi(stats);
    }
    shown
}

fn keep_cpu_and_memory(stats: &mut Value) {
    const KEPT: [&str; 8] =
        ["podRef", "nodeName", "startTime", "cpu", "memory", "swap", "containers", "name"];
    if let Some(fields) = stats.as_object_mut() {
        fields.retain(|name, _| KEPT.contains(&name.as_str()));
    }
    for one in stats["containers"].as_array_mut().into_iter().flatten() {
        keep_cpu_and_memory(one);
    }
}

/// Nanoseconds since 1970, as the API writes times.
fn time(nanoseconds: i64) -> Value {
    json!(Time(Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default()))
}

pub fn value(value: &Option<cri::UInt64Value>) -> Option<u64> {
    value.as_ref().map(|value| value.value)
}

fn cpu_stats(cpu: &cri::CpuUsage) -> Value {
    let mut shown = json!({
        "time": time(cpu.timestamp), "usageNanoCores": value(&cpu.usage_nano_cores).unwrap_or(0),
        "usageCoreNanoSeconds": value(&cpu.usage_core_nano_seconds),
    });
    if let Some(stats) = &cpu.psi {
        shown["psi"] = psi(stats);
    }
    shown
}

fn memory(memory: &cri::MemoryUsage) -> Value {
    let mut shown = json!({
        "time": time(memory.timestamp), "usageBytes": value(&memory.usage_bytes),
        "workingSetBytes": value(&memory.working_set_bytes), "rssBytes": value(&memory.rss_bytes),
        "pageFaults": value(&memory.page_faults), "majorPageFaults": value(&memory.major_page_faults),
    });
    if let Some(available) = value(&memory.available_bytes) {
        shown["availableBytes"] = json!(available);
    }
    if let Some(stats) = &memory.psi {
        shown["psi"] = psi(stats);
    }
    shown
}

fn network(network: &cri::NetworkUsage) -> Value {
    let interface = |one: &cri::NetworkInterfaceUsage| {
        json!({
            "name": one.name, "rxBytes": value(&one.rx_bytes), "rxErrors": value(&one.rx_errors),
            "txBytes": value(&one.tx_bytes), "txErrors": value(&one.tx_errors),
        })
    };
    let first = network.default_interface.as_ref();
    let mut shown = first.map_or(json!({ "name": "" }), interface);
    let all: Vec<Value> = first.into_iter().chain(&network.interfaces).map(interface).collect();
    shown["time"] = time(network.timestamp);
    shown["interfaces"] = json!(all);
    shown
}

fn disk(usage: &cri::FilesystemUsage, facts: &Facts) -> Value {
    json!({
        "time": time(usage.timestamp), "availableBytes": facts.disk_available,
        "capacityBytes": facts.disk, "usedBytes": value(&usage.used_bytes),
        "inodesFree": facts.inodes_free, "inodes": facts.inodes,
        "inodesUsed": value(&usage.inodes_used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::usage;
    use runtime::cgroup::{Pressure, Stall};

    #[test]
    fn the_node_tells_what_its_programs_wait_for() {
        let some = Stall { total: 7, ..Stall::default() };
        let usage = Usage {
            io_pressure: Some(Pressure { some, ..Pressure::default() }),
            ..Usage::default()
        };
        let shown = node("n", &Facts::default(), &usage, None, Timestamp::UNIX_EPOCH);
        assert_eq!(shown["io"]["psi"]["some"]["total"], 7);
        assert_eq!(shown["io"]["time"], "1970-01-01T00:00:00Z");
        assert!(shown["cpu"].get("psi").is_none(), "the kernel does not measure it");
    }

    #[test]
    fn a_pod_is_told_by_its_labels_and_uses_what_its_containers_do() {
        let labels = |rows: &[(&str, &str)]| {
            rows.iter().map(|(key, value)| (String::from(*key), String::from(*value))).collect()
        };
        let number = |value| Some(cri::UInt64Value { value });
        let stall = cri::PsiData { total: 9, avg10: 0.5, ..Default::default() };
        let container = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                id: "c1".into(),
                labels: labels(&[(CONTAINER_NAME, "c")]),
                ..Default::default()
            }),
            cpu: Some(cri::CpuUsage {
                usage_nano_cores: number(7),
                psi: Some(cri::PsiStats { some: Some(stall), full: None }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let stats = cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                labels: labels(&[(POD_NAME, "web"), (POD_NAMESPACE, "ns"), (POD_UID, "u")]),
                ..Default::default()
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                cpu: Some(cri::CpuUsage::default()),
                containers: vec![container.clone(), container],
                ..Default::default()
            }),
            windows: None,
        };
        let measured = |volume: &str, claim: Option<&str>| Measured {
            volume: volume.to_owned(),
            claim: claim.map(str::to_owned),
            is_ephemeral: claim.is_none(),
            at: Timestamp::UNIX_EPOCH,
            usage: usage::Usage { capacity: 100, used: 10, inodes_used: 2, ..Default::default() },
        };
        let volumes = [measured("tmp", None), measured("data", Some("claim"))];
        let one = cri::Container { created_at: 5_000_000_000, ..Default::default() };
        let pod = PodUsage { stats, listed: Arc::new(HashMap::from([("c1".to_owned(), one)])) };
        let mut shown = pod_stats(&pod, &volumes, &Facts::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(shown["volume"][0]["name"], "tmp");
        assert!(shown["volume"][0].get("pvcRef").is_none());
        assert_eq!(shown["volume"][1]["pvcRef"], json!({ "name": "claim", "namespace": "ns" }));
        assert_eq!(shown["volume"][1]["capacityBytes"], 100);
        let own = &shown["ephemeral-storage"];
        assert_eq!((&own["usedBytes"], &own["inodesUsed"]), (&json!(10), &json!(2)));
        assert_eq!(shown["podRef"], json!({ "name": "web", "namespace": "ns", "uid": "u" }));
        assert_eq!(shown["cpu"]["usageNanoCores"], 14);
        assert_eq!(shown["startTime"], "1970-01-01T00:00:05Z");
        let none = json!({ "total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0 });
        let some = json!({ "total": 9, "avg10": 0.5, "avg60": 0.0, "avg300": 0.0 });
        assert_eq!(shown["containers"][0]["cpu"]["psi"], json!({ "full": none, "some": some }));
        assert!(shown["memory"].get("psi").is_none());
        keep_cpu_and_memory(&mut shown);
        assert_eq!(shown["containers"][0]["cpu"]["usageNanoCores"], 7);
        assert!(shown.get("network").is_none() && shown["containers"][0].get("rootfs").is_none());
    }
}
