//! `/containerLogs/NAMESPACE/POD/CONTAINER`: what a container wrote, from its log file.
//!
//! ```text
//!  options   parameters of the request → what is wanted          (pure)
//!  line      CRI's log lines → text                              (pure)
//!  follow    a file that grows and is rotated → bytes
//! ```
mod follow;
mod line;
mod options;

use super::answer::{self, Body, Refused, Reply};
use super::route::Asked;
use crate::found::{self, Found, State};
use crate::pod;
use crate::worker::Kubelet;
use bytes::Bytes;
use follow::Log;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use options::Options;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Pieces that wait for a slow client.
const QUEUE: usize = 4;

pub async fn logs(
    kubelet: &Arc<Kubelet>,
    namespace: &str,
    name: &str,
    container: &str,
    asked: &Asked<'_>,
) -> Result<Reply, Refused> {
    let options = options::parse(asked, kubelet.context.now())
        .map_err(|(status, message)| answer::refuse(status, message))?;
    let pod = kubelet.named(namespace, name);
    let pod = pod.ok_or_else(|| answer::not_found(format!("pod {name:?} does not exist")))?;
    if pod::container(&pod, container).is_none() {
        let text = format!("container {container:?} not found in pod {name:?}");
        return Err(answer::not_found(text));
    }
    let found = found::find(&*kubelet.runtime, pod::uid(&pod)).await.map_err(answer::internal)?;
    let status = kubelet.last_status(&pod);
    let (id, path) =
        choose(&found, &status, name, container, options.previous).map_err(answer::bad_request)?;
    // What cannot be read is told before an answer begins.
    let log = Log::open(Path::new(&path)).map_err(|error| {
        answer::internal(format!("failed to try resolving symlinks in path {path:?}: {error}"))
    })?;
    Ok(send(kubelet.clone(), id, log, options))
}

/// The container whose log is meant, as the statuses of a pod tell it
/// (`validateContainerLogStatus` in `pkg/kubelet/kubelet_pods.go`).
fn choose(
    found: &Found,
    status: &PodStatus,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<(String, String), String> {
    let mut all = found.containers.iter().filter(|one| one.name == container);
    let has_run = |state| matches!(state, State::Running | State::Exited | State::Unknown);
    let one = match previous {
        false => all.find(|one| has_run(one.state)),
        true => all.skip(1).find(|one| one.state == State::Exited),
    };
    if let Some(one) = one {
        return Ok((one.id.clone(), one.log_path.clone()));
    }
    if previous {
        return Err(format!(
            "previous terminated container {container:?} in pod {pod:?} not found"
        ));
    }
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let said = |one: &&ContainerStatus| one.name == container;
    let told = lists.into_iter().flatten().flatten().find(said);
    let Some(told) = told else {
        return Err(format!("container {container:?} in pod {pod:?} is not available"));
    };
    let state = told.state.clone().unwrap_or_default();
    if state.terminated.is_some() {
        return Err(format!("container {container:?} in pod {pod:?} is terminated"));
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason);
    let begin = format!("container {container:?} in pod {pod:?} is waiting to start");
    Err(match reason.as_deref() {
        Some("ErrImagePull") => format!("{begin}: image can't be pulled"),
        Some("ImagePullBackOff") => format!("{begin}: trying and failing to pull image"),
        Some(reason) => format!("{begin}: {reason}"),
        None => format!("{begin} - no logs yet"),
    })
}

/// The answer begins at once: whoever follows a silent container has to know that it works.
fn send(kubelet: Arc<Kubelet>, id: String, log: Log, options: Options) -> Reply {
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
    tokio::spawn(async move {
        // A client that went away is noticed also while nothing is written.
        let gone = sender.clone();
        tokio::select! {
            () = gone.closed() => {}
            () = kubelet.context.stopped() => {}
            ended = log.send(&*kubelet.runtime, &id, options, sender) => if let Err(error) = ended {
                tracing::debug!("failed to read a log: {error}");
            },
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), receiver))
    });
    let body: Body = StreamBody::new(pieces).boxed_unsync();
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::OK;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world;
    use serde_json::json;

    fn check(text: &str, state: serde_json::Value, previous: bool, expected: &str) {
        let found = world(text).found;
        let status = json!({ "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }] });
        let status = serde_json::from_value(status).unwrap();
        let chosen = choose(&found, &status, "web", "c", previous);
        assert_eq!(chosen.map_or_else(|message| message, |(id, _)| id), expected);
    }

    #[test]
    fn the_log_is_of_the_container_that_ran_last() {
        let twice = "container c\nsandbox s0 ready\nfound c s0 exited=1\nfound c s0 running";
        check(twice, json!({}), false, "c-1");
        check(twice, json!({}), true, "c-0");
        let failed = "container c\nsandbox s0 ready\nfound c s0 exited=1\nfound c s0 created";
        check(failed, json!({}), false, "c-0");
        let once = "container c\nsandbox s0 ready\nfound c s0 running";
        check(
            once,
            json!({}),
            true,
            "previous terminated container \"c\" in pod \"web\" not found",
        );
    }

    #[test]
    fn what_has_not_run_says_why() {
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        for (reason, expected) in [
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
            ("ContainerCreating", "ContainerCreating"),
        ] {
            let expected =
                format!("container \"c\" in pod \"web\" is waiting to start: {expected}");
            check("container c", waiting(reason), false, &expected);
        }
        check(
            "container c",
            json!({}),
            false,
            "container \"c\" in pod \"web\" is waiting to start - no logs yet",
        );
    }
}
