//! What there is of devices, and which are taken.
use api::names::NamespacedName;
use api::quantity::Quantity;
use cel::device::Selector;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, DeviceRequest, DeviceRequestAllocationResult, DeviceTaint,
    DeviceTaintRule, ResourceClaim, ResourceSlice,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Resources of this prefix are devices of the class that follows it.
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: Box<str>,
    pub pool: Box<str>,
    pub device: Box<str>,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A claim that a pod wants.
#[derive(Debug, Clone, PartialEq)]
pub struct PodClaim {
    /// What the pod calls it.
    pub name: Box<str>,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    Named(Box<str>),
    /// Made from a template, for this pod alone.
    Made(Box<str>),
    /// To be made; or it turned out that none is needed.
    NotYet,
    NotNeeded,
    /// Of a kind that we do not know.
    Unknown,
}

/// Who has how much of a device.
#[derive(Debug, Clone, Default)]
pub struct Use {
    /// Claims that have it to themselves.
    pub dedicated: usize,
    /// Claims that have a share.
    pub shares: usize,
    pub capacity: BTreeMap<String, Quantity>,
}

#[derive(Default)]
pub struct Ledger {
    slices: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    /// Slices that name a node, by node; and those that are for several.
    of_node: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    of_several: BTreeSet<Arc<str>>,
    pub classes: BTreeMap<Arc<str>, Arc<DeviceClass>>,
    pub rules: BTreeMap<Arc<str>, Arc<DeviceTaintRule>>,
    claims: HashMap<NamespacedName, Arc<ResourceClaim>>,
    /// Allocations that are decided and not yet seen in the API, by claim.
    pending: HashMap<NamespacedName, Arc<AllocationResult>>,
    used: HashMap<DeviceId, Use>,
    /// Compiled when first asked for.
    selectors: Mutex<HashMap<String, Arc<Result<Selector, String>>>>,
}

/// The node that a slice is for, if it names one.
fn node_of(slice: &ResourceSlice) -> Option<&str> {
    slice.spec.node_name.as_deref().filter(|name| !name.is_empty())
}

pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

pub fn results(allocation: &AllocationResult) -> &[DeviceRequestAllocationResult] {
    let devices = allocation.devices.as_ref();
    devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}

pub fn requests(claim: &ResourceClaim) -> &[DeviceRequest] {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default()
}

pub fn key_of(claim: &ResourceClaim) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(&text(&claim.metadata.namespace), &text(&claim.metadata.name))
}

