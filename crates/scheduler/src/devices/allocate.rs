//! Claims and a node → a device for each request, or nothing.
//!
//! It goes through claims, requests and devices in order and takes what fits; where that leads nowhere
//! it goes back to the last choice. What it tries and in which order is upstream's, so that a claim gets
//! the same devices.
use super::capacity::{self, Amounts};
use super::constraint::Constraint;
use super::ledger::{Ledger, Use, key_of, requests};
use super::pools::{self, Counters, Offer, Pool, quantity};
use crate::cluster::NodeRow;
use cel::device::Device as Seen;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, CapacityRequirements, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceClaim, DeviceClass, DeviceRequest, DeviceRequestAllocationResult, DeviceSelector,
    DeviceToleration, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Devices that one claim may have: upstream's `AllocationResultsMaxSize`.
const MOST: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Somebody has to change something before it is worth another try.
    Error(String),
    /// This node cannot, and says why.
    Node(String),
    /// It took too long.
    Timeout,
}

/// `None`: there are not enough devices.
pub fn allocate(
    ledger: &Ledger,
    row: &NodeRow,
    claims: &[&ResourceClaim],
    deadline: Option<Instant>,
) -> Result<Option<Vec<AllocationResult>>, Failure> {
    let pools = pools::gather(ledger, row);
    let mut search = Search {
        ledger,
        claims,
        pools: &pools,
        deadline,
        wanted: Vec::new(),
        constraints: Vec::new(),
        matches: HashMap::new(),
        counters: HashMap::new(),
        taking: HashMap::new(),
        sharing: HashMap::new(),
        chosen: vec![Vec::new(); claims.len()],
        picked: Vec::new(),
        steps: 0,
    };
    for (at, claim) in claims.iter().enumerate() {
        search.read(at, claim)?;
    }
    match search.next(Place::default(), false, 0) {
        Ok(true) => search.results(row).map(Some),
        Ok(false) | Err(Stop::TooMany) => match pools.iter().any(|pool| pool.is_invalid) {
            true => Err(Failure::Node("invalid resource pools were encountered".to_owned())),
            false => Ok(None),
        },
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// What a request, or one of its alternatives, asks for.
struct Wanted<'a> {
    name: &'a str,
    /// The request that this is an alternative of.
    parent: Option<&'a str>,
    class: &'a Arc<DeviceClass>,
    selectors: &'a [DeviceSelector],
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
    admin_access: bool,
    count: usize,
    /// All devices that fit, if all are wanted: pool and place.
    all: Option<Vec<(usize, usize)>>,
}

impl Wanted<'_> {
    fn base(&self) -> &str {
        self.parent.unwrap_or(self.name)
    }

    fn sub(&self) -> Option<&str> {
        self.parent.map(|_| self.name)
    }

    fn full_name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{parent}/{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// How far the search is.
#[derive(Clone, Copy, Default)]
struct Place {
    claim: usize,
    request: usize,
    sub: usize,
    device: usize,
}

#[derive(Clone)]
struct Chosen {
    request: usize,
    sub: usize,
    pool: usize,
    device: usize,
    consumed: Option<Amounts>,
    is_share: bool,
}

enum Stop {
    /// More devices than a claim may have.
    TooMany,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

struct Search<'a> {
    ledger: &'a Ledger,
    claims: &'a [&'a ResourceClaim],
    pools: &'a [Pool],
    deadline: Option<Instant>,
    /// By claim, request and alternative.
    wanted: Vec<Vec<Vec<Wanted<'a>>>>,
    constraints: Vec<Vec<Constraint>>,
    /// Whether a device is what a request asks for.
    matches: HashMap<([usize; 3], [usize; 2]), bool>,
    /// What this search takes of pools' counters.
    counters: HashMap<usize, Counters>,
    /// Claims that this search gives a device to.
    taking: HashMap<[usize; 2], Vec<usize>>,
    sharing: HashMap<[usize; 2], Amounts>,
    chosen: Vec<Vec<Chosen>>,
    /// The alternative that each request got.
    picked: Vec<Vec<usize>>,
    steps: u32,
}

impl<'a> Search<'a> {
    fn read(&mut self, at: usize, claim: &'a ResourceClaim) -> Result<(), Failure> {
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

    fn is_selected(
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

    /// Finds devices for everything from here on. `from`: devices before it were tried by who asks.
    fn next(&mut self, place: Place, is_sub: bool, from: usize) -> Result<bool, Stop> {
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
        if is_tainted || !self.has_room(place, at)? {
            return Ok(None);
        }
        let wanted = &self.wanted[place.claim][place.request][place.sub];
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

    fn results(&self, row: &NodeRow) -> Result<Vec<AllocationResult>, Failure> {
        let mut all = Vec::new();
        for (at, claim) in self.claims.iter().enumerate() {
            let devices = self.chosen[at].iter().map(|chosen| self.result(at, chosen)).collect();
            let config = self.config(at, claim);
            let node_selector = self.node_selector(at, row).map_err(|problem| {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                Failure::Error(format!("create NodeSelector for claim {name}: {problem}"))
            })?;
            all.push(AllocationResult {
                allocation_timestamp: None,
                devices: Some(DeviceAllocationResult {
                    config: Some(config).filter(|config| !config.is_empty()),
                    results: Some(devices),
                }),
                node_selector,
            });
        }
        Ok(all)
    }

    fn result(&self, claim: usize, chosen: &Chosen) -> DeviceRequestAllocationResult {
        let wanted = &self.wanted[claim][chosen.request][chosen.sub];
        let offer = &self.pools[chosen.pool].devices[chosen.device];
        let device = offer.device();
        let text = |(name, amount): (&String, &api::quantity::Quantity)| {
            (name.clone(), Text(amount.to_string()))
        };
        DeviceRequestAllocationResult {
            request: wanted.full_name(),
            driver: offer.id.driver.to_string(),
            pool: offer.id.pool.to_string(),
            device: offer.id.device.to_string(),
            admin_access: wanted.admin_access.then_some(true),
            tolerations: Some(wanted.tolerations.to_vec()).filter(|all| !all.is_empty()),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
            consumed_capacity: chosen.consumed.as_ref().map(|it| it.iter().map(text).collect()),
            // Whoever writes it down gives it a name.
            share_id: chosen.is_share.then(String::new),
            skip_node_operations: None,
        }
    }

    /// Classes' configuration first, then the claim's own.
    fn config(&self, at: usize, claim: &ResourceClaim) -> Vec<DeviceAllocationConfiguration> {
        let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
        let mut of_class: HashMap<&str, std::ops::Range<usize>> = HashMap::new();
        let picked = |number: usize| &self.wanted[at][number][self.picked[at][number]];
        for number in 0..self.wanted[at].len() {
            let wanted = picked(number);
            let class = wanted.class.metadata.name.as_deref().unwrap_or_default();
            if let Some(range) = of_class.get(class) {
                for config in &mut all[range.clone()] {
                    config.requests.get_or_insert_default().push(wanted.full_name());
                }
                continue;
            }
            let start = all.len();
            let spec = wanted.class.spec.iter();
            let configs = spec.flat_map(|spec| spec.config.iter().flatten());
            all.extend(configs.map(|config| DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(vec![wanted.full_name()]),
                source: "FromClass".to_owned(),
            }));
            of_class.insert(class, start..all.len());
        }
        let is_about = |names: &[String], number: usize, request: &DeviceRequest| {
            names.contains(&request.name) || names.contains(&picked(number).full_name())
        };
        let own = wishes(claim).iter().flat_map(|devices| devices.config.iter().flatten());
        for config in own {
            let names = config.requests.as_deref().unwrap_or_default();
            let mut requests = requests(claim).iter().enumerate();
            if names.is_empty() || requests.any(|(number, it)| is_about(names, number, it)) {
                all.push(DeviceAllocationConfiguration {
                    opaque: config.opaque.clone(),
                    requests: config.requests.clone(),
                    source: "FromClaim".to_owned(),
                });
            }
        }
        // What is about all requests needs no list of them.
        for config in &mut all {
            let names = config.requests.clone().unwrap_or_default();
            let mut requests = requests(claim).iter().enumerate();
            if requests.all(|(number, request)| is_about(&names, number, request)) {
                config.requests = None;
            }
        }
        all
    }

    /// Where the devices can be used; `None`: everywhere.
    fn node_selector(&self, at: usize, row: &NodeRow) -> Result<Option<NodeSelector>, String> {
        let mut term = NodeSelectorTerm::default();
        for chosen in &self.chosen[at] {
            let offer = &self.pools[chosen.pool].devices[chosen.device];
            let (spec, device) = (&offer.slice.spec, offer.device());
            let (name, selector) = match spec.per_device_node_selection == Some(true) {
                true => (&device.node_name, &device.node_selector),
                false => (&spec.node_name, &spec.node_selector),
            };
            if name.is_some() || device.binds_to_node == Some(true) {
                let only = NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![row.node.name.to_string()]),
                };
                let term =
                    NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
                return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
            }
            match selector.as_ref().map(|selector| &selector.node_selector_terms[..]) {
                None | Some([]) => {}
                Some([one]) => {
                    add_new(&one.match_fields, &mut term.match_fields);
                    add_new(&one.match_expressions, &mut term.match_expressions);
                }
                Some(several) => {
                    let count = several.len();
                    return Err(format!(
                        "unsupported ResourceSlice.NodeSelector with {count} terms"
                    ));
                }
            }
        }
        let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
        Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] }))
    }
}

