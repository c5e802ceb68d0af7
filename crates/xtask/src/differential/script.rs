//! The stories: what users do, as data. `$story` stands for the story's namespace; what is of no namespace
//! has the story's name and a dot before its own.
use super::server::{Asked, Verb};
use client::source::Propagation;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

pub struct Story {
    pub name: &'static str,
    acts: fn() -> Vec<Act>,
}

impl Story {
    /// The namespace first, with everything that control loops put into it.
    pub fn acts(&self) -> Vec<Act> {
        let namespace = Asked {
            resource: "namespaces",
            name: String::new(),
            subresource: "",
            verb: Verb::Create(json!({})),
        };
        let mut acts = vec![
            Act::Do(vec![namespace]),
            until("serviceaccounts", "default", "/metadata/name", json!("default")),
        ];
        acts.extend((self.acts)());
        acts
    }
}

pub enum Act {
    Do(Vec<Asked>),
    Until { resource: &'static str, name: String, place: &'static str, value: Value },
    Pause(Duration),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Pause(time) => write!(f, "pause {time:?}"),
            Act::Until { resource, name, place, value } => {
                write!(f, "until {resource} {name} {place} is {value}")
            }
            Act::Do(asked) => {
                let one = &asked[0];
                let verb = match &one.verb {
                    Verb::Create(_) => "create",
                    Verb::Merge(_) => "patch",
                    Verb::Delete(_) => "delete",
                };
                let slash = if one.subresource.is_empty() { "" } else { "/" };
                write!(f, "{verb} {}{slash}{} {}", one.resource, one.subresource, one.name)
            }
        }
    }
}

fn asked(resource: &'static str, name: &str, subresource: &'static str, verb: Verb) -> Act {
    Act::Do(vec![Asked { resource, name: name.to_owned(), subresource, verb }])
}

fn create(resource: &'static str, name: &str, body: Value) -> Act {
    asked(resource, name, "", Verb::Create(body))
}

fn patch(resource: &'static str, name: &str, body: Value) -> Act {
    asked(resource, name, "", Verb::Merge(body))
}

fn patch_status(resource: &'static str, name: &str, status: Value) -> Act {
    asked(resource, name, "status", Verb::Merge(json!({ "status": status })))
}

fn delete(resource: &'static str, name: &str) -> Act {
    asked(resource, name, "", Verb::Delete(None))
}

fn delete_with(resource: &'static str, name: &str, propagation: Propagation) -> Act {
    asked(resource, name, "", Verb::Delete(Some(propagation)))
}

fn until(resource: &'static str, name: &str, place: &'static str, value: Value) -> Act {
    Act::Until { resource, name: name.to_owned(), place, value }
}

fn scale(resource: &'static str, name: &str, replicas: i32) -> Act {
    patch(resource, name, json!({ "spec": { "replicas": replicas } }))
}

fn template(app: &str, does: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app }, "annotations": { "hollow.skiff/does": does } },
        "spec": { "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "image", "ports": [{ "name": "http", "containerPort": 8080 }],
                "resources": { "requests": { "cpu": "10m" } } }] } })
}

/// A template whose pods end.
fn ends(app: &str, does: &str) -> Value {
    let mut template = template(app, does);
    template["spec"]["restartPolicy"] = "Never".into();
    template
}

fn workload(app: &str, replicas: i32, does: &str, more: Value) -> Value {
    let mut spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": app } },
        "template": template(app, does) });
    merge(&mut spec, more);
    json!({ "spec": spec })
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn deployment(replicas: i32, does: &str, more: Value) -> Act {
    create("deployments", "web", workload("web", replicas, does, more))
}

/// Another template: whatever rolls, rolls.
fn roll(resource: &'static str, name: &str, round: &str) -> Act {
    let template = json!({ "metadata": { "annotations": { "round": round } } });
    patch(resource, name, json!({ "spec": { "template": template } }))
}

fn job(name: &str, does: &str, more: Value) -> Act {
    let mut spec = json!({ "template": ends(name, does) });
    merge(&mut spec, more);
    create("jobs", name, json!({ "spec": spec }))
}

fn complete(name: &str) -> Act {
    until("jobs", name, "/status/conditions/0/type", json!("SuccessCriteriaMet"))
}

fn failed(name: &str) -> Act {
    until("jobs", name, "/status/conditions/0/type", json!("FailureTarget"))
}

