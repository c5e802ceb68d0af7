//! A world in memory: a [`Source`] for components' tests.
//!
//! Objects have revisions, uids and finalizers, updates conflict, watches and streaming lists
//! work, and a test can break all of them. It is no API server: nothing is defaulted, validated
//! or admitted; server-side apply merges. What was asked is written down as lines (`create pods
//! default/web`), so that a test can say what it expects as text.
mod state;

use crate::context::Context;
use crate::source::{
    Answer, Ask, Call, Collection, Event, List, Outcome, Page, Raw, RawAnswer, Said, Source, Watch,
    WatchFrom,
};
use api::object::Object;
use api::rules::Form;
use api::status::{Details, Status};
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::Value;
use state::State;
use std::sync::Arc;
use tokio::sync::watch;

/// Cheap to clone; a clone is the same world.
#[derive(Clone)]
pub struct World {
    context: Context,
    state: Arc<Mutex<State>>,
    /// Counts what watches have to look at.
    changed: watch::Sender<u64>,
}

type Refusal = Box<dyn FnMut(&str) -> Option<Status> + Send>;

impl World {
    pub fn new(context: &Context) -> World {
        let state = Arc::new(Mutex::new(State::new(context)));
        World { context: context.clone(), state, changed: watch::Sender::new(0) }
    }

    pub fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }

    pub fn client(&self) -> crate::Client {
        crate::Client::new(self.source())
    }

    /// Puts an object there, whatever was there, as the cluster's user would; its status too.
    pub fn put<T: Form>(&self, object: &T) -> Arc<Object> {
        let tree = object.to_tree().expect("typed objects are JSON");
        self.put_tree(&crate::ApiResource::of::<T>(), tree)
    }

    pub fn put_tree(&self, resource: &crate::ApiResource, tree: Value) -> Arc<Object> {
        let object = self.state.lock().put(resource, tree);
        self.tell();
        object
    }

    /// Takes an object away at once.
    pub fn remove<T: Form>(&self, namespace: &str, name: &str) {
        self.state.lock().remove(&crate::ApiResource::of::<T>(), namespace, name);
        self.tell();
    }

    pub fn get<T: Form>(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let object = self.state.lock().get(&crate::ApiResource::of::<T>(), namespace, name)?;
        Some(object.typed().expect("it was put there as this type"))
    }

    pub fn get_tree(
        &self,
        resource: &crate::ApiResource,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let object = self.state.lock().get(resource, namespace, name)?;
        object.tree().ok()
    }

    /// All objects of a kind, by namespace and name.
    pub fn all<T: Form>(&self) -> Vec<Arc<T>> {
        let all = self.state.lock().select(&Collection::all(crate::ApiResource::of::<T>()));
        all.iter().map(|object| object.typed().expect("put there as this type")).collect()
    }

    pub fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// What was asked since the last time, one line each: `patch pods/status default/web`. Reads
    /// are not among it.
    pub fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().written)
    }

    /// Decides about every request from now on, by its line (`list pods`, `watch pods`,
    /// `update pods/status default/web`): some are refused.
    pub fn refuse(&self, refusal: impl FnMut(&str) -> Option<Status> + Send + 'static) {
        self.state.lock().refusal = Some(Box::new(refusal));
    }

    /// What is read at a path.
    pub fn page(&self, path: &str, answer: Value) {
        self.state.lock().pages.insert(path.to_owned(), answer);
    }

    pub fn refuse_nothing(&self) {
        self.state.lock().refusal = None;
    }

    /// Ends every watch, as a server does that restarts.
    pub fn end_watches(&self) {
        self.state.lock().generation += 1;
        self.tell();
    }

    /// Forgets all history: watches from before are told that it is gone.
    pub fn compact(&self) {
        self.state.lock().compact();
        self.tell();
    }

    /// Watches say nothing until they go on: what is written is not seen.
    pub fn hold_watches(&self, hold: bool) {
        self.state.lock().held = hold;
        self.tell();
    }

    /// Tells every watch how far the world is.
    pub fn bookmark(&self) {
        self.state.lock().bookmarks += 1;
        self.tell();
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn check(&self, line: &str) -> Result<(), Status> {
        let mut state = self.state.lock();
        match state.refusal.as_mut().and_then(|refusal| refusal(line)) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    fn act(&self, call: Call) -> Result<Outcome, Status> {
        let line = line_of(&call);
        self.check(&line)?;
        let mut state = self.state.lock();
        if !matches!(call.ask, Ask::Get) {
            state.written.push(line);
        }
        let said = state.act(&self.context, call)?;
        drop(state);
        self.tell();
        Ok(Outcome { object: said, warnings: Vec::new() })
    }
}

fn line_of(call: &Call) -> String {
    let (verb, generated) = match &call.ask {
        Ask::Get => ("get", None),
        Ask::Create(body, _) => ("create", Some(body)),
        Ask::Update(..) => ("update", None),
        Ask::Patch(..) => ("patch", None),
        Ask::Delete(_) => ("delete", None),
        Ask::DeleteCollection(..) => ("deletecollection", None),
    };
    let part = if call.subresource.is_empty() { "" } else { "/" };
    let text = |field: &str| {
        let body = generated.filter(|_| call.name.is_empty())?;
        body["metadata"][field].as_str().filter(|text| !text.is_empty())
    };
    let name = text("name").or(text("generateName")).unwrap_or(&call.name);
    let key = api::names::NamespacedName::new(&call.namespace, name);
    format!("{verb} {}{part}{} {key}", call.resource, call.subresource)
}

impl Source for World {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        async move { self.act(call) }.boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        async move {
            self.check(&format!("list {}", of.resource))?;
            Ok(self.state.lock().list(&of, &page))
        }
        .boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        async move {
            self.check(&format!("watch {}", of.resource))?;
            let cursor = self.state.lock().cursor(of, &from)?;
            let steps = stream::unfold(Some((self.clone(), cursor)), |state| async {
                let (world, mut cursor) = state?;
                let mut changed = world.changed.subscribe();
                loop {
                    let next = world.state.lock().next(&mut cursor);
                    match next {
                        Some(Ok(Some(event))) => return Some((Ok(event), Some((world, cursor)))),
                        Some(Ok(None)) => return None,
                        Some(Err(status)) => return Some((Err(status), None)),
                        None => drop(changed.changed().await),
                    }
                }
            });
            Ok(steps.boxed())
        }
        .boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        async move {
            self.check(&format!("read {}", request.path))?;
            let Some(answer) = self.state.lock().pages.get(&request.path).cloned() else {
                return Err(Status::bad_request(format!("nothing is at {}", request.path)));
            };
            let body = stream::once(async move { Ok(answer.to_string().into()) }).boxed();
            Ok(RawAnswer { code: 200, content_type: "application/json".to_owned(), body })
        }
        .boxed()
    }
}

fn done() -> Said {
    Said::Status(Box::new(Status::success(Details::default())))
}

fn event(kind: state::Kind, object: Arc<Object>) -> Event {
    match kind {
        state::Kind::Added => Event::Added(object),
        state::Kind::Modified => Event::Modified(object),
        state::Kind::Deleted => Event::Deleted(object),
    }
}
