//! `kubectl logs`: of one container, of many, for as long as one looks.
use super::{Command, Group};
use crate::builder::{self, Request, SELECTOR, Target};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, text};
use crate::pods;
use crate::session::Session;
use bytes::Bytes;
use client::source::Raw;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::mpsc;

static FLAGS: &[Flag] = &[
    switch("all-containers", "Of all containers of the pods."),
    switch("all-pods", "Of all pods of the workload, with their names before each line."),
    text("container", "", "Of this container.").short('c'),
    switch("follow", "Go on as lines come.").short('f'),
    switch("ignore-errors", "Go on where one of several fails."),
    switch("insecure-skip-tls-verify-backend", "The server need not believe the kubelet."),
    number("limit-bytes", "0", "So many bytes at most."),
    number("max-log-requests", "5", "How many are followed at once with a selector."),
    span("pod-running-timeout", "20s", "How long to wait for a pod that runs."),
    switch("prefix", "Begin each line with pod and container."),
    switch("previous", "Of the container's last life.").short('p'),
    span("since", "0s", "Only what is newer than this."),
    text("since-time", "", "Only what is newer than this moment (RFC3339)."),
    number("tail", "-1", "So many of the last lines; all, or 10 with a selector."),
    switch("timestamps", "Begin each line with its moment."),
];

pub static COMMAND: Command = Command {
    name: "logs",
    group: Group::Troubleshooting,
    about: "Print the logs for a container in a pod",
    usage: "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]",
    flags: &[FLAGS, SELECTOR],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::PodAndContainer,
    ..Command::EMPTY
};

