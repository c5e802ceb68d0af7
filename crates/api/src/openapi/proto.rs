//! The OpenAPI v2 document in protobuf, the only form older kubectl reads it in.
//!
//! The messages are those of gnostic's `openapi.v2`. They follow the JSON closely, but for a few
//! habits: an object with free keys is a list of named values, what may be several things is
//! wrapped once more, and anything goes as YAML text. A table says which field is which.
use crate::codec::protobuf::wire::Writer;
use serde_json::{Map, Value};

/// What it is sent as.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// What clients ask for: most still by its first name, which no media type may have.
pub fn is_asked_for(accept: &str) -> bool {
    accept.contains("proto-openapi.spec.v2")
}

/// How a JSON value is written.
enum Shape {
    Text,
    Flag,
    Texts,
    One(&'static Message),
    /// A message with only this message in it, under this number.
    Wrapped(u32, &'static Message),
    /// An object with free keys: under this number, a name and a value for each.
    Named(u32, &'static Message),
    /// The same, whose values are wrapped once more.
    NamedWrapped(u32, u32, &'static Message),
    /// A list of texts in a message of its own.
    Type,
    Anys,
    Parameters,
    /// Named parameters, each of which may be one of several things.
    NamedParameters,
}

struct Message {
    /// In order of number.
    fields: &'static [(&'static str, u32, Shape)],
    /// Where fields that begin with `x-` go.
    extensions: u32,
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Shape::Text),
        ("info", 2, Shape::One(&INFO)),
        ("paths", 8, Shape::Named(2, &PATH)),
        ("definitions", 9, Shape::Named(1, &SCHEMA)),
        ("parameters", 10, Shape::NamedParameters),
        ("securityDefinitions", 13, Shape::NamedWrapped(1, 2, &API_KEY)),
    ],
    extensions: 16,
};

static INFO: Message =
    Message { fields: &[("title", 1, Shape::Text), ("version", 2, Shape::Text)], extensions: 7 };

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Shape::Text),
        ("name", 2, Shape::Text),
        ("in", 3, Shape::Text),
        ("description", 4, Shape::Text),
    ],
    extensions: 5,
};

static PATH: Message = Message {
    fields: &[
        ("get", 2, Shape::One(&OPERATION)),
        ("put", 3, Shape::One(&OPERATION)),
        ("post", 4, Shape::One(&OPERATION)),
        ("delete", 5, Shape::One(&OPERATION)),
        ("options", 6, Shape::One(&OPERATION)),
        ("head", 7, Shape::One(&OPERATION)),
        ("patch", 8, Shape::One(&OPERATION)),
        ("parameters", 9, Shape::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Shape::Texts),
        ("description", 3, Shape::Text),
        ("operationId", 5, Shape::Text),
        ("produces", 6, Shape::Texts),
        ("consumes", 7, Shape::Texts),
        ("parameters", 8, Shape::Parameters),
        ("responses", 9, Shape::NamedWrapped(1, 1, &RESPONSE)),
        ("schemes", 10, Shape::Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Shape::Text), ("schema", 2, Shape::Wrapped(1, &SCHEMA))],
    extensions: 5,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Shape::Text),
        ("format", 2, Shape::Text),
        ("description", 4, Shape::Text),
        ("required", 19, Shape::Texts),
        ("enum", 20, Shape::Anys),
        ("additionalProperties", 21, Shape::Wrapped(1, &SCHEMA)),
        ("type", 22, Shape::Type),
        ("items", 23, Shape::Wrapped(1, &SCHEMA)),
        ("properties", 25, Shape::Named(1, &SCHEMA)),
    ],
    extensions: 31,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, Shape::Text),
        ("name", 2, Shape::Text),
        ("in", 3, Shape::Text),
        ("required", 4, Shape::Flag),
        ("schema", 5, Shape::One(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 6, Shape::Text),
        ("uniqueItems", 20, Shape::Flag),
    ],
    extensions: 23,
};

static IN_PATH: Message = Message {
    fields: &[
        ("required", 1, Shape::Flag),
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 5, Shape::Text),
        ("uniqueItems", 19, Shape::Flag),
    ],
    extensions: 22,
};

static REFERENCE: Message = Message { fields: &[("$ref", 1, Shape::Text)], extensions: 0 };

pub fn encode(document: &Value) -> Vec<u8> {
    let mut writer = Writer::with_capacity(1 << 20);
    message(document, &DOCUMENT, &mut writer);
    writer.finish()
}

