//! What happened, for people: `kubectl describe` shows it below the object it happened to.
//!
//! To record is to put into a bounded queue; nobody waits for it, and what does not fit is
//! dropped. One task writes: most components' events as `v1` ([`core`]: repeated ones are counted,
//! similar ones combined, floods cut), the scheduler's as `events.k8s.io/v1` ([`series`]).
mod core;
mod recent;
mod series;

use crate::client::Client;
use crate::context::Context;
use api::object::Object;
use api::rules::Form;
use api::status::{Reason, Status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait to be written: upstream's.
const QUEUE: usize = 1000;
/// How often an event is tried, and how long between: upstream's.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    pub regarding: ObjectReference,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
    pub is_warning: bool,
    /// One word: `Scheduled`, `FailedMount`.
    pub reason: String,
    /// What was done or tried, one word: needed in `events.k8s.io` only.
    pub action: String,
    pub note: String,
    pub annotations: BTreeMap<String, String>,
}

impl Happening {
    pub fn normal(regarding: ObjectReference, reason: &str, note: impl Into<String>) -> Happening {
        Happening {
            regarding,
            related: None,
            is_warning: false,
            reason: reason.to_owned(),
            action: String::new(),
            note: note.into(),
            annotations: BTreeMap::new(),
        }
    }

    pub fn warning(regarding: ObjectReference, reason: &str, note: impl Into<String>) -> Happening {
        Happening { is_warning: true, ..Happening::normal(regarding, reason, note) }
    }

    #[must_use]
    pub fn while_(self, action: &str) -> Happening {
        Happening { action: action.to_owned(), ..self }
    }

    #[must_use]
    pub fn with(self, related: ObjectReference) -> Happening {
        Happening { related: Some(related), ..self }
    }

    fn type_(&self) -> &'static str {
        if self.is_warning { "Warning" } else { "Normal" }
    }

    /// Where the event is: with its object, or in `default`.
    fn namespace(&self) -> String {
        let namespace = self.regarding.namespace.as_deref().filter(|name| !name.is_empty());
        namespace.unwrap_or("default").to_owned()
    }
}

/// A reference to a typed object.
pub fn reference<T: Form>(object: &T) -> ObjectReference {
    let metadata = object.metadata();
    ObjectReference {
        api_version: Some(T::API_VERSION.to_owned()),
        kind: Some(T::KIND.to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
    }
}

/// A reference to an object of any kind.
pub fn reference_to(object: &Object, api_version: &str, kind: &str) -> ObjectReference {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: text(object.namespace()),
        name: text(object.name()),
        uid: text(object.uid()),
        resource_version: text(&object.resource_version()),
        field_path: None,
    }
}

/// Cheap to clone. The task behind it ends with its context, or with the last recorder, once all
/// is written.
#[derive(Clone)]
pub struct Recorder {
    context: Context,
    queue: mpsc::Sender<(Happening, Timestamp)>,
}

/// Who says so.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reporter {
    /// `kubelet`, `replicaset-controller`.
    pub component: String,
    /// The node, where that matters.
    pub host: String,
}

impl Reporter {
    pub fn new(component: &str, host: &str) -> Reporter {
        Reporter { component: component.to_owned(), host: host.to_owned() }
    }
}

impl Recorder {
    /// Records `v1` events, as most components do.
    pub fn core(context: &Context, client: Client, reporter: Reporter) -> Recorder {
        let (recorder, queue) = Recorder::queue(context);
        tokio::spawn(core::write(context.clone(), client, reporter, queue));
        recorder
    }

    /// Records `events.k8s.io/v1` events. The reporter's host is the name of the instance:
    /// `default-scheduler-node-1`.
    pub fn series(context: &Context, client: Client, reporter: Reporter) -> Recorder {
        let (recorder, queue) = Recorder::queue(context);
        tokio::spawn(series::write(context.clone(), client, reporter, queue));
        recorder
    }

    fn queue(context: &Context) -> (Recorder, mpsc::Receiver<(Happening, Timestamp)>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Recorder { context: context.clone(), queue: sender }, receiver)
    }

    /// Never waits. What there is no room for is lost, and the log says so.
    pub fn record(&self, happening: Happening) {
        let now = self.context.now();
        tracing::debug!(
            object = happening.regarding.name,
            kind = happening.regarding.kind,
            reason = happening.reason,
            note = happening.note,
            "event occurred"
        );
        if let Err(mpsc::error::TrySendError::Full((event, _))) =
            self.queue.try_send((happening, now))
        {
            let (reason, note) = (event.reason, event.note);
            tracing::warn!(reason, note, "too many queued events: one is dropped");
        }
    }
}

/// The name of a new event: upstream's.
fn name(context: &Context, object: Option<&str>, now: Timestamp) -> String {
    let name = format!("{}.{:x}", object.unwrap_or_default(), now.as_nanosecond());
    if api::names::name_is_dns_subdomain(&name, false).is_empty() { name } else { context.uuid() }
}

/// It never came to an answer, so it may be tried again. What the server refused stays refused.
fn may_be_retried(status: &Status) -> bool {
    status.is(Reason::ServiceUnavailable) || status.is(Reason::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use k8s_openapi::api::core::v1::Event;

    fn happening(i: usize) -> Happening {
        let name = Some(format!("web-{i}"));
        Happening::normal(ObjectReference { name, ..ObjectReference::default() }, "Killing", "so")
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_and_the_queue_has_an_end() {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let world = World::new(&context);
        let recorder = Recorder::core(&context, world.client(), Reporter::new("kubelet", "n"));
        // Nothing is written before this task gives way.
        (0..QUEUE + 10).for_each(|i| recorder.record(happening(i)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.all::<Event>().len(), QUEUE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_found_no_server_is_tried_again_and_what_was_refused_is_not() {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let world = World::new(&context);
        let recorder = Recorder::core(&context, world.client(), Reporter::new("kubelet", "n"));
        let mut answers = vec![Status::service_unavailable("down"), Status::bad_request("no")];
        world.refuse(move |_| answers.pop());
        (0..2).for_each(|i| recorder.record(happening(i)));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let events = world.all::<Event>();
        let about: Vec<_> =
            events.iter().map(|event| event.involved_object.name.clone().unwrap()).collect();
        assert_eq!(about, ["web-1"]);
        let source = events[0].source.clone().unwrap();
        assert_eq!(
            (source.component.unwrap(), source.host.unwrap()),
            ("kubelet".into(), "n".into())
        );
        assert_eq!(events[0].metadata.namespace.as_deref(), Some("default"));
    }
}
