//! What the kernel's tables hold, and whether that is what somebody would write into them.
use super::{AddressFamily, Mapped, SUBSYSTEM, Transaction, Verdict};
use crate::message::{Message, attribute, attributes};
use crate::{Attributes, NetlinkError, Socket};
use std::collections::{BTreeMap, BTreeSet};

const GET_TABLE: u16 = 1;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_ELEMENTS: u16 = 13;
const GET_GENERATION: u16 = 16;
/// `struct nfgenmsg`.
const HEADER: usize = 4;
/// The first key behind a range.
const RANGE_END: u32 = 1;

/// What a transaction that writes a table whole would leave there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// How many rules each has.
    chains: BTreeMap<String, usize>,
    /// Keys with their values, of sets that nobody but us changes.
    sets: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Inventory {
    pub(super) fn chain(&mut self, name: &str) {
        self.chains.entry(name.to_owned()).or_default();
    }

    pub(super) fn rule(&mut self, chain: &str) {
        *self.chains.entry(chain.to_owned()).or_default() += 1;
    }

    pub(super) fn set(&mut self, name: &str) {
        self.sets.entry(name.to_owned()).or_default();
    }

    pub(super) fn element(&mut self, set: &str, key: &[u8], value: &Mapped) {
        let Some(elements) = self.sets.get_mut(set) else { return };
        let value = match value {
            Mapped::Nothing => Vec::new(),
            Mapped::Data(data) => data.0.clone(),
            Mapped::Verdict(verdict) => lead(verdict),
        };
        elements.insert([key, &value].concat());
    }

    pub(super) fn bound(&mut self, set: &str, key: &[u8], is_end: bool) {
        if let Some(elements) = self.sets.get_mut(set) {
            elements.insert([key, if is_end { &[1][..] } else { &[] }].concat());
        }
    }
}

/// A verdict as bytes: its number, and the chain that it leads to.
fn lead(verdict: &Verdict) -> Vec<u8> {
    let (code, chain) = verdict.parts();
    [&code.to_be_bytes()[..], chain.unwrap_or_default().as_bytes()].concat()
}

impl Transaction {
    /// Whether the kernel's table has the chains, as many rules in each, and the elements that this
    /// transaction, which writes a table whole and is [`recorded`](Self::recorded), would put there.
    pub fn holds(&self, socket: &mut Socket) -> Result<bool, NetlinkError> {
        let Some(inventory) = &self.inventory else { return Ok(false) };
        // What is read while somebody writes may be neither the old nor the new.
        for _ in 0..2 {
            if *inventory == self.found(inventory, socket)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn found(&self, wanted: &Inventory, socket: &mut Socket) -> Result<Inventory, NetlinkError> {
        let mut found = Inventory::default();
        let ask = |kind: u16, attributes| {
            Message::new(SUBSYSTEM << 8 | kind, 0, &[self.protocol, 0, 0, 0], attributes)
        };
        for body in socket.dump("list chains", ask(GET_CHAIN, Attributes::new()))? {
            let Some(own) = body.get(HEADER..) else { continue };
            if text(own, 1).as_deref() == Some(&self.table) {
                found.chain(&text(own, 3).unwrap_or_default());
            }
        }
        let of_table = || Attributes::new().text(1, &self.table);
        for body in missing_is_empty(socket.dump("list rules", ask(GET_RULE, of_table())))? {
            let Some(own) = body.get(HEADER..) else { continue };
            if text(own, 1).as_deref() == Some(&self.table) {
                found.rule(&text(own, 2).unwrap_or_default());
            }
        }
        for name in wanted.sets.keys() {
            let of_set = of_table().text(2, name);
            let dumped = socket.dump("list elements", ask(GET_ELEMENTS, of_set));
            let bodies = match dumped {
                Err(error) if error.is_missing() => continue,
                bodies => bodies?,
            };
            let elements = found.sets.entry(name.clone()).or_default();
            for list in bodies.iter().filter_map(|body| attribute(body.get(HEADER..)?, 3)) {
                elements.extend(attributes(list).filter_map(|(_, element)| read(element)));
            }
        }
        Ok(found)
    }
}

impl Socket {
    /// A number that changes with every change of any table.
    pub fn generation(&mut self) -> Result<u32, NetlinkError> {
        let message =
            Message::new(SUBSYSTEM << 8 | GET_GENERATION, 0, &[0; HEADER], Attributes::new());
        let body = self.get("read the generation of packet rules", message)?;
        let number = body.get(HEADER..).and_then(|own| attribute(own, 1)?.try_into().ok());
        Ok(number.map_or(0, u32::from_be_bytes))
    }

    /// What tells a table from another of its name that came after it; `None`: there is none.
    pub fn table(
        &mut self,
        family: AddressFamily,
        name: &str,
    ) -> Result<Option<u64>, NetlinkError> {
        let attributes = Attributes::new().text(1, name);
        let header = [family.number(), 0, 0, 0];
        let message = Message::new(SUBSYSTEM << 8 | GET_TABLE, 0, &header, attributes);
        match self.get("look at a table of packet rules", message) {
            Ok(body) => {
                let handle = body.get(HEADER..).and_then(|own| attribute(own, 4)?.try_into().ok());
                Ok(handle.map(u64::from_be_bytes))
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn missing_is_empty(
    dumped: Result<Vec<Vec<u8>>, NetlinkError>,
) -> Result<Vec<Vec<u8>>, NetlinkError> {
    match dumped {
        Err(error) if error.is_missing() => Ok(Vec::new()),
        other => other,
    }
}

/// An element as [`Inventory`] has it.
fn read(element: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = attribute(attribute(element, 1)?, 1)?.to_vec();
    let flags = attribute(element, 3).and_then(|flags| flags.try_into().ok());
    if flags.map_or(0, u32::from_be_bytes) & RANGE_END != 0 {
        bytes.push(1);
    }
    if let Some(data) = attribute(element, 2) {
        if let Some(value) = attribute(data, 1) {
            bytes.extend(value);
        } else if let Some(verdict) = attribute(data, 2) {
            bytes.extend(attribute(verdict, 1)?);
            bytes.extend(text(verdict, 2).unwrap_or_default().bytes());
        }
    }
    Some(bytes)
}

fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let value = attribute(bytes, kind)?;
    Some(String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned())
}
