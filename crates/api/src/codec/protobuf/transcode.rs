//! Stored JSON straight into a message, for lists and watches: no tree is built on the way.
//!
//! The message says what [`encode`](super::encode) would say, in fewer bytes: its fields come in
//! the order of the JSON's keys, and a zero that is not in the JSON is not written, as a reader
//! takes what is absent for zero. The few types that are not laid out alike in both go through
//! the tree's encoder, each value by itself.
use super::super::DecodeError;
use super::super::json::{Reader, SyntaxError, integer};
use super::super::object::TypeMeta;
use super::encode;
use super::envelope::MAGIC;
use super::wire::Writer;
use crate::depth;
use crate::schema::{Field, Named, Scalar, Type, TypeRef};
use crate::time;
use serde_json::Value;
use std::borrow::Cow;

/// Appends an object in its envelope.
pub fn transcode(
    json: &[u8],
    meta: &TypeMeta,
    ty: TypeRef<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    out.reserve(json.len() + 64);
    envelope_head(meta, out);
    let mut transcoder = Transcoder::new(json, out);
    let mark = transcoder.open_long(2, json.len());
    transcoder.message(ty)?;
    transcoder.close(mark);
    out.extend_from_slice(ENVELOPE_TAIL);
    Ok(())
}

/// A list whose items are appended one by one. Its head says how long they are, so it is made
/// last.
#[derive(Clone, Copy)]
pub struct ListEncoder<'s> {
    items: &'s Field,
    list: TypeRef<'s>,
    element: TypeRef<'s>,
}

impl<'s> ListEncoder<'s> {
    /// None if this is no list's type.
    pub fn new(list: TypeRef<'s>) -> Option<Self> {
        let items = list.field("items")?;
        let element = list.at(items.ty).as_list()?.element;
        Some(ListEncoder { items, list, element: list.at(element) })
    }

    pub fn item(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let mut transcoder = Transcoder::new(json, out);
        let mark = transcoder.open_long(self.items.number, json.len());
        transcoder.message(self.element)?;
        transcoder.close(mark);
        Ok(())
    }

    /// What goes before and after items of this length together; `head` is the list without them.
    pub fn around(&self, head: &Value, length: usize) -> (Vec<u8>, &'static [u8]) {
        let fields = encode::encode_message(head, self.list);
        let mut out = Vec::with_capacity(fields.len() + 128);
        envelope_head(&TypeMeta::of(head), &mut out);
        tag(2, 2, &mut out);
        varint((fields.len() + length) as u64, &mut out);
        out.extend_from_slice(&fields);
        (out, ENVELOPE_TAIL)
    }
}

/// Neither encoding nor type of the content: the object is protobuf.
const ENVELOPE_TAIL: &[u8] = &[3 << 3 | 2, 0, 4 << 3 | 2, 0];

fn envelope_head(meta: &TypeMeta, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let mut transcoder = Transcoder::new(&[], out);
    let mark = transcoder.open(1);
    transcoder.bytes_field(1, meta.api_version.as_bytes());
    transcoder.bytes_field(2, meta.kind.as_bytes());
    transcoder.close(mark);
}

struct Transcoder<'a, 'o> {
    json: Reader<'a>,
    out: &'o mut Vec<u8>,
}

type Result<T, E = SyntaxError> = std::result::Result<T, E>;

impl From<SyntaxError> for DecodeError {
    fn from(SyntaxError(text): SyntaxError) -> DecodeError {
        DecodeError::Syntax(text)
    }
}

impl<'a, 'o> Transcoder<'a, 'o> {
    fn new(json: &'a [u8], out: &'o mut Vec<u8>) -> Self {
        Transcoder { json: Reader::new(json), out }
    }

    /// The fields of an object. What is of the wrong type counts as absent.
    fn message(&mut self, ty: TypeRef<'_>) -> Result<()> {
        let Some(structure) = ty.as_struct().filter(|_| self.json.peek() == Some(b'{')) else {
            return self.json.skip();
        };
        if !structure.inline.is_empty() {
            let mut members = Vec::new();
            while let Some(key) = self.json.next_key(members.is_empty())? {
                members.push((key, self.json.raw()?));
            }
            return self.members(&members, ty);
        }
        let mut first = true;
        while let Some(key) = self.json.next_key(first)? {
            first = false;
            match structure.field(&key).filter(|field| field.number != 0) {
                Some(field) => self.field(field.number, ty.at(field.ty))?,
                None => self.json.skip()?,
            }
        }
        Ok(())
    }

    /// The same of a struct with others embedded, whose fields stand among its own in JSON and in
    /// messages of their own here.
    fn members(&mut self, members: &[(Cow<'a, str>, &'a [u8])], ty: TypeRef<'_>) -> Result<()> {
        let Some(structure) = ty.as_struct() else { return Ok(()) };
        for (key, value) in members {
            if let Some(field) = structure.field(key).filter(|field| field.number != 0) {
                let rest = std::mem::replace(&mut self.json, Reader::new(value));
                self.field(field.number, ty.at(field.ty))?;
                self.json = rest;
            }
        }
        for inline in &structure.inline {
            let embedded = ty.at(inline.ty);
            if members.iter().any(|(key, _)| embedded.field(key).is_some()) {
                let mark = self.open(inline.number);
                self.members(members, embedded)?;
                self.close(mark);
            }
        }
        Ok(())
    }

