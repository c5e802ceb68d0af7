//! Pods, and the templates of pods.

use jiff::Timestamp;
use serde_json::Value;

use super::around::Want;
use super::common::{
    amount, annotations, controlled_by, head, int, items, labels, labels_and_annotations, name,
    namespace, optional, pairs, quantity, selector_text, since, text, time, tolerations,
};
use super::writer::{Writer, put};
use super::{Seen, containers, volumes};

/// Kubelets write the events of a mirror pod with the UID that the pod's file has, and events about
/// pods name several kinds.
pub fn events(pod: &Value) -> Vec<Want> {
    let mirrored = text(&pod["metadata"]["annotations"]["kubernetes.io/config.mirror"]);
    let uid = if mirrored.is_empty() { text(&pod["metadata"]["uid"]) } else { mirrored };
    vec![Want::events(namespace(pod), name(pod), "", uid)]
}

pub fn describe(w: &mut Writer, pod: &Value, seen: &Seen<'_>) {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    head(w, pod, true);
    optional(w, 0, "Priority", &spec["priority"]);
    optional(w, 0, "Priority Class Name", &spec["priorityClassName"]);
    optional(w, 0, "Runtime Class Name", &spec["runtimeClassName"]);
    optional(w, 0, "Service Account", &spec["serviceAccountName"]);
    match text(&spec["nodeName"]) {
        "" => w.write(0, "Node:\t<none>\n"),
        node => put!(w, 0, "Node:\t{node}/{}\n", text(&status["hostIP"])),
    }
    if status["startTime"].is_string() {
        put!(w, 0, "Start Time:\t{}\n", time(&status["startTime"]));
    }
    labels_and_annotations(w, pod);
    phase(w, pod, seen.now);
    optional(w, 0, "Reason", &status["reason"]);
    optional(w, 0, "Message", &status["message"]);
    let seccomp = &spec["securityContext"]["seccompProfile"];
    if seccomp.is_object() {
        put!(w, 0, "SeccompProfile:\t{}\n", text(&seccomp["type"]));
        if text(&seccomp["type"]) == "Localhost" {
            put!(w, 0, "LocalhostProfile:\t{}\n", text(&seccomp["localhostProfile"]));
        }
    }
    addresses(w, status);
    controlled_by(w, pod);
    optional(w, 0, "NominatedNodeName", &status["nominatedNodeName"]);
    if spec["resources"].is_object() {
        w.write(0, "Resources:\n");
        containers::resources(w, &spec["resources"], 1);
    }
    let known = Some(pod);
    if !items(&spec["initContainers"]).is_empty() {
        containers::describe(
            w,
            "Init Containers",
            &spec["initContainers"],
            &status["initContainerStatuses"],
            known,
            "",
        );
    }
    containers::describe(
        w,
        "Containers",
        &spec["containers"],
        &status["containerStatuses"],
        known,
        "",
    );
    if !items(&spec["ephemeralContainers"]).is_empty() {
        let statuses = &status["ephemeralContainerStatuses"];
        containers::describe(
            w,
            "Ephemeral Containers",
            &spec["ephemeralContainers"],
            statuses,
            known,
            "",
        );
    }
    readiness_gates(w, pod);
    let conditions = items(&status["conditions"]);
    if !conditions.is_empty() {
        w.write(0, "Conditions:\n  Type\tStatus\n");
        for c in conditions {
            put!(w, 1, "{} \t{} \n", text(&c["type"]), text(&c["status"]));
        }
    }
    volumes::describe(w, &spec["volumes"], "");
    put!(w, 0, "QoS Class:\t{}\n", qos(pod));
    labels(w, "Node-Selectors", &spec["nodeSelector"]);
    tolerations(w, "Tolerations", &spec["tolerations"]);
    spread_constraints(w, &spec["topologySpreadConstraints"], "");
    scheduling_group(w, spec, "");
}

fn phase(w: &mut Writer, pod: &Value, now: Timestamp) {
    let (metadata, phase) = (&pod["metadata"], text(&pod["status"]["phase"]));
    if metadata["deletionTimestamp"].is_string() && phase != "Failed" && phase != "Succeeded" {
        put!(w, 0, "Status:\tTerminating (lasts {})\n", since(&metadata["deletionTimestamp"], now));
        put!(
            w,
            0,
            "Termination Grace Period:\t{}s\n",
            int(&metadata["deletionGracePeriodSeconds"])
        );
    } else {
        put!(w, 0, "Status:\t{phase}\n");
    }
}

