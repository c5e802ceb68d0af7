//! `kubectl debug`: an ephemeral container in a pod, a changed copy of a pod, or a pod on a node.
mod make;

use super::{Command, Group, exec};
use crate::builder::{self, Request, Target};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, MANIFESTS, each, switch, switch_on, text};
use crate::pods;
use crate::session::Session;
use crate::watching;
use client::source::{Patch, Write};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::time::Duration;

static FLAGS: &[Flag] = &[
    switch("arguments-only", "What is behind -- are arguments, and no command."),
    switch("attach", "Attach once it runs."),
    text("container", "", "Name of the new container, or of the one to change.").short('c'),
    text("copy-to", "", "Make a copy of the pod with this name."),
    text("custom", "", "File with a partial container that is laid over the new one."),
    each("env", "Variable of the new container: KEY=VALUE."),
    each("filename", "File with the object to debug.").short('f').offers(MANIFESTS),
    text("image", "", "Image of the new container."),
    text("image-pull-policy", "", "When the image is pulled."),
    switch("keep-annotations", "The copy keeps annotations."),
    switch_on("keep-init-containers", "The copy keeps init containers."),
    switch("keep-labels", "The copy keeps labels."),
    switch("keep-liveness", "The copy keeps liveness probes."),
    switch("keep-readiness", "The copy keeps readiness probes."),
    switch("keep-startup", "The copy keeps startup probes."),
    text(
        "profile",
        "general",
        "What the container may: general, baseline, restricted, netadmin, sysadmin, legacy.",
    ),
    switch("quiet", "Say less.").short('q'),
    switch("replace", "The copy takes the pod's place."),
    switch("same-node", "The copy runs on the same node."),
    each("set-image", "Images of the copy's containers: NAME=IMAGE."),
    switch_on("share-processes", "Containers of the copy see each other's processes."),
    switch("stdin", "Keep standard input open.").short('i'),
    text("target", "", "Container whose processes the new one sees."),
    switch("tty", "Give the new container a terminal.").short('t'),
];

pub static COMMAND: Command = Command {
    name: "debug",
    group: Group::Troubleshooting,
    about: "Create debugging sessions for troubleshooting workloads and nodes",
    usage: "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let names = &arguments.words[..arguments.dash.unwrap_or(arguments.words.len())];
    let command = arguments.words[names.len()..].to_vec();
    check(&arguments, names, &command)?;
    if let Some(target) = arguments.some("target").filter(|_| !arguments.is("quiet")) {
        writeln!(
            session.out,
            "Targeting container \"{target}\". If you don't see processes from this container it may be because the \
             container runtime doesn't support this feature."
        )?;
    }
    if arguments.text("profile") == "legacy" {
        writeln!(
            session.err,
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other \
             profile, for example \"--profile=general\"."
        )?;
    }
    let cluster = session.cluster(&arguments)?;
    let wanted = make::Wanted::of(&arguments, command)?;
    for object in subjects(&cluster, &arguments, names).await? {
        let (pod, container) = match object["kind"].as_str() {
            Some("Node") => on_node(session, &cluster, &wanted, &object).await?,
            Some("Pod") if arguments.some("copy-to").is_some() => {
                copied(session, &cluster, &arguments, &wanted, &object).await?
            }
            Some("Pod") => inside(session, &cluster, &wanted, &object).await?,
            kind => {
                let version = object["apiVersion"].as_str().unwrap_or_default();
                return Err(format!(
                    "\"{version}, Kind={}\" not supported by debug",
                    kind.unwrap_or_default()
                )
                .into());
            }
        };
        let attaches = match arguments.given("attach") {
            true => arguments.is("attach"),
            false => arguments.is("stdin"),
        };
        if attaches && !container.is_empty() {
            attach(session, &cluster, &arguments, &pod, &container).await?;
        }
    }
    Ok(())
}

fn check(arguments: &Arguments, names: &[String], command: &[String]) -> Outcome {
    let image = arguments.some("image");
    if arguments.some("copy-to").is_some() {
        if image.is_none() && arguments.list("set-image").is_empty() && command.is_empty() {
            return Err("you must specify --image, --set-image or command arguments.".into());
        }
        if !command.is_empty() && arguments.some("container").is_none() && image.is_none() {
            return Err(
                "you must specify an existing container or a new image when specifying args."
                    .into(),
            );
        }
        if arguments.some("target").is_some() {
            return Err(
                "--target is incompatible with --copy-to. Use --share-processes instead.".into()
            );
        }
    } else {
        for flag in ["replace", "same-node"] {
            if arguments.is(flag) {
                return Err(format!("--{flag} may only be used with --copy-to.").into());
            }
        }
        if !arguments.list("set-image").is_empty() {
            return Err("--set-image may only be used with --copy-to.".into());
        }
        if image.is_none() {
            return Err("you must specify --image when not using --copy-to.".into());
        }
    }
    if names.is_empty() && arguments.list("filename").is_empty() {
        return Err("NAME or filename is required for debug".into());
    }
    match arguments.text("image-pull-policy") {
        "" | "Always" | "IfNotPresent" | "Never" => {}
        other => return Err(format!("invalid image pull policy: {other}").into()),
    }
    if arguments.is("tty") && !arguments.is("stdin") {
        return Err("-i/--stdin is required for containers with -t/--tty=true".into());
    }
    Ok(())
}

