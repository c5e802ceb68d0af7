//! Which nodes and which pods are meant: rules of affinity, compiled once per pod.
use api::field::Path;
use api::object::Pairs;
use api::selector::label::{Operator, Requirement, Selector};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::hash::{DefaultHasher, Hash, Hasher};

/// One of several alternatives; all of its requirements must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    /// Names that the node must have, or must not have.
    names: Vec<(bool, Vec<String>)>,
    /// It says nothing, or nothing that can be understood: it selects no node.
    nothing: bool,
}

impl NodeTerm {
    pub fn of(term: &NodeSelectorTerm) -> NodeTerm {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let labels: Option<Vec<_>> = expressions.iter().map(requirement).collect();
        let names: Option<Vec<_>> = fields.iter().map(name).collect();
        let nothing =
            (expressions.is_empty() && fields.is_empty()) || labels.is_none() || names.is_none();
        NodeTerm { labels: labels.unwrap_or_default(), names: names.unwrap_or_default(), nothing }
    }

    pub fn matches(&self, name: &str, labels: &Pairs) -> bool {
        let has_name = |(wanted, names): &(bool, Vec<String>)| {
            names.iter().any(|other| other == name) == *wanted
        };
        self.names.iter().all(has_name) && self.matches_labels(labels)
    }

    /// Whatever the node's name is.
    pub fn matches_labels(&self, labels: &Pairs) -> bool {
        !self.nothing && self.labels.iter().all(|requirement| requirement.matches(labels))
    }

    /// The only names that a node may have; `None`: any.
    pub fn only_names(&self) -> Option<Vec<&str>> {
        let mut wanted = self.names.iter().filter(|(wanted, _)| *wanted).map(|(_, names)| names);
        let mut only: Vec<&str> = wanted.next()?.iter().map(String::as_str).collect();
        for names in wanted {
            only.retain(|name| names.iter().any(|other| other == name));
        }
        Some(only)
    }
}

fn requirement(expression: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = match expression.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    let values = expression.values.clone().unwrap_or_default();
    Requirement::new(&expression.key, operator, values, &Path::new("key")).ok()
}

fn name(expression: &NodeSelectorRequirement) -> Option<(bool, Vec<String>)> {
    let values = expression.values.clone().unwrap_or_default();
    match (expression.key.as_str(), expression.operator.as_str(), values.len()) {
        ("metadata.name", "In", 1) => Some((true, values)),
        ("metadata.name", "NotIn", 1) => Some((false, values)),
        _ => None,
    }
}

/// Pods that a pod wants to be near to, or far from.
#[derive(Debug, Clone, PartialEq)]
pub struct PodTerm {
    namespaces: Vec<String>,
    namespace_selector: Selector,
    pub selector: Selector,
    pub topology_key: Box<str>,
    /// Equal terms have equal ones.
    pub hash: u64,
}

impl PodTerm {
    pub fn of(term: &PodAffinityTerm, own_namespace: &str) -> PodTerm {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(own_namespace.to_owned());
        }
        let mut hasher = DefaultHasher::new();
        // A term that cannot be written down is like any other such: that is slow, not wrong.
        serde_json::to_string(term).unwrap_or_default().hash(&mut hasher);
        own_namespace.hash(&mut hasher);
        PodTerm {
            hash: hasher.finish(),
            namespaces,
            namespace_selector: selector(term.namespace_selector.as_ref()),
            selector: selector(term.label_selector.as_ref()),
            topology_key: term.topology_key.as_str().into(),
        }
    }

    /// The one namespace whose pods are meant, if that is all that is said of namespaces.
    pub fn only_namespace(&self) -> Option<&str> {
        match (&self.namespaces[..], self.namespace_selector.is_nothing()) {
            ([only], true) => Some(only),
            _ => None,
        }
    }

    /// Whether a pod with these labels in this namespace is meant.
    pub fn matches(
        &self,
        namespace: &str,
        namespace_labels: Option<&Pairs>,
        labels: &Pairs,
    ) -> bool {
        let is_there = self.namespaces.iter().any(|name| name == namespace)
            || match namespace_labels {
                Some(labels) => self.namespace_selector.matches(labels),
                None => self.namespace_selector.matches(&Pairs::default()),
            };
        is_there && self.selector.matches(labels)
    }
}

/// What cannot be understood selects nothing.
pub fn selector(of: Option<&LabelSelector>) -> Selector {
    Selector::from_label_selector(of).unwrap_or_else(|_| Selector::nothing())
}
