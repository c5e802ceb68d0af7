//! What is done to containers and sandboxes that are there: `start`, `stop`, `rm`, `stopp`, `rmp`,
//! `update`, `checkpoint`.
use super::{Command, NO_ID};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::print::tame;
use crate::select::{self, Wanted};
use crate::session::{Session, wait};
use api::quote::Quoted;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::time::Duration;

pub static START: Command = Command {
    name: "start",
    about: "Start one or more created containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    run: |session, arguments| Box::pin(start(session, arguments)),
    ..Command::EMPTY
};

static STOP_FLAGS: &[Flag] = &[
    number("timeout", "Seconds to wait to kill the container after a graceful stop is requested")
        .or("t"),
    switch("all", "Stop all running containers").or("a"),
];

pub static STOP: Command = Command {
    name: "stop",
    about: "Stop one or more running containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    flags: &[STOP_FLAGS],
    run: |session, arguments| Box::pin(stop(session, arguments)),
    ..Command::EMPTY
};

static REMOVE_FLAGS: &[Flag] = &[
    switch("force", "Remove what runs, too").or("f"),
    switch("keep-logs", "Preserve the container log file and its rotations").or("k"),
    switch("all", "Remove all containers").or("a"),
];

pub static REMOVE: Command = Command {
    name: "rm",
    about: "Remove one or more containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    flags: &[REMOVE_FLAGS],
    run: |session, arguments| Box::pin(remove(session, arguments)),
    ..Command::EMPTY
};

pub static STOP_POD: Command = Command {
    name: "stopp",
    about: "Stop one or more running pods",
    usage: "POD-ID [POD-ID...]",
    run: |session, arguments| Box::pin(stop_pods(session, arguments)),
    ..Command::EMPTY
};

static REMOVE_POD_FLAGS: &[Flag] =
    &[switch("force", "Remove what runs, too").or("f"), switch("all", "Remove all pods").or("a")];

pub static REMOVE_POD: Command = Command {
    name: "rmp",
    about: "Remove one or more pods",
    usage: "POD-ID [POD-ID...]",
    flags: &[REMOVE_POD_FLAGS],
    run: |session, arguments| Box::pin(remove_pods(session, arguments)),
    ..Command::EMPTY
};

static UPDATE_FLAGS: &[Flag] = &[
    number("cpu-count", "(Windows only) Number of CPUs available to the container"),
    number("cpu-maximum", "(Windows only) Portion of CPU cycles specified as a percentage * 100"),
    number("cpu-period", "CPU CFS period to be used for hardcapping (in usecs); 0: the system's"),
    number("cpu-quota", "CPU CFS hardcap limit (in usecs): allowed time in a period"),
    number("cpu-share", "CPU shares (relative weight vs. other containers)"),
    number("memory", "Memory limit (in bytes)"),
    text("cpuset-cpus", "CPU(s) to use"),
    text("cpuset-mems", "Memory node(s) to use"),
    number("oom-score-adj", "OOM Killer score to use"),
];

pub static UPDATE: Command = Command {
    name: "update",
    about: "Update one or more running containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    flags: &[UPDATE_FLAGS],
    run: |session, arguments| Box::pin(update(session, arguments)),
    ..Command::EMPTY
};

static EXPORT: &[Flag] = &[text("export", "The archive that the checkpoint is written to").or("e")];

pub static CHECKPOINT: Command = Command {
    name: "checkpoint",
    about: "Checkpoint one or more running containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    flags: &[EXPORT],
    run: |session, arguments| Box::pin(checkpoint(session, arguments)),
    ..Command::EMPTY
};

/// An id that may be asked about.
fn named(id: &str) -> Outcome<String> {
    if id.is_empty() { Err(NO_ID.into()) } else { Ok(id.to_owned()) }
}

async fn start(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.words.is_empty() {
        return Err(NO_ID.into());
    }
    let runtime = session.runtime().await?;
    for id in &arguments.words {
        let request = StartContainerRequest { container_id: named(id)? };
        let done = session.within(runtime.start_container(request)).await;
        done.during(|| format!("starting the container {}", Quoted(id)))?;
        writeln!(session.out, "{}", tame(id))?;
    }
    Ok(())
}

