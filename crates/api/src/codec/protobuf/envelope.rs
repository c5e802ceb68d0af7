//! The envelope an object travels in: `k8s\0`, then `runtime.Unknown`.
use super::super::object::TypeMeta;
use super::super::{DecodeError, MAX_DEPTH, json};
use super::decode::message_at;
use super::encode::message;
use super::wire::{Reader, Wire, Writer};
use crate::schema::{TypeRef, builtin};
use serde_json::Value;

pub const MAGIC: &[u8; 4] = b"k8s\0";

pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

struct Unknown<'a> {
    type_meta: TypeMeta,
    raw: &'a [u8],
    content_type: &'a [u8],
}

/// What the envelope says is inside; either part may be empty.
pub fn type_meta(bytes: &[u8]) -> Result<TypeMeta, DecodeError> {
    Ok(unknown(bytes)?.type_meta)
}

/// Decodes an object whose type the caller knows, with the `apiVersion` and `kind` that the
/// envelope names.
pub fn decode(bytes: &[u8], ty: TypeRef<'_>) -> Result<Value, DecodeError> {
    decode_at(bytes, ty, 0)
}

fn decode_at(bytes: &[u8], ty: TypeRef<'_>, depth: usize) -> Result<Value, DecodeError> {
    let unknown = unknown(bytes)?;
    let mut value = message_at(unknown.raw, ty, depth)?;
    let mut meta = unknown.type_meta;
    // An envelope without a name is taken for what the caller expects, and named so.
    if meta.kind.is_empty() || meta.api_version.is_empty() {
        let expected = TypeMeta::of_type(ty);
        let or = |said: String, expected| if said.is_empty() { expected } else { said };
        meta.api_version = or(meta.api_version, expected.api_version);
        meta.kind = or(meta.kind, expected.kind);
    }
    meta.write_into(&mut value);
    Ok(value)
}

/// An object inside another's raw field: its kind is what its own envelope says.
pub(super) fn decode_nested(bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let unknown = unknown(bytes)?;
    if unknown.content_type == b"application/json" {
        return json::decode_untyped(unknown.raw).map(|decoded| decoded.value);
    }
    let meta = &unknown.type_meta;
    let (group, version) = meta.group_version();
    let ty = builtin().kind(group, version, &meta.kind).ok_or_else(|| {
        let known =
            format!("no kind {:?} is registered for version {:?}", meta.kind, meta.api_version);
        DecodeError::Type(known)
    })?;
    decode_at(bytes, ty, depth)
}

fn unknown(bytes: &[u8]) -> Result<Unknown<'_>, DecodeError> {
    let body = match bytes.strip_prefix(MAGIC) {
        _ if bytes.is_empty() => return Err(DecodeError::Syntax("empty data".to_owned())),
        Some([]) => return Err(DecodeError::Syntax("empty body".to_owned())),
        Some(body) => body,
        None => {
            let text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
            return Err(DecodeError::Syntax(text.to_owned()));
        }
    };
    let mut unknown = Unknown { type_meta: TypeMeta::default(), raw: &[], content_type: &[] };
    let mut reader = Reader::new(body);
    while let Some(tag) = reader.next("Unknown")? {
        let name = match tag.number {
            1 => "TypeMeta",
            2 => "Raw",
            3 => "ContentEncoding",
            4 => "ContentType",
            _ => {
                reader.skip(tag)?;
                continue;
            }
        };
        tag.expect(Wire::Bytes, || name.to_owned())?;
        let bytes = reader.bytes()?;
        match tag.number {
            1 => read_type_meta(bytes, &mut unknown.type_meta)?,
            2 => unknown.raw = bytes,
            4 => unknown.content_type = bytes,
            _ => {}
        }
    }
    Ok(unknown)
}

fn read_type_meta(bytes: &[u8], meta: &mut TypeMeta) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next("TypeMeta")? {
        let (name, field) = match tag.number {
            1 => ("APIVersion", &mut meta.api_version),
            2 => ("Kind", &mut meta.kind),
            _ => {
                reader.skip(tag)?;
                continue;
            }
        };
        tag.expect(Wire::Bytes, || name.to_owned())?;
        *field = json::repair(reader.bytes()?);
    }
    Ok(())
}

/// Encodes a canonical tree in its envelope. `apiVersion` and `kind` are taken from the tree.
pub fn encode(value: &Value, ty: TypeRef<'_>) -> Vec<u8> {
    let meta = TypeMeta::of(value);
    let mut writer = Writer::with_capacity(2048);
    writer.bytes_field(4, b"");
    writer.bytes_field(3, b"");
    let mark = writer.mark();
    message(value.as_object(), ty, &mut writer);
    writer.message(2, mark);
    let mark = writer.mark();
    writer.bytes_field(2, meta.kind.as_bytes());
    writer.bytes_field(1, meta.api_version.as_bytes());
    writer.message(1, mark);
    writer.raw(MAGIC);
    writer.finish()
}

/// A `WatchEvent` around an object that is in its envelope; the event itself is in none.
pub fn encode_watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(object.len() + 64);
    let raw = writer.mark();
    writer.bytes_field(1, object);
    writer.message(2, raw);
    writer.bytes_field(1, event.as_bytes());
    writer.finish()
}
