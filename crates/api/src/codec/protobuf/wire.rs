//! Protobuf's wire format: tags, varints, lengths. Errors have the words of upstream's generated
//! decoders.
use super::super::DecodeError;

/// A field's payload, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The wire types that the API has a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Bytes,
}

/// The head of a field: its number, and how it says it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tag {
    pub number: u32,
    wire: u8,
}

impl Tag {
    pub fn is_bytes(self) -> bool {
        self.wire == 2
    }

    /// A field that is known is written in one way.
    pub fn expect(self, wire: Wire, field: impl FnOnce() -> String) -> Result<(), DecodeError> {
        let expected = match wire {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Bytes => 2,
        };
        if self.wire == expected {
            return Ok(());
        }
        Err(malformed(&format!("wrong wireType = {} for field {}", self.wire, field())))
    }
}

/// Reads one message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next field of a `message`; `None` at its end. Read its payload next, or [`skip`] it.
    ///
    /// [`skip`]: Reader::skip
    pub fn next(&mut self, message: &str) -> Result<Option<Tag>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire == 4 {
            return Err(malformed(&format!("{message}: wiretype end group for non-group")));
        }
        match u32::try_from(number) {
            Ok(number @ 1..) => Ok(Some(Tag { number, wire })),
            _ => Err(malformed(&format!("{message}: illegal tag {number} (wire type {tag})"))),
        }
    }

    /// The next field of a map's entry, whose tag upstream does not check.
    pub fn next_in_entry(&mut self) -> Result<Option<Tag>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        Ok(Some(Tag { number: (tag >> 3) as u32, wire: (tag & 7) as u8 }))
    }

    pub fn payload(&mut self, wire: Wire) -> Result<Payload<'a>, DecodeError> {
        Ok(match wire {
            Wire::Varint => Payload::Varint(self.varint()?),
            Wire::Fixed64 => Payload::Fixed64(self.fixed64()?),
            Wire::Bytes => Payload::Bytes(self.bytes()?),
        })
    }

    /// Passes over a field that is not known, be it one of the groups of old.
    pub fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        let mut open = 0usize;
        let mut wire = tag.wire;
        loop {
            match wire {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => drop(self.bytes()?),
                3 => open += 1,
                4 if open == 0 => return Err(malformed("unexpected end of group")),
                4 => open -= 1,
                5 => drop(self.take(4)?),
                other => return Err(malformed(&format!("illegal wireType {other}"))),
            }
            if open == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { end() } else { malformed("integer overflow") })
    }

    pub fn fixed64(&mut self) -> Result<u64, DecodeError> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| end())
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        match i64::try_from(length) {
            Ok(_) => self.take(usize::try_from(length).map_err(|_| end())?),
            Err(_) => Err(malformed("negative length found during unmarshaling")),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        if length > self.rest.len() {
            return Err(end());
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }
}

pub(super) fn end() -> DecodeError {
    DecodeError::Syntax("unexpected EOF".to_owned())
}

pub(super) fn malformed(text: &str) -> DecodeError {
    DecodeError::Syntax(format!("proto: {text}"))
}

/// Writes a message from its end to its start, so that a nested message's length is known when
/// it is written and nothing is measured or copied twice. The bytes are turned round at the end.
#[derive(Default)]
pub(crate) struct Writer {
    reversed: Vec<u8>,
}

impl Writer {
    pub fn with_capacity(capacity: usize) -> Self {
        Writer { reversed: Vec::with_capacity(capacity) }
    }

    /// How much is written: the start of a message that ends here.
    pub fn mark(&self) -> usize {
        self.reversed.len()
    }

    /// Makes all that was written since `mark` the field of this number.
    pub fn message(&mut self, number: u32, mark: usize) {
        self.varint((self.reversed.len() - mark) as u64);
        self.tag(number, 2);
    }

    pub fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.raw(bytes);
        self.varint(bytes.len() as u64);
        self.tag(number, 2);
    }

    pub fn varint_field(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.tag(number, 0);
    }

    pub fn double_field(&mut self, number: u32, value: f64) {
        self.raw(&value.to_le_bytes());
        self.tag(number, 1);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    fn tag(&mut self, number: u32, wire_type: u64) {
        self.varint(u64::from(number) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        let mut bytes = [0u8; 10];
        let mut length = 0;
        loop {
            bytes[length] = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                break;
            }
            bytes[length] |= 0x80;
            length += 1;
        }
        self.reversed.extend(bytes[..=length].iter().rev());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.reversed.reverse();
        self.reversed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_backwards_reads_forwards() {
        let mut writer = Writer::default();
        writer.varint_field(2, 300);
        let mark = writer.mark();
        writer.bytes_field(1, b"inner");
        writer.message(1, mark);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        let mut next = |wire| {
            let tag = reader.next("Test").unwrap();
            tag.map(|tag| (tag.number, reader.payload(wire).unwrap()))
        };
        assert_eq!(next(Wire::Bytes), Some((1, Payload::Bytes(b"\x0a\x05inner"))));
        assert_eq!(next(Wire::Varint), Some((2, Payload::Varint(300))));
        assert_eq!(next(Wire::Varint), None);
    }

    #[test]
    fn errors_have_upstreams_words() {
        for (bytes, want) in [
            (&b"\x0a\x7fab"[..], "unexpected EOF"),
            (b"\x0a", "unexpected EOF"),
            (b"\x08\xff", "unexpected EOF"),
            (
                b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "proto: negative length found during unmarshaling",
            ),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
            (b"\x00", "proto: Test: illegal tag 0 (wire type 0)"),
            (
                b"\x80\x80\x80\x80\x40",
                "proto: Test: illegal tag -2147483648 (wire type 17179869184)",
            ),
            (b"\x0c", "proto: Test: wiretype end group for non-group"),
            (b"\x0b\x08\x01", "unexpected EOF"),
            (b"\x0e", "proto: illegal wireType 6"),
            (b"\x0b\x08\x01\x0c", "nothing"),
        ] {
            let mut reader = Reader::new(bytes);
            let skipped = reader.next("Test").and_then(|tag| reader.skip(tag.unwrap()));
            let error = skipped.map_or_else(|error| error.to_string(), |()| "nothing".to_owned());
            assert_eq!(error, want, "{bytes:?}");
        }
    }
}
