//! A protobuf message into the canonical tree.
//!
//! A message that comes twice is read on top of the first, as Go does: lists grow, maps and
//! messages are merged, scalars are replaced.
use super::super::presence::{complete, is_written};
use super::super::{DecodeError, MAX_DEPTH, base64, json, scalar};
use super::wire::{Payload, Reader, Tag, Wire, malformed};
use super::{envelope, is_protobuf};
use crate::duration::Duration;
use crate::quantity;
use crate::schema::{Either, Field, Named, Part, Scalar, Struct, Type, TypeRef};
use serde_json::{Map, Value};

/// Decodes the message of a struct. Numbers the schema does not know are skipped.
pub fn decode_message(bytes: &[u8], ty: TypeRef<'_>) -> Result<Value, DecodeError> {
    message(bytes, ty, Map::new(), 0)
}

pub(super) fn message_at(
    bytes: &[u8],
    ty: TypeRef<'_>,
    depth: usize,
) -> Result<Value, DecodeError> {
    message(bytes, ty, Map::new(), depth)
}

fn message(
    bytes: &[u8],
    ty: TypeRef<'_>,
    mut object: Map<String, Value>,
    depth: usize,
) -> Result<Value, DecodeError> {
    let Some(structure) = ty.as_struct() else { return Err(malformed("not a message type")) };
    fields(bytes, structure, ty, &mut object, depth)?;
    complete(&mut object, structure, ty);
    Ok(Value::Object(object))
}

/// Reads one message's fields into `object`. An embedded struct's message fills the same object.
fn fields(
    bytes: &[u8],
    structure: &Struct,
    ty: TypeRef<'_>,
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next(go_name(&structure.name))? {
        match structure.numbered(tag.number) {
            None => reader.skip(tag)?,
            Some(Part::Inline(index)) => {
                let inner = ty.at(structure.inline[index as usize].ty);
                let Some(inlined) = inner.as_struct() else { continue };
                tag.expect(Wire::Bytes, || go_name(&inlined.name).to_owned())?;
                fields(reader.bytes()?, inlined, inner, object, depth + 1)?;
            }
            Some(Part::Field(index)) => {
                let field = &structure.fields[index as usize];
                one_field(&mut reader, tag, field, ty.at(field.ty), object, depth)?;
            }
        }
    }
    Ok(())
}

fn one_field(
    reader: &mut Reader<'_>,
    tag: Tag,
    field: &Field,
    ty: TypeRef<'_>,
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let name = || go_field(&field.name, ty);
    match ty.get() {
        Type::List(list) if list.name.is_none() => {
            let elements = slot(object, &field.name, || Value::Array(Vec::new()));
            let Value::Array(elements) = elements else { return reader.skip(tag) };
            repeated(reader, tag, ty.at(list.element), name, elements, depth)
        }
        Type::Map(map) => {
            tag.expect(Wire::Bytes, name)?;
            let bytes = reader.bytes()?;
            let entries = slot(object, &field.name, || Value::Object(Map::new()));
            let Value::Object(entries) = entries else { return Ok(()) };
            entry(bytes, ty.at(map.value), entries, depth)
        }
        Type::Struct(_) => {
            tag.expect(Wire::Bytes, name)?;
            let bytes = reader.bytes()?;
            let before = match object.remove(&*field.name) {
                Some(Value::Object(before)) => before,
                _ => Map::new(),
            };
            let value = message(bytes, ty, before, depth + 1)?;
            store(value, field, ty, object);
            Ok(())
        }
        _ => {
            tag.expect(wire(ty), name)?;
            let value = single(reader.payload(wire(ty))?, ty, depth)?;
            store(value, field, ty, object);
            Ok(())
        }
    }
}

/// Protobuf writes zero values too; Go's JSON does not.
fn store(value: Value, field: &Field, ty: TypeRef<'_>, object: &mut Map<String, Value>) {
    if is_written(&value, field, ty) {
        object.insert(field.name.to_string(), value);
    } else {
        object.remove(&*field.name);
    }
}

/// The value under `name`, made on first sight or where a required one is still null.
fn slot<'o>(
    object: &'o mut Map<String, Value>,
    name: &str,
    empty: impl Fn() -> Value,
) -> &'o mut Value {
    let value = object.entry(name).or_insert_with(&empty);
    if value.is_null() {
        *value = empty();
    }
    value
}

