//! What claims ask for, and which devices are that.
use super::{Failure, MOST, Search, Wanted, has_capacity, wishes};
use crate::devices::constraint::Constraint;
use crate::devices::ledger::{Ledger, key_of, requests};
use crate::devices::pools::{self, Offer, quantity};
use cel::device::Device as Seen;
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceSelector, DeviceToleration, ResourceClaim,
};

impl<'a> Search<'a> {
    pub(super) fn read(&mut self, at: usize, claim: &'a ResourceClaim) -> Result<(), Failure> {
        let mut least = 0_usize;
        let mut all = Vec::new();
        for (number, request) in requests(claim).iter().enumerate() {
            let mut alternatives = Vec::new();
            let about = |name: &str| format!("claim {}, request {name}", key_of(claim));
            match (&request.exactly, request.first_available.as_deref().unwrap_or_default()) {
                (_, subs) if !subs.is_empty() => {
                    for (sub, it) in subs.iter().enumerate() {
                        let wanted = self.one(
                            (claim, [at, number, sub]),
                            (&it.name, Some(request.name.as_str()), &it.device_class_name),
                            (&it.selectors, &it.tolerations),
                            (it.capacity.as_ref(), false),
                            (it.allocation_mode.as_deref(), it.count),
                        )?;
                        alternatives.push(wanted);
                    }
                }
                (Some(it), _) => {
                    let wanted = self.one(
                        (claim, [at, number, 0]),
                        (&request.name, None, &it.device_class_name),
                        (&it.selectors, &it.tolerations),
                        (it.capacity.as_ref(), it.admin_access == Some(true)),
                        (it.allocation_mode.as_deref(), it.count),
                    )?;
                    alternatives.push(wanted);
                }
                (None, _) => {
                    let about = about(&request.name);
                    return Err(Failure::Error(format!(
                        "{about}: missing device class name (unsupported request type?)"
                    )));
                }
            }
            let fewest = alternatives.iter().map(|it| it.count).min().unwrap_or(0);
            if fewest > MOST - least {
                return Err(Failure::Error(format!(
                    "{}: adding {fewest} devices exceeds the claim limit of {MOST}, with {least} already accounted for",
                    about(&request.name)
                )));
            }
            least += fewest;
            all.push(alternatives);
        }
        let constraints = wishes(claim).iter().flat_map(|it| it.constraints.iter().flatten());
        let mut own = Vec::new();
        for (number, constraint) in constraints.enumerate() {
            own.push(Constraint::of(constraint).ok_or_else(|| {
                Failure::Error(format!(
                    "claim {}, constraint #{number}: empty constraint (unsupported constraint type?)",
                    key_of(claim)
                ))
            })?);
        }
        self.picked.push(vec![0; all.len()]);
        self.wanted.push(all);
        self.constraints.push(own);
        Ok(())
    }

