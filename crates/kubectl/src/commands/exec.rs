//! `kubectl exec` and `kubectl attach`.
use super::{Command, Group};
use crate::builder::{self, Request};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, MANIFESTS, Offer, each, span, switch, text};
use crate::pods;
use crate::session::Session;
use crate::streams::terminal::{self, Raw};
use crate::streams::{self, Streams};
use client::source::escaped;
use serde_json::Value;
use std::fmt::Write as _;

static FLAGS: &[Flag] = &[
    text("container", "", "Container; by default the annotated one, or the first.")
        .short('c')
        .offers(Offer::Containers),
    span("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
    switch("quiet", "Print what the command prints, and nothing else.").short('q'),
    switch("stdin", "Pass standard input.").short('i'),
    switch("tty", "Standard input is a terminal.").short('t'),
];

static EXEC_FLAGS: &[Flag] =
    &[each("filename", "File with the object whose pod is meant.").short('f').offers(MANIFESTS)];

static ATTACH_FLAGS: &[Flag] = &[text(
    "detach-keys",
    "ctrl-p,ctrl-q",
    "Keys that end the attachment and leave the container alone.",
)];

pub static EXEC: Command = Command {
    name: "exec",
    group: Group::Troubleshooting,
    about: "Execute a command in a container",
    usage: "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    flags: &[FLAGS, EXEC_FLAGS],
    run: Some(|session, arguments| Box::pin(exec(session, arguments))),
    offers: Offers::Pod,
    ..Command::EMPTY
};

pub static ATTACH: Command = Command {
    name: "attach",
    group: Group::Troubleshooting,
    about: "Attach to a running container",
    usage: "(POD | TYPE/NAME) -c CONTAINER",
    flags: &[FLAGS, ATTACH_FLAGS],
    run: Some(|session, arguments| Box::pin(attach(session, arguments))),
    offers: Offers::Pod,
    ..Command::EMPTY
};

async fn exec(session: &mut Session, arguments: Arguments) -> Outcome {
    let dash = arguments.dash;
    let files = arguments.list("filename");
    let before = dash.unwrap_or(arguments.words.len());
    if files.is_empty() && before == 0 {
        return Err(Failure::Plain("pod, type/name or --filename must be specified".to_owned()));
    }
    let (named, command) = match files.is_empty() {
        true => arguments.words.split_at(before.min(1)),
        false => arguments.words.split_at(0),
    };
    if !command.is_empty() && dash.is_none() || before > named.len() {
        return Err(
            "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead\nSee 'kubectl \
             exec -h' for help and examples"
                .into(),
        );
    }
    if command.is_empty() {
        return Err("you must specify at least one command for the container".into());
    }
    let cluster = session.cluster(&arguments)?;
    let patience = arguments.span("pod-running-timeout");
    let pod = match named.first() {
        Some(word) => pods::find(&cluster, word, patience).await?,
        None => {
            let request = Request { files: files.to_vec(), ..Request::default() };
            let target = builder::targets(&cluster, &request).await?.into_iter().next();
            let target = target.ok_or(Failure::Plain("no objects were found".to_owned()))?;
            pods::of_target(&cluster, &request, target, patience).await?
        }
    };
    if let Some(phase @ ("Succeeded" | "Failed")) = pod["status"]["phase"].as_str() {
        return Err(format!(
            "cannot exec into a container in a completed pod; current phase is {phase}"
        )
        .into());
    }
    let (container, told) = pods::container(&pod, arguments.some("container"))?;
    if let Some(told) = told.filter(|_| !arguments.is("quiet")) {
        writeln!(session.err, "{told}")?;
    }
    let wanted = Wanted::of(session, &arguments)?;
    let mut path = path(&pod, "exec", &container, &wanted);
    for word in command {
        let _ = write!(path, "&command={}", escaped(word));
    }
    talk(session, &cluster, &path, wanted, Vec::new()).await
}

async fn attach(session: &mut Session, arguments: Arguments) -> Outcome {
    let [word] = &arguments.words[..] else {
        return Err(Failure::Plain(match arguments.words.len() {
            0 => "at least 1 argument is required for attach".to_owned(),
            _ => "at most 2 arguments: POD or TYPE/NAME".to_owned(),
        }));
    };
    let cluster = session.cluster(&arguments)?;
    let pod = pods::find(&cluster, word, arguments.span("pod-running-timeout")).await?;
    attach_to(session, &cluster, &arguments, &pod).await
}

/// Attaches to a pod that is known.
pub async fn attach_to(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    pod: &Value,
) -> Outcome {
    if let Some(phase @ ("Succeeded" | "Failed")) = pod["status"]["phase"].as_str() {
        return Err(format!(
            "cannot attach a container in a completed pod; current phase is {phase}"
        )
        .into());
    }
    let named = if arguments.knows("container") { arguments.some("container") } else { None };
    let (container, told) = pods::container(pod, named).map_err(|failure| {
        Failure::Plain(format!("cannot attach to the container: {}", failure.text()))
    })?;
    if let Some(told) = told.filter(|_| !arguments.is("quiet")) {
        writeln!(session.err, "{told}")?;
    }
    let mut wanted = Wanted::of(session, arguments)?;
    let detach = match arguments.knows("detach-keys") {
        true => streams::keys(arguments.text("detach-keys"))?,
        false => Vec::new(),
    };
    let has_terminal = is_terminal(pod, &container);
    if wanted.terminal && !has_terminal {
        wanted.terminal = false;
        if !arguments.is("quiet") {
            writeln!(
                session.err,
                "error: Unable to use a TTY - container {container} did not allocate one"
            )?;
        }
    }
    if !arguments.is("quiet") {
        writeln!(
            session.err,
            "All commands and output from this session will be recorded in container logs, including credentials \
             and sensitive information passed through the command prompt."
        )?;
        writeln!(session.err, "If you don't see a command prompt, try pressing enter.")?;
    }
    // A container's terminal has one output.
    let path = path(pod, "attach", &container, &Wanted { terminal: has_terminal, ..wanted });
    talk(session, cluster, &path, wanted, detach).await
}

fn is_terminal(pod: &Value, container: &str) -> bool {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut all = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    all.any(|one| one["name"] == container && one["tty"] == true)
}

/// Which streams are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub input: bool,
    pub terminal: bool,
}

