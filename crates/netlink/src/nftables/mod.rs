//! Packet rules (`linux/netfilter/nf_tables.h`), one table of one address family at a time. What a
//! transaction says happens at once or not at all.
mod description;
mod expression;
mod inspect;
#[cfg(test)]
mod tests;
mod written;

pub use expression::{Base, Compare, Connection, Direction, Expression, Meta, Register};
pub use written::{Steps, Written, all_stand};

use crate::message::{CREATE, Message};
use crate::{Attributes, NetlinkError, Socket};
use description::{Description, Shape};

const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const DELETE_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const DELETE_SET: u16 = 11;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const LIST_ELEMENT: u16 = 1;
/// Elements are in one attribute, whose length is a 16-bit number.
const ELEMENTS_BYTES: usize = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressFamily {
    Ipv4,
    Ipv6,
}

impl AddressFamily {
    pub const BOTH: [AddressFamily; 2] = [AddressFamily::Ipv4, AddressFamily::Ipv6];

    pub fn of(address: std::net::IpAddr) -> AddressFamily {
        if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 }
    }

    fn number(self) -> u8 {
        match self {
            AddressFamily::Ipv4 => 2,
            AddressFamily::Ipv6 => 10,
        }
    }

    /// How many registers an address takes.
    pub const fn registers(self) -> u8 {
        match self {
            AddressFamily::Ipv4 => 1,
            AddressFamily::Ipv6 => 4,
        }
    }

    /// Where in a packet the source address is, and how long it is; the destination follows.
    fn source(self) -> (u32, u32) {
        match self {
            AddressFamily::Ipv4 => (12, 4),
            AddressFamily::Ipv6 => (8, 16),
        }
    }
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    pub kind: &'static str,
    pub number: u32,
    pub priority: i32,
}

impl Hook {
    pub const PREROUTING: u32 = 0;
    pub const INPUT: u32 = 1;
    pub const FORWARD: u32 = 2;
    pub const OUTPUT: u32 = 3;
    pub const POSTROUTING: u32 = 4;

    pub const fn nat(number: u32, priority: i32) -> Hook {
        Hook { kind: "nat", number, priority }
    }

    pub const fn filter(number: u32, priority: i32) -> Hook {
        Hook { kind: "filter", number, priority }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

impl Verdict {
    pub fn goto(chain: impl Into<String>) -> Verdict {
        Verdict::Goto(chain.into())
    }

    /// Its number, and where it leads.
    fn parts(&self) -> (u32, Option<&str>) {
        let (code, chain): (i32, _) = match self {
            Verdict::Drop => (0, None),
            Verdict::Accept => (1, None),
            Verdict::Jump(chain) => (-3, Some(chain.as_str())),
            Verdict::Goto(chain) => (-4, Some(chain.as_str())),
            Verdict::Return => (-5, None),
        };
        (code as u32, chain)
    }

    fn attributes(&self) -> Attributes {
        let (code, chain) = self.parts();
        let attributes = Attributes::new().be32(1, code);
        let attributes = chain.into_iter().fold(attributes, |all, chain| all.text(2, chain));
        Attributes::new().nested(2, attributes)
    }
}

/// What a field of a key or a value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Address,
    Protocol,
    Port,
    Number,
    /// A link's name.
    Link,
    Mac,
}

impl Field {
    /// What `nft` calls it, and its length before padding.
    fn shape(self, family: AddressFamily) -> (u32, u32) {
        match (self, family) {
            (Field::Address, AddressFamily::Ipv4) => (7, 4),
            (Field::Address, AddressFamily::Ipv6) => (8, 16),
            (Field::Protocol, _) => (12, 1),
            (Field::Port, _) => (13, 2),
            (Field::Number, _) => (19, 4),
            (Field::Link, _) => (41, 16),
            (Field::Mac, _) => (9, 6),
        }
    }
}

/// A set, or a map: a set whose elements have values.
#[derive(Debug, Clone)]
pub struct Set<'a> {
    pub name: &'a str,
    pub key: &'a [Field],
    pub value: Value<'a>,
    /// Rules add elements, which go by themselves after a time.
    pub dynamic: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Nothing,
    Verdict,
    Fields(&'a [Field]),
}

/// Bytes of a key or a value: each field padded to four bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Data(pub Vec<u8>);

impl Data {
    pub fn new() -> Data {
        Data::default()
    }

    #[must_use]
    pub fn address(mut self, address: std::net::IpAddr) -> Data {
        self.0.extend(crate::octets(address));
        self
    }

    #[must_use]
    pub fn protocol(mut self, protocol: u8) -> Data {
        self.0.extend([protocol, 0, 0, 0]);
        self
    }

    #[must_use]
    pub fn port(mut self, port: u16) -> Data {
        self.0.extend(port.to_be_bytes());
        self.0.extend([0, 0]);
        self
    }

    #[must_use]
    pub fn number(mut self, number: u32) -> Data {
        self.0.extend(number.to_ne_bytes());
        self
    }

