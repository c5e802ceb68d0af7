//! `kubectl cluster-info`, and its `dump`.
use super::{Command, Group};
use crate::builder::ALL_NAMESPACES;
use crate::cluster::{Cluster, collection};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, list, span, switch, switch_on, text};
use crate::print::Printer;
use crate::session::Session;
use client::ApiResource;
use client::source::Raw;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

static DUMP_FLAGS: &[Flag] = &[
    switch_on("allow-missing-template-keys", "What a template names and is not there is no error."),
    list("namespaces", "Namespaces to dump."),
    text("output", "json", "How to print.").short('o'),
    text("output-directory", "", "Folder for the output; - is the terminal."),
    span("pod-running-timeout", "20s", "How long to wait for a pod."),
    switch("show-managed-fields", "Show managedFields in JSON and YAML."),
    text("template", "", "Template, or its file."),
];

static DUMP: Command = Command {
    name: "dump",
    about: "Dump relevant information for debugging and diagnosis",
    flags: &[DUMP_FLAGS, ALL_NAMESPACES],
    run: Some(|session, arguments| Box::pin(dump(session, arguments))),
    ..Command::EMPTY
};

pub static COMMAND: Command = Command {
    name: "cluster-info",
    aliases: &["clusterinfo"],
    group: Group::Management,
    about: "Display cluster information",
    children: &[&DUMP],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let mapper = cluster.mapper().await?;
    let services = mapper.find("services")?.api.clone();
    let of = collection(&services, "kube-system", "kubernetes.io/cluster-service=true", "")?;
    let services = cluster.list(of, 0).await?;
    let colours = rustix::termios::isatty(std::io::stdout());
    let paint = |text: &str, colour: u8| match colours {
        true => format!("\x1b[0;{colour}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let mut line = |name: &str, link: &str| {
        writeln!(session.out, "{} is running at {}", paint(name, 32), paint(link, 33))
    };
    line("Kubernetes control plane", &cluster.server)?;
    for service in &services {
        if let Some((name, link)) = of_service(service, &cluster.server) {
            line(&name, &link)?;
        }
    }
    writeln!(
        session.out,
        "\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'."
    )?;
    Ok(())
}

/// A service's name, and where it is reached from outside.
fn of_service(service: &Value, server: &str) -> Option<(String, String)> {
    let metadata = &service["metadata"];
    let name = metadata["name"].as_str()?;
    let shown = metadata["labels"]["kubernetes.io/name"].as_str().unwrap_or(name);
    let port = &service["spec"]["ports"][0];
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    if let Some(address) = ingress["ip"].as_str().or(ingress["hostname"].as_str()) {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let links: Vec<String> =
            ports.map(|port| format!("http://{address}:{}", port["port"])).collect();
        return Some((shown.to_owned(), links.join(" ")));
    }
    let scheme = match port["name"].as_str() == Some("https") || port["port"] == 443 {
        true => "https:",
        false => "",
    };
    let port = match port["name"].as_str() {
        Some(name) => format!(":{name}"),
        None => String::new(),
    };
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let server = server.trim_end_matches('/');
    let link =
        format!("{server}/api/v1/namespaces/{namespace}/services/{scheme}{name}{port}/proxy");
    Some((shown.to_owned(), link))
}

const DUMPED: [&str; 7] = [
    "events",
    "replicationcontrollers",
    "services",
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "pods",
];

async fn dump(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let mapper = cluster.mapper().await?;
    let all = |of: &str| mapper.find(of).map(|resource| resource.api.clone());
    let namespaces: Vec<String> =
        match (arguments.is("all-namespaces"), arguments.list("namespaces")) {
            (true, _) => {
                let of = collection(&all("namespaces")?, "", "", "")?;
                let found = cluster.list(of, 500).await?;
                let names = found.iter().filter_map(|one| one["metadata"]["name"].as_str());
                names.map(str::to_owned).collect()
            }
            (false, []) => vec!["kube-system".to_owned(), cluster.namespace.clone()],
            (false, some) => some.to_vec(),
        };
    let nodes = list_of(&cluster, &all("nodes")?, "").await?;
    put(session, &arguments, "nodes", &nodes)?;
    for namespace in &namespaces {
        let mut pods = Vec::new();
        for name in DUMPED {
            let resource = all(name)?;
            let found = list_of(&cluster, &resource, namespace).await?;
            let file = resource.kind.to_lowercase();
            let file = match name {
                "replicationcontrollers" => "replication-controllers",
                "events" | "services" | "pods" => name,
                _ => name.split('.').next().unwrap_or(&file),
            };
            put(session, &arguments, &format!("{namespace}/{file}"), &found)?;
            if name == "pods" {
                pods = found["items"].as_array().cloned().unwrap_or_default();
            }
        }
        for pod in &pods {
            logs(session, &arguments, &cluster, namespace, pod).await?;
        }
    }
    let folder = arguments.text("output-directory");
    if !matches!(folder, "" | "-") {
        writeln!(session.out, "Cluster info dumped to {folder}")?;
    }
    Ok(())
}

async fn list_of(cluster: &Cluster, of: &ApiResource, namespace: &str) -> Outcome<Value> {
    let items = cluster.list(collection(of, namespace, "", "")?, 500).await?;
    let (kind, version) = (format!("{}List", of.kind), of.api_version());
    Ok(json!({ "kind": kind, "apiVersion": version, "metadata": {}, "items": items }))
}

fn put(session: &mut Session, arguments: &Arguments, name: &str, object: &Value) -> Outcome {
    let printer = Printer::of(arguments)?;
    let mut printer = printer.ok_or(Failure::Plain("an output format is needed".to_owned()))?;
    let extension = if arguments.text("output") == "yaml" { "yaml" } else { "json" };
    with_file(session, arguments, &format!("{name}.{extension}"), |out| printer.print(object, out))
}

fn with_file(
    session: &mut Session,
    arguments: &Arguments,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> Outcome,
) -> Outcome {
    match arguments.text("output-directory") {
        "" | "-" => write(&mut session.out),
        folder => {
            let path = Path::new(folder).join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            write(&mut std::fs::File::create(path)?)
        }
    }
}

async fn logs(
    session: &mut Session,
    arguments: &Arguments,
    cluster: &Cluster,
    namespace: &str,
    pod: &Value,
) -> Outcome {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let spec = &pod["spec"];
    let containers = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str());
    for container in containers {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log");
        let text = match cluster.raw(Raw::get(path).with("container", container)).await {
            Ok(answer) => answer.bytes().await?.to_vec(),
            Err(failure) => format!("Request log error: {}\n", failure.text()).into_bytes(),
        };
        with_file(session, arguments, &format!("{namespace}/{name}/logs.txt"), |out| {
            writeln!(
                out,
                "==== START logs for container {container} of pod {namespace}/{name} ===="
            )?;
            out.write_all(&text)?;
            writeln!(
                out,
                "==== END logs for container {container} of pod {namespace}/{name} ===="
            )?;
            Ok(())
        })?;
    }
    Ok(())
}
