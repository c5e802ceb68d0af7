//! The value that is wrong, as its message shows it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use crate::quote::{Quoted, go_json};

/// A value as it appears in a message: a string in Go's quotes, anything else as JSON.
///
/// It is rendered when the error is made, as nothing but the message ever needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue(Option<String>);

impl BadValue {
    /// The message shows no value.
    pub const OMITTED: BadValue = BadValue(None);

    /// Go's nil: an optional value that is not there.
    pub fn null() -> Self {
        BadValue(Some("null".to_owned()))
    }

    /// Any structured value, as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        BadValue(Some(go_json(value).unwrap_or_else(|error| format!("<{error}>"))))
    }

    /// What the message shows, if anything.
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Text shown as it is, for a value whose Go form is neither a string nor JSON.
    pub fn verbatim(text: impl Into<String>) -> Self {
        BadValue(Some(text.into()))
    }
}

impl From<&str> for BadValue {
    fn from(value: &str) -> Self {
        BadValue(Some(Quoted(value).to_string()))
    }
}

impl From<&String> for BadValue {
    fn from(value: &String) -> Self {
        value.as_str().into()
    }
}

impl From<String> for BadValue {
    fn from(value: String) -> Self {
        value.as_str().into()
    }
}

impl From<&serde_json::Value> for BadValue {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::String(text) => text.as_str().into(),
            serde_json::Value::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() => float.into(),
                _ => BadValue(Some(number.to_string())),
            },
            other => BadValue::json(other),
        }
    }
}

impl From<&IntOrString> for BadValue {
    fn from(value: &IntOrString) -> Self {
        BadValue::json(value)
    }
}

impl<T: Into<BadValue>> From<Option<T>> for BadValue {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(BadValue::null, Into::into)
    }
}

impl From<f64> for BadValue {
    /// Go's `%v`: the shortest digits that read back the same, with an exponent when it is below
    /// -4 or from 6 on.
    fn from(value: f64) -> Self {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let text = match exponent.parse::<i32>() {
            Ok(exponent) if value.is_finite() && !(-4..6).contains(&exponent) => {
                let sign = if exponent < 0 { '-' } else { '+' };
                format!("{digits}e{sign}{:02}", exponent.abs())
            }
            _ if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
            _ => value.to_string(),
        };
        BadValue(Some(text))
    }
}

macro_rules! printed_plainly {
    ($($type:ty)*) => {$(
        impl From<$type> for BadValue {
            fn from(value: $type) -> Self {
                BadValue(Some(value.to_string()))
            }
        }
    )*};
}

printed_plainly!(bool i32 i64 u16 u32 u64 usize);
