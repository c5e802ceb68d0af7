//! What a netlink message is made of, and how one is taken apart.

/// Flags of a request (`linux/netlink.h`).
pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const DUMP: u16 = 0x300;

const HEADER: usize = 16;
/// Bits of an attribute's type that say how its value is to be read.
const NESTED: u16 = 1 << 15;
const TYPE: u16 = 0x3fff;

/// One request without its sequence number, which the socket gives.
#[derive(Debug, Clone)]
pub struct Message {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// `header` is what the family puts before the attributes.
    pub fn new(kind: u16, flags: u16, header: &[u8], attributes: Attributes) -> Message {
        let mut body = header.to_vec();
        pad(&mut body);
        body.extend(attributes.0);
        Message { kind, flags: flags | REQUEST, body }
    }

    pub(crate) fn write(&self, into: &mut Vec<u8>, flags: u16, sequence: u32) {
        into.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        into.extend(self.kind.to_ne_bytes());
        into.extend((self.flags | flags).to_ne_bytes());
        into.extend(sequence.to_ne_bytes());
        into.extend([0; 4]);
        into.extend(&self.body);
        pad(into);
    }

    pub fn len(&self) -> usize {
        HEADER + self.body.len()
    }

    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}

/// Attributes in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    pub fn new() -> Attributes {
        Attributes::default()
    }

    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Attributes {
        // A value that does not fit would be cut silently: whoever builds one splits it before.
        debug_assert!(value.len() + 4 <= usize::from(u16::MAX), "an attribute of {}", value.len());
        self.0.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        pad(&mut self.0);
        self
    }

    #[must_use]
    pub fn u8(self, kind: u16, value: u8) -> Attributes {
        self.bytes(kind, &[value])
    }

    #[must_use]
    pub fn u16(self, kind: u16, value: u16) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub fn u32(self, kind: u16, value: u32) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Netfilter's numbers are big-endian.
    #[must_use]
    pub fn be16(self, kind: u16, value: u16) -> Attributes {
        self.bytes(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub fn be32(self, kind: u16, value: u32) -> Attributes {
        self.bytes(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub fn be64(self, kind: u16, value: u64) -> Attributes {
        self.bytes(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Attributes {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    #[must_use]
    pub fn nested(self, kind: u16, inner: Attributes) -> Attributes {
        self.bytes(kind | NESTED, &inner.0)
    }

    /// Bytes that are no attributes, between them: the header of a nested message.
    #[must_use]
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Attributes {
        self.0.extend(bytes);
        pad(&mut self.0);
        self
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the others after these.
    #[must_use]
    pub fn and(mut self, others: Attributes) -> Attributes {
        self.0.extend(others.0);
        self
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A message that came.
pub(crate) struct Received<'a> {
    pub kind: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

/// The messages of a datagram, as far as they are whole.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let sequence = number(bytes, 8)?;
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received { kind, sequence, body })
    })
}

/// The attributes of a body, as far as they are whole: type and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE, value))
    })
}

/// The attribute of a type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(other, _)| *other == kind).map(|(_, value)| value)
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Attributes::new().text(1, "eth0");
        let message = Message::new(16, 0, &[1, 2, 3], Attributes::new().u8(7, 9).nested(8, inner));
        let mut bytes = Vec::new();
        message.write(&mut bytes, ACK, 5);
        message.write(&mut bytes, ACK, 6);
        let read: Vec<_> = messages(&bytes).collect();
        assert_eq!(
            read.iter().map(|one| (one.kind, one.sequence)).collect::<Vec<_>>(),
            [(16, 5), (16, 6)]
        );
        assert_eq!(read[0].body[..4], [1, 2, 3, 0]);
        assert_eq!(attribute(&read[0].body[4..], 7), Some(&[9][..]));
        let nested = attribute(&read[0].body[4..], 8).unwrap();
        assert_eq!(attribute(nested, 1), Some(&b"eth0\0"[..]));
    }

    #[test]
    fn what_is_cut_short_ends_there() {
        let mut bytes = Vec::new();
        Message::new(16, 0, &[], Attributes::new().u32(1, 2)).write(&mut bytes, 0, 1);
        for length in 0..bytes.len() {
            assert_eq!(messages(&bytes[..length]).count(), 0, "{length}");
        }
        assert_eq!(attributes(&[0, 0, 1, 0, 9]).count(), 0);
        assert_eq!(attributes(&[255, 255, 1, 0, 9]).count(), 0);
    }
}
