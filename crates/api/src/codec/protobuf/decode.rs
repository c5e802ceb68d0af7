//! A protobuf message into the canonical tree.
use super::super::presence::{complete, is_written};
use super::super::{DecodeError, MAX_DEPTH, scalar};
use super::wire::{Payload, Reader, malformed};
use super::{envelope, is_protobuf};
use crate::duration::Duration;
use crate::schema::{Either, Named, Part, Scalar, Struct, Type, TypeRef};
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

/// Decodes the message of a struct. Numbers the schema does not know are skipped.
pub fn decode_message(bytes: &[u8], ty: TypeRef<'_>) -> Result<Value, DecodeError> {
    message(bytes, ty, 0)
}

fn message(bytes: &[u8], ty: TypeRef<'_>, depth: usize) -> Result<Value, DecodeError> {
    let Some(structure) = ty.as_struct() else { return Err(malformed("not a message type")) };
    let mut object = Map::new();
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
    while let Some((number, payload)) = reader.next()? {
        match structure.numbered(number) {
            None => {}
            Some(Part::Inline(index)) => {
                let inner = ty.at(structure.inline[index as usize].ty);
                if let (Payload::Bytes(bytes), Some(inlined)) = (payload, inner.as_struct()) {
                    fields(bytes, inlined, inner, object, depth + 1)?;
                }
            }
            Some(Part::Field(index)) => {
                let field = &structure.fields[index as usize];
                let field_ty = ty.at(field.ty);
                match field_ty.get() {
                    Type::List(list) if list.name.is_none() => {
                        let elements = slot(object, &field.name, || Value::Array(Vec::new()));
                        if let Value::Array(elements) = elements {
                            repeated(payload, field_ty.at(list.element), elements, depth)?;
                        }
                    }
                    Type::Map(map) => {
                        let entries = slot(object, &field.name, || Value::Object(Map::new()));
                        if let (Value::Object(entries), Payload::Bytes(bytes)) = (entries, payload)
                        {
                            entry(bytes, field_ty.at(map.value), entries, depth)?;
                        }
                    }
                    _ => {
                        // Protobuf writes zero values too; Go's JSON does not.
                        let value = single(payload, field_ty, depth)?;
                        if is_written(&value, field, field_ty) {
                            object.insert(field.name.to_string(), value);
                        } else {
                            object.remove(&*field.name);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The value under `name`, made on first sight.
fn slot<'o>(
    object: &'o mut Map<String, Value>,
    name: &str,
    empty: impl FnOnce() -> Value,
) -> &'o mut Value {
    object.entry(name).or_insert_with(empty)
}

/// One more element of a list; several at once if they come packed.
fn repeated(
    payload: Payload<'_>,
    element: TypeRef<'_>,
    elements: &mut Vec<Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let Payload::Bytes(bytes) = payload else {
        elements.push(single(payload, element, depth)?);
        return Ok(());
    };
    let packed = match element.get() {
        Type::Scalar(Named { scalar, .. }) => *scalar,
        _ => Scalar::String,
    };
    let mut reader = Reader::new(bytes);
    match packed {
        Scalar::Bool | Scalar::Int32 | Scalar::Int64 => {
            while !reader.is_empty() {
                elements.push(single(Payload::Varint(reader.varint()?), element, depth)?);
            }
        }
        Scalar::Double => {
            while !reader.is_empty() {
                elements.push(single(Payload::Fixed64(reader.fixed64()?), element, depth)?);
            }
        }
        _ => elements.push(single(payload, element, depth)?),
    }
    Ok(())
}

/// One entry of a map: a message of key (1) and value (2).
fn entry(
    bytes: &[u8],
    value_ty: TypeRef<'_>,
    entries: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => key = text(bytes),
            (2, payload) => value = Some(single(payload, value_ty, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => single(default_payload(value_ty), value_ty, depth)?,
    };
    entries.insert(key, value);
    Ok(())
}

/// What an absent value means on the wire.
fn default_payload(ty: TypeRef<'_>) -> Payload<'static> {
    match ty.get() {
        Type::Scalar(Named { scalar: Scalar::Bool | Scalar::Int32 | Scalar::Int64, .. }) => {
            Payload::Varint(0)
        }
        Type::Scalar(Named { scalar: Scalar::Double, .. }) => Payload::Fixed64(0),
        _ => Payload::Bytes(&[]),
    }
}

fn single(payload: Payload<'_>, ty: TypeRef<'_>, depth: usize) -> Result<Value, DecodeError> {
    match (ty.get(), payload) {
        (Type::Scalar(named), payload) => scalar_value(named.scalar, payload, depth),
        (Type::Struct(_), Payload::Bytes(bytes)) => message(bytes, ty, depth + 1),
        // A list that is a type of its own: a message with the elements as field 1.
        (Type::List(list), Payload::Bytes(bytes)) => {
            let mut elements = Vec::new();
            let mut reader = Reader::new(bytes);
            while let Some((number, payload)) = reader.next()? {
                if number == 1 {
                    repeated(payload, ty.at(list.element), &mut elements, depth)?;
                }
            }
            // Go leaves the slice nil when there was no element.
            Ok(if elements.is_empty() { Value::Null } else { Value::Array(elements) })
        }
        (Type::Either(which, props), Payload::Bytes(bytes)) => {
            either(*which, bytes, ty.at(*props), depth + 1)
        }
        _ => Err(malformed("wrong wireType")),
    }
}

fn either(
    which: Either,
    bytes: &[u8],
    props: TypeRef<'_>,
    depth: usize,
) -> Result<Value, DecodeError> {
    let mut allows = false;
    let mut schema = None;
    let mut elements = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (which, number, payload) {
            (Either::SchemaOrBool, 1, Payload::Varint(value)) => allows = value != 0,
            (Either::SchemaOrBool, 2, Payload::Bytes(bytes))
            | (Either::SchemaOrList | Either::SchemaOrStrings, 1, Payload::Bytes(bytes)) => {
                schema = Some(message(bytes, props, depth)?);
            }
            (Either::SchemaOrList, 2, Payload::Bytes(bytes)) => {
                elements.push(message(bytes, props, depth)?);
            }
            (Either::SchemaOrStrings, 2, Payload::Bytes(bytes)) => {
                elements.push(text(bytes).into())
            }
            _ => {}
        }
    }
    Ok(match (schema, which) {
        (Some(schema), _) => schema,
        (None, Either::SchemaOrBool) => allows.into(),
        (None, _) if elements.is_empty() => Value::Null,
        (None, _) => Value::Array(elements),
    })
}

fn scalar_value(kind: Scalar, payload: Payload<'_>, depth: usize) -> Result<Value, DecodeError> {
    Ok(match (kind, payload) {
        (Scalar::String, Payload::Bytes(bytes)) => text(bytes).into(),
        (Scalar::Bytes, Payload::Bytes(bytes)) => BASE64.encode(bytes).into(),
        (Scalar::Bool, Payload::Varint(value)) => (value != 0).into(),
        // Negative numbers are sign-extended to 64 bits on the wire.
        (Scalar::Int32, Payload::Varint(value)) => (value as i32).into(),
        (Scalar::Int64, Payload::Varint(value)) => (value as i64).into(),
        (Scalar::Double | Scalar::Number, Payload::Fixed64(bits)) => {
            scalar::number(f64::from_bits(bits))
        }
        (Scalar::Quantity, Payload::Bytes(bytes)) => {
            let parts = Parts::read(bytes)?;
            let text = if parts.text.is_empty() { "0" } else { &parts.text };
            from_text(Scalar::Quantity, text)?
        }
        (Scalar::Time | Scalar::MicroTime, Payload::Bytes([])) => Value::Null,
        // Only whole seconds: what JSON clients could read back.
        (Scalar::Time, Payload::Bytes(bytes)) => {
            let parts = Parts::read(bytes)?;
            time::format(parts.first as i64).into()
        }
        (Scalar::MicroTime, Payload::Bytes(bytes)) => {
            let parts = Parts::read(bytes)?;
            time::format_micro(parts.first as i64, parts.second as i32).into()
        }
        (Scalar::Duration, Payload::Bytes(bytes)) => {
            Duration { nanos: Parts::read(bytes)?.first as i64 }.to_string().into()
        }
        (Scalar::IntOrString, Payload::Bytes(bytes)) => {
            let parts = Parts::read(bytes)?;
            if parts.first == 1 { parts.third.into() } else { (parts.second as i32).into() }
        }
        (Scalar::RawExtension | Scalar::FieldsV1 | Scalar::Json, Payload::Bytes(bytes)) => {
            raw(bytes, depth)?
        }
        _ => return Err(malformed("wrong wireType")),
    })
}

fn from_text(kind: Scalar, text: &str) -> Result<Value, DecodeError> {
    let value = scalar::from_text(kind, text).map_err(DecodeError::Type)?;
    Ok(value.unwrap_or(Value::Null))
}

/// The small messages behind several scalars: up to three fields, numbers or text.
#[derive(Default)]
struct Parts {
    first: u64,
    second: u64,
    /// Field 1 as text (Quantity).
    text: String,
    /// Field 3 as text (IntOrString).
    third: String,
}

impl Parts {
    fn read(bytes: &[u8]) -> Result<Parts, DecodeError> {
        let mut parts = Parts::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            match (number, payload) {
                (1, Payload::Varint(value)) => parts.first = value,
                (2, Payload::Varint(value)) => parts.second = value,
                (1, Payload::Bytes(bytes)) => parts.text = text(bytes),
                (3, Payload::Bytes(bytes)) => parts.third = text(bytes),
                _ => {}
            }
        }
        Ok(parts)
    }
}

/// Raw content: JSON, or an object in its own protobuf envelope.
fn raw(bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let mut content: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        if let (1, Payload::Bytes(bytes)) = (number, payload) {
            content = bytes;
        }
    }
    if content.is_empty() {
        Ok(Value::Null)
    } else if is_protobuf(content) {
        envelope::decode_nested(content, depth + 1)
    } else {
        super::super::json::decode_untyped(content).map(|decoded| decoded.value)
    }
}

/// Go keeps invalid UTF-8 in a string and repairs it when it writes JSON; so do we, at once.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn message_at(
    bytes: &[u8],
    ty: TypeRef<'_>,
    depth: usize,
) -> Result<Value, DecodeError> {
    message(bytes, ty, depth)
}
