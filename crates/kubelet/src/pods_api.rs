//! `pods-api`: pods as the node knows them, over gRPC, for agents of the node. They get on without the API server
//! then, and hear of a container's end when the kubelet does (`pkg/kubelet/apis/pods`).
//!
//! ```text
//!  worker ── a status that is new, a pod that has ended ──▶ Watched ── encoded once ──▶ the stream of each client
//! ```
//! Nothing is encoded while nobody listens. Who is too slow is sent away, and lists anew: the worker waits for
//! nobody.
use crate::pod;
use crate::sockets::{self, Turnstile};
use crate::worker::Kubelet;
use api::codec::protobuf::encode_message;
use api::schema::builtin;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::Mutex;
use proto::pods_server::{Pods, PodsServer};
use proto::{
    EventType, GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, WatchPodsEvent,
    WatchPodsRequest,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

#[allow(clippy::all, reason = "generated")]
pub(crate) mod proto {
    tonic::include_proto!("v1alpha1");
}

const WATCHES: &str = "kubelet_pod_requests_watch_total";
/// How many events a client may be behind.
const BEHIND: usize = 1024;

/// What happens to pods, for whoever listens.
pub struct Watched {
    /// Names of the pods that were added and have not ended, by uid.
    living: Mutex<HashMap<String, Value>>,
    events: broadcast::Sender<Arc<WatchPodsEvent>>,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched { living: Mutex::default(), events: broadcast::Sender::new(BEHIND) }
    }
}

impl Watched {
    /// A pod is otherwise than before.
    pub fn updated(&self, pod: &Pod, status: &PodStatus) {
        let metadata = json!({ "name": pod::name(pod), "namespace": pod::namespace(pod),
            "uid": pod::uid(pod) });
        let is_new = self.living.lock().insert(pod::uid(pod).to_owned(), metadata).is_none();
        let kind = if is_new { EventType::Added } else { EventType::Modified };
        self.send(kind, || whole(pod, status));
    }

    /// Nothing of a pod runs any more, and nothing will.
    pub fn ended(&self, uid: &str) {
        let known = self.living.lock().remove(uid);
        if let Some(metadata) = known {
            self.send(EventType::Deleted, || json!({ "metadata": metadata }));
        }
    }

    fn send(&self, kind: EventType, pod: impl FnOnce() -> Value) {
        if self.events.receiver_count() > 0 {
            // Nobody listens any more, if this fails.
            let _ = self.events.send(Arc::new(event(kind, encode(&pod()))));
        }
    }
}

fn event(kind: EventType, pod: Vec<u8>) -> WatchPodsEvent {
    WatchPodsEvent { r#type: kind.into(), pod }
}

fn whole(pod: &Pod, status: &PodStatus) -> Value {
    let mut shown = json!(pod);
    shown["status"] = json!(status);
    shown
}

fn encode(pod: &Value) -> Vec<u8> {
    encode_message(pod, builtin().named("core/v1.Pod").expect("a pod is in the facts"))
}

/// Until the context stops.
pub async fn serve(kubelet: &Arc<Kubelet>) {
    let socket = kubelet.config.root.join("pods-api/pods-api.sock");
    let desk = Desk { kubelet: kubelet.clone(), turnstile: Turnstile::default() };
    sockets::serve(&kubelet.context, &socket, Routes::new(PodsServer::new(desk))).await;
}

struct Desk {
    kubelet: Arc<Kubelet>,
    turnstile: Turnstile,
}

impl Desk {
    /// Counts an answer as upstream does: all of them, and those of one method.
    fn counted<T>(&self, name: &'static str, answer: Result<T, Status>) -> Result<T, Status> {
        count(&self.kubelet, name, answer.as_ref().err().map_or(Code::Ok, Status::code));
        answer
    }

    /// In the order of their uids.
    fn all(&self) -> Result<Vec<Vec<u8>>, Status> {
        self.is_ready()?;
        let mut pods = self.kubelet.all_pods();
        pods.sort_by(|a, b| pod::uid(a).cmp(pod::uid(b)));
        Ok(pods.iter().map(|pod| self.encoded(pod)).collect())
    }

    fn is_ready(&self) -> Result<(), Status> {
        match self.kubelet.sources.are_complete() {
            true => Ok(()),
            false => Err(Status::failed_precondition("Kubelet is initializing")),
        }
    }

    fn encoded(&self, pod: &Pod) -> Vec<u8> {
        encode(&whole(pod, &self.kubelet.newest_status(pod)))
    }

    fn find(&self, uid: &str) -> Result<GetPodResponse, Status> {
        self.is_ready()?;
        let pod = self.kubelet.pod(uid);
        let pod = pod.ok_or_else(|| Status::not_found(format!("pod with UID {uid} not found")))?;
        Ok(GetPodResponse { pod: self.encoded(&pod) })
    }
}

fn count(kubelet: &Kubelet, name: &'static str, code: Code) {
    // Go's names of codes are ours, but for two.
    let code = match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    };
    let labels = [("server_api_version", "v1alpha1"), ("status_code", &*code)];
    let metrics = kubelet.context.metrics();
    metrics.count("kubelet_pod_requests_total", &labels);
    metrics.count(name, &labels);
}

