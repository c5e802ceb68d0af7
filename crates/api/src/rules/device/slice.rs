//! Slices: the devices that drivers offer.
use super::super::metadata::IMMUTABLE;
use super::super::table::{AGE, Column, NAME, text};
use super::super::volume_source::csi_driver_name;
use super::super::{Field, Kind, Part, Strategy, prepare, scheduling};
use super::{MAX, PLAIN, in_bytes, pool_name, taint, taint_effect};
use crate::field::{BadValue, Error};
use crate::names;
use crate::quote::in_order;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::Value;

const MAX_DEVICES: usize = 128;
const MAX_ADVANCED: usize = 64;
const MAX_SETS: usize = 8;

impl Kind for ResourceSlice {
    const STRATEGY: Strategy = PLAIN.counting_disabled();
    const COLUMNS: &[Column] = &[
        NAME,
        text("Node", "spec.nodeName"),
        text("Driver", "spec.driver"),
        text("Pool", "spec.pool.name"),
        AGE,
    ];

    /// A taint holds from when it is made, unless it says otherwise.
    fn prepare_create(slice: &mut Value) {
        prepare::create(slice, &Self::STRATEGY);
        let now = slice["metadata"]["creationTimestamp"].clone();
        let devices = slice["spec"].get_mut("devices").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten() {
            let taints = device.get_mut("taints").and_then(Value::as_array_mut);
            for taint in taints.into_iter().flatten() {
                if taint.get("timeAdded").is_none_or(Value::is_null) {
                    taint["timeAdded"] = now.clone();
                }
            }
        }
    }

    fn validate(slice: &Field<'_, '_>) {
        whole(&slice.at("spec"), None);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        whole(&new.at("spec"), Some(&old.at("spec")));
    }
}

fn whole(spec: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
    csi_driver_name(&spec.at("driver"));
    pool(&spec.at("pool"));
    for field in ["pool.name", "driver", "nodeName"] {
        if let Some(old) = old {
            let (now, then) = (spec.at(field), old.at(field));
            match field {
                "nodeName" if !now.exists() && then.exists() => {
                    now.invalid_as(BadValue::null(), IMMUTABLE);
                }
                _ => {
                    now.immutable(&then);
                }
            }
        }
    }
    placement(spec);
    let (devices, counters) = (spec.at("devices"), spec.at("sharedCounters"));
    if devices.exists() && counters.exists() {
        spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed");
    }
    let advanced = |device: Field<'_, '_>| {
        let listed =
            |(_, entry): (&str, Field<'_, '_>)| LISTS.iter().any(|list| entry.at(list).exists());
        !device.at("taints").is_empty()
            || !device.at("consumesCounters").is_empty()
            || device.at("attributes").entries().any(listed)
    };
    let most = if devices.items().any(advanced) { MAX_ADVANCED } else { MAX_DEVICES };
    if devices.at_most(most) {
        for device in devices.items() {
            let same = |old: &&Value| old["name"] == device.value()["name"];
            let before = old.and_then(|old| old.value()["devices"].as_array()?.iter().find(same));
            self::device(&device, before, spec.at("perDeviceNodeSelection").flag());
        }
        names_once(&devices, "name", false);
    }
    if counters.declared().at_most(MAX_SETS) {
        names_once(&counters, "name", true);
        counters.items().for_each(|each| counted(&each, "name"));
    }
}

/// The order of a set's fields in messages.
const ORDER: &[&str] = &["name", "counterSet", "counters", "value"];

/// Items of a set differ in their names.
fn names_once(list: &Field<'_, '_>, key: &'static str, declared: bool) {
    let mut seen = Vec::new();
    for item in list.items() {
        let name = item.at(key).text();
        if seen.contains(&name) {
            let item = if declared { item.declared() } else { item };
            // A declared rule shows the whole item.
            let shown = match declared {
                true => BadValue::verbatim(in_order(item.value(), ORDER)),
                false => name.into(),
            };
            item.push(Error::duplicate(item.path(), shown));
        }
        seen.push(name);
    }
}

