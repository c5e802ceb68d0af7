//! A decimal number of any length, for the few quantities that do not fit 64 bits.
//!
//! The value is `±digits · 10^-scale`, as in the `inf.Dec` that upstream falls back to. The digits
//! are kept in base 10⁹, least significant first: reading, printing and moving the decimal point,
//! which is nearly all a quantity needs, are then linear in the length of the number, whatever a
//! client sends.

use std::cmp::Ordering;
use std::fmt::{self, Write};

const BASE: u32 = 1_000_000_000;
const BASE_DIGITS: usize = 9;

/// The longest row of zeros that arithmetic will write out. Beyond it the smaller of two numbers
/// is lost in a sum: `1e2147483647 + 1n` must not take two gigabytes.
pub const MAX_SHIFT: usize = 1 << 16;

#[derive(Clone, Debug)]
pub struct Decimal {
    negative: bool,
    /// Base 10⁹, least significant first, no leading (last) zero limb; empty is zero.
    limbs: Vec<u32>,
    scale: i32,
}

impl Decimal {
    pub fn new(value: i64, scale: i32) -> Self {
        let mut decimal = Decimal { negative: value < 0, limbs: Vec::new(), scale };
        let mut rest = value.unsigned_abs();
        while rest > 0 {
            decimal.limbs.push((rest % u64::from(BASE)) as u32);
            rest /= u64::from(BASE);
        }
        decimal
    }

    /// Reads `[+-]digits[.digits]`; `None` unless there is a digit.
    pub fn parse(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = [whole.as_bytes(), fraction.as_bytes()].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let limbs = digits
            .rchunks(BASE_DIGITS)
            .map(|chunk| chunk.iter().fold(0, |limb, digit| limb * 10 + u32::from(digit - b'0')))
            .collect();
        let scale = i32::try_from(fraction.len()).ok()?;
        let mut decimal = Decimal { negative, limbs, scale };
        decimal.trim();
        Some(decimal)
    }

    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// Multiplies by a power of ten.
    pub fn move_point(&mut self, exponent: i32) {
        self.scale = self.scale.saturating_sub(exponent);
    }

    pub fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    pub fn sign(&self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    pub fn negate(&mut self) {
        self.negative = !self.negative && !self.is_zero();
    }

    /// Multiplies by a whole number.
    pub fn multiply(&mut self, factor: i64) {
        self.multiply_magnitude(factor.unsigned_abs());
        self.negative = (self.negative != (factor < 0)) && !self.is_zero();
    }

    fn multiply_magnitude(&mut self, factor: u64) {
        let mut carry = 0u128;
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = (carry % u128::from(BASE)) as u32;
            carry /= u128::from(BASE);
        }
        while carry > 0 {
            self.limbs.push((carry % u128::from(BASE)) as u32);
            carry /= u128::from(BASE);
        }
        self.trim();
    }

    /// Divides the digits, returning the remainder.
    pub fn divide_magnitude(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            rest = rest * u64::from(BASE) + u64::from(*limb);
            *limb = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        self.trim();
        rest as u32
    }

    /// Writes the number with `scale` decimal places, rounding away from zero. `None` if that
    /// would take more zeros than [`MAX_SHIFT`].
    #[must_use]
    pub fn rounded(mut self, scale: i32) -> Option<Self> {
        let shift = i64::from(scale) - i64::from(self.scale);
        self.scale = scale;
        if self.is_zero() {
            return Some(self);
        }
        if shift >= 0 {
            self.append_zeros(usize::try_from(shift).ok()?)?;
        } else {
            let negative = self.negative;
            if self.drop_digits(usize::try_from(-shift).ok()?) {
                self.increment();
                self.negative = negative; // even if no digit was left in between
            }
        }
        Some(self)
    }

    /// The number at `scale` decimal places, rounded towards positive infinity.
    pub fn ceiling(mut self, scale: i32) -> Option<Self> {
        let dropped = i64::from(self.scale) - i64::from(scale);
        if !self.negative || dropped <= 0 {
            return self.rounded(scale);
        }
        self.drop_digits(usize::try_from(dropped).ok()?);
        self.scale = scale;
        Some(self)
    }

    fn append_zeros(&mut self, count: usize) -> Option<()> {
        if count > MAX_SHIFT {
            return None;
        }
        if !self.is_zero() {
            self.multiply_magnitude(10u64.pow((count % BASE_DIGITS) as u32));
            self.limbs.splice(0..0, std::iter::repeat_n(0, count / BASE_DIGITS));
        }
        Some(())
    }

