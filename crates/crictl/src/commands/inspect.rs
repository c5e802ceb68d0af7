//! `inspect`, `inspectp`, `inspecti`: all that a runtime tells of one thing or several.
use super::{Command, STATUS_OUTPUT};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, list, switch, text};
use crate::print::{self, Status, tame};
use crate::select::{self, Wanted};
use crate::session::Session;
use crate::{human, message};
use api::quote::Quoted;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use serde_json::Value;
use std::collections::HashMap;

static QUIET: &[Flag] = &[switch("quiet", "Do not show verbose information").or("q")];

static OF_CONTAINERS: &[Flag] = &[
    text("state", "Filter by container state").or("s"),
    text("namespace", "Filter by pod namespace regular expression pattern"),
    switch("all", "Show all containers").or("a"),
];

static OF_IMAGES: &[Flag] = &[
    text("name", "Filter by image name"),
    list("filter", "Only images that meet a condition: dangling=, reference=, before=, since=")
        .or("f"),
];

pub static CONTAINERS: Command = Command {
    name: "inspect",
    about: "Display the status of one or more containers",
    usage: "CONTAINER-ID [CONTAINER-ID...]",
    flags: &[QUIET, STATUS_OUTPUT, OF_CONTAINERS, select::CONTAINERS],
    run: |session, arguments| Box::pin(containers(session, arguments)),
    ..Command::EMPTY
};

pub static PODS: Command = Command {
    name: "inspectp",
    about: "Display the status of one or more pods",
    usage: "POD-ID [POD-ID...]",
    flags: &[QUIET, STATUS_OUTPUT, select::PODS],
    run: |session, arguments| Box::pin(pods(session, arguments)),
    ..Command::EMPTY
};

pub static IMAGES: Command = Command {
    name: "inspecti",
    about: "Return the status of one or more images",
    usage: "IMAGE-ID [IMAGE-ID...]",
    flags: &[QUIET, STATUS_OUTPUT, OF_IMAGES],
    run: |session, arguments| Box::pin(images(session, arguments)),
    ..Command::EMPTY
};

fn format(arguments: &Arguments) -> String {
    arguments.some("output").unwrap_or_else(|| "json".to_owned())
}

/// The ids that were typed, or those that a filter found.
fn some(session: &mut Session, ids: Vec<String>) -> Outcome<Vec<String>> {
    if ids.is_empty() {
        session.log(Level::Error, "No IDs provided or nothing found per filter")?;
        return Err(Failure::Help);
    }
    Ok(ids)
}

async fn containers(session: &mut Session, arguments: Arguments) -> Outcome {
    let runtime = session.runtime().await?;
    let mut ids = arguments.words.clone();
    if ids.is_empty() {
        let flags = ["pod", "name", "namespace", "image", "state", "all"];
        let wanted = Wanted::of(&arguments, &flags)?;
        let listed = select::containers(session, &wanted).await;
        let listed = listed.during(|| "listing containers".to_owned())?;
        ids = listed.into_iter().map(|container| container.id).collect();
    }
    let (format, verbose) = (format(&arguments), !arguments.is("quiet"));
    let mut all = Vec::new();
    for id in some(session, ids)? {
        let request = ContainerStatusRequest { container_id: id, verbose };
        let told = session.within(runtime.container_status(request)).await;
        let told =
            told.during(|| "get the status of containers: get container status".to_owned())?;
        let status = told.status.unwrap_or_default();
        if format == "table" {
            container_table(session, &status, &told.info, verbose)?;
            continue;
        }
        let value = container_value(&status)?;
        all.push(Status { status: Some(value), info: told.info, ..Status::default() });
    }
    print::statuses(session, all, &format, &arguments.text("template"))
        .during(|| "get the status of containers".to_owned())
}

/// Every declared field, null where there is none, and moments that can be read.
fn status_value(name: &str, message: &impl prost::Message) -> Outcome<Value> {
    let mut value = message::to_value(name, message)?;
    for field in message::field_names(name)? {
        if value.get(&field).is_none() {
            value[field] = Value::Null;
        }
    }
    Ok(value)
}

/// Go's first moment: of what has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

fn container_value(status: &ContainerStatus) -> Outcome<Value> {
    use ContainerState::{ContainerCreated, ContainerExited, ContainerUnknown};
    let mut value = status_value("ContainerStatus", status)?;
    let state = status.state();
    let ended = state == ContainerExited || (state == ContainerUnknown && status.finished_at > 0);
    let moment = |is: bool, nanos| if is { print::moment(nanos) } else { NEVER.to_owned() };
    value["createdAt"] = print::moment(status.created_at).into();
    value["startedAt"] = moment(state != ContainerCreated, status.started_at).into();
    value["finishedAt"] = moment(ended, status.finished_at).into();
    Ok(value)
}

