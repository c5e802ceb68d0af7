//! What a definition's schema says of its objects: their types, how their values look to an
//! expression, and how large they can get (`apiserver/pkg/cel/common/schemas.go`).
//!
//! A [`Shape`] is a place in the schema as it was given. Nothing is compiled from it and nothing is
//! copied: expressions are checked and evaluated by walking the schema beside the object.
use crate::estimate::Sizes;
use crate::provider::{Types, escape, is_word, unescape_field};
use crate::types::Type;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::sync::Arc;

/// The name of the type that a rule's `self` has. Upstream makes up another with every definition
/// that is written, so that nobody relies on it.
pub const SELF: &str = "selfType0";

/// How many bytes a request may have: no object is larger.
const MOST_BYTES: u64 = 3 << 20;

/// An object's name has at most so many characters.
const NAME: u64 = 253;

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'s> {
    /// As the schema says.
    Given(&'s Json),
    /// A whole object: its type and its names are known even if the schema does not tell of them.
    Whole(&'s Json),
    /// The metadata of such an object, with what the schema says there.
    Metadata(&'s Json),
    /// A text of at most so many characters, with what the schema says there.
    Text(&'s Json, Option<u64>),
}

/// One step down in a schema.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Property(String),
    Items,
    Values,
}

impl<'s> Shape<'s> {
    /// A place inside of a schema.
    pub fn of(schema: &'s Json) -> Shape<'s> {
        match schema["x-kubernetes-embedded-resource"] == true {
            true => Shape::whole(schema),
            false => Shape::Given(schema),
        }
    }

    /// The root of a definition's schema, or of an object embedded in another.
    pub fn whole(schema: &'s Json) -> Shape<'s> {
        let properties = &schema["properties"];
        let metadata = &properties["metadata"];
        let says_all = properties["kind"]["type"] == "string"
            && properties["apiVersion"]["type"] == "string"
            && metadata["type"] == "object"
            && metadata["properties"]["name"]["type"] == "string"
            && metadata["properties"]["generateName"]["type"] == "string";
        if says_all { Shape::Given(schema) } else { Shape::Whole(schema) }
    }

    /// What the schema says of what is seen here.
    pub fn schema(self) -> &'s Json {
        match self {
            Shape::Given(schema) | Shape::Whole(schema) => schema,
            Shape::Metadata(_) | Shape::Text(..) => &Json::Null,
        }
    }

    /// All that the schema says here, seen or not.
    pub fn written(self) -> &'s Json {
        match self {
            Shape::Given(schema)
            | Shape::Whole(schema)
            | Shape::Metadata(schema)
            | Shape::Text(schema, _) => schema,
        }
    }

    /// OpenAPI's word for what is here; empty if anything may be.
    pub fn kind(self) -> &'s str {
        match self {
            Shape::Given(schema) | Shape::Whole(schema) => {
                schema["type"].as_str().unwrap_or_default()
            }
            Shape::Metadata(_) => "object",
            Shape::Text(..) => "string",
        }
    }

    pub fn format(self) -> &'s str {
        self.schema()["format"].as_str().unwrap_or_default()
    }

    pub fn is_int_or_string(self) -> bool {
        self.schema()["x-kubernetes-int-or-string"] == true
    }

    /// Whether it has named fields.
    pub fn has_properties(self) -> bool {
        let named = |schema: &Json| schema["properties"].as_object().is_some_and(|p| !p.is_empty());
        match self {
            Shape::Given(schema) => named(schema),
            Shape::Whole(_) | Shape::Metadata(_) => true,
            Shape::Text(..) => false,
        }
    }

    pub fn property(self, name: &str) -> Option<Shape<'s>> {
        let capped = |schema: &'s Json, most: u64| {
            let schema = &schema["properties"][name];
            let max = schema["maxLength"].as_u64().unwrap_or(most);
            Some(Shape::Text(schema, Some(max.min(most))))
        };
        match (self, name) {
            (Shape::Whole(schema), "kind" | "apiVersion") => {
                Some(Shape::Text(&schema["properties"][name], None))
            }
            (Shape::Whole(schema), "metadata") => {
                Some(Shape::Metadata(&schema["properties"]["metadata"]))
            }
            (Shape::Metadata(schema), "name") => capped(schema, NAME),
            // What is added to it has one character at least.
            (Shape::Metadata(schema), "generateName") => capped(schema, NAME - 1),
            (Shape::Given(schema) | Shape::Whole(schema), name) => {
                schema["properties"].get(name).map(Shape::of)
            }
            _ => None,
        }
    }

    pub fn items(self) -> Option<Shape<'s>> {
        Some(&self.schema()["items"]).filter(|items| items.is_object()).map(Shape::of)
    }

    /// Of a map.
    pub fn values(self) -> Option<Shape<'s>> {
        let values = &self.schema()["additionalProperties"];
        Some(values).filter(|values| values.is_object()).map(Shape::of)
    }

    pub fn step(self, step: &Step) -> Option<Shape<'s>> {
        match step {
            Step::Property(name) => self.property(name),
            Step::Items => self.items(),
            Step::Values => self.values(),
        }
    }

    /// The type of what is here, if expressions can see it. Objects are named by the way to them.
    pub fn declared(self, name: &str) -> Option<Type> {
        if self.is_int_or_string() {
            return Some(Type::Dyn);
        }
        Some(match self.kind() {
            "array" => Type::list(self.items()?.declared(&format!("{name}.@idx"))?),
            "object" => match self.values() {
                Some(values) => Type::map(Type::String, values.declared(&format!("{name}.@elem"))?),
                None => Type::object(name),
            },
            "string" => match self.format() {
                "byte" => Type::Bytes,
                "duration" => Type::Duration,
                "date" | "date-time" => Type::Timestamp,
                _ => Type::String,
            },
            "boolean" => Type::Bool,
            "number" => Type::Double,
            "integer" => Type::Int,
            _ => return None,
        })
    }

    /// How the elements of a list are told apart.
    pub fn identity(self) -> Identity<'s> {
        let schema = self.schema();
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Identity::Value,
            Some("map") => match schema["x-kubernetes-list-map-keys"].as_array() {
                Some(keys) => Identity::Keys(keys),
                None => Identity::Place,
            },
            _ => Identity::Place,
        }
    }

    fn bound(self, field: &str) -> Option<u64> {
        let bound = self.schema().get(field)?;
        bound.as_u64().or_else(|| bound.as_i64().map(|_| 0))
    }

    /// How many elements a value here can have, characters of a text included. Lengths are counted in
    /// characters by schemas and in bytes by estimates: a character has at most four.
    pub fn most_elements(self) -> u64 {
        let max_length = match self {
            Shape::Text(_, max) => max,
            other => other.bound("maxLength"),
        };
        if self.is_int_or_string() {
            return max_length.map_or(MOST_BYTES - 2, |max| max.saturating_mul(4));
        }
        match (self.kind(), self.format()) {
            ("array", _) => self.bound("maxItems").unwrap_or_else(|| {
                let least = self.items().map_or(0, Shape::least_bytes);
                (MOST_BYTES - 2) / (least + 1)
            }),
            ("object", _) => match self.values() {
                Some(values) => self
                    .bound("maxProperties")
                    .unwrap_or_else(|| (MOST_BYTES - 2) / (values.least_bytes() + 6)),
                None => 0,
            },
            ("string", "byte") => max_length.unwrap_or(MOST_BYTES - 2),
            ("string", "duration" | "date-time") => 32,
            ("string", "date") => 12,
            ("string", _) => match (max_length, self.schema()["enum"].as_array()) {
                (Some(max), _) => max.saturating_mul(4),
                (None, Some(values)) if !values.is_empty() => {
                    let lengths = values.iter().filter_map(Json::as_str).map(str::len);
                    lengths.max().unwrap_or(0) as u64
                }
                _ => MOST_BYTES - 2,
            },
            _ => 0,
        }
    }

    /// How many bytes the smallest value here has as JSON.
    pub fn least_bytes(self) -> u64 {
        if self.is_int_or_string() {
            return 1;
        }
        match (self.kind(), self.format()) {
            ("string", "duration") => 3,
            ("string", "date") => 12,
            ("string", "date-time") => 21,
            ("string" | "array", _) => 2,
            ("boolean", _) => 4,
            ("number" | "integer", _) => 1,
            ("object", _) if self.values().is_none() => {
                let required = self.schema()["required"].as_array().into_iter().flatten();
                let mut names: Vec<&str> = required.filter_map(Json::as_str).collect();
                names.sort_unstable();
                names.dedup();
                let parts = names.into_iter().filter_map(|name| {
                    let property = self.property(name)?;
                    property.declared(name)?;
                    let filled_in = !property.schema()["default"].is_null();
                    (!filled_in).then(|| name.len() as u64 + property.least_bytes() + 4)
                });
                2 + parts.sum::<u64>()
            }
            _ => 2,
        }
    }

    /// How often a value like this can be in one object, wherever nothing bounds it.
    pub fn most_times(self) -> u64 {
        MOST_BYTES / (self.least_bytes() + 1)
    }
}