    fn one(
        &mut self,
        (claim, key): (&'a ResourceClaim, [usize; 3]),
        (name, parent, class): (&'a str, Option<&'a str>, &'a str),
        (selectors, tolerations): (
            &'a Option<Vec<DeviceSelector>>,
            &'a Option<Vec<DeviceToleration>>,
        ),
        (capacity, admin_access): (Option<&'a CapacityRequirements>, bool),
        (mode, count): (Option<&str>, Option<i64>),
    ) -> Result<Wanted<'a>, Failure> {
        let about = || format!("claim {}, request {name}", key_of(claim));
        let error = |text: String| Failure::Error(format!("{}: {text}", about()));
        if class.is_empty() {
            return Err(error("missing device class name (unsupported request type?)".to_owned()));
        }
        let found = self.ledger.classes.get(class).ok_or_else(|| {
            error(format!(
                "could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found"
            ))
        })?;
        let mut wanted = Wanted {
            name,
            parent,
            class: found,
            selectors: selectors.as_deref().unwrap_or_default(),
            tolerations: tolerations.as_deref().unwrap_or_default(),
            capacity,
            admin_access,
            count: count.unwrap_or(1).max(0) as usize,
            all: None,
        };
        match mode.unwrap_or("ExactCount") {
            "ExactCount" => {}
            "All" => {
                let mut all = Vec::new();
                for (pool_at, pool) in self.pools.iter().enumerate() {
                    let id = format!("{}/{}", pool.driver, pool.name);
                    if pool.is_incomplete {
                        return Err(error(format!(
                            "asks for all devices, but resource pool {id} is currently being updated"
                        )));
                    }
                    if pool.is_invalid {
                        return Err(error(format!(
                            "asks for all devices, but resource pool {id} is currently invalid"
                        )));
                    }
                    for (at, offer) in pool.devices.iter().enumerate() {
                        if self.is_selected(key, [pool_at, at], claim, &wanted)?
                            && has_capacity(offer, &wanted, &[]).map_err(&error)?
                        {
                            all.push((pool_at, at));
                        }
                    }
                }
                wanted.count = all.len();
                wanted.all = Some(all);
            }
            other => return Err(error(format!("unsupported count mode {other}"))),
        }
        Ok(wanted)
    }

    pub(super) fn is_selected(
        &mut self,
        key: [usize; 3],
        at: [usize; 2],
        claim: &ResourceClaim,
        wanted: &Wanted<'_>,
    ) -> Result<bool, Failure> {
        if let Some(known) = self.matches.get(&(key, at)) {
            return Ok(*known);
        }
        let offer = &self.pools[at[0]].devices[at[1]];
        let class = wanted.class.metadata.name.as_deref().unwrap_or_default();
        let of_class = selectors_of(wanted.class);
        let matches = offer.reaches_node
            && selects(self.ledger, offer, of_class, || format!("class {class}"))?
            && selects(self.ledger, offer, wanted.selectors, || {
                format!("claim {}", key_of(claim))
            })?;
        self.matches.insert((key, at), matches);
        Ok(matches)
    }
}

pub(super) fn selectors_of(class: &DeviceClass) -> &[DeviceSelector] {
    let spec = class.spec.as_ref();
    spec.and_then(|spec| spec.selectors.as_deref()).unwrap_or_default()
}

pub(super) fn tolerates(
    toleration: &DeviceToleration,
    taint: &k8s_openapi::api::resource::v1::DeviceTaint,
) -> bool {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (said(&toleration.effect), said(&toleration.key));
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => said(&toleration.value) == said(&taint.value),
            "Exists" => true,
            _ => false,
        }
}

pub(super) fn selects(
    ledger: &Ledger,
    offer: &Offer,
    selectors: &[DeviceSelector],
    whose: impl Fn() -> String,
) -> Result<bool, Failure> {
    for (number, selector) in selectors.iter().enumerate() {
        let Some(cel) = &selector.cel else {
            return Err(Failure::Error(format!(
                "{}, selector #{number}: CEL expression empty (unsupported selector type?)",
                whose()
            )));
        };
        let compiled = ledger.selector(&cel.expression);
        let compiled = compiled.as_ref().as_ref().map_err(|problem| {
            let whose = whose();
            Failure::Error(format!("{whose}: selector #{number}: CEL compile error: {problem}"))
        })?;
        let device = offer.device();
        let attributes = device.attributes.iter().flatten();
        let seen = Seen {
            driver: &offer.id.driver,
            allow_multiple_allocations: offer.is_shareable(),
            attributes: attributes
                .filter_map(|(name, it)| Some((name.as_str(), pools::attribute(it)?)))
                .collect(),
            capacity: device
                .capacity
                .iter()
                .flatten()
                .map(|(name, it)| (name.as_str(), quantity(&it.value.0)))
                .collect(),
        };
        let matches = compiled.matches(&seen).map_err(|problem| {
            Failure::Error(format!(
                "{}: selector #{number} on device {}: CEL runtime error: {problem}",
                whose(),
                offer.id
            ))
        })?;
        if !matches {
            return Ok(false);
        }
    }
    Ok(true)
}