pub const STORIES: &[Story] = &[
    Story {
        name: "deployment-scales",
        acts: || {
            vec![
                deployment(3, "", json!({})),
                scale("deployments", "web", 5),
                scale("deployments", "web", 1),
                scale("deployments", "web", 0),
                scale("deployments", "web", 2),
                delete("deployments", "web"),
            ]
        },
    },
    Story {
        name: "deployment-rolls",
        acts: || {
            vec![
                deployment(4, "", json!({})),
                roll("deployments", "web", "2"),
                roll("deployments", "web", "3"),
                roll("deployments", "web", "4"),
                // Back to one that there was.
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "template": { "metadata": { "annotations": { "round": "2" } } } } }),
                ),
                patch("deployments", "web", json!({ "spec": { "revisionHistoryLimit": 1 } })),
                patch("deployments", "web", json!({ "spec": { "revisionHistoryLimit": 0 } })),
                patch(
                    "deployments",
                    "web",
                    json!({ "metadata": { "annotations": { "note": "x" }, "labels": { "team": "a" } } }),
                ),
            ]
        },
    },
    Story {
        name: "deployment-recreates",
        acts: || {
            vec![
                deployment(3, "", json!({ "strategy": { "type": "Recreate" } })),
                roll("deployments", "web", "2"),
                scale("deployments", "web", 2),
                roll("deployments", "web", "3"),
            ]
        },
    },
    Story {
        name: "deployment-pauses",
        acts: || {
            vec![
                deployment(3, "", json!({})),
                patch("deployments", "web", json!({ "spec": { "paused": true } })),
                roll("deployments", "web", "2"),
                scale("deployments", "web", 5),
                patch("deployments", "web", json!({ "spec": { "paused": false } })),
                patch("deployments", "web", json!({ "spec": { "paused": true } })),
                roll("deployments", "web", "3"),
                scale("deployments", "web", 2),
                patch("deployments", "web", json!({ "spec": { "paused": false } })),
            ]
        },
    },
    Story {
        name: "deployment-gets-stuck",
        acts: || {
            vec![
                deployment(4, "", json!({ "progressDeadlineSeconds": 5 })),
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "template": { "metadata": { "annotations": { "hollow.skiff/does": "ready=never" } } } } }),
                ),
                until(
                    "deployments",
                    "web",
                    "/status/conditions/1/reason",
                    json!("ProgressDeadlineExceeded"),
                ),
                scale("deployments", "web", 8),
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "template": { "metadata": { "annotations": { "hollow.skiff/does": "" } } } } }),
                ),
                until(
                    "deployments",
                    "web",
                    "/status/conditions/1/reason",
                    json!("NewReplicaSetAvailable"),
                ),
            ]
        },
    },
    Story {
        name: "deployment-surges",
        acts: || {
            vec![
                deployment(
                    4,
                    "ready=1s",
                    json!({ "minReadySeconds": 1, "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } } }),
                ),
                until("deployments", "web", "/status/availableReplicas", json!(4)),
                roll("deployments", "web", "2"),
                until("deployments", "web", "/status/updatedReplicas", json!(4)),
                until("deployments", "web", "/status/replicas", json!(4)),
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "50%" } } } }),
                ),
                roll("deployments", "web", "3"),
                until("deployments", "web", "/status/availableReplicas", json!(4)),
            ]
        },
    },
    Story {
        name: "deployment-adopts",
        acts: || {
            vec![
                deployment(2, "", json!({})),
                delete_with("deployments", "web", Propagation::Orphan),
                deployment(2, "", json!({})),
                scale("deployments", "web", 3),
                roll("deployments", "web", "2"),
                delete_with("deployments", "web", Propagation::Foreground),
            ]
        },
    },
    Story {
        name: "deployment-bad-selector",
        acts: || {
            vec![
                create(
                    "deployments",
                    "bad",
                    workload(
                        "bad",
                        1,
                        "",
                        json!({ "selector": { "matchLabels": { "app": "other" } } }),
                    ),
                ),
                deployment(1, "", json!({})),
                create("deployments", "two", workload("web", 1, "", json!({}))),
            ]
        },
    },
    Story {
        name: "replicaset-adopts",
        acts: || {
            vec![
                create(
                    "pods",
                    "stray",
                    json!({ "metadata": { "labels": { "app": "web" } }, "spec": template("web", "")["spec"] }),
                ),
                create("replicasets", "web", workload("web", 3, "", json!({}))),
                patch("pods", "stray", json!({ "metadata": { "labels": { "app": "gone" } } })),
                patch("pods", "stray", json!({ "metadata": { "labels": { "app": "web" } } })),
                scale("replicasets", "web", 1),
                scale("replicasets", "web", 4),
                patch("replicasets", "web", json!({ "spec": { "minReadySeconds": 2 } })),
                delete_with("replicasets", "web", Propagation::Orphan),
                create("replicasets", "web", workload("web", 2, "", json!({}))),
                delete_with("replicasets", "web", Propagation::Foreground),
            ]
        },
    },
    Story {
        name: "replicationcontroller",
        acts: || {
            vec![
                create(
                    "replicationcontrollers",
                    "web",
                    json!({ "spec": { "replicas": 2, "selector": { "app": "web" }, "template": template("web", "") } }),
                ),
                scale("replicationcontrollers", "web", 4),
                scale("replicationcontrollers", "web", 1),
                delete_with("replicationcontrollers", "web", Propagation::Background),
            ]
        },
    },
    Story {
        name: "replicaset-over-quota",
        acts: || {
            vec![
                create(
                    "resourcequotas",
                    "q",
                    json!({ "spec": { "hard": { "pods": "2", "configmaps": "5" } } }),
                ),
                create("replicasets", "web", workload("web", 4, "", json!({}))),
                patch("resourcequotas", "q", json!({ "spec": { "hard": { "pods": "10" } } })),
                scale("replicasets", "web", 2),
            ]
        },
    },
    Story {
        name: "statefulset-orders",
        acts: || {
            vec![
                create(
                    "services",
                    "web",
                    json!({ "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
                ),
                create(
                    "statefulsets",
                    "web",
                    workload("web", 3, "", json!({ "serviceName": "web" })),
                ),
                until("statefulsets", "web", "/status/readyReplicas", json!(3)),
                scale("statefulsets", "web", 1),
                scale("statefulsets", "web", 2),
                until("statefulsets", "web", "/status/readyReplicas", json!(2)),
                roll("statefulsets", "web", "2"),
                until("statefulsets", "web", "/status/updatedReplicas", json!(2)),
                delete("pods", "web-0"),
                until("statefulsets", "web", "/status/readyReplicas", json!(2)),
                scale("statefulsets", "web", 0),
                delete("statefulsets", "web"),
            ]
        },
    },
    Story {
        name: "statefulset-partitions",
        acts: || {
            vec![
                create(
                    "statefulsets",
                    "web",
                    workload(
                        "web",
                        4,
                        "",
                        json!({ "serviceName": "web", "podManagementPolicy": "Parallel",
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } } }),
                    ),
                ),
                until("statefulsets", "web", "/status/readyReplicas", json!(4)),
                roll("statefulsets", "web", "2"),
                until("statefulsets", "web", "/status/updatedReplicas", json!(2)),
                patch(
                    "statefulsets",
                    "web",
                    json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } }),
                ),
                until("statefulsets", "web", "/status/updatedReplicas", json!(4)),
                roll("statefulsets", "web", "3"),
                until("statefulsets", "web", "/status/updatedReplicas", json!(4)),
                patch(
                    "statefulsets",
                    "web",
                    json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }),
                ),
                roll("statefulsets", "web", "4"),
                delete("pods", "web-3"),
                until("statefulsets", "web", "/status/readyReplicas", json!(4)),
            ]
        },
    },
    Story {
        name: "statefulset-claims",
        acts: || {
            vec![
                create(
                    "statefulsets",
                    "web",
                    workload(
                        "web",
                        2,
                        "",
                        json!({ "serviceName": "web", "ordinals": { "start": 3 },
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Delete" },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": { "requests": { "storage": "1Gi" } } } }] }),
                    ),
                ),
                scale("statefulsets", "web", 1),
                patch(
                    "statefulsets",
                    "web",
                    json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain" } } }),
                ),
                delete("statefulsets", "web"),
            ]
        },
    },
    Story {
        name: "daemonset",
        acts: || {
            vec![
                create(
                    "daemonsets",
                    "d",
                    json!({ "spec": { "selector": { "matchLabels": { "app": "d" } }, "template": template("d", "") } }),
                ),
                roll("daemonsets", "d", "2"),
                until("daemonsets", "d", "/status/updatedNumberScheduled", json!(NODES)),
                patch(
                    "daemonsets",
                    "d",
                    json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": "100%" } } } }),
                ),
                roll("daemonsets", "d", "3"),
                until("daemonsets", "d", "/status/updatedNumberScheduled", json!(NODES)),
                patch(
                    "daemonsets",
                    "d",
                    json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } } } }),
                ),
                roll("daemonsets", "d", "4"),
                until("daemonsets", "d", "/status/updatedNumberScheduled", json!(NODES)),
                patch(
                    "daemonsets",
                    "d",
                    json!({ "spec": { "template": { "spec": { "nodeSelector": { "no": "such" } } } } }),
                ),
                patch(
                    "daemonsets",
                    "d",
                    json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }),
                ),
                patch("daemonsets", "d", json!({ "spec": { "revisionHistoryLimit": 1 } })),
                delete_with("daemonsets", "d", Propagation::Foreground),
            ]
        },
    },
    Story {
        name: "job-completes",
        acts: || {
            vec![
                job("one", "exit=0", json!({})),
                complete("one"),
                job("many", "exit=0", json!({ "completions": 5, "parallelism": 2 })),
                complete("many"),
                job("queue", "exit=0", json!({ "parallelism": 3 })),
                complete("queue"),
                job("none", "exit=0", json!({ "completions": 0 })),
                job("idle", "exit=0", json!({ "parallelism": 0 })),
                patch("jobs", "idle", json!({ "spec": { "parallelism": 1 } })),
                complete("idle"),
                delete_with("jobs", "one", Propagation::Background),
                delete_with("jobs", "many", Propagation::Orphan),
            ]
        },
    },
    Story {
        name: "job-indexed",
        acts: || {
            vec![
                job(
                    "good",
                    "exit=0",
                    json!({ "completions": 4, "parallelism": 2, "completionMode": "Indexed" }),
                ),
                complete("good"),
                job(
                    "bad",
                    "exit=1",
                    json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0 }),
                ),
                failed("bad"),
                job(
                    "few",
                    "exit=1",
                    json!({ "completions": 4, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 1 }),
                ),
                failed("few"),
                job(
                    "enough",
                    "exit=0",
                    json!({ "completions": 4, "parallelism": 1, "completionMode": "Indexed", "successPolicy": { "rules": [{ "succeededIndexes": "0-1" }] } }),
                ),
                complete("enough"),
                patch("jobs", "good", json!({ "spec": { "parallelism": 3 } })),
            ]
        },
    },
    Story {
        name: "job-fails",
        acts: || {
            vec![
                job("never", "exit=1", json!({ "backoffLimit": 0 })),
                failed("never"),
                job("late", "", json!({ "activeDeadlineSeconds": 2 })),
                failed("late"),
                job(
                    "policy",
                    "exit=42",
                    json!({ "backoffLimit": 6, "podFailurePolicy": { "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }] } }),
                ),
                failed("policy"),
                job(
                    "index",
                    "exit=7",
                    json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3, "podFailurePolicy": { "rules": [{ "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [7] } }] } }),
                ),
                failed("index"),
                job("twice", "exit=1", json!({ "backoffLimit": 1 })),
                failed("twice"),
            ]
        },
    },
    Story {
        name: "job-suspends",
        acts: || {
            vec![
                job("s", "", json!({ "suspend": true, "parallelism": 2, "completions": 2 })),
                patch("jobs", "s", json!({ "spec": { "suspend": false } })),
                patch("jobs", "s", json!({ "spec": { "suspend": true } })),
                patch("jobs", "s", json!({ "spec": { "suspend": false, "parallelism": 1 } })),
                job("theirs", "", json!({ "managedBy": "example.com/other" })),
                job("replaced", "", json!({ "podReplacementPolicy": "Failed", "parallelism": 1 })),
                delete_with("jobs", "s", Propagation::Foreground),
            ]
        },
    },
    Story {
        name: "job-goes",
        acts: || {
            vec![
                job("gone", "exit=0", json!({ "ttlSecondsAfterFinished": 1 })),
                Act::Pause(Duration::from_secs(3)),
                job("stays", "exit=0", json!({ "ttlSecondsAfterFinished": 600 })),
                complete("stays"),
                patch("jobs", "stays", json!({ "spec": { "ttlSecondsAfterFinished": 0 } })),
            ]
        },
    },
    Story {
        name: "cronjob",
        acts: || {
            vec![
                create(
                    "cronjobs",
                    "every",
                    json!({ "spec": { "schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": { "spec": { "template": ends("every", "exit=0") } } } }),
                ),
                create(
                    "cronjobs",
                    "asleep",
                    json!({ "spec": { "schedule": "* * * * *", "suspend": true, "jobTemplate": { "spec": { "template": ends("asleep", "exit=0") } } } }),
                ),
                create(
                    "cronjobs",
                    "replace",
                    json!({ "spec": { "schedule": "* * * * *", "concurrencyPolicy": "Replace", "jobTemplate": { "spec": { "template": ends("replace", "") } } } }),
                ),
                create(
                    "cronjobs",
                    "zone",
                    json!({ "spec": { "schedule": "0 0 1 1 *", "timeZone": "Europe/Berlin", "jobTemplate": { "spec": { "template": ends("zone", "") } } } }),
                ),
                create(
                    "cronjobs",
                    "odd",
                    json!({ "spec": { "schedule": "TZ=UTC 0 0 31 2 *", "jobTemplate": { "spec": { "template": ends("odd", "") } } } }),
                ),
                Act::Pause(Duration::from_secs(62)),
                patch("cronjobs", "every", json!({ "spec": { "suspend": true } })),
                patch("cronjobs", "replace", json!({ "spec": { "suspend": true } })),
                delete_with("cronjobs", "replace", Propagation::Background),
                delete("cronjobs", "asleep"),
            ]
        },
    },
    Story {
        name: "quota",
        acts: || {
            vec![
                create(
                    "resourcequotas",
                    "all",
                    json!({ "spec": { "hard": { "pods": "5", "requests.cpu": "1", "limits.memory": "1Gi", "services": "3", "services.nodeports": "2",
            "services.loadbalancers": "1", "secrets": "10", "configmaps": "10", "persistentvolumeclaims": "2", "requests.storage": "5Gi",
            "replicationcontrollers": "1", "count/deployments.apps": "2", "count/jobs.batch": "1" } } }),
                ),
                create(
                    "resourcequotas",
                    "besteffort",
                    json!({ "spec": { "hard": { "pods": "1" }, "scopes": ["BestEffort"] } }),
                ),
                create(
                    "resourcequotas",
                    "ended",
                    json!({ "spec": { "hard": { "pods": "1" }, "scopes": ["Terminating"] } }),
                ),
                create(
                    "resourcequotas",
                    "classed",
                    json!({ "spec": { "hard": { "pods": "1" }, "scopeSelector": { "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "Exists" }] } } }),
                ),
                create(
                    "services",
                    "a",
                    json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } }),
                ),
                create(
                    "services",
                    "b",
                    json!({ "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } }),
                ),
                create(
                    "persistentvolumeclaims",
                    "c",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "x", "resources": { "requests": { "storage": "1Gi" } } } }),
                ),
                create(
                    "pods",
                    "p",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "100m" }, "limits": { "memory": "64Mi" } } }] } }),
                ),
                create("configmaps", "m", json!({ "data": { "a": "b" } })),
                create("secrets", "s", json!({ "stringData": { "a": "b" } })),
                delete("services", "b"),
                delete("pods", "p"),
                delete("persistentvolumeclaims", "c"),
                patch("resourcequotas", "all", json!({ "spec": { "hard": { "pods": "7" } } })),
            ]
        },
    },
    Story {
        name: "budget",
        acts: || {
            vec![
                deployment(4, "", json!({})),
                create(
                    "poddisruptionbudgets",
                    "min",
                    json!({ "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } } }),
                ),
                patch("poddisruptionbudgets", "min", json!({ "spec": { "minAvailable": "75%" } })),
                scale("deployments", "web", 6),
                patch(
                    "poddisruptionbudgets",
                    "min",
                    json!({ "spec": { "minAvailable": null, "maxUnavailable": 1 } }),
                ),
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "template": { "metadata": { "annotations": { "hollow.skiff/does": "ready=never" } } } } }),
                ),
                create(
                    "poddisruptionbudgets",
                    "none",
                    json!({ "spec": { "maxUnavailable": "50%", "selector": { "matchLabels": { "app": "nobody" } } } }),
                ),
                create(
                    "pods",
                    "bare",
                    json!({ "metadata": { "labels": { "app": "bare" } }, "spec": template("bare", "")["spec"] }),
                ),
                create(
                    "poddisruptionbudgets",
                    "bare",
                    json!({ "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "bare" } } } }),
                ),
                create(
                    "poddisruptionbudgets",
                    "bare-min",
                    json!({ "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "bare" } } } }),
                ),
            ]
        },
    },
    Story {
        name: "namespace-goes",
        acts: || {
            vec![
                deployment(2, "", json!({})),
                create(
                    "configmaps",
                    "held",
                    json!({ "metadata": { "finalizers": ["example.com/held"] } }),
                ),
                create(
                    "services",
                    "web",
                    json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
                ),
                create("secrets", "s", json!({})),
                create("configmaps", "m", json!({})),
                asked("namespaces", "", "", Verb::Delete(None)),
                until("namespaces", "", "/status/phase", json!("Terminating")),
                patch("configmaps", "held", json!({ "metadata": { "finalizers": [] } })),
                until("namespaces", "", "/status/phase", Value::Null),
            ]
        },
    },
    Story {
        name: "garbage",
        acts: || {
            vec![
                create("configmaps", "owner", json!({})),
                deployment(1, "", json!({})),
                delete_with("deployments", "web", Propagation::Background),
                deployment(1, "", json!({})),
                delete_with("deployments", "web", Propagation::Foreground),
                deployment(1, "", json!({})),
                delete_with("deployments", "web", Propagation::Orphan),
                create(
                    "configmaps",
                    "lost",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "11111111-1111-1111-1111-111111111111" }] } }),
                ),
                create(
                    "configmaps",
                    "absent",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "21111111-1111-1111-1111-111111111111", "blockOwnerDeletion": true }] } }),
                ),
                create(
                    "configmaps",
                    "unknown",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "no.such/v1", "kind": "Thing", "name": "p", "uid": "31111111-1111-1111-1111-111111111111" }] } }),
                ),
                create(
                    "configmaps",
                    "node-owned",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "nobody", "uid": "41111111-1111-1111-1111-111111111111" }] } }),
                ),
            ]
        },
    },
    Story {
        name: "service-endpoints",
        acts: || {
            vec![
                create(
                    "services",
                    "web",
                    json!({ "metadata": { "labels": { "team": "a" } }, "spec": { "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": "http" }] } }),
                ),
                deployment(3, "", json!({})),
                scale("deployments", "web", 5),
                patch("services", "web", json!({ "metadata": { "labels": { "team": "b" } } })),
                create(
                    "services",
                    "headless",
                    json!({ "spec": { "clusterIP": "None", "selector": { "app": "web" }, "publishNotReadyAddresses": true } }),
                ),
                create(
                    "services",
                    "close",
                    json!({ "spec": { "selector": { "app": "web" }, "trafficDistribution": "PreferSameZone", "ports": [{ "port": 80 }] } }),
                ),
                create(
                    "services",
                    "node",
                    json!({ "spec": { "selector": { "app": "web" }, "trafficDistribution": "PreferSameNode", "ports": [{ "port": 80 }] } }),
                ),
                create(
                    "services",
                    "none",
                    json!({ "spec": { "selector": { "app": "nobody" }, "ports": [{ "port": 80 }, { "name": "b", "port": 81 }] } }),
                ),
                create(
                    "services",
                    "external",
                    json!({ "spec": { "type": "ExternalName", "externalName": "example.com" } }),
                ),
                create("services", "free", json!({ "spec": { "ports": [{ "port": 80 }] } })),
                create(
                    "endpoints",
                    "free",
                    json!({ "metadata": { "annotations": { "note": "x" } }, "subsets": [{ "addresses": [{ "ip": "192.0.2.1" }], "notReadyAddresses": [{ "ip": "192.0.2.2" }], "ports": [{ "port": 8080 }] }] }),
                ),
                patch(
                    "endpoints",
                    "free",
                    json!({ "subsets": [{ "addresses": [{ "ip": "192.0.2.3" }], "ports": [{ "port": 8080 }] }] }),
                ),
                patch(
                    "deployments",
                    "web",
                    json!({ "spec": { "template": { "metadata": { "annotations": { "hollow.skiff/does": "ready=never" } } } } }),
                ),
                patch(
                    "services",
                    "web",
                    json!({ "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": 9090 }] } }),
                ),
                patch("services", "web", json!({ "spec": { "selector": { "app": "other" } } })),
                delete("endpoints", "free"),
                delete("services", "headless"),
                delete("services", "free"),
            ]
        },
    },
    Story {
        name: "service-topology",
        acts: || {
            vec![
                deployment(
                    6,
                    "",
                    json!({ "template": { "spec": { "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } } }] } } }),
                ),
                create(
                    "services",
                    "web",
                    json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Auto" } }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
                ),
                scale("deployments", "web", 9),
                scale("deployments", "web", 2),
                scale("deployments", "web", 6),
                patch(
                    "services",
                    "web",
                    json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Disabled" } } }),
                ),
            ]
        },
    },
    Story {
        name: "claims",
        acts: || {
            vec![
                create("persistentvolumes", "v1", volume("1Gi", "manual", "Retain")),
                create("persistentvolumes", "v2", volume("5Gi", "manual", "Delete")),
                create("persistentvolumeclaims", "c", claim("1Gi", "manual")),
                create("persistentvolumeclaims", "large", claim("50Gi", "manual")),
                create("persistentvolumeclaims", "second", claim("2Gi", "manual")),
                create(
                    "pods",
                    "p",
                    json!({ "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i", "volumeMounts": [{ "name": "d", "mountPath": "/d" }] }],
            "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "c" } }] } }),
                ),
                delete("persistentvolumeclaims", "c"),
                delete("pods", "p"),
                delete("persistentvolumeclaims", "large"),
                create("persistentvolumeclaims", "lost", {
                    let mut lost = claim("1Gi", "manual");
                    lost["spec"]["volumeName"] = "nobody".into();
                    lost
                }),
                patch("persistentvolumes", "v1", json!({ "spec": { "claimRef": null } })),
                delete("persistentvolumes", "v1"),
            ]
        },
    },
    Story {
        name: "claims-wait",
        acts: || {
            vec![
                create(
                    "persistentvolumeclaims",
                    "none",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "no-such", "resources": { "requests": { "storage": "1Gi" } } } }),
                ),
                create("persistentvolumeclaims", "empty", claim("1Gi", "")),
                create(
                    "pods",
                    "ephemeral",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [{ "name": "d", "mountPath": "/d" }] }],
            "volumes": [{ "name": "d", "ephemeral": { "volumeClaimTemplate": { "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "no-such", "resources": { "requests": { "storage": "1Gi" } } } } } }] } }),
                ),
                delete("pods", "ephemeral"),
            ]
        },
    },
    Story {
        name: "autoscaler",
        acts: || {
            vec![
                deployment(2, "", json!({})),
                create(
                    "horizontalpodautoscalers",
                    "web",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 3, "maxReplicas": 5,
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }] } }),
                ),
                until("horizontalpodautoscalers", "web", "/status/desiredReplicas", json!(3)),
                until("deployments", "web", "/spec/replicas", json!(3)),
                create(
                    "horizontalpodautoscalers",
                    "lost",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody" }, "maxReplicas": 5 } }),
                ),
                until(
                    "horizontalpodautoscalers",
                    "lost",
                    "/status/conditions/0/reason",
                    json!("FailedGetScale"),
                ),
                Act::Pause(Duration::from_secs(20)),
                scale("deployments", "web", 0),
                Act::Pause(Duration::from_secs(17)),
                patch("horizontalpodautoscalers", "web", json!({ "spec": { "maxReplicas": 4 } })),
            ]
        },
    },
    Story {
        name: "accounts",
        acts: || {
            vec![
                create("serviceaccounts", "robot", json!({})),
                create(
                    "secrets",
                    "token",
                    json!({ "metadata": { "annotations": { "kubernetes.io/service-account.name": "robot" } }, "type": "kubernetes.io/service-account-token" }),
                ),
                delete("serviceaccounts", "default"),
                delete("configmaps", "kube-root-ca.crt"),
                patch("configmaps", "kube-root-ca.crt", json!({ "data": { "ca.crt": "broken" } })),
                create(
                    "secrets",
                    "nobody",
                    json!({ "metadata": { "annotations": { "kubernetes.io/service-account.name": "nobody" } }, "type": "kubernetes.io/service-account-token" }),
                ),
                delete("serviceaccounts", "robot"),
            ]
        },
    },
    Story {
        name: "roles",
        acts: || {
            vec![
                create(
                    "clusterroles",
                    "sum",
                    json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "sum-of": "$story" } }] } }),
                ),
                create(
                    "clusterroles",
                    "a",
                    json!({ "metadata": { "labels": { "sum-of": "$story" } }, "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] }),
                ),
                create(
                    "clusterroles",
                    "b",
                    json!({ "metadata": { "labels": { "sum-of": "$story" } }, "rules": [{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"] }] }),
                ),
                delete("clusterroles", "a"),
                patch("clusterroles", "b", json!({ "metadata": { "labels": { "sum-of": null } } })),
                delete("clusterroles", "b"),
                delete("clusterroles", "sum"),
            ]
        },
    },
    Story {
        name: "requests",
        acts: || {
            vec![
                create(
                    "certificatesigningrequests",
                    "odd",
                    json!({ "spec": { "request": CSR, "signerName": "example.com/signer", "usages": ["client auth"] } }),
                ),
                create(
                    "certificatesigningrequests",
                    "client",
                    json!({ "spec": { "request": CSR, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"] } }),
                ),
                create(
                    "certificatesigningrequests",
                    "kubelet",
                    json!({ "spec": { "request": CSR, "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth", "digital signature"] } }),
                ),
                delete("certificatesigningrequests", "odd"),
                delete("certificatesigningrequests", "client"),
                delete("certificatesigningrequests", "kubelet"),
            ]
        },
    },
    Story {
        name: "pods-alone",
        acts: || {
            vec![
                create(
                    "pods",
                    "lost",
                    json!({ "spec": { "nodeName": "no-such-node", "containers": [{ "name": "c", "image": "i" }] } }),
                ),
                create(
                    "pods",
                    "gated",
                    json!({ "spec": { "schedulingGates": [{ "name": "example.com/wait" }], "containers": [{ "name": "c", "image": "i" }] } }),
                ),
                create(
                    "pods",
                    "done",
                    json!({ "metadata": { "annotations": { "hollow.skiff/does": "exit=0" } }, "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } }),
                ),
                patch_status("pods", "gated", json!({ "phase": "Failed" })),
                delete("pods", "done"),
                delete("pods", "gated"),
            ]
        },
    },
    Story {
        name: "devices",
        acts: || {
            vec![
                create(
                    "resourceclaims",
                    "idle",
                    json!({ "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "no-such" } }] } } }),
                ),
                create(
                    "pods",
                    "p",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "d" }] } }],
            "resourceClaims": [{ "name": "d", "resourceClaimTemplateName": "t" }] } }),
                ),
                create(
                    "resourceclaimtemplates",
                    "t",
                    json!({ "spec": { "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "no-such" } }] } } } }),
                ),
                delete("pods", "p"),
                delete("resourceclaims", "idle"),
            ]
        },
    },
];

/// As many nodes as the script counts on.
const NODES: i32 = 6;

fn volume(size: &str, class: &str, policy: &str) -> Value {
    json!({ "spec": { "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": format!("$story-{class}"),
        "persistentVolumeReclaimPolicy": policy, "hostPath": { "path": "/tmp/none" } } })
}

fn claim(size: &str, class: &str) -> Value {
    let class = if class.is_empty() { String::new() } else { format!("$story-{class}") };
    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": { "requests": { "storage": size } } } })
}

/// For `CN=nobody`.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIY01JR0VBZ0VBTUNJeER6QU5CZ05WQkFvTUJuQmxiM0JzWlRFUE1BMEdBMVVFQXd3R2JtOWliMlI1TUZrdwpFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRVFNVkxtdi9ELzk3RHRlZGxKSE5ZbTZrRytKWWtwSEZICldsZEJ6KzRNUjNFZTNZcUowSDhZRXlUOVh6Njd1ODRqOUdDQStNWEtySjNmM050dENoRjR4YUFBTUFvR0NDcUcKU000OUJBTUNBMGNBTUVRQ0lDNmVpVVpvaitNdElYb1Noc0xqWG9JREt2aWgxQnpIZUUwdWhIMENhZ2JzQWlCUwp2YksrL3VnZmRJNWwzZEpZS09Xd2dSNWFHemlDVXFxeWlsbUJBTHhJT1E9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
