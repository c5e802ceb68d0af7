//! Claims and a node → a device for each request, or nothing.
//!
//! It goes through claims, requests and devices in order and takes what fits; where that leads nowhere
//! it goes back to the last choice. What it tries and in which order is upstream's, so that a claim gets
//! the same devices.
mod read;
mod result;
mod search;

use super::capacity::{self, Amounts};
use super::constraint::Constraint;
use super::ledger::Ledger;
use super::pools::{self, Counters, Offer, Pool};
use crate::cluster::NodeRow;
use k8s_openapi::api::resource::v1::{
    AllocationResult, CapacityRequirements, DeviceClaim, DeviceClass, DeviceSelector,
    DeviceToleration, ResourceClaim,
};
use read::{selectors_of, selects};
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

fn wishes(claim: &ResourceClaim) -> &Option<DeviceClaim> {
    claim.spec.as_ref().map_or(&None, |spec| &spec.devices)
}

fn has_capacity(offer: &Offer, wanted: &Wanted<'_>, taken: &[&Amounts]) -> Result<bool, String> {
    let device = offer.device();
    let empty = BTreeMap::new();
    capacity::fits(wanted.capacity, device.capacity.as_ref().unwrap_or(&empty), taken)
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
