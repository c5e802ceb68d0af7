//! The devices that can be used from one node, pool by pool.
use super::ledger::{DeviceId, Ledger};
use crate::cluster::NodeRow;
use crate::selectors::NodeTerm;
use api::quantity::Quantity;
use cel::device::Attribute;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceTaint, ResourceSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Amounts by the name of their set and their own.
pub type Counters = BTreeMap<String, BTreeMap<String, Quantity>>;

pub struct Pool {
    pub driver: Box<str>,
    pub name: Box<str>,
    /// Some of its slices are not there yet.
    pub is_incomplete: bool,
    pub is_invalid: bool,
    pub devices: Vec<Offer>,
    /// What is left of its counters, by what devices that are taken use.
    pub counters: Counters,
}

/// A device that the node can use.
pub struct Offer {
    pub id: DeviceId,
    pub slice: Arc<ResourceSlice>,
    at: usize,
    pub taints: Vec<DeviceTaint>,
    /// The node is one of those that the device itself names.
    pub reaches_node: bool,
}

impl Offer {
    pub fn device(&self) -> &Device {
        &devices(&self.slice)[self.at]
    }

    pub fn is_shareable(&self) -> bool {
        self.device().allow_multiple_allocations == Some(true)
    }
}

fn devices(slice: &ResourceSlice) -> &[Device] {
    slice.spec.devices.as_deref().unwrap_or_default()
}

pub fn attribute(attribute: &DeviceAttribute) -> Option<Attribute> {
    let DeviceAttribute { bool, int, string, version, .. } = attribute;
    int.map(Attribute::Int)
        .or(bool.map(Attribute::Bool))
        .or_else(|| string.clone().map(Attribute::String))
        .or_else(|| version.clone().map(Attribute::Version))
}

/// Whether a slice, or a device, is for the node.
pub fn is_for(
    row: &NodeRow,
    name: Option<&str>,
    all: Option<bool>,
    selector: Option<&NodeSelector>,
) -> bool {
    let name = name.filter(|name| !name.is_empty());
    let mut terms = selector.iter().flat_map(|it| &it.node_selector_terms).map(NodeTerm::of);
    match name {
        Some(name) => *row.node.name == *name,
        None => {
            all == Some(true) || terms.any(|term| term.matches(&row.node.name, &row.node.labels))
        }
    }
}

