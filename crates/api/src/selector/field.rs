//! Field selectors: `spec.nodeName=node-1,status.phase!=Running`.
//!
//! Only equality can be asked for, of the few fields a kind offers; an absent field is the empty
//! string. A comma, an equals sign or a backslash in a value is written with a backslash before
//! it. Syntax and texts are those of upstream's `k8s.io/apimachinery/pkg/fields`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Terms that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
}

/// One field and the value it must have, or must not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    pub field: String,
    pub value: String,
    /// `=` rather than `!=`.
    pub equal: bool,
}

/// Why a text is no field selector; the words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    EscapeSequence(String),
    /// Upstream prints the character's number.
    #[error("invalid field selector: unescaped character in value: {}", *.0 as u32)]
    UnescapedCharacter(char),
}

impl Selector {
    /// Selects every object.
    pub const fn everything() -> Self {
        Selector { terms: Vec::new() }
    }

    /// Selects the objects with this value.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Selector { terms: vec![Term { field: field.into(), value: value.into(), equal: true }] }
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let terms = parts.map(|part| {
            let (field, equal, value) = split_term(part)
                .ok_or_else(|| Error::Term { selector: text.to_owned(), term: part.to_owned() })?;
            let value = unescape_value(value)?.into_owned();
            Ok(Term { field: field.to_owned(), value, equal })
        });
        let terms: Result<Vec<_>, Error> = terms.collect();
        Selector { terms: terms? }.transform(|field, value| Ok((field, value)))
    }

    /// Rewrites every field and value, as when a kind renames a field between versions. A term
    /// that becomes empty is dropped.
    pub fn transform<E>(
        self,
        mut rewrite: impl FnMut(String, String) -> Result<(String, String), E>,
    ) -> Result<Self, E> {
        let mut terms = Vec::with_capacity(self.terms.len());
        for Term { field, value, equal } in self.terms {
            let (field, value) = rewrite(field, value)?;
            if !field.is_empty() || !value.is_empty() {
                terms.push(Term { field, value, equal });
            }
        }
        Ok(Selector { terms })
    }

    /// Matches an object whose fields `get` looks up.
    pub fn matches<V: AsRef<str>>(&self, get: impl Fn(&str) -> Option<V>) -> bool {
        self.terms.iter().all(|term| {
            let value = get(&term.field);
            (value.as_ref().map_or("", AsRef::as_ref) == term.value) == term.equal
        })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value this field must have, if one is required.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        let term = self.terms.iter().find(|term| term.equal && term.field == field)?;
        Some(&term.value)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape_value(&term.value))?;
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

/// Any text as the value of a term.
pub fn escape_value(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', ',', '=']) {
        return Cow::Borrowed(value);
    }
    let mut out = String::with_capacity(value.len() + 4);
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    Cow::Owned(out)
}

/// The text that [`escape_value`] was given.
pub fn unescape_value(value: &str) -> Result<Cow<'_, str>, Error> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(Error::EscapeSequence(format!("\\{c}"))),
                None => return Err(Error::EscapeSequence("\\".to_owned())),
            },
            ',' | '=' => return Err(Error::UnescapedCharacter(c)),
            _ => out.push(c),
        }
    }
    Ok(Cow::Owned(out))
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

/// Field, whether it must be equal, and the value still escaped.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (field, value) = (&term[..at], &term[at + 1..]);
    match field.strip_suffix('!') {
        Some(field) => Some((field, false, value)),
        None => Some((field, true, value.strip_prefix('=').unwrap_or(value))),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, want: Expect) {
        want.assert_eq(&match Selector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn selectors_are_sorted_and_print_with_escapes() {
        check("", expect![""]);
        check("y=1,x!=2,,z==3", expect!["x!=2,y=1,z=3"]);
        check(r"a=b\,c\=d\\", expect![r"a=b\,c\=d\\"]);
        check("a=", expect!["a="]);
        check("=a", expect!["=a"]);
        check("=,!=", expect![""]);
    }

    #[test]
    fn faults_are_named_as_upstream_names_them() {
        check("a", expect!["invalid selector: 'a'; can't understand 'a'"]);
        check("x=1,a>b", expect!["invalid selector: 'x=1,a>b'; can't understand 'a>b'"]);
        check(r"a=\b", expect![r"invalid field selector: invalid escape sequence: \b"]);
        check(r"a=b\", expect![r"invalid field selector: invalid escape sequence: \"]);
        check("a=b=c", expect!["invalid field selector: unescaped character in value: 61"]);
    }

    #[test]
    fn an_absent_field_is_empty() {
        let get = |field: &str| (field == "spec.nodeName").then_some("n1");
        for (text, want) in [
            ("", true),
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("absent=", true),
            ("absent!=x,spec.nodeName==n1", true),
            ("absent!=", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(get), want, "{text}");
        }
        let selector = Selector::parse("a!=1,a=2").unwrap();
        assert_eq!(selector.requires_exact_match("a"), Some("2"));
    }

    #[test]
    fn a_term_can_be_rewritten_dropped_or_refused() {
        let selector = Selector::parse("name=x,gone=1").unwrap();
        let rewritten = selector.clone().transform(|field, value| match field.as_str() {
            "name" => Ok::<_, ()>(("metadata.name".to_owned(), value)),
            _ => Ok((String::new(), String::new())),
        });
        assert_eq!(rewritten.unwrap().to_string(), "metadata.name=x");
        assert_eq!(selector.transform(|_, _| Err("no such field")), Err("no such field"));
    }

    proptest! {
        #[test]
        fn any_value_survives(value in "\\PC*") {
            let selector = Selector::equals("a", value);
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*|[a=!,\\\\]*") {
            let _ = Selector::parse(&text);
        }
    }
}