async fn stop(session: &mut Session, arguments: Arguments) -> Outcome {
    let mut ids = arguments.words.clone();
    session.runtime().await?;
    match (arguments.is("all"), ids.is_empty()) {
        (true, false) => return Err("cannot specify CONTAINER-ID(s) when using --all".into()),
        (false, true) => {
            return Err("you must specify at least one CONTAINER-ID or use --all".into());
        }
        (true, true) => {
            let listed = select::containers(session, &Wanted::default()).await;
            let listed = listed.during(|| "listing containers".to_owned())?;
            ids = listed.into_iter().map(|container| container.id).collect();
            if ids.is_empty() {
                return Ok(writeln!(session.out, "No running containers found.")?);
            }
        }
        (false, false) => {}
    }
    for id in ids {
        stop_one(session, &id, arguments.number("timeout"))
            .await
            .during(|| format!("stopping the container {}", Quoted(&id)))?;
    }
    Ok(())
}

async fn stop_one(session: &mut Session, id: &str, timeout: i64) -> Outcome {
    let runtime = session.runtime().await?;
    let request = StopContainerRequest { container_id: named(id)?, timeout };
    let more = Duration::from_secs(u64::try_from(timeout).unwrap_or_default());
    session.within_more(more, runtime.stop_container(request)).await?;
    Ok(writeln!(session.out, "{}", tame(id))?)
}

async fn remove(session: &mut Session, arguments: Arguments) -> Outcome {
    let runtime = session.runtime().await?;
    let mut ids = arguments.words.clone();
    if arguments.is("all") {
        let listed = session.within(runtime.list_containers(Default::default())).await?;
        ids = listed.containers.into_iter().map(|container| container.id).collect();
    }
    if !any(session, &arguments, &ids, "No containers to remove")? {
        return Ok(());
    }
    let mut failed = Vec::new();
    for id in ids {
        failed.extend(remove_one(session, &arguments, &id).await.err());
    }
    Failure::of_all(failed)
}

fn any(session: &mut Session, arguments: &Arguments, ids: &[String], none: &str) -> Outcome<bool> {
    match (ids.is_empty(), arguments.is("all")) {
        (false, _) => Ok(true),
        (true, true) => session.log(Level::Info, none).map(|()| false),
        (true, false) => Err(Failure::Help),
    }
}

async fn remove_one(session: &mut Session, arguments: &Arguments, id: &str) -> Outcome {
    let runtime = session.runtime().await?;
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let told = session.within(runtime.container_status(request)).await;
    let told = told.during(|| format!("getting container status {}", Quoted(id)))?;
    let status = told.status.unwrap_or_default();
    if status.state() == ContainerState::ContainerRunning {
        if !arguments.is("force") {
            let text = format!("container {} is running, please stop it first", Quoted(id));
            return Err(text.into());
        }
        let stopped = stop_one(session, id, 0).await;
        stopped.during(|| format!("stopping the container {}", Quoted(id)))?;
    }
    let request = RemoveContainerRequest { container_id: named(id)? };
    let removed = session.within(runtime.remove_container(request)).await;
    removed.during(|| format!("removing container {}", Quoted(id)))?;
    writeln!(session.out, "{}", tame(id))?;
    if !arguments.is("keep-logs") && !status.log_path.is_empty() {
        for path in logs_of(&status.log_path) {
            if let Err(error) = std::fs::remove_file(&path) {
                let text = format!(
                    "removing log file {} for container {} failed: {error}",
                    path.display(),
                    Quoted(id)
                );
                session.log(Level::Error, &text)?;
            }
        }
    }
    Ok(())
}

/// A log and its rotations.
fn logs_of(path: &str) -> Vec<std::path::PathBuf> {
    let log = std::path::PathBuf::from(path);
    let (Some(folder), Some(name)) = (log.parent(), log.file_name()) else { return Vec::new() };
    let start = format!("{}.", name.to_string_lossy());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let rotated = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
    let mut all: Vec<_> = rotated.map(|entry| entry.path()).collect();
    all.sort();
    all.push(log);
    all
}

