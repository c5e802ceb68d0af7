//! Which device each request gets: one after the other, and back where that leads nowhere.
use super::read::tolerates;
use super::{Chosen, Failure, MOST, Place, Search, Stop, has_capacity};
use crate::devices::capacity::{self, Amounts};
use crate::devices::ledger::{Use, key_of};
use crate::devices::pools::quantity;
use std::collections::BTreeMap;
use std::time::Instant;

impl<'a> Search<'a> {
    /// Finds devices for everything from here on. `from`: devices before it were tried by who asks.
    pub(super) fn next(&mut self, place: Place, is_sub: bool, from: usize) -> Result<bool, Stop> {
        self.steps += 1;
        if self.steps.is_multiple_of(256)
            && self.deadline.is_some_and(|deadline| Instant::now() > deadline)
        {
            return Err(Failure::Timeout.into());
        }
        if place.claim >= self.claims.len() {
            return Ok(true);
        }
        if place.request >= self.wanted[place.claim].len() {
            let next = Place { claim: place.claim + 1, ..Place::default() };
            // What is too much for a later claim is not this one's.
            return match self.next(next, false, 0) {
                Err(Stop::TooMany) => Ok(false),
                outcome => outcome,
            };
        }
        if !is_sub && self.wanted[place.claim][place.request][0].parent.is_some() {
            return self.alternatives(place);
        }
        let wanted = &self.wanted[place.claim][place.request][place.sub];
        let (count, all) = (wanted.count, wanted.all.clone());
        if all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if place.device >= count {
            let next = Place { claim: place.claim, request: place.request + 1, ..Place::default() };
            return self.next(next, false, 0);
        }
        if count - place.device > MOST - self.chosen[place.claim].len() {
            return Err(Stop::TooMany);
        }
        let onwards = Place { device: place.device + 1, ..place };
        if let Some(all) = all {
            let (pool, device) = all[place.device];
            let Some(undo) = self.take(place, [pool, device], true)? else { return Ok(false) };
            let outcome = self.next(onwards, is_sub, 0);
            if !matches!(outcome, Ok(true)) {
                self.give_back(place, undo);
            }
            return outcome;
        }
        let pools = self.pools;
        let mut number = 0;
        for (pool_at, pool) in pools.iter().enumerate() {
            if pool.is_incomplete || pool.is_invalid {
                continue;
            }
            for at in 0..pool.devices.len() {
                number += 1;
                // Of equal requests for several devices, order does not matter.
                if number <= from || !self.is_free(place, [pool_at, at])? {
                    continue;
                }
                let Some(undo) = self.take(place, [pool_at, at], false)? else { continue };
                let outcome = self.next(onwards, is_sub, number);
                if matches!(outcome, Ok(true)) {
                    return outcome;
                }
                self.give_back(place, undo);
                outcome?;
            }
        }
        Ok(false)
    }

    fn alternatives(&mut self, place: Place) -> Result<bool, Stop> {
        let mut all_too_many = true;
        for sub in 0..self.wanted[place.claim][place.request].len() {
            match self.next(Place { sub, ..place }, true, 0) {
                Err(Stop::TooMany) => continue,
                Err(stop) => return Err(stop),
                Ok(true) => {
                    self.picked[place.claim][place.request] = sub;
                    return Ok(true);
                }
                Ok(false) => all_too_many = false,
            }
        }
        if all_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Whether the device is what is asked for, and nobody has it.
    fn is_free(&mut self, place: Place, at: [usize; 2]) -> Result<bool, Stop> {
        if !self.may_use(place, at) {
            return Ok(false);
        }
        let Place { claim, request, sub, .. } = place;
        let wanted = std::mem::take(&mut self.wanted);
        let found = self.is_selected(
            [claim, request, sub],
            at,
            self.claims[claim],
            &wanted[claim][request][sub],
        );
        self.wanted = wanted;
        Ok(found? && self.has_room(place, at)?)
    }

    fn may_use(&self, place: Place, at: [usize; 2]) -> bool {
        let wanted = &self.wanted[place.claim][place.request][place.sub];
        let takers = self.taking.get(&at).map(Vec::as_slice).unwrap_or_default();
        match wanted.admin_access {
            true => !takers.contains(&place.claim),
            false => takers.is_empty() && self.used(at).is_none_or(|used| used.dedicated == 0),
        }
    }

    fn used(&self, [pool, device]: [usize; 2]) -> Option<&'a Use> {
        self.ledger.used(&self.pools[pool].devices[device].id)
    }

    fn has_room(&self, place: Place, at: [usize; 2]) -> Result<bool, Stop> {
        let wanted = &self.wanted[place.claim][place.request][place.sub];
        let offer = &self.pools[at[0]].devices[at[1]];
        let mut taken: Vec<&Amounts> = Vec::new();
        taken.extend(self.used(at).map(|used| &used.capacity));
        taken.extend(self.sharing.get(&at));
        has_capacity(offer, wanted, &taken).map_err(|problem| {
            let claim = key_of(self.claims[place.claim]);
            Failure::Error(format!(
                "claim {claim}, request {}: checking capacity for device {}: {problem}",
                wanted.name, offer.id
            ))
            .into()
        })
    }

