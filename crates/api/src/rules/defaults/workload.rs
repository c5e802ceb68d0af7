//! Defaults of what makes pods: apps, batch, autoscaling.
use super::{Fill, Rows, empty};
use serde_json::{Map, Value, json};

pub const ROWS: Rows = &[
    ("apps/v1.Deployment", deployment),
    ("apps/v1.DaemonSet", daemon_set),
    ("apps/v1.StatefulSet", stateful_set),
    ("apps/v1.ReplicaSet", |set| set.inside("spec").fill("replicas", 1)),
    ("batch/v1.Job", job),
    ("batch/v1.CronJob", cron_job),
    ("batch/v1.PodFailurePolicyOnPodConditionsPattern", |pattern| {
        pattern.fill_zero("status", "True")
    }),
    ("autoscaling/v1.HorizontalPodAutoscaler", |autoscaler| {
        autoscaler.inside("spec").fill("minReplicas", 1);
    }),
    ("autoscaling/v2.HorizontalPodAutoscaler", autoscaler),
];

fn deployment(deployment: &mut Map<String, Value>) {
    let spec = deployment.inside("spec");
    spec.fill("replicas", 1);
    let strategy = spec.inside("strategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let update = strategy.inside("rollingUpdate");
        update.fill("maxUnavailable", "25%");
        update.fill("maxSurge", "25%");
    }
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
}

fn daemon_set(set: &mut Map<String, Value>) {
    // What was a field once is written as an annotation, whoever the object is from.
    let annotations = set.inside("metadata").inside("annotations");
    annotations.fill("deprecated.daemonset.template.generation", "0");
    let spec = set.inside("spec");
    let strategy = spec.inside("updateStrategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let update = strategy.inside("rollingUpdate");
        update.fill("maxUnavailable", 1);
        update.fill("maxSurge", 0);
    } else if let Some(update) = strategy.given("rollingUpdate") {
        update.fill("maxUnavailable", 0);
        update.fill("maxSurge", 0);
    }
    spec.fill("revisionHistoryLimit", 10);
}

fn stateful_set(set: &mut Map<String, Value>) {
    let spec = set.inside("spec");
    spec.fill("podManagementPolicy", "OrderedReady");
    let strategy = spec.inside("updateStrategy");
    if strategy.lacks("type") {
        strategy.fill("type", "RollingUpdate");
        strategy.fill("rollingUpdate", empty());
    }
    if strategy.text("type") == "RollingUpdate"
        && let Some(update) = strategy.given("rollingUpdate")
    {
        update.fill("partition", 0);
        update.fill("maxUnavailable", 1);
    }
    let retention = spec.inside("persistentVolumeClaimRetentionPolicy");
    retention.fill("whenDeleted", "Retain");
    retention.fill("whenScaled", "Retain");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    // A template of a claim says that it is one, whatever it said.
    for template in spec.each("volumeClaimTemplates") {
        template.insert("apiVersion".into(), "v1".into());
        template.insert("kind".into(), "PersistentVolumeClaim".into());
    }
}

fn job(job: &mut Map<String, Value>) {
    let spec = job.inside("spec");
    if spec.lacks("parallelism") {
        spec.fill("completions", 1);
    }
    spec.fill("parallelism", 1);
    let per_index = !spec.lacks("backoffLimitPerIndex");
    spec.fill("backoffLimit", if per_index { i32::MAX } else { 6 });
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let policy = if spec.lacks("podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    spec.fill("podReplacementPolicy", policy);
    spec.fill("manualSelector", false);
    let labels = &spec.get("template").unwrap_or(&Value::Null)["metadata"]["labels"];
    if labels.is_object() {
        let labels = labels.clone();
        job.inside("metadata").fill_empty("labels", labels);
    }
}

fn cron_job(job: &mut Map<String, Value>) {
    let spec = job.inside("spec");
    spec.fill("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
}

fn autoscaler(autoscaler: &mut Map<String, Value>) {
    let spec = autoscaler.inside("spec");
    spec.fill("minReplicas", 1);
    let target = json!({ "type": "Utilization", "averageUtilization": 80 });
    let cpu = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    spec.fill_zero("metrics", cpu);
    if let Some(behavior) = spec.given("behavior") {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        let up = behavior.inside("scaleUp");
        up.fill("stabilizationWindowSeconds", 0);
        up.fill("policies", json!([pods, percent]));
        up.fill("selectPolicy", "Max");
        let down = behavior.inside("scaleDown");
        down.fill("policies", json!([percent]));
        down.fill("selectPolicy", "Max");
    }
}
