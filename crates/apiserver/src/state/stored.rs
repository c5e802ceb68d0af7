//! An object's bytes as the store keeps them, and as they are sent.
//!
//! A stored object is its canonical JSON with `metadata` first and without a resource version.
//! The version is the store's revision, known only once the bytes are written; so it is spliced in
//! when they are sent, at a place that is always the same. Nothing is decoded for that, and the
//! bytes are the store's own.
use super::convert as versions;
use super::corrupt::Corrupt;
use api::codec::DecodeError;
use api::codec::object::TypeMeta;
use api::codec::protobuf;
use api::convert;
use api::depth;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use store::{KeyValue, MAX_REQUEST_BYTES};

const HEAD: &[u8] = b"{\"metadata\":{";
const VERSION: &[u8] = b"\"resourceVersion\":\"";

/// The bytes to store, in the version that the resource is stored in. Whatever was added to what a
/// client sent, it is no deeper than [`decode`] reads.
pub fn encode(object: &Value, resource: &Resource) -> Result<Bytes, Status> {
    let version = resource.storage_version();
    let converted;
    let stored = if object["apiVersion"] == *version {
        object
    } else if let Some(definition) = &resource.definition {
        converted = versions::to_store(object.clone(), definition, &version)?;
        &converted
    } else {
        let object = convert::convert(object.clone(), &version);
        converted = object.map_err(Status::internal_error)?;
        &converted
    };
    lay_out(stored)
}

/// An object's bytes, in the version that it is in.
pub fn lay_out(stored: &Value) -> Result<Bytes, Status> {
    if !depth::within_limit(stored) {
        return Err(Status::bad_request(DecodeError::TooDeep.to_string()));
    }
    let Value::Object(fields) = stored else {
        return Err(Status::internal_error("an object to store is no object"));
    };
    let mut bytes = Vec::with_capacity(2048);
    bytes.extend_from_slice(b"{\"metadata\":{");
    let metadata = fields.get("metadata").and_then(Value::as_object).into_iter().flatten();
    append(metadata.filter(|(name, _)| *name != "resourceVersion"), &mut bytes)?;
    bytes.push(b'}');
    let others = fields.iter().filter(|(name, _)| *name != "metadata");
    if others.clone().next().is_some() {
        bytes.push(b',');
    }
    append(others, &mut bytes)?;
    bytes.push(b'}');
    Ok(bytes.into())
}

/// Refuses what no store takes. To be asked before an object is judged: one that defaults have made a
/// hundred times as large as it was sent would be judged for seconds, in vain.
pub fn check_size(object: &Value) -> Result<(), Status> {
    let mut left = MAX_REQUEST_BYTES;
    if fits(object, &mut left) {
        return Ok(());
    }
    Err(Status::request_entity_too_large("etcdserver: request is too large"))
}

/// Whether there is room for a value's JSON; escapes are not counted.
fn fits(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len() + 2,
        _ => 2,
    };
    let Some(rest) = left.checked_sub(own) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, left)),
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            *left = left.saturating_sub(name.len() + 4);
            fits(value, left)
        }),
        _ => true,
    }
}

/// Fields without their braces, straight into the bytes: text made by way of `Display` is checked
/// and copied once more.
fn append<'v>(
    fields: impl Iterator<Item = (&'v String, &'v Value)>,
    bytes: &mut Vec<u8>,
) -> Result<(), Status> {
    for (number, (name, value)) in fields.enumerate() {
        if number > 0 {
            bytes.push(b',');
        }
        serde_json::to_writer(&mut *bytes, name).map_err(Status::internal_error)?;
        bytes.push(b':');
        serde_json::to_writer(&mut *bytes, value).map_err(Status::internal_error)?;
    }
    Ok(())
}

/// What upstream's server stored, as this one would; nothing if the bytes are no protobuf.
pub fn from_protobuf(bytes: &[u8]) -> Option<Result<Bytes, String>> {
    if !protobuf::is_protobuf(bytes) {
        return None;
    }
    let read = || {
        let meta = protobuf::type_meta(bytes).map_err(|error| error.to_string())?;
        let resource = find_kind(&meta.api_version, &meta.kind).ok_or_else(|| {
            format!("no kind {:?} is registered for version {:?}", meta.kind, meta.api_version)
        })?;
        let object = protobuf::decode(bytes, resource.ty()).map_err(|error| error.to_string())?;
        encode(&object, resource).map_err(|status| status.message)
    };
    Some(read())
}

