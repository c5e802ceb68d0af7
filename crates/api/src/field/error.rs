//! What is wrong with one field.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Write};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::Path;
use crate::quote::{Quoted, go_json, quoted_list};

/// One fault of one field. Its text is `path: type[: value][: detail]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub error_type: ErrorType,
    pub field: String,
    pub bad_value: BadValue,
    pub detail: Cow<'static, str>,
}

pub type ErrorList = Vec<Error>;

/// The class of a fault; [`ErrorType::cause`] is its name in `Status.details.causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    TypeInvalid,
    Internal,
}

/// A value as it appears in a message: a string in Go's quotes, anything else as JSON.
///
/// It is rendered when the error is made, as nothing but the message ever needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue(Option<String>);

impl Error {
    fn new(
        error_type: ErrorType,
        field: &Path<'_>,
        bad_value: BadValue,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Error { error_type, field: field.to_string(), bad_value, detail: detail.into() }
    }

    /// A value that must be given was not; `detail` may be empty.
    pub fn required(field: &Path<'_>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorType::Required, field, BadValue::OMITTED, detail)
    }

    /// A malformed value.
    pub fn invalid(
        field: &Path<'_>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorType::Invalid, field, value.into(), detail)
    }

    /// A value of the wrong type for the schema.
    pub fn type_invalid(
        field: &Path<'_>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorType::TypeInvalid, field, value.into(), detail)
    }

    /// A value outside an enumeration; `supported` is printed in the order given.
    pub fn not_supported<S: AsRef<str>>(
        field: &Path<'_>,
        value: impl Into<BadValue>,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let list = quoted_list(supported);
        let detail = if list.is_empty() { list } else { format!("supported values: {list}") };
        Self::new(ErrorType::NotSupported, field, value.into(), detail)
    }

