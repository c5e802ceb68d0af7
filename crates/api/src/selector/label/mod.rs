//! Label selectors: `app=web,tier in (front, back),!canary`.
//!
//! A [`Selector`] is a list of requirements, all of which must hold. It is compiled once, from
//! text ([`Selector::parse`]) or from an object's `LabelSelector`, and then matched against the
//! labels of many objects in whatever form they are at hand: see [`Labels`]. Syntax, order, texts
//! and the printed form are those of upstream's `k8s.io/apimachinery/pkg/labels`.

mod api_type;
mod parse;
mod requirement;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

pub use api_type::{format_label_selector, validate_label_selector, validate_labels};
pub use requirement::{Operator, Requirement};

use crate::field;
use crate::quote::Quoted;

/// Requirements that must all hold; sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    /// The selector of an absent `LabelSelector`, which selects no object at all.
    nothing: bool,
}

/// Labels in any form that can be asked for a key: a map, a JSON object, or with [`Lookup`] a
/// closure, so that encoded objects are matched without decoding them.
pub trait Labels {
    fn get(&self, key: &str) -> Option<&str>;
}

/// Why a text or a `LabelSelector` is no selector; the words are upstream's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("found '{found}'{expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Error>),
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(Vec<field::Error>),
    #[error("{} is not a valid label selector operator", Quoted(.0))]
    Operator(String),
    #[error("{} isn't supported in label selectors", Quoted(.0))]
    Unsupported(&'static str),
}

impl Selector {
    /// Selects every object.
    pub const fn everything() -> Self {
        Selector { requirements: Vec::new(), nothing: false }
    }

    /// Selects no object.
    pub const fn nothing() -> Self {
        Selector { requirements: Vec::new(), nothing: true }
    }

    /// Reads `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key>1`
    /// and `key<1`, joined by commas.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Selector::new(parse::parse(text)?))
    }

    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Selector { requirements, nothing: false }
    }

    /// Each label must have exactly this value, as a Service's or ReplicationController's
    /// selector says. Nothing is validated.
    pub fn from_set(labels: &BTreeMap<String, String>) -> Self {
        let requirements = labels.iter().map(|(key, value)| Requirement::equals(key, value));
        Selector { requirements: requirements.collect(), nothing: false }
    }

    /// The same selector with more requirements.
    #[must_use]
    pub fn and(mut self, requirements: impl IntoIterator<Item = Requirement>) -> Self {
        if self.nothing {
            return self;
        }
        self.requirements.extend(requirements);
        Selector::new(self.requirements)
    }

    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// True if it selects every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The requirements, for an index to choose from; `None` if nothing is selected anyway.
    pub fn requirements(&self) -> Option<&[Requirement]> {
        (!self.nothing).then_some(&self.requirements)
    }

    /// The one value this label must have, if there is just one.
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find(|requirement| requirement.key() == key)?.exact_value()
    }
}

/// The canonical form, which parses to the same selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Selector::parse(text)
    }
}

/// Labels behind a closure.
pub struct Lookup<'a, F> {
    get: F,
    values: PhantomData<&'a str>,
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Lookup<'a, F> {
    pub const fn new(get: F) -> Self {
        Lookup { get, values: PhantomData }
    }
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Labels for Lookup<'a, F> {
    fn get(&self, key: &str) -> Option<&str> {
        (self.get)(key)
    }
}

impl Labels for BTreeMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        BTreeMap::get(self, key).map(String::as_str)
    }
}

impl Labels for HashMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        HashMap::get(self, key).map(String::as_str)
    }
}

impl Labels for serde_json::Map<String, serde_json::Value> {
    fn get(&self, key: &str) -> Option<&str> {
        serde_json::Map::get(self, key)?.as_str()
    }
}

impl Labels for serde_json::Value {
    fn get(&self, key: &str) -> Option<&str> {
        serde_json::Value::get(self, key)?.as_str()
    }
}

/// An object without labels has the empty set of them.
impl<L: Labels> Labels for Option<L> {
    fn get(&self, key: &str) -> Option<&str> {
        self.as_ref()?.get(key)
    }
}

impl<L: Labels + ?Sized> Labels for &L {
    fn get(&self, key: &str) -> Option<&str> {
        (**self).get(key)
    }
}
