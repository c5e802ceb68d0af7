//! Escapes that stand for one character: `\n`, `\x{1F600}`, `\101`, `\.`.
use super::{Error, Fault};

/// The character's number, which may be none of Unicode's (`\x{D800}`), and what follows. The text
/// begins with a backslash.
pub fn character(text: &str) -> Result<(u32, &str), Error> {
    let mut rest = text[1..].chars();
    let Some(first) = rest.next() else { return Err(Fault::TrailingBackslash.of("")) };
    let after = rest.as_str();
    let wrong = |after: &str| Fault::Escape.of(&text[..text.len() - after.len()]);
    match first {
        // A single digit would refer to a group, which is not supported.
        '1'..='7' if !after.starts_with(is_octal) => Err(wrong(after)),
        '0'..='7' => {
            let more = after.bytes().take(2).take_while(|byte| is_octal(char::from(*byte))).count();
            let digits = &text[1..2 + more];
            let number = digits.bytes().fold(0, |n, digit| n * 8 + u32::from(digit - b'0'));
            Ok((number, &after[more..]))
        }
        'x' if after.is_empty() => Err(wrong(after)),
        'x' => match after.strip_prefix('{') {
            Some(digits) => braced(digits).map_err(wrong),
            None => {
                let mut digits = after.chars();
                let digit = |c: Option<char>| c.and_then(|c| c.to_digit(16));
                let (high, low) = (digit(digits.next()), digit(digits.next()));
                match (high, low) {
                    (Some(high), Some(low)) => Ok((high * 16 + low, digits.as_str())),
                    _ => Err(wrong(digits.as_str())),
                }
            }
        },
        'a' => Ok((0x07, after)),
        'f' => Ok((0x0c, after)),
        'n' => Ok((0x0a, after)),
        'r' => Ok((0x0d, after)),
        't' => Ok((0x09, after)),
        'v' => Ok((0x0b, after)),
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => Ok((other.into(), after)),
        _ => Err(wrong(after)),
    }
}

fn is_octal(c: char) -> bool {
    matches!(c, '0'..='7')
}

/// Any number of digits up to a brace; else what is left when it is clear that it is none.
fn braced(text: &str) -> Result<(u32, &str), &str> {
    let mut rest = text.chars();
    let (mut number, mut digits) = (0, 0);
    loop {
        match rest.next() {
            Some('}') if digits > 0 => return Ok((number, rest.as_str())),
            Some(c) => match c.to_digit(16) {
                Some(digit) if number * 16 + digit <= u32::from(char::MAX) => {
                    (number, digits) = (number * 16 + digit, digits + 1);
                }
                _ => return Err(rest.as_str()),
            },
            None => return Err(""),
        }
    }
}