    /// Takes a device; `None`: it cannot be had. `must`: all devices are wanted.
    fn take(&mut self, place: Place, at: [usize; 2], must: bool) -> Result<Option<Undo>, Stop> {
        let offer = &self.pools[at[0]].devices[at[1]];
        if !self.may_use(place, at) {
            return Ok(None);
        }
        let wanted = &self.wanted[place.claim][place.request][place.sub];
        let is_share = offer.is_shareable();
        let (base, sub) = (wanted.base().to_owned(), wanted.sub().map(str::to_owned));
        let is_tainted = offer.taints.iter().any(|taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !wanted.tolerations.iter().any(|toleration| tolerates(toleration, taint))
        });
        if is_tainted {
            return Ok(None);
        }
        let consumed = match is_share {
            true => {
                let empty = BTreeMap::new();
                let capacities = offer.device().capacity.as_ref().unwrap_or(&empty);
                let consumed = capacity::consumed(wanted.capacity, capacities);
                Some(consumed.map_err(|problem| {
                    let claim = key_of(self.claims[place.claim]);
                    Failure::Error(format!(
                        "claim {claim}, request {}: computing consumed capacity for device {}: {problem}",
                        wanted.name, offer.id
                    ))
                })?)
            }
            false => None,
        };
        // Whoever shares a device that is in use already takes nothing more of its pool.
        let is_in_use = is_share && (self.used(at).is_some() || self.sharing.contains_key(&at));
        let counts = !is_in_use && offer.device().consumes_counters.is_some();
        if counts && !self.count(at, true) {
            return Ok(None);
        }
        let (id, device) = (&offer.id, offer.device());
        let constraints = &mut self.constraints[place.claim];
        for number in 0..constraints.len() {
            if constraints[number].add(&base, sub.as_deref(), id, device) {
                continue;
            }
            for added in &mut constraints[..number] {
                added.remove(&base, sub.as_deref());
            }
            if counts {
                self.count(at, false);
            }
            if must {
                let claim = key_of(self.claims[place.claim]);
                let name = sub.as_deref().unwrap_or(&base);
                return Err(Failure::Error(format!(
                    "claim {claim}, request {name}: cannot add device {id} because a claim constraint would not be satisfied"
                ))
                .into());
            }
            return Ok(None);
        }
        // Room comes after constraints: where all devices are wanted, a constraint in the way is an error.
        if !self.has_room(place, at)? {
            for added in &mut self.constraints[place.claim] {
                added.remove(&base, sub.as_deref());
            }
            if counts {
                self.count(at, false);
            }
            return Ok(None);
        }
        let had_share = self.sharing.contains_key(&at);
        match &consumed {
            None => self.taking.entry(at).or_default().push(place.claim),
            Some(consumed) => {
                let sums = self.sharing.entry(at).or_default();
                for (name, amount) in consumed {
                    *sums.entry(name.clone()).or_insert(api::quantity::Quantity::ZERO) += amount;
                }
            }
        }
        self.chosen[place.claim].push(Chosen {
            request: place.request,
            sub: place.sub,
            pool: at[0],
            device: at[1],
            consumed: consumed.clone().filter(|consumed| !consumed.is_empty()),
            is_share,
        });
        Ok(Some(Undo { at, base, sub, counts, consumed, had_share }))
    }

    fn give_back(&mut self, place: Place, undo: Undo) {
        let Undo { at, base, sub, counts, consumed, had_share } = undo;
        self.chosen[place.claim].pop();
        match consumed {
            None => {
                if let Some(takers) = self.taking.get_mut(&at) {
                    takers.retain(|claim| *claim != place.claim);
                }
            }
            Some(_) if !had_share => drop(self.sharing.remove(&at)),
            Some(consumed) => {
                if let Some(sums) = self.sharing.get_mut(&at) {
                    for (name, amount) in &consumed {
                        if let Some(sum) = sums.get_mut(name) {
                            *sum -= amount;
                        }
                    }
                }
            }
        }
        for constraint in &mut self.constraints[place.claim] {
            constraint.remove(&base, sub.as_deref());
        }
        if counts {
            self.count(at, false);
        }
    }

    /// Takes what the device uses of its pool's counters, if that is left; or gives it back.
    fn count(&mut self, at: [usize; 2], more: bool) -> bool {
        let pool = &self.pools[at[0]];
        let device = pool.devices[at[1]].device();
        let taken = self.counters.entry(at[0]).or_default();
        for consumption in device.consumes_counters.iter().flatten() {
            let set = taken.entry(consumption.counter_set.clone()).or_default();
            for (name, counter) in &consumption.counters {
                let sum = set.entry(name.clone()).or_insert(api::quantity::Quantity::ZERO);
                match more {
                    true => *sum += &quantity(&counter.value.0),
                    false => *sum -= &quantity(&counter.value.0),
                }
            }
        }
        let is_left = taken.iter().all(|(set, counters)| {
            let left = pool.counters.get(set);
            counters.iter().all(|(name, sum)| {
                left.and_then(|left| left.get(name)).is_none_or(|left| sum <= left)
            })
        });
        if more && !is_left {
            self.count(at, false);
        }
        is_left
    }
}

/// What has to be taken back.
struct Undo {
    at: [usize; 2],
    base: String,
    sub: Option<String>,
    counts: bool,
    consumed: Option<Amounts>,
    had_share: bool,
}
