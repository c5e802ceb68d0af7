//! Requests and limits: as limits of control groups, as a score for the OOM killer, as text.
use super::env::Place;
use crate::pod;
use crate::runtime::cri;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector, ResourceRequirements};
use serde_json::json;

pub const PERIOD: i64 = 100_000;
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
pub fn quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli * PERIOD / 1000).max(1000) }
}

pub fn linux(pod: &Pod, container: &Container, memory: u64) -> cri::LinuxContainerResources {
    let resources = container.resources.as_ref();
    let limit = amount(resources, "limits", "cpu").map_or(0, |cpu| cpu.milli_value());
    // What is limited and asks for nothing asks for its limit.
    let request = amount(resources, "requests", "cpu").map_or(limit, |cpu| cpu.milli_value());
    cri::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(limit),
        cpu_shares: shares(request),
        memory_limit_in_bytes: amount(resources, "limits", "memory").map_or(0, |all| all.value()),
        oom_score_adj: oom_score(pod, container, memory),
        hugepage_limits: hugepages(container),
        ..cri::LinuxContainerResources::default()
    }
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
        "Guaranteed" => "",
        "Burstable" => "/burstable",
        _ => "/besteffort",
    };
    format!("{root}{class}/pod{}", pod::uid(pod))
}

/// `limits.memory` in units of a divisor, rounded up. What is not limited is what the node has.
pub fn field(
    container: &Container,
    selector: &ResourceFieldSelector,
    place: &Place<'_>,
) -> Result<String, String> {
    let (list, name) = selector.resource.split_once('.').unwrap_or_default();
    if !["limits", "requests"].contains(&list) {
        return Err(format!("unsupported container resource : {}", selector.resource));
    }
    let resources = container.resources.as_ref();
    let value = amount(resources, list, name)
        .or_else(|| (list == "requests").then(|| amount(resources, "limits", name))?);
    let node = || match name {
        _ if list == "requests" => 0,
        "cpu" => i64::try_from(place.cpus).unwrap_or(i64::MAX) * 1000,
        "memory" => i64::try_from(place.memory).unwrap_or(i64::MAX),
        _ => 0,
    };
    let divisor = selector.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
    let divisor = divisor
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::new(1, Default::default()));
    let (value, divisor) = match name {
        "cpu" => (value.map_or_else(node, |value| value.milli_value()), divisor.milli_value()),
        _ => (value.map_or_else(node, |value| value.value()), divisor.value()),
    };
    let divisor = divisor.max(1);
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
        let limits = linux(&pod, &pod.spec.as_ref().unwrap().containers[0], 0).hugepage_limits;
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
        let made = linux(&pod, &pod.spec.as_ref().unwrap().containers[0], 1000 << 20);
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
}