async fn stop_pods(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.words.is_empty() {
        return Err(Failure::Help);
    }
    for id in &arguments.words {
        stop_pod(session, id)
            .await
            .during(|| format!("stopping the pod sandbox {}", Quoted(id)))?;
    }
    Ok(())
}

async fn stop_pod(session: &mut Session, id: &str) -> Outcome {
    let runtime = session.runtime().await?;
    let request = StopPodSandboxRequest { pod_sandbox_id: named(id)? };
    session.within(runtime.stop_pod_sandbox(request)).await?;
    Ok(writeln!(session.out, "Stopped sandbox {}", tame(id))?)
}

async fn remove_pods(session: &mut Session, arguments: Arguments) -> Outcome {
    let runtime = session.runtime().await?;
    let mut ids = arguments.words.clone();
    if arguments.is("all") {
        let listed = session.within(runtime.list_pod_sandbox(Default::default())).await?;
        ids = listed.items.into_iter().map(|pod| pod.id).collect();
    }
    if !any(session, &arguments, &ids, "No pods to remove")? {
        return Ok(());
    }
    let mut failed = Vec::new();
    for id in ids {
        failed.extend(remove_pod(session, &arguments, &id).await.err());
    }
    Failure::of_all(failed)
}

async fn remove_pod(session: &mut Session, arguments: &Arguments, id: &str) -> Outcome {
    let runtime = session.runtime().await?;
    let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
    let told = session.within(runtime.pod_sandbox_status(request)).await;
    let told = told.during(|| format!("getting sandbox status of pod {}", Quoted(id)))?;
    if told.status.unwrap_or_default().state() == PodSandboxState::SandboxReady {
        if !arguments.is("force") {
            let text = format!("pod sandbox {} is running, please stop it first", Quoted(id));
            return Err(text.into());
        }
        let stopped = stop_pod(session, id).await;
        stopped.during(|| format!("stopping the pod sandbox {} failed", Quoted(id)))?;
    }
    let request = RemovePodSandboxRequest { pod_sandbox_id: named(id)? };
    let removed = session.within(runtime.remove_pod_sandbox(request)).await;
    removed.during(|| format!("removing the pod sandbox {}", Quoted(id)))?;
    Ok(writeln!(session.out, "Removed sandbox {}", tame(id))?)
}

async fn update(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.words.is_empty() {
        return Err(NO_ID.into());
    }
    let runtime = session.runtime().await?;
    let linux = LinuxContainerResources {
        cpu_period: arguments.number("cpu-period"),
        cpu_quota: arguments.number("cpu-quota"),
        cpu_shares: arguments.number("cpu-share"),
        memory_limit_in_bytes: arguments.number("memory"),
        oom_score_adj: arguments.number("oom-score-adj"),
        cpuset_cpus: arguments.text("cpuset-cpus"),
        cpuset_mems: arguments.text("cpuset-mems"),
        ..LinuxContainerResources::default()
    };
    for id in &arguments.words {
        let request = UpdateContainerResourcesRequest {
            container_id: named(id)?,
            linux: Some(linux.clone()),
            ..UpdateContainerResourcesRequest::default()
        };
        let done = session.within(runtime.update_container_resources(request)).await;
        done.during(|| format!("updating container resources for {}", Quoted(id)))?;
        writeln!(session.out, "{}", tame(id))?;
    }
    Ok(())
}

async fn checkpoint(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.words.is_empty() {
        return Err(NO_ID.into());
    }
    let Some(location) = arguments.some("export") else {
        return Err(
            "cannot checkpoint a container without specifying the checkpoint destination. Use \
                    --export=/path/to/checkpoint.tar"
                .into(),
        );
    };
    let runtime = session.runtime().await?;
    for id in &arguments.words {
        let request = CheckpointContainerRequest {
            container_id: named(id)?,
            location: location.clone(),
            ..CheckpointContainerRequest::default()
        };
        // A large memory takes as long as it takes.
        let done = wait(None, runtime.checkpoint_container(request)).await;
        done.during(|| format!("checkpointing the container {} failed", Quoted(id)))?;
        writeln!(session.out, "{}", tame(id))?;
    }
    Ok(())
}
