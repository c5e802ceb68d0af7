//! A table as somebody wants it, or as the kernel has it, and the way from one to the other.
//!
//! A packet under way is judged by rules of one generation with elements of another: the kernel chooses the
//! rules once for each hook, and looks into sets as they are at that moment. So the way has steps
//! ([`Steps`]), between which everything that a packet can meet is whole.
use super::{
    DELETE_RULE, Element, Hook, Mapped, NEW_RULE, NEW_SET, SUBSYSTEM, Steps, Transaction, Verdict,
};
use crate::message::{CREATE, Message, attribute, attributes};
use crate::{Attributes, NetlinkError, Socket};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_SET: u16 = 10;
const GET_ELEMENTS: u16 = 13;
/// `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// What a table holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    chains: BTreeMap<String, Chain>,
    sets: BTreeMap<String, Described>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Chain {
    /// Where the kernel calls it: type, number, priority.
    hook: Option<(String, u32, i32)>,
    rules: Vec<Rule>,
}

/// A rule is told from another by a digest of what it was made from, which the kernel keeps with it: what
/// the kernel tells of expressions is not what it was told.
#[derive(Debug, Clone)]
struct Rule {
    digest: Option<u64>,
    /// Nothing, where it was read.
    expressions: Attributes,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        self.digest.is_some() && self.digest == other.digest
    }
}

impl Eq for Rule {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    shape: Shape,
    /// Those of a dynamic set are nobody's business.
    elements: BTreeMap<Vec<u8>, Mapped>,
}

/// What cannot be changed of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub flags: u32,
    pub key: u32,
    pub key_length: u32,
    /// Of a map.
    pub value: Option<(u32, u32)>,
}

impl Shape {
    pub const RANGES: u32 = 4;
    pub const MAP: u32 = 8;
    pub const TIMEOUT: u32 = 0x10;
    pub const EVALUATED: u32 = 0x20;
    pub const VERDICT: u32 = 0xffff_ff00;

    fn is_dynamic(&self) -> bool {
        self.flags & Shape::EVALUATED != 0
    }

    fn has_verdicts(&self) -> bool {
        self.value.is_some_and(|(kind, _)| kind == Shape::VERDICT)
    }

    fn attributes(&self, attributes: Attributes) -> Attributes {
        let attributes = attributes.be32(4, self.key).be32(5, self.key_length).be32(3, self.flags);
        match self.value {
            Some((kind, length)) => attributes.be32(6, kind).be32(7, length),
            None => attributes,
        }
    }

    fn read(own: &[u8]) -> Shape {
        let ours = Shape::RANGES | Shape::MAP | Shape::TIMEOUT | Shape::EVALUATED;
        let number = |kind| number(own, kind).unwrap_or(0);
        // The kernel says how long its own verdicts are.
        let length = |kind| if kind == Shape::VERDICT { 0 } else { number(7) };
        let value = attribute(own, 6).map(|_| (number(6), length(number(6))));
        Shape { flags: number(3) & ours, key: number(4), key_length: number(5), value }
    }
}

impl Description {
    pub(super) fn chain(&mut self, name: &str, hook: Option<Hook>) {
        let hook = hook.map(|hook| (hook.kind.to_owned(), hook.number, hook.priority));
        self.chains.entry(name.to_owned()).or_default().hook = hook;
    }

    pub(super) fn rule(&mut self, chain: &str, expressions: Attributes) {
        let digest = Some(digest(&expressions));
        let rules = &mut self.chains.entry(chain.to_owned()).or_default().rules;
        rules.push(Rule { digest, expressions });
    }

    pub(super) fn set(&mut self, name: &str, shape: Shape) {
        self.sets.insert(name.to_owned(), Described { shape, elements: BTreeMap::new() });
    }

    pub(super) fn element(&mut self, set: &str, element: Element) {
        if let Some(set) = self.sets.get_mut(set) {
            set.elements.insert(element.key.0, element.value);
        }
    }

