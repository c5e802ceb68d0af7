//! One condition on one label.

use std::fmt;

use super::{Error, Labels};
use crate::field::{self, BadValue, Path};
use crate::names;

/// A key, an operator and its values, checked and ready to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// The value as a number, for `>` and `<`.
    number: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key=value`
    Equals,
    /// `key==value`, which means the same and is printed as it came.
    DoubleEquals,
    /// `key!=value`; an absent label qualifies.
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; an absent label qualifies.
    NotIn,
    /// `key>1`; what is no integer does not qualify.
    GreaterThan,
    /// `key<1`; what is no integer does not qualify.
    LessThan,
}

impl Requirement {
    /// Checks key, operator and values against each other; errors name the fields under `path`.
    pub fn new(
        key: &str,
        operator: Operator,
        values: Vec<String>,
        path: &Path<'_>,
    ) -> Result<Self, Error> {
        let mut errors = Vec::new();
        errors.extend(invalid_key(key, &path.child("key")));
        let at = path.child("values");
        if let Some(fault) = operator.count_fault(values.len()) {
            // An absent list is null in upstream's message.
            let shown = if values.is_empty() { BadValue::null() } else { BadValue::json(&values) };
            errors.push(field::Error::invalid(&at, shown, fault));
        }
        let mut number = 0;
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (i, value) in values.iter().enumerate() {
                match value.parse() {
                    Ok(parsed) => number = parsed,
                    Err(_) => {
                        let fault = "for 'Gt', 'Lt' operators, the value must be an integer";
                        errors.push(field::Error::invalid(&at.index(i), value, fault));
                    }
                }
            }
        }
        for (i, value) in values.iter().enumerate() {
            let faults = names::label_value(value);
            if !faults.is_empty() {
                let at = at.index(i);
                errors.push(field::Error::invalid(&at.key(key), value, faults.join("; ")));
            }
        }
        if !errors.is_empty() {
            return Err(Error::Invalid(errors));
        }
        Ok(Requirement { key: key.to_owned(), operator, values, number })
    }

    /// `key=value`, taken as valid.
    pub fn equals(key: &str, value: &str) -> Self {
        let values = vec![value.to_owned()];
        Requirement { key: key.to_owned(), operator: Operator::Equals, values, number: 0 }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The only value the label may have.
    pub fn exact_value(&self) -> Option<&str> {
        match (self.operator, self.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }

    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        let value = labels.get(&self.key);
        let listed = |value: &str| self.values.iter().any(|own| own == value);
        let compared = |order: fn(&i64, &i64) -> bool| {
            value
                .and_then(|value| value.parse().ok())
                .is_some_and(|number| order(&number, &self.number))
        };
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::GreaterThan => compared(i64::gt),
            Operator::LessThan => compared(i64::lt),
        }
    }
}

impl Operator {
    fn count_fault(self, count: usize) -> Option<&'static str> {
        let (good, fault) = match self {
            Operator::In | Operator::NotIn => {
                (count > 0, "for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                (count == 1, "exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist => {
                (count == 0, "values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan => {
                (count == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
            }
        };
        (!good).then_some(fault)
    }
}

pub fn invalid_key(key: &str, path: &Path<'_>) -> Option<field::Error> {
    let faults = names::qualified_name(key);
    (!faults.is_empty()).then(|| field::Error::invalid(path, key, faults.join("; ")))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operator == Operator::DoesNotExist {
            f.write_str("!")?;
        }
        f.write_str(&self.key)?;
        let (open, close) = match self.operator {
            Operator::Exists | Operator::DoesNotExist => return Ok(()),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
        };
        f.write_str(open)?;
        match self.values.as_slice() {
            [value] => f.write_str(value)?,
            values if values.is_sorted() => f.write_str(&values.join(","))?,
            values => {
                let mut values = values.to_vec();
                values.sort();
                f.write_str(&values.join(","))?;
            }
        }
        f.write_str(close)
    }
}
