//! The types that kinds have: of built-in ones those of the table, of others what OpenAPI says of them.
use super::kinds::Kind;
use super::{Answers, Questions};
use crate::admission::policy::compiled::Typed;
use api::openapi::Document;
use cel::{SchemaTypes, ShapeTypes, Type};
use client::source::{Raw, escaped};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many documents are read for one policy; kinds in more of them are not checked.
const MOST_DOCUMENTS: usize = 20;

/// What is known of kinds that are not built in, by the paths of their documents.
pub struct Described<'a>(BTreeMap<String, Document<'a>>);

impl<'a> Described<'a> {
    pub fn read(kinds: &[&Kind], answers: &'a Answers) -> Result<Described<'a>, Questions> {
        let paths: BTreeSet<String> =
            kinds.iter().filter(|kind| !kind.is_built_in()).map(|kind| path(kind)).collect();
        let (known, unknown): (Vec<_>, Vec<_>) =
            paths.into_iter().take(MOST_DOCUMENTS).partition(|path| answers.contains_key(path));
        if !unknown.is_empty() {
            return Err(unknown.into_iter().map(Raw::get).collect());
        }
        let read = known.into_iter().filter_map(|path| {
            let document = Document::read(answers.get(&path)?.as_deref()?);
            let tell = |error: &serde_json::Error| tracing::debug!(path, %error, "no description");
            let document = document.inspect_err(tell).ok()?;
            Some((path, document))
        });
        Ok(Described(read.collect()))
    }

    /// The types of a kind, the root of which is called so; none if nobody describes it. What has no type that
    /// expressions could see may be anything.
    pub fn types(&self, kind: &Kind, name: &str) -> Option<Typed> {
        let named = || name.to_owned();
        if kind.is_built_in() {
            let types = SchemaTypes::of_kind(named(), kind.row()?.ty());
            return Some(Typed { types: Arc::new(types), ty: Type::object(name) });
        }
        let document = self.0.get(&path(kind))?;
        let schema = document.schema(&kind.group, &kind.version, &kind.kind)?;
        let types = ShapeTypes::of_kind(named(), Arc::new(schema));
        let ty = types.shape().and_then(|shape| shape.declared(name)).unwrap_or(Type::Dyn);
        Some(Typed { types: Arc::new(types), ty })
    }
}

/// Where the document is that describes a kind.
fn path(kind: &Kind) -> String {
    format!("/openapi/v3/apis/{}/{}", escaped(&kind.group), escaped(&kind.version))
}
