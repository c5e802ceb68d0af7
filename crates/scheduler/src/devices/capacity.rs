//! Devices that several claims share: how much a request takes of each capacity, and whether it is left.
use super::pools::quantity;
use api::quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, DeviceCapacity,
};
use std::collections::BTreeMap;

pub type Amounts = BTreeMap<String, Quantity>;
type Capacities = BTreeMap<String, DeviceCapacity>;

/// What the request takes of everything that the device has.
pub fn consumed(
    request: Option<&CapacityRequirements>,
    capacities: &Capacities,
) -> Result<Amounts, String> {
    let asked = |name: &str| request.and_then(|it| it.requests.as_ref()?.get(name));
    let mut all = Amounts::new();
    for (name, capacity) in capacities {
        let taken = match asked(name) {
            None => usual(capacity),
            Some(asked) => rounded(quantity(&asked.0), capacity.request_policy.as_ref())
                .map_err(|problem| format!("capacity {name:?}: {problem}"))?,
        };
        if taken.is_negative() {
            return Err(format!("capacity {name:?}: capacity value is negative"));
        }
        all.insert(name.clone(), taken);
    }
    Ok(all)
}

/// Whether the device has that left, with what others have of it.
pub fn fits(
    request: Option<&CapacityRequirements>,
    capacities: &Capacities,
    taken: &[&Amounts],
) -> Result<bool, String> {
    let asked = request.iter().flat_map(|it| it.requests.iter().flatten());
    if asked.into_iter().any(|(name, _)| !capacities.contains_key(name)) {
        return Ok(false);
    }
    let own = consumed(request, capacities)?;
    for (name, capacity) in capacities {
        let mut sum = own[name].clone();
        if violates(&sum, capacity.request_policy.as_ref()) {
            return Ok(false);
        }
        for others in taken {
            if let Some(amount) = others.get(name) {
                sum += amount;
            }
        }
        if sum > quantity(&capacity.value.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn usual(capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let usual = policy.and_then(|policy| policy.default.as_ref());
    quantity(&usual.unwrap_or(&capacity.value).0)
}

/// Up to what the policy allows.
fn rounded(asked: Quantity, policy: Option<&CapacityRequestPolicy>) -> Result<Quantity, String> {
    let Some(policy) = policy else { return Ok(asked) };
    if let Some(range) = &policy.valid_range {
        return rounded_to_step(asked, range);
    }
    let allowed = policy.valid_values.iter().flatten().map(|value| quantity(&value.0));
    Ok(allowed.into_iter().find(|value| asked <= *value).unwrap_or(asked))
}

fn rounded_to_step(
    asked: Quantity,
    range: &CapacityRequestPolicyRange,
) -> Result<Quantity, String> {
    let least = quantity(&range.min.0);
    if asked < least {
        return Ok(least);
    }
    let Some(step) = &range.step else { return Ok(asked) };
    let step = quantity(&step.0);
    let (unit, [asked_units, least_units, step_units]) = units(range, [&asked, &least, &step]);
    if step_units <= 0 {
        return Ok(asked);
    }
    let beyond = || {
        format!(
            "capacity request is not representable: rounding request {asked} up to the next step passes MaxInt64"
        )
    };
    let above = asked_units.checked_sub(least_units).ok_or_else(beyond)?;
    let steps = above / step_units + i64::from(above % step_units != 0);
    let total = steps
        .checked_mul(step_units)
        .and_then(|units| units.checked_add(least_units))
        .ok_or_else(beyond)?;
    let found = match unit {
        Unit::Whole => Quantity::new(total, step.format()),
        Unit::Thousandth if total % 1000 == 0 => Quantity::new(total / 1000, step.format()),
        Unit::Thousandth => Quantity::milli(total, step.format()),
    };
    Ok(found)
}

enum Unit {
    Whole,
    Thousandth,
}

/// In thousandths, if everything in the range can be said in them.
fn units(range: &CapacityRequestPolicyRange, amounts: [&Quantity; 3]) -> (Unit, [i64; 3]) {
    let is_exact = |text: &str| {
        let amount = quantity(text);
        Quantity::milli(amount.milli_value(), amount.format()) == amount
    };
    let step = range.step.as_ref().map_or("1", |step| &step.0);
    let all = [Some(range.min.0.as_str()), range.max.as_ref().map(|it| it.0.as_str()), Some(step)];
    let is_fine = all.into_iter().flatten().all(is_exact) && quantity(step).milli_value() >= 1;
    match is_fine {
        true => (Unit::Thousandth, amounts.map(Quantity::milli_value)),
        false => (Unit::Whole, amounts.map(Quantity::value)),
    }
}

fn violates(amount: &Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref().is_some_and(|usual| quantity(&usual.0) == *amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        if range.max.as_ref().is_some_and(|most| *amount > quantity(&most.0)) {
            return true;
        }
        let Some(step) = &range.step else { return false };
        let (least, step) = (quantity(&range.min.0), quantity(&step.0));
        let (_, [amount, least, step]) = units(range, [amount, &least, &step]);
        return step > 0 && (amount - least) % step != 0;
    }
    let allowed = policy.valid_values.as_deref().unwrap_or_default();
    !allowed.is_empty() && !allowed.iter().any(|value| quantity(&value.0) == *amount)
}
