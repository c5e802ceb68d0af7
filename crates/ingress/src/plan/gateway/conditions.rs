//! Conditions: what is so, why, since when, and of which generation of the object that is said.
use serde_json::{Value, json};

pub struct Condition {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

pub fn yes(kind: &'static str, reason: &'static str, message: &str) -> Condition {
    Condition { kind, is_true: true, reason, message: message.to_owned() }
}

pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Condition {
    Condition { kind, is_true: false, reason, message: message.into() }
}

/// The conditions of something, as they were and as they are to be.
pub struct Conditions<'a> {
    all: Vec<Value>,
    generation: i64,
    now: &'a str,
}

impl<'a> Conditions<'a> {
    /// Those that `said` has.
    pub fn new(said: &Value, generation: i64, now: &'a str) -> Conditions<'a> {
        let all = said["conditions"].as_array().cloned().unwrap_or_default();
        Conditions { all, generation, now }
    }

    /// Says these; a condition that is as it was has been so since then.
    pub fn set(&mut self, new: &[Condition]) {
        for condition in new {
            let status = if condition.is_true { "True" } else { "False" };
            let old = self.all.iter().position(|one| one["type"] == condition.kind);
            let since = old.map(|at| &self.all[at]).filter(|old| old["status"] == status);
            let since = since.and_then(|old| old["lastTransitionTime"].as_str());
            let value = json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": self.generation,
                "lastTransitionTime": since.unwrap_or(self.now),
            });
            match old {
                Some(at) => self.all[at] = value,
                None => self.all.push(value),
            }
        }
    }

    pub fn has(&self, kind: &str) -> bool {
        self.all.iter().any(|one| one["type"] == kind)
    }

    /// What is no longer so and is said only while it is.
    pub fn remove(&mut self, kind: &str) {
        self.all.retain(|one| one["type"] != kind);
    }

    pub fn all(self) -> Value {
        Value::Array(self.all)
    }
}