/// The writer goes from the end to the start, so everything is met in reverse.
fn message(value: &Value, layout: &Message, writer: &mut Writer) {
    let Value::Object(object) = value else { return };
    extensions(object, layout.extensions, writer);
    for (name, number, shape) in layout.fields.iter().rev() {
        if let Some(value) = object.get(*name) {
            field(*number, value, shape, writer);
        }
    }
}

fn nested(number: u32, writer: &mut Writer, write: impl FnOnce(&mut Writer)) {
    let mark = writer.mark();
    write(writer);
    writer.message(number, mark);
}

fn field(number: u32, value: &Value, shape: &Shape, writer: &mut Writer) {
    match shape {
        Shape::Text => writer.bytes_field(number, value.as_str().unwrap_or_default().as_bytes()),
        Shape::Flag => writer.varint_field(number, u64::from(value == &Value::Bool(true))),
        Shape::Texts => texts(number, value, writer),
        Shape::One(layout) => nested(number, writer, |w| message(value, layout, w)),
        Shape::Wrapped(inner, layout) => {
            nested(number, writer, |w| nested(*inner, w, |w| message(value, layout, w)));
        }
        Shape::Named(inner, layout) => named(number, *inner, value, writer, |value, w| {
            nested(2, w, |w| message(value, layout, w));
        }),
        Shape::NamedWrapped(inner, wrapped, layout) => {
            named(number, *inner, value, writer, |value, w| {
                nested(2, w, |w| nested(*wrapped, w, |w| message(value, layout, w)));
            })
        }
        Shape::NamedParameters => named(number, 1, value, writer, |value, w| {
            nested(2, w, |w| parameter(value, w));
        }),
        Shape::Type => nested(number, writer, |w| {
            w.bytes_field(1, value.as_str().unwrap_or_default().as_bytes())
        }),
        Shape::Anys => {
            for value in value.as_array().into_iter().flatten().rev() {
                nested(number, writer, |w| any(value, w));
            }
        }
        Shape::Parameters => {
            for value in value.as_array().into_iter().flatten().rev() {
                nested(number, writer, |w| match value.get("$ref") {
                    Some(_) => nested(2, w, |w| message(value, &REFERENCE, w)),
                    None => nested(1, w, |w| parameter(value, w)),
                });
            }
        }
    }
}

fn texts(number: u32, value: &Value, writer: &mut Writer) {
    for text in value.as_array().into_iter().flatten().rev() {
        writer.bytes_field(number, text.as_str().unwrap_or_default().as_bytes());
    }
}

fn named(
    number: u32,
    inner: u32,
    value: &Value,
    writer: &mut Writer,
    write: impl Fn(&Value, &mut Writer),
) {
    let Value::Object(entries) = value else { return };
    nested(number, writer, |writer| {
        for (name, value) in entries.iter().rev() {
            nested(inner, writer, |w| {
                write(value, w);
                w.bytes_field(1, name.as_bytes());
            });
        }
    });
}

fn parameter(value: &Value, writer: &mut Writer) {
    match value["in"].as_str() {
        Some("body") => nested(1, writer, |w| message(value, &BODY, w)),
        Some("path") => nested(2, writer, |w| nested(4, w, |w| message(value, &IN_PATH, w))),
        _ => nested(2, writer, |w| nested(3, w, |w| message(value, &QUERY, w))),
    }
}

fn extensions(object: &Map<String, Value>, number: u32, writer: &mut Writer) {
    for (name, value) in
        object.iter().rev().filter(|(name, _)| name.starts_with("x-") && number != 0)
    {
        nested(number, writer, |w| {
            nested(2, w, |w| any(value, w));
            w.bytes_field(1, name.as_bytes());
        });
    }
}

/// Any value, as YAML text; JSON is YAML.
fn any(value: &Value, writer: &mut Writer) {
    writer.bytes_field(2, value.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn a_schema_is_written_as_gnostic_reads_it() {
        let document = json!({ "swagger": "2.0", "definitions": { "a": {
            "type": "object", "x-list": ["k"], "properties": { "b": { "$ref": "#/definitions/c" } } } } });
        let text = encode(&document).escape_ascii().to_string();
        expect![[r#"\n\x032.0JA\n?\n\x01a\x12:\xb2\x01\x08\n\x06object\xca\x01\x18\n\x16\n\x01b\x12\x11\n\x0f#/definitions/c\xfa\x01\x11\n\x06x-list\x12\x07\x12\x05[\"k\"]"#]].assert_eq(&text);
    }
}
