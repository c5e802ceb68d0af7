//! What a claim got: its allocation, who uses it, and how its devices are.
use super::super::volume_source::{csi_driver_name, driver_name};
use super::super::{Field, scheduling};
use super::{MAX, claim, pool_name};
use crate::field::{BadValue, Error};
use crate::names::{self, ip};
use crate::quote::in_order;
use serde_json::Value;

const MAX_CONSUMERS: usize = 256;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA: usize = 10 * 1024;

pub fn validate(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (status, before) = (new.at("status"), old.at("status"));
    let (reserved, allocation) = (status.at("reservedFor"), status.at("allocation"));
    let kept = before.at("allocation").exists() && allocation.exists();
    if kept && allocation.value() != before.at("allocation").value() {
        let detail = "field cannot be modified once set";
        allocation.declared().invalid_as(BadValue::null(), detail);
    }
    once(&reserved, &["uid"]);
    once(&status.at("devices"), &["driver", "device", "pool", "shareID"]);
    if reserved.declared().at_most(MAX_CONSUMERS) {
        for consumer in reserved.items() {
            for field in ["resource", "name", "uid"] {
                consumer.at(field).require();
            }
        }
    }
    status.at("devices").items().for_each(|each| device(&each, allocation.value()));
    if !reserved.is_empty() {
        if !allocation.exists() {
            reserved.forbidden("may not be specified when `allocated` is not set");
        } else if new.at("metadata.deletionTimestamp").exists() {
            let known = before.at("reservedFor").list();
            if reserved.list().iter().any(|consumer| !known.contains(consumer)) {
                reserved.forbidden("new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set");
            }
        }
    }
    if allocation.exists() && !kept {
        allocated(&allocation, &new.at("spec.devices.requests"));
    }
}

/// The order of fields in messages.
const ORDER: &[&str] = &[
    "apiGroup",
    "resource",
    "name",
    "uid",
    "driver",
    "pool",
    "device",
    "shareID",
    "conditions",
    "type",
    "status",
    "observedGeneration",
    "lastTransitionTime",
    "reason",
    "message",
    "data",
    "networkData",
    "interfaceName",
    "ips",
    "hardwareAddress",
];

/// Items of a list differ in their keys.
fn once(list: &Field<'_, '_>, keys: &[&str]) {
    let id = |item: &Value| -> Vec<Value> { keys.iter().map(|key| item[*key].clone()).collect() };
    let mut seen = Vec::new();
    for item in list.items() {
        if seen.contains(&id(item.value())) {
            let shown = BadValue::verbatim(in_order(item.value(), ORDER));
            item.declared().push(Error::duplicate(item.path(), shown));
        }
        seen.push(id(item.value()));
    }
}

fn allocated(allocation: &Field<'_, '_>, requests: &Field<'_, '_>) {
    let (results, configs) = (allocation.at("devices.results"), allocation.at("devices.config"));
    if results.declared().at_most(MAX) {
        results.items().for_each(|each| result(&each, requests));
    }
    if configs.declared().at_most(2 * MAX) {
        for config in configs.items() {
            let source = config.at("source").declared();
            source.require_one_of(&["FromClaim", "FromClass"]);
            claim::request_names(&config.at("requests"), requests);
            super::configuration(&config);
        }
    }
    let selector = allocation.at("nodeSelector");
    if selector.exists() {
        scheduling::node_selector(&selector);
    }
}

fn result(result: &Field<'_, '_>, requests: &Field<'_, '_>) {
    claim::request_name(&result.at("request"), requests);
    driver_name(&result.at("driver").declared());
    pool_name(&result.at("pool").declared());
    device_name(&result.at("device"));
    super::binding_conditions(result);
    result.at("tolerations").items().for_each(|each| claim::toleration(&each));
    share(&result.at("shareID"));
}

fn device_name(name: &Field<'_, '_>) {
    name.faults(names::dns1123_label(name.text()));
}

/// Which share of a device it is, where several claims have one.
fn share(id: &Field<'_, '_>) {
    let text = id.text();
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-');
    if id.exists() && !(parts == [8, 4, 4, 4, 12] && text.bytes().all(hex)) {
        id.declared().invalid("must be a lowercase UUID in 8-4-4-4-12 format");
    }
}

fn device(device: &Field<'_, '_>, allocation: &Value) {
    csi_driver_name(&device.at("driver"));
    pool_name(&device.at("pool"));
    device_name(&device.at("device"));
    share(&device.at("shareID"));
    let results = allocation.pointer("/devices/results").and_then(Value::as_array);
    let parts = ["driver", "pool", "device", "shareID"];
    let text = |value: &Value, part: &str| value[part].as_str().unwrap_or_default().to_owned();
    let same =
        |result: &Value| parts.iter().all(|part| text(result, part) == text(device.value(), part));
    if !results.into_iter().flatten().any(same) {
        let shown = device.internal(&[
            ("Driver", "driver", "\"\""),
            ("Pool", "pool", "\"\""),
            ("Device", "device", "\"\""),
            ("ShareID", "shareID", "\"\""),
        ]);
        device.invalid_as(shown, "must be an allocated device in the claim");
    }
    let conditions = device.at("conditions");
    conditions.at_most(MAX_CONDITIONS);
    super::super::conditions(&conditions);
    let data = device.at("data");
    if data.exists() {
        if data.value().to_string().len() > MAX_DATA {
            data.too_long(MAX_DATA);
        } else if !data.value().is_object() {
            data.invalid_as("<value omitted>", "must be a valid JSON object");
        }
    }
    network(&device.at("networkData"));
}

fn network(data: &Field<'_, '_>) {
    for (field, most) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        let field = data.at(field).declared();
        if field.text().len() > most {
            field.too_long(most);
        }
    }
    let addresses = data.at("ips");
    if !addresses.declared().at_most(16) {
        return;
    }
    for address in addresses.items() {
        address.extend(ip::interface_address(address.path(), address.text()));
    }
    let list = addresses.list();
    for (i, address) in addresses.items().enumerate() {
        if list[..i].contains(&list[i]) {
            address.declared().push(Error::duplicate(address.path(), address.text()));
        }
    }
}
