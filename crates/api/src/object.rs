//! One version of one object, to be shared by everybody who has to do with it.
//!
//! What is kept are the object's bytes (JSON). Its metadata is read from their head when somebody
//! asks, at most once; its typed form is shared by all who hold it at the same time, and goes with
//! the last of them: a typed pod takes many times its bytes, so it is for its holders to say how long it is worth
//! that. The bytes come from the store, without a resource version and with `metadata` first, or
//! from a server, complete.
mod keep;
mod meta;
mod trim;

pub use keep::Keep;
pub use meta::{Metadata, Pairs};

use crate::codec::DecodeError;
use crate::codec::object::TypeMeta;
use crate::rules::Form;
use bytes::Bytes;
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// How an object begins that is stored.
const HEAD: &[u8] = b"{\"metadata\":{";
const VERSION: &[u8] = b"\"resourceVersion\":\"";

pub struct Object {
    bytes: Bytes,
    /// Its resource version, which is a number; 0 if there is none.
    revision: u64,
    /// The resource version is not among the bytes.
    stored: bool,
    metadata: OnceLock<Box<Metadata>>,
    typed: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

impl Object {
    /// As the store keeps it: bytes without a resource version, and the revision that is it.
    /// Nothing is read.
    pub fn stored(bytes: Bytes, revision: u64) -> Object {
        Object { bytes, revision, stored: true, metadata: OnceLock::new(), typed: Mutex::default() }
    }

    /// As a server sent it. The metadata is read here: an object without one is none.
    pub fn received(bytes: Bytes) -> Result<Object, DecodeError> {
        let metadata = Metadata::read(&bytes)?;
        let revision = metadata.resource_version.parse().unwrap_or(0);
        let metadata = OnceLock::from(Box::new(metadata));
        Ok(Object { bytes, revision, stored: false, metadata, typed: Mutex::default() })
    }

    pub fn from_tree(tree: &Value) -> Result<Object, DecodeError> {
        let bytes = serde_json::to_vec(tree).map_err(|e| DecodeError::Syntax(e.to_string()))?;
        Object::received(bytes.into())
    }

    /// The number that its resource version is.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn resource_version(&self) -> String {
        match self.revision {
            0 => self.metadata().resource_version.to_string(),
            revision => revision.to_string(),
        }
    }

    /// Read at the first call. What is no object at all has empty metadata.
    pub fn metadata(&self) -> &Metadata {
        self.metadata.get_or_init(|| Box::new(Metadata::read(&self.bytes).unwrap_or_default()))
    }

    pub fn name(&self) -> &str {
        &self.metadata().name
    }

    /// Empty for what belongs to no namespace.
    pub fn namespace(&self) -> &str {
        &self.metadata().namespace
    }

    pub fn uid(&self) -> &str {
        &self.metadata().uid
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// The bytes as they are kept: see [`Object::stored`].
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What it says it is.
    pub fn type_meta(&self) -> Result<TypeMeta, DecodeError> {
        TypeMeta::from_json(&self.bytes)
    }

    /// Its JSON, with the resource version.
    pub fn json(&self) -> Bytes {
        if !self.stored {
            return self.bytes.clone();
        }
        let mut out = Vec::with_capacity(self.bytes.len() + 48);
        self.write_json(&mut out);
        out.into()
    }

    /// Appends its JSON, with the resource version.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let tail = self.bytes.strip_prefix(HEAD);
        match (self.stored, tail) {
            (false, _) => out.extend_from_slice(&self.bytes),
            (true, Some(tail)) => {
                out.extend_from_slice(HEAD);
                out.extend_from_slice(VERSION);
                out.extend_from_slice(self.revision.to_string().as_bytes());
                out.push(b'"');
                if tail.first() != Some(&b'}') {
                    out.push(b',');
                }
                out.extend_from_slice(tail);
            }
            // Stored by somebody else: valid JSON all the same, only laid out otherwise.
            (true, None) => match self.tree() {
                Ok(tree) => out.extend_from_slice(tree.to_string().as_bytes()),
                Err(_) => out.extend_from_slice(b"null"),
            },
        }
    }

    /// Its tree, for work that knows no type. It is large: use it and let it go.
    pub fn tree(&self) -> Result<Value, DecodeError> {
        let mut tree: Value = serde_json::from_slice(&self.bytes).map_err(syntax)?;
        if self.stored
            && let Some(Value::Object(metadata)) = tree.get_mut("metadata")
        {
            metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        }
        Ok(tree)
    }

    /// Its typed form, decoded for this caller alone, to be changed at will. It has no managed fields: an
    /// update that names none keeps those that are stored.
    pub fn decode<T: Form>(&self) -> Result<T, DecodeError> {
        let trimmed = trim::without_managed_fields(&self.bytes);
        let bytes = trimmed.as_deref().unwrap_or(&self.bytes);
        let mut typed: T = match T::from_json(bytes) {
            Ok(typed) => typed,
            Err(error) => read_without_nulls(bytes).ok_or_else(|| syntax(error))?,
        };
        if self.stored {
            typed.metadata_mut().resource_version = Some(self.revision.to_string());
        }
        Ok(typed)
    }