/// Counters by name, in a set that has a name too.
fn counted(set: &Field<'_, '_>, key: &'static str) {
    let (name, counters) = (set.at(key).declared(), set.at("counters"));
    if name.require() {
        name.faults(in_bytes(names::dns1123_label(name.text())));
    }
    if counters.declared().require() && counters.at_most(MAX) {
        for (key, _) in counters.entries() {
            let faults = names::dns1123_label(key);
            let place = counters.declared();
            faults.into_iter().for_each(|fault| place.invalid_as(key, fault));
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
            given.push("`nodeName`");
            name.faults(names::name_is_dns_subdomain(name.text(), false));
        }
    }
    if selector.exists() {
        scheduling::node_selector(&selector);
        if selector.at("nodeSelectorTerms").len() != 1 {
            let terms = selector.at("nodeSelectorTerms");
            let shown =
                if terms.exists() { BadValue::json(terms.value()) } else { BadValue::null() };
            terms.invalid_as(shown, "must have exactly one node selector term");
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

fn device(device: &Field<'_, '_>, old: Option<&Value>, placed: bool) {
    device.at("name").faults(names::dns1123_label(device.at("name").text()));
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    if attributes.len() + capacity.len() > MAX {
        device.invalid_as(
            attributes.len() + capacity.len(),
            format!("the total number of attributes and capacities must not exceed {MAX}"),
        );
    }
    for (name, entry) in attributes.entries() {
        qualified(&attributes, name);
        attribute(&entry);
    }
    if old.is_none_or(|old| old.get("capacity") != device.value().get("capacity")) {
        for (name, entry) in capacity.entries() {
            qualified(&capacity, name);
            super::capacity::validate(&entry, device.at("allowMultipleAllocations").flag());
        }
    }
    let taints = device.at("taints");
    let tainted = old.is_none_or(|old| old.get("taints") != device.value().get("taints"))
        && taints.at_most(16);
    if tainted {
        taints.items().for_each(|each| taint(&each));
    }
    let consumed = device.at("consumesCounters");
    if consumed.declared().at_most(2) {
        names_once(&consumed, "counterSet", true);
        consumed.items().for_each(|each| counted(&each, "counterSet"));
    }
    if tainted {
        taints.items().for_each(|each| taint_effect(&each));
    }
    if placed {
        device_placement(device);
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| device.at(field).exists())
    {
        device.invalid_as(BadValue::null(), "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec");
    }
    super::binding_conditions(device);
}

/// Where one device can be reached, when the slice leaves that to its devices.
fn device_placement(device: &Field<'_, '_>) {
    const WHICH: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (name, selector, all) =
        (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    let mut given = Vec::new();
    if name.exists() {
        if name.text().is_empty() {
            name.invalid("must not be empty");
        } else {
            given.push("`nodeName`");
            name.faults(names::name_is_dns_subdomain(name.text(), false));
        }
    }
    if selector.exists() {
        given.push("`nodeSelector`");
        scheduling::node_selector(&selector);
    }
    if all.flag() {
        given.push("`allNodes`");
    } else if all.exists() {
        all.invalid("must be either unset or set to true");
    }
    match given.len() {
        0 => device.required(WHICH),
        1 => {}
        _ => device.invalid_as(format!("{{{}}}", given.join(", ")), WHICH),
    }
}

const SCALARS: [&str; 4] = ["int", "bool", "string", "version"];
const LISTS: [&str; 4] = ["ints", "bools", "strings", "versions"];

fn attribute(entry: &Field<'_, '_>) {
    const KINDS: &str =
        "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";
    let string = |value: &Field<'_, '_>| {
        if value.text().len() > 64 {
            value.too_long(64);
        }
    };
    let version = |value: &Field<'_, '_>| {
        if !is_semver(value.text()) {
            value.invalid("must be a string compatible with semver.org spec 2.0.0");
        }
        string(value);
    };
    string(&entry.at("string"));
    if entry.at("version").exists() {
        version(&entry.at("version"));
    }
    entry.at("strings").items().for_each(|each| string(&each.declared()));
    entry.at("versions").items().for_each(|each| version(&each));
    let given: Vec<&str> =
        SCALARS.into_iter().chain(LISTS).filter(|kind| entry.at(kind).exists()).collect();
    match given.len() {
        0 => entry.declared().invalid_as("", format!("must specify one of: {KINDS}")),
        1 => {}
        _ => entry.declared().invalid_as(
            format!("{{{}}}", given.join(", ")),
            format!("must specify exactly one of: {KINDS}"),
        ),
    }
}

/// Three numbers, perhaps with a pre-release and a build.
fn is_semver(text: &str) -> bool {
    let number = |part: &str| {
        part == "0"
            || !part.starts_with('0')
                && !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_digit())
    };
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let (rest, build) =
        text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && before.is_none_or(|pre| {
            pre.split('.').all(|part| word(part) && (!digits(part) || number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

/// A name of an attribute or capacity, perhaps with the domain it comes from.
fn qualified(entry: &Field<'_, '_>, name: &str) {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    if id.contains('/') {
        // Upstream lets them pass.
        return;
    }
    if let Some(domain) = domain {
        if domain.len() > 63 {
            entry.too_long(63);
        }
        names::dns1123_subdomain_caseless(domain)
            .into_iter()
            .for_each(|fault| entry.invalid_as(domain, fault));
    }
    names::c_identifier(id).into_iter().for_each(|fault| entry.invalid_as(id, fault));
    if id.len() > 32 {
        entry.too_long(32);
    }
}