/// How a value of the type is written.
fn wire(ty: TypeRef<'_>) -> Wire {
    match ty.get() {
        Type::Scalar(Named { scalar: Scalar::Bool | Scalar::Int32 | Scalar::Int64, .. }) => {
            Wire::Varint
        }
        Type::Scalar(Named { scalar: Scalar::Double | Scalar::Number, .. }) => Wire::Fixed64,
        _ => Wire::Bytes,
    }
}

/// One more element of a list; several at once if they come packed.
fn repeated(
    reader: &mut Reader<'_>,
    tag: Tag,
    element: TypeRef<'_>,
    field: impl FnOnce() -> String,
    elements: &mut Vec<Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let wire = wire(element);
    if wire == Wire::Bytes || !tag.is_bytes() {
        tag.expect(wire, field)?;
        elements.push(single(reader.payload(wire)?, element, depth)?);
        return Ok(());
    }
    let mut packed = Reader::new(reader.bytes()?);
    while !packed.is_empty() {
        elements.push(single(packed.payload(wire)?, element, depth)?);
    }
    Ok(())
}

/// One entry of a map: a message of key (1) and value (2), either of which may be missing.
fn entry(
    bytes: &[u8],
    value_ty: TypeRef<'_>,
    entries: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next_in_entry()? {
        match tag.number {
            1 => key = text(reader.bytes()?),
            2 => value = Some(single(reader.payload(wire(value_ty))?, value_ty, depth)?),
            _ => reader.skip(tag)?,
        }
    }
    let value = match value {
        Some(value) => value,
        None => {
            let absent = match wire(value_ty) {
                Wire::Varint => Payload::Varint(0),
                Wire::Fixed64 => Payload::Fixed64(0),
                Wire::Bytes => Payload::Bytes(&[]),
            };
            single(absent, value_ty, depth)?
        }
    };
    entries.insert(key, value);
    Ok(())
}

fn single(payload: Payload<'_>, ty: TypeRef<'_>, depth: usize) -> Result<Value, DecodeError> {
    match (ty.get(), payload) {
        (Type::Scalar(named), payload) => scalar_value(named.scalar, payload, depth),
        (Type::Struct(_), Payload::Bytes(bytes)) => message(bytes, ty, Map::new(), depth + 1),
        // A list that is a type of its own: a message with the elements as field 1.
        (Type::List(list), Payload::Bytes(bytes)) => {
            let name = list.name.as_deref().map_or("", go_name);
            let mut elements = Vec::new();
            let mut reader = Reader::new(bytes);
            while let Some(tag) = reader.next(name)? {
                if tag.number == 1 {
                    let element = ty.at(list.element);
                    repeated(&mut reader, tag, element, || "Items".into(), &mut elements, depth)?;
                } else {
                    reader.skip(tag)?;
                }
            }
            // Go leaves the slice nil when there was no element.
            Ok(if elements.is_empty() { Value::Null } else { Value::Array(elements) })
        }
        (Type::Either(which, props), Payload::Bytes(bytes)) => {
            either(*which, bytes, ty.at(*props), depth + 1)
        }
        _ => Err(malformed("not a type of any message")),
    }
}