    #[must_use]
    pub fn link(mut self, name: &str) -> Data {
        let end = self.0.len() + 16;
        self.0.extend(name.bytes().take(15));
        self.0.resize(end, 0);
        self
    }

    #[must_use]
    pub fn mac(mut self, mac: [u8; 6]) -> Data {
        self.0.extend(mac);
        self.0.extend([0, 0]);
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub key: Data,
    pub value: Mapped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    Nothing,
    Verdict(Verdict),
    Data(Data),
    /// The key is the first one behind a range.
    RangeEnd,
}

impl Mapped {
    const END: u32 = 1;
}

/// Changes of one table.
pub struct Transaction {
    family: AddressFamily,
    /// What kind of table it is: that of an address family, or a bridge's.
    protocol: u8,
    table: String,
    messages: Vec<Message>,
    /// In place of messages: what the table is to hold ([`Transaction::recorded`]).
    description: Option<Description>,
}

impl Transaction {
    pub fn new(family: AddressFamily, table: &str) -> Transaction {
        Transaction::of(family, family.number(), table)
    }

    /// A table of what bridges carry, with rules about packets of this family.
    pub fn of_bridges(family: AddressFamily, table: &str) -> Transaction {
        const BRIDGE: u8 = 7;
        Transaction::of(family, BRIDGE, table)
    }

    fn of(family: AddressFamily, protocol: u8, table: &str) -> Transaction {
        let table = table.to_owned();
        Transaction { family, protocol, table, messages: Vec::new(), description: None }
    }

    /// Says what the whole table is to hold, in place of what is to be done to it. The kernel's table is
    /// compared with it, and changed where it differs.
    #[must_use]
    pub fn recorded(mut self) -> Transaction {
        self.description = Some(Description::default());
        self
    }

    fn push(&mut self, kind: u16, flags: u16, attributes: Attributes) {
        if self.description.is_some() {
            return;
        }
        let header = [self.protocol, 0, 0, 0];
        self.messages.push(Message::new(SUBSYSTEM << 8 | kind, flags, &header, attributes));
    }