fn wishes(claim: &ResourceClaim) -> &Option<DeviceClaim> {
    claim.spec.as_ref().map_or(&None, |spec| &spec.devices)
}

fn selectors_of(class: &DeviceClass) -> &[DeviceSelector] {
    let spec = class.spec.as_ref();
    spec.and_then(|spec| spec.selectors.as_deref()).unwrap_or_default()
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

fn add_new(
    from: &Option<Vec<NodeSelectorRequirement>>,
    to: &mut Option<Vec<NodeSelectorRequirement>>,
) {
    for requirement in from.iter().flatten() {
        let all = to.get_or_insert_default();
        let sorted = |it: &NodeSelectorRequirement| {
            let mut values = it.values.clone().unwrap_or_default();
            values.sort();
            (it.key.clone(), it.operator.clone(), values)
        };
        if !all.iter().any(|other| sorted(other) == sorted(requirement)) {
            all.push(requirement.clone());
        }
    }
}

fn has_capacity(offer: &Offer, wanted: &Wanted<'_>, taken: &[&Amounts]) -> Result<bool, String> {
    let device = offer.device();
    let empty = BTreeMap::new();
    capacity::fits(wanted.capacity, device.capacity.as_ref().unwrap_or(&empty), taken)
}

fn tolerates(
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

fn selects(
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

/// Devices of a class that a node can use, and how many of them are taken.
pub fn of_class(ledger: &Ledger, row: &NodeRow, class: &DeviceClass) -> (i64, i64) {
    let selectors = selectors_of(class);
    let (mut all, mut taken) = (0, 0);
    for offer in pools::gather(ledger, row).iter().flat_map(|pool| &pool.devices) {
        if offer.reaches_node && matches!(selects(ledger, offer, selectors, String::new), Ok(true))
        {
            all += 1;
            taken += i64::from(ledger.used(&offer.id).is_some());
        }
    }
    (all, taken)
}
