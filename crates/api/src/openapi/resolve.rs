//! What a document of OpenAPI v3 says of one kind, with what is referred to in the place of references
//! (`apiserver/pkg/cel/openapi/resolver`).
//!
//! A document may be another server's, and say anything. No more of it is read than a kind needs, a part that
//! contains itself ends there, and what would become deeper than any tree or larger than any kind is left
//! alone: a few references to references can stand for more than fits into a machine.
use crate::depth;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Places in one kind's schema. Definitions do not get near it, for they have to fit into a request.
const MOST_PLACES: usize = 100_000;

const PARTS: &str = "#/components/schemas/";

/// A document, its parts unread.
#[derive(Deserialize)]
pub struct Document<'d> {
    #[serde(borrow, default)]
    components: Components<'d>,
}

#[derive(Deserialize, Default)]
struct Components<'d> {
    #[serde(borrow, default)]
    schemas: BTreeMap<String, &'d RawValue>,
}

/// What says of a part whose it is.
#[derive(Deserialize)]
struct Marked<'d> {
    #[serde(borrow, rename = "x-kubernetes-group-version-kind", default)]
    kinds: Vec<Mark<'d>>,
}

#[derive(Deserialize)]
struct Mark<'d> {
    #[serde(borrow, default)]
    group: Cow<'d, str>,
    #[serde(borrow, default)]
    version: Cow<'d, str>,
    #[serde(borrow, default)]
    kind: Cow<'d, str>,
}

impl<'d> Document<'d> {
    pub fn read(json: &'d [u8]) -> serde_json::Result<Document<'d>> {
        serde_json::from_slice(json)
    }

    /// The types of a kind's fields: of each place its type, its format, what is below it, and whether it is
    /// an object of its own or a number or a text. None if the document does not tell, or not soundly.
    pub fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let is_it = |part: &RawValue| {
            let marked = serde_json::from_str::<Marked<'_>>(part.get());
            let kinds = marked.map(|marked| marked.kinds).unwrap_or_default();
            kinds.iter().any(|it| it.group == group && it.version == version && it.kind == kind)
        };
        let (name, _) = self.components.schemas.iter().find(|(_, part)| is_it(part))?;
        let mut parts = HashMap::new();
        self.gather(name, &mut parts)?;
        let mut resolving = Resolving { parts: &parts, within: Vec::new(), left: MOST_PLACES };
        resolving.said(parts.get(&**name)?, depth::LIMIT)
    }

    /// Reads a part and all that it leads to.
    fn gather<'s>(&'s self, name: &'s str, parts: &mut HashMap<&'s str, Value>) -> Option<()> {
        let mut names = vec![name];
        while let Some(name) = names.pop() {
            if parts.contains_key(name) {
                continue;
            }
            let (name, text) = self.components.schemas.get_key_value(name)?;
            let part: Value = depth::read(text.get().as_bytes()).ok()?;
            each_reference(&part, &mut |to| {
                // What leads nowhere is found out where it is needed.
                names.extend(self.components.schemas.get_key_value(to).map(|(name, _)| &**name));
            });
            parts.insert(name, part);
        }
        Some(())
    }
}

/// Every part that a schema names, by its name.
fn each_reference(schema: &Value, found: &mut dyn FnMut(&str)) {
    if let Some(name) = referred(schema) {
        found(name);
    }
    for inner in below(schema) {
        each_reference(inner, found);
    }
}

/// Fields, elements and entries.
fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let fields = schema["properties"].as_object().into_iter().flat_map(Map::values);
    fields.chain([&schema["items"], &schema["additionalProperties"]].into_iter().filter(is_schema))
}

fn is_schema(value: &&Value) -> bool {
    value.is_object()
}

/// The part that a schema stands for, be it named alone or beside a description.
fn referred(schema: &Value) -> Option<&str> {
    let name = schema["$ref"].as_str().map(|name| name.strip_prefix(PARTS).unwrap_or(name));
    name.or_else(|| schema["allOf"].as_array().into_iter().flatten().find_map(referred))
}

struct Resolving<'p> {
    parts: &'p HashMap<&'p str, Value>,
    /// The parts that we were led into.
    within: Vec<&'p str>,
    /// How many places there may still be.
    left: usize,
}

impl<'p> Resolving<'p> {
    fn place(&mut self, schema: &'p Value, depth: usize) -> Option<Value> {
        let Some(name) = referred(schema) else { return self.said(schema, depth) };
        if self.within.contains(&name) {
            return Some(json!({ "type": "object" }));
        }
        let part = self.parts.get(name)?;
        self.within.push(name);
        let said = self.said(part, depth);
        self.within.pop();
        said
    }

    /// What a schema itself says.
    fn said(&mut self, schema: &'p Value, depth: usize) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let (inner, field) = (depth.checked_sub(1)?, depth.checked_sub(2)?);
        let mut said = Map::new();
        // Older documents have lists of types.
        let ty = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
        if let Some(ty) = ty {
            said.insert("type".into(), ty.into());
        }
        if let Some(format) = schema["format"].as_str() {
            said.insert("format".into(), format.into());
        }
        // Go types say it by the format, definitions by the word.
        if schema["format"] == "int-or-string" || schema[EITHER] == true {
            said.insert(EITHER.into(), true.into());
        }
        if schema[EMBEDDED] == true {
            said.insert(EMBEDDED.into(), true.into());
        }
        if let Some(fields) = schema["properties"].as_object() {
            let fields =
                fields.iter().map(|(name, it)| Some((name.clone(), self.place(it, field)?)));
            let fields: Map<String, Value> = fields.collect::<Option<_>>()?;
            said.insert("properties".into(), fields.into());
        }
        for name in ["items", "additionalProperties"] {
            if let Some(it) = Some(&schema[name]).filter(is_schema) {
                said.insert(name.into(), self.place(it, inner)?);
            }
        }
        Some(said.into())
    }
}