/// What makes an element of a list the same as one of another list.
#[derive(Debug, Clone, Copy)]
pub enum Identity<'s> {
    Place,
    /// It is a set.
    Value,
    /// The values of these fields.
    Keys(&'s [Json]),
}

/// The types at a place in a schema, and below it.
pub struct ShapeTypes {
    /// What the type of the place itself is called.
    name: Cow<'static, str>,
    schema: Arc<Json>,
    /// From the root, which is a whole object.
    way: Vec<Step>,
}

impl ShapeTypes {
    pub fn new(schema: Arc<Json>, way: Vec<Step>) -> Self {
        ShapeTypes { name: SELF.into(), schema, way }
    }

    /// The types of whole objects.
    pub fn of_kind(name: String, schema: Arc<Json>) -> Self {
        ShapeTypes { name: name.into(), schema, way: Vec::new() }
    }

    /// The place itself.
    pub fn shape(&self) -> Option<Shape<'_>> {
        self.way.iter().try_fold(Shape::whole(&self.schema), |at, step| at.step(step))
    }

    /// The place that a type's name leads to.
    fn find(&self, name: &str) -> Option<Shape<'_>> {
        let rest = name.strip_prefix(&*self.name)?;
        if !rest.is_empty() && !rest.starts_with('.') {
            return None;
        }
        rest.split('.').skip(1).try_fold(self.shape()?, |at, step| match step {
            "@idx" => at.items(),
            "@elem" => at.values(),
            field => at.property(&unescape_field(field)?),
        })
    }
}

