//! Amounts of CPU, memory and everything else: `500m`, `1.5Gi`, `12e6`.
//!
//! A [`Quantity`] is an exact decimal number and the style in which its owner wrote it. Nearly all
//! are a 64-bit integer and a power of ten, and never allocate; the rest are a decimal of any
//! length. Parsing, the canonical form, rounding and the behaviour at the limits are those of
//! upstream's `k8s.io/apimachinery/pkg/api/resource`, with three deliberate differences at its
//! far end: a value beyond every suffix (`1000E`) is printed with an exponent, where upstream
//! drops the factor and prints `1`; the lowest 64-bit integer can be negated; and sums whose
//! exact form would take more than 65,536 zeros keep the larger number, where upstream runs out
//! of memory.

mod arithmetic;
mod canonical;
mod decimal;
mod parse;
mod suffix;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use decimal::Decimal;
pub use parse::canonicalize;
pub(crate) use parse::{Held, held};

/// A power of ten, for [`Quantity::scaled_value`] and its kin.
pub type Scale = i32;
pub const NANO: Scale = -9;
pub const MICRO: Scale = -6;
pub const MILLI: Scale = -3;
pub const KILO: Scale = 3;
pub const MEGA: Scale = 6;
pub const GIGA: Scale = 9;
pub const TERA: Scale = 12;
pub const PETA: Scale = 15;
pub const EXA: Scale = 18;

/// An amount and the style it is printed in.
///
/// Two quantities are equal if their amounts are; the style does not count.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The text to print, where parsing kept a spelling that is not the canonical one.
    text: Option<Box<str>>,
}

#[derive(Clone, Debug)]
enum Amount {
    /// `value · 10^scale`.
    Int {
        value: i64,
        scale: i32,
    },
    Dec(Box<Decimal>),
}

/// The three styles of writing a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi` = 12 · 2²⁰
    BinarySI,
    /// `12M` = 12 · 10⁶
    #[default]
    DecimalSI,
}

/// Why a text is no quantity; the words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity::new(0, Format::DecimalSI);

    pub const fn new(value: i64, format: Format) -> Self {
        Quantity { amount: Amount::Int { value, scale: 0 }, format, text: None }
    }

    /// `value` thousandths.
    pub const fn milli(value: i64, format: Format) -> Self {
        Quantity { amount: Amount::Int { value, scale: MILLI }, format, text: None }
    }

    /// `value · 10^scale`.
    pub const fn scaled(value: i64, scale: Scale) -> Self {
        Quantity { amount: Amount::Int { value, scale }, format: Format::DecimalSI, text: None }
    }

    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let parse::Parsed { amount, format, spelling } = parse::parse(text)?;
        let text = matches!(spelling, parse::Spelling::Keep).then(|| text.into());
        Ok(Quantity { amount, format, text })
    }

    pub const fn format(&self) -> Format {
        self.format
    }

    /// Changes the style, not the amount.
    pub fn set_format(&mut self, format: Format) {
        self.format = format;
        self.text = None;
    }

    pub fn is_zero(&self) -> bool {
        self.sign().is_eq()
    }

    /// How the amount compares with zero.
    pub fn sign(&self) -> Ordering {
        match &self.amount {
            Amount::Int { value, .. } => value.cmp(&0),
            Amount::Dec(decimal) => decimal.sign(),
        }
    }

    pub fn is_negative(&self) -> bool {
        self.sign().is_lt()
    }

    /// The amount in the canonical form, even if it was parsed from a spelling that is kept.
    fn canonical(&self) -> canonical::Canonical<'_> {
        canonical::Canonical(self)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity::ZERO
    }
}

/// The canonical form: no fraction, the largest suffix that avoids one.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => self.canonical().fmt(f),
        }
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Quantity::parse(text)
    }
}

impl TryFrom<&Text> for Quantity {
    type Error = ParseError;

    fn try_from(text: &Text) -> Result<Self, ParseError> {
        Quantity::parse(text.0.trim())
    }
}

impl From<&Quantity> for Text {
    fn from(quantity: &Quantity) -> Self {
        Text(quantity.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Clients also send plain numbers, and blanks around the text.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text.trim()).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::new(value, Format::DecimalSI))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                self.visit_str(&value.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
