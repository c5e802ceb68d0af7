use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(text: &str, want: Expect) {
    let line = match Quantity::parse(text) {
        Ok(q) => format!("{q} {:?} value={} milli={}", q.format(), q.value(), q.milli_value()),
        Err(error) => error.to_string(),
    };
    want.assert_eq(&line);
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

/// Input and canonical form, both ways of getting at it.
#[test]
fn the_canonical_form_has_no_fraction_and_the_largest_suffix() {
    for (text, want) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("1Ki", "1Ki"),
        ("8Ki", "8Ki"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("-1024Ki", "-1Mi"),
        ("3Ei", "3Ei"),
        ("9Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("100.035Ki", "102435840m"),
        ("0.5Mi", "512Ki"),
        ("0.05Gi", "53687091200m"),
        ("0.5Ki", "512"),
        ("0.000000000001Ki", "2n"),
        ("5n", "5n"),
        ("50k", "50k"),
        ("1000k", "1M"),
        ("12E", "12E"),
        ("1E-3", "1E-3"),
        ("1e14", "100e12"),
        ("1e13", "10e12"),
        ("100.035k", "100.035k"),
        ("0.0005k", "500m"),
        ("0.5", "500m"),
        ("0.5e0", "500e-3"),
        ("1.2e3", "1200"),
        ("1.3E+6", "1300e3"),
        ("1.53E12", "1530e9"),
        ("3.001n", "4n"),
        ("1.1E-9", "2e-9"),
        ("0.0000000001", "1n"),
        ("0.00000012345", "124n"),
        (".001", "1m"),
        (".0001k", "100m"),
        ("100000000000000000000", "100E"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("-12345678901234567890123n", "-12345678901234567890123n"),
        // Spellings that upstream takes for canonical, and so keeps.
        ("1.", "1."),
        ("1.G", "1.G"),
        ("+1", "+1"),
        ("01", "01"),
        ("1.123", "1.123"),
        ("7.123456M", "7.123456M"),
        ("1E3", "1E3"),
        ("1e0", "1e0"),
        // Beyond every suffix.
        ("1000E", "1e21"),
    ] {
        assert_eq!(quantity(text).to_string(), want, "{text}");
        assert_eq!(canonicalize(text).unwrap(), want, "{text}");
    }
}

#[test]
fn canonical_text_is_not_copied() {
    for text in ["0", "500m", "1Gi", "512Mi", "1000Mi", "3", "100k", "-5", "1.123"] {
        assert!(matches!(canonicalize(text), Ok(std::borrow::Cow::Borrowed(_))), "{text}");
    }
    assert!(quantity("500m").text.is_none());
}

#[test]
fn values_round_up_and_overflow_as_upstream_does() {
    check("1500m", expect!["1500m DecimalSI value=2 milli=1500"]);
    check("-1500m", expect!["-1500m DecimalSI value=-2 milli=-1500"]);
    check("1n", expect!["1n DecimalSI value=1 milli=1"]);
    check("9E", expect!["9E DecimalSI value=9000000000000000000 milli=0"]);
    check("12E", expect!["12E DecimalSI value=0 milli=0"]);
    check("0.1Ki", expect!["102400m BinarySI value=103 milli=102400"]);
    check("1.5Gi", expect!["1536Mi BinarySI value=1610612736 milli=1610612736000"]);
}

#[test]
fn what_is_no_quantity_is_refused() {
    let format = ParseError::Format;
    let suffix = ParseError::Suffix;
    for (text, want) in [
        ("", format),
        ("1.1.M", format),
        ("1+1.0M", format),
        ("0.1mi", suffix),
        ("0.1am", format),
        ("aoeu", format),
        (".5i", suffix),
        ("-3.01e-", suffix),
        (" 1", format),
        ("1 ", format),
        ("1é", format),
        (".e-10", ParseError::Numeric),
    ] {
        assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Err(want), "{text}");
    }
}

#[test]
fn a_sum_takes_the_style_of_its_first_real_term() {
    for (left, right, sum, difference) in [
        ("0", "1Gi", "1Gi", "-1Gi"),
        ("100m", "1", "1100m", "-900m"),
        ("1Gi", "1M", "1074741824", "1072741824"),
        ("1Gi", "1Gi", "2Gi", "0"),
        ("1e3", "1", "1001", "999"),
        ("9223372036854775807", "1", "9223372036854775808", "9223372036854775806"),
        ("9E", "1n", "9000000000000000000000000001n", "8999999999999999999999999999n"),
    ] {
        assert_eq!((quantity(left) + &quantity(right)).to_string(), sum);
        assert_eq!((quantity(left) - &quantity(right)).to_string(), difference);
    }
}

#[test]
fn products_leave_64_bits_without_losing_a_digit() {
    for (text, factor, exact, want) in [
        ("3", 4, true, "12"),
        ("1500m", 3, true, "4500m"),
        ("1Gi", 0, true, "0"),
        ("9223372036854775807", 2, false, "18446744073709551614"),
        ("9E", 10, true, "90E"),
        ("-1Ki", 3, true, "-3Ki"),
    ] {
        let mut q = quantity(text);
        assert_eq!((q.multiply(factor), q.to_string().as_str()), (exact, want));
    }
}

#[test]
fn rounding_up_goes_away_from_zero() {
    for (text, scale, exact, want) in [
        ("9.01", -3, true, "9010m"),
        ("9.01", 0, false, "10"),
        ("-9.01", 0, false, "-10"),
        ("1.1", 3, false, "1k"),
        ("2500m", -3, true, "2500m"),
        ("3.141592653589793238462643", -6, false, "3141593u"),
        ("-0.125n", -1, false, "-100m"),
    ] {
        let mut q = quantity(text);
        assert_eq!((q.round_up(scale), q.to_string().as_str()), (exact, want), "{text}");
    }
}

#[test]
fn floats_come_close_or_exactly() {
    assert_eq!(quantity("1.5Gi").as_approximate_f64(), 1.5 * (1 << 30) as f64);
    assert_eq!(quantity("100m").as_f64(), 0.1);
    assert_eq!(quantity("12345678901234567890123").as_f64(), 12345678901234567890123.0);
    assert_eq!(quantity("1e400").as_approximate_f64(), f64::INFINITY);
}

#[test]
fn json_may_hold_text_with_blanks_or_a_number() {
    for (json, want) in [(r#"" 1Gi ""#, "1Gi"), ("5", "5"), ("-2", "-2"), ("0.5", "500m")] {
        assert_eq!(serde_json::from_str::<Quantity>(json).unwrap().to_string(), want);
    }
    assert_eq!(serde_json::to_string(&quantity("0.5")).unwrap(), r#""500m""#);
}

#[test]
fn absurd_exponents_cost_nothing() {
    let huge = quantity("1e2147483647");
    assert!(huge > quantity("1") && quantity("-1e2147483647") < quantity("1n"));
    assert_eq!(huge.clone() + &quantity("1n"), huge);
    assert_eq!(huge.value(), 0);
    assert_eq!(quantity("1e-2147483647"), quantity("1n"));
    assert_eq!(quantity("0e-2147483648").to_string(), "0");
    for text in ["12345678901234567890e99999", "1000e2147483647", "1e-2147483648"] {
        assert_eq!(quantity(&quantity(text).to_string()), quantity(text), "{text}");
    }
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let suffix = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3",
        "e-2", "E7",
    ]);
    let number = prop_oneof!["[+-]?[0-9]{1,4}", "-?[0-9]{1,30}", "-?[0-9]{0,20}\\.[0-9]{1,20}"];
    (number, suffix).prop_map(|(number, suffix)| quantity(&format!("{number}{suffix}")))
}

proptest! {
    #[test]
    fn printing_keeps_the_amount(q in any_quantity()) {
        prop_assert_eq!(&quantity(&q.to_string()), &q);
        prop_assert_eq!(&quantity(&q.canonical().to_string()), &q);
    }

    #[test]
    fn the_canonical_form_is_stable(q in any_quantity()) {
        let once = q.canonical().to_string();
        prop_assert_eq!(quantity(&once).canonical().to_string(), once.as_str());
        prop_assert_eq!(canonicalize(&once).unwrap(), once.as_str());
    }

    #[test]
    fn what_parsing_calls_canonical_is(q in any_quantity()) {
        if let Ok(std::borrow::Cow::Borrowed(text)) = canonicalize(&q.to_string())
            && q.text.is_none()
        {
            prop_assert_eq!(quantity(text).canonical().to_string(), text);
        }
    }

    #[test]
    fn addition_obeys_its_laws(a in any_quantity(), b in any_quantity(), c in any_quantity()) {
        prop_assert_eq!(a.clone() + &b, b.clone() + &a);
        prop_assert_eq!((a.clone() + &b) + &c, a.clone() + &(b.clone() + &c));
        prop_assert_eq!(&((a.clone() + &b) - &b), &a);
        prop_assert_eq!((a.clone() - &b).sign(), a.cmp(&b));
        prop_assert!((-a.clone() + &a).is_zero());
    }

    #[test]
    fn multiplication_is_repeated_addition(a in any_quantity(), n in 0i64..20) {
        let mut product = a.clone();
        product.multiply(n);
        let sum = (0..n).fold(Quantity::ZERO, |sum, _| sum + &a);
        prop_assert_eq!(product, sum);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC*") {
        let _ = canonicalize(&text);
    }

    #[test]
    fn nearly_valid_text_never_panics(text in "[+-]?[0-9.]{0,25}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,12}") {
        if let Ok(mut q) = Quantity::parse(&text) {
            let _ = (q.to_string(), q.value(), q.milli_value(), q.as_i64(), q.as_f64());
            let _ = (q.clone() + &quantity("1"), q.round_up(3), q.multiply(7), q.to_string());
        }
    }
}
