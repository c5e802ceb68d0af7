//! Whether two servers said the same.
use super::nobody::nobodys;
use super::server::Said;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// One thing that one server said and the other did not.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// A path in the object, a cause's field, or what of the answer it is.
    pub place: String,
    pub ours: String,
    pub theirs: String,
    /// It only follows from causes that differ: the code, the reason, the sentence around them.
    pub follows: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = |text: &str| text.chars().take(1200).collect::<String>();
        write!(f, "{}: ours {}, theirs {}", self.place, cut(&self.ours), cut(&self.theirs))
    }
}

/// What a server says where it says nothing.
pub const NOTHING: &str = "nothing";
/// What their server is too busy to say is placed at these words and our code.
pub const BUSY: &str = "429 for";
/// What separates a message from a diff.
const DIFF: &str = "\n@@ ";

/// Everything that differs, but for identity, times and versions, and for how the structs in the
/// causes about the `masked` fields are shown.
pub fn differences(ours: &Said, theirs: &Said, masked: &[&str]) -> Vec<Difference> {
    if theirs.code == 429 && ours.code != 429 {
        let said = format!("429 {}", theirs.body["message"].as_str().unwrap_or_default());
        return vec![Difference::of(format!("{BUSY} {}", ours.code), ours.code.to_string(), said)];
    }
    let nobodys = |said: &Said| Said { body: nobodys(&said.body), ..said.clone() };
    let (mut ours, mut theirs) = (nobodys(ours), nobodys(theirs));
    mask(&mut ours.body, &mut theirs.body, masked);
    let (ours, theirs) = (&ours, &theirs);
    let mut found = Vec::new();
    let (mine, right) = (causes(&ours.body), causes(&theirs.body));
    let beside = |list: &[(String, String)], other: &[(String, String)]| {
        list.iter().filter(|cause| !other.contains(cause)).cloned().collect::<BTreeSet<_>>()
    };
    for (place, theirs) in beside(&right, &mine) {
        found.push(Difference::of(place, NOTHING, theirs));
    }
    for (place, ours) in beside(&mine, &right) {
        found.push(Difference::of(place, ours, NOTHING));
    }
    let follows = !found.is_empty();
    let mut note = |place: &str, ours: String, theirs: String| {
        if ours != theirs {
            found.push(Difference { follows, ..Difference::of(place, ours, theirs) });
        }
    };
    note("code", ours.code.to_string(), theirs.code.to_string());
    if is_status(ours) || is_status(theirs) {
        note("reason", ours.body["reason"].to_string(), theirs.body["reason"].to_string());
        if !follows {
            note("order", fields(&mine), fields(&right));
        }
        let whole = |said: &Said| {
            let message = said.body["message"].as_str().unwrap_or_default();
            message.contains(DIFF) || right.iter().any(|(field, _)| field == "patch")
        };
        if found.is_empty() && !whole(ours) && !whole(theirs) {
            objects(&ours.body, &theirs.body, "", &mut found);
        }
        return found;
    }
    note("warnings", ours.warnings.join("\n"), theirs.warnings.join("\n"));
    objects(&ours.body, &theirs.body, "", &mut found);
    found
}

impl Difference {
    fn of(
        place: impl Into<String>,
        ours: impl Into<String>,
        theirs: impl Into<String>,
    ) -> Difference {
        Difference { place: place.into(), ours: ours.into(), theirs: theirs.into(), follows: false }
    }
}

/// The struct or list that a cause shows in both answers is made `STRUCT`, there and in the message of
/// the whole, if nothing else of the cause differs.
fn mask(ours: &mut Value, theirs: &mut Value, masked: &[&str]) {
    for field in masked {
        let shown = |status: &Value| {
            let all = status["details"]["causes"].as_array().into_iter().flatten();
            let mut messages = all.filter(|cause| cause["field"] == *field);
            let message = messages.find_map(|cause| shown_struct(cause["message"].as_str()?));
            message.map(|(before, shown, after)| {
                (before.to_owned(), shown.to_owned(), after.to_owned())
            })
        };
        if let (Some(mine), Some(right)) = (shown(ours), shown(theirs))
            && (&mine.0, &mine.2) == (&right.0, &right.2)
        {
            hide(ours, &mine.1);
            hide(theirs, &right.1);
        }
    }
}

