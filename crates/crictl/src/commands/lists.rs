//! `ps` and `pods`.
use super::Command;
use crate::failure::{Failure, Outcome, While};
use crate::flags::{Arguments, Flag, switch, text};
use crate::human;
use crate::print::{self, WIDE, tame, truncated};
use crate::select::{self, POD_NAME, POD_NAMESPACE, Wanted, of_labels};
use crate::session::Session;
use api::quote::Quoted;
use runtime::cri::v1::*;

static LISTING: &[Flag] = &[
    text("id", "Filter by id"),
    switch("verbose", "Show verbose information").or("v"),
    switch("quiet", "Only display IDs").or("q"),
    text("output", "Output format, One of: json|yaml|table").or("o").default("table"),
    switch("no-trunc", "Show output without truncating the ID"),
];

static OF_CONTAINERS: &[Flag] = &[
    text("state", "Filter by container state").or("s"),
    text("namespace", "Filter by pod namespace regular expression pattern"),
    switch("all", "Show all containers").or("a"),
    switch("resolve-image-path", "Show image path instead of image id").or("r"),
];

pub static CONTAINERS: Command = Command {
    name: "ps",
    about: "List containers",
    flags: &[LISTING, OF_CONTAINERS, select::CONTAINERS],
    run: |session, arguments| Box::pin(containers(session, arguments)),
    ..Command::EMPTY
};

pub static PODS: Command = Command {
    name: "pods",
    about: "List pods",
    flags: &[LISTING, select::PODS],
    run: |session, arguments| Box::pin(pods(session, arguments)),
    ..Command::EMPTY
};

const COLUMNS: [&str; 9] =
    ["CONTAINER", "IMAGE", "CREATED", "STATE", "NAME", "ATTEMPT", "POD ID", "POD", "NAMESPACE"];

async fn containers(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err(Failure::Help);
    }
    session.runtime().await?;
    let flags = ["id", "pod", "name", "namespace", "image", "state", "all"];
    let wanted = Wanted::of(&arguments, &flags)?;
    let listed = select::containers(session, &wanted).await;
    let listed = listed.during(|| "listing containers: list containers".to_owned())?;
    let output = arguments.text("output");
    if output != "table" {
        let answer = ListContainersResponse { containers: listed };
        return formatted(session, &output, "ListContainersResponse", &answer, "containers");
    }
    let now = jiff::Timestamp::now();
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    for container in &listed {
        if arguments.is("quiet") {
            writeln!(session.out, "{}", tame(&container.id))?;
        } else if arguments.is("verbose") {
            describe(session, container, now)?;
        } else {
            let mut row = container_row(container, arguments.is("no-trunc"), now);
            if arguments.is("resolve-image-path") {
                let told = select::image_status(session, &row[1], false).await;
                let told = told.during(|| "failed to fetch repo image".to_owned())?;
                row[1] =
                    told.image.and_then(|i| i.repo_tags.first().cloned()).unwrap_or(row[1].clone());
            }
            rows.push(row);
        }
    }
    if !arguments.is("quiet") && !arguments.is("verbose") {
        session.out.write_all(print::table(&rows, WIDE).as_bytes())?;
    }
    Ok(())
}

fn formatted(
    session: &mut Session,
    output: &str,
    name: &str,
    answer: &impl prost::Message,
    what: &str,
) -> Outcome {
    match print::answer(session, output, name, answer)? {
        true => Ok(()),
        false => {
            Err(format!("listing {what}: unsupported output format {}", Quoted(output)).into())
        }
    }
}

fn container_row(container: &Container, whole: bool, now: jiff::Timestamp) -> Vec<String> {
    let metadata = container.metadata.clone().unwrap_or_default();
    let mut image = container.image.as_ref().map_or("", |image| &image.image).to_owned();
    let mut ids = [container.id.clone(), container.pod_sandbox_id.clone()];
    if !whole {
        ids = ids.map(|id| truncated(&id, ""));
        // A kubelet names images by their ids.
        let is_digest = |hex: &str| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if image.strip_prefix("sha256:").is_some_and(is_digest) {
            image = truncated(&image, "sha256:");
        }
    }
    let [id, pod] = ids;
    vec![
        id,
        image,
        human::ago(container.created_at, now),
        container_state(container.state()),
        metadata.name,
        metadata.attempt.to_string(),
        pod,
        of_labels(&container.labels, POD_NAME),
        of_labels(&container.labels, POD_NAMESPACE),
    ]
}

