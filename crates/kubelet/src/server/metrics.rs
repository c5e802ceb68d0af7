//! `/metrics` and what is below it, as Prometheus reads them. Names and labels are upstream's; what
//! is not measured here is not told.
use super::answer::{self, Refused, Reply};
use super::cadvisor;
use super::stats::{self, PodUsage, label, value};
use crate::found::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE};
use crate::identity;
use crate::node::Usage;
use crate::pod;
use crate::runtime::cri;
use crate::volumes;
use crate::worker::Kubelet;
use http::{Method, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// What is counted while the kubelet runs.
#[derive(Default)]
pub struct Counters {
    /// By method and page.
    requests: Mutex<BTreeMap<(String, &'static str), u64>>,
    /// By the labels of `prober_probe_total`.
    probes: Mutex<BTreeMap<String, u64>>,
    /// By the signal that they were for.
    evictions: Mutex<BTreeMap<&'static str, u64>>,
    /// The processors' time when it was read last, for a rate.
    last: Mutex<Option<(std::time::Instant, u64)>>,
}

/// Pages that are counted by their names: others are made up by clients.
const PAGES: [&str; 15] = [
    "attach",
    "configz",
    "containerLogs",
    "exec",
    "healthz",
    "logs",
    "metrics",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "checkpoint",
    "statusz",
    "flagz",
];

impl Counters {
    pub fn request(&self, method: &Method, page: &str) {
        let page = PAGES.into_iter().find(|known| *known == page).unwrap_or("other");
        let method = match method.as_str() {
            known @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD") => known,
            _ => "other",
        };
        *self.requests.lock().entry((method.to_owned(), page)).or_default() += 1;
    }

    pub fn probe(&self, labels: String) {
        *self.probes.lock().entry(labels).or_default() += 1;
    }

    pub fn eviction(&self, signal: &'static str) {
        *self.evictions.lock().entry(signal).or_default() += 1;
    }

    /// Of a pod that is gone nothing more is told.
    pub fn forget(&self, uid: &str) {
        let marked = format!("pod_uid=\"{uid}\"");
        self.probes.lock().retain(|labels, _| !labels.contains(&marked));
    }

    /// What the machine uses, with the rate since the last look.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::read();
        let now = std::time::Instant::now();
        let before = self.last.lock().replace((now, usage.cpu_nanoseconds));
        if let Some((then, before)) = before {
            let elapsed = now.duration_since(then).as_nanos().max(1);
            let used = u128::from(usage.cpu_nanoseconds.saturating_sub(before));
            usage.nano_cores = u64::try_from(used * 1_000_000_000 / elapsed).unwrap_or(0);
        }
        usage
    }
}

pub async fn page(kubelet: &Arc<Kubelet>, rest: &[&str]) -> Result<Reply, Refused> {
    let text = match rest {
        [] => own(kubelet).await?,
        ["resource"] => {
            let pods = stats::pods(kubelet).await;
            resource(
                &kubelet.counters.usage(),
                pods.as_deref().ok(),
                &crate::node::Facts::read(&kubelet.config.root),
            )
        }
        ["cadvisor"] => cadvisor::page(kubelet).await?,
        ["probes"] => probes(&kubelet.counters),
        _ => return Err(answer::not_found("404: Page Not Found")),
    };
    Ok(answer::of(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
}

/// One family of samples.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

pub fn family<'a>(text: &'a mut String, name: &'a str, kind: &str, help: &str) -> Family<'a> {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    Family { text, name }
}

impl Family<'_> {
    pub fn add(&mut self, labels: &str, value: impl std::fmt::Display) {
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

/// A label's value as it is written between quotes.
pub fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

async fn own(kubelet: &Kubelet) -> Result<String, Refused> {
    let listed = kubelet.runtime.list_containers(Default::default()).await;
    let listed = listed.map_err(answer::internal)?.containers;
    let sandboxes = kubelet.runtime.list_pod_sandbox(Default::default()).await;
    let sandboxes = sandboxes.map_err(answer::internal)?.items;
    let ready = sandboxes.iter().filter(|one| one.state() == cri::PodSandboxState::SandboxReady);
    let mut text = String::new();
    family(
        &mut text,
        "kubelet_node_name",
        "gauge",
        "[ALPHA] The node's name. The count is always 1.",
    )
    .add(&format!("node=\"{}\"", quoted(&kubelet.config.node_name)), 1);
    family(
        &mut text,
        "kubelet_running_pods",
        "gauge",
        "[BETA] Number of pods that have a running pod sandbox",
    )
    .add("", ready.count());
    let mut states = family(
        &mut text,
        "kubelet_running_containers",
        "gauge",
        "[BETA] Number of containers currently running",
    );
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for one in &listed {
        *counts.entry(one.state().as_str_name().trim_start_matches("CONTAINER_")).or_default() += 1;
    }
    for (state, count) in counts {
        states.add(&format!("container_state=\"{}\"", state.to_lowercase()), count);
    }
    let mut evictions = family(
        &mut text,
        "kubelet_evictions",
        "counter",
        "[ALPHA] Cumulative number of pod evictions by eviction signal",
    );
    for (signal, count) in kubelet.counters.evictions.lock().iter() {
        evictions.add(&format!("eviction_signal=\"{signal}\""), count);
    }
    family(
        &mut text,
        "kubelet_desired_pods",
        "gauge",
        "[ALPHA] The number of pods the kubelet is being instructed to run.",
    )
    .add("", kubelet.all_pods().len());
    let mut requests = family(
        &mut text,
        "kubelet_http_requests_total",
        "counter",
        "[ALPHA] Number of the http requests received since the server started",
    );
    for ((method, page), count) in kubelet.counters.requests.lock().iter() {
        requests.add(&format!("method=\"{method}\",path=\"{page}\""), count);
    }
    text += &certificates(&kubelet.config.renewed, kubelet.context.now());
    text += &claimed_volumes(kubelet);
    text += &kubelet.config.registry.text();
    Ok(text)
}

/// How long the certificates are good that the kubelet renews (`pkg/kubelet/certificate/kubelet.go`).
fn certificates(renewed: &identity::Renewed, now: Timestamp) -> String {
    let rows = [
        (
            &renewed.client,
            "kubelet_certificate_manager_client_ttl_seconds",
            "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in \
             seconds until certificate expiry (negative if already expired). If client certificate is \
             invalid or unused, the value will be +INF.",
        ),
        (
            &renewed.server,
            "kubelet_certificate_manager_server_ttl_seconds",
            "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The \
             value is in seconds until certificate expiry (negative if already expired). If serving \
             certificate is invalid or unused, the value will be +INF.",
        ),
    ];
    let mut text = String::new();
    for (file, name, help) in rows {
        let Some(file) = file else { continue };
        let left = identity::seconds_left(file, now);
        let left = left.map_or_else(|| "+Inf".to_owned(), |left| left.to_string());
        family(&mut text, name, "gauge", help).add("", left);
    }
    text
}

/// Families of `pkg/kubelet/metrics/collectors/volume_stats.go`.
type VolumeFamily = (&'static str, &'static str, fn(&volumes::usage::Usage) -> u64);
const VOLUMES: [VolumeFamily; 6] = [
    ("capacity_bytes", "Capacity in bytes of the volume", |usage| usage.capacity),
    ("available_bytes", "Number of available bytes in the volume", |usage| usage.available),
    ("used_bytes", "Number of used bytes in the volume", |usage| usage.used),
    ("inodes", "Maximum number of inodes in the volume", |usage| usage.inodes),
    ("inodes_free", "Number of free inodes in the volume", |usage| usage.inodes_free),
    ("inodes_used", "Number of used inodes in the volume", |usage| usage.inodes_used),
];

/// Volumes of claims. A claim that several pods use is told once.
fn claimed_volumes(kubelet: &Kubelet) -> String {
    let measured = kubelet.measured_volumes();
    let mut claims = BTreeMap::new();
    for (uid, rows) in &measured {
        let Some(pod) = kubelet.pod(uid) else { continue };
        for row in rows.iter() {
            let Some(claim) = &row.claim else { continue };
            let (namespace, claim) = (quoted(pod::namespace(&pod)), quoted(claim));
            let labels = format!("namespace=\"{namespace}\",persistentvolumeclaim=\"{claim}\"");
            claims.entry(labels).or_insert(&row.usage);
        }
    }
    volume_families(&claims)
}

/// Without a claim there are no families, as upstream's collector tells none.
fn volume_families(claims: &BTreeMap<String, &volumes::usage::Usage>) -> String {
    let mut text = String::new();
    for (name, help, read) in VOLUMES.iter().filter(|_| !claims.is_empty()) {
        let name = format!("kubelet_volume_stats_{name}");
        let mut all = family(&mut text, &name, "gauge", &format!("[ALPHA] {help}"));
        for (labels, usage) in claims {
            all.add(labels, read(usage));
        }
    }
    text
}

fn names(labels: &std::collections::HashMap<String, String>) -> String {
    let one = |key| quoted(label(labels, key));
    format!("namespace=\"{}\",pod=\"{}\"", one(POD_NAMESPACE), one(POD_NAME))
}

pub fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

type ContainerRow = (String, cri::ContainerStats, i64);

fn containers(pods: &[PodUsage]) -> Vec<ContainerRow> {
    let all = pods.iter().flat_map(|pod| {
        let linux = pod.stats.linux.clone().unwrap_or_default();
        linux.containers.into_iter().map(move |one| (pod, one))
    });
    let row = |(pod, one): (&PodUsage, cri::ContainerStats)| {
        let attributes = one.attributes.clone().unwrap_or_default();
        let name = quoted(label(&attributes.labels, CONTAINER_NAME));
        let began = pod.began(&attributes.id).unwrap_or_default();
        (format!("container=\"{name}\",{}", names(&attributes.labels)), one, began)
    };
    all.map(row).collect()
}

/// What the resource metrics pipeline reads.
fn resource(usage: &Usage, pods: Option<&[PodUsage]>, facts: &crate::node::Facts) -> String {
    let mut text = String::new();
    let rows = containers(pods.unwrap_or_default());
    let working_set = |one: &Option<cri::MemoryUsage>| {
        one.as_ref().and_then(|memory| value(&memory.working_set_bytes))
    };
    let cpu = |one: &Option<cri::CpuUsage>| {
        one.as_ref().and_then(|cpu| value(&cpu.usage_core_nano_seconds))
    };
    let mut all = family(
        &mut text,
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
    );
    for (labels, one, _) in &rows {
        cpu(&one.cpu).into_iter().for_each(|used| all.add(labels, seconds(used)));
    }
    let mut all = family(
        &mut text,
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
    );
    for (labels, one, _) in &rows {
        working_set(&one.memory).into_iter().for_each(|used| all.add(labels, used));
    }
    let mut all = family(
        &mut text,
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
    );
    for (labels, _, began) in &rows {
        all.add(labels, seconds(began.unsigned_abs()));
    }
    family(
        &mut text,
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
    )
    .add("", seconds(usage.cpu_nanoseconds));
    family(
        &mut text,
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
    )
    .add("", facts.memory.saturating_sub(facts.memory_available));
    let of_pods = || {
        pods.unwrap_or_default().iter().map(|pod| {
            let attributes = pod.stats.attributes.clone().unwrap_or_default();
            (names(&attributes.labels), pod.stats.linux.clone().unwrap_or_default())
        })
    };
    let mut all = family(
        &mut text,
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    );
    for (labels, linux) in of_pods() {
        cpu(&linux.cpu).into_iter().for_each(|used| all.add(&labels, seconds(used)));
    }
    let mut all = family(
        &mut text,
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
    );
    for (labels, linux) in of_pods() {
        working_set(&linux.memory).into_iter().for_each(|used| all.add(&labels, used));
    }
    family(
        &mut text,
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    )
    .add("", u8::from(pods.is_none()));
    text
}

fn probes(counters: &Counters) -> String {
    let mut text = String::new();
    let mut all = family(
        &mut text,
        "prober_probe_total",
        "counter",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    for (labels, count) in counters.probes.lock().iter() {
        all.add(labels, count);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn requests_and_probes_are_counted() {
        let counters = Counters::default();
        counters.request(&Method::GET, "pods");
        counters.request(&Method::GET, "made-up");
        counters.request(&Method::GET, "made-up-too");
        assert_eq!(counters.requests.lock().len(), 2);
        counters.probe("probe_type=\"Readiness\",pod_uid=\"a\"".to_owned());
        counters.probe("probe_type=\"Readiness\",pod_uid=\"a\"".to_owned());
        counters.probe("probe_type=\"Readiness\",pod_uid=\"b\"".to_owned());
        counters.forget("b");
        expect![[r#"
            # HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.
            # TYPE prober_probe_total counter
            prober_probe_total{probe_type="Readiness",pod_uid="a"} 2
        "#]]
        .assert_eq(&probes(&counters));
    }

    #[test]
    fn certificates_that_are_renewed_are_told() {
        let file = std::path::PathBuf::from("/nowhere/kubelet.crt");
        let renewed = identity::Renewed { client: None, server: Some(file) };
        let text = certificates(&renewed, Timestamp::UNIX_EPOCH);
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows, ["kubelet_certificate_manager_server_ttl_seconds +Inf"]);
    }

    #[test]
    fn volumes_of_claims_are_told() {
        let usage = volumes::usage::Usage {
            available: 60,
            capacity: 100,
            used: 40,
            inodes: 10,
            inodes_free: 7,
            inodes_used: 3,
        };
        let labels = r#"namespace="n",persistentvolumeclaim="data""#.to_owned();
        let text = volume_families(&BTreeMap::from([(labels, &usage)]));
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        expect![[r#"
            kubelet_volume_stats_capacity_bytes{namespace="n",persistentvolumeclaim="data"} 100
            kubelet_volume_stats_available_bytes{namespace="n",persistentvolumeclaim="data"} 60
            kubelet_volume_stats_used_bytes{namespace="n",persistentvolumeclaim="data"} 40
            kubelet_volume_stats_inodes{namespace="n",persistentvolumeclaim="data"} 10
            kubelet_volume_stats_inodes_free{namespace="n",persistentvolumeclaim="data"} 7
            kubelet_volume_stats_inodes_used{namespace="n",persistentvolumeclaim="data"} 3"#]]
        .assert_eq(&rows.join("\n"));
        assert_eq!(volume_families(&BTreeMap::new()), "");
    }

    #[test]
    fn the_node_is_told_even_if_the_runtime_is_silent() {
        let text = resource(&Usage::default(), None, &crate::node::Facts::default());
        assert!(text.contains("\nresource_scrape_error 1\n"), "{text}");
        assert!(text.contains("\nnode_cpu_usage_seconds_total 0.000000000\n"), "{text}");
        assert_eq!(quoted("a\"b\\"), "a\\\"b\\\\");
    }
}
