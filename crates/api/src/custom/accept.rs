//! Which names a definition gets, and the conditions that say so, in upstream's words
//! (`apiextensions-apiserver/pkg/controller/{status,establish,finalizer,apiapproval}`).
//!
//! A name that another definition of the group has is not given twice; what a definition has, it
//! keeps. Once all its names are accepted it is established: served, and for good.
use super::approval::{self, Approval};
use crate::rules::definition::bundle_fault;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The finalizer that keeps a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub r#type: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    fn new(r#type: &'static str, status: bool, reason: &'static str, message: &str) -> Condition {
        Condition { r#type, status, reason, message: message.to_owned() }
    }

    /// Of a definition whose deletion goes on, or is over.
    pub fn terminating(status: bool, reason: &'static str, message: &str) -> Condition {
        Condition::new("Terminating", status, reason, message)
    }

    pub fn established() -> Condition {
        let message = "the initial names have been accepted";
        Condition::new("Established", true, "InitialNamesAccepted", message)
    }

    /// Why a definition is not established that has all its names: its webhook has a bundle that nobody can
    /// believe.
    pub fn unfit_bundle(definition: &Value) -> Option<Condition> {
        let bundle = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
        bundle_fault(bundle.as_str().unwrap_or_default())?;
        let message = "The conversion webhook CABundle is invalid";
        Some(Condition::new("Established", false, "InvalidCABundle", message))
    }

    /// Who approved of a definition in one of Kubernetes' own groups; of others nothing is said.
    pub fn approval(definition: &Value) -> Option<Condition> {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        if !approval::is_protected(group) {
            return None;
        }
        let annotation = definition["metadata"]["annotations"][approval::ANNOTATION].as_str();
        let annotation = annotation.unwrap_or_default();
        let approval = Approval::of(annotation);
        let reason = match approval {
            Approval::Missing => "MissingAnnotation",
            Approval::Bypassed => "UnapprovedAnnotation",
            Approval::Approved => "ApprovedAnnotation",
            Approval::Invalid => "InvalidAnnotation",
        };
        let (is_approved, said) = (approval == Approval::Approved, approval.said(annotation));
        Some(Condition::new("KubernetesAPIApprovalPolicyConformant", is_approved, reason, &said))
    }

    /// Puts it in its place, or at the end; a condition that stays as it is keeps its time.
    pub fn put(&self, definition: &mut Value, now: Timestamp) {
        let status = if self.status { "True" } else { "False" };
        let time = Value::from(crate::time::format(now.as_second()));
        let mut new = json!({
            "type": self.r#type, "status": status, "reason": self.reason,
            "message": self.message, "lastTransitionTime": time,
        });
        if !definition["status"]["conditions"].is_array() {
            definition["status"]["conditions"] = json!([]);
        }
        let Some(all) = definition["status"]["conditions"].as_array_mut() else { return };
        match all.iter_mut().find(|condition| condition["type"] == self.r#type) {
            Some(old) => {
                if old["status"] == new["status"] && !old["lastTransitionTime"].is_null() {
                    new["lastTransitionTime"] = old["lastTransitionTime"].clone();
                }
                *old = new;
            }
            None => all.push(new),
        }
    }

    /// Whether the definition says so already.
    pub fn holds(&self, definition: &Value) -> bool {
        let status = if self.status { "True" } else { "False" };
        condition(definition, self.r#type).is_some_and(|condition| {
            condition["status"] == status
                && condition["reason"] == self.reason
                && condition["message"] == *self.message
        })
    }
}

pub fn condition<'d>(definition: &'d Value, r#type: &str) -> Option<&'d Value> {
    let all = definition["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == r#type)
}

pub fn is_true(definition: &Value, r#type: &str) -> bool {
    condition(definition, r#type).is_some_and(|condition| condition["status"] == "True")
}

/// Names that other definitions of a group have.
#[derive(Debug, Default)]
pub struct Taken<'d> {
    resources: HashSet<&'d str>,
    kinds: HashSet<&'d str>,
}

