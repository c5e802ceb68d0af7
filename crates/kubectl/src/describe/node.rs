//! Nodes: what they are, and what of them is taken.

use api::quantity::Quantity;
use api::quota::list::{ResourceList, Status, pod_limits, pod_requests};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use super::around::{Slot, Want};
use super::common::{
    head, is_true, items, labels_and_annotations, lines_under, name, namespace, optional, or,
    pairs, quantity, since, text, texts, time,
};
use super::pod::resource_list;
use super::writer::{Writer, put};

pub fn wants(node: &Value) -> Vec<Want> {
    let name = name(node);
    let pods = format!("spec.nodeName={name},status.phase!=Failed,status.phase!=Succeeded");
    vec![
        Want::all(Slot::Pods, "v1", "pods", "").fields(pods).required_unless_forbidden(),
        Want::one(Slot::Lease, "coordination.k8s.io/v1", "leases", "kube-node-lease", name),
        Want::all(Slot::ResourceSlices, "resource.k8s.io/v1", "resourceslices", "")
            .fields(format!("spec.nodeName={name}")),
    ]
}

/// Controllers write events with the node's UID, kubelets with its name in that place.
pub fn events(node: &Value) -> Vec<Want> {
    let name = name(node);
    vec![
        Want::events("", name, "Node", text(&node["metadata"]["uid"])),
        Want::events("", name, "Node", name),
    ]
}

pub fn describe(w: &mut Writer, node: &Value, seen: &Seen<'_>) {
    let (spec, status) = (&node["spec"], &node["status"]);
    head(w, node, false);
    put!(w, 0, "Roles:\t{}\n", or(&roles(node), "<none>"));
    labels_and_annotations(w, node);
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&node["metadata"]["creationTimestamp"]));
    taints(w, &spec["taints"]);
    put!(w, 0, "Unschedulable:\t{}\n", is_true(&spec["unschedulable"]));
    lease(w, seen);
    conditions(w, status);
    w.write(0, "Addresses:\n");
    for address in items(&status["addresses"]) {
        put!(w, 1, "{}:\t{}\n", text(&address["type"]), text(&address["address"]));
    }
    for (title, field) in [("Capacity", "capacity"), ("Allocatable", "allocatable")] {
        if !pairs(&status[field]).is_empty() {
            put!(w, 0, "{title}:\n");
            resource_list(w, 1, &status[field]);
        }
    }
    resource_slices(w, seen);
    system_info(w, &status["nodeInfo"]);
    optional(w, 0, "PodCIDR", &spec["podCIDR"]);
    if !items(&spec["podCIDRs"]).is_empty() {
        put!(w, 0, "PodCIDRs:\t{}\n", texts(&spec["podCIDRs"]).join(","));
    }
    optional(w, 0, "ProviderID", &spec["providerID"]);
    match seen.around.list(Slot::Pods) {
        Some(pods) => {
            pods_table(w, node, &pods, seen);
            allocated(w, node, &pods);
        }
        None => w.write(0, "Pods:\tnot authorized\n"),
    }
}

fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = pairs(&node["metadata"]["labels"])
        .into_iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn taints(w: &mut Writer, taints: &Value) {
    let mut all: Vec<&Value> = items(taints).iter().collect();
    all.sort_by_key(|taint| format!("{},{}", text(&taint["effect"]), text(&taint["key"])));
    let line = |taint: &&Value| {
        let (key, value, effect) =
            (text(&taint["key"]), text(&taint["value"]), text(&taint["effect"]));
        match (value, effect) {
            ("", "") => key.to_owned(),
            (value, "") => format!("{key}={value}:"),
            ("", effect) => format!("{key}:{effect}"),
            (value, effect) => format!("{key}={value}:{effect}"),
        }
    };
    lines_under(w, 0, "Taints", "", &all.iter().map(line).collect::<Vec<_>>());
}

fn lease(w: &mut Writer, seen: &Seen<'_>) {
    if let Some(fault) = seen.around.fault(Slot::Lease) {
        put!(w, 0, "Lease:\tFailed to get lease: {}\n", fault.message);
        return;
    }
    let leases = seen.around.list(Slot::Lease).unwrap_or_default();
    let Some(lease) = leases.first() else { return };
    let spec = &lease["spec"];
    w.write(0, "Lease:\n");
    put!(w, 1, "HolderIdentity:\t{}\n", spec["holderIdentity"].as_str().unwrap_or("<unset>"));
    for (title, field) in [("AcquireTime", "acquireTime"), ("RenewTime", "renewTime")] {
        match spec[field].is_string() {
            true => put!(w, 1, "{title}:\t{}\n", time(&spec[field])),
            false => put!(w, 1, "{title}:\t<unset>\n"),
        }
    }
}

fn conditions(w: &mut Writer, status: &Value) {
    let conditions = items(&status["conditions"]);
    if conditions.is_empty() {
        return;
    }
    w.write(
        0,
        "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n",
    );
    w.write(1, "----\t------\t-----------------\t------------------\t------\t-------\n");
    for c in conditions {
        let (heard, changed) = (time(&c["lastHeartbeatTime"]), time(&c["lastTransitionTime"]));
        put!(
            w,
            1,
            "{} \t{} \t{heard} \t{changed} \t{} \t{}\n",
            text(&c["type"]),
            text(&c["status"]),
            text(&c["reason"]),
            text(&c["message"])
        );
    }
}