    fn named(&self) -> Attributes {
        Attributes::new().text(1, &self.table)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn add_table(&mut self) {
        self.push(NEW_TABLE, CREATE, self.named());
    }

    /// The table without anything in it, whatever there was.
    pub fn renew_table(&mut self) {
        self.remove_table();
        self.add_table();
    }

    /// Whether it was there or not.
    pub fn remove_table(&mut self) {
        // Only what exists can be deleted.
        self.add_table();
        self.push(DELETE_TABLE, 0, self.named());
    }

    pub fn add_chain(&mut self, name: &str) {
        match &mut self.description {
            Some(table) => table.chain(name, None),
            None => self.new_chain(name, None),
        }
    }

    pub fn add_base_chain(&mut self, name: &str, hook: Hook) {
        match &mut self.description {
            Some(table) => table.chain(name, Some(hook)),
            None => self.new_chain(name, Some((hook.kind, hook.number, hook.priority))),
        }
    }

    fn new_chain(&mut self, name: &str, hook: Option<(&str, u32, i32)>) {
        let attributes = self.named().text(3, name);
        let attributes = match hook {
            Some((kind, number, priority)) => {
                let place = Attributes::new().be32(1, number).be32(2, priority as u32);
                attributes.nested(4, place).text(7, kind)
            }
            None => attributes,
        };
        self.push(NEW_CHAIN, CREATE, attributes);
    }

    /// With its rules; nothing may lead to it any more.
    pub fn remove_chain(&mut self, name: &str) {
        self.push(DELETE_RULE, 0, self.named().text(2, name));
        self.remove_empty_chain(name);
    }

    fn remove_empty_chain(&mut self, name: &str) {
        self.push(DELETE_CHAIN, 0, self.named().text(3, name));
    }

    /// At the end of a chain.
    pub fn add_rule(&mut self, chain: &str, expressions: &[Expression<'_>]) {
        let list = expressions.iter().fold(Attributes::new(), |list, expression| {
            list.nested(LIST_ELEMENT, expression.attributes(self.family))
        });
        match &mut self.description {
            Some(table) => table.rule(chain, list),
            None => self.new_rule(chain, list),
        }
    }

    pub fn add_set(&mut self, set: &Set<'_>) {
        let flags = if set.dynamic { Shape::TIMEOUT | Shape::EVALUATED } else { 0 };
        let value = match set.value {
            Value::Nothing => None,
            Value::Verdict => Some((Shape::VERDICT, 0)),
            Value::Fields(fields) => Some(shape(fields, self.family)),
        };
        let flags = if value.is_some() { flags | Shape::MAP } else { flags };
        let (key, key_length) = shape(set.key, self.family);
        self.set(set.name, Shape { flags, key, key_length, value });
    }

    /// A set of ranges of one field, such as networks of addresses.
    pub fn add_range_set(&mut self, name: &str, key: Field) {
        let (key, key_length) = key.shape(self.family);
        self.set(name, Shape { flags: Shape::RANGES, key, key_length, value: None });
    }

    fn set(&mut self, name: &str, shape: Shape) {
        match &mut self.description {
            Some(table) => table.set(name, shape),
            None => self.new_set(name, &shape),
        }
    }

    /// With its elements; no rule may look into it any more.
    pub fn remove_set(&mut self, name: &str) {
        self.push(DELETE_SET, 0, self.named().text(2, name));
    }

    /// Ranges from a first key up to the one before `end`; `None`: to the last there is. They must
    /// neither overlap nor touch each other, nor what the set has.
    pub fn add_ranges(
        &mut self,
        set: &str,
        ranges: impl IntoIterator<Item = (Data, Option<Data>)>,
    ) {
        let both = ranges.into_iter().flat_map(|(first, end)| {
            let first = Element { key: first, value: Mapped::Nothing };
            let end = end.map(|key| Element { key, value: Mapped::RangeEnd });
            [first].into_iter().chain(end)
        });
        self.elements(NEW_ELEMENTS, CREATE, set, both);
    }

    pub fn add_elements(&mut self, set: &str, elements: impl IntoIterator<Item = Element>) {
        self.elements(NEW_ELEMENTS, CREATE, set, elements);
    }

    /// They must be there.
    pub fn remove_elements(&mut self, set: &str, keys: impl IntoIterator<Item = Data>) {
        let elements = keys.into_iter().map(|key| Element { key, value: Mapped::Nothing });
        self.elements(DELETE_ELEMENTS, 0, set, elements);
    }

    fn elements(
        &mut self,
        kind: u16,
        flags: u16,
        set: &str,
        elements: impl IntoIterator<Item = Element>,
    ) {
        if let Some(table) = &mut self.description {
            elements.into_iter().for_each(|element| table.element(set, element));
            return;
        }
        let mut list = Attributes::new();
        let mut elements = elements.into_iter().peekable();
        while let Some(element) = elements.next() {
            let key = Attributes::new().nested(1, value(&element.key.0));
            let whole = match &element.value {
                Mapped::Nothing => key,
                Mapped::Verdict(verdict) => key.nested(2, verdict.attributes()),
                Mapped::Data(data) => key.nested(2, value(&data.0)),
                Mapped::RangeEnd => key.be32(3, Mapped::END),
            };
            list = list.nested(LIST_ELEMENT, whole);
            if list.len() > ELEMENTS_BYTES || elements.peek().is_none() {
                let attributes = self.named().text(2, set).nested(3, std::mem::take(&mut list));
                self.push(kind, flags, attributes);
            }
        }
    }

    /// Whether the kernel's table is what is [`recorded`](Self::recorded).
    pub fn holds(&self, socket: &mut Socket) -> Result<bool, NetlinkError> {
        let Some(wanted) = &self.description else { return Ok(false) };
        // What is read while somebody writes may be neither the old nor the new.
        for _ in 0..2 {
            if *wanted == Description::read(self, socket)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The kernel's table becomes what is recorded, by what differs. Where there is no way, it is made anew.
    fn establish(self, wanted: &Description, socket: &mut Socket) -> Result<(), NetlinkError> {
        let mut anew = Transaction::of(self.family, self.protocol, &self.table);
        if wanted.is_empty() {
            anew.remove_table();
            return anew.commit(socket);
        }
        let found = Description::read(&self, socket)?;
        let mut steps = Steps::of(self);
        if !found.is_empty()
            && found.way(wanted, &mut steps).is_some()
            && steps.commit(socket).is_ok()
        {
            return Ok(());
        }
        anew.renew_table();
        wanted.write(&mut anew);
        anew.commit(socket)
    }

    /// Does it all, or nothing; what is [`recorded`](Self::recorded), in steps.
    pub fn commit(mut self, socket: &mut Socket) -> Result<(), NetlinkError> {
        if let Some(wanted) = self.description.take() {
            return self.establish(&wanted, socket);
        }
        if self.messages.is_empty() {
            return Ok(());
        }
        let what = format!("change the nftables table {}", self.table);
        let mark = |kind| {
            let [high, low] = SUBSYSTEM.to_be_bytes();
            Message::new(kind, 0, &[0, 0, high, low], Attributes::new())
        };
        let mut all = Vec::with_capacity(self.messages.len() + 2);
        all.push(mark(BATCH_BEGIN));
        all.extend(self.messages);
        all.push(mark(BATCH_END));
        // Kernels before 6.10 do not acknowledge the end of a batch.
        let acknowledged = all.len() - 2;
        socket.exchange(&what, &all, acknowledged)
    }
}

/// `NFTA_DATA_VALUE`.
fn value(bytes: &[u8]) -> Attributes {
    Attributes::new().bytes(1, bytes)
}

/// What `nft` calls a concatenation, and its length.
fn shape(fields: &[Field], family: AddressFamily) -> (u32, u32) {
    fields.iter().fold((0, 0), |(kind, length), field| {
        let (field, bytes) = field.shape(family);
        (kind << 6 | field, length + bytes.next_multiple_of(4))
    })
}