    /// Its typed form, shared with all who hold it now. It is not kept here.
    pub fn typed<T: Form>(&self) -> Result<Arc<T>, DecodeError> {
        let mut slot = self.typed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let held = slot.as_ref().and_then(Weak::upgrade).map(Arc::downcast::<T>);
        if let Some(Ok(typed)) = held {
            return Ok(typed);
        }
        let typed = Arc::new(self.decode::<T>()?);
        let shared: Arc<dyn Any + Send + Sync> = typed.clone();
        *slot = Some(Arc::downgrade(&shared));
        Ok(typed)
    }
}

/// In Kubernetes what is null is not there, and a time that nobody has set is written as null. The typed
/// crate wants every condition to have a time: such a one has Go's first.
fn read_without_nulls<T: Form>(bytes: &[u8]) -> Option<T> {
    const TIME: &str = "lastTransitionTime";
    fn forget(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, value| !value.is_null());
                fields.values_mut().for_each(forget);
                let conditions = fields.get_mut("conditions").and_then(Value::as_array_mut);
                for condition in conditions.into_iter().flatten() {
                    if let Value::Object(condition) = condition {
                        let first = || Value::from("0001-01-01T00:00:00Z");
                        condition.entry(TIME).or_insert_with(first);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            _ => {}
        }
    }
    let mut tree: Value = serde_json::from_slice(bytes).ok()?;
    forget(&mut tree);
    T::from_tree(tree).ok()
}

fn syntax(error: serde_json::Error) -> DecodeError {
    DecodeError::Syntax(error.to_string())
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metadata { name, namespace, .. } = self.metadata();
        write!(f, "Object({namespace}/{name} at {})", self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
    use serde_json::json;

    const STORED: &[u8] = br#"{"metadata":{"name":"c","namespace":"n","uid":"u","labels":{"b":"2","a":"1"},"creationTimestamp":"2026-01-02T03:04:05Z"},"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap"}"#;

    #[test]
    fn what_is_stored_gets_its_resource_version_in_every_form() {
        let object = Object::stored(Bytes::from_static(STORED), 42);
        let json: Value = serde_json::from_slice(&object.json()).unwrap();
        assert_eq!(json["metadata"]["resourceVersion"], "42");
        assert_eq!(object.tree().unwrap(), json);
        let typed = object.typed::<ConfigMap>().unwrap();
        assert_eq!(typed.metadata.resource_version.as_deref(), Some("42"));
        assert_eq!(typed.data.as_ref().unwrap()["k"], "v");
        let again = Object::received(object.json()).unwrap();
        assert_eq!((again.revision(), again.name()), (42, "c"));
        let other = Bytes::from_static(br#"{"kind":"ConfigMap","metadata":{"name":"c"}}"#);
        let json: Value = serde_json::from_slice(&Object::stored(other, 3).json()).unwrap();
        assert_eq!(json["metadata"], json!({ "name": "c", "resourceVersion": "3" }));
        let empty = Object::stored(Bytes::from_static(br#"{"metadata":{}}"#), 3).json();
        assert_eq!(&*empty, br#"{"metadata":{"resourceVersion":"3"}}"#);
    }

    #[test]
    fn the_typed_form_is_shared_while_somebody_holds_it() {
        let object = Object::stored(Bytes::from_static(STORED), 42);
        let first = object.typed::<ConfigMap>().unwrap();
        assert!(Arc::ptr_eq(&first, &object.typed::<ConfigMap>().unwrap()));
        let weak = Arc::downgrade(&first);
        drop(first);
        assert!(weak.upgrade().is_none());
        // Another kind than it is: the typed crate says so.
        assert!(object.typed::<Secret>().is_err());
        assert!(object.typed::<ConfigMap>().is_ok());
    }

    /// As a client left it in whose language a time has a zero value.
    #[test]
    fn a_time_that_nobody_has_set_keeps_nobody_from_reading_an_object() {
        let stored = br#"{"metadata":{"name":"s","creationTimestamp":null},"apiVersion":"v1","kind":"Service","status":{"conditions":[{"type":"A","status":"True","lastTransitionTime":null,"reason":"","message":""}]}}"#;
        let service = Object::stored(Bytes::from_static(stored), 1).typed::<Service>().unwrap();
        let conditions = service.status.as_ref().unwrap().conditions.as_ref().unwrap();
        assert_eq!((&*conditions[0].type_, &*conditions[0].status), ("A", "True"));
        let wrong = br#"{"metadata":{"name":"s"},"apiVersion":"v1","kind":"Service","spec":7}"#;
        assert!(Object::stored(Bytes::from_static(wrong), 1).typed::<Service>().is_err());
    }

    #[test]
    fn metadata_is_read_from_the_head() {
        let object = Object::stored(Bytes::from_static(STORED), 42);
        let metadata = object.metadata();
        assert_eq!((object.namespace(), object.uid(), object.is_deleting()), ("n", "u", false));
        assert_eq!(metadata.labels.get("b"), Some("2"));
        assert_eq!(metadata.creation_timestamp.unwrap().to_string(), "2026-01-02T03:04:05Z");
        // What follows the metadata is not looked at.
        let half = Bytes::from_static(br#"{"kind":"x","metadata":{"name":"half"},"spec":{"#);
        assert_eq!(Object::received(half).unwrap().name(), "half");
        for none in ["", "null", "[]", "{}", r#"{"metadata":"#, r#"{"metadata":[]}"#] {
            assert!(Object::received(none.into()).is_err(), "{none}");
        }
        assert_eq!(Object::stored("".into(), 1).name(), "");
    }
}
