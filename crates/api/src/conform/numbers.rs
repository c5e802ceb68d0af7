//! Bounds of numbers. Integers are compared as integers, if the bound is one too.
use super::{Fault, Kind};
use crate::field::BadValue;
use serde_json::{Number, Value};

/// What JSON can hold without loss, and how much a multiple may be off.
const LARGEST: f64 = ((1_i64 << 53) - 1) as f64;
const EPSILON: f64 = 1e-9;

/// Integers that Go's do not hold are floats.
pub fn is_float(number: &Number) -> bool {
    number.as_i64().is_none()
}

/// Whether a float is an integer that JSON can hold.
pub fn is_whole(x: f64) -> bool {
    let rounded = x.round();
    x.is_finite()
        && (-LARGEST - 1.0..=LARGEST).contains(&x)
        && (x == rounded || rounded != 0.0 && (x - rounded).abs() < EPSILON * rounded.abs())
}

pub fn faults(number: &Number, schema: &Value, name: &str) -> Vec<Fault> {
    let (integer, float) = (number.as_i64(), number.as_f64().unwrap_or_default());
    let mut faults = Vec::new();
    let value = integer.map_or_else(|| digits(float), |integer| integer.to_string());
    faults.extend(range(&value, schema, "Checked", name));
    let bound = |field: &str| schema[field].as_f64();
    let exclusive = |field: &str| schema[field] == true;
    let checks = [
        ("multipleOf", "MultipleOf"),
        ("minimum", "Minimum boundary"),
        ("maximum", "Maximum boundary"),
    ];
    for (field, word) in checks {
        let Some(limit) = bound(field) else { continue };
        let unfit = range(&digits(limit), schema, word, name);
        // A bound that is no integer itself makes a number of the value.
        let pair = match integer.filter(|_| unfit.is_none()) {
            Some(integer) => Pair::Integers(integer, truncated(limit)),
            None => Pair::Floats(float, limit),
        };
        faults.extend(unfit);
        faults.extend(match field {
            "multipleOf" => pair.multiple(name),
            "minimum" => pair.bound(name, true, exclusive("exclusiveMinimum")),
            _ => pair.bound(name, false, exclusive("exclusiveMaximum")),
        });
    }
    faults
}

/// A value and what it is compared with.
enum Pair {
    Integers(i64, i64),
    Floats(f64, f64),
}

impl Pair {
    fn bound(&self, name: &str, least: bool, exclusive: bool) -> Option<Fault> {
        let order = match self {
            Pair::Integers(value, limit) => value.cmp(limit),
            Pair::Floats(value, limit) => value.total_cmp(limit),
        };
        let wrong = if least { order.is_lt() } else { order.is_gt() };
        if !(wrong || exclusive && order.is_eq()) {
            return None;
        }
        let word = if least { "greater" } else { "less" };
        let or_equal = if exclusive { "" } else { " or equal to" };
        Some(self.fault(name, &format!("should be {word} than{or_equal} ")))
    }

    fn multiple(&self, name: &str) -> Option<Fault> {
        let (positive, sound) = match self {
            Pair::Integers(value, factor) => (*factor > 0, *factor > 0 && value % factor == 0),
            Pair::Floats(value, factor) if *factor < 1.0 => {
                (*factor > 0.0, is_whole(1.0 / factor * value))
            }
            Pair::Floats(value, factor) => (true, is_whole(value / factor)),
        };
        if positive {
            return (!sound).then(|| self.fault(name, "should be a multiple of "));
        }
        let (factor, value) = match self {
            Pair::Integers(_, factor) => (factor.to_string(), BadValue::from(*factor)),
            Pair::Floats(_, factor) => (shown(*factor), BadValue::from(*factor)),
        };
        let message = format!("factor MultipleOf declared for {name} must be positive: {factor}");
        Some(Fault { message, ..Fault::of(Kind::Other, name, value, "") })
    }

    fn fault(&self, name: &str, words: &str) -> Fault {
        match self {
            Pair::Integers(value, limit) => {
                Fault::of(Kind::Other, name, *value, format!("{words}{limit}"))
            }
            Pair::Floats(value, limit) => {
                Fault::of(Kind::Other, name, *value, format!("{words}{}", shown(*limit)))
            }
        }
    }
}

/// Whether a number can be of the type and format that the schema declares.
fn range(number: &str, schema: &Value, word: &str, name: &str) -> Option<Fault> {
    let (wanted, format) = (schema["type"].as_str()?, schema["format"].as_str().unwrap_or(""));
    let (fits, format) = match (wanted, format) {
        ("integer", "int32") => (number.parse::<i32>().is_ok(), "int32"),
        ("integer", "int64") => (number.parse::<i64>().is_ok(), "int64"),
        ("integer", _) => (number.parse::<i64>().is_ok(), ""),
        ("number", "float") => (number.parse::<f32>().is_ok_and(f32::is_finite), "float"),
        _ => return None,
    };
    let format = match format {
        "" => "(default format)".to_owned(),
        format => format!("with format {format}"),
    };
    let message = format!("{word} value must be of type {wanted} {format} in {name}");
    (!fits).then(|| Fault::whole(message))
}

/// What is out of range becomes the least of all, as on the machines that Go is mostly run on.
fn truncated(x: f64) -> i64 {
    let fits = (i64::MIN as f64..i64::MAX as f64).contains(&x);
    if fits { x as i64 } else { i64::MIN }
}

/// `%v`
fn shown(x: f64) -> String {
    BadValue::from(x).text().unwrap_or_default().to_owned()
}

/// All digits, without an exponent.
fn digits(x: f64) -> String {
    format!("{x}")
}
