//! How an answer leaves: what a verb found, as the bytes the client asked for.
//!
//! ```text
//!  View (encoding, form) ─► one object, a table, a list ─┬─► spliced   JSON, from the stored bytes
//!                                                        ├─► pieces    protobuf, whose head says its length
//!                                                        └─► websocket what lasts, for browsers
//!  budget, holding: what an answer holds on to until it is sent  ─► gzip ─► gathered: frames, TLS records
//! ```
pub mod budget;
pub mod gathered;
pub mod gzip;
pub mod holding;
mod pieces;
mod spliced;
mod warnings;
pub mod websocket;

use crate::call::{Call, text};
use crate::ground::turns;
use crate::server::ApiServer;
use crate::state::stored;
use api::codec::object::{self, Encoding, TypeMeta};
use api::codec::protobuf::{self, ListEncoder};
use api::content::{self, Accepted, Endpoint, Target};
use api::kinds::{Resource, ResourceRef};
use api::meta::{IncludeObject, Table, TableRow};
use api::rules::Row;
use api::schema::{TypeRef, builtin};
use api::status::{Details, Status};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use pieces::Pieces;
use serde_json::{Value, json};
use spliced::Spliced;
use std::io;
use std::sync::Arc;
use store::KeyValue;
pub use warnings::with_warnings;

/// A stream may break off; whatever is in memory cannot.
pub type Body = BoxBody<Bytes, io::Error>;
pub type Answer = Response<Body>;

/// How the client wants objects: encoding and form.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub encoding: Encoding,
    /// Another form than the kind's own: a table, or metadata alone.
    pub target: Option<&'static Target>,
    include: IncludeObject,
    pretty: bool,
}

impl View {
    /// How a client wants what this endpoint has.
    pub fn of(call: &Call, headers: &HeaderMap, endpoint: Endpoint) -> Result<View, Status> {
        View::made(call, headers, content::negotiate(text(headers, header::ACCEPT), &endpoint)?)
    }

    pub fn of_stream(call: &Call, headers: &HeaderMap, endpoint: Endpoint) -> Result<View, Status> {
        let accepted = content::negotiate_stream(text(headers, header::ACCEPT), &endpoint)?;
        // A line is an event.
        Ok(View { pretty: false, ..View::made(call, headers, accepted)? })
    }

    fn made(call: &Call, headers: &HeaderMap, accepted: Accepted) -> Result<View, Status> {
        let shown = &call.shown;
        let include = match accepted.target.map(|target| target.kind) {
            Some("Table") => shown.include.clone()?,
            _ => IncludeObject::Metadata,
        };
        let for_people = || is_for_people(text(headers, header::USER_AGENT));
        let pretty = shown.pretty.unwrap_or_else(|| accepted.pretty || for_people());
        Ok(View { encoding: accepted.encoding, target: accepted.target, include, pretty })
    }

    /// Whether an object's JSON will do as it is.
    fn is_plain(&self) -> bool {
        self.encoding == Encoding::Json && self.target.is_none() && !self.pretty
    }

    /// Whether the stored bytes will do, once the resource version is in them.
    fn is_of_stored(&self, resource: &Resource) -> bool {
        self.is_plain() && resource.is_sent_as_stored()
    }

    /// Whether a list is built as a tree before it is written.
    pub fn makes_trees(&self) -> bool {
        match self.encoding {
            Encoding::Protobuf => self.form() == Some("Table"),
            _ => self.target.is_some() || self.pretty || self.encoding == Encoding::Yaml,
        }
    }

    fn form(&self) -> Option<&'static str> {
        self.target.map(|target| target.kind)
    }

    fn value(&self, code: StatusCode, tree: Value, ty: Option<TypeRef<'_>>) -> Answer {
        if self.pretty && self.encoding == Encoding::Json {
            let text = serde_json::to_vec_pretty(&tree).unwrap_or_default();
            return bytes(code, Encoding::Json.media_type(), text);
        }
        value(code, tree, ty, self.encoding)
    }
}

/// Programs that show an answer as it comes get it laid out.
fn is_for_people(user_agent: &str) -> bool {
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| user_agent.starts_with(program))
}

/// What a write left behind.
pub struct Written {
    pub object: Value,
    /// The object as the store has it, if it was stored.
    pub stored: Option<Arc<KeyValue>>,
    pub created: bool,
    pub warnings: Vec<String>,
}

/// One page of a list.
pub struct Page {
    pub objects: Vec<Arc<KeyValue>>,
    pub revision: u64,
    /// The token to go on with; empty at the end.
    pub next: String,
    pub remaining: Option<usize>,
}

pub fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

pub fn empty() -> Body {
    full(Bytes::new())
}

pub fn bytes(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with_body(code, content_type, full(body))
}

