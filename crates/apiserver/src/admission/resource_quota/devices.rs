//! What a claim for devices uses: so many of each class.
//!
//! A device can also be asked for as an extended resource of a pod. The scheduler then makes a claim
//! for it, whose devices are charged already with the pod; only what goes beyond that counts.
use super::pods;
use crate::admission::resource_list::ResourceList;
use crate::admission::{Attributes, items, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::quantity::Quantity;
use api::quota::count;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

const COUNT: &str = "count/resourceclaims.resource.k8s.io";
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";
const MADE_FOR_POD: &str = "resource.kubernetes.io/extended-resource-claim";
/// `All` devices are as many as a claim can get.
const MOST: i64 = 32;

#[derive(Default)]
pub struct Devices {
    /// Each class, with the extended resource that it serves, if it does.
    classes: BTreeMap<String, String>,
    /// What the pod that the claim was made for is charged already.
    of_pod: ResourceList,
}

impl Devices {
    pub async fn look_around(&mut self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let kind = find_kind("resource.k8s.io/v1", "DeviceClass").expect("in the registry");
        for class in objects::list(attributes.api, kind, "").await? {
            let name = text(&class["metadata"]["name"]).to_owned();
            self.classes.insert(name, text(&class["spec"]["extendedResourceName"]).to_owned());
        }
        if let Some(pod) = made_for(attributes).await? {
            self.of_pod = pods::usage(&pod, Timestamp::now());
        }
        Ok(())
    }

    pub fn is_mine(&self, name: &str) -> bool {
        let served = |resource: &str| {
            let implicit = resource.strip_prefix("deviceclass.resource.kubernetes.io/");
            implicit.is_some_and(|class| self.classes.contains_key(class))
                || self.classes.values().any(|extended| extended == resource)
        };
        name == COUNT
            || name.ends_with(OF_CLASS)
            || pods::is_extended(name) && name.strip_prefix("requests.").is_some_and(served)
    }

    pub fn usage(&self, claim: &Value) -> ResourceList {
        let mut usage = ResourceList::from([(COUNT.to_owned(), count(1))]);
        let mut by_class: BTreeMap<String, i64> = BTreeMap::new();
        for request in items(&claim["spec"]["devices"]["requests"]) {
            let mut most: BTreeMap<&str, i64> = BTreeMap::new();
            let alternatives =
                items(&request["firstAvailable"]).iter().chain(request.get("exactly"));
            for alternative in alternatives {
                let devices = match text(&alternative["allocationMode"]) {
                    "ExactCount" => alternative["count"].as_i64().unwrap_or(0),
                    "All" => MOST,
                    _ => 0,
                };
                let class = most.entry(text(&alternative["deviceClassName"])).or_insert(0);
                *class = devices.max(*class);
            }
            for (class, devices) in most {
                *by_class.entry(class.to_owned()).or_insert(0) += devices;
            }
        }
        for (class, devices) in by_class {
            let devices = count(usize::try_from(devices).unwrap_or(0));
            usage.insert(format!("{class}{OF_CLASS}"), devices.clone());
            self.add_extended(&mut usage, format!("{IMPLICIT}{class}"), &devices);
            if let Some(extended) = self.classes.get(&class).filter(|name| !name.is_empty()) {
                self.add_extended(&mut usage, format!("requests.{extended}"), &devices);
            }
        }
        usage
    }

    fn add_extended(&self, usage: &mut ResourceList, name: String, devices: &Quantity) {
        let mut left = devices.clone();
        if let Some(charged) = self.of_pod.get(&name) {
            left -= charged;
        }
        if !left.is_zero() && !left.is_negative() {
            usage.insert(name, left);
        }
    }
}

/// The pod that the claim was made for, if it is its only or oldest one.
async fn made_for(attributes: &Attributes<'_>) -> Result<Option<Value>, Status> {
    let (api, claim) = (attributes.api, attributes.new_object());
    let namespace = &attributes.call.namespace;
    let Some(owner) = pod_of(claim) else { return Ok(None) };
    let kind = find_kind("v1", "Pod").expect("pods are in the registry");
    let pod = match objects::get(api, kind, namespace, text(&owner["name"])).await {
        Ok(pod) if pod["metadata"]["uid"] == owner["uid"] => pod,
        Ok(_) => return Ok(None),
        Err(status) if status.is_not_found() => return Ok(None),
        Err(status) => return Err(status),
    };
    let name = &claim["metadata"]["name"];
    if let Some(made) = pod["status"].get("extendedResourceClaimStatus") {
        return Ok((made["resourceClaimName"] == *name).then_some(pod));
    }
    let age = |claim: &Value| {
        let meta = &claim["metadata"];
        (text(&meta["creationTimestamp"]).to_owned(), text(&meta["name"]).to_owned())
    };
    let claims = objects::list(api, &attributes.call.resource, namespace).await?;
    let mut others =
        claims.iter().filter(|other| pod_of(other).is_some_and(|of| of["uid"] == owner["uid"]));
    Ok((!others.any(|other| age(other) < age(claim))).then_some(pod))
}

fn pod_of(claim: &Value) -> Option<&Value> {
    let mut owners = items(&claim["metadata"]["ownerReferences"]).iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let made = claim["metadata"]["annotations"][MADE_FOR_POD] == "true";
    (made && owner["kind"] == "Pod" && owner["apiVersion"] == "v1").then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::resource_list::printed;
    use serde_json::json;

    fn claim() -> Value {
        json!({"spec": {"devices": {"requests": [
            {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"firstAvailable": [
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
                {"deviceClassName": "nic", "allocationMode": "All"},
            ]},
        ]}}})
    }

    #[test]
    fn devices_are_counted_by_class() {
        assert_eq!(
            printed(&Devices::default().usage(&claim())),
            "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=5,\
             nic.deviceclass.resource.k8s.io/devices=32,\
             requests.deviceclass.resource.kubernetes.io/gpu=5,\
             requests.deviceclass.resource.kubernetes.io/nic=32"
        );
    }

    #[test]
    fn what_the_pod_is_charged_for_is_not_charged_again() {
        let devices = Devices {
            classes: BTreeMap::from([("gpu".into(), "a.com/gpu".into())]),
            of_pod: ResourceList::from([("requests.a.com/gpu".into(), count(5))]),
        };
        let usage = printed(&devices.usage(&claim()));
        assert!(!usage.contains("requests.a.com/gpu"), "{usage}");
        assert!(devices.is_mine("requests.a.com/gpu") && !devices.is_mine("requests.b.com/gpu"));
    }
}
