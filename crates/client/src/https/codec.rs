//! What a server sent, as objects.
use crate::resource::ApiResource;
use crate::source::{List, Said};
use ::http::{Response, header};
use api::codec::DecodeError;
use api::codec::object::TypeMeta;
use api::codec::protobuf;
use api::kinds::Resource;
use api::meta::ListMeta;
use api::object::Object;
use api::schema::{TypeRef, builtin};
use api::status::{Outcome, Status};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Read;
use std::sync::Arc;

pub(super) const JSON: &str = "application/json";
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";
const JSON_STREAM: &str = "application/json;stream=watch,application/json";
const PROTOBUF_OR_JSON_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch,\
    application/json;stream=watch,application/json";

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Protobuf,
}

impl Form {
    pub fn of<B>(answer: &Response<B>) -> Form {
        let content_type = answer.headers().get(header::CONTENT_TYPE);
        let text = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        match text.starts_with("application/vnd.kubernetes.protobuf") {
            true => Form::Protobuf,
            false => Form::Json,
        }
    }
}

/// Protobuf is for kinds whose schema we have.
pub(super) fn accepted(resource: &ApiResource) -> &'static str {
    if has_protobuf(resource) { PROTOBUF_OR_JSON } else { JSON }
}

pub(super) fn accepted_in_watch(resource: &ApiResource) -> &'static str {
    if has_protobuf(resource) { PROTOBUF_OR_JSON_STREAM } else { JSON_STREAM }
}

/// Definitions are the exception: upstream's server sends them as protobuf, too, but with schemas
/// as JSON inside; and aggregated servers have what they have.
fn has_protobuf(resource: &ApiResource) -> bool {
    resource.row.is_some()
}

pub(super) fn unpack(body: &[u8]) -> Result<Bytes, Status> {
    let mut out = Vec::with_capacity(body.len() * 6);
    let read = flate2::read::MultiGzDecoder::new(body).read_to_end(&mut out);
    read.map_err(|error| unreadable(&error))?;
    Ok(out.into())
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Status {
    Status::internal_error(format!("unable to decode an answer: {error}"))
}

/// A body that is a `Status`.
pub(super) fn status(body: &[u8], form: Form) -> Option<Status> {
    let tree: Value = match form {
        Form::Json => serde_json::from_slice(body).ok()?,
        Form::Protobuf => {
            let meta = protobuf::type_meta(body).ok()?;
            (meta.kind == "Status").then_some(())?;
            protobuf::decode(body, builtin().kind("", "v1", "Status")?).ok()?
        }
    };
    (tree["kind"] == "Status").then(|| serde_json::from_value(tree).ok())?
}

/// The answer to a call.
pub(super) fn said(
    body: &Bytes,
    form: Form,
    resource: &ApiResource,
    subresource: &str,
    is_collection: bool,
) -> Result<Said, Status> {
    let meta = match form {
        Form::Json => TypeMeta::from_json(body),
        Form::Protobuf => protobuf::type_meta(body),
    };
    let meta = meta.map_err(|error| unreadable(&error))?;
    // Deleting a collection answers with what was deleted, of which nobody asks for more.
    if (meta.kind == "Status" && meta.api_version == "v1") || is_collection {
        let status = status(body, form).unwrap_or_default();
        let done = Status { status: Outcome::Success, ..status };
        return Ok(Said::Status(Box::new(done)));
    }
    let object = match form {
        Form::Json => Object::received(body.clone()),
        Form::Protobuf => {
            let ty = resource.row.and_then(|row| type_of(row, subresource, &meta));
            let ty = ty.ok_or_else(|| unreadable(&format!("unknown kind {:?}", meta.kind)))?;
            protobuf::decode(body, ty).and_then(|tree| Object::from_tree(&tree))
        }
    };
    Ok(Said::Object(Arc::new(object.map_err(|error| unreadable(&error))?)))
}

/// What a subresource answers with is its own kind, or whatever the envelope says.
fn type_of(row: &'static Resource, subresource: &str, meta: &TypeMeta) -> Option<TypeRef<'static>> {
    if subresource.is_empty() {
        return Some(row.ty());
    }
    let (group, version) = meta.group_version();
    builtin().kind(group, version, &meta.kind)
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

pub(super) fn list(body: &[u8], form: Form, resource: &ApiResource) -> Result<List, Status> {
    let failed = |error: DecodeError| unreadable(&error);
    let (api_version, kind) = (resource.api_version(), resource.kind.to_string());
    let meta = TypeMeta { api_version, kind };
    let (metadata, items): (ListMeta, _) = match form {
        Form::Json => {
            let list: Items<'_> =
                serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
            let items = list.items.unwrap_or_default();
            let items = items.into_iter().map(|item| named(item.get(), &meta));
            (list.metadata, items.collect::<Result<Vec<_>, _>>())
        }
        Form::Protobuf => {
            let ty = resource.row.and_then(Resource::list_ty);
            let ty = ty.ok_or_else(|| unreadable(&"the kind has no list"))?;
            let mut items = Vec::new();
            let metadata = protobuf::decode_list(body, ty, |mut item| {
                meta.write_into(&mut item);
                items.push(Object::from_tree(&item));
            });
            let metadata = serde_json::from_value(metadata.map_err(failed)?).unwrap_or_default();
            (metadata, items.into_iter().collect())
        }
    };
    let items = items.map_err(failed)?.into_iter().map(Arc::new).collect();
    Ok(List {
        items,
        revision: metadata.resource_version.and_then(|text| text.parse().ok()).unwrap_or(0),
        continue_token: metadata.continue_.unwrap_or_default(),
        remaining_item_count: metadata.remaining_item_count,
    })
}

/// An item of a list, whose kind most servers do not repeat.
fn named(item: &str, meta: &TypeMeta) -> Result<Object, DecodeError> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        kind: Option<std::borrow::Cow<'a, str>>,
    }
    let said: Option<Kind<'_>> = serde_json::from_str(item).ok();
    if said.and_then(|said| said.kind).is_some_and(|kind| !kind.is_empty()) {
        return Object::received(Bytes::copy_from_slice(item.as_bytes()));
    }
    let rest = item.trim_start().strip_prefix('{').unwrap_or_default();
    let (kind, version) = (Value::from(&*meta.kind), Value::from(&*meta.api_version));
    Object::received(format!("{{\"kind\":{kind},\"apiVersion\":{version},{rest}").into())
}

/// An object in an event: a `Status` if the watch failed.
pub(super) fn object(body: &[u8], form: Form, resource: &ApiResource) -> Result<Object, Status> {
    let decoded = match form {
        Form::Json => Object::received(Bytes::copy_from_slice(body)),
        Form::Protobuf => {
            let ty = resource.row.map(Resource::ty);
            let ty = ty.ok_or_else(|| unreadable(&"protobuf of an unknown kind"))?;
            protobuf::decode(body, ty).and_then(|tree| Object::from_tree(&tree))
        }
    };
    decoded.map_err(|error| unreadable(&error))
}
