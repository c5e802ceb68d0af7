//! What describers look at besides the object itself, and how the command that fetches it is told.

use serde_json::Value;

/// Something to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub slot: Slot,
    /// `v1`, `apps/v1`.
    pub api_version: &'static str,
    /// `pods`.
    pub resource: &'static str,
    /// Empty: everywhere, or a kind without namespaces.
    pub namespace: String,
    /// One object of this name; otherwise all that the selectors select.
    pub name: Option<String>,
    pub labels: String,
    pub fields: String,
    pub need: Need,
}

/// What becomes of a description if something cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It says so, or says nothing.
    Optional,
    /// There is none, unless it is only that one may not look.
    UnlessForbidden,
    /// There is none.
    Required,
}

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Events,
    Pods,
    Lease,
    ResourceSlices,
    EndpointSlices,
    Services,
    ReplicaSets,
    Quotas,
    LimitRanges,
}

/// Why something could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub message: String,
}

/// What was found of what was wanted.
#[derive(Clone, Debug, Default)]
pub struct Around {
    found: Vec<(Want, Result<Vec<Value>, Fault>)>,
}

impl Want {
    fn new(slot: Slot, api_version: &'static str, resource: &'static str, namespace: &str) -> Want {
        Want {
            slot,
            api_version,
            resource,
            namespace: namespace.to_owned(),
            name: None,
            labels: String::new(),
            fields: String::new(),
            need: Need::Optional,
        }
    }

    /// Everything in a namespace.
    pub fn all(
        slot: Slot,
        api_version: &'static str,
        resource: &'static str,
        namespace: &str,
    ) -> Want {
        Want::new(slot, api_version, resource, namespace)
    }

    pub fn one(
        slot: Slot,
        api_version: &'static str,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Want {
        Want { name: Some(name.to_owned()), ..Want::new(slot, api_version, resource, namespace) }
    }

    pub fn labels(self, labels: impl Into<String>) -> Want {
        Want { labels: labels.into(), ..self }
    }

    pub fn fields(self, fields: impl Into<String>) -> Want {
        Want { fields: fields.into(), ..self }
    }

    pub fn required(self) -> Want {
        Want { need: Need::Required, ..self }
    }

    pub fn required_unless_forbidden(self) -> Want {
        Want { need: Need::UnlessForbidden, ..self }
    }

    /// The events about an object; a kind or UID that is empty does not matter.
    pub fn events(namespace: &str, name: &str, kind: &str, uid: &str) -> Want {
        let terms = [("kind", kind), ("name", name), ("namespace", namespace), ("uid", uid)];
        let terms: Vec<String> = terms
            .into_iter()
            // The namespace of what has none is asked for all the same.
            .filter(|(field, value)| !value.is_empty() || *field == "namespace")
            .map(|(field, value)| {
                format!("involvedObject.{field}={}", api::selector::field::escape_value(value))
            })
            .collect();
        Want::new(Slot::Events, "v1", "events", namespace).fields(terms.join(","))
    }
}

impl Around {
    pub fn add(&mut self, want: Want, found: Result<Vec<Value>, Fault>) {
        self.found.push((want, found));
    }

    /// What was found for a purpose; None if nobody asked, or nobody may know.
    pub fn list(&self, slot: Slot) -> Option<Vec<&Value>> {
        let mut found = self.found.iter().filter(|(want, _)| want.slot == slot).peekable();
        found.peek()?;
        if found.clone().all(|(_, result)| result.is_err()) {
            return None;
        }
        Some(found.filter_map(|(_, result)| result.as_ref().ok()).flatten().collect())
    }

    /// Whether anybody asked, in vain or not.
    pub fn asked(&self, slot: Slot) -> bool {
        self.found.iter().any(|(want, _)| want.slot == slot)
    }

    pub fn fault(&self, slot: Slot) -> Option<&Fault> {
        self.fault_where(slot, |_| true)
    }

    pub fn fault_where(&self, slot: Slot, is: impl Fn(&Want) -> bool) -> Option<&Fault> {
        let mut found = self.found.iter().filter(|(want, _)| want.slot == slot && is(want));
        found.find_map(|(_, result)| result.as_ref().err())
    }
}
