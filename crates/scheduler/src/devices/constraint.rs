//! Devices of one claim that must be alike in an attribute, or differ in it.
use super::ledger::DeviceId;
use super::pools;
use cel::device::Attribute;
use k8s_openapi::api::resource::v1::{Device, DeviceConstraint};

pub struct Constraint {
    /// Empty: all.
    requests: Vec<String>,
    attribute: String,
    differ: bool,
    /// Of the devices that it was asked about, in order.
    seen: Vec<Attribute>,
}

impl Constraint {
    /// `None`: of a kind that we do not know.
    pub fn of(constraint: &DeviceConstraint) -> Option<Constraint> {
        let DeviceConstraint { distinct_attribute, match_attribute, requests } = constraint;
        let differ = match_attribute.is_none();
        let attribute = match_attribute.clone().or_else(|| distinct_attribute.clone())?;
        let requests = requests.clone().unwrap_or_default();
        Some(Constraint { requests, attribute, differ, seen: Vec::new() })
    }

    fn concerns(&self, request: &str, sub_request: Option<&str>) -> bool {
        let named = |name: &str| self.requests.iter().any(|other| other == name);
        self.requests.is_empty()
            || named(request)
            || sub_request.is_some_and(|sub| named(&format!("{request}/{sub}")))
    }

    /// Takes the device in, if it fits those before.
    pub fn add(
        &mut self,
        request: &str,
        sub_request: Option<&str>,
        id: &DeviceId,
        device: &Device,
    ) -> bool {
        if !self.concerns(request, sub_request) {
            return true;
        }
        let Some(own) = attribute(&self.attribute, id, device) else { return false };
        let fits = match self.differ {
            true => !self.seen.contains(&own),
            false => self.seen.first().is_none_or(|first| *first == own),
        };
        if fits {
            self.seen.push(own);
        }
        fits
    }

    /// Takes back the last one.
    pub fn remove(&mut self, request: &str, sub_request: Option<&str>) {
        if self.concerns(request, sub_request) {
            self.seen.pop();
        }
    }
}

/// By its full name, or without the domain if that is the driver's.
fn attribute(name: &str, id: &DeviceId, device: &Device) -> Option<Attribute> {
    let all = device.attributes.as_ref()?;
    let found = all.get(name).or_else(|| {
        let (domain, own) = name.split_once('/')?;
        (*domain == *id.driver).then(|| all.get(own)).flatten()
    });
    pools::attribute(found?)
}
