//! Printing a quantity.
//!
//! The canonical form has no fraction and the largest suffix that avoids one. A binary quantity
//! below 1Ki, or with a fraction, is printed in the decimal style so that nothing is lost.

use std::fmt;

use super::decimal::Decimal;
use super::suffix::{BINARY, DECIMAL};
use super::{Amount, Format, Quantity};

pub struct Canonical<'a>(pub &'a Quantity);

impl fmt::Display for Canonical<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantity = self.0;
        if quantity.is_zero() {
            return f.write_str("0");
        }
        if quantity.format == Format::BinarySI
            && let Some((number, times)) = binary(quantity)
        {
            return write!(f, "{number}{}", BINARY[times]);
        }
        let exponential = quantity.format == Format::DecimalExponent;
        match &quantity.amount {
            Amount::Int { value, scale } => {
                let (mut number, mut exponent) = (*value, i64::from(*scale));
                while number % 10 == 0 {
                    number /= 10;
                    exponent += 1;
                }
                decimal(f, format_args!("{number}"), exponent, exponential)
            }
            Amount::Dec(value) => {
                let digits = value.digits();
                let number = digits.trim_end_matches('0');
                let exponent = (digits.len() - number.len()) as i64 - i64::from(value.scale());
                let sign = if value.is_negative() { "-" } else { "" };
                decimal(f, format_args!("{sign}{number}"), exponent, exponential)
            }
        }
    }
}

/// `number · 10^exponent`, the exponent brought down to a multiple of three by adding zeros.
fn decimal(
    f: &mut fmt::Formatter<'_>,
    number: fmt::Arguments<'_>,
    exponent: i64,
    exponential: bool,
) -> fmt::Result {
    let zeros = exponent.rem_euclid(3);
    let exponent = exponent - zeros;
    f.write_fmt(number)?;
    f.write_str(&"00"[..zeros as usize])?;
    match DECIMAL.iter().find(|(_, power)| i64::from(*power) == exponent) {
        _ if exponent == 0 => Ok(()),
        Some((suffix, _)) if !exponential => f.write_str(suffix),
        _ => write!(f, "e{exponent}"),
    }
}

/// The number and how many factors of 1024 belong beside it; `None` if the binary style would
/// lose something or gain nothing.
fn binary(quantity: &Quantity) -> Option<(String, usize)> {
    match &quantity.amount {
        Amount::Int { value, scale: 0 } => {
            if (-1023..=1023).contains(value) {
                return None;
            }
            let mut times = 0;
            let mut number = *value;
            while number % 1024 == 0 && times + 1 < BINARY.len() {
                number /= 1024;
                times += 1;
            }
            Some((number.to_string(), times))
        }
        Amount::Int { value, scale } => big_binary(Decimal::new(*value, -scale)),
        Amount::Dec(value) => big_binary((**value).clone()),
    }
}

fn big_binary(value: Decimal) -> Option<(String, usize)> {
    let mut number = value.clone().rounded(0)?;
    if number != value || matches!(number.exact_i64(), Some(-1023..=1023)) {
        return None;
    }
    let mut times = 0;
    while times + 1 < BINARY.len() {
        let mut shorter = number.clone();
        if shorter.divide_magnitude(1024) != 0 {
            break;
        }
        number = shorter;
        times += 1;
    }
    let sign = if number.is_negative() { "-" } else { "" };
    Some((format!("{sign}{}", number.digits()), times))
}
