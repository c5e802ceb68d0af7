//! `/metrics/cadvisor`: what cAdvisor tells of containers, pods and the machine, under its names and with
//! its labels, which are what dashboards and alerts are made of.
//!
//! What every runtime measures comes from its stats, in full precision ([`ROWS`]); the rest is what the
//! runtime tells as metrics (CRI's `ListPodSandboxMetrics`), if it does. A row of a container names its
//! image, which those of pods (`container=""`) and of the machine (`id="/"`) do not: sums over
//! `image!=""` count everything once.
use super::answer::{self, Refused};
use super::metrics::{family, quoted, seconds};
use super::stats::{self, PodUsage, label, value};
use crate::container::resources;
use crate::found::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::node::{Facts, Usage};
use crate::runtime::cri;
use crate::worker::Kubelet;
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};

pub async fn page(kubelet: &Kubelet) -> Result<String, Refused> {
    let pods = stats::pods(kubelet).await.map_err(answer::internal)?;
    let measured = measured(kubelet).await.unwrap_or_default();
    let (facts, usage) = (Facts::read(&kubelet.config.root), kubelet.counters.usage());
    let group = |uid: &str| {
        let pod = kubelet.pod(uid);
        pod.map(|pod| resources::cgroup_parent(&kubelet.config.cgroup_root, &pod))
    };
    let (cpu, memory) = whole(&facts, &usage, kubelet.context.now());
    let root = Used { labels: labelled(["", "/", "", "", "", ""]), ..Used::of(&cpu, &memory) };
    Ok(text(root, &pods, &measured, &group) + &machine(&facts))
}

/// The machine as a control group: the one that has all others.
fn whole(facts: &Facts, usage: &Usage, now: Timestamp) -> (cri::CpuUsage, cri::MemoryUsage) {
    let number = |value| Some(cri::UInt64Value { value });
    let timestamp = i64::try_from(now.as_nanosecond()).unwrap_or_default();
    let cpu = cri::CpuUsage {
        timestamp,
        usage_core_nano_seconds: number(usage.cpu_nanoseconds),
        ..Default::default()
    };
    let memory = cri::MemoryUsage {
        timestamp,
        working_set_bytes: number(facts.memory.saturating_sub(facts.memory_available)),
        usage_bytes: number(facts.memory.saturating_sub(usage.memory_free)),
        rss_bytes: number(usage.memory_anonymous),
        ..Default::default()
    };
    (cpu, memory)
}

/// What a runtime tells beside its stats; containerd before 2.0 tells nothing.
#[derive(Default)]
struct Measured {
    descriptors: HashMap<String, cri::MetricDescriptor>,
    pods: HashMap<String, cri::PodSandboxMetrics>,
}

async fn measured(kubelet: &Kubelet) -> Option<Measured> {
    let described = kubelet.runtime.list_metric_descriptors(Default::default()).await.ok()?;
    let listed = kubelet.runtime.list_pod_sandbox_metrics(Default::default()).await.ok()?;
    let named = |one: cri::MetricDescriptor| (one.name.clone(), one);
    let of_pod = |one: cri::PodSandboxMetrics| (one.pod_sandbox_id.clone(), one);
    Some(Measured {
        descriptors: described.descriptors.into_iter().map(named).collect(),
        pods: listed.pod_metrics.into_iter().map(of_pod).collect(),
    })
}

/// What a container, a pod or the machine uses.
#[derive(Default)]
struct Used<'a> {
    labels: String,
    cpu: Option<&'a cri::CpuUsage>,
    memory: Option<&'a cri::MemoryUsage>,
    io: Option<&'a cri::IoUsage>,
    layer: Option<&'a cri::FilesystemUsage>,
    /// Nanoseconds since 1970.
    began: Option<i64>,
}

impl<'a> Used<'a> {
    fn of(cpu: &'a cri::CpuUsage, memory: &'a cri::MemoryUsage) -> Used<'a> {
        Used { cpu: Some(cpu), memory: Some(memory), ..Used::default() }
    }
}

