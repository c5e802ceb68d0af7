//! `kubectl run`: one pod of an image.
use super::made::store;
use super::{Command, Group, exec};
use crate::builder;
use crate::cluster::{Cluster, propagation};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, switch_on, text};
use crate::generate::pod;
use crate::pods;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::watching;
use crate::write::{DRY_RUN, DryRun};
use client::source::{Delete, Raw};
use futures_util::StreamExt;
use serde_json::Value;
use std::ops::ControlFlow;

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-run", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
    switch("rm", "Delete the pod after it was attached to."),
    switch("quiet", "Say less.").short('q'),
    text("detach-keys", "ctrl-p,ctrl-q", "Keys that end an attachment."),
    span("pod-running-timeout", "1m0s", "How long to wait until the pod runs."),
    text("cascade", "background", "What becomes of what a deleted object owns.").bare("background"),
    switch("force", "Delete at once."),
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
    let attach =
        if arguments.given("attach") { arguments.is("attach") } else { arguments.is("stdin") };
    check(&arguments, attach, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    let mut stored = vec![store(session, &arguments, made.pod, dry_run).await?];
    if let Some(service) = made.service {
        match store(session, &arguments, service, dry_run).await {
            Ok(service) => stored.push(service),
            Err(failure) => failures.push(failure),
        }
    }
    if attach {
        Failure::of_all(failures)?;
        return attached(session, &arguments, &stored).await;
    }
    for object in &stored {
        telling.tell(object, "created", &mut session.out)?;
    }
    Failure::of_all(failures)
}

/// Attaches to the pod once it runs, and ends as it ends.
async fn attached(session: &mut Session, arguments: &Arguments, stored: &[Value]) -> Outcome {
    let cluster = session.cluster(arguments)?;
    let Some(pod) = stored.first() else { return Ok(()) };
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let patience = arguments.span("pod-running-timeout");
    let outcome = async {
        let running = started(&cluster, &namespace, &name, patience).await?;
        let is_over = matches!(running["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        match is_over {
            // It was faster than we: what it said is in its log.
            true => log(session, &cluster, &namespace, &name).await?,
            false => match exec::attach_to(session, &cluster, arguments, &running).await {
                Err(failure) if failure.code() == 1 => {
                    let text = failure.text();
                    writeln!(session.err, "warning: couldn't attach to pod/{name}, falling back to streaming logs: {text}")?;
                    log(session, &cluster, &namespace, &name).await?;
                }
                outcome => outcome?,
            },
        }
        // Pods that are started again have no end.
        match pod["spec"]["restartPolicy"].as_str() {
            Some("Always") | None => Ok(()),
            Some(_) => ended(&cluster, &namespace, &name).await,
        }
    }
    .await;
    if arguments.is("rm") {
        remove(session, &cluster, arguments, &namespace, stored).await?;
    } else if !arguments.is("quiet") && arguments.is("tty") {
        writeln!(
            session.err,
            "Session ended, resume using 'kubectl attach {name} -c {name} -i -t' command when the pod is running"
        )?;
    }
    outcome
}

/// The pod as soon as its container runs, or is over.
async fn started(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    patience: std::time::Duration,
) -> Outcome<Value> {
    let mut look = |pod: Option<&Value>| {
        let Some(pod) = pod else {
            return Err(Failure::Plain(format!("pods \"{name}\" not found")));
        };
        let runs = match pod["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => true,
            Some("Running") => pods::is_ready(pod) || has_started(pod),
            _ => false,
        };
        Ok(if runs { ControlFlow::Break(pod.clone()) } else { ControlFlow::Continue(()) })
    };
    let found =
        watching::until(cluster, &pods::resource(), namespace, name, patience, &mut look).await?;
    found.ok_or_else(|| "timed out waiting for the condition".into())
}

fn has_started(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.into_iter().any(|one| one["state"].get("running").is_some())
}

/// Waits for the end, whose code is ours.
async fn ended(cluster: &Cluster, namespace: &str, name: &str) -> Outcome {
    let mut look = |pod: Option<&Value>| {
        let Some(pod) = pod else { return Ok(ControlFlow::Break(0)) };
        Ok(match pod["status"]["phase"].as_str() {
            Some("Succeeded") => ControlFlow::Break(0),
            Some("Failed") => {
                let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
                let codes =
                    statuses.filter_map(|one| one["state"]["terminated"]["exitCode"].as_i64());
                let code = codes.into_iter().find(|code| *code != 0).unwrap_or(1);
                ControlFlow::Break(u8::try_from(code).unwrap_or(1))
            }
            _ => ControlFlow::Continue(()),
        })
    };
    let (resource, patience) = (pods::resource(), watching::FOREVER);
    let code = watching::until(cluster, &resource, namespace, name, patience, &mut look);
    match code.await?.unwrap_or(0) {
        0 => Ok(()),
        code => {
            let text = format!("pod {namespace}/{name} terminated (Error)");
            Err(Failure::Said { text, code })
        }
    }
}

async fn log(session: &mut Session, cluster: &Cluster, namespace: &str, name: &str) -> Outcome {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log");
    let mut answer =
        cluster.raw(Raw::get(path).with("container", name).with("follow", "true")).await?;
    while let Some(piece) = answer.body.next().await {
        session.out.write_all(&piece?)?;
    }
    session.flush()
}

/// `--rm`: what was made goes again.
async fn remove(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    namespace: &str,
    stored: &[Value],
) -> Outcome {
    for object in stored {
        let info = builder::info(cluster.mapper().await?, cluster, object.clone(), "")?;
        let grace = arguments.number("grace-period");
        let options = Delete {
            grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
            propagation: Some(propagation(arguments)?),
            ..Delete::default()
        };
        match cluster.delete(info.api(), &info.namespace, &info.name, options).await {
            Ok(_) if arguments.is("quiet") => {}
            Ok(_) => {
                let kind = print::kind_of(object);
                writeln!(
                    session.out,
                    "{kind} \"{}\" deleted from {namespace} namespace",
                    info.name
                )?;
            }
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
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
