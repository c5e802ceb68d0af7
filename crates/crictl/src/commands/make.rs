//! `create`, `run`, `runp`: sandboxes and containers from files.
use super::{Command, pull};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, span, switch, text};
use crate::message;
use crate::session::{Session, wait};
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::time::Duration;

static CANCEL: &[Flag] =
    &[span("cancel-timeout", "How long to wait for the request before it is cancelled").or("T")];

static PULLING: &[Flag] = &[
    switch("no-pull", "Do not pull the image, whatever the config says"),
    switch("with-pull", "Pull the image, whatever the config says"),
];

static HANDLER: &[Flag] =
    &[text("runtime", "Runtime handler to use; which there are is the runtime's business").or("r")];

pub static CREATE: Command = Command {
    name: "create",
    about: "Create a new container",
    usage: "POD container-config.[json|yaml] pod-config.[json|yaml]",
    flags: &[PULLING, CANCEL, pull::REGISTRY],
    run: |session, arguments| Box::pin(create_command(session, arguments)),
    ..Command::EMPTY
};

pub static RUN: Command = Command {
    name: "run",
    about: "Run a new container inside a sandbox",
    usage: "container-config.[json|yaml] pod-config.[json|yaml]",
    flags: &[PULLING, CANCEL, pull::REGISTRY, HANDLER],
    run: |session, arguments| Box::pin(run_command(session, arguments)),
    ..Command::EMPTY
};

pub static RUN_POD: Command = Command {
    name: "runp",
    about: "Run a new pod",
    usage: "pod-config.[json|yaml]",
    flags: &[HANDLER, CANCEL],
    run: |session, arguments| Box::pin(run_pod_command(session, arguments)),
    ..Command::EMPTY
};

async fn create_command(session: &mut Session, arguments: Arguments) -> Outcome {
    let [pod, container, config] = &arguments.words[..] else { return Err(Failure::Help) };
    let pulls = pulls(&arguments, session.settings.pull_image_on_create)?;
    let id = create(session, &arguments, pod, container, config, pulls).await;
    let id = id.during(|| "creating container".to_owned())?;
    Ok(writeln!(session.out, "{id}")?)
}

async fn run_command(session: &mut Session, arguments: Arguments) -> Outcome {
    let [container, config] = &arguments.words[..] else { return Err(Failure::Help) };
    let pulls = pulls(&arguments, !session.settings.disable_pull_on_run)?;
    let all = async {
        let pod = run_pod(session, &arguments, config).await?;
        let id = create(session, &arguments, &pod, container, config, pulls).await;
        let id = id.during(|| "creating container failed".to_owned())?;
        let runtime = session.runtime().await?;
        let request = StartContainerRequest { container_id: id.clone() };
        let started = session.within(runtime.start_container(request)).await;
        started.during(|| format!("starting the container {}", api::quote::Quoted(&id)))?;
        Ok::<_, Failure>(writeln!(session.out, "{id}")?)
    };
    all.await.during(|| "running container".to_owned())
}

async fn run_pod_command(session: &mut Session, arguments: Arguments) -> Outcome {
    let [config] = &arguments.words[..] else { return Err(Failure::Help) };
    let id = run_pod(session, &arguments, config).await?;
    Ok(writeln!(session.out, "{id}")?)
}

fn pulls(arguments: &Arguments, usual: bool) -> Outcome<bool> {
    match (arguments.is("no-pull"), arguments.is("with-pull")) {
        (true, true) => Err("conflict: no-pull and with-pull are both set".into()),
        (no, with) => Ok(with || (usual && !no)),
    }
}

/// How long a request may take.
fn patience(session: &Session, arguments: &Arguments) -> Duration {
    arguments.span("cancel-timeout").unwrap_or(session.settings.timeout)
}

