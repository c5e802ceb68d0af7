//! `kubectl rollout status`: how far a rollout is, until it is done.
use super::super::Command;
use crate::builder::{FILES, SELECTOR};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch_on};
use crate::session::Session;
use crate::watching::{self, FOREVER};
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::Duration;

static FLAGS: &[Flag] = &[
    number("revision", "0", "Wait for this revision; 0: the newest."),
    span("timeout", "0s", "How long to wait; 0: until it is done."),
    switch_on("watch", "Wait until it is done.").short('w'),
];

pub static COMMAND: Command = Command {
    name: "status",
    about: "Show the status of the rollout",
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resource(&["deployment", "daemonset", "statefulset"]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let revision = arguments.number("revision");
    if revision < 0 {
        return Err(format!("revision must be a positive integer: {revision}").into());
    }
    let cluster = session.cluster(&arguments)?;
    let infos = super::infos(&cluster, &arguments).await?;
    if infos.is_empty() {
        writeln!(session.err, "No resources found in {} namespace.", cluster.namespace)?;
        return Ok(());
    }
    let patience = match arguments.span("timeout") {
        Duration::ZERO => FOREVER,
        some => some,
    };
    let watches = arguments.is("watch");
    for info in &infos {
        let mut said = String::new();
        let mut look = |object: Option<&Value>| {
            let Some(object) = object else {
                return Err(Failure::Plain("object has been deleted".to_owned()));
            };
            let (text, done) = status(object, revision)?;
            if text != said {
                write!(session.out, "{text}")?;
                session.out.flush()?;
                said = text;
            }
            Ok(match done || !watches {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        };
        let waited =
            watching::until(&cluster, info.api(), &info.namespace, &info.name, patience, &mut look);
        if waited.await?.is_none() {
            return Err("timed out waiting for the condition".into());
        }
    }
    Ok(())
}

/// What is said about a rollout, and whether it is done.
fn status(object: &Value, revision: i64) -> Outcome<(String, bool)> {
    match object["kind"].as_str() {
        Some("Deployment") => deployment(object, revision),
        Some("DaemonSet") => daemon_set(object),
        Some("StatefulSet") => stateful_set(object),
        kind => {
            let group =
                object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |v| v.0);
            let kind = kind.unwrap_or_default();
            let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
            Err(format!("no status viewer has been implemented for {shown}").into())
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The controller has seen the newest change.
fn is_observed(object: &Value) -> bool {
    count(&object["metadata"]["generation"]) <= count(&object["status"]["observedGeneration"])
}

fn deployment(object: &Value, revision: i64) -> Outcome<(String, bool)> {
    let (name, status) = (name(object), &object["status"]);
    if revision > 0 {
        let running =
            object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        let running: i64 = running.and_then(|text| text.parse().ok()).unwrap_or(0);
        if running != revision {
            return Err(format!(
                "desired revision ({revision}) is different from the running revision ({running})"
            )
            .into());
        }
    }
    if !is_observed(object) {
        return Ok(("Waiting for deployment spec update to be observed...\n".to_owned(), false));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut progress = conditions.filter(|condition| condition["type"] == "Progressing");
    if progress.any(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
        return Err(format!("deployment \"{name}\" exceeded its progress deadline").into());
    }
    let (updated, wanted) =
        (count(&status["updatedReplicas"]), object["spec"]["replicas"].as_i64().unwrap_or(1));
    let (all, available) = (count(&status["replicas"]), count(&status["availableReplicas"]));
    let waiting = format!("Waiting for deployment \"{name}\" rollout to finish: ");
    Ok(if updated < wanted {
        (format!("{waiting}{updated} out of {wanted} new replicas have been updated...\n"), false)
    } else if all > updated {
        (format!("{waiting}{} old replicas are pending termination...\n", all - updated), false)
    } else if available < updated {
        (format!("{waiting}{available} of {updated} updated replicas are available...\n"), false)
    } else {
        (format!("deployment \"{name}\" successfully rolled out\n"), true)
    })
}

fn daemon_set(object: &Value) -> Outcome<(String, bool)> {
    let (name, status) = (name(object), &object["status"]);
    rolling(object)?;
    if !is_observed(object) {
        return Ok(("Waiting for daemon set spec update to be observed...\n".to_owned(), false));
    }
    let (updated, wanted) =
        (count(&status["updatedNumberScheduled"]), count(&status["desiredNumberScheduled"]));
    let available = count(&status["numberAvailable"]);
    let waiting = format!("Waiting for daemon set \"{name}\" rollout to finish: ");
    Ok(if updated < wanted {
        (format!("{waiting}{updated} out of {wanted} new pods have been updated...\n"), false)
    } else if available < wanted {
        (format!("{waiting}{available} of {wanted} updated pods are available...\n"), false)
    } else {
        (format!("daemon set \"{name}\" successfully rolled out\n"), true)
    })
}

fn stateful_set(object: &Value) -> Outcome<(String, bool)> {
    let (spec, status) = (&object["spec"], &object["status"]);
    rolling(object)?;
    if count(&status["observedGeneration"]) == 0 || !is_observed(object) {
        return Ok(("Waiting for statefulset spec update to be observed...\n".to_owned(), false));
    }
    let (wanted, ready) = (spec["replicas"].as_i64().unwrap_or(1), count(&status["readyReplicas"]));
    if ready < wanted {
        return Ok((format!("Waiting for {} pods to be ready...\n", wanted - ready), false));
    }
    let updated = count(&status["updatedReplicas"]);
    let update = &spec["updateStrategy"]["rollingUpdate"];
    if update.is_object() {
        let kept = update["partition"].as_i64().unwrap_or(0);
        if update["partition"].is_i64() && updated < wanted - kept {
            return Ok((
                format!(
                    "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...\n",
                    wanted - kept
                ),
                false,
            ));
        }
        return Ok((
            format!("partitioned roll out complete: {updated} new pods have been updated...\n"),
            true,
        ));
    }
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    if text("updateRevision") != text("currentRevision") {
        return Ok((
            format!(
                "waiting for statefulset rolling update to complete {updated} pods at revision {}...\n",
                text("updateRevision")
            ),
            false,
        ));
    }
    let current = count(&status["currentReplicas"]);
    Ok((
        format!(
            "statefulset rolling update complete {current} pods at revision {}...\n",
            text("currentRevision")
        ),
        true,
    ))
}

fn rolling(object: &Value) -> Outcome {
    match object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        true => Ok(()),
        false => Err("rollout status is only available for RollingUpdate strategy type".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(object: Value, expected: &str, done: bool) {
        assert_eq!(status(&object, 0).expect("it has a status"), (expected.to_owned(), done));
    }

    #[test]
    fn a_deployment_s_rollout_is_told_step_by_step() {
        let web = |status: Value| {
            json!({ "kind": "Deployment", "metadata": { "name": "web", "generation": 2 },
                "spec": { "replicas": 3 }, "status": status })
        };
        check(
            web(json!({ "observedGeneration": 1 })),
            "Waiting for deployment spec update to be observed...\n",
            false,
        );
        check(
            web(json!({ "observedGeneration": 2, "updatedReplicas": 1 })),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...\n",
            false,
        );
        check(
            web(json!({ "observedGeneration": 2, "updatedReplicas": 3, "replicas": 4 })),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...\n",
            false,
        );
        check(
            web(
                json!({ "observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2 }),
            ),
            "Waiting for deployment \"web\" rollout to finish: 2 of 3 updated replicas are available...\n",
            false,
        );
        check(
            web(
                json!({ "observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3 }),
            ),
            "deployment \"web\" successfully rolled out\n",
            true,
        );
    }

    #[test]
    fn sets_have_words_of_their_own() {
        let update = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
        check(
            json!({ "kind": "StatefulSet", "metadata": { "name": "db", "generation": 1 },
                "spec": { "replicas": 2, "updateStrategy": update },
                "status": { "observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 2 } }),
            "partitioned roll out complete: 2 new pods have been updated...\n",
            true,
        );
        check(
            json!({ "kind": "DaemonSet", "metadata": { "name": "d", "generation": 1 },
                "spec": { "updateStrategy": { "type": "RollingUpdate" } },
                "status": { "observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2 } }),
            "Waiting for daemon set \"d\" rollout to finish: 0 of 2 updated pods are available...\n",
            false,
        );
    }
}