fn either(
    which: Either,
    bytes: &[u8],
    props: TypeRef<'_>,
    depth: usize,
) -> Result<Value, DecodeError> {
    let (name, second) = match which {
        Either::SchemaOrBool => ("JSONSchemaPropsOrBool", "Schema"),
        Either::SchemaOrList => ("JSONSchemaPropsOrArray", "JSONSchemas"),
        Either::SchemaOrStrings => ("JSONSchemaPropsOrStringArray", "Property"),
    };
    let mut allows = false;
    let mut schema = None;
    let mut elements = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next(name)? {
        match (which, tag.number) {
            (Either::SchemaOrBool, 1) => {
                tag.expect(Wire::Varint, || "Allows".to_owned())?;
                allows = reader.varint()? != 0;
            }
            (Either::SchemaOrBool, 2) | (_, 1) => {
                tag.expect(Wire::Bytes, || "Schema".to_owned())?;
                schema = Some(message(reader.bytes()?, props, Map::new(), depth)?);
            }
            (_, 2) => {
                tag.expect(Wire::Bytes, || second.to_owned())?;
                let bytes = reader.bytes()?;
                elements.push(match which {
                    Either::SchemaOrStrings => text(bytes).into(),
                    _ => message(bytes, props, Map::new(), depth)?,
                });
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(match (schema, which) {
        (_, Either::SchemaOrList | Either::SchemaOrStrings) if !elements.is_empty() => {
            Value::Array(elements)
        }
        (Some(schema), _) => schema,
        (None, Either::SchemaOrBool) => allows.into(),
        (None, _) => Value::Null,
    })
}

fn scalar_value(kind: Scalar, payload: Payload<'_>, depth: usize) -> Result<Value, DecodeError> {
    Ok(match (kind, payload) {
        (Scalar::String, Payload::Bytes(bytes)) => text(bytes).into(),
        (Scalar::Bytes, Payload::Bytes(bytes)) => base64::encode(bytes).into(),
        (Scalar::Bool, Payload::Varint(value)) => (value != 0).into(),
        // Negative numbers are sign-extended to 64 bits on the wire.
        (Scalar::Int32, Payload::Varint(value)) => (value as i32).into(),
        (Scalar::Int64, Payload::Varint(value)) => (value as i64).into(),
        (Scalar::Double | Scalar::Number, Payload::Fixed64(bits)) => {
            scalar::number(f64::from_bits(bits))
        }
        (_, Payload::Bytes(bytes)) => scalar_message(kind, bytes, depth)?,
        _ => return Err(malformed("not a type of any message")),
    })
}

/// The scalars that are messages in protobuf.
fn scalar_message(kind: Scalar, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    Ok(match kind {
        Scalar::Quantity => {
            let [text] = parts(bytes, "Quantity", [("String_", Wire::Bytes)])?;
            let text = text.text();
            let text = if text.is_empty() { "0" } else { &text };
            quantity::canonicalize(text).map_err(|e| DecodeError::Type(e.to_string()))?.into()
        }
        Scalar::Time | Scalar::MicroTime if bytes.is_empty() => Value::Null,
        // Only whole seconds: what JSON clients could read back.
        Scalar::Time => {
            let [seconds, _] = timestamp(bytes)?;
            scalar::time_value(seconds.integer(), 0)
        }
        Scalar::MicroTime => {
            let [seconds, nanos] = timestamp(bytes)?;
            scalar::micro_time_value(seconds.integer(), nanos.integer() as i32)
        }
        Scalar::Duration => {
            let [nanos] = parts(bytes, "Duration", [("Duration", Wire::Varint)])?;
            Duration { nanos: nanos.integer() }.to_string().into()
        }
        Scalar::IntOrString => {
            let fields =
                [("Type", Wire::Varint), ("IntVal", Wire::Varint), ("StrVal", Wire::Bytes)];
            let [kind, number, text] = parts(bytes, "IntOrString", fields)?;
            match kind.integer() {
                1 => text.text().into(),
                _ => (number.integer() as i32).into(),
            }
        }
        Scalar::RawExtension => raw(bytes, "RawExtension", depth)?,
        Scalar::FieldsV1 => raw(bytes, "FieldsV1", depth)?,
        _ => raw(bytes, "JSON", depth)?,
    })
}

fn timestamp(bytes: &[u8]) -> Result<[Payload<'_>; 2], DecodeError> {
    parts(bytes, "Timestamp", [("Seconds", Wire::Varint), ("Nanos", Wire::Varint)])
}

/// The fields of a small message, numbered from 1; one that is absent is zero.
fn parts<'a, const N: usize>(
    bytes: &'a [u8],
    message: &str,
    fields: [(&str, Wire); N],
) -> Result<[Payload<'a>; N], DecodeError> {
    let mut parts = fields.map(|(_, wire)| match wire {
        Wire::Bytes => Payload::Bytes(&[]),
        _ => Payload::Varint(0),
    });
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next(message)? {
        let index = tag.number as usize - 1;
        match fields.get(index) {
            Some((name, wire)) => {
                tag.expect(*wire, || (*name).to_owned())?;
                parts[index] = reader.payload(*wire)?;
            }
            None => reader.skip(tag)?,
        }
    }
    Ok(parts)
}

impl Payload<'_> {
    fn integer(self) -> i64 {
        if let Payload::Varint(value) = self { value as i64 } else { 0 }
    }

    fn text(self) -> String {
        if let Payload::Bytes(bytes) = self { text(bytes) } else { String::new() }
    }
}

/// Raw content: JSON, or an object in its own protobuf envelope.
fn raw(bytes: &[u8], message: &str, depth: usize) -> Result<Value, DecodeError> {
    let [Payload::Bytes(content)] = parts(bytes, message, [("Raw", Wire::Bytes)])? else {
        return Ok(Value::Null);
    };
    if content.is_empty() {
        Ok(Value::Null)
    } else if is_protobuf(content) {
        envelope::decode_nested(content, depth + 1)
    } else {
        json::decode_untyped(content).map(|decoded| decoded.value)
    }
}

/// Go keeps invalid UTF-8 in a string and repairs it when it writes JSON; so do we, at once.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => json::repair(bytes),
    }
}

