//! What an object of a kind uses: one evaluator for each kind that uses more than a place.
use super::devices::Devices;
use super::pods;
use super::scope::Selector;
use crate::admission::resource_list::ResourceList;
use crate::admission::{Attributes, Operation};
use api::kinds::Resource;
use api::quota::Uses;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;

pub enum Evaluator {
    /// What the object itself tells.
    Own(Uses),
    Devices(Devices),
}

impl Evaluator {
    pub fn of(resource: &Resource) -> Evaluator {
        match (resource.group, resource.plural) {
            ("resource.k8s.io", "resourceclaims") => Evaluator::Devices(Devices::default()),
            (group, plural) => Evaluator::Own(Uses::of(group, plural)),
        }
    }

    /// Whether a write may change what is used.
    pub fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let created = attributes.creates();
        match (self, attributes.part()) {
            (Evaluator::Own(Uses::Pods), "") => {
                let (new, old) = (attributes.new_object(), attributes.old);
                let turns =
                    old.is_some_and(|old| pods::is_terminating(old) != pods::is_terminating(new));
                created || turns
            }
            (Evaluator::Own(Uses::Pods), "resize") | (Evaluator::Own(Uses::Volumes), "status") => {
                attributes.operation == Operation::Update
            }
            (Evaluator::Own(Uses::Services | Uses::Volumes) | Evaluator::Devices(_), "") => true,
            _ => created,
        }
    }

    /// Reads what else an evaluation depends on.
    pub async fn look_around(&mut self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self {
            Evaluator::Devices(devices) => devices.look_around(attributes).await,
            Evaluator::Own(_) => Ok(()),
        }
    }

    /// Whether a resource that a quota limits is one of this evaluator's.
    pub fn is_mine(&self, name: &str) -> bool {
        match self {
            Evaluator::Own(uses) => uses.has(name),
            Evaluator::Devices(devices) => devices.is_mine(name),
        }
    }

    /// Whether objects of the kind have scopes at all.
    pub fn has_scopes(&self) -> bool {
        matches!(self, Evaluator::Own(uses) if uses.has_scopes())
    }

    pub fn is_in_scope(&self, selector: &Selector, object: &Value) -> Result<bool, String> {
        match self {
            Evaluator::Own(uses) => uses.is_in_scope(selector, object),
            Evaluator::Devices(_) => Ok(false),
        }
    }

    /// What the object has to say about itself, so that it can be charged.
    pub fn check(&self, required: &[&str], object: &Value) -> Result<(), String> {
        match self {
            Evaluator::Own(Uses::Pods) => pods::check(required, object),
            _ => Ok(()),
        }
    }

    pub fn usage(&self, object: &Value, now: Timestamp) -> ResourceList {
        match self {
            Evaluator::Own(uses) => uses.usage(object, now),
            Evaluator::Devices(devices) => devices.usage(object),
        }
    }
}
