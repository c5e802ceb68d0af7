//! Objects from one version of their definition to another.
//!
//! Without a webhook nothing but `apiVersion` changes, and that is done wherever an object is read
//! ([`read`]) or stored. A webhook has to be asked, so its answers are had beforehand: what comes from
//! the store passes [`converted`], what goes there [`for_storage`], and whatever follows finds the
//! version that it wants.
use super::memo::{Lead, Turn};
use crate::extend::conversion::Subject;
use crate::server::ApiServer;
use crate::state::convert::convert;
use crate::state::corrupt::{self, Corrupt};
use crate::state::{objects, stored};
use api::custom::{self, Definition};
use api::kinds::Resource;
use api::status::Status;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use store::cache::Item;
use store::{Event, KeyValue};

/// An object in another version, by whoever converts its definition's objects.
pub async fn in_version(
    api: &ApiServer,
    definition: &Definition,
    object: Value,
    api_version: &str,
) -> Result<Value, Status> {
    if !definition.family.converts_by_webhook() || object["apiVersion"] == api_version {
        return convert(object, definition, api_version);
    }
    alone(api, definition, object, api_version).await.map_err(failed)
}

/// The object as the store has it now, in the version of its row.
pub async fn current(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Arc<KeyValue>, Status> {
    let found = objects::found(api, resource, namespace, name).await?;
    converted_one(api, resource, found).await.map_err(|corrupt| corrupt.read())
}

/// The definition, if a webhook converts its objects.
fn by_webhook(resource: &Resource) -> Option<&Definition> {
    let definition = resource.definition.as_deref()?;
    definition.family.converts_by_webhook().then_some(definition)
}

/// What was stored, with every object in the version of the row that a webhook has to convert.
pub async fn converted(
    api: &ApiServer,
    resource: &Resource,
    all: Vec<Arc<KeyValue>>,
) -> Result<Vec<Arc<KeyValue>>, Status> {
    let converted = convert_all(api, resource, all, corrupt::MOST).await;
    converted.map_err(|corrupt| Corrupt::listed(&corrupt, resource))
}

/// The same of one object.
pub async fn converted_one(
    api: &ApiServer,
    resource: &Resource,
    stored: Arc<KeyValue>,
) -> Result<Arc<KeyValue>, Corrupt> {
    match by_webhook(resource) {
        Some(definition) => convert_one(api, definition, stored).await,
        None => Ok(stored),
    }
}

/// The same of what a watch tells.
pub async fn converted_item(
    api: &ApiServer,
    resource: &Resource,
    item: Item,
) -> Result<Item, Status> {
    if by_webhook(resource).is_none() {
        return Ok(item);
    }
    match item {
        Item::Initial(objects) => Ok(Item::Initial(told(api, resource, objects).await?)),
        Item::Events(mut batch) => {
            let there = |event: &Event| (!event.is_delete()).then(|| event.kv.clone());
            let states = batch.events.iter().flat_map(|event| [there(event), event.prev.clone()]);
            let states: Vec<Arc<KeyValue>> = states.flatten().collect();
            let mut states = told(api, resource, states).await?.into_iter();
            for event in &mut batch.events {
                if !event.is_delete()
                    && let Some(state) = states.next()
                {
                    event.kv = state;
                }
                if event.prev.is_some() {
                    event.prev = states.next();
                }
            }
            Ok(Item::Events(batch))
        }
        end @ Item::InitialEnd(_) => Ok(end),
    }
}

/// One that cannot be converted is enough to end a watch.
async fn told(
    api: &ApiServer,
    resource: &Resource,
    all: Vec<Arc<KeyValue>>,
) -> Result<Vec<Arc<KeyValue>>, Status> {
    let converted = convert_all(api, resource, all, 1).await;
    converted.map_err(|corrupt| Corrupt::listed(&corrupt, resource))
}

/// What is known is not asked for again, and what another asks for is waited for.
async fn convert_all(
    api: &ApiServer,
    resource: &Resource,
    mut all: Vec<Arc<KeyValue>>,
    most: usize,
) -> Result<Vec<Arc<KeyValue>>, Vec<Corrupt>> {
    let Some(definition) = by_webhook(resource) else { return Ok(all) };
    let memo = &api.extend().converted;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (place, each) in all.iter_mut().enumerate() {
        if each.slot.is_marked(definition.version.id) {
            continue;
        }
        if let Some(known) = memo.known(each, definition) {
            *each = known;
            continue;
        }
        // What cannot be read is told of by whoever reads it.
        let Ok(object) = api::depth::read::<Value>(&each.value) else { continue };
        if object["apiVersion"] == definition.version.api_version.as_str() {
            continue;
        }
        match memo.turn(each, definition) {
            Turn::Known(known) => *each = known,
            Turn::Theirs(waiting) => theirs.push((place, waiting)),
            Turn::Ours(lead) => ours.push(Ours { place, lead, object }),
        }
    }
    convert_ours(api, resource, definition, &mut all, ours, most).await?;
    let mut corrupt = Vec::new();
    for (place, waiting) in theirs {
        let outcome = match waiting.outcome().await {
            Some(outcome) => outcome,
            None => convert_one(api, definition, all[place].clone()).await,
        };
        match outcome {
            Ok(converted) => all[place] = converted,
            Err(fault) => corrupt.push(fault),
        }
        if corrupt.len() >= most {
            break;
        }
    }
    if corrupt.is_empty() { Ok(all) } else { Err(corrupt) }
}

/// An object that nobody else has converted.
struct Ours<'m> {
    place: usize,
    lead: Lead<'m>,
    object: Value,
}

