//! How `kubectl get pods` shows a pod.
use super::super::Field;
use super::super::table::{AGE, Column, NAME, elapsed, text_or, timestamp, with};
use crate::meta::TableRowCondition;
use jiff::Timestamp;
use serde_json::Value;

pub const COLUMNS: &[Column] = &[
    NAME,
    with("Ready", |pod, _| {
        let summary = summary(pod);
        format!("{}/{}", summary.ready, summary.total).into()
    }),
    with("Status", |pod, _| summary(pod).word.into()),
    with("Restarts", |pod, now| {
        let Summary { restarts, last_restart, .. } = summary(pod);
        match last_restart.filter(|_| restarts != 0) {
            Some(last) => format!("{restarts} ({} ago)", elapsed(last, now)).into(),
            None => restarts.to_string().into(),
        }
    }),
    AGE,
    with("IP", |pod, _| {
        let ip = pod.value()["status"]["podIPs"][0]["ip"].as_str().unwrap_or("<none>");
        ip.into()
    })
    .wide(),
    text_or("Node", "spec.nodeName", "<none>").wide(),
    text_or("Nominated Node", "status.nominatedNodeName", "<none>").wide(),
    with("Readiness Gates", |pod, _| readiness_gates(pod)).wide(),
];

pub fn conditions(pod: &Field<'_, '_>) -> Vec<TableRowCondition> {
    let phase = pod.at("status.phase").text();
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![TableRowCondition {
        r#type: "Completed".to_owned(),
        status: "True".to_owned(),
        reason: phase.to_owned(),
        message: message.to_owned(),
    }]
}

struct Summary {
    ready: usize,
    total: usize,
    word: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

fn has_condition(pod: &Field<'_, '_>, kind: &str) -> bool {
    pod.at("status.conditions").items().any(|condition| {
        condition.at("type").text() == kind && condition.at("status").text() == "True"
    })
}

fn summary(pod: &Field<'_, '_>) -> Summary {
    let (spec, status) = (pod.at("spec"), pod.at("status"));
    let sidecars: Vec<&str> = spec
        .at("initContainers")
        .items()
        .filter(|container| container.at("restartPolicy").text() == "Always")
        .map(|container| container.at("name").text())
        .collect();
    let mut found = Summary {
        ready: 0,
        total: spec.at("containers").len() + sidecars.len(),
        word: match status.at("reason").text() {
            "" => status.at("phase").text().to_owned(),
            reason => reason.to_owned(),
        },
        restarts: 0,
        last_restart: None,
    };
    let gated = |condition: Field<'_, '_>| {
        condition.at("type").text() == "PodScheduled"
            && condition.at("reason").text() == "SchedulingGated"
    };
    if status.at("conditions").items().any(gated) {
        found.word = "SchedulingGated".to_owned();
    }
    let initializing = init_containers(&mut found, &spec, &status, &sidecars);
    if !initializing || has_condition(pod, "Initialized") {
        containers(&mut found, pod, &sidecars);
    }
    let deleted = pod.at("metadata.deletionTimestamp").exists();
    if deleted && status.at("reason").text() == "NodeLost" {
        found.word = "Unknown".to_owned();
    } else if deleted && !matches!(status.at("phase").text(), "Succeeded" | "Failed") {
        found.word = "Terminating".to_owned();
    }
    found
}

/// When a container last ended, if later than what is known.
fn later(known: Option<Timestamp>, container: &Field<'_, '_>) -> Option<Timestamp> {
    known.max(timestamp(&container.at("lastState.terminated.finishedAt")))
}

/// How a container ended: a reason, or what the kernel said.
fn ending(terminated: &Field<'_, '_>) -> String {
    let (reason, signal) = (terminated.at("reason").text(), terminated.at("signal").int());
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", terminated.at("exitCode").int()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Whether one of them is still at it.
fn init_containers(
    found: &mut Summary,
    spec: &Field<'_, '_>,
    status: &Field<'_, '_>,
    sidecars: &[&str],
) -> bool {
    for (i, container) in status.at("initContainerStatuses").items().enumerate() {
        found.restarts += container.at("restartCount").int();
        found.last_restart = later(found.last_restart, &container);
        let (terminated, waiting) =
            (container.at("state.terminated"), container.at("state.waiting.reason"));
        if terminated.exists() && terminated.at("exitCode").int() == 0 {
            continue;
        }
        if sidecars.contains(&container.at("name").text()) && container.at("started").flag() {
            found.ready += usize::from(container.at("ready").flag());
            continue;
        }
        found.word = if terminated.exists() {
            format!("Init:{}", ending(&terminated))
        } else if !matches!(waiting.text(), "" | "PodInitializing") {
            format!("Init:{}", waiting.text())
        } else {
            format!("Init:{i}/{}", spec.at("initContainers").len())
        };
        return true;
    }
    false
}

fn containers(found: &mut Summary, pod: &Field<'_, '_>, sidecars: &[&str]) {
    let status = pod.at("status");
    (found.restarts, found.last_restart) = (0, None);
    for container in status.at("initContainerStatuses").items() {
        if sidecars.contains(&container.at("name").text()) {
            found.restarts += container.at("restartCount").int();
            found.last_restart = later(found.last_restart, &container);
        }
    }
    let (mut running, mut error) = (false, None);
    let statuses = status.at("containerStatuses");
    let all: Vec<Field<'_, '_>> = statuses.items().collect();
    for container in all.iter().rev() {
        found.restarts += container.at("restartCount").int();
        found.last_restart = later(found.last_restart, container);
        let (terminated, waiting) =
            (container.at("state.terminated"), container.at("state.waiting.reason"));
        if !waiting.is_empty() {
            found.word = waiting.text().to_owned();
        } else if terminated.exists() {
            found.word = ending(&terminated);
            if terminated.at("exitCode").int() != 0 {
                error = Some(found.word.clone());
            }
        } else if container.at("ready").flag() && container.at("state.running").exists() {
            running = true;
            found.ready += 1;
        }
    }
    if found.word == "Completed" {
        found.word = match error {
            _ if running && has_condition(pod, "Ready") => "Running".to_owned(),
            Some(error) => error,
            None if running => "NotReady".to_owned(),
            None => return,
        };
    }
}

fn readiness_gates(pod: &Field<'_, '_>) -> Value {
    let gates = pod.at("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let conditions = pod.at("status.conditions");
    let met = |gate: &Field<'_, '_>| {
        let kind = gate.at("conditionType").text();
        let found = conditions.items().find(|condition| condition.at("type").text() == kind);
        found.is_some_and(|condition| condition.at("status").text() == "True")
    };
    let met = gates.items().filter(met).count();
    format!("{met}/{}", gates.len()).into()
}