    /// What the kernel has by the name of a transaction's table.
    pub(super) fn read(of: &Transaction, socket: &mut Socket) -> Result<Description, NetlinkError> {
        let mut found = Description::default();
        let ask = |kind: u16, attributes| {
            Message::new(SUBSYSTEM << 8 | kind, 0, &[of.protocol, 0, 0, 0], attributes)
        };
        let of_table = || Attributes::new().text(1, &of.table);
        let is_own = |own: &[u8]| text(own, 1).as_deref() == Some(&of.table);
        for body in socket.dump("list chains", ask(GET_CHAIN, Attributes::new()))? {
            let Some(own) = body.get(HEADER..).filter(|own| is_own(own)) else { continue };
            let hook = attribute(own, 4).map(|hook| {
                let place = |kind| number(hook, kind).unwrap_or(0);
                // One that drops whatever reaches its end is none of ours.
                let foreign = number(own, 5).is_some_and(|policy| policy == 0);
                let kind = text(own, 7).filter(|_| !foreign).unwrap_or_default();
                (kind, place(1), place(2) as i32)
            });
            let name = text(own, 3).unwrap_or_default();
            found.chains.insert(name, Chain { hook, rules: Vec::new() });
        }
        for body in missing_is_empty(socket.dump("list rules", ask(GET_RULE, of_table())))? {
            let Some(own) = body.get(HEADER..).filter(|own| is_own(own)) else { continue };
            let digest = attribute(own, 7).and_then(read_digest);
            let chain = found.chains.entry(text(own, 2).unwrap_or_default()).or_default();
            chain.rules.push(Rule { digest, expressions: Attributes::new() });
        }
        for body in missing_is_empty(socket.dump("list sets", ask(GET_SET, of_table())))? {
            let Some(own) = body.get(HEADER..).filter(|own| is_own(own)) else { continue };
            found.set(&text(own, 2).unwrap_or_default(), Shape::read(own));
        }
        for (name, set) in &mut found.sets {
            if set.shape.is_dynamic() {
                continue;
            }
            let dumped = socket.dump("list elements", ask(GET_ELEMENTS, of_table().text(2, name)));
            for list in missing_is_empty(dumped)?
                .iter()
                .filter_map(|body| attribute(body.get(HEADER..)?, 3))
            {
                set.elements.extend(attributes(list).filter_map(|(_, element)| read(element)));
            }
        }
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty()
    }

    /// Everything, into a table that has nothing.
    pub(super) fn write(&self, into: &mut Transaction) {
        let chains: Vec<_> = self.chains.iter().collect();
        chains.iter().for_each(|(name, chain)| chain.add(name, into));
        for (name, set) in &self.sets {
            set.add(name, into);
        }
        for (name, set) in &self.sets {
            into.add_elements(name, set.all());
        }
        chains.iter().for_each(|(name, chain)| chain.add_rules(name, into));
    }

    /// From what there is to what is wanted; `None`: there is no way but to begin anew.
    pub(super) fn way(&self, wanted: &Description, steps: &mut Steps) -> Option<()> {
        for (name, set) in &wanted.sets {
            let Some(found) = self.sets.get(name) else { continue };
            let is_same = found.shape == set.shape
                // Ranges are sets of content, which never change.
                && (set.shape.flags & Shape::RANGES == 0 || found.elements == set.elements);
            is_same.then_some(())?;
        }
        for (name, chain) in &wanted.chains {
            let found = self.chains.get(name);
            found.is_none_or(|found| found.hook == chain.hook).then_some(())?;
        }
        let Steps { ahead, now, after, .. } = steps;
        let new_chains =
            || wanted.chains.iter().filter(|(name, _)| !self.chains.contains_key(*name));
        let inner = || new_chains().filter(|(_, chain)| chain.hook.is_none());
        let new_sets = || wanted.sets.iter().filter(|(name, _)| !self.sets.contains_key(*name));
        inner().for_each(|(name, chain)| chain.add(name, ahead));
        new_sets().for_each(|(name, set)| set.add(name, ahead));
        new_sets().for_each(|(name, set)| ahead.add_elements(name, set.all()));
        inner().for_each(|(name, chain)| chain.add_rules(name, ahead));

        for (name, chain) in new_chains().filter(|(_, chain)| chain.hook.is_some()) {
            chain.add(name, now);
            chain.add_rules(name, now);
        }
        for (name, chain) in &wanted.chains {
            if self.chains.get(name).is_some_and(|found| found.rules != chain.rules) {
                now.empty_chain(name);
                chain.add_rules(name, now);
            }
        }
        for (name, set) in wanted.sets.iter().filter(|(_, set)| !set.shape.is_dynamic()) {
            let Some(found) = self.sets.get(name) else { continue };
            let key = |(key, _): (&Vec<u8>, _)| super::Data(key.clone());
            // A value is changed by taking the old one away.
            let other = |(key, value): &(&Vec<u8>, &Mapped)| set.elements.get(*key) != Some(value);
            let (changed, gone): (Vec<_>, Vec<_>) = (found.elements.iter().filter(other))
                .partition(|(key, _)| set.elements.contains_key(*key));
            now.remove_elements(name, changed.into_iter().map(key));
            // Who is led somewhere is let go when everything else is in force: what keeps two in turn
            // from something keeps them from it in between.
            let last = if set.shape.has_verdicts() { &mut *after } else { &mut *now };
            last.remove_elements(name, gone.into_iter().map(key));
            let come = set.elements.iter();
            let come = come.filter(|(key, value)| found.elements.get(*key) != Some(value));
            now.add_elements(name, come.map(|(key, value)| Described::element(key, value)));
        }
        let gone_chains = || self.chains.keys().filter(|name| !wanted.chains.contains_key(*name));
        gone_chains().for_each(|name| after.empty_chain(name));
        let gone_sets = self.sets.keys().filter(|name| !wanted.sets.contains_key(*name));
        gone_sets.for_each(|name| after.remove_set(name));
        gone_chains().for_each(|name| after.remove_empty_chain(name));
        Some(())
    }
}