    /// Drops the last `count` digits; true if any of them was not zero.
    fn drop_digits(&mut self, count: usize) -> bool {
        let whole = (count / BASE_DIGITS).min(self.limbs.len());
        let mut inexact = self.limbs.drain(..whole).any(|limb| limb != 0);
        inexact |= self.divide_magnitude(10u32.pow((count % BASE_DIGITS) as u32)) != 0;
        inexact
    }

    fn increment(&mut self) {
        for limb in &mut self.limbs {
            *limb += 1;
            if *limb < BASE {
                return;
            }
            *limb = 0;
        }
        self.limbs.push(1);
    }

    /// The sum, at the finer of the two scales.
    pub fn add(self, other: &Decimal) -> Self {
        let scale = self.scale.max(other.scale);
        let larger = if self.magnitude_cmp(other).is_lt() { other.clone() } else { self.clone() };
        let (Some(mut left), Some(right)) = (self.rounded(scale), other.clone().rounded(scale))
        else {
            return larger; // the other is far too small to count
        };
        if left.negative == right.negative {
            left.add_magnitude(&right.limbs);
            return left;
        }
        let (mut result, smaller) = match left.magnitude_cmp(&right) {
            Ordering::Less => (right, left),
            _ => (left, right),
        };
        result.sub_magnitude(&smaller.limbs);
        result
    }

    fn add_magnitude(&mut self, other: &[u32]) {
        if self.limbs.len() < other.len() {
            self.limbs.resize(other.len(), 0);
        }
        let mut carry = 0;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let sum = *limb + other.get(i).copied().unwrap_or(0) + carry;
            *limb = sum % BASE;
            carry = sum / BASE;
        }
        if carry > 0 {
            self.limbs.push(carry);
        }
    }

    /// Subtracts a magnitude that is not larger than this one.
    fn sub_magnitude(&mut self, other: &[u32]) {
        let mut borrow = 0;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let take = other.get(i).copied().unwrap_or(0) + borrow;
            borrow = u32::from(*limb < take);
            *limb = *limb + borrow * BASE - take;
        }
        self.trim();
    }

    fn magnitude_cmp(&self, other: &Decimal) -> Ordering {
        if self.is_zero() || other.is_zero() {
            return other.is_zero().cmp(&self.is_zero());
        }
        // Only numbers of equal order need their digits compared, aligned at the first one.
        self.order().cmp(&other.order()).then_with(|| {
            let (left, right) = (self.digits(), other.digits());
            left.trim_end_matches('0').cmp(right.trim_end_matches('0'))
        })
    }

    /// The place of the first digit: 0 for 1 to 9, -1 for 0.1.
    fn order(&self) -> i64 {
        self.digit_count() as i64 - 1 - i64::from(self.scale)
    }

    fn digit_count(&self) -> usize {
        match self.limbs.split_last() {
            None => 0,
            Some((last, rest)) => rest.len() * BASE_DIGITS + last.ilog10() as usize + 1,
        }
    }

    /// The digits without sign or point; `0` for zero.
    pub fn digits(&self) -> String {
        let mut out = String::with_capacity(self.limbs.len() * BASE_DIGITS);
        match self.limbs.split_last() {
            None => out.push('0'),
            Some((last, rest)) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "{last}");
                for limb in rest.iter().rev() {
                    let _ = write!(out, "{limb:09}");
                }
            }
        }
        out
    }

    /// The lowest 64 bits of the signed digits, the scale left aside.
    pub fn wrapping_i64(&self) -> i64 {
        let magnitude = self.limbs.iter().rev().fold(0u64, |sum, limb| {
            sum.wrapping_mul(u64::from(BASE)).wrapping_add(u64::from(*limb))
        });
        let value = magnitude as i64;
        if self.negative { value.wrapping_neg() } else { value }
    }

    /// The signed digits, the scale left aside, if they fit.
    pub fn exact_i64(&self) -> Option<i64> {
        let magnitude = self.limbs.iter().rev().try_fold(0i128, |sum, limb| {
            sum.checked_mul(i128::from(BASE))?.checked_add(i128::from(*limb))
        })?;
        i64::try_from(if self.negative { -magnitude } else { magnitude }).ok()
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
        self.negative &= !self.limbs.is_empty();
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let magnitude = self.magnitude_cmp(other);
            if self.negative { magnitude.reverse() } else { magnitude }
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal {}

/// Scientific notation, which `f64` reads back with correct rounding.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}e{}", self.digits(), -i64::from(self.scale))
    }
}
