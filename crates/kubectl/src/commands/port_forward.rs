//! `kubectl port-forward`.
use super::{Command, Group};
use crate::builder::{self, Request};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, list, span};
use crate::pods;
use crate::session::Session;
use crate::streams;
use client::source::escaped;
use serde_json::Value;
use tokio::net::TcpListener;

static FLAGS: &[Flag] = &[
    list("address", "Addresses to listen on; localhost unless said."),
    span("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
];

pub static COMMAND: Command = Command {
    name: "port-forward",
    group: Group::Troubleshooting,
    about: "Forward one or more local ports to a pod",
    usage: "TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::PodAndPort,
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let Some((word, ports)) = arguments.words.split_first().filter(|(_, ports)| !ports.is_empty())
    else {
        return Err("TYPE/NAME and list of ports are required for port-forward\nSee 'kubectl port-forward -h' for \
                    help and examples"
            .into());
    };
    let cluster = session.cluster(&arguments)?;
    let patience = arguments.span("pod-running-timeout");
    let (pod, service) = subject(&cluster, word, patience).await?;
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase != "Running" {
        return Err(format!(
            "unable to forward port because pod is not running. Current status={phase}"
        )
        .into());
    }
    let mut open = Vec::new();
    for port in ports {
        let (local, remote) = pair(port, &pod, service.as_ref())?;
        for address in addresses(arguments.list("address")) {
            match TcpListener::bind((address.as_str(), local)).await {
                Ok(listener) => open.push((listener, remote)),
                // The other family may not be there.
                Err(_) if address == "::1" => {}
                Err(error) => {
                    let text = format!(
                        "Unable to listen on port {local}: Listeners failed to create with the \
                                        following errors: [unable to create listener: Error listen tcp {address}:{local}: {error}]"
                    );
                    writeln!(session.err, "{text}")?;
                }
            }
        }
    }
    if open.is_empty() {
        return Err("unable to listen on any of the requested ports".into());
    }
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    let mut serving = Vec::new();
    for (listener, remote) in open {
        writeln!(session.out, "Forwarding from {} -> {remote}", listener.local_addr()?)?;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/portforward?ports={remote}",
            escaped(&namespace),
            escaped(&name)
        );
        serving.push(serve(cluster.clone(), listener, path, remote));
    }
    session.flush()?;
    futures_util::future::join_all(serving).await;
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn serve(cluster: Cluster, listener: TcpListener, path: String, remote: u16) {
    while let Ok((connection, from)) = listener.accept().await {
        println!("Handling connection for {}", listener.local_addr().map_or(0, |a| a.port()));
        let (cluster, path) = (cluster.clone(), path.clone());
        tokio::spawn(async move {
            if let Err(failure) = streams::forward(&cluster, &path, connection).await {
                eprintln!(
                    "an error occurred forwarding {} -> {remote}: {}",
                    from.port(),
                    failure.text()
                );
            }
        });
    }
}

fn addresses(given: &[String]) -> Vec<String> {
    let given = if given.is_empty() { &["localhost".to_owned()][..] } else { given };
    let mut all = Vec::new();
    for address in given {
        match address.as_str() {
            "localhost" => all.extend(["127.0.0.1".to_owned(), "::1".to_owned()]),
            other => all.push(other.to_owned()),
        }
    }
    all
}

/// The pod that is meant, and the service by whose ports it is reached.
async fn subject(
    cluster: &Cluster,
    word: &str,
    patience: std::time::Duration,
) -> Outcome<(Value, Option<Value>)> {
    if word.contains('/') {
        let request = Request { words: vec![word.to_owned()], ..Request::default() };
        let targets = builder::targets(cluster, &request).await?;
        let target =
            targets.into_iter().next().ok_or(Failure::Plain("no object is named".to_owned()))?;
        let info = builder::fetch(cluster, &request, target, true).await?.into_iter().next();
        let info = info.ok_or(Failure::Plain("no object is named".to_owned()))?;
        if info.object["kind"] == "Service" {
            return Ok((pods::find(cluster, word, patience).await?, Some(info.object)));
        }
    }
    Ok((pods::find(cluster, word, patience).await?, None))
}

/// `8080:80`, `:80`, `80`, `8080:http`: a port here and a pod's.
fn pair(text: &str, pod: &Value, service: Option<&Value>) -> Outcome<(u16, u16)> {
    let invalid = || Failure::Plain(format!("invalid port format '{text}'"));
    let (local, remote) = match text.split_once(':') {
        Some((local, remote)) => (Some(local), remote),
        None => (None, text),
    };
    let asked = match service {
        Some(service) => of_service(service, pod, remote)?,
        None => of_pod(pod, remote)?,
    };
    let local = match local {
        Some("") => 0,
        Some(local) => local.parse().map_err(|_| invalid())?,
        None => remote.parse().unwrap_or(asked),
    };
    Ok((local, asked))
}

fn of_pod(pod: &Value, port: &str) -> Outcome<u16> {
    if let Ok(number) = port.parse() {
        return Ok(number);
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let found = ports.find(|one| one["name"] == port).and_then(|one| one["containerPort"].as_u64());
    let number = found.and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| {
        Failure::Plain(format!(
            "Pod '{}' does not have a named port '{port}'",
            text(&pod["metadata"]["name"])
        ))
    })
}

fn of_service(service: &Value, pod: &Value, port: &str) -> Outcome<u16> {
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let number = port.parse::<u64>().ok();
    let is =
        |one: &&Value| one["name"] == port || (number.is_some() && one["port"].as_u64() == number);
    let found = ports.find(is);
    let name = text(&service["metadata"]["name"]);
    let Some(found) = found else {
        return Err(format!("Service {name} does not have a service port {port}").into());
    };
    // A service without an address leads to its pods' ports as they are.
    if service["spec"]["clusterIP"] == "None" {
        return of_pod(pod, &found["port"].to_string());
    }
    match &found["targetPort"] {
        Value::String(name) => of_pod(pod, name),
        Value::Number(number) => of_pod(pod, &number.to_string()),
        _ => of_pod(pod, &found["port"].to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_are_numbers_names_and_a_service_s() {
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [
            { "ports": [{ "name": "http", "containerPort": 8080 }] }] } });
        let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [
            { "name": "web", "port": 80, "targetPort": "http" }] } });
        assert_eq!(pair("80", &pod, None).unwrap(), (80, 80));
        assert_eq!(pair(":80", &pod, None).unwrap(), (0, 80));
        assert_eq!(pair("9000:http", &pod, None).unwrap(), (9000, 8080));
        assert_eq!(pair("http", &pod, None).unwrap(), (8080, 8080));
        assert_eq!(pair("80", &pod, Some(&service)).unwrap(), (80, 8080));
        assert_eq!(pair("1:web", &pod, Some(&service)).unwrap(), (1, 8080));
        assert!(pair("81", &pod, Some(&service)).is_err() && pair("x", &pod, None).is_err());
    }
}