fn with_body(code: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

/// A failure, in the encoding the client reads.
pub fn failure(status: &Status, encoding: Encoding) -> Answer {
    let code = u16::try_from(status.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let mut answer = value(code, json!(status), meta_type("Status"), encoding);
    // Whatever the client shows of a failure, it is no page.
    let nosniff = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if retry > 0 {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    answer
}

/// A `Status` that is the answer of a verb.
pub fn status(code: StatusCode, status: &Status, view: &View) -> Answer {
    view.value(code, json!(status), meta_type("Status"))
}

/// What there is to say when something was done and left no object behind.
pub fn done(view: &View) -> Answer {
    let mut done = json!(Status::success(Details::default()));
    done["code"] = 201.into();
    if let Value::Object(fields) = &mut done {
        fields.remove("details");
    }
    view.value(StatusCode::CREATED, done, meta_type("Status"))
}

pub fn meta_type(kind: &str) -> Option<TypeRef<'static>> {
    builtin().named(&format!("meta/v1.{kind}"))
}

/// Any tree; protobuf needs its type.
pub fn value(
    code: StatusCode,
    value: Value,
    ty: Option<TypeRef<'_>>,
    encoding: Encoding,
) -> Answer {
    match (encoding, ty) {
        (Encoding::Protobuf, Some(ty)) => {
            bytes(code, encoding.media_type(), object::encode(&value, encoding, ty))
        }
        (Encoding::Yaml, _) => bytes(code, encoding.media_type(), api::codec::yaml::encode(&value)),
        _ => {
            let text = serde_json::to_vec(&value).unwrap_or_default();
            bytes(code, Encoding::Json.media_type(), text)
        }
    }
}

/// An object as it is stored: sent as it is, where the client wants just that.
pub fn stored(found: &KeyValue, resource: &Resource, view: &View) -> Result<Answer, Status> {
    if view.is_plain() {
        return Ok(match stored::read(found, resource)? {
            None => as_stored(StatusCode::OK, found),
            Some(tree) => object(StatusCode::OK, tree, resource, view),
        });
    }
    stored::check(found).map_err(|corrupt| corrupt.read())?;
    if view.encoding == Encoding::Protobuf {
        let body = in_protobuf(found, resource, view)?;
        return Ok(bytes(StatusCode::OK, view.encoding.media_type(), body));
    }
    Ok(object(StatusCode::OK, stored::decode(found, resource)?, resource, view))
}

/// A stored object in its envelope, whole or its metadata alone.
pub fn in_protobuf(found: &KeyValue, resource: &Resource, view: &View) -> Result<Vec<u8>, Status> {
    let (meta, ty) = match view.target {
        None => {
            let api_version = resource.api_version();
            (TypeMeta { api_version, kind: resource.kind.into() }, resource.ty())
        }
        Some(target) => {
            let ty = meta_type(target.kind).ok_or_else(|| no_protobuf(target.kind))?;
            (TypeMeta { api_version: "meta.k8s.io/v1".into(), kind: target.kind.into() }, ty)
        }
    };
    let (mut json, mut out) = (Vec::new(), Vec::new());
    write_item(found, resource, view, &mut json)?;
    protobuf::transcode(&json, &meta, ty, &mut out).map_err(Status::internal_error)?;
    Ok(out)
}

fn no_protobuf(kind: &str) -> Status {
    Status::internal_error(format!("{kind} has no protobuf form"))
}

/// Appends a stored object's JSON, in the version of the row it was asked by; or its metadata's,
/// if that is what the view is of.
fn write_item(
    found: &KeyValue,
    resource: &Resource,
    view: &View,
    out: &mut Vec<u8>,
) -> Result<(), Status> {
    match view.target {
        Some(_) => stored::write_partial(found, out),
        None => stored::write_read(found, resource, out)?,
    }
    Ok(())
}

/// An object that was written, as the store has it now if it does.
pub fn written(code: StatusCode, written: Written, resource: &Resource, view: &View) -> Answer {
    match written.stored {
        Some(stored) if view.is_of_stored(resource) => {
            let mut answer = as_stored(code, &stored);
            answer.extensions_mut().insert(Stored(stored));
            answer
        }
        _ => object(code, written.object, resource, view),
    }
}

/// What an answer's body says, as the store has it: for whoever asks within the process.
#[derive(Clone)]
pub struct Stored(pub Arc<KeyValue>);

fn as_stored(code: StatusCode, stored: &KeyValue) -> Answer {
    let mut out = Vec::with_capacity(stored.value.len() + 40);
    stored::write_json(stored, &mut out);
    bytes(code, Encoding::Json.media_type(), out)
}

/// An object that was just written or read.
pub fn object(code: StatusCode, object: Value, resource: &Resource, view: &View) -> Answer {
    match view.form() {
        Some("Table") => view.value(code, table_of(&object, resource, view), None),
        _ => of_type(code, object, resource.ty(), view),
    }
}

/// The same of an object that no row describes: what a subresource answers with.
pub fn of_type(code: StatusCode, object: Value, ty: TypeRef<'_>, view: &View) -> Answer {
    match view.form() {
        Some("PartialObjectMetadata") => {
            let partial = partial(object.get("metadata").cloned().unwrap_or_default());
            view.value(code, partial, meta_type("PartialObjectMetadata"))
        }
        _ => view.value(code, object, Some(ty)),
    }
}

/// A list, spliced together from the stored bytes where that can be.
pub async fn list(
    api: &ApiServer,
    page: Page,
    resource: &ResourceRef,
    view: &View,
) -> Result<Answer, Status> {
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    // Lists of custom objects say where they end, too: upstream's are trees, not Go types.
    let is_tree = resource.definition.is_some() && view.form().is_none();
    if !page.next.is_empty() || is_tree {
        metadata["continue"] = page.next.clone().into();
    }
    if let Some(remaining) = page.remaining.filter(|remaining| *remaining > 0) {
        metadata["remainingItemCount"] = remaining.into();
    }
    match view.form() {
        Some("Table") => {
            let now = Timestamp::now();
            let mut rows = Vec::with_capacity(page.objects.len());
            for stored in &page.objects {
                turns::share().await;
                let read = stored::decode(stored, resource);
                let Some(object) = api.unreadable().skip(stored, resource, read) else { continue };
                rows.push(row(&object, resource, view, now));
            }
            Ok(view.value(StatusCode::OK, table(rows, metadata, resource), None))
        }
        _ if view.is_plain() && resource.stored_as.is_none() => {
            let unreadable = api.unreadable().clone();
            let body = Spliced::new(page.objects, resource.clone(), &metadata, unreadable);
            let body = body.map_err(|never| match never {}).boxed();
            Ok(with_body(StatusCode::OK, Encoding::Json.media_type(), body))
        }
        form => {
            let (kind, api_version, ty) = match form {
                Some(kind) => (kind, "meta.k8s.io/v1".into(), meta_type(kind)),
                None => (resource.list_kind, resource.api_version(), resource.list_ty()),
            };
            let mut list = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
            let mut json = Vec::new();
            if view.encoding == Encoding::Protobuf {
                let encoder = ty.and_then(ListEncoder::new).ok_or_else(|| no_protobuf(kind))?;
                let mut pieces = Pieces::default();
                for stored in &page.objects {
                    turns::share().await;
                    json.clear();
                    let written = write_item(stored, resource, view, &mut json).and_then(|()| {
                        let out = pieces.next();
                        let before = out.len();
                        let done = encoder.item(&json, out);
                        done.inspect_err(|_| out.truncate(before)).map_err(Status::internal_error)
                    });
                    api.unreadable().skip(stored, resource, written);
                }
                let (before, after) = encoder.around(&list, pieces.length());
                let body = pieces.between(before, after).map_err(|never| match never {}).boxed();
                return Ok(with_body(StatusCode::OK, view.encoding.media_type(), body));
            }
            let mut items = Vec::with_capacity(page.objects.len());
            for stored in &page.objects {
                turns::share().await;
                json.clear();
                let item = write_item(stored, resource, view, &mut json)
                    .and_then(|()| api::depth::read(&json).map_err(Status::internal_error));
                items.extend(api.unreadable().skip(stored, resource, item));
            }
            list["items"] = Value::Array(items);
            Ok(view.value(StatusCode::OK, list, ty))
        }
    }
}

/// A list of what is not stored.
pub fn list_of(objects: Vec<Value>, resource: &Resource, view: &View) -> Answer {
    let (kind, api_version, ty) = match view.form() {
        Some("Table") => {
            let now = Timestamp::now();
            let rows = objects.iter().map(|object| row(object, resource, view, now)).collect();
            return view.value(StatusCode::OK, table(rows, json!({}), resource), None);
        }
        Some(kind) => (kind, "meta.k8s.io/v1".into(), meta_type(kind)),
        None => (resource.list_kind, resource.api_version(), resource.list_ty()),
    };
    let item = |object: Value| match view.form() {
        Some(_) => partial(object["metadata"].clone()),
        None => object,
    };
    let items: Vec<Value> = objects.into_iter().map(item).collect();
    let list = json!({ "kind": kind, "apiVersion": api_version, "metadata": {}, "items": items });
    view.value(StatusCode::OK, list, ty)
}

pub fn partial(metadata: Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// A table of one object.
pub fn table_of(object: &Value, resource: &Resource, view: &View) -> Value {
    let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
    table(vec![row(object, resource, view, Timestamp::now())], metadata, resource)
}

fn table(rows: Vec<TableRow<Value>>, metadata: Value, resource: &Resource) -> Value {
    let mut table = json!(Table::new("v1", Default::default(), resource.columns(), rows));
    table["metadata"] = metadata;
    table
}

fn row(object: &Value, resource: &Resource, view: &View, now: Timestamp) -> TableRow<Value> {
    // An object that cannot be read is still listed, if with empty cells.
    let Row { mut cells, conditions } =
        (resource.rules.row)(resource, object, now).unwrap_or_default();
    if resource.definition.is_none() {
        cells.resize(resource.rules.columns.len(), Value::Null);
    }
    let object = match view.include {
        IncludeObject::None => None,
        IncludeObject::Metadata => Some(partial(object["metadata"].clone())),
        IncludeObject::Object => Some(object.clone()),
    };
    TableRow { cells, conditions, object }
}
