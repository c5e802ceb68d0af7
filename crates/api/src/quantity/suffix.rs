//! The suffix of a quantity: its factor and the style it is written in.

use super::Format;

/// What a suffix multiplies by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    Ten(i32),
    Two(u32),
}

pub const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

pub const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

pub fn interpret(suffix: &str) -> Option<(Factor, Format)> {
    let decimal = |exponent| Some((Factor::Ten(exponent), Format::DecimalSI));
    let binary = |exponent| Some((Factor::Two(exponent), Format::BinarySI));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Upstream reads 64 bits and keeps 32.
            Some((Factor::Ten(exponent as i32), Format::DecimalExponent))
        }
    }
}