/// Whether [`write_json`] has something to write: of what others wrote that is not certain.
pub fn check(stored: &KeyValue) -> Result<(), Corrupt> {
    if stored.value.starts_with(HEAD) {
        return Ok(());
    }
    depth::read::<IgnoredAny>(&stored.value)
        .map(drop)
        .map_err(|error| Corrupt::new(stored, error.to_string()))
}

/// Appends the object's JSON, with its resource version. The row must serve the stored version.
pub fn write_json(stored: &KeyValue, out: &mut Vec<u8>) {
    match stored.value.strip_prefix(HEAD) {
        Some(tail) => {
            out.extend_from_slice(HEAD);
            out.extend_from_slice(VERSION);
            // Neither numbers nor memory make this fail, and it allocates nothing.
            let _ = serde_json::to_writer(&mut *out, &stored.mod_revision);
            out.push(b'"');
            if tail.first() != Some(&b'}') {
                out.push(b',');
            }
            out.extend_from_slice(tail);
        }
        // Written by somebody else: valid JSON all the same, only laid out otherwise.
        None => match depth::read(&stored.value) {
            Ok(mut object) => {
                put_resource_version(&mut object, stored.mod_revision);
                out.extend_from_slice(object.to_string().as_bytes());
            }
            Err(_) => out.extend_from_slice(b"null"),
        },
    }
}

/// Appends the JSON of the object's metadata alone, as a `PartialObjectMetadata`.
pub fn write_partial(stored: &KeyValue, out: &mut Vec<u8>) {
    const HEAD_OF_PARTIAL: &[u8] =
        b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";
    let mut whole = Vec::with_capacity(stored.value.len() + 40);
    write_json(stored, &mut whole);
    out.extend_from_slice(HEAD_OF_PARTIAL);
    let metadata = whole.starts_with(HEAD).then(|| &whole[HEAD.len() - 1..]);
    match metadata.and_then(first_value::<&RawValue>) {
        Some(metadata) => out.extend_from_slice(metadata.get().as_bytes()),
        None => {
            let object: Value = depth::read(&whole).unwrap_or_default();
            out.extend_from_slice(object["metadata"].to_string().as_bytes());
        }
    }
    out.push(b'}');
}

/// The bytes' first value; what follows is left unread.
fn first_value<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    serde_json::Deserializer::from_slice(bytes).into_iter().next().and_then(Result::ok)
}

/// The object as a tree, in the version of the row it was asked by.
pub fn decode(stored: &KeyValue, resource: &Resource) -> Result<Value, Status> {
    try_decode(stored, resource).map_err(|corrupt| corrupt.read())
}

/// The same, for whoever says himself what is the matter with one that cannot be read.
pub fn try_decode(stored: &KeyValue, resource: &Resource) -> Result<Value, Corrupt> {
    let object = named(tree(stored)?, resource);
    if let Some(definition) = &resource.definition {
        if stored.slot.is_marked(definition.version.id) {
            return Ok(object);
        }
        return versions::read(object, definition).map_err(|cause| Corrupt::new(stored, cause));
    }
    convert::convert(object, &resource.api_version())
        .map_err(|error| Corrupt::new(stored, error.to_string()))
}

/// The same, where it is not what [`write_json`] writes. A definition may have changed since an object was
/// stored; those that it leaves as they are are found out once, and sent like those of built-in kinds then.
pub fn read(stored: &KeyValue, resource: &Resource) -> Result<Option<Value>, Status> {
    if resource.is_sent_as_stored() {
        return check(stored).map(|()| None).map_err(|corrupt| corrupt.read());
    }
    let Some(definition) = &resource.definition else {
        return decode(stored, resource).map(Some);
    };
    if stored.slot.is_marked(definition.version.id) {
        return Ok(None);
    }
    let there = tree(stored).map_err(|corrupt| corrupt.read())?;
    let read = versions::read(named(there.clone(), resource), definition)
        .map_err(|cause| Corrupt::new(stored, cause).read())?;
    if read != there {
        return Ok(Some(read));
    }
    stored.slot.mark(definition.version.id);
    Ok(None)
}

/// Appends the object's JSON, in the version of the row it was asked by.
pub fn write_read(stored: &KeyValue, resource: &Resource, out: &mut Vec<u8>) -> Result<(), Status> {
    match read(stored, resource)? {
        None => write_json(stored, out),
        Some(tree) => serde_json::to_writer(out, &tree).map_err(Status::internal_error)?,
    }
    Ok(())
}

/// What is stored, with its resource version.
fn tree(stored: &KeyValue) -> Result<Value, Corrupt> {
    let mut object: Value =
        depth::read(&stored.value).map_err(|error| Corrupt::new(stored, error.to_string()))?;
    put_resource_version(&mut object, stored.mod_revision);
    Ok(object)
}