const EITHER: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// What is made of the kind `Widget`, where these are the parts.
    fn resolved(mut parts: Value) -> Option<Value> {
        parts["w"]["x-kubernetes-group-version-kind"] =
            json!([{ "group": "g", "version": "v1", "kind": "Widget" }]);
        let text = json!({ "openapi": "3.0.0", "components": { "schemas": parts } }).to_string();
        let document = Document::read(text.as_bytes()).expect("JSON");
        assert_eq!(document.schema("g", "v2", "Widget"), None);
        document.schema("g", "v1", "Widget")
    }

    fn check(parts: Value, expected: Expect) {
        let found = resolved(parts).map_or("nothing".to_owned(), |schema| schema.to_string());
        expected.assert_eq(&found);
    }

    fn to(name: &str) -> Value {
        json!({ "$ref": format!("{PARTS}{name}") })
    }

    #[test]
    fn parts_stand_where_they_are_referred_to() {
        check(
            json!({
                "w": { "type": "object", "description": "A widget.", "properties": {
                    "spec": { "allOf": [to("s")], "description": "What is wanted.", "default": {} },
                    "list": { "type": "array", "items": to("s") },
                    "map": { "type": "object", "additionalProperties": to("s") },
                }},
                "s": { "type": ["object"], "required": ["at"], "properties": {
                    "at": { "format": "int-or-string", "oneOf": [{ "type": "integer" }] },
                    "when": { "type": "string", "format": "date-time" },
                    "any": { "type": "object", "additionalProperties": true, "x-kubernetes-embedded-resource": true },
                }},
                "other": to("missing"),
            }),
            expect![[
                r#"{"properties":{"list":{"items":{"properties":{"any":{"type":"object","x-kubernetes-embedded-resource":true},"at":{"format":"int-or-string","x-kubernetes-int-or-string":true},"when":{"format":"date-time","type":"string"}},"type":"object"},"type":"array"},"map":{"additionalProperties":{"properties":{"any":{"type":"object","x-kubernetes-embedded-resource":true},"at":{"format":"int-or-string","x-kubernetes-int-or-string":true},"when":{"format":"date-time","type":"string"}},"type":"object"},"type":"object"},"spec":{"properties":{"any":{"type":"object","x-kubernetes-embedded-resource":true},"at":{"format":"int-or-string","x-kubernetes-int-or-string":true},"when":{"format":"date-time","type":"string"}},"type":"object"}},"type":"object"}"#
            ]],
        );
    }

    #[test]
    fn what_contains_itself_ends_there() {
        let tree = json!({ "type": "object", "properties": {
            "left": to("t"), "name": { "type": "string" } } });
        check(
            json!({ "w": { "type": "object", "properties": { "a": to("t"), "b": to("t") } }, "t": tree }),
            expect![[
                r#"{"properties":{"a":{"properties":{"left":{"type":"object"},"name":{"type":"string"}},"type":"object"},"b":{"properties":{"left":{"type":"object"},"name":{"type":"string"}},"type":"object"}},"type":"object"}"#
            ]],
        );
    }

    #[test]
    fn a_reference_that_leads_nowhere_leaves_the_kind_unknown() {
        check(json!({ "w": { "properties": { "a": to("missing") } } }), expect!["nothing"]);
    }

    /// Each part is twice the one behind it, or as much deeper.
    #[test]
    fn little_that_stands_for_much_is_left_alone() {
        let chain = |length: usize, part: fn(Value) -> Value| {
            let mut parts = json!({ "w": part(to("0")) });
            for at in 0..length {
                parts[at.to_string()] = part(to(&(at + 1).to_string()));
            }
            parts[length.to_string()] = json!({ "type": "object" });
            resolved(parts).is_some()
        };
        let twice = |to: Value| json!({ "type": "object", "properties": { "a": to, "b": to } });
        assert!(chain(10, twice) && !chain(60, twice));
        let deeper = |to: Value| json!({ "type": "array", "items": to });
        assert!(chain(150, deeper) && !chain(5_000, deeper));
    }

    #[test]
    fn documents_that_are_none_say_nothing() {
        for text in ["", "[]", "{", "{}", "null", r#"{"components":[]}"#, r#"{"components":3}"#] {
            let document = Document::read(text.as_bytes()).ok();
            assert!(document.is_none_or(|it| it.schema("g", "v1", "Widget").is_none()), "{text}");
        }
        for schemas in
            [json!({}), json!({ "w": 3, "v": { "x-kubernetes-group-version-kind": "x" } })]
        {
            let text = json!({ "components": { "schemas": schemas } }).to_string();
            let document = Document::read(text.as_bytes()).expect("JSON");
            assert_eq!(document.schema("g", "v1", "Widget"), None);
        }
    }
}
