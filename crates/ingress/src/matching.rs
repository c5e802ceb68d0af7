//! Which rule a request is for.
//!
//! Both specifications agree on the order. First the host: a name before a wildcard, a long wildcard before
//! a short one, and what is about any host last. Then the path: exact, then (of routes) an expression, then
//! the longest prefix by whole elements. Then whoever says most: a method, more headers, more parameters of
//! the query. Then the older object, and the name. A host whose paths do not match leaves the request to the
//! next one: both specifications speak of precedence, and an Ingress' default backend needs it.
use crate::host::Pattern;
use crate::table::{Clients, Hosts, Paths, Rule, TextMatch, parents};
use http::{HeaderMap, HeaderName, Method};
use std::sync::Arc;

/// As much of a request as rules are about.
pub struct Asked<'a> {
    /// Without a port, in lower case.
    pub host: &'a str,
    /// [`crate::path::Path::matched`].
    pub path: &'a str,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    /// Without the `?`.
    pub query: &'a str,
    /// What the connection's client had to prove.
    pub clients: Option<&'a Clients>,
}

pub struct Found<'t> {
    pub rule: &'t Arc<Rule>,
    /// As much of the path as the rule's prefix is.
    pub prefix: usize,
}

pub fn find<'t>(hosts: &'t Hosts, asked: &Asked<'_>) -> Option<Found<'t>> {
    if let Some(found) = hosts.exact.get(asked.host).and_then(|paths| of(paths, asked)) {
        return Some(found);
    }
    let mut below = parents(asked.host).filter_map(|name| hosts.below.get(name));
    below.find_map(|paths| of(paths, asked)).or_else(|| of(&hosts.any, asked))
}

fn of<'t>(paths: &'t Paths, asked: &Asked<'_>) -> Option<Found<'t>> {
    let first = |rules: &'t Vec<Arc<Rule>>, prefix: usize| {
        let rule = rules.iter().find(|rule| is_for(rule, asked))?;
        Some(Found { rule, prefix })
    };
    let exact = paths.exact.get(asked.path).and_then(|rules| first(rules, asked.path.len()));
    if exact.is_some() {
        return exact;
    }
    let mut expressions = paths.expressions.iter();
    let by_expression =
        expressions.find(|(text, rule)| text.is_match(asked.path) && is_for(rule, asked));
    if let Some((_, rule)) = by_expression {
        return Some(Found { rule, prefix: 0 });
    }
    prefixes(asked.path).find_map(|prefix| first(paths.prefixes.get(prefix)?, prefix.len()))
}

/// Every prefix of a path by whole elements, the longest first.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let whole = path.trim_end_matches('/');
    std::iter::successors(Some(whole), |prefix| prefix.rfind('/').map(|at| &prefix[..at]))
}

/// All but the path.
fn is_for(rule: &Rule, asked: &Asked<'_>) -> bool {
    rule.method.as_ref().is_none_or(|method| method == asked.method)
        && rule.host.matches(asked.host)
        && (rule.clients.is_none() || rule.clients.as_deref() == asked.clients)
        && !rule.except.iter().any(|other: &Pattern| other.matches(asked.host))
        && rule.headers.iter().all(|(name, text)| has_header(asked.headers, name, text))
        && rule.query.iter().all(|(name, text)| has_parameter(asked.query, name, text))
}

/// A header that comes several times is one with commas.
fn has_header(headers: &HeaderMap, name: &HeaderName, text: &TextMatch) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let Some(first) = values.next() else { return false };
    match values.next() {
        None => text.matches(first),
        Some(second) => {
            let all: Vec<&str> = [first, second].into_iter().chain(values).collect();
            text.matches(&all.join(","))
        }
    }
}

/// Of a parameter that comes several times the first one counts.
fn has_parameter(query: &str, name: &str, text: &TextMatch) -> bool {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let found = pairs.find(|(key, _)| decoded(key) == name);
    found.is_some_and(|(_, value)| text.matches(&decoded(value)))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = match first {
            b'%' => std::str::from_utf8(tail.get(..2).unwrap_or_default())
                .ok()
                .filter(|hex| hex.len() == 2)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok()),
            _ => None,
        };
        match (first, escape) {
            (_, Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
                continue;
            }
            (b'+', None) => bytes.push(b' '),
            (byte, None) => bytes.push(byte),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl TextMatch {
    pub fn matches(&self, text: &str) -> bool {
        match self {
            TextMatch::Exact(wanted) => wanted == text,
            TextMatch::Expression(wanted) => wanted.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests;