impl Chain {
    fn add(&self, name: &str, into: &mut Transaction) {
        into.new_chain(
            name,
            self.hook.as_ref().map(|(kind, at, order)| (kind.as_str(), *at, *order)),
        );
    }

    fn add_rules(&self, name: &str, into: &mut Transaction) {
        for rule in &self.rules {
            into.new_rule(name, rule.expressions.clone());
        }
    }
}

impl Described {
    fn add(&self, name: &str, into: &mut Transaction) {
        into.new_set(name, &self.shape);
    }

    fn element(key: &[u8], value: &Mapped) -> Element {
        Element { key: super::Data(key.to_vec()), value: value.clone() }
    }

    fn all(&self) -> impl Iterator<Item = Element> + '_ {
        self.elements.iter().map(|(key, value)| Described::element(key, value))
    }
}

impl Transaction {
    pub(super) fn new_set(&mut self, name: &str, shape: &Shape) {
        let attributes = shape.attributes(self.named().text(2, name));
        // Any number will do that no other set of the transaction has.
        let attributes = attributes.be32(10, self.messages.len() as u32 + 1);
        self.push(NEW_SET, CREATE, attributes);
    }

    pub(super) fn new_rule(&mut self, chain: &str, expressions: Attributes) {
        const APPEND: u16 = 0x800;
        let kept = kept_digest(digest(&expressions));
        let attributes = self.named().text(2, chain).nested(4, expressions).bytes(7, &kept);
        self.push(NEW_RULE, CREATE | APPEND, attributes);
    }

    fn empty_chain(&mut self, name: &str) {
        self.push(DELETE_RULE, 0, self.named().text(2, name));
    }
}

fn digest(expressions: &Attributes) -> u64 {
    let mut hasher = DefaultHasher::new();
    expressions.as_bytes().hash(&mut hasher);
    hasher.finish()
}

/// What `nft` keeps with a rule is a list of type, length and value, of which it passes over what it does
/// not know.
const DIGEST: u8 = 0xd1;

fn kept_digest(digest: u64) -> Vec<u8> {
    [&[DIGEST, 8][..], &digest.to_be_bytes()].concat()
}

fn read_digest(kept: &[u8]) -> Option<u64> {
    let bytes = kept.strip_prefix(&[DIGEST, 8])?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn missing_is_empty(
    dumped: Result<Vec<Vec<u8>>, NetlinkError>,
) -> Result<Vec<Vec<u8>>, NetlinkError> {
    match dumped {
        Err(error) if error.is_missing() => Ok(Vec::new()),
        other => other,
    }
}

fn read(element: &[u8]) -> Option<(Vec<u8>, Mapped)> {
    let key = attribute(attribute(element, 1)?, 1)?.to_vec();
    if number(element, 3).unwrap_or(0) & Mapped::END != 0 {
        return Some((key, Mapped::RangeEnd));
    }
    let Some(data) = attribute(element, 2) else { return Some((key, Mapped::Nothing)) };
    if let Some(value) = attribute(data, 1) {
        return Some((key, Mapped::Data(super::Data(value.to_vec()))));
    }
    let verdict = attribute(data, 2)?;
    let chain = || text(verdict, 2).unwrap_or_default();
    let verdict = match number(verdict, 1)? as i32 {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -3 => Verdict::Jump(chain()),
        -4 => Verdict::Goto(chain()),
        // Not one of ours, or one that leads nowhere.
        _ => Verdict::Return,
    };
    Some((key, Mapped::Verdict(verdict)))
}

fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let value = attribute(bytes, kind)?;
    Some(String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned())
}

fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(attribute(bytes, kind)?.try_into().ok()?))
}