/// What is before the struct that a message shows, the struct, and what is behind.
fn shown_struct(message: &str) -> Option<(&str, &str, &str)> {
    const BEFORE: &str = " value: ";
    let start = message.find(BEFORE)? + BEFORE.len();
    let end = message.rfind(['}', ']'])? + 1;
    let shown = message.get(start..end).filter(|shown| shown.starts_with(['{', '[']))?;
    Some((&message[..start], shown, &message[end..]))
}

fn hide(value: &mut Value, shown: &str) {
    match value {
        Value::String(text) => *text = text.replace(shown, "STRUCT"),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, shown)),
        Value::Object(fields) => fields.values_mut().for_each(|field| hide(field, shown)),
        _ => {}
    }
}

fn is_status(said: &Said) -> bool {
    said.body["kind"] == "Status"
}

fn fields(causes: &[(String, String)]) -> String {
    causes.iter().map(|(field, cause)| format!("{field}: {cause}")).collect::<Vec<_>>().join("; ")
}

fn causes(status: &Value) -> Vec<(String, String)> {
    let all = status["details"]["causes"].as_array().into_iter().flatten();
    all.map(|cause| {
        let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
        let message = text("message");
        // A diff of Go's structs may follow, which ours has not.
        let message = message.split(DIFF).next().unwrap_or_default();
        // The whole patched object, with versions and times.
        let message = match text("field").as_str() {
            "patch" => message.rsplit("\": ").next().unwrap_or_default(),
            _ => message,
        };
        (text("field"), format!("{}: {message}", text("reason")))
    })
    .collect()
}

/// Paths that are each server's own.
const OWN: &[&str] = &["metadata.uid", "metadata.resourceVersion", "details.uid"];

/// In the answer itself, and in the objects of a list or a table.
fn is_own(path: &str) -> bool {
    let inner = match path.split_once("].") {
        Some((before, inner)) if before.starts_with("items[") => inner,
        Some((before, inner)) if before.starts_with("rows[") => {
            inner.strip_prefix("object.").unwrap_or(inner)
        }
        _ => path,
    };
    OWN.contains(&inner)
}

fn objects(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<Difference>) {
    // A column's description is prose, which kubectl never shows.
    let prose = path.starts_with("columnDefinitions") && path.ends_with(".description");
    if ours == theirs || is_own(path) || prose || are_times(ours, theirs, path) {
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
        _ => found.push(Difference::of(path, ours.to_string(), theirs.to_string())),
    }
}

/// Two moments of this run, or two ages in a table.
fn are_times(ours: &Value, theirs: &Value, path: &str) -> bool {
    let (Some(mine), Some(right)) = (ours.as_str(), theirs.as_str()) else { return false };
    // The objects' own times are of other years.
    let year = |text: &str| text.get(..4).and_then(|year| year.parse::<u16>().ok());
    let now = |text: &str| text.ends_with('Z') && year(text).is_some_and(|year| year >= 2026);
    let aged = path.starts_with("rows[") && without_ages(mine) == without_ages(right);
    aged || now(mine) && now(right)
}

/// A cell with `5m3s` and the like made `AGE`.
fn without_ages(cell: &str) -> String {
    let age = |word: &str| {
        let bare = word.trim_matches(['(', ')']);
        bare.starts_with(|c: char| c.is_ascii_digit())
            && bare.ends_with(['s', 'm', 'h', 'd', 'y'])
            && bare.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
    };
    cell.split(' ').map(|word| if age(word) { "AGE" } else { word }).collect::<Vec<_>>().join(" ")
}
