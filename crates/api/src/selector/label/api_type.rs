//! The `LabelSelector` inside objects: its conversion and its validation.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{Error, Operator, Requirement, Selector};
use crate::field::{self, ErrorList, Path};
use crate::names;

impl Selector {
    /// Compiles the `LabelSelector` of an object. An absent one selects nothing, an empty one
    /// everything.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Result<Self, Error> {
        let Some(selector) = selector else {
            return Ok(Selector::nothing());
        };
        let labels = selector.match_labels.iter().flatten();
        let expressions = selector.match_expressions.iter().flatten();
        let labels = labels.map(|(key, value)| {
            Requirement::new(key, Operator::Equals, vec![value.clone()], &Path::NIL)
        });
        let requirements: Result<_, _> = labels.chain(expressions.map(convert)).collect();
        Ok(Selector::new(requirements?))
    }
}

impl Selector {
    /// The `LabelSelector` that says the same; `>` and `<` cannot be said in one.
    pub fn to_label_selector(&self) -> Result<Option<LabelSelector>, Error> {
        let Some(requirements) = self.requirements() else {
            return Ok(None);
        };
        let mut labels = BTreeMap::new();
        let mut expressions = Vec::new();
        for requirement in requirements {
            let operator = match (requirement.operator(), requirement.values()) {
                (Operator::Equals | Operator::DoubleEquals, [value]) => {
                    labels.insert(requirement.key().to_owned(), value.clone());
                    continue;
                }
                (Operator::In, _) => "In",
                // Upstream refuses `!=` here; it is a set of one.
                (Operator::NotIn | Operator::NotEquals, _) => "NotIn",
                (Operator::Exists, _) => "Exists",
                (Operator::DoesNotExist, _) => "DoesNotExist",
                (Operator::GreaterThan, _) => return Err(Error::Unsupported("gt")),
                _ => return Err(Error::Unsupported("lt")),
            };
            let values = requirement.values();
            expressions.push(LabelSelectorRequirement {
                key: requirement.key().to_owned(),
                operator: operator.to_owned(),
                values: (!values.is_empty()).then(|| values.to_vec()),
            });
        }
        Ok(Some(LabelSelector {
            match_labels: (!labels.is_empty()).then_some(labels),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        }))
    }
}

fn convert(expression: &LabelSelectorRequirement) -> Result<Requirement, Error> {
    let operator = match expression.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(Error::Operator(other.to_owned())),
    };
    let values = expression.values.clone().unwrap_or_default();
    Requirement::new(&expression.key, operator, values, &Path::NIL)
}

/// The selector as one line of text, for people: `<none>` if it is empty.
pub fn format_label_selector(selector: Option<&LabelSelector>) -> String {
    match Selector::from_label_selector(selector) {
        Err(_) => "<error>".to_owned(),
        Ok(selector) => match selector.to_string() {
            text if text.is_empty() => "<none>".to_owned(),
            text => text,
        },
    }
}

/// The faults of an object's `LabelSelector`.
pub fn validate_label_selector(selector: Option<&LabelSelector>, path: &Path<'_>) -> ErrorList {
    let Some(selector) = selector else {
        return ErrorList::new();
    };
    let mut errors = match &selector.match_labels {
        Some(labels) => validate_labels(labels, &path.child("matchLabels")),
        None => ErrorList::new(),
    };
    let expressions = path.child("matchExpressions");
    for (i, expression) in selector.match_expressions.iter().flatten().enumerate() {
        validate_expression(expression, &expressions.index(i), &mut errors);
    }
    errors
}

fn validate_expression(
    expression: &LabelSelectorRequirement,
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    let values = expression.values.as_deref().unwrap_or_default();
    match expression.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(field::Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(field::Error::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(field::Error::invalid(&path.child("operator"), other, detail));
        }
    }
    for fault in names::qualified_name(&expression.key) {
        errors.push(field::Error::invalid(&path.child("key"), &expression.key, fault));
    }
    for (i, value) in values.iter().enumerate() {
        for fault in names::label_value(value) {
            let at = path.child("values");
            errors.push(field::Error::invalid(&at.index(i), value, fault));
        }
    }
}

/// The faults of an object's labels.
pub fn validate_labels(labels: &BTreeMap<String, String>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels {
        for fault in names::qualified_name(key) {
            errors.push(field::Error::invalid(path, key, fault));
        }
        for fault in names::label_value(value) {
            errors.push(field::Error::invalid(path, value, fault));
        }
    }
    errors
}