fn addresses(w: &mut Writer, status: &Value) {
    put!(w, 0, "IP:\t{}\n", text(&status["podIP"]));
    let all = items(&status["podIPs"]);
    if all.is_empty() {
        w.write(0, "IPs:\t<none>\n");
        return;
    }
    w.write(0, "IPs:\n");
    for address in all {
        put!(w, 1, "IP:\t{}\n", text(&address["ip"]));
    }
}

fn readiness_gates(w: &mut Writer, pod: &Value) {
    let gates = items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return;
    }
    w.write(0, "Readiness Gates:\n  Type\tStatus\n");
    for gate in gates {
        let conditions = items(&pod["status"]["conditions"]);
        let condition =
            conditions.iter().find(|condition| condition["type"] == gate["conditionType"]);
        let status = condition.map_or("<none>", |condition| text(&condition["status"]));
        put!(w, 1, "{} \t{status} \n", text(&gate["conditionType"]));
    }
}

fn spread_constraints(w: &mut Writer, value: &Value, indent: &str) {
    let mut all: Vec<&Value> = items(value).iter().collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|constraint| text(&constraint["topologyKey"]));
    put!(w, 0, "{indent}Topology Spread Constraints:\t");
    for (i, constraint) in all.into_iter().enumerate() {
        if i > 0 {
            put!(w, 0, "{indent}\t");
        }
        let (key, skew) = (text(&constraint["topologyKey"]), int(&constraint["maxSkew"]));
        let mut line = format!(
            "{key}:{} when max skew {skew} is exceeded",
            text(&constraint["whenUnsatisfiable"])
        );
        if constraint["labelSelector"].is_object() {
            line.push_str(&format!(
                " for selector {}",
                selector_text(&constraint["labelSelector"])
            ));
        }
        w.raw(&format!("{line}\n"));
    }
}

fn scheduling_group(w: &mut Writer, spec: &Value, indent: &str) {
    let group = &spec["schedulingGroup"];
    if group.is_object() {
        put!(w, 0, "{indent}SchedulingGroup:\n");
        put!(w, 1, "PodGroupName:\t{}\n", text(&group["podGroupName"]));
    }
}

/// What the status says, or what the requests and limits come to.
fn qos(pod: &Value) -> &str {
    let said = text(&pod["status"]["qosClass"]);
    if !said.is_empty() {
        return said;
    }
    if api::quota::list::has_pod_level(pod) {
        return class(&pod["spec"]["resources"]);
    }
    let all =
        ["initContainers", "containers"].into_iter().flat_map(|list| items(&pod["spec"][list]));
    let mut classes: Vec<&str> = all.map(|container| class(&container["resources"])).collect();
    classes.dedup();
    match classes[..] {
        [] => "BestEffort",
        [one] => one,
        _ => "Burstable",
    }
}

fn class(resources: &Value) -> &'static str {
    let of = |name: &str| {
        let (request, limit) =
            (quantity(&resources["requests"][name]), quantity(&resources["limits"][name]));
        match (request == limit, request.is_zero()) {
            (false, _) => "Burstable",
            (true, true) => "BestEffort",
            (true, false) => "Guaranteed",
        }
    };
    match (of("cpu"), of("memory")) {
        (cpu, memory) if cpu == memory => cpu,
        _ => "Burstable",
    }
}

/// The template that a workload makes its pods of.
pub fn template(w: &mut Writer, template: &Value) {
    w.write(0, "Pod Template:\n");
    if template.is_null() {
        w.write(1, "<unset>");
        return;
    }
    let spec = &template["spec"];
    labels(w, "  Labels", &template["metadata"]["labels"]);
    if !pairs(&template["metadata"]["annotations"]).is_empty() {
        annotations(w, "  Annotations", &template["metadata"]["annotations"]);
    }
    optional(w, 1, "Service Account", &spec["serviceAccountName"]);
    if !items(&spec["initContainers"]).is_empty() {
        containers::describe(
            w,
            "Init Containers",
            &spec["initContainers"],
            &Value::Null,
            None,
            "  ",
        );
    }
    containers::describe(w, "Containers", &spec["containers"], &Value::Null, None, "  ");
    volumes::describe(w, &spec["volumes"], "  ");
    spread_constraints(w, &spec["topologySpreadConstraints"], "  ");
    optional(w, 1, "Priority Class Name", &spec["priorityClassName"]);
    labels(w, "  Node-Selectors", &spec["nodeSelector"]);
    tolerations(w, "  Tolerations", &spec["tolerations"]);
    scheduling_group(w, spec, "  ");
}

/// Amounts by name, a line each.
pub fn resource_list(w: &mut Writer, level: usize, value: &Value) {
    for resource in pairs(value).keys() {
        put!(w, level, "{resource}:\t{}\n", amount(&value[*resource]));
    }
}