fn is_device_for(row: &NodeRow, device: &Device) -> bool {
    is_for(row, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
}

fn is_relevant(row: &NodeRow, slice: &ResourceSlice) -> bool {
    let spec = &slice.spec;
    if uses_groups(slice) {
        return false;
    }
    let name = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if name.is_some() || spec.all_nodes == Some(true) || spec.node_selector.is_some() {
        return is_for(row, name, spec.all_nodes, spec.node_selector.as_ref());
    }
    spec.per_device_node_selection == Some(true)
        && devices(slice).iter().any(|device| is_device_for(row, device))
}

/// Compatibility groups are not on by default; whoever uses them is not looked at, as upstream has it.
fn uses_groups(slice: &ResourceSlice) -> bool {
    let consumption = devices(slice).iter().flat_map(|it| it.consumes_counters.iter().flatten());
    consumption
        .into_iter()
        .any(|it| it.compatibility_groups.as_ref().is_some_and(|g| !g.is_empty()))
}

/// Pools by driver and name; those whose devices have to be made ready come last.
pub fn gather(ledger: &Ledger, row: &NodeRow) -> Vec<Pool> {
    let mut found: BTreeMap<(&str, &str), Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
    let near = ledger.slices_near(&row.node.name);
    for slice in near.filter(|slice| is_relevant(row, slice)) {
        let spec = &slice.spec;
        let slices = found.entry((&spec.driver, &spec.pool.name)).or_default();
        let newest = slices.first().map_or(i64::MIN, |first| first.spec.pool.generation);
        if spec.pool.generation > newest {
            slices.clear();
        }
        if spec.pool.generation >= newest {
            slices.push(slice);
        }
    }
    let mut pools = Vec::new();
    for ((driver, name), here) in found {
        let Some(first) = here.first().map(|slice| &slice.spec.pool) else { continue };
        let mut elsewhere = Vec::new();
        if here.len() as i64 != first.resource_slice_count {
            // The rest of the pool may be for other nodes.
            let of_pool = ledger.slices().filter(|slice| {
                slice.spec.driver == driver && slice.spec.pool.name == name && !uses_groups(slice)
            });
            let all: Vec<_> = of_pool.collect();
            if all.iter().any(|slice| slice.spec.pool.generation > first.generation) {
                continue;
            }
            let same = all.into_iter().filter(|it| it.spec.pool.generation == first.generation);
            let same: Vec<_> = same.collect();
            if same.len() as i64 != first.resource_slice_count {
                pools.push(Pool { is_incomplete: true, ..Pool::empty(driver, name) });
                continue;
            }
            elsewhere = same
                .into_iter()
                .filter(|slice| !here.iter().any(|it| it.metadata.name == slice.metadata.name))
                .collect();
        }
        pools.push(Pool::of(ledger, row, driver, name, &here, &elsewhere));
    }
    let (last, mut first): (Vec<Pool>, Vec<Pool>) =
        pools.into_iter().partition(Pool::has_binding_conditions);
    first.extend(last);
    first
}

impl Pool {
    fn empty(driver: &str, name: &str) -> Pool {
        Pool {
            driver: driver.into(),
            name: name.into(),
            is_incomplete: false,
            is_invalid: false,
            devices: Vec::new(),
            counters: Counters::new(),
        }
    }

    fn of(
        ledger: &Ledger,
        row: &NodeRow,
        driver: &str,
        name: &str,
        here: &[&Arc<ResourceSlice>],
        elsewhere: &[&Arc<ResourceSlice>],
    ) -> Pool {
        let mut pool = Pool::empty(driver, name);
        let all = || here.iter().chain(elsewhere);
        for set in all().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
            let of_set = set.counters.iter();
            let amounts = of_set.map(|(name, counter)| (name.clone(), quantity(&counter.value.0)));
            pool.is_invalid |= pool.counters.insert(set.name.clone(), amounts.collect()).is_some();
        }
        let mut names = BTreeSet::new();
        for slice in here {
            for (at, device) in devices(slice).iter().enumerate() {
                let id = DeviceId {
                    driver: driver.into(),
                    pool: name.into(),
                    device: device.name.as_str().into(),
                };
                pool.is_invalid |= !names.insert(&device.name);
                let per_device = slice.spec.per_device_node_selection == Some(true);
                pool.devices.push(Offer {
                    taints: ledger.taints(&id, device.taints.as_deref().unwrap_or_default()),
                    id,
                    slice: (*slice).clone(),
                    at,
                    reaches_node: !per_device || is_device_for(row, device),
                });
            }
        }
        for device in all().flat_map(|slice| devices(slice)) {
            let id = DeviceId {
                driver: driver.into(),
                pool: name.into(),
                device: device.name.as_str().into(),
            };
            let is_taken = ledger.used(&id).is_some();
            for consumption in device.consumes_counters.iter().flatten() {
                let Some(set) = pool.counters.get_mut(&consumption.counter_set) else {
                    pool.is_invalid = true;
                    continue;
                };
                for (name, counter) in &consumption.counters {
                    match set.get_mut(name) {
                        Some(left) if is_taken => *left -= &quantity(&counter.value.0),
                        Some(_) => {}
                        None => pool.is_invalid = true,
                    }
                }
            }
        }
        match pool.is_invalid {
            true => Pool { is_invalid: true, ..Pool::empty(driver, name) },
            false => pool,
        }
    }

    fn has_binding_conditions(&self) -> bool {
        self.devices.iter().any(|offer| offer.device().binding_conditions.is_some())
    }
}

pub fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or(Quantity::ZERO)
}
