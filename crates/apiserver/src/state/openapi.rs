//! The OpenAPI documents, made when they are first asked for and kept until the registry changes.
//!
//! A document of v3 is of one version and changes with it alone. The one document of v2 is the sum of
//! the texts of its parts, each kept as long as its definitions stay as they are: a change of one makes
//! one part anew, and the rest is put together again.
use api::kinds::Registry;
use api::openapi::{Descriptions, proto, v2, v3};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// A document and what it is known by.
#[derive(Clone)]
pub struct Document {
    pub bytes: Bytes,
    pub hash: String,
}

impl Document {
    pub fn of(bytes: Vec<u8>) -> Document {
        let hash = hash(&bytes);
        Document { bytes: bytes.into(), hash }
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02X}")).collect()
}

/// What was published last.
#[derive(Default)]
pub struct OpenApi(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The whole documents, by name, with the registry's generation that they are of.
    whole: HashMap<&'static str, (u64, Document)>,
    /// Documents of v3, by path, with the definitions that they are of.
    versions: HashMap<String, (String, Document)>,
    built_in: Option<Arc<Text>>,
    /// Texts of v2, by group and version, with the definitions that they are of.
    parts: HashMap<(&'static str, &'static str), (String, Arc<Text>)>,
}

/// The text of a part of v2: what is between the braces.
struct Text {
    definitions: String,
    parameters: String,
    paths: String,
}

impl Text {
    fn of(part: &v2::Part) -> Arc<Text> {
        let inner = |map: &Map<String, Value>| {
            let text = json!(map).to_string();
            text[1..text.len() - 1].to_owned()
        };
        let (definitions, paths) = (inner(&part.definitions), inner(&part.paths));
        Arc::new(Text { definitions, parameters: inner(&part.parameters), paths })
    }
}

/// Which definitions a version is made of; nothing for what is built in.
fn origin(registry: &Registry, group: &str, version: &str) -> String {
    let rows = registry.rows_of(group, version).filter_map(|row| row.definition.as_ref());
    let words = rows.map(|definition| {
        let family = &definition.family;
        format!("{}/{} ", family.uid, family.generation)
    });
    words.collect()
}

impl OpenApi {
    /// Everything in one document.
    pub fn v2(&self, registry: &Registry) -> Document {
        self.whole("v2", registry, || {
            let _shared = Descriptions::load();
            let built_in = self.built_in();
            let mut parts = vec![built_in.clone()];
            parts.extend(defined(registry).into_iter().map(|(g, v)| self.part(registry, g, v)));
            let joined = |text: fn(&Text) -> &str| {
                let texts = parts.iter().map(|part| text(part)).filter(|text| !text.is_empty());
                texts.collect::<Vec<_>>().join(",")
            };
            let frame = v2::document(std::iter::empty()).to_string();
            // What operations of definitions refer to, the built-in ones do as well.
            let text = frame
                .replacen(
                    r#""definitions":{}"#,
                    &format!(r#""definitions":{{{}}}"#, joined(|part| &part.definitions)),
                    1,
                )
                .replacen(
                    r#""parameters":{}"#,
                    &format!(r#""parameters":{{{}}}"#, built_in.parameters),
                    1,
                )
                .replacen(
                    r#""paths":{}"#,
                    &format!(r#""paths":{{{}}}"#, joined(|part| &part.paths)),
                    1,
                );
            text.into_bytes()
        })
    }

    /// The same for clients that read protobuf.
    pub fn v2_protobuf(&self, registry: &Registry) -> Document {
        self.whole("v2.pb", registry, || {
            let _shared = Descriptions::load();
            let mut parts = vec![v2::built_in()];
            let versions = defined(registry).into_iter();
            parts.extend(versions.map(|(group, version)| v2::defined(registry, group, version)));
            proto::encode(&v2::document(parts.iter()))
        })
    }

    /// Every document of v3 by its path, each with its hash in the address.
    pub fn v3_index(&self, registry: &Registry) -> Document {
        self.whole("v3", registry, || {
            let _shared = Descriptions::load();
            let index = v3::index(registry).into_iter().map(|(path, group, version)| {
                let hash = match origin(registry, group, version) {
                    origin if origin.is_empty() => {
                        self.version(registry, &path, group, version).hash
                    }
                    origin => hash(origin.as_bytes()),
                };
                let url = format!("/openapi/v3/{path}?hash={hash}");
                (path, json!({ "serverRelativeURL": url }))
            });
            json!({ "paths": index.collect::<Map<_, _>>() }).to_string().into_bytes()
        })
    }

    /// The document of one version, by its path; none if there is no such version.
    pub fn v3(&self, registry: &Registry, path: &str) -> Option<Document> {
        let found = v3::index(registry).into_iter().find(|(known, _, _)| known == path);
        let (path, group, version) = found?;
        Some(self.version(registry, &path, group, version))
    }

    fn version(&self, registry: &Registry, path: &str, group: &str, version: &str) -> Document {
        let origin = origin(registry, group, version);
        if let Some((of, document)) = self.0.lock().versions.get(path)
            && *of == origin
        {
            return document.clone();
        }
        let text = v3::document(registry, group, version).to_string();
        let mut document = Document::of(text.into_bytes());
        if !origin.is_empty() {
            // Known before it is made: an index of a thousand makes none of them.
            document.hash = hash(origin.as_bytes());
        }
        self.0.lock().versions.insert(path.to_owned(), (origin, document.clone()));
        document
    }

    fn whole(
        &self,
        name: &'static str,
        registry: &Registry,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Document {
        let generation = registry.generation();
        if let Some((of, document)) = self.0.lock().whole.get(name)
            && *of == generation
        {
            return document.clone();
        }
        let document = Document::of(make());
        let mut kept = self.0.lock();
        kept.whole.insert(name, (generation, document.clone()));
        // What is gone is not kept.
        let there = |group: &str, version: &str| registry.rows_of(group, version).next().is_some();
        kept.parts.retain(|(group, version), _| there(group, version));
        let paths: Vec<String> = v3::index(registry).into_iter().map(|(path, ..)| path).collect();
        kept.versions.retain(|path, _| paths.contains(path));
        document
    }

    fn built_in(&self) -> Arc<Text> {
        if let Some(text) = &self.0.lock().built_in {
            return text.clone();
        }
        let text = Text::of(&v2::built_in());
        self.0.lock().built_in.insert(text).clone()
    }

    fn part(&self, registry: &Registry, group: &'static str, version: &'static str) -> Arc<Text> {
        let origin = origin(registry, group, version);
        if let Some((of, text)) = self.0.lock().parts.get(&(group, version))
            && *of == origin
        {
            return text.clone();
        }
        let text = Text::of(&v2::defined(registry, group, version));
        self.0.lock().parts.insert((group, version), (origin, text.clone()));
        text
    }
}

/// The versions that definitions brought.
fn defined(registry: &Registry) -> Vec<(&'static str, &'static str)> {
    let rows = registry.rows().iter().filter(|row| row.definition.is_some());
    let mut versions: Vec<(&str, &str)> = rows.map(|row| (row.group, row.version)).collect();
    versions.dedup();
    versions
}
