//! DNS messages as bytes (RFC 1035, RFC 6891): one question, and answers that point back to it.
use crate::answer::{Answer, Code};
use std::net::IpAddr;

pub const HEADER: usize = 12;
const IN: u16 = 1;
const OPT: u16 = 41;
/// Where the question's name is, as a compressed name says it.
const QUESTION: u16 = 0xc000 | HEADER as u16;
/// What a client gets by UDP that says nothing else.
pub const PLAIN: usize = 512;
/// What we take, and send at most, by UDP: upstream resolvers' agreement of 2020.
pub const LARGE: u16 = 1232;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a DNS query that can be answered")]
pub struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    const NAMES: [(Kind, &'static str); 7] = [
        (Kind::A, "A"),
        (Kind::Cname, "CNAME"),
        (Kind::Soa, "SOA"),
        (Kind::Ptr, "PTR"),
        (Kind::Txt, "TXT"),
        (Kind::Aaaa, "AAAA"),
        (Kind::Srv, "SRV"),
    ];

    /// What people call it; those whose records are not written here have no name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
    }

    pub fn name(self) -> &'static str {
        Kind::NAMES.iter().find(|(other, _)| *other == self).map_or("", |(_, name)| *name)
    }

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
pub struct Query<'a> {
    pub id: u16,
    pub recursion_desired: bool,
    /// In lower case, without the last dot.
    pub name: String,
    pub kind: Kind,
    /// How much the client takes by UDP, if it speaks EDNS.
    pub takes: Option<u16>,
    /// The question as it came: some clients check that its letters come back.
    pub question: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `None`: the one that was asked for.
    pub name: Option<String>,
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