impl Wanted {
    fn of(session: &mut Session, arguments: &Arguments) -> Outcome<Wanted> {
        let (input, mut terminal) = (arguments.is("stdin"), arguments.is("tty"));
        if terminal && (!input || !terminal::is_terminal()) {
            terminal = false;
            if input && !arguments.is("quiet") {
                writeln!(
                    session.err,
                    "Unable to use a TTY - input is not a terminal or the right kind of file"
                )?;
            }
        }
        Ok(Wanted { input, terminal })
    }
}

fn path(pod: &Value, part: &str, container: &str, wanted: &Wanted) -> String {
    let text = |name: &str| escaped(pod["metadata"][name].as_str().unwrap_or_default());
    let mut path = format!(
        "/api/v1/namespaces/{}/pods/{}/{part}?container={}",
        text("namespace"),
        text("name"),
        escaped(container)
    );
    if wanted.input {
        path.push_str("&stdin=true");
    }
    path.push_str("&stdout=true");
    path.push_str(if wanted.terminal { "&tty=true" } else { "&stderr=true" });
    path
}

/// Connects this process's streams with a container's.
async fn talk(
    session: &mut Session,
    cluster: &Cluster,
    path: &str,
    wanted: Wanted,
    detach: Vec<u8>,
) -> Outcome {
    session.flush()?;
    let raw = wanted.terminal.then(Raw::take).flatten();
    let sizes = wanted.terminal.then(terminal::sizes).flatten();
    let streams = Streams {
        stdin: wanted.input.then(|| Box::new(tokio::io::stdin()) as _),
        stdout: &mut *session.out,
        stderr: &mut *session.err,
        sizes,
        // Without a terminal these are letters like others.
        detach: if wanted.terminal { detach } else { Vec::new() },
    };
    let outcome = streams::carry(cluster, path, streams).await;
    drop(raw);
    outcome
}

/// A command in a container, with what it is given and what it says: for others that need one.
pub async fn quietly(
    cluster: &Cluster,
    pod: (&str, &str, &str),
    command: &[&str],
    stdin: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    stdout: &mut (dyn std::io::Write + Send),
    stderr: &mut (dyn std::io::Write + Send),
) -> Outcome {
    let (namespace, name, container) = pod;
    let mut path =
        format!("/api/v1/namespaces/{}/pods/{}/exec?", escaped(namespace), escaped(name));
    path.push_str("stdout=true&stderr=true");
    if stdin.is_some() {
        path.push_str("&stdin=true");
    }
    if !container.is_empty() {
        let _ = write!(path, "&container={}", escaped(container));
    }
    for word in command {
        let _ = write!(path, "&command={}", escaped(word));
    }
    streams::carry(
        cluster,
        &path,
        Streams { stdin, stdout, stderr, sizes: None, detach: Vec::new() },
    )
    .await
}