fn resource_slices(w: &mut Writer, seen: &Seen<'_>) {
    const MOST: usize = 10;
    let mut pools: BTreeMap<String, (&str, &str, usize, usize)> = BTreeMap::new();
    for slice in seen.around.list(Slot::ResourceSlices).unwrap_or_default() {
        let (driver, pool) = (text(&slice["spec"]["driver"]), text(&slice["spec"]["pool"]["name"]));
        let known = pools.entry(format!("{driver}/{pool}")).or_insert((driver, pool, 0, 0));
        known.2 += 1;
        known.3 += items(&slice["spec"]["devices"]).len();
    }
    if pools.is_empty() {
        return;
    }
    w.write(0, "Node-Local ResourceSlices:\n");
    w.write(1, "Driver\tPool\tSlices\tDevices\n");
    w.write(1, "------\t----\t------\t-------\n");
    for (driver, pool, slices, devices) in pools.values().take(MOST) {
        put!(w, 1, "{driver}\t{pool}\t{slices}\t{devices}\n");
    }
    if pools.len() > MOST {
        put!(w, 1, "...and {} more pools\n", pools.len() - MOST);
    }
}

fn system_info(w: &mut Writer, info: &Value) {
    w.write(0, "System Info:\n");
    for (title, field) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ] {
        put!(w, 1, "{title}:\t{}\n", text(&info[field]));
    }
}

/// What the node has to give.
fn allocatable(node: &Value) -> &Value {
    let status = &node["status"];
    if pairs(&status["allocatable"]).is_empty() {
        &status["capacity"]
    } else {
        &status["allocatable"]
    }
}

/// A part of a whole in percent; Go's conversion of what is no number is its least one.
fn percent(part: i64, whole: i64, of_nothing: i64) -> i64 {
    match whole {
        0 if part == 0 => of_nothing,
        0 => {
            if of_nothing == 0 {
                0
            } else {
                i64::MIN
            }
        }
        _ => (part as f64 / whole as f64 * 100.0) as i64,
    }
}

fn of<'l>(list: &'l ResourceList, resource: &str) -> Option<&'l Quantity> {
    list.iter().find(|(name, _)| name.as_str() == resource).map(|(_, amount)| amount)
}

/// `100m (5%)`.
fn share(list: &ResourceList, resource: &str, node: &Value, of_nothing: i64) -> String {
    let amount = of(list, resource).cloned().unwrap_or_default();
    let whole = quantity(&allocatable(node)[resource]);
    let (part, all) = match resource {
        "cpu" => (amount.milli_value(), whole.milli_value()),
        _ => (amount.value(), whole.value()),
    };
    format!("{amount} ({}%)", percent(part, all, of_nothing))
}

fn pods_table(w: &mut Writer, node: &Value, pods: &[&Value], seen: &Seen<'_>) {
    put!(w, 0, "Non-terminated Pods:\t({} in total)\n", pods.len());
    w.write(
        1,
        "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n",
    );
    w.write(
        1,
        "---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n",
    );
    for pod in pods {
        let (requests, limits) =
            (pod_requests(pod, Status::Counted), pod_limits(pod, Status::Counted));
        let share = |list: &ResourceList, resource: &str| share(list, resource, node, i64::MIN);
        put!(
            w,
            1,
            "{}\t{}\t\t{}\t{}\t{}\t{}\t{}\n",
            namespace(pod),
            name(pod),
            share(&requests, "cpu"),
            share(&limits, "cpu"),
            share(&requests, "memory"),
            share(&limits, "memory"),
            since(&pod["metadata"]["creationTimestamp"], seen.now)
        );
    }
}

fn allocated(w: &mut Writer, node: &Value, pods: &[&Value]) {
    w.write(
        0,
        "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n",
    );
    w.write(1, "Resource\tRequests\tLimits\n");
    w.write(1, "--------\t--------\t------\n");
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    for pod in pods {
        api::quota::add(&mut requests, &pod_requests(pod, Status::Ignored));
        api::quota::add(&mut limits, &pod_limits(pod, Status::Ignored));
    }
    let row = |w: &mut Writer, resource: &str| {
        let (request, limit) =
            (share(&requests, resource, node, 0), share(&limits, resource, node, 0));
        put!(w, 1, "{resource}\t{request}\t{limit}\n");
    };
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        row(w, resource);
    }
    let resources: Vec<&str> = pairs(allocatable(node)).into_keys().collect();
    for resource in resources.iter().filter(|resource| resource.starts_with("hugepages-")) {
        row(w, resource);
    }
    for resource in resources {
        if resource.starts_with("hugepages-")
            || matches!(resource, "cpu" | "memory" | "ephemeral-storage" | "pods")
        {
            continue;
        }
        let amount = |list: &ResourceList| of(list, resource).cloned().unwrap_or_default();
        put!(w, 1, "{resource}\t{}\t{}\n", amount(&requests), amount(&limits));
    }
}
