//! The shapes that upstream describes with regular expressions, as plain loops over bytes; and
//! the sentences that describe a mismatch.

/// `first ((middle)* last)?`
pub fn bounded(
    value: &[u8],
    first: impl Fn(u8) -> bool,
    middle: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
) -> bool {
    match value {
        [] => false,
        [only] => first(*only),
        [start, inner @ .., end] => first(*start) && inner.iter().all(|b| middle(*b)) && last(*end),
    }
}

/// One or more of these.
pub fn all(value: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !value.is_empty() && value.bytes().all(allowed)
}

pub fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

pub fn alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

/// The message of a failed match, with the expression as upstream would have used it.
pub fn regex_fault(message: &str, expression: &str, examples: &[&str]) -> String {
    let mut out = format!("{message} (");
    for (i, example) in examples.iter().enumerate() {
        out.push_str(if i == 0 { "e.g. '" } else { " or '" });
        out.push_str(example);
        out.push_str("', ");
    }
    out.push_str("regex used for validation is '");
    out.push_str(expression);
    out.push_str("')");
    out
}

pub fn max_length(length: usize) -> String {
    format!("must be no more than {length} characters")
}

/// The newer wording, for labels.
pub fn max_bytes(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

pub fn inclusive_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}
