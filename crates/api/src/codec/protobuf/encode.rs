//! The canonical tree into a protobuf message, byte for byte as upstream writes it.
//!
//! Upstream writes the fields in order of their numbers, and writes a value that is not a
//! pointer even when it is zero; map entries are sorted by key.
use super::super::scalar;
use super::wire::Writer;
use crate::duration::Duration;
use crate::schema::{Either, Field, Named, Part, Scalar, Type, TypeRef};
use crate::time;
use serde_json::{Map, Value};

/// Encodes a tree that is in canonical form. A value of the wrong type is treated as absent: a
/// tree that came through a decoder has none.
pub fn encode_message(value: &Value, ty: TypeRef<'_>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(1024);
    message(value.as_object(), ty, &mut writer);
    writer.finish()
}

pub(super) fn message(object: Option<&Map<String, Value>>, ty: TypeRef<'_>, writer: &mut Writer) {
    let Some(structure) = ty.as_struct() else { return };
    for (number, part) in structure.wire().iter().rev() {
        match part {
            Part::Inline(index) => {
                let mark = writer.mark();
                message(object, ty.at(structure.inline[*index as usize].ty), writer);
                writer.message(*number, mark);
            }
            Part::Field(index) => {
                let field = &structure.fields[*index as usize];
                let value = object.and_then(|o| o.get(&*field.name)).filter(|v| !v.is_null());
                field_value(value, field, ty.at(field.ty), writer);
            }
        }
    }
}

fn field_value(value: Option<&Value>, field: &Field, ty: TypeRef<'_>, writer: &mut Writer) {
    match ty.get() {
        Type::List(list) if list.name.is_none() => {
            let elements = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for element in elements.iter().rev() {
                single(field.number, Some(element), ty.at(list.element), writer);
            }
        }
        Type::Map(map) => {
            let Some(entries) = value.and_then(Value::as_object) else { return };
            // The tree's maps are sorted by key already.
            for (key, value) in entries.iter().rev() {
                let mark = writer.mark();
                single(2, Some(value), ty.at(map.value), writer);
                writer.bytes_field(1, key.as_bytes());
                writer.message(field.number, mark);
            }
        }
        // An absent pointer is not written; neither are absent bytes, which are a nil slice.
        Type::Scalar(Named { scalar: Scalar::Bytes, .. }) if value.is_none() => {}
        Type::List(_) if value.is_none() => {}
        _ if value.is_none() && field.pointer => {}
        _ => single(field.number, value, ty, writer),
    }
}

/// One value as the field of this number; `None` is the type's zero.
pub(super) fn single(number: u32, value: Option<&Value>, ty: TypeRef<'_>, writer: &mut Writer) {
    match ty.get() {
        Type::Scalar(named) => scalar_value(number, value, named.scalar, writer),
        Type::Struct(_) => {
            let mark = writer.mark();
            message(value.and_then(Value::as_object), ty, writer);
            writer.message(number, mark);
        }
        Type::List(list) => {
            let mark = writer.mark();
            for element in value.and_then(Value::as_array).into_iter().flatten().rev() {
                single(1, Some(element), ty.at(list.element), writer);
            }
            writer.message(number, mark);
        }
        Type::Either(which, props) => {
            let mark = writer.mark();
            either(*which, value, ty.at(*props), writer);
            writer.message(number, mark);
        }
        Type::Map(_) | Type::Any => {}
    }
}

fn either(which: Either, value: Option<&Value>, props: TypeRef<'_>, writer: &mut Writer) {
    match (which, value) {
        (Either::SchemaOrBool, Some(Value::Object(_))) => {
            single(2, value, props, writer);
            writer.varint_field(1, 1);
        }
        (Either::SchemaOrBool, _) => {
            writer.varint_field(1, u64::from(value == Some(&Value::Bool(true))));
        }
        (_, Some(Value::Object(_))) => single(1, value, props, writer),
        (Either::SchemaOrList, Some(Value::Array(schemas))) => {
            for schema in schemas.iter().rev() {
                single(2, Some(schema), props, writer);
            }
        }
        (Either::SchemaOrStrings, Some(Value::Array(names))) => {
            for name in names.iter().rev() {
                writer.bytes_field(2, name.as_str().unwrap_or_default().as_bytes());
            }
        }
        _ => {}
    }
}

fn scalar_value(number: u32, value: Option<&Value>, kind: Scalar, writer: &mut Writer) {
    let text = value.and_then(Value::as_str);
    match kind {
        Scalar::String => writer.bytes_field(number, text.unwrap_or_default().as_bytes()),
        Scalar::Bytes => {
            let bytes = scalar::bytes(text.unwrap_or_default()).unwrap_or_default();
            writer.bytes_field(number, &bytes);
        }
        Scalar::Bool => {
            writer.varint_field(number, u64::from(value.and_then(Value::as_bool) == Some(true)));
        }
        Scalar::Int32 | Scalar::Int64 => writer.varint_field(number, integer(value) as u64),
        Scalar::Double | Scalar::Number => {
            writer.double_field(number, value.and_then(Value::as_f64).unwrap_or_default());
        }
        _ => {
            let mark = writer.mark();
            scalar_message(value, text, kind, writer);
            writer.message(number, mark);
        }
    }
}

/// The scalars that are messages: written as upstream's hand-made marshallers do.
fn scalar_message(value: Option<&Value>, text: Option<&str>, kind: Scalar, writer: &mut Writer) {
    match kind {
        Scalar::Quantity => writer.bytes_field(1, text.unwrap_or("0").as_bytes()),
        Scalar::Time => {
            if let Some((seconds, _)) = text.and_then(|text| time::parse(text).ok()) {
                writer.varint_field(2, 0);
                writer.varint_field(1, seconds as u64);
            }
        }
        Scalar::MicroTime => {
            if let Some((seconds, nanos)) = text.and_then(|text| time::parse_micro(text).ok()) {
                writer.varint_field(2, nanos as u64);
                writer.varint_field(1, seconds as u64);
            }
        }
        Scalar::Duration => {
            let duration = text.and_then(|text| Duration::parse(text).ok()).unwrap_or_default();
            writer.varint_field(1, duration.nanos as u64);
        }
        Scalar::IntOrString => {
            writer.bytes_field(3, text.unwrap_or_default().as_bytes());
            writer.varint_field(2, integer(value) as u64);
            writer.varint_field(1, u64::from(text.is_some()));
        }
        _ => {
            if let Some(value) = value {
                // A tree always serialises: its keys are strings and its numbers are finite.
                writer.bytes_field(1, value.to_string().as_bytes());
            }
        }
    }
}

fn integer(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}
