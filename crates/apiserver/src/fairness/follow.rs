//! Keeps what is in force in step with the FlowSchemas and PriorityLevelConfigurations in the store.
use super::borrow::{Wish, share};
use super::level::{Bounds, Kind, Level};
use super::queues::Shape;
use super::schema::Schema;
use super::{Configuration, Fairness};
use crate::bootstrap::flow;
use crate::objects;
use crate::resources::{ApiServer, range};
use crate::verbs;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use http::HeaderValue;
use jiff::Timestamp;
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchema, PriorityLevelConfiguration, PriorityLevelConfigurationSpec,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::cache::{CacheWatch, Selection};

/// How often seats are lent anew, while somebody has to wait: upstream's period.
const LEND_EVERY: Duration = Duration::from_secs(10);
/// How much of an older demand is left after that.
const FADING: f64 = 0.977;
/// What cannot be changed: the first and the last resort.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
const KINDS: [&str; 2] = ["FlowSchema", "PriorityLevelConfiguration"];

fn resource(kind: &str) -> &'static Resource {
    find_kind("flowcontrol.apiserver.k8s.io/v1", kind).expect("the kinds are in the registry")
}

/// Reads the objects, and follows them from then on.
pub async fn start(api: &ApiServer, fairness: &Arc<Fairness>) -> Result<(), Status> {
    let mut watches = watch(api).await?;
    refresh(api, fairness).await?;
    let (following, lending) = ((api.clone(), fairness.clone()), (api.clone(), fairness.clone()));
    tokio::spawn(async move {
        let (api, fairness) = following;
        loop {
            let [schemas, levels] = &mut watches;
            let changed = tokio::select! {
                () = api.stopping() => return,
                changed = schemas.next() => changed.map(drop),
                changed = levels.next() => changed.map(drop),
            };
            if changed.is_err() {
                match watch(&api).await {
                    Ok(again) => watches = again,
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
            if let Err(error) = refresh(&api, &fairness).await {
                tracing::warn!(%error, "failed to read flow schemas and priority levels");
            }
        }
    });
    tokio::spawn(async move {
        let (api, fairness) = lending;
        tokio::select! {
            () = api.stopping() => {}
            () = fairness.lend_while_pressed() => {}
        }
    });
    Ok(())
}

async fn watch(api: &ApiServer) -> Result<[CacheWatch; 2], Status> {
    let one = async |kind| {
        let wanted = Selection { range: range(resource(kind), ""), term: None };
        Ok::<_, Status>(api.cache(resource(kind)).await?.watch_list(wanted))
    };
    Ok([one(KINDS[0]).await?, one(KINDS[1]).await?])
}

async fn list<T: DeserializeOwned>(api: &ApiServer, kind: &str) -> Result<Vec<T>, Status> {
    let all = objects::list(api, resource(kind), "").await?;
    // An object that cannot be read is not in force; the others are.
    Ok(all.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

async fn refresh(api: &ApiServer, fairness: &Fairness) -> Result<(), Status> {
    let schemas: Vec<FlowSchema> = list(api, KINDS[0]).await?;
    let levels: Vec<PriorityLevelConfiguration> = list(api, KINDS[1]).await?;
    let dangling = fairness.configure(&schemas, &levels);
    for object in flow::objects() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, kind) = (text(&object["metadata"]["name"]), text(&object["kind"]));
        let known = match kind.as_str() {
            "FlowSchema" => schemas.iter().any(|s| s.metadata.name.as_deref() == Some(&name)),
            _ => levels.iter().any(|level| level.metadata.name.as_deref() == Some(&name)),
        };
        if MANDATORY.contains(&name.as_str()) && !known {
            verbs::first(api, resource(&kind), object).await?;
        }
    }
    for (schema, level, is_dangling) in dangling {
        let found = schemas.iter().find(|s| s.metadata.name.as_deref() == Some(&schema));
        if let Some(found) = found {
            say_dangling(api, found, &schema, &level, is_dangling).await;
        }
    }
    Ok(())
}

/// Keeps the condition `Dangling` of a schema: whether its level is missing.
async fn say_dangling(
    api: &ApiServer,
    known: &FlowSchema,
    name: &str,
    level: &str,
    dangling: bool,
) {
    let (status, reason, end) = match dangling {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"
    );
    let said = known.status.as_ref().and_then(|status| status.conditions.as_ref());
    let said = said.and_then(|all| all.iter().find(|c| c.type_ == "Dangling"));
    if said.is_some_and(|c| {
        c.status.as_deref() == Some(status) && c.message.as_deref() == Some(&message)
    }) {
        return;
    }
    let condition = json!({
        "type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": api::time::format(Timestamp::now().as_second()),
    });
    let written = objects::modify(api, resource("FlowSchema"), ("", name), false, |schema| {
        if !schema["status"].is_object() {
            schema["status"] = json!({});
        }
        let mut all = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.retain(|condition| condition["type"] != "Dangling");
        all.push(condition.clone());
        schema["status"]["conditions"] = all.into();
        Ok(())
    });
    if let Err(error) = written.await {
        tracing::debug!(%error, name, "failed to say whether a flow schema is dangling");
    }
}

impl Fairness {
    /// Puts objects in force; says of each schema which level it names and whether that is missing.
    pub(super) fn configure(
        &self,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
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

    /// Lends seats anew when somebody has to wait, and from time to time while that lasts.
    async fn lend_while_pressed(&self) {
        loop {
            self.press.notified().await;
            while self.pressed.swap(false, Relaxed) {
                self.lend();
                tokio::time::sleep(LEND_EVERY).await;
            }
            self.lend();
        }
    }

    /// Shares the seats among the levels by what they asked for.
    pub(super) fn lend(&self) {
        let current = self.current();
        let levels: Vec<&Arc<Level>> =
            current.levels.values().filter(|level| level.kind != Kind::Exempt).collect();
        let kept: u32 = current
            .levels
            .values()
            .filter(|level| level.kind == Kind::Exempt)
            .map(|level| level.bounds.least)
            .sum();
        let total: u32 = current.levels.values().map(|level| level.bounds.nominal).sum();
        let wish = |level: &&Arc<Level>| {
            let peak = f64::from(level.room.take_peak());
            let old = f64::from_bits(level.room.smoothed.load(Relaxed));
            let smoothed = peak.max(FADING * old + (1.0 - FADING) * peak);
            level.room.smoothed.store(smoothed.to_bits(), Relaxed);
            let Bounds { nominal, least, most } = level.bounds;
            let least = f64::from(least).max(f64::from(nominal).min(peak));
            Wish { least, most: f64::from(most), target: smoothed.max(least) }
        };
        let wishes: Vec<Wish> = levels.iter().map(wish).collect();
        let seats = share(f64::from(total.saturating_sub(kept)), &wishes);
        for (level, seats) in levels.iter().zip(seats) {
            level.room.resize((seats.round() as u32).max(1));
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
    const KIND: &'static str = KINDS[0];
    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn obey(&mut self, other: Self) {
        self.spec = other.spec;
    }
}

impl Object for PriorityLevelConfiguration {
    const KIND: &'static str = KINDS[1];
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
fn with_mandatory<T: Object>(objects: &[T]) -> Vec<T> {
    let mut all: BTreeMap<String, T> = objects
        .iter()
        .filter_map(|object| Some((object.name()?.to_owned(), object.clone())))
        .collect();
    for object in flow::objects() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if object["kind"] != T::KIND || !MANDATORY.contains(&name.as_str()) {
            continue;
        }
        let Ok(object) = serde_json::from_value::<T>(object) else { continue };
        match all.entry(name) {
            std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().obey(object),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(object);
            }
        }
    }
    all.into_values().collect()
}
