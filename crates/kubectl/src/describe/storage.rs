//! Volumes, claims, classes, and what nodes can attach.

use jiff::Timestamp;
use serde_json::Value;

use super::around::{Slot, Want};
use super::common::{
    amount, bracketed, format_labels, head, int, items, labels_and_annotations, lines_under, name,
    namespace, optional, pairs, since, text, texts, time, true_false,
};
use super::writer::{Writer, put};
use super::{Seen, volumes};

pub fn volume(w: &mut Writer, volume: &Value, seen: &Seen<'_>) {
    let (spec, metadata) = (&volume["spec"], &volume["metadata"]);
    head(w, volume, false);
    labels_and_annotations(w, volume);
    put!(w, 0, "Finalizers:\t{}\n", bracketed(&metadata["finalizers"]));
    put!(w, 0, "StorageClass:\t{}\n", class(volume));
    phase(w, volume, seen.now);
    let claim = &spec["claimRef"];
    match claim.is_object() {
        true => put!(w, 0, "Claim:\t{}/{}\n", text(&claim["namespace"]), text(&claim["name"])),
        false => w.write(0, "Claim:\t\n"),
    }
    put!(w, 0, "Reclaim Policy:\t{}\n", text(&spec["persistentVolumeReclaimPolicy"]));
    put!(w, 0, "Access Modes:\t{}\n", access_modes(&spec["accessModes"]));
    optional(w, 0, "VolumeMode", &spec["volumeMode"]);
    put!(w, 0, "Capacity:\t{}\n", amount(&spec["capacity"]["storage"]));
    node_affinity(w, &spec["nodeAffinity"]);
    put!(w, 0, "Message:\t{}\n", text(&volume["status"]["message"]));
    w.write(0, "Source:\n");
    volumes::describe_persistent(w, spec);
}

/// The class, which an old annotation may name.
fn class(object: &Value) -> &str {
    match object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str() {
        Some(class) => class,
        None => text(&object["spec"]["storageClassName"]),
    }
}

fn phase(w: &mut Writer, object: &Value, now: Timestamp) {
    let deletion = &object["metadata"]["deletionTimestamp"];
    match deletion.is_string() {
        true => put!(w, 0, "Status:\tTerminating (lasts {})\n", since(deletion, now)),
        false => put!(w, 0, "Status:\t{}\n", text(&object["status"]["phase"])),
    }
}

fn access_modes(value: &Value) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = texts(value);
    let short = SHORT.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

fn node_affinity(w: &mut Writer, affinity: &Value) {
    w.write(0, "Node Affinity:\t");
    let required = &affinity["required"];
    if !required.is_object() {
        w.raw("<none>\n");
        return;
    }
    w.raw("\n");
    w.write(1, "Required Terms:\t");
    let terms = items(&required["nodeSelectorTerms"]);
    w.raw(if terms.is_empty() { "<none>\n" } else { "\n" });
    for (i, term) in terms.iter().enumerate() {
        let lines: Vec<String> = items(&term["matchExpressions"])
            .iter()
            .map(|expression| {
                requirement(expression, &text(&expression["operator"]).to_lowercase())
            })
            .collect();
        lines_under(w, 2, &format!("Term {i}"), "", &lines);
    }
}

fn requirement(expression: &Value, operator: &str) -> String {
    let values = texts(&expression["values"]);
    let line = format!("{} {operator}", text(&expression["key"]));
    match values.is_empty() {
        true => line,
        false => format!("{line} [{}]", values.join(", ")),
    }
}

pub fn wants_of_claim(claim: &Value) -> Vec<Want> {
    vec![Want::all(Slot::Pods, "v1", "pods", namespace(claim)).required()]
}

pub fn describe_claim(w: &mut Writer, object: &Value, seen: &Seen<'_>) {
    claim(w, object, Some(seen.now));
    let mut users: Vec<String> = Vec::new();
    let pods = seen.around.list(Slot::Pods).unwrap_or_default();
    for pod in &pods {
        let uses =
            |volume: &&Value| text(&volume["persistentVolumeClaim"]["claimName"]) == name(object);
        let times = items(&pod["spec"]["volumes"]).iter().filter(uses).count();
        let owns = items(&object["metadata"]["ownerReferences"])
            .iter()
            .any(|owner| text(&owner["kind"]) == "Pod" && owner["uid"] == pod["metadata"]["uid"]);
        // A pod that uses the claim twice is named twice, as upstream does.
        let times = if times == 0 && owns { 1 } else { times };
        users.extend(std::iter::repeat_n(name(pod).to_owned(), times));
    }
    users.sort();
    lines_under(w, 0, "Used By", "", &users);
    let conditions = items(&object["status"]["conditions"]);
    if conditions.is_empty() {
        return;
    }
    w.write(0, "Conditions:\n");
    w.write(1, "Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage\n");
    w.write(1, "----\t------\t-----------------\t------------------\t------\t-------\n");
    for c in conditions {
        let (probed, changed) = (time(&c["lastProbeTime"]), time(&c["lastTransitionTime"]));
        put!(
            w,
            1,
            "{} \t{} \t{probed} \t{changed} \t{} \t{}\n",
            text(&c["type"]),
            text(&c["status"]),
            text(&c["reason"]),
            text(&c["message"])
        );
    }
}

