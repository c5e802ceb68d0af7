//! What makes pods: Deployments, ReplicaSets, Jobs and their kin.

use api::selector::label::Selector;
use serde_json::Value;

use super::around::{Slot, Want};
use super::common::{
    controlled_by, format_labels, head, int, is_true, items, labels_and_annotations, moment,
    namespace, optional, or, pairs, selector, selector_text, short_conditions, shown, span, text,
    time, true_false,
};
use super::writer::{Writer, put};
use super::{Seen, pod, storage};

/// The pods that a workload's selector selects.
pub fn wants_of_pods(object: &Value) -> Vec<Want> {
    let selector = &object["spec"]["selector"];
    let labels = match text(&object["kind"]) {
        "ReplicationController" => {
            let set =
                pairs(selector).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
            Selector::from_set(&set.collect()).to_string()
        }
        _ => self::selector(selector).map(|selector| selector.to_string()).unwrap_or_default(),
    };
    let want = Want::all(Slot::Pods, "v1", "pods", namespace(object)).labels(labels);
    // Upstream says in a ReplicaSet's description that its pods cannot be listed.
    vec![if text(&object["kind"]) == "ReplicaSet" { want } else { want.required() }]
}

/// How many of the pods that it controls are in which phase.
fn pods_status(object: &Value, seen: &Seen<'_>) -> String {
    if let Some(fault) = seen.around.fault(Slot::Pods) {
        return format!("error in fetching pods: {}", fault.message);
    }
    let uid = &object["metadata"]["uid"];
    let pods = seen.around.list(Slot::Pods).unwrap_or_default();
    let own = pods.into_iter().filter(|pod| {
        let owners = items(&pod["metadata"]["ownerReferences"]);
        owners
            .iter()
            .find(|owner| is_true(&owner["controller"]))
            .is_some_and(|owner| owner["uid"] == *uid)
    });
    let phases: Vec<&str> = own.map(|pod| text(&pod["status"]["phase"])).collect();
    let count = |phase: &str| phases.iter().filter(|known| **known == phase).count();
    let (running, waiting) = (count("Running"), count("Pending"));
    format!(
        "{running} Running / {waiting} Waiting / {} Succeeded / {} Failed",
        count("Succeeded"),
        count("Failed")
    )
}

fn selector_line(value: &Value) -> String {
    selector(value)
        .map(|selector| selector.to_string())
        .unwrap_or_else(|fault| format!("Failed to get selector: {fault}"))
}

pub fn replication_controller(w: &mut Writer, rc: &Value, seen: &Seen<'_>) {
    head(w, rc, true);
    put!(w, 0, "Selector:\t{}\n", format_labels(&rc["spec"]["selector"]));
    labels_and_annotations(w, rc);
    replicas(w, rc);
    put!(w, 0, "Pods Status:\t{}\n", pods_status(rc, seen));
    pod::template(w, &rc["spec"]["template"]);
    short_conditions(w, rc);
}

fn replicas(w: &mut Writer, object: &Value) {
    let (current, desired) = (int(&object["status"]["replicas"]), int(&object["spec"]["replicas"]));
    put!(w, 0, "Replicas:\t{current} current / {desired} desired\n");
}

pub fn replica_set(w: &mut Writer, rs: &Value, seen: &Seen<'_>) {
    head(w, rs, true);
    put!(w, 0, "Selector:\t{}\n", selector_text(&rs["spec"]["selector"]));
    labels_and_annotations(w, rs);
    controlled_by(w, rs);
    replicas(w, rs);
    put!(w, 0, "Pods Status:\t{}\n", pods_status(rs, seen));
    pod::template(w, &rs["spec"]["template"]);
    short_conditions(w, rs);
}

pub fn wants_of_deployment(deployment: &Value) -> Vec<Want> {
    let labels = selector(&deployment["spec"]["selector"])
        .map(|selector| selector.to_string())
        .unwrap_or_default();
    vec![
        Want::all(Slot::ReplicaSets, "apps/v1", "replicasets", namespace(deployment))
            .labels(labels),
    ]
}

pub fn deployment(w: &mut Writer, deployment: &Value, seen: &Seen<'_>) {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    head(w, deployment, true);
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&deployment["metadata"]["creationTimestamp"]));
    labels_and_annotations(w, deployment);
    put!(w, 0, "Selector:\t{}\n", selector_line(&spec["selector"]));
    put!(
        w,
        0,
        "Replicas:\t{} desired | {} updated | {} total | {} available | {} unavailable\n",
        int(&spec["replicas"]),
        int(&status["updatedReplicas"]),
        int(&status["replicas"]),
        int(&status["availableReplicas"]),
        int(&status["unavailableReplicas"])
    );
    put!(w, 0, "StrategyType:\t{}\n", text(&spec["strategy"]["type"]));
    put!(w, 0, "MinReadySeconds:\t{}\n", int(&spec["minReadySeconds"]));
    let rolling = &spec["strategy"]["rollingUpdate"];
    if rolling.is_object() {
        let (less, more) = (shown(&rolling["maxUnavailable"]), shown(&rolling["maxSurge"]));
        put!(
            w,
            0,
            "RollingUpdateStrategy:\t{} max unavailable, {} max surge\n",
            or(&less, "<nil>"),
            or(&more, "<nil>")
        );
    }
    pod::template(w, &spec["template"]);
    short_conditions(w, deployment);
    let (old, new) = replica_sets(deployment, seen);
    if !old.is_empty() || new.is_some() {
        put!(w, 0, "OldReplicaSets:\t{}\n", replica_set_names(&old));
        put!(w, 0, "NewReplicaSet:\t{}\n", replica_set_names(&new.into_iter().collect::<Vec<_>>()));
    }
}

