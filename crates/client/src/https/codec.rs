//! What a server sent, as objects.
use crate::resource::ApiResource;
use crate::source::{List, Said};
use api::codec::DecodeError;
use api::codec::object::TypeMeta;
use api::meta::ListMeta;
use api::object::Object;
use api::status::{Outcome, Status};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Read;
use std::sync::Arc;

pub(super) const JSON: &str = "application/json";
pub(super) const JSON_STREAM: &str = "application/json;stream=watch,application/json";

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
pub(super) fn status(body: &[u8]) -> Option<Status> {
    let tree: Value = serde_json::from_slice(body).ok()?;
    (tree["kind"] == "Status").then(|| serde_json::from_value(tree).ok())?
}

/// The answer to a call.
pub(super) fn said(body: &Bytes, is_collection: bool) -> Result<Said, Status> {
    let meta = TypeMeta::from_json(body).map_err(|error| unreadable(&error))?;
    // Deleting a collection answers with what was deleted, of which nobody asks for more.
    if (meta.kind == "Status" && meta.api_version == "v1") || is_collection {
        let status = status(body).unwrap_or_default();
        let done = Status { status: Outcome::Success, ..status };
        return Ok(Said::Status(Box::new(done)));
    }
    let object = Object::received(body.clone()).map_err(|error| unreadable(&error))?;
    Ok(Said::Object(Arc::new(object)))
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

pub(super) fn list(body: &[u8], resource: &ApiResource) -> Result<List, Status> {
    let (api_version, kind) = (resource.api_version(), resource.kind.to_string());
    let meta = TypeMeta { api_version, kind };
    let list: Items<'_> = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    let items = list.items.unwrap_or_default();
    let items = items.into_iter().map(|item| named(item.get(), &meta).map(Arc::new));
    let items: Result<Vec<_>, DecodeError> = items.collect();
    Ok(List {
        items: items.map_err(|error| unreadable(&error))?,
        revision: list.metadata.resource_version.and_then(|text| text.parse().ok()).unwrap_or(0),
        continue_token: list.metadata.continue_.unwrap_or_default(),
        remaining_item_count: list.metadata.remaining_item_count,
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