fn container_state(state: ContainerState) -> String {
    let name = state.as_str_name().trim_start_matches("CONTAINER_").to_lowercase();
    name[..1].to_uppercase() + &name[1..]
}

fn describe(session: &mut Session, container: &Container, now: jiff::Timestamp) -> Outcome {
    let out = &mut session.out;
    writeln!(out, "ID: {}", tame(&container.id))?;
    writeln!(out, "PodID: {}", tame(&container.pod_sandbox_id))?;
    writeln!(out, "Namespace: {}", tame(&of_labels(&container.labels, POD_NAMESPACE)))?;
    if let Some(metadata) = &container.metadata {
        if !metadata.name.is_empty() {
            writeln!(out, "Name: {}", tame(&metadata.name))?;
        }
        writeln!(out, "Attempt: {}", metadata.attempt)?;
    }
    writeln!(out, "State: {}", container_state(container.state()))?;
    if let Some(image) = &container.image {
        writeln!(out, "Image: {}", tame(&image.image))?;
    }
    writeln!(out, "Created: {}", human::ago(container.created_at, now))?;
    print::pairs(session, "Labels", &container.labels)?;
    print::pairs(session, "Annotations", &container.annotations)?;
    Ok(writeln!(session.out)?)
}

const POD_COLUMNS: [&str; 7] =
    ["POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"];

async fn pods(session: &mut Session, arguments: Arguments) -> Outcome {
    session.runtime().await?;
    let wanted = Wanted::of(&arguments, &["id", "name", "namespace", "state"])?;
    let listed = select::pods(session, &wanted).await;
    let listed = listed.during(|| "listing pod sandboxes: list pod sandboxes".to_owned())?;
    let output = arguments.text("output");
    if output != "table" {
        let answer = ListPodSandboxResponse { items: listed };
        return formatted(session, &output, "ListPodSandboxResponse", &answer, "pod sandboxes");
    }
    let now = jiff::Timestamp::now();
    let mut rows = vec![POD_COLUMNS.map(str::to_owned).to_vec()];
    for pod in &listed {
        if arguments.is("quiet") {
            writeln!(session.out, "{}", tame(&pod.id))?;
        } else if arguments.is("verbose") {
            describe_pod(session, pod)?;
        } else {
            let metadata = pod.metadata.clone().unwrap_or_default();
            let id = if arguments.is("no-trunc") { pod.id.clone() } else { truncated(&pod.id, "") };
            rows.push(vec![
                id,
                human::ago(pod.created_at, now),
                pod_state(pod.state()).to_owned(),
                metadata.name,
                metadata.namespace,
                metadata.attempt.to_string(),
                handler(pod),
            ]);
        }
    }
    if !arguments.is("quiet") && !arguments.is("verbose") {
        session.out.write_all(print::table(&rows, WIDE).as_bytes())?;
    }
    Ok(())
}

fn pod_state(state: PodSandboxState) -> &'static str {
    match state {
        PodSandboxState::SandboxReady => "Ready",
        PodSandboxState::SandboxNotready => "NotReady",
    }
}

fn handler(pod: &PodSandbox) -> String {
    match pod.runtime_handler.as_str() {
        "" => "(default)".to_owned(),
        handler => handler.to_owned(),
    }
}

fn describe_pod(session: &mut Session, pod: &PodSandbox) -> Outcome {
    let out = &mut session.out;
    writeln!(out, "ID: {}", tame(&pod.id))?;
    if let Some(metadata) = &pod.metadata {
        for (name, value) in
            [("Name", &metadata.name), ("UID", &metadata.uid), ("Namespace", &metadata.namespace)]
        {
            if !value.is_empty() {
                writeln!(out, "{name}: {}", tame(value))?;
            }
        }
        if metadata.attempt != 0 {
            writeln!(out, "Attempt: {}", metadata.attempt)?;
        }
    }
    writeln!(out, "Status: {}", pod_state(pod.state()))?;
    writeln!(out, "Created: {}", print::plain_moment(pod.created_at))?;
    print::pairs(session, "Labels", &pod.labels)?;
    print::pairs(session, "Annotations", &pod.annotations)?;
    Ok(writeln!(session.out, "Runtime: {}\n", tame(&handler(pod)))?)
}
