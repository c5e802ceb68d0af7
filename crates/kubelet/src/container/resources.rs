//! Requests and limits: as limits of control groups, as a score for the OOM killer, as text.
use super::env::Place;
use crate::admission;
use crate::cgroups;
use crate::pod;
use crate::runtime::cri;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector, ResourceRequirements};
use serde_json::json;
use std::collections::HashMap;

/// Microseconds in which a limit of processors is counted, unless the configuration says otherwise.
pub const PERIOD: i64 = 100_000;
/// Bytes: what `memory.high` is rounded to.
const PAGE: i64 = 4096;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

fn amount(resources: Option<&ResourceRequirements>, list: &str, name: &str) -> Option<Quantity> {
    let resources = resources?;
    let map = if list == "limits" { &resources.limits } else { &resources.requests };
    Quantity::parse(&map.as_ref()?.get(name)?.0).ok()
}

pub fn shares(milli: i64) -> i64 {
    if milli == 0 { MIN_SHARES } else { (milli * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES) }
}

/// A limit of less than a hundredth of a processor is no use to the kernel.
pub fn quota(milli: i64, period: i64) -> i64 {
    if milli == 0 { 0 } else { (milli * period / 1000).max(1000) }
}

/// What of the node and its configuration limits depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct Enforcement {
    /// Of the machine, in bytes.
    pub memory: u64,
    pub swap: u64,
    /// What pods may use together.
    pub allocatable: i64,
    /// Microseconds; without one processors are not limited (`cpuCFSQuota: false`).
    pub period: Option<i64>,
    /// Whether there are v2 control groups, which alone know what follows.
    pub is_unified: bool,
    /// Whether burstable pods may swap (`LimitedSwap`).
    pub limited_swap: bool,
    /// Where between request and limit memory is throttled: `memoryThrottlingFactor`.
    pub throttling: Option<f64>,
    /// Whether memory that is asked for is protected: `memoryReservationPolicy`.
    pub reserves: bool,
    /// Whether running out of memory ends all of a container (`singleProcessOOMKill: false`).
    pub ends_together: bool,
}

impl Default for Enforcement {
    fn default() -> Enforcement {
        Enforcement {
            memory: 0,
            swap: 0,
            allocatable: 0,
            period: Some(PERIOD),
            is_unified: false,
            limited_swap: false,
            throttling: None,
            reserves: false,
            ends_together: false,
        }
    }
}

pub fn linux(pod: &Pod, container: &Container, node: &Enforcement) -> cri::LinuxContainerResources {
    let resources = container.resources.as_ref();
    // What has no limit of its own has its pod's.
    let limit = |name: &str| {
        let own = amount(resources, "limits", name).filter(|limit| !limit.is_zero());
        own.or_else(|| amount(pod::spec(pod).resources.as_ref(), "limits", name))
    };
    let cpu = limit("cpu").map_or(0, |cpu| cpu.milli_value());
    // What is limited and asks for nothing asks for its limit.
    let request = amount(resources, "requests", "cpu").map_or(cpu, |cpu| cpu.milli_value());
    cri::LinuxContainerResources {
        cpu_period: node.period.unwrap_or(0),
        cpu_quota: node.period.map_or(0, |period| quota(cpu, period)),
        cpu_shares: shares(request),
        memory_limit_in_bytes: limit("memory").map_or(0, |all| all.value()),
        oom_score_adj: oom_score(pod, container, node.memory),
        hugepage_limits: hugepages(container),
        unified: unified(pod, container, node),
        ..cri::LinuxContainerResources::default()
    }
}