/// `core/v1.Pod` → `Pod`.
fn go_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The field's name in Go, but for the abbreviations that Go spells with capitals throughout.
fn go_field(name: &str, ty: TypeRef<'_>) -> String {
    if name == "metadata" {
        return ty.as_struct().map_or("", |s| go_name(&s.name)).to_owned();
    }
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use expect_test::{Expect, expect};

    /// Fields one after the other: a number, and a nested message or text.
    fn fields(parts: &[(u8, &[u8])]) -> Vec<u8> {
        parts
            .iter()
            .flat_map(|(number, bytes)| [&[number << 3 | 2, bytes.len() as u8], *bytes].concat())
            .collect()
    }

    fn check(kind: &str, bytes: &[u8], expected: Expect) {
        let ty = builtin().kind("", "v1", kind).unwrap();
        let shown = match decode_message(bytes, ty) {
            Ok(value) => value.to_string(),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn what_comes_twice_is_merged() {
        let first = fields(&[(1, b"a"), (11, &fields(&[(1, b"x"), (2, b"1")])), (14, b"f")]);
        let second = fields(&[(3, b"ns"), (11, &fields(&[(1, b"y"), (2, b"2")])), (14, b"g")]);
        check(
            "ConfigMap",
            &fields(&[(1, &first), (1, &second)]),
            expect![[
                r#"{"metadata":{"finalizers":["f","g"],"labels":{"x":"1","y":"2"},"name":"a","namespace":"ns"}}"#
            ]],
        );
    }

    #[test]
    fn a_map_entry_may_lack_its_key_or_value() {
        check(
            "ConfigMap",
            &fields(&[(2, &fields(&[(1, b"k")])), (2, &fields(&[(2, b"v")])), (3, b"")]),
            expect![[r#"{"binaryData":{"":""},"data":{"":"v","k":""},"metadata":{}}"#]],
        );
    }

    #[test]
    fn numbers_come_packed_or_one_by_one() {
        let ty = builtin().named("core/v1.PodPortForwardOptions").unwrap();
        for bytes in [&b"\x08\x01\x08\x02"[..], b"\x0a\x02\x01\x02", b"\x0a\x01\x01\x08\x02"] {
            assert_eq!(decode_message(bytes, ty).unwrap()["ports"], serde_json::json!([1, 2]));
        }
    }

    #[test]
    fn broken_text_is_repaired_and_a_zero_time_is_none() {
        let year_one = b"\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01";
        check(
            "ConfigMap",
            &fields(&[(1, &fields(&[(1, b"a\xff"), (9, year_one)]))]),
            expect![[r#"{"metadata":{"name":"a�"}}"#]],
        );
    }

    #[test]
    fn errors_name_message_and_field() {
        for (bytes, want) in [
            (&b"\x08\x01"[..], "proto: wrong wireType = 0 for field ObjectMeta"),
            (b"\x12\x01\x08", "unexpected EOF"),
            (b"\x0a\x01\x00", "proto: ObjectMeta: illegal tag 0 (wire type 0)"),
            (b"\x0a\x02\x3a\x00", "proto: wrong wireType = 2 for field Generation"),
            (b"\x0a\x04\x42\x02\x0a\x00", "proto: wrong wireType = 2 for field Seconds"),
        ] {
            let ty = builtin().kind("", "v1", "ConfigMap").unwrap();
            assert_eq!(decode_message(bytes, ty).unwrap_err().to_string(), want);
        }
    }
}
