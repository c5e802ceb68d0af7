//! Scalars as JSON writes them: one canonical spelling each.
use crate::duration::Duration;
use crate::schema::Scalar;
use crate::{quantity, time};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Number, Value};

/// `Ok(None)`: the scalar is never written that way. `Err`: it is, but not with this content.
type Read = Result<Option<Value>, String>;

pub(super) fn from_integer(kind: Scalar, value: i64) -> Read {
    Ok(Some(match kind {
        Scalar::Int64 | Scalar::Double | Scalar::Number => value.into(),
        Scalar::Int32 if i32::try_from(value).is_ok() => value.into(),
        Scalar::IntOrString => match i32::try_from(value) {
            Ok(value) => value.into(),
            Err(_) => {
                return Err(format!(
                    "json: cannot unmarshal number {value} into Go value of type int32"
                ));
            }
        },
        Scalar::Quantity => return canonical_quantity(&value.to_string()),
        Scalar::Time | Scalar::MicroTime | Scalar::Duration => return Err(not_a_string()),
        _ => return Ok(None),
    }))
}

pub(super) fn from_float(kind: Scalar, value: f64) -> Read {
    Ok(Some(match kind {
        Scalar::Double | Scalar::Number => number(value),
        Scalar::IntOrString => {
            return Err(format!(
                "json: cannot unmarshal number {value} into Go value of type int32"
            ));
        }
        Scalar::Quantity => return canonical_quantity(&value.to_string()),
        Scalar::Time | Scalar::MicroTime | Scalar::Duration => return Err(not_a_string()),
        _ => return Ok(None),
    }))
}

pub(super) fn from_text(kind: Scalar, text: &str) -> Read {
    Ok(Some(match kind {
        Scalar::String | Scalar::IntOrString => text.into(),
        Scalar::Bytes => BASE64.encode(bytes(text)?).into(),
        Scalar::Quantity => return canonical_quantity(text),
        Scalar::Time => {
            let (seconds, _) = time::parse(text).map_err(|e| e.to_string())?;
            time::format(seconds).into()
        }
        Scalar::MicroTime => {
            let (seconds, nanos) = time::parse_micro(text).map_err(|e| e.to_string())?;
            time::format_micro(seconds, nanos).into()
        }
        Scalar::Duration => Duration::parse(text).map_err(|e| e.to_string())?.to_string().into(),
        _ => return Ok(None),
    }))
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

/// Base64 as Go reads it: line breaks inside are ignored.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let decode = |text: &[u8]| BASE64.decode(text);
    let result = if text.bytes().any(|b| b == b'\n' || b == b'\r') {
        let joined: Vec<u8> = text.bytes().filter(|b| *b != b'\n' && *b != b'\r').collect();
        decode(&joined)
    } else {
        decode(text.as_bytes())
    };
    result.map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(at) => at,
            base64::DecodeError::InvalidPadding => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })
}

fn canonical_quantity(text: &str) -> Read {
    quantity::canonicalize(text).map(|text| Some(text.into())).map_err(|e| e.to_string())
}

fn not_a_string() -> String {
    "json: cannot unmarshal number into Go value of type string".to_owned()
}
