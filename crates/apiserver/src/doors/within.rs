//! The API as a function: how a component in this process asks.
//!
//! The question is the one that it would send, but nothing is sent: no connection, no TLS, nothing
//! encoded. On its way it passes what everybody's passes (audit, authorization, fairness, admission),
//! and what is read comes back as the server's own objects, each of which is there once for all who
//! hold it. What is no object (documents, logs, other servers' groups) is asked over a connection within
//! the process.
use crate::answer::{Answer as Sent, Page as Listed, Stored};
use crate::asked::Received;
use crate::call::{
    Call, DeleteOptions, ListOptions, Options, Place, Selectors, Shown, Token, WatchOptions,
    WriteOptions,
};
use crate::doors::listen::Connections;
use crate::doors::request::{self, Target};
use crate::doors::serve;
use crate::guard::audit::Trail;
use crate::guard::authn::{Peer, User};
use crate::guard::authz::Attributes;
use crate::guard::in_flight;
use crate::server::ApiServer;
use crate::state::stored;
use crate::verbs::{self, Context as Verb, Running, Telling, Told};
use api::kinds::{self, ResourceRef};
use api::meta::EventType;
use api::object::Object;
use api::status::{Outcome as Success, Status};
use client::https::Https;
use client::source::{
    self, Answer, Ask, Collection, Event, List, Outcome, Page, Raw, RawAnswer, Said, Source, Watch,
    WatchFrom,
};
use client::{Context, http::Dial};
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::KeyValue;
use store::cache::At;

/// How often a question is repeated that the server asked to repeat, as clients elsewhere do.
const RETRIES: u32 = 10;
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The API as one user of this process has it. Cheap to clone.
#[derive(Clone)]
pub struct Within {
    api: ApiServer,
    context: Context,
    user: Arc<User>,
    agent: HeaderValue,
    beyond: Https,
}

impl Within {
    /// `component` is how it is known in the audit log and as an owner of fields.
    pub fn new(
        connections: &Connections,
        context: &Context,
        component: &str,
        user: &User,
    ) -> Result<Within, client::https::Error> {
        let dial: Dial = {
            let (connections, user) = (connections.clone(), user.clone());
            Arc::new(move || connections.within(user.clone()))
        };
        let beyond = Https::within(context, component, dial)?;
        Ok(Within {
            api: connections.api().clone(),
            context: context.clone(),
            user: Peer::within(user.clone()).user().cloned().unwrap_or_default(),
            agent: beyond.user_agent().clone(),
            beyond,
        })
    }

    /// Asks until the server does not want to be asked again.
    async fn ask(&self, wanted: &Question) -> Result<Asked, Status> {
        for attempt in 0.. {
            let refused = match self.ask_once(wanted).await {
                Err(status) => status,
                done => return done,
            };
            match wait_of(&refused).filter(|_| attempt < RETRIES) {
                Some(wait) if self.context.sleep(wait).await => {}
                _ => return Err(refused),
            }
        }
        unreachable!("the loop ends with an answer")
    }

    async fn ask_once(&self, wanted: &Question) -> Result<Asked, Status> {
        let request = self.request(&wanted.request)?;
        let path = request.uri().path();
        let is_watch = matches!(wanted.options, Options::Watch(_));
        let said = |_| (wanted.options.clone(), Shown::default());
        let registry = self.api.registry();
        let target = request::parse_with(&registry, request.method(), path, is_watch, said);
        let Target::Call(call) = target else { return Ok(Asked::Beyond) };
        if call.is_passed_on() || self.api.extend().aggregation.find(path).is_some() {
            return Ok(Asked::Beyond);
        }
        let passage = Passage::begin(&self.api, &self.user, *call, &request).await?;
        if in_flight::reads(passage.call.verb) {
            return passage.run(request, None).await;
        }
        // What writes is finished and recorded, whatever becomes of the one who asked.
        match tokio::spawn(passage.run(request, wanted.given.clone())).await {
            Ok(outcome) => outcome,
            Err(broken) => Err(Status::internal_error(format!("a request panicked: {broken}"))),
        }
    }