async fn subjects(
    cluster: &Cluster,
    arguments: &Arguments,
    names: &[String],
) -> Outcome<Vec<Value>> {
    let mut words: Vec<String> = names.to_vec();
    for word in &mut words {
        if !word.contains('/') {
            *word = format!("pods/{word}");
        }
    }
    let request =
        Request { words, files: arguments.list("filename").to_vec(), ..Request::default() };
    let mut found = Vec::new();
    for target in builder::targets(cluster, &request).await? {
        let target = match target {
            target @ (Target::Named { .. } | Target::File(_)) => target,
            Target::All { .. } => continue,
        };
        let infos = builder::fetch(cluster, &request, target, true).await?;
        found.extend(infos.into_iter().map(|info| info.object));
    }
    Ok(found)
}

/// An ephemeral container in the pod itself.
async fn inside(
    session: &mut Session,
    cluster: &Cluster,
    wanted: &make::Wanted,
    pod: &Value,
) -> Outcome<(Value, String)> {
    let (container, name) = make::ephemeral(wanted, pod, &suffix())?;
    tell_name(session, wanted, &name)?;
    let place = of(pod);
    let patch = Patch::Strategic(json!({ "spec": { "ephemeralContainers": [container] } }));
    let place = (&*place.0, &*place.1, "ephemeralcontainers");
    let changed = cluster.patch(&pods::resource(), place, patch, &Write::default()).await;
    let changed = changed.map_err(|failure| match &failure {
        Failure::Server(status)
            if status.is_not_found() && status.message.contains("could not find") =>
        {
            Failure::Plain(format!(
                "ephemeral containers are disabled for this cluster (error from server: \"{}\").",
                status.message
            ))
        }
        _ => failure,
    })?;
    Ok((changed, name))
}

fn tell_name(session: &mut Session, wanted: &make::Wanted, name: &str) -> Outcome {
    if wanted.container.is_empty() && !wanted.quiet {
        writeln!(session.out, "Defaulting debug container name to {name}.")?;
    }
    Ok(())
}

fn of(pod: &Value) -> (String, String) {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

async fn copied(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    wanted: &make::Wanted,
    pod: &Value,
) -> Outcome<(Value, String)> {
    let (copy, container, is_new) = make::copy(wanted, arguments, pod, &suffix())?;
    if is_new {
        tell_name(session, wanted, &container)?;
    }
    let (namespace, name) = of(pod);
    let made = cluster.create(&pods::resource(), &namespace, &copy, &Write::default()).await?;
    if arguments.is("replace") {
        cluster.delete(&pods::resource(), &namespace, &name, Default::default()).await?;
    }
    Ok((made, container))
}

async fn on_node(
    session: &mut Session,
    cluster: &Cluster,
    wanted: &make::Wanted,
    node: &Value,
) -> Outcome<(Value, String)> {
    let (pod, container) = make::node_pod(wanted, node, &suffix());
    if !wanted.quiet {
        writeln!(
            session.out,
            "Creating debugging pod {} with container {container} on node {}.",
            of(&pod).1,
            of(node).1
        )?;
    }
    let made =
        cluster.create(&pods::resource(), &cluster.namespace, &pod, &Write::default()).await?;
    Ok((made, container))
}

/// Five letters that no other has, most likely.
fn suffix() -> String {
    use std::hash::{BuildHasher, Hasher};
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut chance = std::hash::RandomState::new().build_hasher().finish();
    let letters = (0..5).map(|_| {
        let letter = LETTERS[(chance % LETTERS.len() as u64) as usize];
        chance /= LETTERS.len() as u64;
        char::from(letter)
    });
    letters.collect()
}

/// Attaches to a container once it runs; one that is over has a log.
async fn attach(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    pod: &Value,
    container: &str,
) -> Outcome {
    let (namespace, name) = of(pod);
    let mut look = |now: Option<&Value>| {
        let Some(now) = now else {
            return Err(Failure::Plain(format!("pods \"{name}\" not found")));
        };
        let lists = ["containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses"];
        let mut all =
            lists.iter().flat_map(|list| now["status"][*list].as_array().into_iter().flatten());
        let state = all.find(|one| one["name"] == container).map(|one| &one["state"]);
        let begun = state.is_some_and(|state| {
            state.get("running").is_some() || state.get("terminated").is_some()
        });
        Ok(if begun { ControlFlow::Break(now.clone()) } else { ControlFlow::Continue(()) })
    };
    let (resource, patience) = (pods::resource(), Duration::from_secs(300));
    let running =
        watching::until(cluster, &resource, &namespace, &name, patience, &mut look).await?;
    let Some(running) = running else { return Err("timed out waiting for the condition".into()) };
    let mut named = arguments.clone();
    named.put("container", container);
    exec::attach_to(session, cluster, &named, &running).await
}
