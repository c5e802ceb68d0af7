//! `kubectl run`: one pod of an image.
use super::delete::How;
use super::made::store;
use super::{Command, Group, exec};
use crate::builder;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, switch_on, text};
use crate::generate::pod;
use crate::pods;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::watching;
use crate::write::{DRY_RUN, DryRun};
use api::group::GroupResource;
use api::status::Status;
use client::source::Raw;
use jiff::Timestamp;
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::Duration;

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-run", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
    switch("rm", "Delete the pod after it was attached to."),
    switch("quiet", "Say less.").short('q'),
    text("detach-keys", "ctrl-p,ctrl-q", "Keys that end an attachment."),
    span("pod-running-timeout", "1m0s", "How long to wait until the pod runs."),
    text("cascade", "background", "What becomes of what a deleted object owns.").bare("background"),
    switch("force", "Delete at once."),
    switch("now", "Delete with little delay."),
    number("grace-period", "-1", "Seconds that a deleted pod has."),
    span("timeout", "0s", "How long to wait for a deletion."),
    switch_on("wait", "Wait for a deletion."),
];

pub static COMMAND: Command = Command {
    name: "run",
    group: Group::Beginner,
    about: "Run a particular image on the cluster",
    usage: "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] \
            [--command] -- [COMMAND] [args...]",
    flags: &[pod::FLAGS, FLAGS, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let made = pod::run(&arguments)?;
    let dry_run = DryRun::of(&arguments)?;
    let attach = match arguments.given("attach") {
        true => arguments.is("attach"),
        false => arguments.is("stdin"),
    };
    check(&arguments, attach, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    let pod = store(session, &arguments, made.pod, dry_run).await?;
    let mut stored = vec![pod.clone()];
    if let Some(service) = made.service {
        match store(session, &arguments, service, dry_run).await {
            Ok(service) => stored.push(service),
            Err(failure) => failures.push(failure),
        }
    }
    if attach {
        let outcome = attached(session, &arguments, &pod).await;
        if arguments.is("rm") {
            remove(session, &arguments, stored).await?;
        }
        return outcome;
    }
    for object in &stored {
        telling.tell(object, "created", &mut session.out)?;
    }
    Failure::of_all(failures)
}

/// Waits for the pod, talks to it, and ends as it ends.
async fn attached(session: &mut Session, arguments: &Arguments, pod: &Value) -> Outcome {
    let cluster = session.cluster(arguments)?;
    let patience = arguments.span("pod-running-timeout");
    let ready = wait(&cluster, pod, patience, |pod| pods::is_ready(pod) || is_over(pod)).await?;
    if is_over(&ready) {
        logs(session, &cluster, &ready, "").await?;
    } else {
        // What was written before anybody listened.
        if let Err(failure) = logs(session, &cluster, &ready, "").await {
            writeln!(session.err, "warning: couldn't fetch pre-attach logs: {}", failure.text())?;
        }
        let since = format!("&sinceTime={}", api::time::format_timestamp(Timestamp::now()));
        if let Err(failure) = exec::attach_to(session, &cluster, arguments, &ready).await {
            let (name, cause) = (field(&ready, "name"), failure.text());
            writeln!(
                session.err,
                "warning: couldn't attach to pod/{name}, falling back to streaming logs: {cause}"
            )?;
            logs(session, &cluster, &ready, &since).await?;
        }
    }
    let restart = pod["spec"]["restartPolicy"].as_str().unwrap_or_default();
    if arguments.is("leave-stdin-open") || restart == "Always" {
        return Ok(());
    }
    let ended = |pod: &Value| match restart {
        "OnFailure" => phase(pod) == "Succeeded",
        _ => is_over(pod),
    };
    verdict(&wait(&cluster, pod, patience, ended).await?)
}

fn field<'p>(pod: &'p Value, name: &str) -> &'p str {
    pod["metadata"][name].as_str().unwrap_or_default()
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

fn is_over(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

async fn wait(
    cluster: &Cluster,
    pod: &Value,
    patience: Duration,
    is: impl Fn(&Value) -> bool,
) -> Outcome<Value> {
    let (namespace, name) = (field(pod, "namespace"), field(pod, "name"));
    let mut look = |pod: Option<&Value>| match pod {
        Some(pod) if is(pod) => Ok(ControlFlow::Break(pod.clone())),
        Some(_) => Ok(ControlFlow::Continue(())),
        None => Err(Status::not_found(GroupResource::new("", "pods"), name).into()),
    };
    let pods = pods::resource();
    let found = watching::until(cluster, &pods, namespace, name, patience, &mut look).await?;
    found.ok_or_else(|| "timed out waiting for the condition".into())
}

/// What the pod's container has written.
async fn logs(session: &mut Session, cluster: &Cluster, pod: &Value, more: &str) -> Outcome {
    let (container, _) = pods::container(pod, None)?;
    let (namespace, name) = (field(pod, "namespace"), field(pod, "name"));
    let path =
        format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}{more}");
    let bytes = cluster.raw(Raw::get(&path)).await?.bytes().await?;
    Ok(session.out.write_all(&bytes)?)
}

/// The pod's end is the command's.
fn verdict(pod: &Value) -> Outcome {
    let shown = format!("{}/{}", field(pod, "namespace"), field(pod, "name"));
    match phase(pod) {
        "Succeeded" => Ok(()),
        "Failed" => {
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            let code = ended["exitCode"].as_i64().and_then(|code| u8::try_from(code).ok());
            let Some(code) = code.filter(|code| *code != 0) else {
                return Err(format!("pod {shown} failed with unknown exit code").into());
            };
            let text = |name: &str| ended[name].as_str().unwrap_or_default();
            let text = format!("pod {shown} terminated ({})\n{}", text("reason"), text("message"));
            Err(Failure::Said { text, code })
        }
        phase => Err(format!("pod {shown} left in phase {phase}").into()),
    }
}

/// Deletes what was made, as the flags of deletion say.
async fn remove(session: &mut Session, arguments: &Arguments, stored: Vec<Value>) -> Outcome {
    let cluster = session.cluster(arguments)?;
    let mapper = cluster.mapper().await?;
    let how = How::of(arguments)?;
    for object in stored {
        let info = builder::info(mapper, &cluster, object, "")?;
        let deleted = match arguments.is("quiet") {
            true => cluster
                .delete(info.api(), &info.namespace, &info.name, how.options.clone())
                .await
                .map(drop),
            false => super::delete::delete(session, &cluster, &info, &how).await.map(drop),
        };
        match deleted {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

fn check(arguments: &Arguments, attach: bool, dry_run: DryRun) -> Outcome {
    if !attach && arguments.is("rm") {
        return Err("--rm should only be used for attached containers".into());
    }
    if attach && dry_run != DryRun::None {
        return Err("--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or \
             --tty)"
            .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[tokio::test]
    async fn a_pod_is_made_and_told() {
        let world = world();
        assert_eq!(told(&world, "run p --image=i").await, "pod/p created\n");
        assert_eq!(
            told(&world, "run q --image=i --port=80 --expose").await,
            "pod/q created\nservice/q created\n"
        );
        assert_eq!(
            told(&world, "run r --image=i --rm").await,
            "error: --rm should only be used for attached containers\n"
        );
    }

    #[test]
    fn the_pod_s_end_is_the_command_s() {
        let pod = |phase: &str, code: i64| {
            json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": phase, "containerStatuses": [
                {"state": {"terminated": {"exitCode": code, "reason": "Error", "message": "m"}}}]}})
        };
        assert!(verdict(&pod("Succeeded", 0)).is_ok());
        let failed = verdict(&pod("Failed", 42)).unwrap_err();
        assert_eq!(
            (failed.code(), failed.message()),
            (42, "pod n/p terminated (Error)\nm".to_owned())
        );
        let unknown = verdict(&pod("Failed", 0)).unwrap_err();
        assert_eq!(unknown.message(), "error: pod n/p failed with unknown exit code");
        assert_eq!(
            verdict(&pod("Pending", 0)).unwrap_err().message(),
            "error: pod n/p left in phase Pending"
        );
    }
}