impl Types for ShapeTypes {
    fn knows(&self, object: &str) -> bool {
        self.find(object).is_some_and(|at| at.kind() == "object" && at.values().is_none())
    }

    fn field(&self, object: &str, field: &str) -> Option<Type> {
        let name = unescape_field(field)?;
        // Each field has one name only; but words of the language are fields' names, too, behind a dot.
        if escape(&name).as_deref() != Some(field) && !is_word(field) {
            return None;
        }
        self.find(object)?.property(&name)?.declared(&format!("{object}.{field}"))
    }
}

impl Sizes for ShapeTypes {
    fn most(&self, path: &[String]) -> Option<u64> {
        let mut at = self.shape()?;
        for (place, step) in path.iter().enumerate().skip(1) {
            let is_map = at.kind() == "object" && at.values().is_some();
            at = match &**step {
                _ if at.is_int_or_string() => return None,
                "@items" | "@values" if is_map => at.values()?,
                "@items" | "@values" if at.kind() == "array" => at.items()?,
                // Upstream takes keys to be empty.
                "@keys" if is_map && place + 1 == path.len() => return Some(0),
                field if at.kind() == "object" && !is_map => {
                    at.property(&unescape_field(field)?)?
                }
                _ => return None,
            };
            at.declared(SELF)?;
        }
        Some(at.most_elements())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_those_of_upstream() {
        for (schema, most, least) in [
            (json!({ "type": "string" }), 3_145_726, 2),
            (json!({ "type": "string", "maxLength": 10 }), 40, 2),
            (json!({ "type": "string", "enum": ["a", "abc"] }), 3, 2),
            (json!({ "type": "string", "format": "date-time" }), 32, 21),
            (json!({ "x-kubernetes-int-or-string": true }), 3_145_726, 1),
            (json!({ "type": "array", "items": { "type": "integer" } }), 1_572_863, 2),
            (json!({ "type": "array", "maxItems": 5, "items": { "type": "integer" } }), 5, 2),
            (
                json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
                314_572,
                2,
            ),
            (
                json!({ "type": "object", "required": ["ab"], "properties": {
                    "ab": { "type": "string" }, "c": { "type": "string" } } }),
                0,
                10,
            ),
        ] {
            let shape = Shape::of(&schema);
            assert_eq!((shape.most_elements(), shape.least_bytes()), (most, least), "{schema}");
        }
    }

    #[test]
    fn fields_are_named_so_that_expressions_can_write_them() {
        let schema = json!({ "type": "object", "properties": {
            "a-b": { "type": "integer" }, "namespace": { "type": "string" }, "c__d": { "type": "boolean" },
            "1x": { "type": "string" }, "any": { "x-kubernetes-preserve-unknown-fields": true },
            "l": { "type": "array", "items": { "type": "object", "properties": { "n": { "type": "number" } } } } } });
        let types = ShapeTypes::new(Arc::new(schema), Vec::new());
        for (object, field, expected) in [
            ("", "a__dash__b", Some("int")),
            ("", "a-b", None),
            ("", "__namespace__", Some("string")),
            ("", "namespace", Some("string")),
            ("", "c__underscores__d", Some("bool")),
            ("", "c__d", None),
            ("", "1x", None),
            ("", "any", None),
            ("", "metadata", Some("selfType0.metadata")),
            (".metadata", "name", Some("string")),
            (".metadata", "labels", None),
            ("", "l", Some("list(selfType0.l.@idx)")),
            (".l.@idx", "n", Some("double")),
        ] {
            let found = types.field(&format!("{SELF}{object}"), field);
            assert_eq!(found.map(|ty| ty.to_string()).as_deref(), expected, "{object} {field}");
        }
    }
}