    fn field(&mut self, number: u32, ty: TypeRef<'_>) -> Result<()> {
        match (self.json.peek(), ty.get()) {
            (Some(b'n'), _) => self.json.skip(),
            (Some(b'['), Type::List(list)) if list.name.is_none() => {
                self.elements(number, ty.at(list.element))
            }
            (Some(b'{'), Type::Map(map)) => {
                let mut first = true;
                while let Some(key) = self.json.next_key(first)? {
                    first = false;
                    let mark = self.open(number);
                    self.bytes_field(1, key.as_bytes());
                    self.single(2, ty.at(map.value))?;
                    self.close(mark);
                }
                Ok(())
            }
            (_, Type::List(list)) if list.name.is_none() => self.json.skip(),
            _ => self.single(number, ty),
        }
    }

    fn elements(&mut self, number: u32, ty: TypeRef<'_>) -> Result<()> {
        let mut first = true;
        while self.json.next_element(first)? {
            first = false;
            self.single(number, ty)?;
        }
        Ok(())
    }

    /// One value as the field of this number.
    fn single(&mut self, number: u32, ty: TypeRef<'_>) -> Result<()> {
        match (self.json.peek(), ty.get()) {
            (Some(b'{'), Type::Struct(_)) => {
                let mark = self.open(number);
                self.message(ty)?;
                self.close(mark);
            }
            (Some(b'['), Type::List(list)) => {
                let mark = self.open(number);
                self.elements(1, ty.at(list.element))?;
                self.close(mark);
            }
            (Some(b'"'), Type::Scalar(Named { scalar: Scalar::String, .. })) => {
                let text = self.json.string()?;
                self.bytes_field(number, text.as_bytes());
            }
            (Some(b'"'), Type::Scalar(Named { scalar: Scalar::Time, .. })) => {
                let text = self.json.string()?;
                let mark = self.open(number);
                if let Ok((seconds, _)) = time::parse(&text) {
                    self.varint_field(1, seconds as u64);
                }
                self.close(mark);
            }
            (Some(b't' | b'f'), Type::Scalar(Named { scalar: Scalar::Bool, .. })) => {
                let is_true = self.json.raw()? == b"true";
                self.varint_field(number, u64::from(is_true));
            }
            (
                Some(b'-' | b'0'..=b'9'),
                Type::Scalar(Named { scalar: Scalar::Int32 | Scalar::Int64, .. }),
            ) => {
                let value = integer(self.json.raw()?).unwrap_or_default();
                self.varint_field(number, value as u64);
            }
            // The bytes are the canonical ones, as an encoder would write the tree.
            (Some(b'{'), Type::Scalar(Named { scalar, .. })) if scalar.is_opaque() => {
                let raw = self.json.raw()?;
                let mark = self.open(number);
                self.bytes_field(1, raw);
                self.close(mark);
            }
            _ => self.by_tree(number, ty)?,
        }
        Ok(())
    }

    fn by_tree(&mut self, number: u32, ty: TypeRef<'_>) -> Result<()> {
        let value: Value =
            depth::read(self.json.raw()?).map_err(|error| SyntaxError(error.to_string()))?;
        let mut writer = Writer::default();
        encode::single(number, Some(&value).filter(|value| !value.is_null()), ty, &mut writer);
        self.out.extend_from_slice(&writer.finish());
        Ok(())
    }

    fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        tag(number, 2, self.out);
        varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }

    fn varint_field(&mut self, number: u32, value: u64) {
        tag(number, 0, self.out);
        varint(value, self.out);
    }

    /// Begins a message that is the field of this number, with room for a length of one byte:
    /// most are short.
    fn open(&mut self, number: u32) -> usize {
        self.open_long(number, 0)
    }

    /// The same for a message that will be about so long.
    fn open_long(&mut self, number: u32, guess: usize) -> usize {
        tag(number, 2, self.out);
        let mark = self.out.len();
        varint(guess as u64, self.out);
        mark
    }

    /// Ends it. Where the length is not of the bytes that were kept for it, the message moves.
    fn close(&mut self, mark: usize) {
        let kept = 1 + self.out[mark..].iter().take_while(|byte| **byte >= 0x80).count();
        let (start, end) = (mark + kept, self.out.len());
        let length = end - start;
        let bytes = 1 + length.checked_ilog2().unwrap_or(0) as usize / 7;
        if bytes > kept {
            self.out.resize(end + bytes - kept, 0);
        }
        if bytes != kept {
            self.out.copy_within(start..end, mark + bytes);
            self.out.truncate(mark + bytes + length);
        }
        for i in 0..bytes {
            let more = if i + 1 == bytes { 0 } else { 0x80 };
            self.out[mark + i] = (length >> (7 * i)) as u8 & 0x7f | more;
        }
    }
}

fn tag(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire_type, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