impl Ledger {
    pub fn claim(&self, key: &NamespacedName) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(key)
    }

    pub fn claims(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.values()
    }

    pub fn set_slice(&mut self, name: Arc<str>, slice: Option<Arc<ResourceSlice>>) {
        if let Some(old) = self.slices.remove(&name) {
            match node_of(&old) {
                Some(node) => {
                    let is_empty = self.of_node.get_mut(node).is_some_and(|names| {
                        names.remove(&name);
                        names.is_empty()
                    });
                    if is_empty {
                        self.of_node.remove(node);
                    }
                }
                None => drop(self.of_several.remove(&name)),
            }
        }
        let Some(slice) = slice else { return };
        match node_of(&slice) {
            Some(node) => drop(self.of_node.entry(node.into()).or_default().insert(name.clone())),
            None => drop(self.of_several.insert(name.clone())),
        }
        self.slices.insert(name, slice);
    }

    /// All slices, by name.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        self.slices.values()
    }

    /// Slices that may be for a node, by name: most are for another.
    pub fn slices_near(&self, node: &str) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        static NONE: BTreeSet<Arc<str>> = BTreeSet::new();
        let own = self.of_node.get(node).unwrap_or(&NONE);
        own.union(&self.of_several).filter_map(|name| self.slices.get(name))
    }

    pub fn set_claim(&mut self, key: &NamespacedName, claim: Option<Arc<ResourceClaim>>) {
        if let Some(old) = self.claims.remove(key)
            && let Some(allocation) = allocation(&old)
            && !self.pending.contains_key(key)
        {
            self.count(allocation, false);
        }
        let Some(claim) = claim else {
            self.forget(key);
            return;
        };
        if let Some(allocation) = allocation(&claim) {
            // What was decided has arrived; it is counted by the claim from now on.
            self.forget(key);
            self.count(allocation, true);
        }
        self.claims.insert(key.clone(), claim);
    }

    pub fn is_pending(&self, key: &NamespacedName) -> bool {
        self.pending.contains_key(key)
    }

    /// The claim gets these devices, from now on.
    pub fn promise(&mut self, key: NamespacedName, allocation: Arc<AllocationResult>) {
        self.forget(&key);
        self.count(&allocation, true);
        self.pending.insert(key, allocation);
    }

    /// It does not get them after all.
    pub fn forget(&mut self, key: &NamespacedName) {
        if let Some(allocation) = self.pending.remove(key) {
            self.count(&allocation, false);
        }
    }

    /// Devices that are only looked after are not taken.
    fn count(&mut self, allocation: &AllocationResult, more: bool) {
        for result in results(allocation).iter().filter(|it| it.admin_access != Some(true)) {
            let id = DeviceId {
                driver: result.driver.as_str().into(),
                pool: result.pool.as_str().into(),
                device: result.device.as_str().into(),
            };
            let used = self.used.entry(id.clone()).or_default();
            let counter = match result.share_id.is_some() {
                true => &mut used.shares,
                false => &mut used.dedicated,
            };
            *counter = if more { *counter + 1 } else { counter.saturating_sub(1) };
            if result.share_id.is_some() {
                for (name, amount) in result.consumed_capacity.iter().flatten() {
                    let Ok(amount) = Quantity::parse(&amount.0) else { continue };
                    let sum = used.capacity.entry(name.clone()).or_insert(Quantity::ZERO);
                    match more {
                        true => *sum += &amount,
                        false => *sum -= &amount,
                    }
                }
            }
            if used.dedicated == 0 && used.shares == 0 {
                self.used.remove(&id);
            }
        }
    }

    pub fn used(&self, id: &DeviceId) -> Option<&Use> {
        self.used.get(id)
    }

    /// The class whose devices stand for a resource. Of several the youngest counts, then the first
    /// by name.
    pub fn class_of(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.classes.get(name);
        }
        let backs = |class: &&Arc<DeviceClass>| {
            let spec = class.spec.as_ref();
            spec.and_then(|spec| spec.extended_resource_name.as_deref()) == Some(resource)
        };
        let created = |class: &Arc<DeviceClass>| {
            class.metadata.creation_timestamp.as_ref().map(|time| time.0)
        };
        self.classes
            .values()
            .filter(backs)
            .reduce(|best, class| if created(class) > created(best) { class } else { best })
    }

    /// A device's own taints and those that rules put on it.
    pub fn taints(&self, id: &DeviceId, own: &[DeviceTaint]) -> Vec<DeviceTaint> {
        let of_rules = self.rules.values().filter_map(|rule| {
            let selector = rule.spec.device_selector.as_ref()?;
            let fits = |wanted: &Option<String>, is: &str| {
                wanted.as_deref().is_none_or(|wanted| wanted == is)
            };
            (fits(&selector.driver, &id.driver)
                && fits(&selector.pool, &id.pool)
                && fits(&selector.device, &id.device))
            .then(|| rule.spec.taint.clone())
        });
        own.iter().cloned().chain(of_rules).collect()
    }

    pub fn selector(&self, expression: &str) -> Arc<Result<Selector, String>> {
        let mut all = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(expression) {
            return known.clone();
        }
        // Expressions come from users: as many as fit are kept.
        if all.len() >= 1024 {
            all.clear();
        }
        let made = Arc::new(Selector::compile(expression));
        all.insert(expression.to_owned(), made.clone());
        made
    }
}