type Read = fn(&Used<'_>) -> Option<String>;

const ROWS: [(&str, &str, &str, Read); 13] = [
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        |one| Some(seconds(value(&one.cpu?.usage_core_nano_seconds)?)),
    ),
    (
        "container_memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |one| Some(value(&one.memory?.usage_bytes)?.to_string()),
    ),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |one| {
        Some(value(&one.memory?.working_set_bytes)?.to_string())
    }),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", |one| {
        Some(value(&one.memory?.rss_bytes)?.to_string())
    }),
    (
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        |one| Some(value(&one.layer?.used_bytes)?.to_string()),
    ),
    (
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds.",
        |one| Some(seconds(one.began?.unsigned_abs())),
    ),
    ("container_last_seen", "gauge", "Last time a container was seen by the exporter", |one| {
        Some((one.cpu?.timestamp / 1_000_000_000).to_string())
    }),
    (
        "container_pressure_cpu_stalled_seconds_total",
        "counter",
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        |one| stalled(one.cpu?.psi.as_ref()),
    ),
    (
        "container_pressure_cpu_waiting_seconds_total",
        "counter",
        "Total time duration tasks in the container have waited due to CPU congestion.",
        |one| waited(one.cpu?.psi.as_ref()),
    ),
    (
        "container_pressure_memory_stalled_seconds_total",
        "counter",
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        |one| stalled(one.memory?.psi.as_ref()),
    ),
    (
        "container_pressure_memory_waiting_seconds_total",
        "counter",
        "Total time duration tasks in the container have waited due to memory congestion.",
        |one| waited(one.memory?.psi.as_ref()),
    ),
    (
        "container_pressure_io_stalled_seconds_total",
        "counter",
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        |one| stalled(one.io?.psi.as_ref()),
    ),
    (
        "container_pressure_io_waiting_seconds_total",
        "counter",
        "Total time duration tasks in the container have waited due to IO congestion.",
        |one| waited(one.io?.psi.as_ref()),
    ),
];

type Count = fn(&cri::NetworkInterfaceUsage) -> Option<u64>;

const NETWORK: [(&str, &str, Count); 4] = [
    ("container_network_receive_bytes_total", "Cumulative count of bytes received", |one| {
        value(&one.rx_bytes)
    }),
    (
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        |one| value(&one.rx_errors),
    ),
    ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |one| {
        value(&one.tx_bytes)
    }),
    (
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        |one| value(&one.tx_errors),
    ),
];
/// What a metric of a pod's network is called: it is the pod's, whichever container tells it.
const OF_NETWORK: &str = "container_network_";
/// The labels that every sample has.
const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

fn labelled(values: [&str; 6]) -> String {
    let pair = |(name, value): (&str, &str)| format!("{name}=\"{}\"", quoted(value));
    LABELS.into_iter().zip(values).map(pair).collect::<Vec<_>>().join(",")
}

/// Seconds in which all programs of a container waited at once.
fn stalled(stats: Option<&cri::PsiStats>) -> Option<String> {
    Some(seconds(stats?.full.as_ref()?.total.saturating_mul(1000)))
}

/// Seconds in which at least one did.
fn waited(stats: Option<&cri::PsiStats>) -> Option<String> {
    Some(seconds(stats?.some.as_ref()?.total.saturating_mul(1000)))
}

/// A pod, and by what its samples and those of its containers are known.
struct Known<'a> {
    usage: &'a PodUsage,
    attributes: cri::PodSandboxAttributes,
    group: String,
}

impl<'a> Known<'a> {
    fn new(usage: &'a PodUsage, group: &dyn Fn(&str) -> Option<String>) -> Known<'a> {
        let attributes = usage.stats.attributes.clone().unwrap_or_default();
        let group = group(label(&attributes.labels, POD_UID)).unwrap_or_default();
        Known { usage, attributes, group }
    }

    fn of_pod(&self) -> String {
        let own = |key| label(&self.attributes.labels, key);
        labelled(["", &self.group, "", "", own(POD_NAMESPACE), own(POD_NAME)])
    }

    fn of_container(&self, id: &str) -> String {
        let listed = self.usage.listed.get(id);
        let name = listed.map_or("", |one| label(&one.labels, CONTAINER_NAME));
        let image = listed.map_or("", |one| match &one.image {
            Some(spec) if !spec.image.is_empty() => &spec.image,
            _ => &one.image_ref,
        });
        let own = |key| label(&self.attributes.labels, key);
        let group = format!("{}/{id}", self.group);
        labelled([name, &group, image, id, own(POD_NAMESPACE), own(POD_NAME)])
    }

    /// The pod, then its containers.
    fn used(&self) -> Vec<Used<'_>> {
        let Some(linux) = &self.usage.stats.linux else { return Vec::new() };
        let pod = Used {
            labels: self.of_pod(),
            cpu: linux.cpu.as_ref(),
            memory: linux.memory.as_ref(),
            io: linux.io.as_ref(),
            ..Used::default()
        };
        let containers = linux.containers.iter().map(|one| {
            let id = one.attributes.as_ref().map_or("", |attributes| &attributes.id);
            Used {
                labels: self.of_container(id),
                cpu: one.cpu.as_ref(),
                memory: one.memory.as_ref(),
                io: one.io.as_ref(),
                layer: one.writable_layer.as_ref(),
                began: self.usage.began(id),
            }
        });
        std::iter::once(pod).chain(containers).collect()
    }

