//! What a list or watch selects, in the words of reviews: for authorizers that let somebody see some
//! objects only.
use api::selector::{field, label};
use serde_json::{Value, json};

/// Each requirement narrows what is selected, so one that cannot be read is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    pub fields: Vec<Requirement>,
    pub labels: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    pub values: Vec<String>,
}

impl Selected {
    pub fn of(fields: &field::Selector, labels: &label::Selector) -> Selected {
        Selected { fields: of_fields(fields), labels: of_labels(labels) }
    }

    /// As a review's `resourceAttributes` have it.
    pub fn read(attributes: &Value) -> Selected {
        let read =
            |selector: &Value, parse: fn(&str) -> Vec<Requirement>| match selector["rawSelector"]
                .as_str()
            {
                Some(raw) => parse(raw),
                None => {
                    let all = selector["requirements"].as_array().into_iter().flatten();
                    all.filter_map(Requirement::read).collect()
                }
            };
        Selected {
            fields: read(&attributes["fieldSelector"], parse_fields),
            labels: read(&attributes["labelSelector"], parse_labels),
        }
    }

    /// Selectors as texts. What is no selector requires nothing.
    pub fn parse(fields: &str, labels: &str) -> Selected {
        Selected { fields: parse_fields(fields), labels: parse_labels(labels) }
    }

    /// Writes both into a review's `resourceAttributes`.
    pub fn write_into(&self, attributes: &mut Value) {
        for (name, all) in [("fieldSelector", &self.fields), ("labelSelector", &self.labels)] {
            if !all.is_empty() {
                let requirements: Vec<Value> = all.iter().map(Requirement::tree).collect();
                attributes[name] = json!({ "requirements": requirements });
            }
        }
    }

    /// Whether only objects are selected whose field has this value.
    pub fn has_field(&self, name: &str, value: &str) -> bool {
        self.fields.iter().any(|field| {
            field.key == name
                && field.operator == "In"
                && matches!(&field.values[..], [v] if v == value)
        })
    }
}

impl Requirement {
    fn read(tree: &Value) -> Option<Requirement> {
        let operator = ["In", "NotIn", "Exists", "DoesNotExist"];
        let operator = operator.into_iter().find(|known| tree["operator"] == *known)?;
        let values = tree["values"].as_array().into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
        Some(Requirement { key: tree["key"].as_str()?.to_owned(), operator, values })
    }

    fn tree(&self) -> Value {
        let mut tree = json!({ "key": self.key, "operator": self.operator });
        if !self.values.is_empty() {
            tree["values"] = json!(self.values);
        }
        tree
    }
}

fn parse_fields(text: &str) -> Vec<Requirement> {
    field::Selector::parse(text).map(|selector| of_fields(&selector)).unwrap_or_default()
}

fn parse_labels(text: &str) -> Vec<Requirement> {
    label::Selector::parse(text).map(|selector| of_labels(&selector)).unwrap_or_default()
}

fn of_fields(selector: &field::Selector) -> Vec<Requirement> {
    let terms = selector.terms().iter();
    let read = |term: &field::Term| Requirement {
        key: term.field.clone(),
        operator: if term.equal { "In" } else { "NotIn" },
        values: vec![term.value.clone()],
    };
    terms.map(read).collect()
}

fn of_labels(selector: &label::Selector) -> Vec<Requirement> {
    use label::Operator::{
        DoesNotExist, DoubleEquals, Equals, Exists, GreaterThan, In, LessThan, NotEquals, NotIn,
    };
    let read = |requirement: &label::Requirement| {
        let operator = match requirement.operator() {
            Exists => "Exists",
            DoesNotExist => "DoesNotExist",
            Equals | DoubleEquals | In => "In",
            NotEquals | NotIn => "NotIn",
            // Reviews have no word for these.
            GreaterThan | LessThan => return None,
        };
        let (key, values) = (requirement.key().to_owned(), requirement.values().to_vec());
        Some(Requirement { key, operator, values })
    };
    selector.requirements().unwrap_or_default().iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_reads_a_selector_as_the_selection_does() {
        for (fields, is_own) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1,a=b", true),
            ("spec.nodeName!=n1", false),
            // One value with a comma and an equals sign in it: no word about a node.
            (r"metadata.name=x\,spec.nodeName\=n1", false),
            ("spec.nodeName===n1", false),
            ("spec.nodeName=n1,nonsense", false),
        ] {
            let selected = Selected::parse(fields, "");
            assert_eq!(selected.has_field("spec.nodeName", "n1"), is_own, "{fields}");
        }
    }

    #[test]
    fn what_is_written_into_a_review_is_read_from_it() {
        let selected = Selected::parse("a!=b", "app in (x,y),!old,tier,n>5");
        let mut attributes = json!({});
        selected.write_into(&mut attributes);
        assert_eq!(
            attributes,
            json!({
                "fieldSelector": { "requirements": [
                    { "key": "a", "operator": "NotIn", "values": ["b"] }] },
                "labelSelector": { "requirements": [
                    { "key": "app", "operator": "In", "values": ["x", "y"] },
                    { "key": "old", "operator": "DoesNotExist" },
                    { "key": "tier", "operator": "Exists" }] } })
        );
        assert_eq!(Selected::read(&attributes), selected);
        let raw = json!({ "labelSelector": { "rawSelector": "tier" } });
        assert_eq!(Selected::read(&raw).labels, selected.labels[2..]);
    }
}