/// The ReplicaSets that the deployment controls: those of other templates, and the oldest that has its
/// template.
fn replica_sets<'a>(deployment: &Value, seen: &'a Seen<'_>) -> (Vec<&'a Value>, Option<&'a Value>) {
    let uid = &deployment["metadata"]["uid"];
    let mut own: Vec<&Value> = seen.around.list(Slot::ReplicaSets).unwrap_or_default();
    own.retain(|rs| {
        let owners = items(&rs["metadata"]["ownerReferences"]);
        owners
            .iter()
            .find(|owner| is_true(&owner["controller"]))
            .is_some_and(|owner| owner["uid"] == *uid)
    });
    let wanted = without_hash(&deployment["spec"]["template"]);
    let mut by_age = own.clone();
    by_age.sort_by_key(|rs| {
        (moment(&rs["metadata"]["creationTimestamp"]), text(&rs["metadata"]["name"]).to_owned())
    });
    let new = by_age.into_iter().find(|rs| without_hash(&rs["spec"]["template"]) == wanted);
    own.retain(|rs| new.is_none_or(|new| new["metadata"]["uid"] != rs["metadata"]["uid"]));
    (own, new)
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    // Neither says when it was made.
    if let Some(metadata) = template["metadata"].as_object_mut() {
        metadata.remove("creationTimestamp");
    }
    template
}

fn replica_set_names(sets: &[&Value]) -> String {
    let names = sets.iter().map(|rs| {
        let (created, wanted) = (int(&rs["status"]["replicas"]), int(&rs["spec"]["replicas"]));
        format!("{} ({created}/{wanted} replicas created)", text(&rs["metadata"]["name"]))
    });
    let names = names.collect::<Vec<_>>().join(", ");
    or(&names, "<none>").to_owned()
}

pub fn stateful_set(w: &mut Writer, set: &Value, seen: &Seen<'_>) {
    let spec = &set["spec"];
    head(w, set, true);
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&set["metadata"]["creationTimestamp"]));
    put!(w, 0, "Selector:\t{}\n", selector_line(&spec["selector"]));
    labels_and_annotations(w, set);
    optional(w, 0, "Service Name", &spec["serviceName"]);
    optional(w, 0, "Pod Management Policy", &spec["podManagementPolicy"]);
    put!(
        w,
        0,
        "Replicas:\t{} desired | {} total\n",
        int(&spec["replicas"]),
        int(&set["status"]["replicas"])
    );
    put!(w, 0, "Update Strategy:\t{}\n", text(&spec["updateStrategy"]["type"]));
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    if !rolling["partition"].is_null() {
        put!(w, 1, "Partition:\t{}\n", int(&rolling["partition"]));
        optional(w, 1, "MaxUnavailable", &rolling["maxUnavailable"]);
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    if retention.is_object() {
        w.write(0, "Persistent Volume Claim Retention Policy:\n");
        put!(w, 1, "WhenDeleted:\t{}\n", text(&retention["whenDeleted"]));
        put!(w, 1, "WhenScaled:\t{}\n", text(&retention["whenScaled"]));
    }
    put!(w, 0, "Pods Status:\t{}\n", pods_status(set, seen));
    pod::template(w, &spec["template"]);
    storage::claim_templates(w, &spec["volumeClaimTemplates"]);
}

pub fn daemon_set(w: &mut Writer, set: &Value, seen: &Seen<'_>) {
    let (spec, status) = (&set["spec"], &set["status"]);
    head(w, set, true);
    put!(w, 0, "Selector:\t{}\n", selector_line(&spec["selector"]));
    put!(w, 0, "Node-Selector:\t{}\n", format_labels(&spec["template"]["spec"]["nodeSelector"]));
    labels_and_annotations(w, set);
    put!(w, 0, "Desired Number of Nodes Scheduled: {}\n", int(&status["desiredNumberScheduled"]));
    put!(w, 0, "Current Number of Nodes Scheduled: {}\n", int(&status["currentNumberScheduled"]));
    put!(
        w,
        0,
        "Number of Nodes Scheduled with Up-to-date Pods: {}\n",
        int(&status["updatedNumberScheduled"])
    );
    put!(
        w,
        0,
        "Number of Nodes Scheduled with Available Pods: {}\n",
        int(&status["numberAvailable"])
    );
    put!(w, 0, "Number of Nodes Misscheduled: {}\n", int(&status["numberMisscheduled"]));
    put!(w, 0, "Pods Status:\t{}\n", pods_status(set, seen));
    pod::template(w, &spec["template"]);
}