    fn interfaces(&self) -> impl Iterator<Item = &cri::NetworkInterfaceUsage> {
        let network = self.usage.stats.linux.as_ref().and_then(|linux| linux.network.as_ref());
        network.into_iter().flat_map(|all| all.default_interface.iter().chain(&all.interfaces))
    }

    fn of_interface(&self, name: &str) -> String {
        format!("{},interface=\"{}\"", self.of_pod(), quoted(name))
    }
}

fn text(
    root: Used<'_>,
    pods: &[PodUsage],
    measured: &Measured,
    group: &dyn Fn(&str) -> Option<String>,
) -> String {
    let pods: Vec<Known<'_>> = pods.iter().map(|pod| Known::new(pod, group)).collect();
    let used: Vec<Used<'_>> =
        std::iter::once(root).chain(pods.iter().flat_map(Known::used)).collect();
    let mut text = String::new();
    for (name, kind, help, read) in ROWS {
        let mut all = family(&mut text, name, kind, help);
        for one in &used {
            read(one).into_iter().for_each(|sample| all.add(&one.labels, sample));
        }
    }
    for (name, help, count) in NETWORK {
        let mut all = family(&mut text, name, "counter", help);
        for pod in &pods {
            for one in pod.interfaces() {
                let labels = pod.of_interface(&one.name);
                count(one).into_iter().for_each(|number| all.add(&labels, number));
            }
        }
    }
    for (name, samples) in more(&pods, measured) {
        let help = measured.descriptors.get(name).map_or("", |one| &one.help);
        let mut all = family(&mut text, name, samples.kind, help);
        samples.rows.iter().for_each(|(labels, number)| all.add(labels, number));
    }
    text
}

#[derive(Default)]
struct Samples {
    kind: &'static str,
    rows: Vec<(String, u64)>,
}

/// What the runtime tells and its stats do not.
fn more<'m>(pods: &[Known<'_>], measured: &'m Measured) -> BTreeMap<&'m str, Samples> {
    let told: HashSet<&str> =
        ROWS.iter().map(|row| row.0).chain(NETWORK.iter().map(|row| row.0)).collect();
    let mut families: BTreeMap<&str, Samples> = BTreeMap::new();
    for pod in pods {
        let Some(metrics) = measured.pods.get(&pod.attributes.id) else { continue };
        let own = metrics.metrics.iter().map(|one| (None, one));
        let of_containers = metrics.container_metrics.iter().flat_map(|container| {
            container.metrics.iter().map(|one| (Some(container.container_id.as_str()), one))
        });
        let mut of_network = HashSet::new();
        for (container, metric) in own.chain(of_containers) {
            let name = metric.name.as_str();
            if told.contains(name) || !is_name(name) {
                continue;
            }
            let Some(number) = value(&metric.value) else { continue };
            let labels = match container {
                _ if name.starts_with(OF_NETWORK) => {
                    if !of_network.insert(name) {
                        continue;
                    }
                    let first = pod.interfaces().next().map_or("eth0", |one| &one.name);
                    pod.of_interface(first)
                }
                Some(id) => pod.of_container(id) + &extra(metric, measured),
                None => pod.of_pod() + &extra(metric, measured),
            };
            let family = families.entry(name).or_default();
            family.kind = match metric.metric_type() {
                cri::MetricType::Counter => "counter",
                cri::MetricType::Gauge => "gauge",
            };
            family.rows.push((labels, number));
        }
    }
    families
}