    fn request(&self, wanted: &source::Request) -> Result<Request<()>, Status> {
        let mut request = Request::new(());
        *request.method_mut() = wanted.method.clone();
        *request.uri_mut() = wanted.path.parse().map_err(|_| {
            Status::bad_request(format!("{:?} cannot be part of a request", wanted.path))
        })?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, self.agent.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if !wanted.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(wanted.content_type));
        }
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        request.extensions_mut().insert(here);
        Ok(request)
    }
}

/// When the server wants to be asked again, if it does.
fn wait_of(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    let is_busy = status.code == 429 || status.code >= 500;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| is_busy && *seconds > 0)?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// What is asked, as a request and in the words of this server.
struct Question {
    request: source::Request,
    /// What is to be written.
    given: Option<Arc<Value>>,
    options: Options,
}

impl Question {
    fn of_call(call: &source::Call) -> Question {
        let request = source::Request::without_body(call);
        let given = match &call.ask {
            Ask::Create(object, _) | Ask::Update(object, _) => Some(Arc::new(object.clone())),
            Ask::Patch(patch, _) => Some(Arc::new(patch.value().clone())),
            Ask::Get | Ask::Delete(_) | Ask::DeleteCollection(..) => None,
        };
        let options = match &call.ask {
            Ask::Get => Options::None,
            Ask::Create(_, options) | Ask::Update(_, options) | Ask::Patch(_, options) => {
                Options::Write(written(options))
            }
            Ask::Delete(options) => Options::Delete(DeleteOptions::read(&options.tree())),
            Ask::DeleteCollection(options, selectors) => {
                let (labels, fields) = selectors.as_ref().clone();
                let list =
                    ListOptions { selectors: Selectors { labels, fields }, ..Default::default() };
                let delete = DeleteOptions::read(&options.tree());
                Options::DeleteCollection(delete.map(|delete| (delete, list)))
            }
        };
        Question { request, given, options }
    }

    fn of_list(of: &Collection, page: &Page) -> Question {
        let place = match page.continue_token.as_str() {
            "" => Ok(Place::Beginning(match page.at {
                source::At::Latest => At::Latest,
                source::At::Any => At::Any,
                source::At::NotOlderThan(revision) => At::NotOlderThan(revision),
                source::At::Exactly(revision) => At::Exactly(revision),
            })),
            token => Token::read(token).map(Place::After),
        };
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let list = ListOptions { selectors: selectors(of), limit, place };
        let request = source::Request::list(of, page);
        Question { request, given: None, options: Options::List(Ok(list)) }
    }

    fn of_watch(of: &Collection, from: &WatchFrom) -> Question {
        let watch = WatchOptions {
            selectors: selectors(of),
            version: Ok(Some(from.revision).filter(|revision| *revision > 0)),
            initial_events: from.initial_events,
            bookmarks: true,
            lifetime: from.timeout,
        };
        let request = source::Request::watch(of, from);
        Question { request, given: None, options: Options::Watch(Ok(watch)) }
    }
}

fn selectors(of: &Collection) -> Selectors {
    Selectors { labels: of.labels.clone(), fields: of.fields.clone() }
}

fn written(options: &source::Write) -> WriteOptions {
    WriteOptions {
        dry_run: options.dry_run,
        field_manager: options.field_manager.clone(),
        field_validation: options.field_validation,
        force: options.force.then_some(true),
        faults: Vec::new(),
    }
}

/// What a question came to.
enum Asked {
    Object(Arc<Object>),
    List(List),
    Watch(Watch),
    /// What a verb says that answers with something of its own.
    Answer(Outcome),
    /// It is not for the function to answer.
    Beyond,
}

/// A request on its way through the server.
struct Passage {
    api: ApiServer,
    user: Arc<User>,
    call: Call,
    trail: Trail,
    wanted: Attributes,
}

