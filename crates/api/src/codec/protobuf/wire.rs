//! Protobuf's wire format: tags, varints, lengths.
use super::super::DecodeError;

/// A field's payload, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next field's number and payload; `None` at the end of the message.
    pub fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| malformed("illegal tag"))?;
        if number == 0 {
            return Err(malformed("illegal tag 0"));
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| end())?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            // Groups (3, 4) left protobuf long before Kubernetes met it.
            other => return Err(malformed(&format!("illegal wireType {other}"))),
        };
        Ok(Some((number, payload)))
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
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| end())
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
        assert_eq!(reader.next(), Ok(Some((1, Payload::Bytes(b"\x0a\x05inner")))));
        assert_eq!(reader.next(), Ok(Some((2, Payload::Varint(300)))));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        assert_eq!(Reader::new(b"\x0a\x7fab").next(), Err(end()));
        assert_eq!(Reader::new(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").next(), Err(end()));
    }
}
