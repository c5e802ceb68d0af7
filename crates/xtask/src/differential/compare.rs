//! Where two clusters differ.
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub kind: String,
    pub place: String,
    ours: String,
    theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} | {}\n    ours:   {}\n    theirs: {}",
            self.kind, self.place, self.ours, self.theirs
        )
    }
}

impl Difference {
    pub fn answers(ours: &str, theirs: &str) -> Difference {
        let text = str::to_owned;
        Difference {
            kind: text("answer"),
            place: String::new(),
            ours: text(ours),
            theirs: text(theirs),
        }
    }
}

/// Objects by kind and plain name: there may be several of one.
pub type Objects = BTreeMap<(String, String), Vec<Value>>;

pub fn objects(ours: &Objects, theirs: &Objects) -> Vec<Difference> {
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let mut found = Vec::new();
    let none = Vec::new();
    for key in keys {
        let (kind, name) = key;
        let sorted = |objects: &Objects| {
            let mut all = objects.get(key).unwrap_or(&none).clone();
            all.sort_by_key(Value::to_string);
            all
        };
        let (ours, theirs) = (sorted(ours), sorted(theirs));
        if ours.len() != theirs.len() {
            found.push(Difference {
                kind: kind.clone(),
                place: format!("{name} count"),
                ours: ours.len().to_string(),
                theirs: theirs.len().to_string(),
            });
            continue;
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            walk(kind, &mut String::new(), ours, theirs, &mut found);
        }
    }
    found.dedup();
    found
}

fn walk(kind: &str, place: &mut String, ours: &Value, theirs: &Value, found: &mut Vec<Difference>) {
    let length = place.len();
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let dot = if place.is_empty() { "" } else { "." };
                place.push_str(&format!("{dot}{name}"));
                let (a, b) = (a.get(name), b.get(name));
                walk(kind, place, a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null), found);
                place.truncate(length);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                let label = a["type"].as_str().map_or_else(|| at.to_string(), str::to_owned);
                place.push_str(&format!("[{label}]"));
                walk(kind, place, a, b, found);
                place.truncate(length);
            }
        }
        _ if ours != theirs => found.push(Difference {
            kind: kind.to_owned(),
            place: place.clone(),
            ours: ours.to_string(),
            theirs: theirs.to_string(),
        }),
        _ => {}
    }
}

/// Each told once, whatever the count.
pub fn events(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<Difference> {
    let only = |all: &BTreeSet<String>, others: &BTreeSet<String>, ours: bool| {
        let each = all.difference(others).map(|text| Difference {
            kind: "Event".to_owned(),
            place: text.clone(),
            ours: if ours { "told" } else { "not told" }.to_owned(),
            theirs: if ours { "not told" } else { "told" }.to_owned(),
        });
        each.collect::<Vec<_>>()
    };
    let mut found = only(ours, theirs, true);
    found.extend(only(theirs, ours, false));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_told_by_their_place() {
        let one = |value: Value| Objects::from([(("Pod".to_owned(), "a".to_owned()), vec![value])]);
        let ours = one(json!({ "a": [{ "type": "Ready", "status": "True" }], "b": 1, "same": 0 }));
        let theirs =
            one(json!({ "a": [{ "type": "Ready", "status": "False" }], "c": 1, "same": 0 }));
        let places: Vec<String> = objects(&ours, &theirs).into_iter().map(|it| it.place).collect();
        assert_eq!(places, ["a[Ready].status", "b", "c"]);
        assert_eq!(objects(&ours, &ours), []);
    }
}
