//! Calculating with quantities: in 64 bits while the result fits, in a decimal of any length
//! where it does not.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use super::decimal::Decimal;
use super::{Amount, MILLI, Quantity, Scale};

impl Quantity {
    /// The amount rounded up (away from zero) to a whole number.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded up: CPU is counted so.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The amount in units of `10^scale`, rounded up. What does not fit 64 bits comes out as
    /// upstream's does: as zero, or as the low bits.
    pub fn scaled_value(&self, scale: Scale) -> i64 {
        match &self.amount {
            Amount::Int { value, scale: own } => {
                let shift = i64::from(*own) - i64::from(scale);
                if shift < 0 {
                    divide_up(*value, -shift).0
                } else {
                    multiply_by_power(*value, shift).unwrap_or_else(|| overflow(*value, shift))
                }
            }
            Amount::Dec(decimal) => decimal_value(decimal, scale),
        }
    }

    /// The amount, if it is a whole number kept in 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Int { value, scale } if scale >= 0 => multiply_by_power(value, scale.into()),
            _ => None,
        }
    }

    /// The amount as a float, quickly; the last digits may be off.
    pub fn as_approximate_f64(&self) -> f64 {
        match &self.amount {
            Amount::Int { value, scale } => scale_float(*value as f64, *scale),
            Amount::Dec(decimal) => {
                let sign = if decimal.is_negative() { -1.0 } else { 1.0 };
                let base: f64 = decimal.digits().parse().unwrap_or(f64::INFINITY);
                scale_float(sign * base, decimal.scale().saturating_neg())
            }
        }
    }

    /// The float nearest to the amount.
    pub fn as_f64(&self) -> f64 {
        self.to_decimal().to_string().parse().unwrap_or(f64::NAN)
    }

    /// Rounds up (away from zero) to a multiple of `10^scale`; true if that changed nothing.
    pub fn round_up(&mut self, scale: Scale) -> bool {
        match &mut self.amount {
            Amount::Int { scale: own, .. } if *own >= scale => true,
            Amount::Int { value, scale: own } => {
                let (rounded, exact) = divide_up(*value, i64::from(scale) - i64::from(*own));
                (*value, *own) = (rounded, scale);
                self.text = None;
                exact
            }
            Amount::Dec(decimal) => {
                let Some(rounded) = (**decimal).clone().rounded(scale.saturating_neg()) else {
                    return true; // far coarser already
                };
                let exact = rounded == **decimal;
                **decimal = rounded;
                exact
            }
        }
    }

    /// Multiplies by a whole number; false if the result left 64 bits.
    pub fn multiply(&mut self, factor: i64) -> bool {
        self.text = None;
        if let Amount::Int { value, scale } = &mut self.amount {
            if *value == 0 {
                return true;
            }
            if factor == 0 {
                (*value, *scale) = (0, 0);
                return true;
            }
            let fits = |product: &i64| match *scale {
                0.. => multiply_by_power(*product, (*scale).into()).is_some(),
                ..0 => divide_up(*product, -i64::from(*scale)).1,
            };
            if let Some(product) = value.checked_mul(factor).filter(fits) {
                *value = product;
                return true;
            }
        }
        let mut decimal = self.to_decimal();
        decimal.multiply(factor);
        let fits = decimal.exact_i64().is_some();
        self.amount = Amount::Dec(Box::new(decimal));
        fits
    }

    /// Compares with a whole number.
    pub fn cmp_i64(&self, value: i64) -> Ordering {
        match &self.amount {
            Amount::Int { value: own, scale } => cmp_scaled((*own, *scale), (value, 0)),
            Amount::Dec(decimal) => (**decimal).cmp(&Decimal::new(value, 0)),
        }
    }

    fn to_decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Int { value, scale } => Decimal::new(*value, scale.saturating_neg()),
            Amount::Dec(decimal) => (**decimal).clone(),
        }
    }

    /// A zero has no style of its own, so that a sum takes the style of its first real term.
    fn adopt_format(&mut self, other: &Quantity) {
        self.text = None;
        if self.is_zero() {
            self.format = other.format;
        }
    }
}

impl AddAssign<&Quantity> for Quantity {
    fn add_assign(&mut self, other: &Quantity) {
        self.adopt_format(other);
        if let (Amount::Int { value, scale }, Amount::Int { value: add, scale: add_scale }) =
            (&self.amount, &other.amount)
            && let Some((value, scale)) = add_scaled((*value, *scale), (*add, *add_scale))
        {
            self.amount = Amount::Int { value, scale };
            return;
        }
        let sum = self.to_decimal().add(&other.to_decimal());
        self.amount = Amount::Dec(Box::new(sum));
    }
}