/// What only v2 control groups have: swap, protected and throttled memory.
fn unified(pod: &Pod, container: &Container, node: &Enforcement) -> HashMap<String, String> {
    let mut files = HashMap::new();
    if !node.is_unified {
        return files;
    }
    let mut set = |file: &str, value: i64| {
        files.insert(file.to_owned(), value.to_string());
    };
    let own = |list: &str| {
        amount(container.resources.as_ref(), list, "memory").map_or(0, |memory| memory.value())
    };
    let (request, limit) = (own("requests"), own("limits"));
    if node.swap > 0 {
        set("memory.swap.max", swap(pod, request, limit, node));
    }
    if node.ends_together {
        set("memory.oom.group", 1);
    }
    if node.reserves && request > 0 {
        let file = if qos(pod) == "Guaranteed" { "memory.min" } else { "memory.low" };
        set(file, request);
    }
    // The pod's own group throttles a container that has only the pod's limit.
    let is_pods =
        limit == 0 && amount(pod::spec(pod).resources.as_ref(), "limits", "memory").is_some();
    if let Some(factor) = node.throttling
        && !is_pods
        && (request != limit || request == 0)
        && let Some(high) =
            throttled(request, if limit > 0 { limit } else { node.allocatable }, factor)
    {
        set("memory.high", high);
    }
    files
}

/// Part of the way from what is asked for to the limit.
pub fn throttled(request: i64, limit: i64, factor: f64) -> Option<i64> {
    let high = request as f64 + (limit - request) as f64 * factor;
    let high = (high / PAGE as f64).floor() as i64 * PAGE;
    (limit > 0 && high > request).then_some(high)
}

/// Bytes: the share of the swap that the container's request is of the memory. Only burstable pods
/// swap, and none that the node cannot do without.
fn swap(pod: &Pod, request: i64, limit: i64, node: &Enforcement) -> i64 {
    match swaps(pod, request, limit, node) && node.memory > 0 {
        true => {
            let share = u128::from(request.unsigned_abs()) * u128::from(node.swap);
            i64::try_from(share / u128::from(node.memory)).unwrap_or(i64::MAX)
        }
        false => 0,
    }
}

fn swaps(pod: &Pod, request: i64, limit: i64, node: &Enforcement) -> bool {
    node.limited_swap
        && !is_critical(pod)
        && qos(pod) == "Burstable"
        && request > 0
        && request != limit
}

/// Whether a container may have some of the swap.
pub fn may_swap(pod: &Pod, container: &Container, node: &Enforcement) -> bool {
    let own = |list: &str| {
        amount(container.resources.as_ref(), list, "memory").map_or(0, |memory| memory.value())
    };
    swaps(pod, own("requests"), own("limits"), node)
}

/// Static pods, their mirrors, and pods of the system's priorities.
pub fn is_critical(pod: &Pod) -> bool {
    pod::is_static(pod)
        || pod::is_mirror(pod)
        || pod::spec(pod).priority.is_some_and(|priority| priority >= 2_000_000_000)
}

/// Of each size of pages that the container may have; the kernel's control groups say `2MB`.
fn hugepages(container: &Container) -> Vec<cri::HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|all| all.limits.as_ref());
    let huge = limits.into_iter().flatten().filter_map(|(name, limit)| {
        let size = Quantity::parse(name.strip_prefix("hugepages-")?).ok()?.value();
        let page_size = match size {
            size if size >= 1 << 30 => format!("{}GB", size >> 30),
            size if size >= 1 << 20 => format!("{}MB", size >> 20),
            size => format!("{}KB", size >> 10),
        };
        let limit = u64::try_from(Quantity::parse(&limit.0).ok()?.value()).ok()?;
        Some(cri::HugepageLimit { page_size, limit })
    });
    huge.collect()
}

/// `pkg/kubelet/qos/policy.go`: who uses more than it asked for goes first.
pub fn oom_score(pod: &Pod, container: &Container, memory: u64) -> i64 {
    if pod::spec(pod).priority.is_some_and(|priority| priority >= 2_000_000_000) {
        return -997;
    }
    match qos(pod) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let request = amount(container.resources.as_ref(), "requests", "memory");
            let request = request.map_or(0, |memory| memory.value());
            let memory = i64::try_from(memory).unwrap_or(i64::MAX).max(1);
            (1000 - (1000 * request) / memory).clamp(3, 999)
        }
    }
}

pub fn qos(pod: &Pod) -> &'static str {
    api::rules::qos_class(&json!(pod.spec))
}