async fn run_pod(session: &mut Session, arguments: &Arguments, path: &str) -> Outcome<String> {
    let runtime = session.runtime().await?;
    let config = pod_config(session, path).during(|| "load podSandboxConfig".to_owned())?;
    let request =
        RunPodSandboxRequest { config: Some(config), runtime_handler: arguments.text("runtime") };
    // A network takes its time: upstream's client waits twice as long too.
    let limit = patience(session, arguments).saturating_mul(2);
    let made = wait(Some(limit), runtime.run_pod_sandbox(request)).await;
    Ok(made.during(|| "run pod sandbox".to_owned())?.pod_sandbox_id)
}

async fn create(
    session: &mut Session,
    arguments: &Arguments,
    pod: &str,
    container: &str,
    pod_path: &str,
    pulls: bool,
) -> Outcome<String> {
    let mut config = container_config(container)?;
    let sandbox = pod_config(session, pod_path)?;
    let spec = config.image.get_or_insert_default();
    if spec.user_specified_image.is_empty() {
        spec.user_specified_image = spec.image.clone();
    }
    if pulls {
        let auth = pull::credentials(session, arguments)?;
        session.log(Level::Info, &format!("Pulling container image: {}", spec.image))?;
        let mut images = vec![spec.image.clone()];
        for mount in &config.mounts {
            let Some(image) = mount.image.as_ref().filter(|spec| !spec.image.is_empty()) else {
                continue;
            };
            let (image, path) = (image.image.clone(), &mount.container_path);
            let text = format!("Pulling image {image} to be mounted to container path: {path}");
            session.log(Level::Info, &text)?;
            images.push(image);
        }
        let annotations = config.image.as_ref().map(|spec| spec.annotations.clone());
        for image in images {
            let annotations = annotations.clone().unwrap_or_default();
            let sandbox = Some(sandbox.clone());
            pull::pull(session, arguments, &image, auth.clone(), sandbox, annotations).await?;
        }
    }
    let runtime = session.runtime().await?;
    let request = CreateContainerRequest {
        pod_sandbox_id: pod.to_owned(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let limit = patience(session, arguments);
    Ok(wait(Some(limit), runtime.create_container(request)).await?.container_id)
}

/// No description of a container is larger.
const LARGEST: u64 = 64 << 20;

fn read(path: &str) -> Outcome<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("config at {path} not found"),
        _ => format!("open {path}: {}", crate::settings::io_text(&error)),
    })?;
    let mut bytes = Vec::new();
    let read = file.take(LARGEST).read_to_end(&mut bytes);
    read.map_err(|error| format!("read {path}: {}", crate::settings::io_text(&error)))?;
    Ok(bytes)
}

fn container_config(path: &str) -> Outcome<ContainerConfig> {
    let config: ContainerConfig = message::read("ContainerConfig", &read(path)?)?;
    match (&config.metadata, &config.image) {
        (None, _) => Err("metadata is not set".into()),
        (Some(metadata), _) if metadata.name.is_empty() => Err("name is not in metadata".into()),
        (_, None) => Err("image is not set".into()),
        (_, Some(image)) if image.image.is_empty() => Err("image field is not set in image".into()),
        _ => Ok(config),
    }
}

pub fn pod_config(session: &mut Session, path: &str) -> Outcome<PodSandboxConfig> {
    let mut config: PodSandboxConfig = message::read("PodSandboxConfig", &read(path)?)?;
    let Some(metadata) = &mut config.metadata else { return Err("metadata is not set".into()) };
    if metadata.uid.is_empty() {
        metadata.uid = unique()?;
    }
    if metadata.name.is_empty() || metadata.namespace.is_empty() {
        return Err("name or namespace is not in metadata".into());
    }
    if config.linux.as_ref().is_some_and(|linux| linux.cgroup_parent.is_empty()) {
        let text =
            "cgroup_parent is not set. Use `runtime-config` to get the runtime cgroup driver";
        session.log(Level::Warning, text)?;
    }
    Ok(config)
}

/// A random UUID.
fn unique() -> Outcome<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    Ok(format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)))
}