pub fn job(w: &mut Writer, job: &Value, _: &Seen<'_>) {
    let (spec, status) = (&job["spec"], &job["status"]);
    head(w, job, true);
    put!(w, 0, "Selector:\t{}\n", selector_line(&spec["selector"]));
    labels_and_annotations(w, job);
    controlled_by(w, job);
    optional(w, 0, "Parallelism", &spec["parallelism"]);
    unset(w, "Completions", &spec["completions"], "");
    optional(w, 0, "Completion Mode", &spec["completionMode"]);
    optional(w, 0, "Suspend", &spec["suspend"]);
    optional(w, 0, "Backoff Limit", &spec["backoffLimit"]);
    optional(w, 0, "TTL Seconds After Finished", &spec["ttlSecondsAfterFinished"]);
    for (title, field) in [("Start Time", "startTime"), ("Completed At", "completionTime")] {
        if status[field].is_string() {
            put!(w, 0, "{title}:\t{}\n", time(&status[field]));
        }
    }
    if let (Some(start), Some(end)) =
        (moment(&status["startTime"]), moment(&status["completionTime"]))
    {
        put!(w, 0, "Duration:\t{}\n", span(start, end));
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        put!(w, 0, "Active Deadline Seconds:\t{}s\n", int(&spec["activeDeadlineSeconds"]));
    }
    let (active, succeeded, failed) =
        (int(&status["active"]), int(&status["succeeded"]), int(&status["failed"]));
    let ready = match status["ready"].as_i64() {
        Some(ready) => format!(" ({ready} Ready)"),
        None => String::new(),
    };
    put!(
        w,
        0,
        "Pods Statuses:\t{active} Active{ready} / {succeeded} Succeeded / {failed} Failed\n"
    );
    if text(&spec["completionMode"]) == "Indexed" {
        put!(w, 0, "Completed Indexes:\t{}\n", capped(text(&status["completedIndexes"])));
    }
    pod::template(w, &spec["template"]);
}

/// Some fifty characters of a list of indexes, up to a comma.
fn capped(indexes: &str) -> String {
    const SOFT_LIMIT: usize = 50;
    match indexes.get(SOFT_LIMIT..).and_then(|rest| rest.find(',')) {
        Some(comma) => format!("{}...", &indexes[..SOFT_LIMIT + comma + 1]),
        None => or(indexes, "<none>").to_owned(),
    }
}

/// A number, or that there is none.
fn unset(w: &mut Writer, title: &str, value: &Value, unit: &str) {
    match value.is_null() {
        true => put!(w, 0, "{title}:\t<unset>\n"),
        false => put!(w, 0, "{title}:\t{}{unit}\n", shown(value)),
    }
}

pub fn cron_job(w: &mut Writer, cron: &Value, _: &Seen<'_>) {
    let (spec, status) = (&cron["spec"], &cron["status"]);
    head(w, cron, true);
    labels_and_annotations(w, cron);
    put!(w, 0, "Schedule:\t{}\n", text(&spec["schedule"]));
    put!(w, 0, "Concurrency Policy:\t{}\n", text(&spec["concurrencyPolicy"]));
    put!(w, 0, "Suspend:\t{}\n", spec["suspend"].as_bool().map_or("<unset>", true_false));
    unset(w, "Time Zone", &spec["timeZone"], "");
    unset(w, "Successful Job History Limit", &spec["successfulJobsHistoryLimit"], "");
    unset(w, "Failed Job History Limit", &spec["failedJobsHistoryLimit"], "");
    unset(w, "Starting Deadline Seconds", &spec["startingDeadlineSeconds"], "s");
    let job = &spec["jobTemplate"]["spec"];
    match job["selector"].is_object() {
        true => put!(w, 0, "Selector:\t{}\n", selector_line(&job["selector"])),
        false => w.write(0, "Selector:\t<unset>\n"),
    }
    unset(w, "Parallelism", &job["parallelism"], "");
    unset(w, "Completions", &job["completions"], "");
    if !job["activeDeadlineSeconds"].is_null() {
        put!(w, 0, "Active Deadline Seconds:\t{}s\n", int(&job["activeDeadlineSeconds"]));
    }
    pod::template(w, &job["template"]);
    match status["lastScheduleTime"].is_string() {
        true => put!(w, 0, "Last Schedule Time:\t{}\n", time(&status["lastScheduleTime"])),
        false => w.write(0, "Last Schedule Time:\t<unset>\n"),
    }
    let active: Vec<&str> = items(&status["active"]).iter().map(|job| text(&job["name"])).collect();
    put!(w, 0, "Active Jobs:\t{}\n", or(&active.join(", "), "<none>"));
}