/// `/kubepods/burstable/podUID`; guaranteed pods are directly below the root.
pub fn cgroup_parent(root: &str, pod: &Pod) -> String {
    let class = match qos(pod) {
        "Guaranteed" => root.to_owned(),
        "Burstable" => cgroups::below(root, "burstable"),
        _ => cgroups::below(root, "besteffort"),
    };
    cgroups::below(&class, &format!("pod{}", pod::uid(pod)))
}

/// `limits.memory` in units of a divisor, rounded up. What is not limited is limited by the pod as a whole, or by
/// what the node has to give (`pkg/kubelet/kubelet_resources.go`).
pub fn field(
    pod: &Pod,
    container: &Container,
    selector: &ResourceFieldSelector,
    place: &Place<'_>,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (list, name) = selector.resource.split_once('.').unwrap_or_default();
    let is_node = ["cpu", "memory", "ephemeral-storage"].contains(&name);
    if !["limits", "requests"].contains(&list) || !(is_node || name.starts_with("hugepages-")) {
        return Err(unsupported());
    }
    let own = |list| {
        let value = amount(container.resources.as_ref(), list, name);
        let value = value.map(|value| match name {
            "cpu" => value.milli_value(),
            _ => value.value(),
        });
        value.filter(|value| *value != 0)
    };
    let value = match list {
        "requests" => own("requests").or_else(|| own("limits")),
        _ if is_node => own("limits").or_else(|| {
            let whole = pod::spec(pod).resources.as_ref().and_then(|all| all.limits.as_ref());
            let whole = admission::amounts(whole).get(name).copied();
            // Disks are nothing that a pod as a whole is limited in.
            let whole = whole.filter(|limit| *limit != 0 && name != "ephemeral-storage");
            whole.or_else(|| place.allocatable.get(name).copied())
        }),
        _ => own("limits"),
    };
    let divisor = selector.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
    let divisor = divisor
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::new(1, Default::default()));
    let divisor = if name == "cpu" { divisor.milli_value() } else { divisor.value() }.max(1);
    let value = value.unwrap_or(0);
    Ok((value / divisor + i64::from(value % divisor > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_limited_by_size() {
        let pod = pod(
            json!({ "limits": { "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi", "cpu": "1" } }),
        );
        let limits =
            linux(&pod, &pod.spec.as_ref().unwrap().containers[0], &Enforcement::default())
                .hugepage_limits;
        let shown: Vec<_> =
            limits.iter().map(|one| format!("{} {}", one.page_size, one.limit)).collect();
        assert_eq!(shown, ["1GB 1073741824", "2MB 4194304"]);
    }

    fn pod(resources: serde_json::Value) -> Pod {
        let pod = json!({ "metadata": { "uid": "u" }, "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        serde_json::from_value(pod).unwrap()
    }

    fn check(resources: serde_json::Value, expected: (i64, i64, i64, i64, &str)) {
        let pod = pod(resources);
        let node = Enforcement { memory: 1000 << 20, ..Enforcement::default() };
        let made = linux(&pod, &pod.spec.as_ref().unwrap().containers[0], &node);
        let parent = cgroup_parent("/kubepods", &pod);
        let got = (
            made.cpu_shares,
            made.cpu_quota,
            made.memory_limit_in_bytes,
            made.oom_score_adj,
            parent.as_str(),
        );
        assert_eq!(got, expected);
    }

    #[test]
    fn limits_are_the_kernels() {
        check(json!({}), (2, 0, 0, 1000, "/kubepods/besteffort/podu"));
        check(
            json!({ "limits": { "cpu": "500m", "memory": "64Mi" }, "requests": { "cpu": "500m", "memory": "64Mi" } }),
            (512, 50_000, 64 << 20, -997, "/kubepods/podu"),
        );
        check(
            json!({ "requests": { "cpu": "1", "memory": "100Mi" } }),
            (1024, 0, 0, 900, "/kubepods/burstable/podu"),
        );
        check(json!({ "limits": { "cpu": "1m" } }), (2, 1000, 0, 999, "/kubepods/burstable/podu"));
    }

    fn check_unified(resources: serde_json::Value, node: &Enforcement, expected: &str) {
        let pod = pod(resources);
        let mut files: Vec<String> = unified(&pod, &pod.spec.as_ref().unwrap().containers[0], node)
            .into_iter()
            .map(|(file, value)| format!("{file}={value}"))
            .collect();
        files.sort();
        assert_eq!(files.join(" "), expected);
    }

    #[test]
    fn memory_is_protected_throttled_and_swapped_as_the_node_says() {
        let burstable =
            json!({ "requests": { "memory": "100Mi" }, "limits": { "memory": "200Mi" } });
        let guaranteed = json!({ "requests": { "memory": "100Mi", "cpu": "1" },
            "limits": { "memory": "100Mi", "cpu": "1" } });
        let plain = Enforcement {
            memory: 1000 << 20,
            allocatable: 900 << 20,
            is_unified: true,
            ..Enforcement::default()
        };
        check_unified(burstable.clone(), &plain, "");
        let swaps = Enforcement { swap: 500 << 20, limited_swap: true, ..plain };
        check_unified(burstable.clone(), &swaps, "memory.swap.max=52428800");
        check_unified(guaranteed.clone(), &swaps, "memory.swap.max=0");
        check_unified(json!({}), &swaps, "memory.swap.max=0");
        let has_swap = Enforcement { limited_swap: false, ..swaps };
        check_unified(burstable.clone(), &has_swap, "memory.swap.max=0");
        let quality = Enforcement { throttling: Some(0.9), reserves: true, ..plain };
        check_unified(burstable.clone(), &quality, "memory.high=199229440 memory.low=104857600");
        check_unified(guaranteed, &quality, "memory.min=104857600");
        check_unified(json!({}), &quality, "memory.high=849346560");
        let old = Enforcement { is_unified: false, ..quality };
        check_unified(burstable, &old, "");
    }

    #[test]
    fn a_container_without_a_limit_has_its_pods() {
        let mut pod = pod(json!({ "requests": { "cpu": "100m" } }));
        let whole = json!({ "limits": { "cpu": "2", "memory": "1Gi" } });
        pod.spec.as_mut().unwrap().resources = serde_json::from_value(whole).unwrap();
        let made = linux(&pod, &pod.spec.as_ref().unwrap().containers[0], &Enforcement::default());
        assert_eq!((made.cpu_quota, made.memory_limit_in_bytes), (200_000, 1 << 30));
        assert_eq!(made.cpu_shares, 102);
    }

    #[test]
    fn a_limit_that_is_not_set_is_the_pods_or_the_nodes() {
        let place = Place {
            node_name: "n",
            host_ips: &[],
            pod_ips: &[],
            allocatable: [("cpu", 1500), ("memory", 1 << 30), ("ephemeral-storage", 7 << 20)]
                .map(|(name, amount)| (name.to_owned(), amount))
                .into(),
        };
        let check = |own: serde_json::Value,
                     whole: serde_json::Value,
                     name: &str,
                     expected: &str| {
            let mut pod = pod(own);
            let spec = pod.spec.as_mut().unwrap();
            spec.resources = serde_json::from_value(json!({ "limits": whole })).unwrap();
            let container = spec.containers[0].clone();
            let selector = json!({ "resource": name, "divisor": if name.ends_with("cpu") { "1m" } else { "1Mi" } });
            let selector = serde_json::from_value(selector).unwrap();
            let said = field(&pod, &container, &selector, &place).unwrap_or_else(|why| why);
            assert_eq!(said, expected, "{name}");
        };
        let none = || json!({});
        check(none(), none(), "limits.cpu", "1500");
        check(none(), none(), "limits.memory", "1024");
        check(none(), none(), "limits.ephemeral-storage", "7");
        check(none(), none(), "requests.memory", "0");
        check(none(), none(), "limits.hugepages-2Mi", "0");
        check(none(), json!({ "cpu": "1", "memory": "512Mi" }), "limits.memory", "512");
        check(none(), json!({ "cpu": "1" }), "limits.memory", "1024");
        let own = || json!({ "limits": { "cpu": "200m", "memory": "0" } });
        check(own(), json!({ "cpu": "1" }), "limits.cpu", "200");
        check(own(), none(), "requests.cpu", "200");
        check(own(), none(), "limits.memory", "1024");
        check(own(), none(), "limits.gpu", "unsupported container resource : limits.gpu");
    }
}
