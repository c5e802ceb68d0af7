//! What is wrong with one field.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Write};

use super::{BadValue, Path};
use crate::quote::quoted_list;

/// One fault of one field. Its text is `path: type[: value][: detail]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub error_type: ErrorType,
    pub field: String,
    pub bad_value: BadValue,
    pub detail: Cow<'static, str>,
    /// The rule is declared with the type, in upstream's words: those come after all others.
    pub declared: bool,
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

impl Error {
    fn new(
        error_type: ErrorType,
        field: &Path<'_>,
        bad_value: BadValue,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (field, detail) = (field.to_string(), detail.into());
        Error { error_type, field, bad_value, detail, declared: false }
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
        if let Some(value) = self.bad_value.text() {
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