    /// A second occurrence of a value that must be unique.
    pub fn duplicate(field: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::Duplicate, field, value.into(), "")
    }

    /// A well-formed value that is not permitted here or now.
    pub fn forbidden(field: &Path<'_>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorType::Forbidden, field, BadValue::OMITTED, detail)
    }

    /// A reference to something that does not exist.
    pub fn not_found(field: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::NotFound, field, value.into(), "")
    }

    /// More than `max` bytes. The value itself is left out of the message.
    pub fn too_long(field: &Path<'_>, max: usize) -> Self {
        let detail = format!("may not be more than {max} {}", plural(max, "byte"));
        Self::new(ErrorType::TooLong, field, BadValue::OMITTED, detail)
    }

    /// More than `max` characters. The value itself is left out of the message.
    pub fn too_long_characters(field: &Path<'_>, max: usize) -> Self {
        let detail = format!("may not be more than {max} {}", plural(max, "character"));
        Self::new(ErrorType::TooLong, field, BadValue::OMITTED, detail)
    }

    /// Too long, where naming the limit would not help.
    pub fn too_long_unspecified(field: &Path<'_>) -> Self {
        Self::new(ErrorType::TooLong, field, BadValue::OMITTED, "value is too long")
    }

    /// Fewer than `min` characters.
    pub fn too_short(field: &Path<'_>, min: usize) -> Self {
        let detail = format!("must be at least {min} {}", plural(min, "character"));
        Self::new(ErrorType::TooShort, field, BadValue::OMITTED, detail)
    }

    /// A list longer than `max`; `actual` may be unknown.
    pub fn too_many(field: &Path<'_>, actual: Option<usize>, max: usize) -> Self {
        let actual = actual.map_or(BadValue::OMITTED, BadValue::from);
        let detail = format!("must have at most {max} {}", plural(max, "item"));
        Self::new(ErrorType::TooMany, field, actual, detail)
    }

    /// A list shorter than `min`.
    pub fn too_few(field: &Path<'_>, actual: usize, min: usize) -> Self {
        let detail = format!("must have at least {min} {}", plural(min, "item"));
        Self::new(ErrorType::TooFew, field, actual.into(), detail)
    }

    /// A fault of ours rather than of the input.
    pub fn internal(field: &Path<'_>, error: impl fmt::Display) -> Self {
        Self::new(ErrorType::Internal, field, BadValue::OMITTED, error.to_string())
    }

    /// The message without the path: what `Status` gives as the message of a cause.
    pub fn body(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_body(&mut out);
        out
    }

    fn write_body(&self, out: &mut impl Write) -> fmt::Result {
        out.write_str(self.error_type.text())?;
        if let Some(value) = self.bad_value.0.as_deref() {
            write!(out, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(out, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.field)?;
        self.write_body(f)
    }
}

impl std::error::Error for Error {}

/// Several errors in one text: `a`, or `[a, b]`. Repetitions are left out.
pub fn aggregate(errors: &[Error]) -> Option<String> {
    let mut seen = HashSet::new();
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    match texts.len() {
        0 => None,
        1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

impl ErrorType {
    /// The words that open the message.
    pub const fn text(self) -> &'static str {
        self.row().0
    }

    /// The machine-readable name in a `Status`.
    pub const fn cause(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            ErrorType::NotFound => ("Not found", "FieldValueNotFound"),
            ErrorType::Required => ("Required value", "FieldValueRequired"),
            ErrorType::Duplicate => ("Duplicate value", "FieldValueDuplicate"),
            ErrorType::Invalid => ("Invalid value", "FieldValueInvalid"),
            ErrorType::NotSupported => ("Unsupported value", "FieldValueNotSupported"),
            ErrorType::Forbidden => ("Forbidden", "FieldValueForbidden"),
            ErrorType::TooLong => ("Too long", "FieldValueTooLong"),
            ErrorType::TooShort => ("Too short", "FieldValueTooShort"),
            ErrorType::TooMany => ("Too many", "FieldValueTooMany"),
            ErrorType::TooFew => ("Too few", "FieldValueTooFew"),
            ErrorType::TypeInvalid => ("Invalid value", "FieldValueTypeInvalid"),
            ErrorType::Internal => ("Internal error", "InternalError"),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(error: Error, want: Expect) {
        want.assert_eq(&error.to_string());
    }

    #[test]
    fn messages_name_the_path_the_fault_the_value_and_the_detail() {
        let spec = Path::new("spec");
        let p = spec.child("x");
        check(Error::required(&p, ""), expect!["spec.x: Required value"]);
        check(
            Error::required(&p, "name or generateName is required"),
            expect!["spec.x: Required value: name or generateName is required"],
        );
        check(
            Error::invalid(&p, "a\"b", "must be nice"),
            expect![[r#"spec.x: Invalid value: "a\"b": must be nice"#]],
        );
        check(
            Error::invalid(&p, -1, "must be positive"),
            expect!["spec.x: Invalid value: -1: must be positive"],
        );
        check(Error::invalid(&p, true, ""), expect!["spec.x: Invalid value: true"]);
        check(Error::invalid(&p, None::<i32>, "x"), expect!["spec.x: Invalid value: null: x"]);
        check(
            Error::invalid(&p, BadValue::json(&json!({"a": "<b>"})), "x"),
            expect![[r#"spec.x: Invalid value: {"a":"\u003cb\u003e"}: x"#]],
        );
        check(
            Error::type_invalid(&p, &json!([1]), "must be a string"),
            expect!["spec.x: Invalid value: [1]: must be a string"],
        );
        check(
            Error::not_supported(&p, "C", ["A", "B"]),
            expect![[r#"spec.x: Unsupported value: "C": supported values: "A", "B""#]],
        );
        check(
            Error::not_supported(&p, "C", [""; 0]),
            expect![[r#"spec.x: Unsupported value: "C""#]],
        );
        check(Error::duplicate(&p, "d"), expect![[r#"spec.x: Duplicate value: "d""#]]);
        check(
            Error::forbidden(&p, "may not be changed"),
            expect!["spec.x: Forbidden: may not be changed"],
        );
        check(Error::not_found(&p, "n"), expect![[r#"spec.x: Not found: "n""#]]);
        check(Error::too_long(&p, 63), expect!["spec.x: Too long: may not be more than 63 bytes"]);
        check(Error::too_long(&p, 1), expect!["spec.x: Too long: may not be more than 1 byte"]);
        check(Error::too_short(&p, 1), expect!["spec.x: Too short: must be at least 1 character"]);
        check(
            Error::too_many(&p, Some(9), 8),
            expect!["spec.x: Too many: 9: must have at most 8 items"],
        );
        check(Error::too_many(&p, None, 1), expect!["spec.x: Too many: must have at most 1 item"]);
        check(Error::too_few(&p, 0, 1), expect!["spec.x: Too few: 0: must have at least 1 item"]);
        check(Error::internal(&p, "boom"), expect!["spec.x: Internal error: boom"]);
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        for (value, want) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (123456.5, "123456.5"),
            (1e6, "1e+06"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(BadValue::from(value), BadValue(Some(want.to_owned())));
        }
    }

    #[test]
    fn one_error_stands_alone_and_repetitions_are_dropped() {
        let p = Path::new("a");
        let first = Error::required(&p, "");
        let second = Error::duplicate(&p, "x");
        assert_eq!(aggregate(&[]), None);
        assert_eq!(aggregate(&[first.clone(), first.clone()]).unwrap(), "a: Required value");
        assert_eq!(
            aggregate(&[first.clone(), second, first]).unwrap(),
            r#"[a: Required value, a: Duplicate value: "x"]"#
        );
    }
}
