//! Strategic merge patch: a merge patch that knows from the schema which lists are merged, and
//! by what key their elements are known.
//!
//! Beside plain values a patch may hold directives:
//!
//! | key | meaning |
//! | --- | --- |
//! | `$patch: replace` | this object (or list) replaces the old one |
//! | `$patch: delete` | this object (or the list element with this merge key) goes |
//! | `$retainKeys: [a, b]` | of the old object, keep only these keys |
//! | `$deleteFromPrimitiveList/f: […]` | remove these scalars from list `f` |
//! | `$setElementOrder/f: […]` | the order that list `f` shall have |
//!
//! [`merge`] is what the server does with a patch; [`two_way`] and [`three_way`] are how a client
//! makes one. Both follow upstream's `apimachinery/pkg/util/strategicpatch` to the letter, odd
//! corners included: a patch made here must mean the same to any server, and the other way round.

mod conflict;
mod diff;
mod lists;
mod lookup;
mod merge;
mod order;
#[cfg(test)]
mod tests;

use super::golang::{Go, GoList, GoMap, type_name};
use crate::depth;
use crate::schema::TypeRef;
use crate::status::{ServerResponse, Status};
use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// Applies `patch` to `original`, an object of type `ty`.
pub fn merge(original: Value, patch: Value, ty: TypeRef<'_>) -> Result<Value, Error> {
    let (original, patch) = (object(original)?, object(patch)?);
    merge::merge_objects(original, patch, ty, merge::Mode::Apply).map(Value::Object)
}

/// The patch that turns `original` into `modified`.
pub fn two_way(original: &Value, modified: &Value, ty: TypeRef<'_>) -> Result<Value, Error> {
    let options = diff::Options { set_element_order: true, ..Default::default() };
    diff::diff_objects(borrow(original)?, borrow(modified)?, ty, options, false).map(Value::Object)
}

/// The patch that brings `current` to `modified`, where only what was in `original` (the last
/// applied configuration) may be deleted. Unless `overwrite`, a key that `current` changed in
/// another way than `modified` is a conflict.
pub fn three_way(
    original: &Value,
    modified: &Value,
    current: &Value,
    ty: TypeRef<'_>,
    overwrite: bool,
) -> Result<Value, Error> {
    let (original, modified, current) = (borrow(original)?, borrow(modified)?, borrow(current)?);
    let additions =
        diff::Options { set_element_order: true, ignore_deletions: true, ..Default::default() };
    let delta = diff::diff_objects(current, modified, ty, additions, false)?;
    let deletions =
        diff::Options { set_element_order: true, ignore_changes: true, ..Default::default() };
    let deletions = diff::diff_objects(original, modified, ty, deletions, false)?;
    let patch = merge::merge_objects(deletions, delta, ty, merge::Mode::Combine)?;
    if !overwrite {
        let changed = diff::diff_objects(original, current, ty, diff::Options::default(), false)?;
        if conflict::in_objects(&patch, &changed, ty)? {
            return Err(Error::conflict(&patch, &changed));
        }
    }
    Ok(Value::Object(patch))
}

/// Something a patch may not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition<'a> {
    KeyUnchanged(&'a str),
    MetadataKeyUnchanged(&'a str),
}

impl Precondition<'_> {
    pub fn holds(self, patch: &Value) -> bool {
        match self {
            Precondition::KeyUnchanged(key) => patch.get(key).is_none(),
            Precondition::MetadataKeyUnchanged(key) => {
                patch.get("metadata").and_then(|metadata| metadata.get(key)).is_none()
            }
        }
    }

    pub fn check(all: &[Precondition<'_>], patch: &Value) -> Result<(), Error> {
        match all.iter().all(|precondition| precondition.holds(patch)) {
            true => Ok(()),
            false => Err(Error::Precondition(Go(patch).to_string())),
        }
    }
}

/// Why a patch cannot be made or applied, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid JSON document")]
    BadDocument,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("invalid patch format of primitive list")]
    BadPrimitiveList,
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    BadSetElementOrder,
    #[error("strategic merge patch format is not supported")]
    Unsupported,
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: String, key: String },
    #[error("cannot find merge key `{key}` in merging list element:{map}")]
    NoMergeKeyInElement { map: String, key: String },
    #[error("expected a {expected}, but received a {received}")]
    BadType { expected: &'static str, received: &'static str },
    #[error("unknown patch type: {directive} in map: {map}")]
    BadDirective { directive: String, map: String },
    #[error("invalid value for special key: $patch")]
    BadSpecialKey,
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    #[error("cannot merge lists without merge key for {0}")]
    NoMergeKeyDeclared(&'static str),
    #[error("value for key {0} is not a map")]
    NotAMap(usize),
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    #[error("no elements in any of the given slices")]
    NoElements,
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: String, order: String },
    #[error(
        "{0} and {1} are not deep equal: this may happen when calculating the 3-way diff patch"
    )]
    RetainKeysDiffer(String, String),
    #[error("unable to find api field in struct {name} for the json field {field:?}")]
    UnknownField { name: String, field: String },
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
    #[error("expected slice or array type, but got: struct")]
    NotAList,
    #[error("precondition failed for: {0}")]
    Precondition(String),
    #[error("patch:\n{patch}\nconflicts with changes made from original to current:\n{changed}\n")]
    Conflict { patch: String, changed: String },
}

impl Error {
    fn no_merge_key(map: &Object, key: &str) -> Error {
        Error::NoMergeKey { map: GoMap(map).to_string(), key: key.to_owned() }
    }

    fn bad_type(expected: &'static str, received: &Value) -> Error {
        let received = if received.is_null() { "%!s(<nil>)" } else { type_name(received) };
        Error::BadType { expected, received }
    }

    pub(super) fn conflict(patch: &Object, changed: &Object) -> Error {
        let yaml = |map: &Object| serde_saphyr::to_string(map).unwrap_or_default();
        Error::Conflict { patch: yaml(patch), changed: yaml(changed) }
    }

    fn mixed(lists: &[&[Value]]) -> Error {
        let lists: Vec<String> = lists.iter().map(|list| GoList(list).to_string()).collect();
        Error::MixedList(format!("[{}]", lists.join(" ")))
    }
}

/// What upstream's server answers.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let message = error.to_string();
        match error {
            Error::BadDocument
            | Error::BadPrimitiveList
            | Error::BadRetainKeys
            | Error::BadSetElementOrder
            | Error::Unsupported => Status::bad_request(message),
            Error::ListOfLists => ServerResponse { code: 422, ..Default::default() }.into(),
            _ => Status { code: 500, message, ..Status::default() },
        }
    }
}

fn object(value: Value) -> Result<Object, Error> {
    match value {
        Value::Object(map) if depth::within_limit_map(&map) => Ok(map),
        Value::Null => Ok(Object::new()),
        _ => Err(Error::BadDocument),
    }
}

pub(super) fn borrow(value: &Value) -> Result<&Object, Error> {
    static EMPTY: std::sync::LazyLock<Object> = std::sync::LazyLock::new(Object::new);
    match value {
        Value::Object(map) if depth::within_limit_map(map) => Ok(map),
        Value::Null => Ok(&EMPTY),
        _ => Err(Error::BadDocument),
    }
}
