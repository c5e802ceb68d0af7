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
        if quantity.format == Format::BinarySI {
            match binary(quantity) {
                Binary::Small(number, times) => return write!(f, "{number}{}", BINARY[times]),
                Binary::Large(number, times) => return write!(f, "{number}{}", BINARY[times]),
                Binary::Unfit => {}
            }
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
    // An exponent is read back into 32 bits.
    let written = exponent.min(i64::from(i32::MAX));
    let written = written - written.rem_euclid(3);
    f.write_fmt(number)?;
    for _ in written..exponent {
        f.write_str("0")?;
    }
    let exponent = written;
    match DECIMAL.iter().find(|(_, power)| i64::from(*power) == exponent) {
        _ if exponent == 0 => Ok(()),
        Some((suffix, _)) if !exponential => f.write_str(suffix),
        _ => write!(f, "e{exponent}"),
    }
}

/// A number and how many factors of 1024 belong beside it.
enum Binary {
    Small(i64, usize),
    Large(String, usize),
    /// The binary style would lose something or gain nothing.
    Unfit,
}

fn binary(quantity: &Quantity) -> Binary {
    match &quantity.amount {
        Amount::Int { value: -1023..=1023, scale: 0 } => Binary::Unfit,
        Amount::Int { value, scale: 0 } => {
            let (mut number, mut times) = (*value, 0);
            while number % 1024 == 0 && times + 1 < BINARY.len() {
                number /= 1024;
                times += 1;
            }
            Binary::Small(number, times)
        }
        Amount::Int { value, scale } => large_binary(Decimal::new(*value, scale.saturating_neg())),
        Amount::Dec(value) => large_binary((**value).clone()),
    }
}

fn large_binary(value: Decimal) -> Binary {
    let Some(mut number) = value.clone().rounded(0).filter(|rounded| *rounded == value) else {
        return Binary::Unfit;
    };
    if matches!(number.exact_i64(), Some(-1023..=1023)) {
        return Binary::Unfit;
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
    Binary::Large(format!("{sign}{}", number.digits()), times)
}
