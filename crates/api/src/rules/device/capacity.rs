//! How much of a device there is, and how it can be asked for.
use super::super::Field;
use crate::quantity::Quantity;

const MAX_VALUES: usize = 10;

/// A capacity of a device; `shared`: several claims may have the device at a time.
pub fn validate(capacity: &Field<'_, '_>, shared: bool) {
    let policy = capacity.at("requestPolicy");
    if !policy.exists() {
        return;
    }
    if !shared {
        return policy.forbidden("allowMultipleAllocations must be true");
    }
    let (values, range, default) =
        (policy.at("validValues"), policy.at("validRange"), policy.at("default"));
    let most = capacity.at("value").quantity();
    match (!values.is_empty(), range.exists()) {
        (true, true) => policy.forbidden("exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time"),
        (true, false) if !default.exists() => default.required("required when validValues is defined"),
        (false, true) if !default.exists() => default.required("required when validRange is defined"),
        (true, false) => valid_values(&values, &default, most),
        (false, true) => valid_range(&range, &default, most),
        (false, false) => {}
    }
}

fn valid_values(values: &Field<'_, '_>, default: &Field<'_, '_>, most: Option<Quantity>) {
    let amounts: Vec<Option<Quantity>> = values.items().map(|value| value.quantity()).collect();
    for (i, value) in values.items().enumerate().skip(1) {
        if amounts[i - 1] > amounts[i] {
            value.invalid("values must be sorted in ascending order");
        }
    }
    if !values.at_most(MAX_VALUES) {
        return values.invalid_as(default.text(), DEFAULT);
    }
    for (value, amount) in values.items().zip(&amounts) {
        if *amount > most {
            let most = most.as_ref().map(ToString::to_string).unwrap_or_default();
            value.invalid(format!("option is larger than capacity value: {most}"));
        }
    }
    for (i, value) in values.items().enumerate() {
        if amounts[..i].contains(&amounts[i]) {
            value.duplicate();
        }
    }
    if !amounts.contains(&default.quantity()) {
        values.invalid_as(default.text(), DEFAULT);
    }
}

const DEFAULT: &str = "default value is not valid according to the requestPolicy";

fn valid_range(range: &Field<'_, '_>, default: &Field<'_, '_>, most: Option<Quantity>) {
    let (low, high, step) = (range.at("min"), range.at("max"), range.at("step"));
    let default_place = range.spelled("default");
    if !low.exists() {
        return low.required("required when validRange is defined");
    }
    let shown = most.as_ref().map(ToString::to_string).unwrap_or_default();
    let (min, max, usual) = (low.quantity(), high.quantity(), default.quantity());
    if min > most {
        low.invalid(format!("min is larger than capacity value: {shown}"));
    }
    if usual < min {
        default_place
            .invalid_as(default.text(), format!("default is less than min: {}", low.text()));
    }
    if high.exists() {
        if min > max {
            high.invalid_as(low.text(), format!("min is larger than max: {}", high.text()));
        }
        if max > most {
            high.invalid(format!("max is larger than capacity value: {shown}"));
        }
        if usual > max {
            let detail = format!("default is more than max: {}", high.text());
            default_place.invalid_as(default.text(), detail);
        }
    }
    let Some(width) = step.quantity() else { return };
    if width.sign().is_le() {
        return step.invalid("must be greater than zero");
    }
    let sum = min.clone().map(|min| min + &width);
    if sum > most {
        let sum = sum.map(|sum| sum.to_string()).unwrap_or_default();
        step.invalid(format!("one step {sum} is larger than capacity value: {shown}"));
    }
    let all = [(default, &default_place), (&low, &low), (&high, &high), (&step, &step)];
    let before = range.count();
    for (value, place) in all {
        if value.quantity().is_some_and(|value| value.is_negative()) {
            place.invalid_as(value.text(), super::super::check::NOT_NEGATIVE);
        }
    }
    if range.count() != before {
        return;
    }
    for value in [default, &high] {
        let Some(amount) = value.quantity() else { continue };
        // Whole units only: to count in thousandths is a feature that is off.
        let from = min.as_ref().map_or(0, Quantity::value);
        if (amount.value() - from) % width.value().max(1) != 0 {
            step.invalid_as(
                value.text(),
                format!(
                    "value is not a multiple of a given step ({}) from ({})",
                    step.text(),
                    low.text()
                ),
            );
        }
    }
}