pub fn word(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    let bytes = bytes.get(at..at + 2).ok_or(Malformed)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

impl Query<'_> {
    pub fn read(bytes: &[u8]) -> Result<Query<'_>, Malformed> {
        let (id, flags, questions) = (word(bytes, 0)?, word(bytes, 2)?, word(bytes, 4)?);
        // An answer, another operation, or more than one question.
        if flags & 0xf800 != 0 || questions != 1 {
            return Err(Malformed);
        }
        let (mut at, mut name, mut length) = (HEADER, String::with_capacity(64), 0);
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
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
            at += size;
        }
        let (kind, class) = (word(bytes, at)?, word(bytes, at + 2)?);
        if class != IN {
            return Err(Malformed);
        }
        let question = bytes.get(HEADER..at + 4).ok_or(Malformed)?;
        let takes = options(bytes, at + 4);
        let recursion_desired = flags & 0x0100 != 0;
        Ok(Query { id, recursion_desired, name, kind: Kind::of(kind), takes, question })
    }

    /// How long an answer by UDP may be.
    pub fn limit(&self) -> usize {
        usize::from(self.takes.unwrap_or(0).min(LARGE)).max(PLAIN)
    }

    /// What is left of somebody's answer to it that is longer than the client takes: nothing but the word
    /// that it is to ask by TCP.
    pub fn cut(&self, answer: &[u8]) -> Vec<u8> {
        const ANSWER: u16 = 0x8000;
        const TRUNCATED: u16 = 0x0200;
        let flags = word(answer, 2).unwrap_or(0) | ANSWER | TRUNCATED;
        let mut bytes = Vec::new();
        for word in [self.id, flags, 1, 0, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(self.question);
        if self.takes.is_some() {
            bytes[11] = 1;
            write_options(&mut bytes);
        }
        bytes
    }

    /// The message that answers it, of at most `limit` bytes: what does not fit is left out, and
    /// the client is told to ask by TCP.
    pub fn write(&self, answer: &Answer, limit: usize, bytes: &mut Vec<u8>) {
        const ANSWER: u16 = 0x8000;
        const AUTHORITATIVE: u16 = 0x0400;
        const TRUNCATED: u16 = 0x0200;
        const RECURSION_DESIRED: u16 = 0x0100;
        const OPTIONS: usize = 11;
        let authoritative = matches!(answer.code, Code::NoError | Code::NameError);
        let mut flags = ANSWER | answer.code as u16;
        flags |= if authoritative { AUTHORITATIVE } else { 0 };
        flags |= if self.recursion_desired { RECURSION_DESIRED } else { 0 };
        bytes.clear();
        bytes.resize(HEADER, 0);
        bytes.extend(self.question);
        let limit = if self.takes.is_some() { limit.saturating_sub(OPTIONS) } else { limit };
        let mut counts = [0_u16; 3];
        let sections = [&answer.records, &answer.authority, &answer.additional];
        for (section, records) in sections.into_iter().enumerate() {
            for record in records {
                let before = bytes.len();
                record.write(bytes);
                if bytes.len() > limit {
                    bytes.truncate(before);
                    // Nobody needs what is said in addition.
                    flags |= if section < 2 { TRUNCATED } else { 0 };
                    break;
                }
                counts[section] += 1;
            }
        }
        if self.takes.is_some() {
            write_options(bytes);
            counts[2] += 1;
        }
        let head = [self.id, flags, 1, counts[0], counts[1], counts[2]];
        for (at, word) in head.iter().enumerate() {
            bytes[2 * at..2 * at + 2].copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// EDNS is answered with EDNS.
fn write_options(bytes: &mut Vec<u8>) {
    bytes.push(0);
    for word in [OPT, LARGE, 0, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
}

/// The answer to what is no question: nothing but a code, to whoever seems to have asked.
pub fn refusal(bytes: &[u8], code: Code) -> Option<[u8; HEADER]> {
    let (id, flags) = (word(bytes, 0).ok()?, word(bytes, 2).ok()?);
    // Two servers that answer each other's answers would do so for ever.
    if bytes.len() < HEADER || flags & 0x8000 != 0 {
        return None;
    }
    let mut answer = [0; HEADER];
    answer[..2].copy_from_slice(&id.to_be_bytes());
    answer[2..4].copy_from_slice(&(0x8000 | flags & 0x7900 | code as u16).to_be_bytes());
    Some(answer)
}

/// What the client takes by UDP, if an OPT record is among what follows the question.
fn options(bytes: &[u8], at: usize) -> Option<u16> {
    let records = (6..=10).step_by(2).filter_map(|at| word(bytes, at).ok()).map(usize::from).sum();
    let mut found = Records { bytes, at, left: records }.filter(|record| record.kind == OPT);
    found.next().map(|record| record.class)
}

/// Where a record of a message is.
pub struct Place {
    pub kind: u16,
    class: u16,
    /// Where its time to live is.
    pub seconds_at: usize,
    /// Where its data is.
    pub data_at: usize,
}

/// The records from a place in a message on; what is malformed ends it.
pub struct Records<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    pub left: usize,
}

impl Iterator for Records<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        self.left = self.left.checked_sub(1)?;
        let mut at = self.at;
        loop {
            match *self.bytes.get(at)? {
                0 => break at += 1,
                // The rest of the name is elsewhere.
                size if size >= 0xc0 => break at += 2,
                size => at += 1 + usize::from(size),
            }
        }
        let (kind, class) = (word(self.bytes, at).ok()?, word(self.bytes, at + 2).ok()?);
        let length = usize::from(word(self.bytes, at + 8).ok()?);
        self.at = at + 10 + length;
        (self.at <= self.bytes.len()).then_some(Place {
            kind,
            class,
            seconds_at: at + 4,
            data_at: at + 10,
        })
    }
}

/// The addresses in a message's answers, and for how many seconds each is good.
pub fn addresses(bytes: &[u8]) -> Vec<(u32, IpAddr)> {
    // Behind the question's name, which is never compressed.
    let mut at = HEADER;
    while let Some(size) = bytes.get(at).filter(|size| **size != 0) {
        at += 1 + usize::from(*size);
    }
    let left = word(bytes, 6).map_or(0, usize::from);
    let address = |place: Place| {
        let data = |length| bytes.get(place.data_at..place.data_at + length);
        let address: IpAddr = match Kind::of(place.kind) {
            Kind::A => <[u8; 4]>::try_from(data(4)?).ok()?.into(),
            Kind::Aaaa => <[u8; 16]>::try_from(data(16)?).ok()?.into(),
            _ => return None,
        };
        let seconds = bytes.get(place.seconds_at..place.seconds_at + 4)?.try_into().ok()?;
        Some((u32::from_be_bytes(seconds), address))
    };
    Records { bytes, at: at + 5, left }.filter_map(address).collect()
}

impl Record {
    fn write(&self, bytes: &mut Vec<u8>) {
        match &self.name {
            Some(text) => name(text, bytes),
            None => bytes.extend(QUESTION.to_be_bytes()),
        }
        let kind_at = bytes.len();
        bytes.extend([0; 2]);
        bytes.extend(IN.to_be_bytes());
        bytes.extend(self.seconds.to_be_bytes());
        bytes.extend([0; 2]);
        let kind = self.data.write(bytes);
        let length = (bytes.len() - kind_at - 10) as u16;
        bytes[kind_at..kind_at + 2].copy_from_slice(&kind.number().to_be_bytes());
        bytes[kind_at + 8..kind_at + 10].copy_from_slice(&length.to_be_bytes());
    }
}

impl Data {
    pub fn kind(&self) -> Kind {
        match self {
            Data::Address(IpAddr::V4(_)) => Kind::A,
            Data::Address(IpAddr::V6(_)) => Kind::Aaaa,
            Data::Cname(_) => Kind::Cname,
            Data::Ptr(_) => Kind::Ptr,
            Data::Txt(_) => Kind::Txt,
            Data::Srv { .. } => Kind::Srv,
            Data::Soa { .. } => Kind::Soa,
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) -> Kind {
        match self {
            Data::Address(IpAddr::V4(address)) => bytes.extend(address.octets()),
            Data::Address(IpAddr::V6(address)) => bytes.extend(address.octets()),
            Data::Cname(target) | Data::Ptr(target) => name(target, bytes),
            Data::Txt(text) => {
                let text = &text.as_bytes()[..text.len().min(255)];
                bytes.push(text.len() as u8);
                bytes.extend(text);
            }
            Data::Srv { priority, weight, port, target } => {
                for word in [*priority, *weight, *port] {
                    bytes.extend(word.to_be_bytes());
                }
                name(target, bytes);
            }
            Data::Soa { server, mailbox, serial, minimum } => {
                name(server, bytes);
                name(mailbox, bytes);
                // Refresh, retry and expire are CoreDNS's.
                for number in [*serial, 7200, 1800, 86400, *minimum] {
                    bytes.extend(number.to_be_bytes());
                }
            }
        }
        self.kind()
    }
}

/// Labels that are too long cannot be asked for either; they are cut.
pub fn name(text: &str, bytes: &mut Vec<u8>) {
    for label in text.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        bytes.push(label.len() as u8);
        bytes.extend(label);
    }
    bytes.push(0);
}

/// A query as a client writes one.
pub fn question(id: u16, text: &str, kind: Kind, takes: Option<u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [id, 0x0100, 1, 0, 0, u16::from(takes.is_some())] {
        bytes.extend(word.to_be_bytes());
    }
    name(text, &mut bytes);
    bytes.extend(kind.number().to_be_bytes());
    bytes.extend(IN.to_be_bytes());
    if let Some(takes) = takes {
        bytes.push(0);
        for word in [OPT, takes, 0, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(records: Vec<Record>) -> Answer {
        Answer { code: Code::NoError, records, authority: Vec::new(), additional: Vec::new() }
    }

    fn written(query: &Query<'_>, answer: &Answer, limit: usize) -> Vec<u8> {
        let mut bytes = vec![1, 2, 3];
        query.write(answer, limit, &mut bytes);
        bytes
    }

    #[test]
    fn a_question_is_read_and_its_letters_come_back() {
        let asked = question(7, "Web.Default", Kind::Srv, None);
        let query = Query::read(&asked).unwrap();
        assert_eq!((query.name.as_str(), query.kind, query.id), ("web.default", Kind::Srv, 7));
        assert_eq!((query.takes, query.limit()), (None, 512));
        assert_eq!(written(&query, &answer(Vec::new()), 512)[12..], asked[12..]);
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let whole = question(7, "web.default", Kind::A, None);
        for length in 0..whole.len() {
            assert_eq!(Query::read(&whole[..length]), Err(Malformed), "{length}");
        }
        for (at, byte) in [(2, 0x81), (5, 2), (12, 0xc0), (13, b'.')] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert_eq!(Query::read(&bytes), Err(Malformed), "{at}");
        }
        assert_eq!(refusal(&whole[..11], Code::FormatError), None);
        let told = refusal(&whole, Code::FormatError).unwrap();
        assert_eq!(told, [0, 7, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(refusal(&told, Code::FormatError), None, "answers are not answered");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let data = Data::Address("10.0.0.1".parse().unwrap());
        let records = vec![Record { name: None, seconds: 5, data }; 100];
        let check = |takes: Option<u16>, limit: Option<usize>, expected: (bool, u8, usize)| {
            let asked = question(7, "web", Kind::A, takes);
            let query = Query::read(&asked).unwrap();
            assert_eq!(query.takes, takes);
            let bytes = written(&query, &answer(records.clone()), limit.unwrap_or(query.limit()));
            assert_eq!((bytes[2] & 2 != 0, bytes[7], bytes.len()), expected);
            assert_eq!(bytes[11], u8::from(takes.is_some()), "EDNS is answered with EDNS");
        };
        check(None, None, (true, 30, 501));
        check(Some(100), None, (true, 30, 512));
        check(Some(4096), None, (true, 75, 1232));
        check(None, Some(65535), (false, 100, 21 + 1600));
    }
}