impl Passage {
    async fn begin<B>(
        api: &ApiServer,
        user: &Arc<User>,
        call: Call,
        request: &Request<B>,
    ) -> Result<Passage, Status> {
        let wanted = Attributes::of_call(&call);
        let mut trail = Trail::new(api.audit().clone(), &HeaderMap::new());
        trail.begin(user, &wanted, request, crate::state::metrics::is_long(&call)).await?;
        if let Some(record) = trail.record()
            && let Options::Delete(Ok(said)) | Options::DeleteCollection(Ok((said, _))) =
                &call.options
        {
            record.request_object(&DeleteOptions::recorded(said.tree()));
        }
        Ok(Passage { api: api.clone(), user: user.clone(), call, trail, wanted })
    }

    async fn run(self, request: Request<()>, given: Option<Arc<Value>>) -> Result<Asked, Status> {
        let begun = Instant::now();
        let (api, call) = (&self.api, &self.call);
        let received = Received::within(self.user.clone(), self.trail.record(), request, given);
        let is_apply = received.is_apply();
        let outcome = self.answer(&received).await;
        let (code, failure) = match &outcome {
            Ok((code, _)) => (*code, None),
            Err(status) => (u16::try_from(status.code).unwrap_or(500), Some(status)),
        };
        api.metrics().answered(call, is_apply, code, begun.elapsed());
        let lasting = self.trail.ended(code, failure).await;
        outcome.map(|(_, asked)| match asked {
            // Its record ends with it.
            Asked::Watch(watch) => Asked::Watch(watch.chain(until_dropped(lasting)).boxed()),
            asked => asked,
        })
    }

    async fn answer(&self, received: &Received) -> Result<(u16, Asked), Status> {
        let (api, call) = (&self.api, &self.call);
        serve::authorize(api, &self.user, &self.wanted, &self.trail).await?;
        let _seat =
            serve::wait_for_seat(api, &self.user, &self.wanted, Some(call), &mut None).await?;
        if verbs::is_of_objects(call) {
            let wants_answer =
                || self.trail.record().filter(|record| record.wants_response_object());
            match call.verb {
                kinds::Verb::Get => {
                    let found = in_time(api, get(api, call)).await?;
                    if let Some(record) = wants_answer() {
                        record.response_object(found.tree().map_err(Status::internal_error)?);
                    }
                    return Ok((200, Asked::Object(found)));
                }
                kinds::Verb::List => {
                    let found = in_time(api, list(api, call)).await?;
                    if let Some(record) = wants_answer() {
                        record.response_object(tree_of(&found, &call.resource));
                    }
                    return Ok((200, Asked::List(found)));
                }
                kinds::Verb::Watch => return Ok((200, Asked::Watch(watch(api, call).await?))),
                _ => {}
            }
        }
        let (mut sent, warnings) = serve::within_limits(Verb { api, call, received }).await?;
        if let Some(record) = self.trail.record().filter(|record| record.wants_response_object()) {
            sent = record.with_response_object(sent).await;
        }
        let code = sent.status().as_u16();
        Ok((code, Asked::Answer(said(sent, call, warnings).await?)))
    }
}

/// Ends at once, and holds this until then.
fn until_dropped<T: Send + 'static, I: Send + 'static>(
    held: T,
) -> impl futures_util::Stream<Item = I> + Send {
    stream::once(async move {
        drop(held);
        None
    })
    .filter_map(std::future::ready)
}

/// A stored object as all in this process share it.
fn object(found: &Arc<KeyValue>, resource: &ResourceRef) -> Result<Arc<Object>, Status> {
    match stored::read(found, resource)? {
        None => {
            let made = || Object::stored(found.value.clone(), found.mod_revision);
            Ok(found.slot.share(made))
        }
        Some(tree) => Object::from_tree(&tree).map(Arc::new).map_err(Status::internal_error),
    }
}

/// What only reads has as long as everybody's requests.
async fn in_time<T>(
    api: &ApiServer,
    reading: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let outcome = tokio::time::timeout(api.request_timeout(), reading).await;
    outcome.unwrap_or_else(|_| Err(serve::too_late()))
}

