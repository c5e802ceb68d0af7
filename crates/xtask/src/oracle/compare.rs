//! Whether two servers said the same.
use super::Said;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

const KNOWN: &str = include_str!("known.txt");

/// One thing that one server said and the other did not.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// A path in the object, a cause's field, or what of the answer it is.
    pub place: String,
    pub ours: String,
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = |text: &str| text.chars().take(160).collect::<String>();
        write!(f, "{}: ours {}, theirs {}", self.place, cut(&self.ours), cut(&self.theirs))
    }
}

/// What differs for a reason: `KIND PLACE reason`, where `*` is any kind; a place covers what begins
/// with it, one that begins with a star what ends like it.
pub struct Known(Vec<(&'static str, &'static str)>);

impl Known {
    pub fn read() -> Known {
        let rows = KNOWN.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let row = |line: &'static str| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        };
        Known(rows.filter_map(row).collect())
    }

    pub fn covers(&self, kind: &str, difference: &Difference) -> bool {
        let fits = |known: &str, found: &str| known == "*" || known == found;
        self.0.iter().any(|(of, place)| {
            let covers = match place.strip_prefix('*') {
                Some(end) => difference.place.ends_with(end),
                None => difference.place.starts_with(place),
            };
            fits(of, kind) && covers
        })
    }
}

/// Everything that differs, but for identity, times and versions.
pub fn differences(ours: &Said, theirs: &Said) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut note = |place: &str, ours: String, theirs: String| {
        if ours != theirs {
            found.push(Difference { place: place.into(), ours, theirs });
        }
    };
    note("code", ours.code.to_string(), theirs.code.to_string());
    if ours.body["kind"] == "Status" || theirs.body["kind"] == "Status" {
        note("reason", ours.body["reason"].to_string(), theirs.body["reason"].to_string());
        let (mine, right) = (causes(&ours.body), causes(&theirs.body));
        for (field, cause) in mine.difference(&right) {
            note(field, cause.clone(), "nothing".into());
        }
        for (field, cause) in right.difference(&mine) {
            note(field, "nothing".into(), cause.clone());
        }
        if mine.is_empty() && right.is_empty() {
            note("message", ours.body["message"].to_string(), theirs.body["message"].to_string());
        }
        return found;
    }
    objects(&without_identity(&ours.body), &without_identity(&theirs.body), "", &mut found);
    found
}

/// The object with its uid, and the volume name that was made up for it, made nobody's wherever
/// they occur.
fn without_identity(object: &Value) -> Value {
    let mut text = object.to_string();
    if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        text = text.replace(uid, "UID");
    }
    let volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
    for name in volumes.filter_map(|volume| volume["name"].as_str()) {
        if name.starts_with("kube-api-access-") {
            text = text.replace(name, "kube-api-access-NAME");
        }
    }
    serde_json::from_str(&text).unwrap_or_else(|_| object.clone())
}

fn causes(status: &Value) -> BTreeSet<(String, String)> {
    let all = status["details"]["causes"].as_array().into_iter().flatten();
    all.map(|cause| {
        let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
        (text("field"), format!("{}: {}", text("reason"), text("message")))
    })
    .collect()
}

/// Paths that are each server's own.
const OWN: &[&str] = &[
    "metadata.uid",
    "metadata.creationTimestamp",
    "metadata.resourceVersion",
    "metadata.managedFields",
];

fn objects(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<Difference>) {
    if OWN.contains(&path) || ours == theirs {
        return;
    }
    match (ours, theirs) {
        (Value::Object(mine), Value::Object(right)) => {
            let names: BTreeSet<&String> = mine.keys().chain(right.keys()).collect();
            for name in names {
                let child = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let get = |object: &serde_json::Map<String, Value>| {
                    object.get(name).cloned().unwrap_or(Value::Null)
                };
                objects(&get(mine), &get(right), &child, found);
            }
        }
        (Value::Array(mine), Value::Array(right)) if mine.len() == right.len() => {
            for (i, (mine, right)) in mine.iter().zip(right).enumerate() {
                objects(mine, right, &format!("{path}[{i}]"), found);
            }
        }
        _ => found.push(Difference {
            place: path.to_owned(),
            ours: ours.to_string(),
            theirs: theirs.to_string(),
        }),
    }
}