/// All in one question; if that has no good answer, each in one of its own, as upstream always does: those
/// that cannot be converted are told of, until there are so many.
async fn convert_ours(
    api: &ApiServer,
    resource: &Resource,
    definition: &Definition,
    all: &mut [Arc<KeyValue>],
    ours: Vec<Ours<'_>>,
    most: usize,
) -> Result<(), Vec<Corrupt>> {
    if ours.len() > 1 {
        let objects = ours.iter().map(|one| one.object.clone()).collect();
        if let Ok(objects) = together(api, resource, definition, objects).await {
            let mut laid_out = Vec::with_capacity(ours.len());
            for (one, object) in ours.iter().zip(&objects) {
                let converted = in_place_of(&all[one.place], object, definition);
                laid_out.push(converted.map_err(|corrupt| vec![corrupt])?);
            }
            for (Ours { place, lead, .. }, converted) in ours.into_iter().zip(laid_out) {
                lead.tell(Ok(converted.clone()));
                all[place] = converted;
            }
            return Ok(());
        }
    }
    let mut corrupt = Vec::new();
    for Ours { place, lead, .. } in ours {
        let outcome = convert_one(api, definition, all[place].clone()).await;
        lead.tell(outcome.clone());
        match outcome {
            Ok(converted) => all[place] = converted,
            Err(fault) => corrupt.push(fault),
        }
        if corrupt.len() >= most {
            break;
        }
    }
    if corrupt.is_empty() { Ok(()) } else { Err(corrupt) }
}

/// Several objects in the version of the row, by one question.
async fn together(
    api: &ApiServer,
    resource: &Resource,
    definition: &Definition,
    objects: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let version = &definition.version;
    let prepared = objects.into_iter().map(|object| custom::prepared(object, definition));
    let prepared: Vec<Value> = prepared.collect::<Result<_, String>>()?;
    let subject = Subject::List { api_version: &version.api_version, kind: resource.list_kind };
    let converted = ask(api, definition, subject, prepared, &version.api_version).await?;
    converted.into_iter().map(|object| custom::coerced(object, version)).collect()
}

/// One stored object in the version of the row. What cannot be read is told of by whoever reads it.
async fn convert_one(
    api: &ApiServer,
    definition: &Definition,
    stored: Arc<KeyValue>,
) -> Result<Arc<KeyValue>, Corrupt> {
    let Ok(object) = api::depth::read::<Value>(&stored.value) else { return Ok(stored) };
    if object["apiVersion"] == definition.version.api_version.as_str() {
        return Ok(stored);
    }
    match read_alone(api, definition, object).await {
        Ok(object) => in_place_of(&stored, &object, definition),
        Err(cause) => Err(Corrupt::new(&stored, cause)),
    }
}

