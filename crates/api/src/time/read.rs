//! Reading a time, step by step as Go does.

use super::calendar::{days_from_civil, days_in_month};
use crate::quote::TimeQuoted;

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("parsing time {} as \"{layout}\": cannot parse {} as \"{element}\"", TimeQuoted(.value.as_bytes()), TimeQuoted(.rest))]
    Mismatch { value: String, layout: &'static str, rest: Vec<u8>, element: &'static str },
    #[error("parsing time {}: {field} out of range", TimeQuoted(.value.as_bytes()))]
    OutOfRange { value: String, field: &'static str },
    #[error("parsing time {}: extra text: {}", TimeQuoted(.value.as_bytes()), TimeQuoted(.rest))]
    ExtraText { value: String, rest: Vec<u8> },
}

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Follows the layout through the text; every step takes off what it reads.
pub struct Reader<'a> {
    value: &'a str,
    rest: &'a [u8],
    micro: bool,
}

impl<'a> Reader<'a> {
    pub fn new(value: &'a str, micro: bool) -> Self {
        Reader { value, rest: value.as_bytes(), micro }
    }

    pub fn read(mut self) -> Result<(i64, i32), ParseError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true)?;
        self.check("month", (1..=12).contains(&month))?;
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.number("15", false)?;
        self.check("hour", hour < 24)?;
        self.literal(":")?;
        let minute = self.number("04", true)?;
        self.check("minute", minute < 60)?;
        self.literal(":")?;
        let second = self.number("05", true)?;
        self.check("second", second < 60)?;
        let nanos = if self.micro { self.micros()? } else { self.fraction() };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            let value = self.value.to_owned();
            return Err(ParseError::ExtraText { value, rest: self.rest.to_owned() });
        }
        self.check("day", day >= 1 && day <= days_in_month(year, month))?;
        let days = days_from_civil(year, month, day);
        Ok((days * 86400 + hour * 3600 + minute * 60 + second - offset, nanos))
    }

    fn year(&mut self) -> Result<i64, ParseError> {
        match self.rest.split_at_checked(4) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = rest;
                Ok(decimal(digits))
            }
            _ => Err(self.mismatch("2006", self.rest)),
        }
    }

    fn literal(&mut self, text: &'static str) -> Result<(), ParseError> {
        match self.rest.strip_prefix(text.as_bytes()) {
            Some(rest) => self.rest = rest,
            None => return Err(self.mismatch(text, self.rest)),
        }
        Ok(())
    }

    /// Two digits, or one where that is not `fixed`.
    fn number(&mut self, element: &'static str, fixed: bool) -> Result<i64, ParseError> {
        let (number, rest) = match self.rest {
            [a, b, rest @ ..] if a.is_ascii_digit() && b.is_ascii_digit() => {
                (decimal(&[*a, *b]), rest)
            }
            [a, rest @ ..] if a.is_ascii_digit() && !fixed => (decimal(&[*a]), rest),
            _ => return Err(self.mismatch(element, self.rest)),
        };
        self.rest = rest;
        Ok(number)
    }

    /// A fraction the layout does not mention is read nevertheless, to nine digits.
    fn fraction(&mut self) -> i32 {
        let [b'.' | b',', tail @ ..] = self.rest else { return 0 };
        let length = tail.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 {
            return 0;
        }
        let (digits, rest) = tail.split_at(length);
        self.rest = rest;
        nanos(&digits[..length.min(9)])
    }

    fn micros(&mut self) -> Result<i32, ParseError> {
        let hold = self.rest;
        match hold {
            [b'.' | b',', tail @ ..]
                if tail.len() >= 6 && tail[..6].iter().all(u8::is_ascii_digit) =>
            {
                self.rest = &tail[6..];
                Ok(nanos(&tail[..6]))
            }
            _ => Err(self.mismatch(".000000", hold)),
        }
    }

    /// `Z`, or hours and minutes east of UTC; in seconds.
    fn offset(&mut self) -> Result<i64, ParseError> {
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(0);
        }
        let hold = self.rest;
        let &[sign, h1, h2, b':', m1, m2, ref rest @ ..] = hold else {
            return Err(self.mismatch("Z07:00", hold));
        };
        self.rest = rest;
        let digits =
            |a: u8, b: u8| (a.is_ascii_digit() && b.is_ascii_digit()).then(|| decimal(&[a, b]));
        let hours = digits(h1, h2);
        let minutes = hours.and(digits(m1, m2));
        // Some people do write an offset of 24 hours or 60 minutes.
        self.check("time zone offset minute", minutes.is_none_or(|m| m <= 60))?;
        self.check("time zone offset hour", hours.is_none_or(|h| h <= 24))?;
        match (sign, hours, minutes) {
            (b'+', Some(hours), Some(minutes)) => Ok((hours * 60 + minutes) * 60),
            (b'-', Some(hours), Some(minutes)) => Ok(-(hours * 60 + minutes) * 60),
            _ => Err(self.mismatch("Z07:00", hold)),
        }
    }

    fn check(&self, field: &'static str, in_range: bool) -> Result<(), ParseError> {
        if in_range {
            return Ok(());
        }
        Err(ParseError::OutOfRange { value: self.value.to_owned(), field })
    }

    fn mismatch(&self, element: &'static str, rest: &[u8]) -> ParseError {
        ParseError::Mismatch {
            value: self.value.to_owned(),
            layout: if self.micro { LAYOUT_MICRO } else { LAYOUT },
            rest: rest.to_owned(),
            element,
        }
    }
}

fn decimal(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

/// Up to nine digits behind the point.
fn nanos(digits: &[u8]) -> i32 {
    (0..9).fold(0, |sum, i| sum * 10 + digits.get(i).map_or(0, |digit| i32::from(digit - b'0')))
}