/// A list as it would have been sent.
fn tree_of(list: &List, resource: &ResourceRef) -> Value {
    let items: Vec<Value> = list.items.iter().filter_map(|item| item.tree().ok()).collect();
    let mut metadata = json!({ "resourceVersion": list.revision.to_string() });
    if !list.continue_token.is_empty() {
        metadata["continue"] = list.continue_token.as_str().into();
    }
    if let Some(remaining) = list.remaining_item_count {
        metadata["remainingItemCount"] = remaining.into();
    }
    json!({ "kind": resource.list_kind, "apiVersion": resource.api_version(),
        "metadata": metadata, "items": items })
}

async fn get(api: &ApiServer, call: &Call) -> Result<Arc<Object>, Status> {
    let found = verbs::current(api, &call.resource, &call.namespace, &call.name).await?;
    object(&found, &call.resource)
}

async fn list(api: &ApiServer, call: &Call) -> Result<List, Status> {
    let Listed { objects, revision, next, remaining } =
        verbs::page(api, call, &call.list_options()?).await?;
    let readable = |found: &Arc<KeyValue>| {
        api.unreadable().skip(found, &call.resource, object(found, &call.resource))
    };
    Ok(List {
        items: objects.iter().filter_map(readable).collect(),
        revision,
        continue_token: next,
        remaining_item_count: remaining.and_then(|count| i64::try_from(count).ok()),
    })
}

async fn watch(api: &ApiServer, call: &Call) -> Result<Watch, Status> {
    let telling = Telling::start(api, call).await?;
    let running = Running::new(api, call);
    let (api, resource) = (api.clone(), call.resource.clone());
    let batches = stream::unfold(Some((telling, running)), |state| async move {
        let (mut telling, running) = state?;
        match telling.next().await? {
            Ok(told) => Some((Ok(told), Some((telling, running)))),
            Err(status) => Some((Err(status), None)),
        }
    });
    let events = batches.flat_map(move |batch| {
        let told: Vec<Result<Event, Status>> = match batch {
            Ok(told) => {
                told.into_iter().filter_map(|told| event(&api, &resource, told).map(Ok)).collect()
            }
            Err(status) => vec![Err(status)],
        };
        stream::iter(told)
    });
    Ok(events.boxed())
}

fn event(api: &ApiServer, resource: &ResourceRef, told: Told) -> Option<Event> {
    let (kind, found) = match told {
        Told::Object(kind, found) => (kind, found),
        Told::Bookmark { revision, initial_end } => {
            return Some(Event::Bookmark { revision, initial_events_end: initial_end });
        }
    };
    let object = api.unreadable().skip(&found, resource, object(&found, resource))?;
    match kind {
        EventType::Added => Some(Event::Added(object)),
        EventType::Modified => Some(Event::Modified(object)),
        EventType::Deleted => Some(Event::Deleted(object)),
        EventType::Bookmark | EventType::Error => None,
    }
}

/// What a verb answered, as whoever asked has it.
async fn said(sent: Sent, call: &Call, warnings: Vec<String>) -> Result<Outcome, Status> {
    if let Some(Stored(stored)) = sent.extensions().get() {
        let object = Said::Object(object(stored, &call.resource)?);
        return Ok(Outcome { object, warnings });
    }
    let body = sent.into_body().collect().await;
    let body = body.map_err(Status::internal_error)?.to_bytes();
    let is_collection = call.verb == kinds::Verb::DeleteCollection;
    let kind = api::codec::object::TypeMeta::from_json(&body).map_err(Status::internal_error)?;
    // Deleting a collection answers with what was deleted, of which nobody asks for more.
    let object = match is_collection || (kind.kind == "Status" && kind.api_version == "v1") {
        true => {
            let status: Status = serde_json::from_slice(&body).unwrap_or_default();
            Said::Status(Box::new(Status { status: Success::Success, ..status }))
        }
        false => Said::Object(Arc::new(Object::received(body).map_err(Status::internal_error)?)),
    };
    Ok(Outcome { object, warnings })
}

