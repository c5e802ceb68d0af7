//! Which slice each endpoint is in: as few slices as can be are changed.
use super::endpoint::Group;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Endpoints in one slice: upstream's `--max-endpoints-per-slice`.
pub const SLICE: usize = 100;

/// One slice as it was and as it is to be.
pub struct Fitted {
    /// `None`: it is to be made.
    pub old: Option<Arc<EndpointSlice>>,
    pub new: EndpointSlice,
}

impl Fitted {
    /// Besides hints.
    pub fn is_changed(&self) -> bool {
        let Some(old) = &self.old else { return true };
        let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
        let without_hints = |mut all: Vec<Endpoint>| {
            all.iter_mut().for_each(|endpoint| endpoint.hints = None);
            all
        };
        old.metadata != self.new.metadata
            || old.ports != self.new.ports
            || without_hints(endpoints(old)) != without_hints(endpoints(&self.new))
    }

    pub fn is_equal(&self) -> bool {
        // An empty list is as good as none.
        let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
        self.old.as_ref().is_some_and(|old| {
            old.metadata == self.new.metadata
                && old.ports == self.new.ports
                && endpoints(old) == endpoints(&self.new)
        })
    }
}

/// The slices that there are to be, and those that are of no use any more.
pub fn fit(
    service: &Service,
    wanted: BTreeMap<Group, Vec<Endpoint>>,
    slices: Vec<Arc<EndpointSlice>>,
) -> (Vec<Fitted>, Vec<Arc<EndpointSlice>>) {
    let labels = super::labels(service);
    let (mut fitted, mut made, mut rest) = (Vec::new(), Vec::new(), slices);
    for (group, endpoints) in wanted {
        let (own, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|it| group.is_of(it));
        rest = others;
        let is_empty = endpoints.is_empty();
        let mut left = Left::new(endpoints);
        let mut kept = Vec::new();
        for old in own {
            let mut new = (*old).clone();
            new.metadata.labels = Some(labels.clone());
            let stay = old.endpoints.iter().flatten().filter_map(|it| left.take(it));
            new.endpoints = Some(stay.collect());
            let has_none = new.endpoints.as_ref().is_none_or(Vec::is_empty);
            // One that says that there is nothing stays, if that is so.
            if has_none && !(is_empty && kept.is_empty()) {
                rest.push(old);
            } else {
                kept.push(Fitted { old: Some(old), new });
            }
        }
        fill(&mut kept, &mut left);
        let mut left = left.all();
        let room = kept.iter_mut().filter(|it| len(it) + left.len() <= SLICE && left.len() < SLICE);
        // The fullest in which all of them find a place.
        if let Some(slice) = room.max_by_key(|it| len(it)).filter(|_| !left.is_empty()) {
            slice.new.endpoints.get_or_insert_default().append(&mut left);
        }
        made.extend(left.chunks(SLICE).map(|some| group.slice(service, &labels, some)));
        if is_empty && kept.is_empty() {
            made.push(group.slice(service, &labels, &[]));
        }
        fitted.extend(kept);
    }
    fitted.extend(made.into_iter().map(|new| reuse(new, &mut rest, service)));
    (fitted, rest)
}

fn len(fitted: &Fitted) -> usize {
    fitted.new.endpoints.as_ref().map_or(0, Vec::len)
}

/// Slices that are written anyway are filled first, the fullest before the others.
fn fill(kept: &mut [Fitted], left: &mut Left) {
    let mut written: Vec<&mut Fitted> = kept.iter_mut().filter(|it| it.is_changed()).collect();
    written.sort_by_key(|it| std::cmp::Reverse(len(it)));
    for slice in written {
        let room = SLICE.saturating_sub(len(slice));
        slice.new.endpoints.get_or_insert_default().extend(left.some(room));
    }
}

/// A slice that would go becomes one that is to be made, so that there is one write instead of two.
fn reuse(made: EndpointSlice, rest: &mut Vec<Arc<EndpointSlice>>, service: &Service) -> Fitted {
    let is_ours = |slice: &EndpointSlice| {
        let owners = slice.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| Some(&owner.uid) == service.metadata.uid.as_ref())
    };
    let at = rest.iter().position(|it| it.address_type == made.address_type && is_ours(it));
    let Some(at) = at else { return Fitted { old: None, new: made } };
    let old = rest.swap_remove(at);
    let mut new = (*old).clone();
    new.metadata.labels = made.metadata.labels;
    (new.ports, new.endpoints) = (made.ports, made.endpoints);
    Fitted { old: Some(old), new }
}

/// Endpoints that have no slice yet, in their order.
struct Left {
    endpoints: Vec<Option<Endpoint>>,
    places: HashMap<(Vec<String>, String), usize>,
    next: usize,
}

impl Left {
    fn new(endpoints: Vec<Endpoint>) -> Left {
        let places =
            endpoints.iter().enumerate().map(|(place, it)| (identity(it), place)).collect();
        Left { endpoints: endpoints.into_iter().map(Some).collect(), places, next: 0 }
    }

    /// The one that is the same pod at the same address, whatever its conditions are.
    fn take(&mut self, endpoint: &Endpoint) -> Option<Endpoint> {
        let place = self.places.get(&identity(endpoint))?;
        self.endpoints[*place].take()
    }

    fn some(&mut self, count: usize) -> Vec<Endpoint> {
        let mut some = Vec::new();
        while some.len() < count && self.next < self.endpoints.len() {
            some.extend(self.endpoints[self.next].take());
            self.next += 1;
        }
        some
    }

    fn all(self) -> Vec<Endpoint> {
        self.endpoints.into_iter().flatten().collect()
    }
}

fn identity(endpoint: &Endpoint) -> (Vec<String>, String) {
    let uid = endpoint.target_ref.as_ref().and_then(|it| it.uid.clone());
    (endpoint.addresses.clone(), uid.unwrap_or_default())
}