/// What does not say what it is is what its row says.
fn named(mut object: Value, resource: &Resource) -> Value {
    if TypeMeta::of(&object).api_version.is_empty() {
        let api_version = resource.storage_version();
        TypeMeta { api_version, kind: resource.kind.into() }.write_into(&mut object);
    }
    object
}

pub fn put_resource_version(object: &mut Value, revision: u64) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("resourceVersion".into(), revision.to_string().into());
    }
}

/// What selectors and tables need of the metadata, read without decoding the rest.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub labels: HashMap<String, String>,
    pub creation_timestamp: String,
}

pub fn meta(stored: &KeyValue) -> Meta {
    let metadata = stored.value.get(HEAD.len() - 1..).unwrap_or_default();
    first_value(metadata).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::codec::object::{self, Encoding};
    use serde_json::json;

    fn stored(object: Value, kind: &str) -> KeyValue {
        let resource = find_kind("v1", kind).unwrap();
        let value = encode(&object, resource).unwrap();
        KeyValue {
            key: "k".into(),
            value,
            create_revision: 1,
            mod_revision: 42,
            version: 1,
            lease: 0,
            slot: Default::default(),
        }
    }

    #[test]
    fn the_resource_version_is_the_revision() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "c", "resourceVersion": "7", "labels": {"x": "y"}}});
        let stored = stored(object.clone(), "ConfigMap");
        assert!(stored.value.starts_with(HEAD), "{:?}", stored.value);
        let mut sent = Vec::new();
        write_json(&stored, &mut sent);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = "42".into();
        assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap(), expected);
        assert_eq!(decode(&stored, find_kind("v1", "ConfigMap").unwrap()).unwrap(), expected);
        let mut partial = Vec::new();
        write_partial(&stored, &mut partial);
        let partial: Value = serde_json::from_slice(&partial).unwrap();
        assert_eq!(partial["metadata"], expected["metadata"]);
        assert_eq!(
            (&partial["kind"], &partial["data"]),
            (&json!("PartialObjectMetadata"), &json!(null))
        );
        let meta = meta(&stored);
        assert_eq!((&*meta.name, &*meta.labels["x"]), ("c", "y"));
    }

    #[test]
    fn what_no_store_takes_is_refused_before_it_is_judged() {
        let items = |count: usize| json!({ "items": vec![json!({ "a": "bc" }); count] });
        assert!(check_size(&items(100_000)).is_ok());
        let status = check_size(&items(300_000)).unwrap_err();
        assert_eq!(status.code, 413);
    }

    #[test]
    fn nothing_is_stored_that_cannot_be_read() {
        let resource = find_kind("v1", "ConfigMap").unwrap();
        for (levels, taken) in [(100, true), (150, true), (196, true), (197, false), (300, false)] {
            let mut fields = json!({});
            for _ in 1..levels {
                fields = json!({ "f:a": fields });
            }
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": "c", "managedFields": [{ "fieldsV1": fields }] } });
            match encode(&object, resource) {
                Ok(value) => {
                    let empty = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} });
                    let stored = KeyValue { value, ..stored(empty, "ConfigMap") };
                    assert!(taken && decode(&stored, resource).is_ok(), "{levels}");
                }
                Err(status) => assert_eq!((status.code, taken), (400, false), "{levels}"),
            }
        }
    }

    #[test]
    fn upstreams_protobuf_becomes_what_this_server_stores() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "c"}});
        let resource = find_kind("v1", "ConfigMap").unwrap();
        let bytes = object::encode(&object, Encoding::Protobuf, resource.ty());
        let stored = from_protobuf(&bytes).expect("it is protobuf").expect("it is readable");
        assert_eq!(stored, encode(&object, resource).unwrap());
        assert_eq!(from_protobuf(b"{}"), None);
        assert!(from_protobuf(b"k8s\0nonsense").expect("it says so").is_err());
    }

    #[test]
    fn bytes_of_another_writer_are_served_too() {
        let value = Bytes::from_static(br#"{"kind":"ConfigMap","metadata":{"name":"c"}}"#);
        let stored = KeyValue {
            key: "k".into(),
            value,
            create_revision: 1,
            mod_revision: 3,
            version: 1,
            lease: 0,
            slot: Default::default(),
        };
        let mut sent = Vec::new();
        write_json(&stored, &mut sent);
        let mut partial = Vec::new();
        write_partial(&stored, &mut partial);
        for sent in [sent, partial] {
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(sent["metadata"], json!({ "name": "c", "resourceVersion": "3" }));
        }
    }
}