#[tonic::async_trait]
impl Pods for Desk {
    async fn list_pods(
        &self,
        _: Request<ListPodsRequest>,
    ) -> Result<Response<ListPodsResponse>, Status> {
        self.turnstile.admit()?;
        let answer = self.all().map(|pods| Response::new(ListPodsResponse { pods }));
        self.counted("kubelet_pod_requests_list_total", answer)
    }

    async fn get_pod(
        &self,
        request: Request<GetPodRequest>,
    ) -> Result<Response<GetPodResponse>, Status> {
        self.turnstile.admit()?;
        let answer = self.find(&request.into_inner().pod_uid).map(Response::new);
        self.counted("kubelet_pod_requests_get_total", answer)
    }

    type WatchPodsStream = BoxStream<'static, Result<WatchPodsEvent, Status>>;

    /// All pods, a word that these were all, then what happens.
    async fn watch_pods(
        &self,
        _: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        // Before the list: what happens meanwhile is told twice rather than never.
        let events = self.kubelet.pod_watch.events.subscribe();
        let pods =
            self.all().inspect_err(|refused| count(&self.kubelet, WATCHES, refused.code()))?;
        let first = pods.into_iter().map(|pod| event(EventType::Added, pod));
        let first = first.chain([event(EventType::InitialSyncComplete, Vec::new())]);
        let watch = Watch { kubelet: self.kubelet.clone(), events, is_over: false };
        let news = stream::unfold(watch, |mut watch| async {
            let next = watch.next().await?;
            Some((next, watch))
        });
        Ok(Response::new(stream::iter(first.map(Ok)).chain(news).boxed()))
    }
}

/// A client that listens; counted when it stops.
struct Watch {
    kubelet: Arc<Kubelet>,
    events: broadcast::Receiver<Arc<WatchPodsEvent>>,
    is_over: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<WatchPodsEvent, Status>> {
        if self.is_over {
            return None;
        }
        let heard = tokio::select! {
            heard = self.events.recv() => heard,
            () = self.kubelet.context.stopped() => Err(RecvError::Closed),
        };
        if let Ok(event) = heard {
            return Some(Ok((*event).clone()));
        }
        if let Err(RecvError::Lagged(_)) = heard {
            self.kubelet.context.metrics().count("kubelet_pod_watch_events_dropped_total", &[]);
        }
        self.is_over = true;
        Some(Err(Status::resource_exhausted("watch client channel closed")))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let code = if self.is_over { Code::ResourceExhausted } else { Code::Cancelled };
        count(&self.kubelet, WATCHES, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Machine;

    #[tokio::test]
    async fn who_comes_too_early_or_is_too_slow_is_sent_away() {
        let kubelet = Machine::new().kubelet();
        let desk = Desk { kubelet: kubelet.clone(), turnstile: Turnstile::default() };
        let early = desk.watch_pods(Request::new(WatchPodsRequest {})).await.err();
        let early = early.expect("refused");
        assert_eq!(
            (early.code(), early.message()),
            (Code::FailedPrecondition, "Kubelet is initializing")
        );
        kubelet.sources.api_answered();
        let watch = desk.watch_pods(Request::new(WatchPodsRequest {})).await.expect("let in");
        let mut watch = watch.into_inner();
        for _ in 0..=BEHIND {
            kubelet.pod_watch.updated(&Pod::default(), &PodStatus::default());
        }
        let first = watch.next().await.expect("an event").expect("no fault");
        assert_eq!(first.r#type(), EventType::InitialSyncComplete);
        let slow = watch.next().await.expect("a word").expect_err("a fault");
        assert_eq!(
            (slow.code(), slow.message()),
            (Code::ResourceExhausted, "watch client channel closed")
        );
        assert!(watch.next().await.is_none());
    }
}
