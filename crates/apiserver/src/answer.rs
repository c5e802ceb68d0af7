//! What a verb found, as the bytes the client asked for.
use crate::stored;
use api::codec::object::{self, Encoding};
use api::content::Accepted;
use api::duration::Duration;
use api::kinds::Resource;
use api::meta::{Table, TableColumnDefinition, TableRow};
use api::schema::{TypeRef, builtin};
use api::status::Status;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use store::KeyValue;

pub type Body = BoxBody<Bytes, Infallible>;
pub type Answer = Response<Body>;

/// One page of a list.
pub struct Page {
    pub objects: Vec<Arc<KeyValue>>,
    pub revision: u64,
    /// The token to go on with; empty at the end.
    pub next: String,
    pub remaining: Option<usize>,
}

pub fn bytes(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed());
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
    if retry > 0 {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    answer
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
        _ => bytes(code, Encoding::Json.media_type(), value.to_string()),
    }
}

/// An object that was just written or read.
pub fn object(code: StatusCode, object: Value, ty: TypeRef<'_>, accepted: &Accepted) -> Answer {
    match accepted.target.map(|target| target.kind) {
        Some("Table") => {
            let row = row(&object, object.get("metadata").cloned().unwrap_or_default());
            table(vec![row], json!({"resourceVersion": object["metadata"]["resourceVersion"]}))
        }
        Some("PartialObjectMetadata") => {
            let partial = partial(object.get("metadata").cloned().unwrap_or_default());
            value(code, partial, meta_type("PartialObjectMetadata"), accepted.encoding)
        }
        _ => value(code, object, Some(ty), accepted.encoding),
    }
}

/// A list, spliced together from the stored bytes where that can be.
pub fn list(page: &Page, resource: &Resource, accepted: &Accepted) -> Result<Answer, Status> {
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    if !page.next.is_empty() {
        metadata["continue"] = page.next.clone().into();
    }
    if let Some(remaining) = page.remaining.filter(|remaining| *remaining > 0) {
        metadata["remainingItemCount"] = remaining.into();
    }
    let trees = || page.objects.iter().map(|stored| stored::decode(stored, resource));
    match accepted.target.map(|target| target.kind) {
        Some("Table") => {
            let rows: Result<Vec<_>, Status> = trees()
                .map(|object| {
                    object.map(|object| {
                        row(&object, object.get("metadata").cloned().unwrap_or_default())
                    })
                })
                .collect();
            Ok(table(rows?, metadata))
        }
        Some("PartialObjectMetadataList") => {
            let items: Result<Vec<Value>, Status> = trees()
                .map(|object| object.map(|mut object| partial(object["metadata"].take())))
                .collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items?,
            });
            Ok(value(
                StatusCode::OK,
                list,
                meta_type("PartialObjectMetadataList"),
                accepted.encoding,
            ))
        }
        _ if accepted.encoding == Encoding::Json && resource.stored_as.is_none() => Ok(bytes(
            StatusCode::OK,
            Encoding::Json.media_type(),
            spliced(page, resource, &metadata),
        )),
        _ => {
            let items: Result<Vec<Value>, Status> = trees().collect();
            let list = json!({
                "kind": resource.list_kind, "apiVersion": resource.api_version(),
                "metadata": metadata, "items": items?,
            });
            Ok(value(StatusCode::OK, list, resource.list_ty(), accepted.encoding))
        }
    }
}

fn spliced(page: &Page, resource: &Resource, metadata: &Value) -> Vec<u8> {
    let size: usize = page.objects.iter().map(|stored| stored.value.len() + 40).sum();
    let mut out = Vec::with_capacity(size + 200);
    let head = json!({ "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata });
    out.extend_from_slice(head.to_string().as_bytes());
    out.pop();
    out.extend_from_slice(b",\"items\":[");
    for (i, stored) in page.objects.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        stored::write_json(stored, &mut out);
    }
    out.extend_from_slice(b"]}");
    out
}

pub fn partial(metadata: Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// Name and age: what every kind has. A kind's own columns come with its rules.
pub fn row(object: &Value, metadata: Value) -> TableRow<Value> {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let created =
        meta["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let age = created.map_or_else(
        || "<unknown>".to_owned(),
        |created| Duration::from_secs(Timestamp::now().as_second() - created.as_second()).human(),
    );
    TableRow {
        cells: vec![name.into(), age.into()],
        conditions: Vec::new(),
        object: Some(partial(metadata)),
    }
}

pub fn columns() -> Vec<TableColumnDefinition> {
    vec![
        TableColumnDefinition::new("Name", "string", "name", 0, "The name of the object."),
        TableColumnDefinition::new("Age", "string", "", 0, "How long ago the object was created."),
    ]
}

fn table(rows: Vec<TableRow<Value>>, metadata: Value) -> Answer {
    let mut table = json!(Table::new("v1", Default::default(), columns(), rows));
    table["metadata"] = metadata;
    value(StatusCode::OK, table, None, Encoding::Json)
}