impl SubAssign<&Quantity> for Quantity {
    fn sub_assign(&mut self, other: &Quantity) {
        // Negating keeps the style, and is exact.
        *self += &-other.clone();
    }
}

impl Add<&Quantity> for Quantity {
    type Output = Quantity;

    fn add(mut self, other: &Quantity) -> Quantity {
        self += other;
        self
    }
}

impl Sub<&Quantity> for Quantity {
    type Output = Quantity;

    fn sub(mut self, other: &Quantity) -> Quantity {
        self -= other;
        self
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(mut self) -> Quantity {
        self.text = None;
        match &mut self.amount {
            Amount::Int { value, scale } => match value.checked_neg() {
                Some(negated) => *value = negated,
                None => {
                    let mut decimal = Decimal::new(*value, scale.saturating_neg());
                    decimal.negate();
                    self.amount = Amount::Dec(Box::new(decimal));
                }
            },
            Amount::Dec(decimal) => decimal.negate(),
        }
        self
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Int { value: a, scale: s }, Amount::Int { value: b, scale: t }) => {
                cmp_scaled((*a, *s), (*b, *t))
            }
            _ => self.to_decimal().cmp(&other.to_decimal()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

/// `value · 10^power`, if that fits. The power is not negative.
fn multiply_by_power(value: i64, power: i64) -> Option<i64> {
    if value == 0 || power == 0 {
        return Some(value);
    }
    value.checked_mul(10i64.checked_pow(u32::try_from(power).ok()?)?)
}

/// `value / 10^power` rounded away from zero, and whether it was exact. The power is positive.
fn divide_up(value: i64, power: i64) -> (i64, bool) {
    let divisor = u32::try_from(power).ok().and_then(|power| 10i64.checked_pow(power));
    match divisor {
        None => (value.signum(), value == 0),
        Some(divisor) if value % divisor == 0 => (value / divisor, true),
        Some(divisor) => (value / divisor + value.signum(), false),
    }
}

/// What upstream answers for a product that does not fit: it multiplies at once by the powers it
/// expects, and step by step, giving up on the way, by the others.
fn overflow(value: i64, power: i64) -> i64 {
    match power {
        1 | 2 | 3 | 6 | 9 if value != i64::MIN => value.wrapping_mul(10i64.pow(power as u32)),
        _ => 0,
    }
}

fn add_scaled(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let scale = a.1.min(b.1);
    let align =
        |(value, own): (i64, i32)| multiply_by_power(value, i64::from(own) - i64::from(scale));
    Some((align(a)?.checked_add(align(b)?)?, scale))
}

fn cmp_scaled(a: (i64, i32), b: (i64, i32)) -> Ordering {
    if a.1 == b.1 {
        return a.0.cmp(&b.0);
    }
    let scale = a.1.min(b.1);
    let align = |(value, own): (i64, i32)| {
        let power = i64::from(own) - i64::from(scale);
        // From 10^19 on any number but zero is beyond every 64-bit one.
        i128::from(value) * 10i128.pow(power.min(19) as u32)
    };
    align(a).cmp(&align(b))
}

/// Upstream rounds a negative number differently depending on its length; both ways are kept.
fn decimal_value(decimal: &Decimal, scale: Scale) -> i64 {
    let shift = i64::from(decimal.scale()) + i64::from(scale);
    let low = decimal.wrapping_i64();
    if shift <= 0 {
        let power = u32::try_from(-shift).ok().and_then(|power| 10i64.checked_pow(power));
        return low.wrapping_mul(power.unwrap_or(i64::MIN));
    }
    let short = decimal.is_negative() || decimal.exact_i64().is_some_and(|v| v < i64::MAX);
    if short && shift < 19 {
        let divisor = 10i64.pow(shift as u32);
        return low / divisor + i64::from(low % divisor != 0);
    }
    match decimal.clone().ceiling(scale.saturating_neg()) {
        Some(rounded) => rounded.wrapping_i64(),
        None => 0,
    }
}

/// `base · 10^exponent` with the roundings of Go's `math.Pow10`, which multiplies two table
/// entries and so may be off by one in the last place.
fn scale_float(base: f64, exponent: i32) -> f64 {
    if exponent == 0 {
        return base;
    }
    let low = POWERS[exponent.unsigned_abs() as usize % POWERS.len()];
    let high = |exponent: i32| match exponent / 32 {
        0 => 1.0,
        _ => format!("1e{}", exponent / 32 * 32).parse().unwrap_or(0.0),
    };
    base * match exponent {
        309.. => f64::INFINITY,
        0..309 => high(exponent) * low,
        -323..0 => high(exponent) / low,
        _ => 0.0,
    }
}

const POWERS: [f64; 32] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
];
