//! Reading a quantity.

use std::borrow::Cow;

use super::decimal::Decimal;
use super::suffix::{Factor, interpret};
use super::{Amount, Format, NANO, ParseError, Quantity};

/// The canonical text of a quantity, borrowed from the input where that is canonical already.
/// This is what decoding and encoding an object does to each of its quantities.
pub fn canonicalize(text: &str) -> Result<Cow<'_, str>, ParseError> {
    let text = text.trim();
    let Parsed { amount, format, spelling } = parse(text)?;
    Ok(match spelling {
        Spelling::Recompute => {
            Cow::Owned(Quantity { amount, format, text: None }.canonical().to_string())
        }
        Spelling::Keep | Spelling::Canonical => Cow::Borrowed(text),
    })
}

pub struct Parsed {
    pub amount: Amount,
    pub format: Format,
    pub spelling: Spelling,
}

/// What becomes of the text as the client wrote it.
pub enum Spelling {
    /// The canonical form must be worked out.
    Recompute,
    /// It is printed as it came, although it is not the canonical form (`+1`, `1.123`, `1E3`):
    /// upstream's short cut for "already canonical" lets these pass.
    Keep,
    /// It is the canonical form.
    Canonical,
}

pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    match text {
        "" => return Err(ParseError::Format),
        "0" => {
            let amount = Amount::Int { value: 0, scale: 0 };
            let spelling = Spelling::Canonical;
            return Ok(Parsed { amount, format: Format::DecimalSI, spelling });
        }
        _ => {}
    }
    let parts = split(text)?;
    let (factor, format) = interpret(parts.suffix).ok_or(ParseError::Suffix)?;
    match small(&parts, factor) {
        Some((amount, digits)) => {
            let spelling = spelling(&parts, &amount, digits, format);
            Ok(Parsed { amount, format, spelling })
        }
        None => large(&parts, factor, format),
    }
}

struct Parts<'a> {
    negative: bool,
    plus: bool,
    /// Sign, digits and point, as written.
    value: &'a str,
    leading_zeros: bool,
    /// The digits before the point, without leading zeros, but at least one.
    whole: &'a str,
    point: bool,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_end = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (written, mut rest) = unsigned.split_at(number_end(unsigned));
    let stripped = written.trim_start_matches('0');
    let (mut point, mut fraction) = (false, "");
    if let Some(after) = rest.strip_prefix('.') {
        point = true;
        (fraction, rest) = after.split_at(number_end(after));
    }
    if !is_suffix_shaped(rest) {
        return Err(ParseError::Format);
    }
    Ok(Parts {
        negative: text.starts_with('-'),
        plus: text.starts_with('+'),
        value: &text[..text.len() - rest.len()],
        leading_zeros: stripped.len() < written.len(),
        whole: if stripped.is_empty() { "0" } else { stripped },
        point,
        fraction,
        suffix: rest,
    })
}

/// Letters of some suffix, a sign, digits: each may be missing.
fn is_suffix_shaped(text: &str) -> bool {
    let rest = text.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

/// The value in 64 bits, and its digits before the suffix is applied. The limits are upstream's,
/// as they decide which of its two representations, with their own overflow, a value gets.
fn small(parts: &Parts<'_>, factor: Factor) -> Option<(Amount, i64)> {
    let length = i32::try_from(parts.whole.len() + parts.fraction.len()).ok()?;
    let (scale, multiplier, spare) = match factor {
        Factor::Ten(exponent) => (exponent, 1, 18 - length),
        Factor::Two(exponent) if parts.fraction.is_empty() => {
            (0, 1i64 << exponent, 15 - length - (exponent * 3 / 10) as i32 - 1)
        }
        Factor::Two(_) => return None,
    };
    let scale = scale.wrapping_sub(parts.fraction.len() as i32);
    if spare < 0 || scale < NANO {
        return None;
    }
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let digits = digits.fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let value = digits.checked_mul(multiplier)?;
    Some((Amount::Int { value: if parts.negative { -value } else { value }, scale }, digits))
}

fn spelling(parts: &Parts<'_>, amount: &Amount, digits: i64, format: Format) -> Spelling {
    let plain = !parts.plus && !parts.leading_zeros && !parts.point;
    let canonical = match format {
        Format::BinarySI => digits % 1024 != 0,
        Format::DecimalSI => digits % 1000 != 0,
        Format::DecimalExponent => false,
    };
    if plain && canonical {
        return Spelling::Canonical;
    }
    if is_kept(parts, amount, digits, format) { Spelling::Keep } else { Spelling::Recompute }
}

/// Whether upstream takes the text for canonical without working it out, and keeps it.
fn is_kept(parts: &Parts<'_>, amount: &Amount, digits: i64, format: Format) -> bool {
    match (format, amount) {
        (Format::BinarySI, _) => digits & 7 != 0,
        (_, Amount::Int { scale, .. }) => {
            // A zero before the point means fewer than one; three behind, a shorter suffix.
            scale % 3 == 0 && !parts.whole.starts_with('0') && digits % 1000 != 0
        }
        (_, Amount::Dec(_)) => false,
    }
}

/// How upstream's type holds a quantity, as far as reflection shows it.
pub(crate) enum Held {
    /// `is_spelled`: with the text that it was read from.
    Int { value: i64, scale: i32, is_spelled: bool },
    /// `digits · 10^-scale`.
    Dec { negative: bool, digits: String, scale: i32 },
}

pub(crate) fn held(text: &str) -> Result<(Held, Format), ParseError> {
    if text == "0" {
        return Ok((Held::Int { value: 0, scale: 0, is_spelled: true }, Format::DecimalSI));
    }
    let Parsed { amount, format, .. } = parse(text)?;
    let held = match &amount {
        Amount::Int { value, scale } => {
            let parts = split(text)?;
            let (factor, _) = interpret(parts.suffix).ok_or(ParseError::Suffix)?;
            let digits = small(&parts, factor).map_or(0, |(_, digits)| digits);
            let is_spelled = is_kept(&parts, &amount, digits, format);
            Held::Int { value: *value, scale: *scale, is_spelled }
        }
        Amount::Dec(decimal) => Held::Dec {
            negative: decimal.is_negative(),
            digits: decimal.digits(),
            scale: decimal.scale(),
        },
    };
    Ok((held, format))
}

fn large(parts: &Parts<'_>, factor: Factor, mut format: Format) -> Result<Parsed, ParseError> {
    let mut amount = Decimal::parse(parts.value).ok_or(ParseError::Numeric)?;
    match factor {
        Factor::Ten(exponent) => amount.move_point(exponent),
        Factor::Two(exponent) => amount.multiply(1i64 << exponent),
    }
    let negative = amount.is_negative();
    if negative {
        amount.negate();
    }
    // Whoever asks for a little gets a little: up, never down to zero. A number with too many
    // zeros to write out has nothing to round.
    if !amount.is_zero()
        && let Some(rounded) = amount.clone().rounded(-NANO)
    {
        amount = rounded;
    }
    if format == Format::BinarySI {
        let max = Decimal::new(i64::MAX, 0);
        if amount > max {
            amount = max;
        }
        if !amount.is_zero() && amount < Decimal::new(1, 0) {
            format = Format::DecimalSI;
        }
    }
    if negative {
        amount.negate();
    }
    Ok(Parsed { amount: Amount::Dec(Box::new(amount)), format, spelling: Spelling::Recompute })
}