impl Source for Within {
    fn call(&self, call: source::Call) -> Answer<'_, Outcome> {
        async move {
            match self.ask(&Question::of_call(&call)).await? {
                Asked::Object(object) => {
                    Ok(Outcome { object: Said::Object(object), warnings: Vec::new() })
                }
                Asked::Answer(outcome) => Ok(outcome),
                Asked::Beyond => self.beyond.call(call).await,
                Asked::List(_) | Asked::Watch(_) => Err(no_call(&call.name)),
            }
        }
        .boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        async move {
            match self.ask(&Question::of_list(&of, &page)).await? {
                Asked::List(list) => Ok(list),
                _ => self.beyond.list(of, page).await,
            }
        }
        .boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        async move {
            match self.ask(&Question::of_watch(&of, &from)).await? {
                Asked::Watch(watch) => Ok(watch),
                _ => self.beyond.watch(of, from).await,
            }
        }
        .boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        self.beyond.raw(request)
    }
}

fn no_call(name: &str) -> Status {
    Status::bad_request(format!("{name:?} does not name one object"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::audit::{Audit, LogOptions, Policy};
    use crate::testing::Server;
    use api::codec::FieldValidation;
    use client::ApiResource;
    use client::source::{Delete, Write};
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::borrow::Cow;

    fn within(server: &Server) -> Within {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        let user = User { name: "component".into(), groups, ..User::default() };
        Within::new(server.connections(), &Context::new(), "component", &user).expect("a door")
    }

    fn call(name: &str, ask: Ask) -> source::Call {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let resource = ApiResource::of::<ConfigMap>();
        source::Call { resource, namespace, name, subresource: Cow::Borrowed(""), ask }
    }

    fn all() -> Collection {
        Collection::all(ApiResource::of::<ConfigMap>()).in_namespace("default")
    }

    fn anywhere() -> Collection {
        Collection::all(ApiResource::of::<ConfigMap>())
    }

    #[tokio::test]
    async fn a_read_takes_no_longer_than_anybodys() {
        let short = Duration::from_millis(300);
        let server = Server::start_with(|options| options.request_timeout = short).await;
        let page = Page { at: source::At::NotOlderThan(1 << 40), ..Page::default() };
        let begun = Instant::now();
        let refused = within(&server).ask_once(&Question::of_list(&all(), &page)).await;
        let refused = refused.err().expect("there is no such revision");
        assert_eq!(refused.code, 504, "{refused:?}");
        // The cache itself would wait for seconds.
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    /// What is asked within the process is done as it would be over HTTP, options and all.
    #[tokio::test]
    async fn options_are_the_same_through_both_doors() {
        let server = Server::start().await;
        let door = within(&server);
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" },
            "data": { "k": "v" } });
        let made = |write: Write| door.call(call("", Ask::Create(map.clone(), write)));
        made(Write { dry_run: true, ..Write::default() }).await.expect("it could be made");
        let missing = door.call(call("a", Ask::Get)).await.expect_err("it was not made");
        assert_eq!(missing.code, 404);
        let outcome = made(Write::managed_by("tester")).await.expect("it is made");
        let tree = outcome.object().expect("an object").tree().expect("JSON");
        assert_eq!(tree["metadata"]["managedFields"][0]["manager"], "tester");
        let refused = made(Write::managed_by("\u{7}")).await.expect_err("no name of a manager");
        assert_eq!(refused.code, 422, "{refused:?}");
        let mut names = Vec::new();
        let mut page = Page { limit: 1, ..Page::default() };
        loop {
            let List { items, continue_token, .. } =
                door.list(anywhere(), page.clone()).await.expect("a page");
            names.extend(items.iter().map(|item| item.name().to_owned()));
            if continue_token.is_empty() {
                break;
            }
            assert_eq!(items.len(), 1);
            page.continue_token = continue_token;
        }
        let whole = door.list(anywhere(), Page::default()).await.expect("a list");
        assert_eq!(names, whole.items.iter().map(|item| item.name()).collect::<Vec<_>>());
        assert!(names.len() > 1 && names.contains(&"a".to_owned()), "{names:?}");
        let another = Delete { dry_run: true, ..Delete::uid("another") };
        let refused = door.call(call("a", Ask::Delete(another))).await.expect_err("not that one");
        assert_eq!(refused.code, 409, "{refused:?}");
        let dry = Delete { dry_run: true, ..Delete::default() };
        door.call(call("a", Ask::Delete(dry))).await.expect("it could be deleted");
        door.call(call("a", Ask::Get)).await.expect("it is still there");
        door.call(call("a", Ask::Delete(Delete::default()))).await.expect("it is deleted");
        assert_eq!(door.call(call("a", Ask::Get)).await.expect_err("gone").code, 404);
    }

    /// Nothing is written down and read again on the way: what a write answers is the object that
    /// readers have.
    #[tokio::test]
    async fn what_is_written_is_what_all_share() {
        let server = Server::start().await;
        let door = within(&server);
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" },
            "data": { "k": "v" } });
        let object = |outcome: Outcome| match outcome.object {
            Said::Object(object) => object,
            Said::Status(status) => panic!("{status:?}"),
        };
        let made = door.call(call("", Ask::Create(map.clone(), Write::default()))).await;
        let made = object(made.expect("it is made"));
        let read = object(door.call(call("a", Ask::Get)).await.expect("it is there"));
        assert!(Arc::ptr_eq(&made, &read));
        let patch = source::Patch::Merge(json!({ "data": { "k": "w" } }));
        let patched = door.call(call("a", Ask::Patch(patch, Write::default()))).await;
        let patched = object(patched.expect("it is changed"));
        assert!(patched.revision() > made.revision());
        let read = object(door.call(call("a", Ask::Get)).await.expect("it is there"));
        assert!(Arc::ptr_eq(&patched, &read));
        assert_eq!(read.tree().expect("JSON")["data"]["k"], "w");
        // What does not fit is refused as it is elsewhere.
        for (wrong, fault) in [
            (json!({ "metadata": { "name": "b" }, "data": { "k": 1 } }), "cannot unmarshal"),
            (
                json!({ "kind": "Secret", "metadata": { "name": "b" } }),
                "cannot be handled as a ConfigMap",
            ),
        ] {
            let refused = door.call(call("", Ask::Create(wrong, Write::default()))).await;
            let refused = refused.expect_err(fault);
            assert_eq!(refused.code, 400, "{refused:?}");
            assert!(refused.message.contains(fault), "{}", refused.message);
        }
        let strict = Write { field_validation: Some(FieldValidation::Strict), ..Write::default() };
        let unknown = json!({ "metadata": { "name": "b" }, "dada": {} });
        let refused = door.call(call("", Ask::Create(unknown, strict))).await.expect_err("strict");
        assert!(refused.message.contains("unknown field \"dada\""), "{}", refused.message);
    }

    #[tokio::test]
    async fn the_audit_log_shows_what_was_answered_within_the_process() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("audit.log");
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: RequestResponse, users: [component]}\n";
        let policy = Policy::parse(policy.as_bytes()).expect("a policy");
        let log = LogOptions::unattended(path.clone());
        let audit = Audit::new(Some(policy), Some(log), None).expect("a log");
        let server = Server::start_with(|options| options.audit = audit).await;
        let door = within(&server);
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" },
            "data": { "k": "v" } });
        let made = door.call(call("", Ask::Create(map, Write::default()))).await;
        made.expect("it is made");
        door.call(call("a", Ask::Get)).await.expect("it is there");
        let list = door.list(all(), Page::default()).await.expect("a list");
        door.call(call("a", Ask::Delete(Delete::default().after(7)))).await.expect("deleted");
        server.api.audit().flush().await;
        let text = std::fs::read_to_string(path).expect("a log");
        let events: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
        let of = |verb: &str| {
            let mut found = events.iter().filter(|event| event["verb"] == verb);
            found.next().unwrap_or_else(|| panic!("{verb}: {text}"))
        };
        assert_eq!(of("create")["responseObject"]["data"]["k"], "v");
        assert_eq!(of("get")["responseObject"]["data"]["k"], "v");
        let listed = &of("list")["responseObject"];
        assert_eq!(
            (&listed["kind"], &listed["apiVersion"]),
            (&json!("ConfigMapList"), &json!("v1"))
        );
        assert_eq!(listed["metadata"]["resourceVersion"], list.revision.to_string());
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(list.items.len()), "{listed}");
        assert_eq!(of("delete")["requestObject"]["gracePeriodSeconds"], 7);
    }
}