impl<'d> Taken<'d> {
    /// By all definitions of the group, the one that asks among them: what it has is its own.
    pub fn of(group: &str, definitions: impl Iterator<Item = &'d Value>) -> Taken<'d> {
        let mut taken = Taken::default();
        for definition in definitions.filter(|each| each["spec"]["group"] == group) {
            let names = &definition["status"]["acceptedNames"];
            let text = |name: &str| names[name].as_str();
            taken.resources.extend(text("plural").into_iter().chain(text("singular")));
            taken.resources.extend(words(&names["shortNames"]));
            taken.kinds.extend(text("kind").into_iter().chain(text("listKind")));
        }
        taken
    }
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The names that a definition gets, and what is said of them.
pub struct Accepted {
    pub names: Value,
    pub conditions: [Condition; 2],
}

impl Accepted {
    /// Whether the definition says all of it already.
    pub fn holds(&self, definition: &Value) -> bool {
        let names = &definition["status"]["acceptedNames"];
        same_names(names, &self.names) && self.conditions[0].holds(definition)
    }

    pub fn all_names(&self) -> bool {
        self.conditions[0].status
    }
}

/// Whether a definition has every name that it asks for.
pub fn has_all_names(definition: &Value) -> bool {
    same_names(&definition["spec"]["names"], &definition["status"]["acceptedNames"])
}

/// Absent lists are empty ones.
fn same_names(a: &Value, b: &Value) -> bool {
    let text = |name: &str| a[name].as_str() == b[name].as_str();
    let list = |name: &str| words(&a[name]).eq(words(&b[name]));
    ["plural", "singular", "kind", "listKind"].into_iter().all(text)
        && ["shortNames", "categories"].into_iter().all(list)
}

pub fn accept(definition: &Value, taken: &Taken<'_>) -> Accepted {
    let (wanted, had) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let mut names = if had.is_object() { had.clone() } else { json!({}) };
    let mut conflict: Option<(&'static str, String)> = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    for (field, taken, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        let fresh = |name: &&str| taken.contains(*name);
        let refused: Vec<String> = match field {
            "shortNames" => words(&wanted[field])
                .filter(|name| !words(&had[field]).any(|own| own == *name))
                .filter(fresh)
                .map(in_use)
                .collect(),
            _ => {
                let name = wanted[field].as_str().unwrap_or_default();
                let own = had[field].as_str().unwrap_or_default();
                Some(name)
                    .filter(|name| *name != own)
                    .filter(fresh)
                    .map(in_use)
                    .into_iter()
                    .collect()
            }
        };
        if refused.is_empty() {
            crate::rules::prepare::put(&mut names, field, wanted.get(field));
        } else {
            let message = match &refused[..] {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            conflict = Some((reason, message));
        }
    }
    crate::rules::prepare::put(&mut names, "categories", wanted.get("categories"));
    let accepted = match &conflict {
        Some((reason, message)) => Condition::new("NamesAccepted", false, reason, message),
        None => Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"),
    };
    let established = if is_true(definition, "Established") {
        Condition::established()
    } else if accepted.status {
        let message = "the initial names have been accepted";
        Condition::new("Established", false, "Installing", message)
    } else {
        Condition::new("Established", false, "NotAccepted", "not all names are accepted")
    };
    Accepted { names, conditions: [accepted, established] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &str) -> Value {
        json!({ "spec": { "group": "a.io", "names": { "plural": plural, "singular": plural,
            "kind": kind, "listKind": format!("{kind}List"), "shortNames": [short] } } })
    }

    fn established(mut definition: Value) -> Value {
        definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
        definition
    }

    #[test]
    fn a_name_is_given_once() {
        let first = established(definition("foos", "Foo", "f"));
        let taken = || Taken::of("a.io", [&first].into_iter());
        let said = |definition: &Value| {
            let accepted = accept(definition, &taken());
            let [names, established] = &accepted.conditions;
            format!("{} {}: {} {}", names.status, names.reason, names.message, established.reason)
        };
        let fine = "true NoConflicts: no conflicts found Installing";
        assert_eq!(said(&definition("bars", "Bar", "b")), fine);
        assert_eq!(said(&first), fine);
        let kind = definition("bars", "Foo", "b");
        let text = r#"false ListKindConflict: "FooList" is already in use NotAccepted"#;
        assert_eq!(said(&kind), text);
        let short = definition("bars", "Bar", "f");
        assert_eq!(said(&short), r#"false ShortNamesConflict: "f" is already in use NotAccepted"#);
        assert_eq!(accept(&short, &taken()).names["plural"], "bars");
        assert!(accept(&short, &taken()).names.get("shortNames").is_none());
    }

    #[test]
    fn who_approved_is_said_in_groups_of_kubernetes_own() {
        for (group, annotation, expected) in [
            ("a.io", "", None),
            ("notk8s.io", "", None),
            (
                "a.k8s.io",
                "",
                Some(
                    "false MissingAnnotation: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
                ),
            ),
            (
                "k8s.io",
                "unapproved, a test",
                Some("false UnapprovedAnnotation: not approved: \"unapproved, a test\""),
            ),
            (
                "kubernetes.io",
                "https://e.io/1",
                Some("true ApprovedAnnotation: approved in https://e.io/1"),
            ),
            (
                "b.kubernetes.io",
                "yes",
                Some(
                    "false InvalidAnnotation: protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
                ),
            ),
        ] {
            let definition = json!({ "spec": { "group": group },
                "metadata": { "annotations": { "api-approved.kubernetes.io": annotation } } });
            let said = Condition::approval(&definition).map(|condition| {
                let Condition { status, reason, message, .. } = condition;
                format!("{status} {reason}: {message}")
            });
            assert_eq!(said.as_deref(), expected, "{group} {annotation}");
        }
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time() {
        let mut definition = json!({});
        let at = |second| Timestamp::from_second(second).unwrap();
        Condition::established().put(&mut definition, at(0));
        let other = Condition { reason: "Other", ..Condition::established() };
        other.put(&mut definition, at(60));
        let condition = condition(&definition, "Established").unwrap();
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(condition["reason"], "Other");
        Condition { status: false, ..other }.put(&mut definition, at(60));
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }
}
