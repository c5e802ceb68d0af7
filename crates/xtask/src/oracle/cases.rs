//! Requests that no schema leads to, written by hand: schedules, patterns, certificates, paths, and
//! rules between fields. A line of `cases.jsonl` is one field and the values to try in it:
//!
//! ```text
//! {"of": "CronJob", "at": "spec.schedule", "try": ["@daily", "61 * * * *"]}
//! ```
//!
//! `of` names the kind, whose first object in `objects.jsonl` is taken, or with `nth` another. `with`
//! changes that object first, as a merge patch does. `at` is where the values go; without it each is a
//! merge patch itself. Each makes a creation, or with `part` an update: of the stored object (`""`) or
//! of its named part.
use super::mutate::Change;
use api::patch::merge;
use serde_json::{Value, json};

const CASES: &str = include_str!("cases.jsonl");

pub struct Case {
    pub kind: String,
    /// The object that the values are tried in.
    pub base: Value,
    pub part: Option<String>,
    at: Option<String>,
    tries: Vec<Value>,
}

/// The lines, each with its object from `objects`.
pub fn read(objects: &[Value]) -> anyhow::Result<Vec<Case>> {
    CASES.lines().map(|line| case(line, objects)).collect()
}

fn case(line: &str, objects: &[Value]) -> anyhow::Result<Case> {
    let case: Value =
        serde_json::from_str(line).map_err(|fault| anyhow::anyhow!("{fault}: {line}"))?;
    let word = |field: &str| case[field].as_str().map(str::to_owned);
    let nth = case["nth"].as_u64().unwrap_or(0) as usize;
    let kind = word("of").unwrap_or_default();
    let found = objects.iter().filter(|object| object["kind"] == kind.as_str()).nth(nth);
    let mut base = found.cloned().ok_or_else(|| anyhow::anyhow!("no object for {line}"))?;
    if let Some(with) = case.get("with") {
        merge::apply(&mut base, with)?;
    }
    let tries = case["try"].as_array().cloned().unwrap_or_else(|| vec![json!({})]);
    Ok(Case { kind, base, part: word("part"), at: word("at"), tries })
}

impl Case {
    /// What is tried, each with its name.
    pub fn tries(&self) -> impl Iterator<Item = (String, &Value)> {
        let at = self.at.as_deref().unwrap_or("all");
        self.tries.iter().map(move |value| {
            let cut: String = value.to_string().chars().take(100).collect();
            (format!("with {at} = {cut}"), value)
        })
    }

    /// An object with a value in its place.
    pub fn apply(&self, object: &Value, value: &Value) -> Option<Value> {
        match &self.at {
            Some(at) => Change::to(at, value.clone()).apply(object),
            None => {
                let mut object = object.clone();
                merge::apply(&mut object, value).ok()?;
                Some(object)
            }
        }
    }
}
