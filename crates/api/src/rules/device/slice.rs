//! Slices: the devices that drivers offer.
use super::super::table::{AGE, Column, NAME, text};
use super::super::volume_source::csi_driver_name;
use super::super::{Field, Kind, Part, Strategy, scheduling};
use super::{MAX, PLAIN, pool_name, taint};
use crate::field::Error;
use crate::names;
use k8s_openapi::api::resource::v1::ResourceSlice;

const MAX_DEVICES: usize = 128;
const MAX_DEVICES_WITH_TAINTS: usize = 64;

impl Kind for ResourceSlice {
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Node", "spec.nodeName"),
        text("Driver", "spec.driver"),
        text("Pool", "spec.pool.name"),
        AGE,
    ];

    fn validate(slice: &Field<'_, '_>) {
        let spec = slice.at("spec");
        csi_driver_name(&spec.at("driver"));
        pool(&spec.at("pool"));
        placement(&spec);
        let devices = spec.at("devices");
        let tainted = devices.items().any(|device| !device.at("taints").is_empty());
        devices.at_most(if tainted { MAX_DEVICES_WITH_TAINTS } else { MAX_DEVICES });
        devices.items().for_each(|each| device(&each));
        let mut seen = Vec::new();
        for device in devices.items() {
            let name = device.at("name").text();
            if seen.contains(&name) {
                device.push(Error::duplicate(device.path(), name));
            }
            seen.push(name);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        let (now, then) = (new.at("spec"), old.at("spec"));
        for field in ["driver", "nodeName", "pool.name", "allNodes"] {
            now.at(field).immutable(&then.at(field));
        }
    }
}

fn pool(pool: &Field<'_, '_>) {
    pool_name(&pool.at("name"));
    let count = pool.at("resourceSliceCount");
    if count.int() <= 0 {
        count.invalid_as(count.int(), "must be greater than zero");
    }
    let generation = pool.at("generation");
    if generation.int() < 0 {
        generation.invalid("must be greater than or equal to zero");
    }
}

/// One way to say which nodes can reach the devices.
fn placement(spec: &Field<'_, '_>) {
    let (name, selector, all, each) = (
        spec.at("nodeName"),
        spec.at("nodeSelector"),
        spec.at("allNodes"),
        spec.at("perDeviceNodeSelection"),
    );
    let mut given = Vec::new();
    if name.exists() {
        if name.text().is_empty() {
            name.invalid("must be either unset or set to a non-empty string");
        } else {
            name.faults(names::name_is_dns_subdomain(name.text(), false));
        }
        given.push("`nodeName`");
    }
    if selector.exists() {
        scheduling::node_selector(&selector);
        if selector.at("nodeSelectorTerms").len() != 1 {
            selector.at("nodeSelectorTerms").invalid("must have exactly one node selector term");
        }
        given.push("`nodeSelector`");
    }
    for (flag, word) in [(&all, "`allNodes`"), (&each, "`perDeviceNodeSelection`")] {
        if flag.exists() {
            if flag.flag() {
                given.push(word);
            } else {
                flag.invalid("must be either unset or set to true");
            }
        }
    }
    const WHICH: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match given.len() {
        0 => spec.required(WHICH),
        1 => {}
        _ => spec.invalid_as(
            format!("{{{}}}", given.join(", ")),
            format!("{WHICH}, but multiple fields are set"),
        ),
    }
}

fn device(device: &Field<'_, '_>) {
    device.at("name").faults(names::dns1123_label(device.at("name").text()));
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    if attributes.len() + capacity.len() > MAX {
        device.invalid_as(
            attributes.len() + capacity.len(),
            format!("the total number of attributes and capacities must not exceed {MAX}"),
        );
    }
    for (name, entry) in attributes.entries() {
        qualified(&entry, name);
        let given = ["int", "bool", "string", "version"]
            .iter()
            .filter(|kind| entry.at(kind).exists())
            .count();
        if given == 0 {
            entry.invalid_as("", "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`");
        } else if given > 1 {
            let kinds = ["int", "bool", "string", "version"];
            let given: Vec<&str> =
                kinds.into_iter().filter(|kind| entry.at(kind).exists()).collect();
            entry.invalid_as(
                format!("{{{}}}", given.join(", ")),
                "must specify exactly one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`",
            );
        }
        for kind in ["string", "version"] {
            if entry.at(kind).text().len() > 64 {
                entry.at(kind).too_long(64);
            }
        }
    }
    for (name, entry) in capacity.entries() {
        qualified(&entry, name);
    }
    device.at("taints").at_most(16);
    device.at("taints").items().for_each(|each| taint(&each));
}

/// A name of an attribute or capacity, perhaps with the domain it comes from.
fn qualified(entry: &Field<'_, '_>, name: &str) {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    if let Some(domain) = domain {
        names::dns1123_subdomain(domain)
            .into_iter()
            .for_each(|fault| entry.invalid_as(domain, fault));
    }
    names::c_identifier(id).into_iter().for_each(|fault| entry.invalid_as(id, fault));
    if id.len() > 32 {
        entry.too_long(32);
    }
}