fn container_table(
    session: &mut Session,
    status: &ContainerStatus,
    info: &HashMap<String, String>,
    verbose: bool,
) -> Outcome {
    let (state, now) = (status.state(), jiff::Timestamp::now());
    let out = &mut session.out;
    writeln!(out, "ID: {}", tame(&status.id))?;
    if let Some(metadata) = &status.metadata {
        if !metadata.name.is_empty() {
            writeln!(out, "Name: {}", tame(&metadata.name))?;
        }
        if metadata.attempt != 0 {
            writeln!(out, "Attempt: {}", metadata.attempt)?;
        }
    }
    writeln!(out, "State: {}", state.as_str_name())?;
    writeln!(out, "Created: {}", human::ago(status.created_at, now))?;
    if state != ContainerState::ContainerCreated {
        writeln!(out, "Started: {}", human::ago(status.started_at, now))?;
    }
    if state == ContainerState::ContainerExited {
        if status.finished_at > 0 {
            writeln!(out, "Finished: {}", human::ago(status.finished_at, now))?;
        }
        writeln!(out, "Exit Code: {}", status.exit_code)?;
    }
    print::pairs(session, "Labels", &status.labels)?;
    print::pairs(session, "Annotations", &status.annotations)?;
    information(session, info, verbose)
}

/// As Go prints a map.
fn information(session: &mut Session, info: &HashMap<String, String>, verbose: bool) -> Outcome {
    if !verbose {
        return Ok(());
    }
    let mut pairs: Vec<String> = info.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    pairs.sort();
    Ok(writeln!(session.out, "Info: map[{}]", tame(&pairs.join(" ")))?)
}

async fn pods(session: &mut Session, arguments: Arguments) -> Outcome {
    let runtime = session.runtime().await?;
    let mut ids = arguments.words.clone();
    if ids.is_empty() {
        let wanted = Wanted::of(&arguments, &["name", "namespace", "state"])?;
        let listed = select::pods(session, &wanted).await;
        let listed = listed.during(|| "listing pod sandboxes".to_owned())?;
        ids = listed.into_iter().map(|pod| pod.id).collect();
    }
    let (format, verbose) = (format(&arguments), !arguments.is("quiet"));
    let mut all = Vec::new();
    for id in some(session, ids)? {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id, verbose };
        let told = session.within(runtime.pod_sandbox_status(request)).await;
        let told =
            told.during(|| "get the status of pod sandboxes: get pod sandbox status".to_owned())?;
        let status = told.status.unwrap_or_default();
        if format == "table" {
            pod_table(session, &status, &told.info, verbose)?;
            continue;
        }
        let mut value = status_value("PodSandboxStatus", &status)?;
        value["createdAt"] = print::moment(status.created_at).into();
        all.push(Status { status: Some(value), info: told.info, ..Status::default() });
    }
    print::statuses(session, all, &format, &arguments.text("template"))
        .during(|| "get the status of pod sandboxes".to_owned())
}

fn pod_table(
    session: &mut Session,
    status: &PodSandboxStatus,
    info: &HashMap<String, String>,
    verbose: bool,
) -> Outcome {
    let out = &mut session.out;
    writeln!(out, "ID: {}", tame(&status.id))?;
    if let Some(metadata) = &status.metadata {
        for (name, value) in
            [("Name", &metadata.name), ("UID", &metadata.uid), ("Namespace", &metadata.namespace)]
        {
            if !value.is_empty() {
                writeln!(out, "{name}: {}", tame(value))?;
            }
        }
        writeln!(out, "Attempt: {}", metadata.attempt)?;
    }
    writeln!(out, "Status: {}", status.state().as_str_name())?;
    writeln!(out, "Created: {}", print::plain_moment(status.created_at))?;
    if let Some(network) = &status.network {
        writeln!(out, "IP Addresses: {}", tame(&network.ip))?;
        for other in &network.additional_ips {
            writeln!(out, "Additional IP: {}", tame(&other.ip))?;
        }
    }
    print::pairs(session, "Labels", &status.labels)?;
    print::pairs(session, "Annotations", &status.annotations)?;
    information(session, info, verbose)
}

async fn images(session: &mut Session, arguments: Arguments) -> Outcome {
    let mut ids = arguments.words.clone();
    if ids.is_empty() {
        let listed =
            select::images(session, &arguments.text("name"), arguments.list("filter")).await;
        let listed = listed.during(|| "listing images".to_owned())?;
        ids = listed.into_iter().map(|image| image.id).collect();
    }
    let (format, verbose) = (format(&arguments), !arguments.is("quiet"));
    let mut all = Vec::new();
    for id in some(session, ids)? {
        let told = select::image_status(session, &id, verbose).await;
        let told = told.during(|| format!("image status for {} request", Quoted(&id)))?;
        let missing = || Failure::Said(format!("no such image {} present", Quoted(&id)));
        let image = told.image.ok_or_else(missing)?;
        if format != "table" {
            let value = message::to_value("Image", &image)?;
            all.push(Status { status: Some(value), info: told.info, ..Status::default() });
            continue;
        }
        writeln!(session.out, "ID: {}", tame(&image.id))?;
        for tag in &image.repo_tags {
            writeln!(session.out, "Tag: {}", tame(tag))?;
        }
        for digest in &image.repo_digests {
            writeln!(session.out, "Digest: {}", tame(digest))?;
        }
        writeln!(session.out, "Size: {}", human::size(image.size, 3))?;
        information(session, &told.info, verbose)?;
    }
    print::statuses(session, all, &format, &arguments.text("template"))
}
