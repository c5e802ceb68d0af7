//! What of a pool could still be had: partitions of devices that share counters, and capacity of devices
//! that several claims share.
use api::quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceCounterConsumption, ResourceClaim, ResourceSlice,
};
use k8s_openapi::api::resource::v1alpha3::{
    PartitionTypeStatus, ShareableCapacityStatus, ShareableSummaryStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a list in the status may hold.
const MOST: usize = 32;

pub struct Pool<'a> {
    place: String,
    driver: &'a str,
    devices: Vec<(&'a Device, Option<&'a str>)>,
    counters: Vec<&'a CounterSet>,
    /// Devices that somebody has, observers aside.
    pub in_use: BTreeSet<&'a str>,
    consumed: BTreeMap<&'a str, Quantity>,
}

#[derive(Default)]
pub struct Views {
    pub partitions: Option<Vec<PartitionTypeStatus>>,
    pub shareable: Option<ShareableSummaryStatus>,
    /// The first thing that is wrong; what is counted holds all the same.
    pub error: Option<String>,
}

type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

fn read(text: &Text) -> Quantity {
    // The API server has read it.
    Quantity::parse(&text.0).unwrap_or_default()
}

fn text(quantity: &Quantity) -> Text {
    Text(quantity.to_string())
}

impl<'a> Pool<'a> {
    /// `default`: the attribute that tells partitions apart where no slice of the pool names one.
    pub fn new(
        driver: &'a str,
        name: &'a str,
        slices: &[&'a ResourceSlice],
        claims: &'a [Arc<ResourceClaim>],
        default: Option<&'a str>,
    ) -> Pool<'a> {
        let attribute = |slice: &&'a ResourceSlice| {
            slice.spec.partition_type_attribute.as_deref().filter(|it| !it.is_empty())
        };
        let declares = slices.iter().any(|it| attribute(it).is_some());
        let default = default.filter(|_| !declares);
        let devices = slices.iter().flat_map(|slice| {
            let attribute = attribute(slice).or(default);
            slice.spec.devices.iter().flatten().map(move |device| (device, attribute))
        });
        let mut pool = Pool {
            place: format!("{driver}/{name}"),
            driver,
            devices: devices.collect(),
            counters: slices
                .iter()
                .flat_map(|it| it.spec.shared_counters.iter().flatten())
                .collect(),
            in_use: BTreeSet::new(),
            consumed: BTreeMap::new(),
        };
        let status = claims.iter().filter_map(|claim| claim.status.as_ref());
        let devices = status.filter_map(|status| status.allocation.as_ref()?.devices.as_ref());
        let results = devices.flat_map(|devices| devices.results.iter().flatten());
        let here = results.filter(|it| it.driver == driver && it.pool == name);
        for result in here.filter(|it| it.admin_access != Some(true)) {
            pool.in_use.insert(&result.device);
            for (name, quantity) in result.consumed_capacity.iter().flatten() {
                *pool.consumed.entry(name).or_default() += &read(quantity);
            }
        }
        pool
    }

    pub fn views(&self) -> Views {
        let is_grouped = self.devices.iter().any(|(_, attribute)| attribute.is_some());
        let partitions = match (is_grouped, self.counters.is_empty()) {
            (false, _) => Ok(None),
            (true, true) => Err(format!(
                "PartitionTypeMissing: pool {} declares partitionTypeAttribute but publishes no \
                 sharedCounters",
                self.place
            )),
            (true, false) => self.partitions().map(Some),
        };
        match (partitions, self.shareable()) {
            (Ok(partitions), Ok(shareable)) => Views { partitions, shareable, error: None },
            (Err(error), shareable) => {
                Views { partitions: None, shareable: shareable.ok().flatten(), error: Some(error) }
            }
            (Ok(_), Err(error)) => Views { error: Some(error), ..Views::default() },
        }
    }

    /// The value of the attribute that tells partitions apart. One of the driver's own may stand there
    /// without its domain.
    fn kind(&self, device: &'a Device, attribute: &str) -> Option<&'a str> {
        let attributes = device.attributes.as_ref()?;
        let own = attribute.strip_prefix(self.driver).and_then(|it| it.strip_prefix('/'));
        let found = attributes.get(attribute).or_else(|| attributes.get(own?));
        found?.string.as_deref()
    }

    fn partitions(&self) -> Result<Vec<PartitionTypeStatus>, String> {
        let mut groups: BTreeMap<(&str, &str), Vec<&Device>> = BTreeMap::new();
        for (device, attribute) in &self.devices {
            let Some(attribute) = attribute.filter(|_| !costs(device).is_empty()) else { continue };
            let Some(kind) = self.kind(device, attribute) else {
                return Err(format!(
                    "PartitionTypeMissing: device {:?} in pool {} does not carry partition type \
                     attribute {attribute:?}",
                    device.name, self.place
                ));
            };
            groups.entry((attribute, kind)).or_default().push(device);
        }
        let mut all = Vec::new();
        let baseline = self.available();
        for ((attribute, kind), devices) in groups {
            let cost = |device: &Device| {
                let each = costs(device).iter().flat_map(|it| {
                    let counters = it.counters.iter();
                    counters
                        .map(|(name, c)| format!("{}/{name}={}", it.counter_set, read(&c.value)))
                });
                each.collect::<BTreeSet<_>>()
            };
            if devices.iter().any(|device| cost(device) != cost(devices[0])) {
                return Err(format!(
                    "PartitionCostMismatch: devices of partition type {kind:?} in pool {} consume \
                     different counters",
                    self.place
                ));
            }
            let mut left = baseline.clone();
            let fresh = devices.iter().filter(|it| !self.in_use.contains(&*it.name));
            let allocatable = fresh.filter(|device| take(&mut left, device)).count();
            all.push(PartitionTypeStatus {
                attribute: attribute.to_owned(),
                type_: kind.to_owned(),
                total: devices.len() as i32,
                allocatable: allocatable as i32,
            });
        }
        if all.len() > MOST {
            return Err(format!(
                "PartitionSummaryOverCap: pool {} has {} partition types, exceeding the maximum of \
                 {MOST}",
                self.place,
                all.len()
            ));
        }
        Ok(all)
    }

    /// What is left of the counters: a device takes its part once, however many share it.
    fn available(&self) -> Counters<'a> {
        let mut left = Counters::new();
        for set in &self.counters {
            for (name, counter) in &set.counters {
                left.insert((&set.name, name), read(&counter.value));
            }
        }
        let used = self.devices.iter().filter(|(device, _)| self.in_use.contains(&*device.name));
        used.for_each(|(device, _)| deduct(&mut left, device));
        left
    }

    fn shareable(&self) -> Result<Option<ShareableSummaryStatus>, String> {
        let shared = self.devices.iter().map(|(device, _)| *device);
        let shared = shared.filter(|it| it.allow_multiple_allocations == Some(true));
        let (mut full, mut partial, mut total) = (0, 0, BTreeMap::<&str, Quantity>::new());
        for device in shared {
            *(if self.in_use.contains(&*device.name) { &mut partial } else { &mut full }) += 1;
            for (name, capacity) in device.capacity.iter().flatten() {
                match total.get_mut(&**name) {
                    Some(sum) => *sum += &read(&capacity.value),
                    // The first says how sums are written.
                    None => drop(total.insert(name, read(&capacity.value))),
                }
            }
        }
        if full + partial == 0 {
            return Ok(None);
        }
        if total.len() > MOST {
            return Err(format!(
                "ShareableSummaryOverCap: pool {} has {} shareable capacity keys, exceeding the \
                 maximum of {MOST}",
                self.place,
                total.len()
            ));
        }
        let capacity = total.into_iter().map(|(name, total)| {
            let consumed = self.consumed.get(name).cloned().unwrap_or_default();
            let available = total.clone() - &consumed;
            let available = if available.is_negative() { Quantity::default() } else { available };
            ShareableCapacityStatus {
                name: name.to_owned(),
                total: text(&total),
                consumed: text(&consumed),
                available: text(&available),
            }
        });
        Ok(Some(ShareableSummaryStatus {
            fully_available_devices: full,
            partially_available_devices: partial,
            capacity: Some(capacity.collect()),
        }))
    }
}

fn costs(device: &Device) -> &[DeviceCounterConsumption] {
    device.consumes_counters.as_deref().unwrap_or_default()
}

/// Takes a device's part of the counters, if it is there.
fn take<'a>(left: &mut Counters<'a>, device: &'a Device) -> bool {
    let fits = costs(device).iter().all(|cost| {
        cost.counters.iter().all(|(name, counter)| {
            let has = left.get(&(&*cost.counter_set, &**name));
            has.is_some_and(|has| *has >= read(&counter.value))
        })
    });
    if fits {
        deduct(left, device);
    }
    fits
}

fn deduct<'a>(left: &mut Counters<'a>, device: &'a Device) {
    for cost in costs(device) {
        for (name, counter) in &cost.counters {
            if let Some(has) = left.get_mut(&(&*cost.counter_set, &**name)) {
                *has -= &read(&counter.value);
            }
        }
    }
}
