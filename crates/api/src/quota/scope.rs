//! Which objects a quota is about: its scopes.
use crate::field::Path;
use crate::selector::label::{Lookup, Operator, Requirement, Selector as Labels};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    pub scope_name: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.scope_name, self.operator, self.values.join(" "))
    }
}

/// All scopes of a quota, in one form.
pub fn of_quota(quota: &Value) -> Vec<Selector> {
    let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten();
    let scopes = scopes.filter_map(Value::as_str).map(|name| Selector {
        scope_name: name.to_owned(),
        operator: "Exists".into(),
        values: Vec::new(),
    });
    let expressions = quota["spec"]["scopeSelector"]["matchExpressions"].clone();
    let selectors: Vec<Selector> = serde_json::from_value(expressions).unwrap_or_default();
    scopes.chain(selectors).collect()
}

impl Selector {
    /// Whether the selector takes an object whose class has one of these names; an object without
    /// one is asked about too.
    pub fn takes(&self, names: &[&str]) -> Result<bool, String> {
        if self.operator == "Exists" {
            return Ok(!names.is_empty());
        }
        let failed = |cause: String| format!("failed to parse and convert selector: {cause}");
        let operator = match self.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                return Err(failed(format!("{other:?} is not a valid scope selector operator")));
            }
        };
        let requirement =
            Requirement::new(&self.scope_name, operator, self.values.clone(), &Path::new(""));
        let labels = Labels::new(vec![requirement.map_err(|error| failed(error.to_string()))?]);
        let matches = |name: Option<&str>| {
            labels.matches(&Lookup::new(|key: &str| name.filter(|_| key == self.scope_name)))
        };
        Ok(match names {
            [] => matches(None),
            names => names.iter().any(|name| matches(Some(name))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scopes_and_selectors_are_one_list() {
        let quota = json!({"spec": {"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["a", "b"]}]}}});
        let shown: Vec<String> = of_quota(&quota).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["{BestEffort Exists []}", "{PriorityClass NotIn [a b]}"]);
    }

    #[test]
    fn a_selector_takes_names() {
        let takes = |operator: &str, values: &[&str], names: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let scope_name = "PriorityClass".into();
            Selector { scope_name, operator: operator.into(), values }.takes(names)
        };
        assert_eq!(takes("In", &["a"], &["a"]), Ok(true));
        assert_eq!(takes("In", &["a"], &[]), Ok(false));
        assert_eq!(takes("NotIn", &["a"], &[]), Ok(true));
        assert_eq!(takes("DoesNotExist", &[], &["a"]), Ok(false));
        assert_eq!(takes("In", &["b"], &["a", "b"]), Ok(true));
        assert!(takes("Is", &[], &["a"]).is_err());
    }
}
