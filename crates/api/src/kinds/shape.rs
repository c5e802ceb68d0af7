//! What is done to an object's tree, where a built-in type and a definition's schema do it
//! differently.
//!
//! A built-in object has the form that its Go type would be written in: empty optional fields are
//! left out. A custom object is kept as it was given, but for what its schema does not know.
use super::Resource;
use crate::codec::object::{self, Encoding};
use crate::codec::{DecodeError, given, json};
use crate::meta::TableColumnDefinition;
use crate::rules::defaults;
use crate::schema::set_defaults;
use crate::{convert, custom};
use serde_json::Value;
use std::borrow::Cow;

impl Resource {
    /// Decodes a request's body, with everything that was given.
    pub fn decode_given(
        &self,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<json::Decoded, DecodeError> {
        match &self.definition {
            Some(definition) => custom::decode(body, encoding, definition),
            None => object::decode_given(body, encoding, self.ty()),
        }
    }

    /// The same of a tree that a patch made.
    pub fn settle_given(&self, object: Value) -> Result<json::Decoded, DecodeError> {
        match &self.definition {
            Some(definition) => custom::settle(object, definition),
            None => json::canonicalize_given(object, self.ty()),
        }
    }

    /// The same of a tree that never was a text.
    pub fn convert_given(&self, object: Value) -> Result<json::Decoded, DecodeError> {
        match &self.definition {
            Some(definition) => custom::settle(object, definition),
            None => json::convert_given(object, self.ty()),
        }
    }

    /// Why the object cannot be read into the form that all versions share.
    pub fn unreadable(&self, object: &Value) -> Option<String> {
        if self.definition.is_some() { None } else { convert::unreadable(object) }
    }

    pub fn set_defaults(&self, object: &mut Value) {
        match self.definition {
            Some(_) => {
                // What would be too much was refused when the object was read.
                let _ = set_defaults(object, self.ty());
            }
            None => defaults::set(object, self.ty()),
        }
    }

    /// The old object for comparisons that see no difference between nothing and something empty.
    pub fn aligned<'o>(&self, old: &'o Value, new: &Value) -> Cow<'o, Value> {
        match self.definition {
            Some(_) => Cow::Borrowed(old),
            None => given::aligned(old, new, self.ty()),
        }
    }

    /// Makes the object what it is when it is read back: without what is empty, with the defaults of
    /// what is missing then.
    pub fn as_read(&self, object: &mut Value) {
        if self.definition.is_some() {
            return;
        }
        match self.group {
            "apiextensions.k8s.io" => given::forget_optional(object, self.ty()),
            _ => given::forget_empty(object, self.ty()),
        }
        self.set_defaults(object);
    }

    /// The columns of its table.
    pub fn columns(&self) -> Vec<TableColumnDefinition> {
        match &self.definition {
            Some(definition) => custom::column_definitions(definition),
            None => self.rules.columns.iter().map(|column| column.definition()).collect(),
        }
    }
}
