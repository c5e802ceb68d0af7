//! Values that are a number or a text: a port by number or name, a count or a percentage.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::atoi::{AtoiError, atoi};
use crate::quote::Quoted;

/// Why a value is neither a count nor a percentage; the words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("nil value for IntOrString")]
    Nil,
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NotPercentage,
    #[error("invalid value for IntOrString: invalid value {}: {source}", Quoted(.value))]
    Value { value: String, source: AtoiError },
}

/// The direction in which a share of a total is rounded to a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// A count as it is, or a percentage (`25%`) as its share of `total`.
pub fn scaled_value(value: Option<&IntOrString>, total: i64, round: Round) -> Result<i64, Error> {
    let text = match value.ok_or(Error::Nil)? {
        IntOrString::Int(count) => return Ok(i64::from(*count)),
        IntOrString::String(text) => text,
    };
    let percent = text.strip_suffix('%').ok_or(Error::NotPercentage)?;
    let percent = atoi(percent).map_err(|source| Error::Value { value: text.clone(), source })?;
    // In floating point, as upstream has it: a whole share may come out a hair above or below.
    let share = percent as f64 * total as f64 / 100.0;
    Ok(match round {
        Round::Up => share.ceil(),
        Round::Down => share.floor(),
    } as i64)
}

/// The number in `25%`, if this is a percentage.
pub fn percentage(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::Int(_) => None,
        IntOrString::String(text) => atoi(text.strip_suffix('%')?).ok(),
    }
}

/// The number, or the number the text spells; 0 if it spells none.
pub fn int_value(value: &IntOrString) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => atoi(text).unwrap_or(0),
    }
}

/// A number if the text spells one that fits, else the text: how command lines are read.
pub fn parse(text: &str) -> IntOrString {
    match text.parse() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::String(text.to_owned()),
    }
}

/// The value as text, without quotes.
pub fn to_string(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, total: i64, round: Round, want: &str) {
        let got = match scaled_value(Some(&parse(text)), total, round) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want, "{text} of {total}");
    }

    #[test]
    fn percentages_are_shares_of_the_total() {
        check("123", 100, Round::Up, "123");
        check("90%", 100, Round::Up, "90");
        check("90%", 95, Round::Up, "86");
        check("90%", 95, Round::Down, "85");
        check("-5%", 10, Round::Up, "0");
        check("25%", 1, Round::Down, "0");
    }

    #[test]
    fn what_is_neither_is_refused_in_upstreams_words() {
        let check = |text, want| check(text, 10, Round::Up, want);
        check("abc", "invalid value for IntOrString: invalid type: string is not a percentage");
        check(
            "%",
            "invalid value for IntOrString: invalid value \"%\": strconv.Atoi: parsing \"\": invalid syntax",
        );
        check(
            "1.5%",
            "invalid value for IntOrString: invalid value \"1.5%\": strconv.Atoi: parsing \"1.5\": invalid syntax",
        );
        check(
            "99999999999999999999%",
            "invalid value for IntOrString: invalid value \"99999999999999999999%\": strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        );
        assert_eq!(scaled_value(None, 1, Round::Up), Err(Error::Nil));
    }

    #[test]
    fn texts_may_spell_numbers() {
        assert_eq!(int_value(&parse("80")), 80);
        assert_eq!(int_value(&IntOrString::String("81".into())), 81);
        assert_eq!(int_value(&parse("http")), 0);
        assert_eq!(percentage(&parse("30%")), Some(30));
        assert_eq!((percentage(&parse("30")), to_string(&parse("x"))), (None, "x".into()));
    }
}