/// One container's log.
struct Log {
    namespace: String,
    pod: String,
    container: String,
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    check(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let pods = subjects(session, &cluster, &arguments).await?;
    let many = arguments.some("selector").is_some() || arguments.is("all-pods");
    let mut logs = Vec::new();
    for pod in &pods {
        logs.extend(chosen(session, pod, &arguments)?);
    }
    if logs.is_empty() {
        if many {
            let namespace = &cluster.namespace;
            writeln!(session.err, "No resources found in {namespace} namespace.")?;
        }
        return Ok(());
    }
    let limit = arguments.number("max-log-requests");
    if arguments.is("follow") && logs.len() > 1 {
        if logs.len() as i64 > limit {
            return Err(format!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {limit}, use \
                 --max-log-requests to increase the limit",
                logs.len()
            )
            .into());
        }
        return together(session, &cluster, &arguments, logs).await;
    }
    for log in &logs {
        let outcome = one(session, &cluster, &arguments, log).await;
        match outcome {
            Err(failure) if arguments.is("ignore-errors") => {
                writeln!(session.out, "error: {}", failure.text())?;
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

fn check(arguments: &Arguments) -> Outcome {
    let words = arguments.words.len();
    let selects = arguments.some("selector").is_some();
    let usage = "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required \
                 argument for the logs command\nSee 'kubectl logs -h' for help and examples";
    match (words, selects) {
        (0, false) => return Err(Failure::Plain(usage.to_owned())),
        (0, true) => {}
        (_, true) => {
            return Err("only a selector (-l) or a POD name is allowed\nSee 'kubectl logs -h' for help and examples"
                .into());
        }
        (1 | 2, false) => {}
        _ => return Err(Failure::Plain(usage.to_owned())),
    }
    if arguments.is("all-containers") && arguments.some("container").is_some() {
        return Err("--all-containers=true should not be specified with container name".into());
    }
    if arguments.some("since-time").is_some() && !arguments.span("since").is_zero() {
        return Err("at most one of `sinceTime` or `sinceSeconds` may be specified".into());
    }
    if arguments.given("tail") && arguments.number("tail") < -1 {
        return Err("TailLines must be greater than or equal to -1".into());
    }
    if arguments.number("limit-bytes") < 0 {
        return Err("--limit-bytes must be greater than 0".into());
    }
    Ok(())
}

/// The pods whose logs are meant.
async fn subjects(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
) -> Outcome<Vec<Value>> {
    if let Some(selector) = arguments.some("selector") {
        let of = collection(&pods::resource(), &cluster.namespace, selector, "")?;
        return cluster.list(of, 500).await;
    }
    let word = arguments.words.first().map(String::as_str).unwrap_or_default();
    if !word.contains('/') {
        let found = cluster.get(&pods::resource(), &cluster.namespace, word).await;
        return found.map(|pod| vec![pod]).map_err(|failure| missing(cluster, failure));
    }
    let request = Request { words: vec![word.to_owned()], ..Request::default() };
    let targets = builder::targets(cluster, &request).await?;
    let Some(Target::Named { resource, namespace, name }) = targets.into_iter().next() else {
        return Err("no object is named".into());
    };
    let object = cluster.get(&resource.api, &namespace, &name).await;
    let object = object.map_err(|failure| missing(cluster, failure))?;
    if object["kind"] == "Pod" {
        return Ok(vec![object]);
    }
    let found = cluster.list(pods::of_object(&object)?, 500).await?;
    if arguments.is("all-pods") {
        return Ok(found);
    }
    let count = found.len();
    let Some(best) = pods::best(found) else {
        return Err("timed out waiting for the condition".into());
    };
    if count > 1 {
        let name = best["metadata"]["name"].as_str().unwrap_or_default();
        writeln!(session.err, "Found {count} pods, using pod/{name}")?;
    }
    Ok(vec![best])
}

/// What is said of an object that is not there.
fn missing(cluster: &Cluster, failure: Failure) -> Failure {
    match failure.is_not_found() {
        true => Failure::Plain(format!(
            "error from server (NotFound): {} in namespace \"{}\"",
            failure.text(),
            cluster.namespace
        )),
        false => failure,
    }
}

/// The containers of a pod whose logs are meant.
fn chosen(session: &mut Session, pod: &Value, arguments: &Arguments) -> Outcome<Vec<Log>> {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let log = |container: &str| Log {
        namespace: namespace.clone(),
        pod: name.clone(),
        container: container.to_owned(),
    };
    // With all pods, all containers are meant, too.
    let all = arguments.is("all-containers")
        || (arguments.is("all-pods") && arguments.some("container").is_none());
    if all {
        // In the order in which they run.
        let mut containers = pods::containers(pod);
        containers.sort_by_key(|(_, kind)| match *kind {
            "init" => 0,
            "" => 1,
            _ => 2,
        });
        return Ok(containers.into_iter().map(|(container, _)| log(container)).collect());
    }
    let named = arguments.some("container").or(arguments.words.get(1).map(String::as_str));
    if let Some(named) = named
        && !pods::containers(pod).iter().any(|(other, _)| *other == named)
    {
        let all = pods::shown_containers(pod);
        return Err(format!("container {named} is not valid for pod {name} out of: {all}").into());
    }
    let (container, told) = pods::container(pod, named)?;
    if let Some(told) = told {
        writeln!(session.err, "{told}")?;
    }
    Ok(vec![log(&container)])
}

fn request(log: &Log, arguments: &Arguments) -> Raw {
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", log.namespace, log.pod);
    let is = |name: &str| if arguments.is(name) { "true" } else { "" };
    let mut tail = arguments.number("tail");
    if arguments.some("selector").is_some() && !arguments.given("tail") && !arguments.is("follow") {
        tail = 10;
    }
    let positive = |number: i64| if number > 0 { number.to_string() } else { String::new() };
    let since = arguments.span("since").as_secs_f64().ceil() as i64;
    let mut raw = Raw::get(path);
    raw.accept = "*/*".to_owned();
    raw.with("container", &log.container)
        .with("follow", is("follow"))
        .with("previous", is("previous"))
        .with("timestamps", is("timestamps"))
        .with("insecureSkipTLSVerifyBackend", is("insecure-skip-tls-verify-backend"))
        .with("limitBytes", &positive(arguments.number("limit-bytes")))
        .with("sinceSeconds", &positive(since))
        .with("sinceTime", arguments.text("since-time"))
        .with("tailLines", &if tail >= 0 { tail.to_string() } else { String::new() })
}

fn prefix(log: &Log, arguments: &Arguments) -> String {
    match arguments.is("prefix") || arguments.is("all-pods") {
        true => format!("[pod/{}/{}] ", log.pod, log.container),
        false => String::new(),
    }
}

async fn one(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    log: &Log,
) -> Outcome {
    let mut answer = cluster.raw(request(log, arguments)).await?;
    let mut lines = Lines::new(prefix(log, arguments));
    while let Some(piece) = answer.body.next().await {
        session.out.write_all(&lines.add(&piece?))?;
        session.out.flush()?;
    }
    Ok(session.out.write_all(&lines.rest())?)
}

/// Several at once, line by line.
async fn together(
    session: &mut Session,
    cluster: &Cluster,
    arguments: &Arguments,
    logs: Vec<Log>,
) -> Outcome {
    let (told, mut pieces) = mpsc::channel::<Outcome<Vec<u8>>>(64);
    for log in logs {
        let (request, prefix) = (request(&log, arguments), prefix(&log, arguments));
        let (cluster, told) = (cluster.clone(), told.clone());
        tokio::spawn(async move {
            let mut answer = match cluster.raw(request).await {
                Ok(answer) => answer,
                Err(failure) => {
                    let _ = told.send(Err(failure)).await;
                    return;
                }
            };
            let mut lines = Lines::new(prefix);
            while let Some(piece) = answer.body.next().await {
                let piece = piece.map(|piece| lines.whole(&piece)).map_err(Failure::from);
                if told.send(piece).await.is_err() {
                    return;
                }
            }
            let _ = told.send(Ok(lines.rest())).await;
        });
    }
    drop(told);
    while let Some(piece) = pieces.recv().await {
        match piece {
            Ok(bytes) => session.out.write_all(&bytes)?,
            Err(failure) if arguments.is("ignore-errors") => {
                writeln!(session.out, "error: {}", failure.text())?;
            }
            Err(failure) => return Err(failure),
        }
        session.out.flush()?;
    }
    Ok(())
}

/// Lines out of pieces, each with what it begins with.
struct Lines {
    prefix: String,
    begun: Vec<u8>,
}

impl Lines {
    fn new(prefix: String) -> Lines {
        Lines { prefix, begun: Vec::new() }
    }

    /// As it comes where lines have no beginning of their own, else whole lines.
    fn add(&mut self, piece: &Bytes) -> Vec<u8> {
        if self.prefix.is_empty() { piece.to_vec() } else { self.whole(piece) }
    }

    fn whole(&mut self, piece: &Bytes) -> Vec<u8> {
        self.begun.extend_from_slice(piece);
        let mut out = Vec::new();
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.begun[..end].split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(self.prefix.as_bytes());
            out.extend_from_slice(line);
        }
        self.begun.drain(..end);
        out
    }

    /// What has no end yet.
    fn rest(&mut self) -> Vec<u8> {
        if self.begun.is_empty() {
            return Vec::new();
        }
        let mut out = self.prefix.clone().into_bytes();
        out.append(&mut self.begun);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_before_they_are_told() {
        let mut lines = Lines::new("[p] ".to_owned());
        assert_eq!(lines.add(&Bytes::from_static(b"a\nb")), b"[p] a\n");
        assert_eq!(lines.add(&Bytes::from_static(b"c\n\nd")), b"[p] bc\n[p] \n");
        assert_eq!(lines.rest(), b"[p] d");
        let mut plain = Lines::new(String::new());
        assert_eq!(plain.add(&Bytes::from_static(b"a")), b"a");
    }

    #[test]
    fn flags_are_parameters() {
        let asked = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let arguments = Arguments::parse("kubectl logs", COMMAND.flags, &words).unwrap();
            let log = Log { namespace: "n".into(), pod: "p".into(), container: "c".into() };
            request(&log, &arguments).path
        };
        let base = "/api/v1/namespaces/n/pods/p/log?container=c";
        assert_eq!(asked("p"), base);
        assert_eq!(
            asked("p -f --tail 0 --since 90s"),
            format!("{base}&follow=true&sinceSeconds=90&tailLines=0")
        );
        assert_eq!(asked("-l a=b"), format!("{base}&tailLines=10"));
        assert_eq!(
            asked("p -p --timestamps --limit-bytes=5"),
            format!("{base}&previous=true&timestamps=true&limitBytes=5")
        );
    }
}
