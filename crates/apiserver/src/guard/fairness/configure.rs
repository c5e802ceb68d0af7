//! What the objects in the store come to: schemas in order, levels with their seats.
use super::level::{Bounds, Kind, Level};
use super::queues::Shape;
use super::schema::Schema;
use super::{Configuration, Fairness};
use crate::guard::fairness::flow;
use http::HeaderValue;
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchema, PriorityLevelConfiguration, PriorityLevelConfigurationSpec,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// What cannot be changed: the first and the last resort.
pub const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

impl Fairness {
    /// Puts objects in force; says of each schema which level it names and whether that is missing.
    pub(super) fn configure<'a>(
        &self,
        schemas: impl IntoIterator<Item = &'a FlowSchema>,
        levels: impl IntoIterator<Item = &'a PriorityLevelConfiguration>,
    ) -> Vec<(String, String, bool)> {
        let (schemas, levels) = (with_mandatory(schemas), with_mandatory(levels));
        let before = self.current();
        let shares: i64 = levels.iter().map(|level| shares(&level.spec)).sum();
        let mut made = Configuration::default();
        for level in &levels {
            let name = level.metadata.name.clone().unwrap_or_default();
            let level = self.level(&name, level, shares, &before);
            made.levels.insert(name, Arc::new(level));
        }
        let mut found = Vec::new();
        for schema in &schemas {
            let name = schema.metadata.name.clone().unwrap_or_default();
            let spec = schema.spec.clone();
            let wanted = spec.priority_level_configuration.name.clone();
            let level = made.levels.get(&wanted);
            found.push((name.clone(), wanted.clone(), level.is_none()));
            if let Some(level) = level.cloned() {
                let uid = uid(schema.metadata.uid.as_ref());
                let mut counters =
                    self.counters.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let counters = counters.entry((name.clone(), wanted)).or_default().clone();
                made.schemas.push(Arc::new(Schema { name, uid, spec, level, counters }));
            }
        }
        let order = |schema: &Arc<Schema>| {
            (schema.spec.matching_precedence.unwrap_or(1000), schema.name.clone())
        };
        made.schemas.sort_by_key(order);
        *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(made);
        self.lend();
        found
    }

    fn level(
        &self,
        name: &str,
        level: &PriorityLevelConfiguration,
        all_shares: i64,
        before: &Configuration,
    ) -> Level {
        let spec = &level.spec;
        let seats = f64::from(self.total) * shares(&level.spec) as f64 / all_shares.max(1) as f64;
        let nominal = seats.ceil() as u32;
        let part = |percent: i32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
        let limited = spec.limited.as_ref();
        let lendable = match (&spec.exempt, limited) {
            (Some(exempt), _) => exempt.lendable_percent,
            (None, limited) => limited.and_then(|limited| limited.lendable_percent),
        };
        let borrowable = limited.and_then(|limited| limited.borrowing_limit_percent);
        let queuing = limited
            .map(|limited| &limited.limit_response)
            .filter(|response| response.type_ == "Queue")
            .map(|response| response.queuing.clone().unwrap_or_default());
        let size =
            |value: Option<i32>, default| usize::try_from(value.unwrap_or(default)).unwrap_or(1);
        let kind = match spec.type_.as_str() {
            "Exempt" => Kind::Exempt,
            _ => Kind::Limited(queuing.map(|queuing| Shape {
                queues: size(queuing.queues, 64),
                hand: size(queuing.hand_size, 8).min(size(queuing.queues, 64)),
                length: size(queuing.queue_length_limit, 50),
            })),
        };
        Level {
            uid: uid(level.metadata.uid.as_ref()),
            kind,
            bounds: Bounds {
                nominal,
                least: nominal - part(lendable.unwrap_or(0)).min(nominal),
                most: nominal + borrowable.map_or(self.total, part),
            },
            room: before.levels.get(name).map(|level| level.room.clone()).unwrap_or_default(),
        }
    }
}

fn shares(spec: &PriorityLevelConfigurationSpec) -> i64 {
    match (&spec.exempt, &spec.limited) {
        (_, Some(limited)) => limited.nominal_concurrency_shares.unwrap_or(30).into(),
        (Some(exempt), None) => exempt.nominal_concurrency_shares.unwrap_or(0).into(),
        (None, None) => 0,
    }
}

fn uid(uid: Option<&String>) -> HeaderValue {
    let text = uid.map_or("", String::as_str);
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What can be mandatory: an object with a name, whose rules may be put in its place.
trait Object: DeserializeOwned + Clone {
    const KIND: &'static str;
    fn name(&self) -> Option<&str>;
    /// Takes the rules of `other`, but stays who it is.
    fn obey(&mut self, other: Self);
}

impl Object for FlowSchema {
    const KIND: &'static str = "FlowSchema";
    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn obey(&mut self, other: Self) {
        self.spec = other.spec;
    }
}

impl Object for PriorityLevelConfiguration {
    const KIND: &'static str = "PriorityLevelConfiguration";
    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn obey(&mut self, other: Self) {
        // How much the exempt level keeps and lends is the administrator's.
        if self.name() != Some("exempt") {
            self.spec = other.spec;
        }
    }
}

/// The objects, and whatever is in force whether or not it is among them.
fn with_mandatory<'a, T: Object + 'a>(objects: impl IntoIterator<Item = &'a T>) -> Vec<T> {
    let mut all: BTreeMap<String, T> = objects
        .into_iter()
        .filter_map(|object| Some((object.name()?.to_owned(), object.clone())))
        .collect();
    for object in flow::objects() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if object["kind"] != T::KIND || !MANDATORY.contains(&name.as_str()) {
            continue;
        }
        let Ok(object) = serde_json::from_value::<T>(object) else { continue };
        match all.entry(name) {
            Entry::Occupied(mut known) => known.get_mut().obey(object),
            Entry::Vacant(place) => {
                place.insert(object);
            }
        }
    }
    all.into_values().collect()
}