/// A claim; of a template (which has no time of its own) only what means something there.
pub fn claim(w: &mut Writer, claim: &Value, now: Option<Timestamp>) {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    if now.is_some() {
        head(w, claim, true);
    }
    put!(w, 0, "StorageClass:\t{}\n", class(claim));
    if let Some(now) = now {
        phase(w, claim, now);
    }
    let volume = text(&spec["volumeName"]);
    put!(w, 0, "Volume:\t{volume}\n");
    labels_and_annotations(w, claim);
    if now.is_some() {
        put!(w, 0, "Finalizers:\t{}\n", bracketed(&claim["metadata"]["finalizers"]));
    }
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (amount(&status["capacity"]["storage"]), access_modes(&status["accessModes"])),
    };
    put!(w, 0, "Capacity:\t{capacity}\n");
    put!(w, 0, "Access Modes:\t{modes}\n");
    optional(w, 0, "VolumeMode", &spec["volumeMode"]);
    let source = &spec["dataSource"];
    if source.is_object() {
        w.write(0, "DataSource:\n");
        optional(w, 1, "APIGroup", &source["apiGroup"]);
        put!(w, 1, "Kind:\t{}\n", text(&source["kind"]));
        put!(w, 1, "Name:\t{}\n", text(&source["name"]));
    }
}

/// The claims that a StatefulSet makes.
pub fn claim_templates(w: &mut Writer, templates: &Value) {
    let templates = items(templates);
    if templates.is_empty() {
        w.write(0, "Volume Claims:\t<none>\n");
        return;
    }
    w.write(0, "Volume Claims:\n");
    for template in templates {
        put!(w, 1, "Name:\t{}\n", name(template));
        put!(w, 1, "StorageClass:\t{}\n", class(template));
        for (title, field) in [("Labels", "labels"), ("Annotations", "annotations")] {
            let lines: Vec<String> = pairs(&template["metadata"][field])
                .into_iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            lines_under(w, 0, title, "  ", &lines);
        }
        let capacity = &template["spec"]["resources"]["requests"]["storage"];
        match capacity.is_null() {
            true => w.write(1, "Capacity:\t<default>\n"),
            false => put!(w, 1, "Capacity:\t{}\n", amount(capacity)),
        }
        put!(w, 1, "Access Modes:\t{}\n", bracketed(&template["spec"]["accessModes"]));
    }
}

pub fn storage_class(w: &mut Writer, class: &Value, _: &Seen<'_>) {
    head(w, class, false);
    let annotation = |prefix: &str| {
        let name = format!("storageclass.{prefix}kubernetes.io/is-default-class");
        text(&class["metadata"]["annotations"][name]) == "true"
    };
    put!(
        w,
        0,
        "IsDefaultClass:\t{}\n",
        if annotation("") || annotation("beta.") { "Yes" } else { "No" }
    );
    put!(w, 0, "Annotations:\t{}\n", format_labels(&class["metadata"]["annotations"]));
    put!(w, 0, "Provisioner:\t{}\n", text(&class["provisioner"]));
    put!(w, 0, "Parameters:\t{}\n", format_labels(&class["parameters"]));
    let expansion = class["allowVolumeExpansion"].as_bool().map_or("<unset>", true_false);
    put!(w, 0, "AllowVolumeExpansion:\t{expansion}\n");
    let options = texts(&class["mountOptions"]);
    match options.is_empty() {
        true => w.write(0, "MountOptions:\t<none>\n"),
        false => w.write(0, "MountOptions:\n"),
    }
    for option in options {
        put!(w, 1, "{option}\n");
    }
    optional(w, 0, "ReclaimPolicy", &class["reclaimPolicy"]);
    optional(w, 0, "VolumeBindingMode", &class["volumeBindingMode"]);
    let topologies = &class["allowedTopologies"];
    if topologies.is_array() {
        w.write(0, "AllowedTopologies:\t");
        w.raw(if items(topologies).is_empty() { "<none>\n" } else { "\n" });
        for (i, term) in items(topologies).iter().enumerate() {
            let lines: Vec<String> = items(&term["matchLabelExpressions"])
                .iter()
                .map(|expression| requirement(expression, "in"))
                .collect();
            lines_under(w, 1, &format!("Term {i}"), "", &lines);
        }
    }
}

pub fn attributes_class(w: &mut Writer, class: &Value, _: &Seen<'_>) {
    head(w, class, false);
    put!(w, 0, "Annotations:\t{}\n", format_labels(&class["metadata"]["annotations"]));
    put!(w, 0, "DriverName:\t{}\n", text(&class["driverName"]));
    put!(w, 0, "Parameters:\t{}\n", format_labels(&class["parameters"]));
}

pub fn csi_node(w: &mut Writer, node: &Value, _: &Seen<'_>) {
    head(w, node, false);
    labels_and_annotations(w, node);
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&node["metadata"]["creationTimestamp"]));
    w.write(0, "Spec:\n");
    if !node["spec"]["drivers"].is_array() {
        return;
    }
    w.write(1, "Drivers:\n");
    for driver in items(&node["spec"]["drivers"]) {
        put!(w, 2, "{}:\n", text(&driver["name"]));
        put!(w, 3, "Node ID:\t{}\n", text(&driver["nodeID"]));
        if !driver["allocatable"]["count"].is_null() {
            w.write(3, "Allocatables:\n");
            put!(w, 4, "Count:\t{}\n", int(&driver["allocatable"]["count"]));
        }
        if driver["topologyKeys"].is_array() {
            put!(w, 3, "Topology Keys:\t{}\n", bracketed(&driver["topologyKeys"]));
        }
    }
}