/// An object as it is stored, in the version of the row: defaulted in its own version, converted, and
/// pruned in the new one.
async fn read_alone(
    api: &ApiServer,
    definition: &Definition,
    object: Value,
) -> Result<Value, String> {
    let version = &definition.version;
    let prepared = custom::prepared(object, definition)?;
    let converted = alone(api, definition, prepared, &version.api_version).await?;
    custom::coerced(converted, version)
}

/// What was stored with a webhook's object in its place.
fn in_place_of(
    before: &KeyValue,
    object: &Value,
    definition: &Definition,
) -> Result<Arc<KeyValue>, Corrupt> {
    let value = stored::lay_out(object).map_err(|status| Corrupt::new(before, status.message))?;
    let converted = KeyValue { value, ..KeyValue::clone(before) };
    // Nothing is to be done with it any more: a webhook's object gets no defaults of its new version.
    converted.slot.mark(definition.version.id);
    Ok(Arc::new(converted))
}

/// The object in the version that it is stored in, if a webhook has to convert it.
pub async fn for_storage<'v>(
    api: &ApiServer,
    resource: &Resource,
    object: &'v Value,
) -> Result<Cow<'v, Value>, Status> {
    let Some(definition) = by_webhook(resource) else { return Ok(Cow::Borrowed(object)) };
    let wanted = resource.storage_version();
    if object["apiVersion"] == *wanted {
        return Ok(Cow::Borrowed(object));
    }
    let converted = in_version(api, definition, object.clone(), &wanted).await?;
    match definition.family.version(&wanted) {
        Some(version) => custom::coerced(converted, version).map(Cow::Owned).map_err(failed),
        None => Ok(Cow::Owned(converted)),
    }
}

/// What [`for_storage`] made of an object that is not stored after all, as it would be read again: none if
/// it is what it was. A client is shown what a webhook left of its object, not what it sent.
pub async fn read_back(
    api: &ApiServer,
    resource: &Resource,
    wanted: Cow<'_, Value>,
) -> Result<Option<Value>, Status> {
    match (by_webhook(resource), wanted) {
        (Some(definition), Cow::Owned(object)) => {
            read_alone(api, definition, object).await.map(Some).map_err(failed)
        }
        _ => Ok(None),
    }
}

/// The same of an object that has been stored.
pub async fn stored_back(
    api: &ApiServer,
    resource: &Resource,
    stored: &Arc<KeyValue>,
) -> Result<Option<Value>, Status> {
    if by_webhook(resource).is_none() || resource.api_version() == resource.storage_version() {
        return Ok(None);
    }
    let told = |corrupt: Corrupt| corrupt.written();
    let converted = converted_one(api, resource, stored.clone()).await.map_err(told)?;
    stored::try_decode(&converted, resource).map(Some).map_err(told)
}

/// One object in another version, as the webhook has it.
async fn alone(
    api: &ApiServer,
    definition: &Definition,
    object: Value,
    api_version: &str,
) -> Result<Value, String> {
    let converted = ask(api, definition, Subject::One, vec![object], api_version).await?;
    let converted = converted.into_iter().next();
    converted.ok_or_else(|| "the webhook returned nothing".to_owned())
}

/// In a place of its own: to find the webhook's service, an object is read.
fn ask<'a>(
    api: &'a ApiServer,
    definition: &'a Definition,
    subject: Subject<'a>,
    objects: Vec<Value>,
    wanted: &'a str,
) -> BoxFuture<'a, Result<Vec<Value>, String>> {
    Box::pin(async move {
        let converter = api.extend().converters.get(api, &definition.family)?;
        converter.convert(api, subject, objects, wanted).await
    })
}

/// As upstream tells of it: a fault of the server, in the webhook's words.
fn failed(message: String) -> Status {
    Status { code: 500, message, ..Status::default() }
}
