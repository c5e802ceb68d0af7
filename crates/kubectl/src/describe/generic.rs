//! Everything that has no describer of its own, custom resources above all: its fields as they are,
//! under names that people read.

use serde_json::{Map, Value};

use super::Seen;
use super::common::{head, labels_and_annotations};
use super::writer::{Writer, put};
use api::template::go_print;

/// What has been said before the fields.
const SAID: [&str; 5] = [
    ".metadata.managedFields",
    ".metadata.name",
    ".metadata.namespace",
    ".metadata.labels",
    ".metadata.annotations",
];

/// Deeper than any object means to be.
const MAX_DEPTH: usize = 64;

pub fn describe(w: &mut Writer, object: &Value, _: &Seen<'_>) {
    head(w, object, true);
    labels_and_annotations(w, object);
    if let Some(fields) = object.as_object() {
        describe_fields(w, 0, fields, "");
    }
}

fn describe_fields(w: &mut Writer, level: usize, fields: &Map<String, Value>, path: &str) {
    if level > MAX_DEPTH {
        return put!(w, level, "...\n");
    }
    let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        if SAID.contains(&path.as_str()) {
            continue;
        }
        let label = label(name);
        match value {
            Value::Object(fields) => {
                put!(w, level, "{label}:\n");
                describe_fields(w, level + 1, fields, &path);
            }
            Value::Array(items) => {
                put!(w, level, "{label}:\n");
                for item in items {
                    match item {
                        Value::Object(fields) => describe_fields(w, level + 1, fields, &path),
                        item => put!(w, level + 1, "{}\n", go_print(item)),
                    }
                }
            }
            value => put!(w, level, "{label}:\t{}\n", go_print(value)),
        }
    }
}

/// `creationTimestamp` as `Creation Timestamp`.
fn label(field: &str) -> String {
    const ACRONYMS: [&str; 4] = ["API", "URL", "UID", "GUID"];
    if field.contains(|c: char| !c.is_alphabetic() && c != '-') {
        return field.to_owned();
    }
    let parts = merged(&split(field));
    let parts = parts.iter().map(|part| {
        let upper = part.to_uppercase();
        if ACRONYMS.contains(&upper.as_str()) {
            upper
        } else if part.to_lowercase() == *part {
            let mut chars = part.chars();
            chars
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
        } else {
            part.clone()
        }
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Parts of camel case: `HTTPRoute` is `HTTP`, `Route`.
fn split(field: &str) -> Vec<String> {
    let class = |c: char| match c {
        c if c.is_lowercase() => 1,
        c if c.is_uppercase() => 2,
        c if c.is_numeric() => 3,
        _ => 4,
    };
    let mut parts: Vec<String> = Vec::new();
    let mut last = 0;
    for c in field.chars() {
        match parts.last_mut().filter(|_| class(c) == last) {
            Some(part) => part.push(c),
            None => parts.push(c.to_string()),
        }
        last = class(c);
    }
    // The last capital of a run belongs to the word that follows it.
    for i in 0..parts.len().saturating_sub(1) {
        let starts = |part: &str, is: fn(char) -> bool| part.chars().next().is_some_and(is);
        if starts(&parts[i], char::is_uppercase)
            && starts(&parts[i + 1], char::is_lowercase)
            && let Some(capital) = parts[i].pop()
        {
            parts[i + 1].insert(0, capital);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Two capitals or more stay with the word that follows them.
fn merged(parts: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    let mut parts = parts.iter().peekable();
    while let Some(part) = parts.next() {
        let capitals =
            part.len() >= 2 && !part.chars().any(|c| c.is_alphabetic() && !c.is_uppercase());
        let next =
            parts.peek().is_some_and(|next| next.chars().next().is_some_and(char::is_uppercase));
        match parts.next_if(|_| capitals && next) {
            Some(next) => out.push(format!("{part}{next}")),
            None => out.push(part.clone()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_as_upstream_names_them() {
        for (field, want) in [
            ("creationTimestamp", "Creation Timestamp"),
            ("apiVersion", "API Version"),
            ("uid", "UID"),
            ("kind", "Kind"),
            ("podIP", "Pod IP"),
            ("IPAddress", "IPAddress"),
            ("someHTTPField", "Some HTTPField"),
            ("a.b/c", "a.b/c"),
            ("foo-bar", "Foo - Bar"),
            ("x1", "x1"),
        ] {
            assert_eq!(label(field), want, "{field}");
        }
    }
}