/// Labels beyond those that every sample has: a device, a kind of failure.
fn extra(metric: &cri::Metric, measured: &Measured) -> String {
    let keys = measured.descriptors.get(&metric.name).map_or(&[][..], |one| &one.label_keys);
    let pairs = keys.iter().zip(&metric.label_values);
    let more = pairs.filter(|(key, _)| !LABELS.contains(&key.as_str()) && is_name(key));
    more.map(|(key, value)| format!(",{key}=\"{}\"", quoted(value))).collect()
}

/// What a runtime calls a metric is a word, or it would say more than one thing.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn machine(facts: &Facts) -> String {
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, labels: &str, value: String| {
        family(&mut text, name, kind, help).add(labels, value);
    };
    let versions = format!(
        "cadvisorRevision=\"\",cadvisorVersion=\"\",dockerVersion=\"\",kernelVersion=\"{}\",osVersion=\"{}\"",
        quoted(&facts.kernel),
        quoted(&facts.os_image)
    );
    let info = "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.";
    one("cadvisor_version_info", "gauge", info, &versions, "1".to_owned());
    let same = format!(
        "boot_id=\"{}\",machine_id=\"{}\",system_uuid=\"{}\"",
        quoted(&facts.boot_id),
        quoted(&facts.machine_id),
        quoted(&facts.system_uuid)
    );
    let cores = "Number of logical CPU cores.";
    one("machine_cpu_cores", "gauge", cores, &same, facts.cpus.to_string());
    let memory = "Amount of memory installed on the machine.";
    one("machine_memory_bytes", "gauge", memory, &same, facts.memory.to_string());
    let swap = "Amount of swap memory available on the machine.";
    one("machine_swap_bytes", "gauge", swap, &same, facts.swap.to_string());
    let failed = "1 if there was an error while getting machine metrics, 0 otherwise.";
    one("machine_scrape_error", "gauge", failed, "", "0".to_owned());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn number(value: u64) -> Option<cri::UInt64Value> {
        Some(cri::UInt64Value { value })
    }

    fn named(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// A pod with one container.
    fn pod() -> PodUsage {
        let stall = |total| Some(cri::PsiData { total, ..Default::default() });
        let psi = Some(cri::PsiStats { full: stall(1), some: stall(2_500_000) });
        let one = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes { id: "c1".into(), ..Default::default() }),
            memory: Some(cri::MemoryUsage {
                psi,
                working_set_bytes: number(7),
                ..Default::default()
            }),
            ..Default::default()
        };
        let eth0 = cri::NetworkInterfaceUsage {
            name: "eth0".into(),
            rx_bytes: number(5),
            ..Default::default()
        };
        let network = cri::NetworkUsage { default_interface: Some(eth0), ..Default::default() };
        let linux = cri::LinuxPodSandboxStats {
            containers: vec![one],
            memory: Some(cri::MemoryUsage { working_set_bytes: number(9), ..Default::default() }),
            network: Some(network),
            ..Default::default()
        };
        let labels = named(&[(POD_NAME, "web"), (POD_NAMESPACE, "ns"), (POD_UID, "u")]);
        let attributes =
            cri::PodSandboxAttributes { id: "s1".into(), labels, ..Default::default() };
        let stats = cri::PodSandboxStats {
            attributes: Some(attributes),
            linux: Some(linux),
            windows: None,
        };
        let listed = cri::Container {
            labels: named(&[(CONTAINER_NAME, "c")]),
            image: Some(cri::ImageSpec { image: "i\"1".into(), ..Default::default() }),
            created_at: 1_500_000_000,
            ..Default::default()
        };
        PodUsage { stats, listed: Arc::new(HashMap::from([("c1".to_owned(), listed)])) }
    }

    const CONTAINER: &str =
        r#"container="c",id="/kubepods/podu/c1",image="i\"1",name="c1",namespace="ns",pod="web""#;
    const POD: &str =
        r#"container="",id="/kubepods/podu",image="",name="",namespace="ns",pod="web""#;

    fn shown(measured: &Measured) -> String {
        text(Used::default(), &[pod()], measured, &|uid| Some(format!("/kubepods/pod{uid}")))
    }

    /// The samples of a family.
    fn check(text: &str, name: &str, expected: &[String]) {
        let samples = text.lines().filter(|line| line.split('{').next() == Some(name));
        assert_eq!(samples.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn containers_and_pods_are_told_with_cadvisors_labels() {
        let text = shown(&Measured::default());
        let name = "container_memory_working_set_bytes";
        check(&text, name, &[format!("{name}{{{POD}}} 9"), format!("{name}{{{CONTAINER}}} 7")]);
        let name = "container_start_time_seconds";
        check(&text, name, &[format!("{name}{{{CONTAINER}}} 1.500000000")]);
        let name = "container_network_receive_bytes_total";
        check(&text, name, &[format!("{name}{{{POD},interface=\"eth0\"}} 5")]);
    }

    #[test]
    fn what_containers_wait_for_is_told_where_the_kernel_measures_it() {
        let text = shown(&Measured::default());
        let name = "container_pressure_memory_waiting_seconds_total";
        check(&text, name, &[format!("{name}{{{CONTAINER}}} 2.500000000")]);
        let name = "container_pressure_memory_stalled_seconds_total";
        check(&text, name, &[format!("{name}{{{CONTAINER}}} 0.000001000")]);
        check(&text, "container_pressure_cpu_waiting_seconds_total", &[]);
    }

    #[test]
    fn what_a_runtime_measures_beside_its_stats_is_told_too() {
        let metric = |name: &str, values: &[&str], number_of: u64| cri::Metric {
            name: name.to_owned(),
            metric_type: cri::MetricType::Counter.into(),
            label_values: values.iter().map(|value| (*value).to_owned()).collect(),
            value: number(number_of),
            ..Default::default()
        };
        let metrics = vec![
            metric("container_cpu_cfs_periods_total", &["c"], 3),
            metric("container_memory_failures_total", &["c", "pgfault"], 4),
            metric("container_network_receive_packets_total", &["c"], 5),
            metric("container_memory_working_set_bytes", &["c"], 6),
            metric("broken name\n", &["c"], 6),
        ];
        let twice = ["c1", "c1"].map(|id| cri::ContainerMetrics {
            container_id: id.to_owned(),
            metrics: metrics.clone(),
        });
        let of_pod = cri::PodSandboxMetrics {
            pod_sandbox_id: "s1".into(),
            container_metrics: twice.to_vec(),
            ..Default::default()
        };
        let keys = ["container", "failure_type"].map(str::to_owned).to_vec();
        let described = cri::MetricDescriptor {
            name: "container_memory_failures_total".into(),
            help: "Faults".into(),
            label_keys: keys,
        };
        let measured = Measured {
            descriptors: HashMap::from([(described.name.clone(), described)]),
            pods: HashMap::from([("s1".to_owned(), of_pod)]),
        };
        let text = shown(&measured);
        let line = format!("container_cpu_cfs_periods_total{{{CONTAINER}}} 3");
        check(&text, "container_cpu_cfs_periods_total", &[line.clone(), line]);
        let name = "container_memory_failures_total";
        let line = format!("{name}{{{CONTAINER},failure_type=\"pgfault\"}} 4");
        check(&text, name, &[line.clone(), line]);
        let name = "container_network_receive_packets_total";
        check(&text, name, &[format!("{name}{{{POD},interface=\"eth0\"}} 5")]);
        // What stats tell is told once, and nothing that is no name.
        let name = "container_memory_working_set_bytes";
        check(&text, name, &[format!("{name}{{{POD}}} 9"), format!("{name}{{{CONTAINER}}} 7")]);
        assert!(!text.contains("broken"));
    }

    #[test]
    fn the_machine_is_told() {
        let facts = Facts { cpus: 2, memory: 10, memory_available: 4, ..Facts::default() };
        let same = r#"boot_id="",machine_id="",system_uuid="""#;
        check(&machine(&facts), "machine_cpu_cores", &[format!("machine_cpu_cores{{{same}}} 2")]);
        let (cpu, memory) = whole(&facts, &Usage::default(), Timestamp::UNIX_EPOCH);
        let root = Used { labels: "id=\"/\"".to_owned(), ..Used::of(&cpu, &memory) };
        let text = text(root, &[], &Measured::default(), &|_| None);
        let name = "container_memory_working_set_bytes";
        check(&text, name, &[format!("{name}{{id=\"/\"}} 6")]);
    }
}
