//! DNS messages as bytes (RFC 1035): one question, answers without compression.
use crate::answer::Answer;
use std::net::IpAddr;

const HEADER: usize = 12;
const IN: u16 = 1;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a DNS query that can be answered")]
pub struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    A,
    Cname,
    Soa,
    Ptr,
    Txt,
    Aaaa,
    Srv,
    Other(u16),
}

impl Kind {
    const NUMBERS: [(Kind, u16); 7] = [
        (Kind::A, 1),
        (Kind::Cname, 5),
        (Kind::Soa, 6),
        (Kind::Ptr, 12),
        (Kind::Txt, 16),
        (Kind::Aaaa, 28),
        (Kind::Srv, 33),
    ];

    fn of(number: u16) -> Kind {
        let known = Kind::NUMBERS.iter().find(|(_, other)| *other == number);
        known.map_or(Kind::Other(number), |(kind, _)| *kind)
    }

    fn number(self) -> u16 {
        match self {
            Kind::Other(number) => number,
            kind => Kind::NUMBERS.iter().find(|(other, _)| *other == kind).map_or(0, |(_, n)| *n),
        }
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    pub recursion_desired: bool,
    /// In lower case, without the last dot.
    pub name: String,
    pub kind: Kind,
    /// The question as it came: some clients check that its letters come back.
    question: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub seconds: u32,
    pub data: Data,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    Address(IpAddr),
    Cname(String),
    Ptr(String),
    Txt(String),
    Srv { priority: u16, weight: u16, port: u16, target: String },
    Soa { server: String, mailbox: String, serial: u32, minimum: u32 },
}

impl Query {
    pub fn read(bytes: &[u8]) -> Result<Query, Malformed> {
        let word = |at: usize| -> Result<u16, Malformed> {
            let bytes = bytes.get(at..at + 2).ok_or(Malformed)?;
            Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let (id, flags, questions) = (word(0)?, word(2)?, word(4)?);
        // An answer, another operation, or more than one question.
        if flags & 0xf800 != 0 || questions != 1 {
            return Err(Malformed);
        }
        let (mut at, mut labels, mut length) = (HEADER, Vec::new(), 0);
        loop {
            let size = usize::from(*bytes.get(at).ok_or(Malformed)?);
            at += 1;
            length += size + 1;
            // A question has nothing before it to point to.
            if size > 63 || length > 255 {
                return Err(Malformed);
            }
            if size == 0 {
                break;
            }
            let label = bytes.get(at..at + size).ok_or(Malformed)?;
            // A dot inside of a label would be taken for one between labels.
            if label.contains(&b'.') || !label.is_ascii() {
                return Err(Malformed);
            }
            labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
            at += size;
        }
        let (kind, class) = (word(at)?, word(at + 2)?);
        if class != IN {
            return Err(Malformed);
        }
        let question = bytes.get(HEADER..at + 4).ok_or(Malformed)?.to_vec();
        let recursion_desired = flags & 0x0100 != 0;
        let name = labels.join(".");
        Ok(Query { id, recursion_desired, name, kind: Kind::of(kind), question })
    }

    /// The message that answers it, of at most `limit` bytes: what does not fit is left out, and
    /// the client is told to ask by TCP.
    pub fn write(&self, answer: &Answer, limit: usize) -> Vec<u8> {
        let mut records = Vec::new();
        let (mut answers, mut truncated) = (0_u16, false);
        for record in &answer.records {
            let bytes = record.write();
            if HEADER + self.question.len() + records.len() + bytes.len() > limit {
                truncated = true;
                break;
            }
            records.extend(bytes);
            answers += 1;
        }
        let mut authority = answer.authority.as_ref().map(Record::write).unwrap_or_default();
        if HEADER + self.question.len() + records.len() + authority.len() > limit {
            truncated = true;
            authority.clear();
        }
        const ANSWER: u16 = 0x8000;
        const AUTHORITATIVE: u16 = 0x0400;
        const TRUNCATED: u16 = 0x0200;
        const RECURSION_DESIRED: u16 = 0x0100;
        let mut flags = ANSWER | AUTHORITATIVE | answer.code as u16;
        flags |= if truncated { TRUNCATED } else { 0 };
        flags |= if self.recursion_desired { RECURSION_DESIRED } else { 0 };
        let authorities = u16::from(!authority.is_empty());
        let head = [self.id, flags, 1, answers, authorities, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(&self.question);
        bytes.extend(records);
        bytes.extend(authority);
        bytes
    }
}

impl Record {
    fn write(&self) -> Vec<u8> {
        let (kind, data) = self.data.write();
        let mut bytes = name(&self.name);
        bytes.extend(kind.number().to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        bytes.extend(self.seconds.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }
}

impl Data {
    fn write(&self) -> (Kind, Vec<u8>) {
        match self {
            Data::Address(IpAddr::V4(address)) => (Kind::A, address.octets().to_vec()),
            Data::Address(IpAddr::V6(address)) => (Kind::Aaaa, address.octets().to_vec()),
            Data::Cname(target) => (Kind::Cname, name(target)),
            Data::Ptr(target) => (Kind::Ptr, name(target)),
            Data::Txt(text) => {
                let text = &text.as_bytes()[..text.len().min(255)];
                (Kind::Txt, [&[text.len() as u8], text].concat())
            }
            Data::Srv { priority, weight, port, target } => {
                let words = [*priority, *weight, *port];
                let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
                bytes.extend(name(target));
                (Kind::Srv, bytes)
            }
            Data::Soa { server, mailbox, serial, minimum } => {
                let mut bytes = [name(server), name(mailbox)].concat();
                // Refresh, retry and expire are CoreDNS's.
                for number in [*serial, 7200, 1800, 86400, *minimum] {
                    bytes.extend(number.to_be_bytes());
                }
                (Kind::Soa, bytes)
            }
        }
    }
}

/// Labels that are too long cannot be asked for either; they are cut.
fn name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    for label in text.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        bytes.push(label.len() as u8);
        bytes.extend(label);
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::answer::Code;

    pub fn question(text: &str, kind: Kind) -> Vec<u8> {
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(name(text));
        bytes.extend(kind.number().to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        bytes
    }

    #[test]
    fn a_question_is_read_and_its_letters_come_back() {
        let query = Query::read(&question("Web.Default", Kind::Srv)).unwrap();
        assert_eq!((query.name.as_str(), query.kind, query.id), ("web.default", Kind::Srv, 7));
        let answer = Answer { code: Code::NoError, records: Vec::new(), authority: None };
        let bytes = query.write(&answer, 512);
        assert_eq!(bytes[12..], question("Web.Default", Kind::Srv)[12..]);
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let whole = question("web.default", Kind::A);
        for length in 0..whole.len() {
            assert_eq!(Query::read(&whole[..length]), Err(Malformed), "{length}");
        }
        for (at, byte) in [(2, 0x81), (5, 2), (12, 0xc0), (13, b'.')] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert_eq!(Query::read(&bytes), Err(Malformed), "{at}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let query = Query::read(&question("web", Kind::A)).unwrap();
        let data = Data::Address("10.0.0.1".parse().unwrap());
        let record = Record { name: "web".to_owned(), seconds: 5, data };
        let records = vec![record; 100];
        let answer = Answer { code: Code::NoError, records, authority: None };
        let bytes = query.write(&answer, 512);
        assert!(bytes.len() <= 512 && bytes[2] & 2 != 0);
        let bytes = query.write(&answer, 65535);
        assert_eq!((bytes[2] & 2, bytes[7]), (0, 100));
    }
}
