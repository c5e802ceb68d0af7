//! Scalars as JSON writes them: one canonical spelling each.
use super::base64;
use crate::duration::Duration;
use crate::quote::json_type;
use crate::schema::Scalar;
use crate::{quantity, time};
use serde_json::{Number, Value};

/// What was found in a scalar's place.
pub(super) enum Input<'a> {
    Bool(bool),
    Integer(i64),
    /// A number as it is spelled, that is no `i64`.
    Number(&'a str),
    Text(&'a str),
    /// A list, with its elements where the scalar is [`Scalar::Bytes`].
    List(&'a [Value]),
    Object,
}

impl Input<'_> {
    pub fn found(&self) -> &'static str {
        match self {
            Input::Bool(_) => "bool",
            Input::Integer(_) | Input::Number(_) => "number",
            Input::Text(_) => "string",
            Input::List(_) => "array",
            Input::Object => "object",
        }
    }

    /// As [`Input::found`], with the number where there is one.
    fn found_number(&self) -> String {
        match self {
            Input::Integer(value) => format!("number {value}"),
            Input::Number(text) => format!("number {text}"),
            other => other.found().to_owned(),
        }
    }
}

/// Why the input is not taken for the scalar.
pub(super) enum Refusal {
    /// Go decodes the rest and says so at the end.
    WrongType(String),
    /// The same, of the right type with the wrong content.
    Corrupt(String),
    /// Go's type decodes itself, through another type; an error ends the decoding.
    FatalType {
        found: String,
        wanted: &'static str,
    },
    Fatal(String),
}

pub(super) fn read(kind: Scalar, input: Input<'_>) -> Result<Value, Refusal> {
    match (kind, &input) {
        (Scalar::RawExtension | Scalar::FieldsV1 | Scalar::Json, _) => any(input),
        (Scalar::Bool, Input::Bool(value)) => Ok((*value).into()),
        (Scalar::String | Scalar::IntOrString, Input::Text(text)) => Ok((*text).into()),
        (Scalar::Int64, Input::Integer(value)) => Ok((*value).into()),
        (Scalar::Int32 | Scalar::IntOrString, Input::Integer(value))
            if i32::try_from(*value).is_ok() =>
        {
            Ok((*value).into())
        }
        (Scalar::Double | Scalar::Number, Input::Integer(value)) => Ok((*value).into()),
        (Scalar::Double | Scalar::Number, Input::Number(text)) => {
            float(text).ok_or_else(|| Refusal::WrongType(input.found_number()))
        }
        (Scalar::Int32 | Scalar::Int64, Input::Integer(_) | Input::Number(_)) => {
            Err(Refusal::WrongType(input.found_number()))
        }
        (Scalar::IntOrString, _) => {
            Err(Refusal::FatalType { found: input.found_number(), wanted: "int32" })
        }
        (Scalar::Bytes, Input::Text(text)) => bytes(text)
            .map(|bytes| base64::encode(&bytes).into())
            .map_err(|error| Refusal::Corrupt(error.to_string())),
        (Scalar::Bytes, Input::List(elements)) => byte_list(elements),
        (Scalar::Quantity, Input::Text(text) | Input::Number(text)) => canonical_quantity(text),
        (Scalar::Quantity, Input::Integer(value)) => canonical_quantity(&value.to_string()),
        // Its own decoder takes any JSON for the quantity's text.
        (Scalar::Quantity, _) => canonical_quantity("{}"),
        (Scalar::Time, Input::Text(text)) => {
            let (seconds, nanos) = time::parse(text).map_err(fatal)?;
            Ok(time_value(seconds, nanos))
        }
        (Scalar::MicroTime, Input::Text(text)) => {
            let (seconds, nanos) = time::parse_micro(text).map_err(fatal)?;
            Ok(micro_time_value(seconds, nanos))
        }
        (Scalar::Duration, Input::Text(text)) => {
            Ok(Duration::parse(text).map_err(fatal)?.to_string().into())
        }
        (Scalar::Time | Scalar::MicroTime | Scalar::Duration, _) => {
            Err(Refusal::FatalType { found: input.found().to_owned(), wanted: "string" })
        }
        _ => Err(Refusal::WrongType(input.found().to_owned())),
    }
}

/// Where anything goes: as it is.
pub(super) fn any(input: Input<'_>) -> Result<Value, Refusal> {
    Ok(match input {
        Input::Bool(value) => value.into(),
        Input::Integer(value) => value.into(),
        Input::Number(text) => {
            float(text).ok_or_else(|| Refusal::WrongType(input.found_number()))?
        }
        Input::Text(text) => text.into(),
        Input::List(elements) => elements.into(),
        Input::Object => Value::Null,
    })
}

/// Whether the scalar is JSON that the schema does not look into.
pub(super) fn is_raw(kind: Scalar) -> bool {
    matches!(kind, Scalar::RawExtension | Scalar::FieldsV1 | Scalar::Json)
}

/// The zero time is written as null.
pub(super) fn time_value(seconds: i64, nanos: i32) -> Value {
    if (seconds, nanos) == (time::ZERO_SECS, 0) {
        Value::Null
    } else {
        time::format(seconds).into()
    }
}

pub(super) fn micro_time_value(seconds: i64, nanos: i32) -> Value {
    if (seconds, nanos) == (time::ZERO_SECS, 0) {
        Value::Null
    } else {
        time::format_micro(seconds, nanos).into()
    }
}

fn float(text: &str) -> Option<Value> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(number)
}

/// A float as Go writes it: without a fraction where it has none.
pub(super) fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        (value as i64).into()
    } else {
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }
}

pub(super) fn bytes(text: &str) -> Result<Vec<u8>, base64::CorruptInput> {
    base64::decode(text.as_bytes())
}

/// Go takes a list of numbers for bytes too.
fn byte_list(elements: &[Value]) -> Result<Value, Refusal> {
    let byte = |element: &Value| match element {
        Value::Null => Ok(0),
        Value::Number(n) => n
            .as_u64()
            .and_then(|n| u8::try_from(n).ok())
            .ok_or_else(|| Refusal::FatalType { found: format!("number {n}"), wanted: "uint8" }),
        other => Err(Refusal::FatalType { found: json_type(other).to_owned(), wanted: "uint8" }),
    };
    let bytes = elements.iter().map(byte).collect::<Result<Vec<u8>, _>>()?;
    Ok(base64::encode(&bytes).into())
}

fn canonical_quantity(text: &str) -> Result<Value, Refusal> {
    quantity::canonicalize(text.trim()).map(Value::from).map_err(fatal)
}

fn fatal(error: impl std::error::Error) -> Refusal {
    Refusal::Fatal(error.to_string())
}
