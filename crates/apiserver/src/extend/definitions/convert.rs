//! Objects from one version of their definition to another.
//!
//! Without a webhook nothing but `apiVersion` changes, and that is done wherever an object is read
//! ([`read`]) or stored. A webhook has to be asked, so its answers are had beforehand: what comes from
//! the store passes [`converted`], what goes there [`for_storage`], and whatever follows finds the
//! version that it wants.
use crate::extend::conversion::Subject;
use crate::server::ApiServer;
use crate::state::convert::convert;
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
    let converted = ask(api, definition, Subject::One, vec![object], api_version).await?;
    let converted = converted.into_iter().next();
    converted.ok_or_else(|| failed("the webhook returned nothing".into()))
}

/// The object as the store has it now, in the version of its row.
pub async fn current(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Arc<KeyValue>, Status> {
    let found = objects::found(api, resource, namespace, name).await?;
    if resource.definition.is_none() {
        return Ok(found);
    }
    let missing = || Status::not_found(resource.group_resource(), name);
    converted(api, resource, vec![found]).await?.pop().ok_or_else(missing)
}

/// The definition, if a webhook converts its objects.
fn by_webhook(resource: &Resource) -> Option<&Definition> {
    let definition = resource.definition.as_deref()?;
    definition.family.converts_by_webhook().then_some(definition)
}

/// What was stored, with every object in the version of the row that a webhook has to convert: all of
/// them in one question.
pub async fn converted(
    api: &ApiServer,
    resource: &Resource,
    mut all: Vec<Arc<KeyValue>>,
) -> Result<Vec<Arc<KeyValue>>, Status> {
    let Some(definition) = by_webhook(resource) else { return Ok(all) };
    let wanted = &definition.version.api_version;
    let (mut places, mut objects) = (Vec::new(), Vec::new());
    for (place, each) in all.iter().enumerate() {
        // What cannot be read is told of by whoever reads it.
        let Ok(object) = api::depth::read::<Value>(&each.value) else { continue };
        if object["apiVersion"] == wanted.as_str() {
            continue;
        }
        let object = custom::prepared(object, definition).map_err(failed)?;
        places.push(place);
        objects.push(object);
    }
    if objects.is_empty() {
        return Ok(all);
    }
    let subject = match objects.len() {
        1 => Subject::One,
        _ => Subject::List { api_version: wanted, kind: resource.list_kind },
    };
    let objects = ask(api, definition, subject, objects, wanted).await?;
    for (place, object) in places.into_iter().zip(objects) {
        let value = stored::lay_out(&object)?;
        let converted = KeyValue { value, ..KeyValue::clone(&all[place]) };
        // A webhook's word is the last: its object gets no defaults of its new version, and loses nothing
        // that its schema does not know.
        converted.slot.mark(definition.version.id);
        all[place] = Arc::new(converted);
    }
    Ok(all)
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
        Item::Initial(objects) => Ok(Item::Initial(converted(api, resource, objects).await?)),
        Item::Events(mut batch) => {
            let there = |event: &Event| (!event.is_delete()).then(|| event.kv.clone());
            let states = batch.events.iter().flat_map(|event| [there(event), event.prev.clone()]);
            let states: Vec<Arc<KeyValue>> = states.flatten().collect();
            let mut states = converted(api, resource, states).await?.into_iter();
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
    in_version(api, definition, object.clone(), &wanted).await.map(Cow::Owned)
}

/// In a place of its own: to find the webhook's service, an object is read.
fn ask<'a>(
    api: &'a ApiServer,
    definition: &'a Definition,
    subject: Subject<'a>,
    objects: Vec<Value>,
    wanted: &'a str,
) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
    Box::pin(async move {
        let converter = api.extend().converters.get(api, &definition.family).map_err(failed)?;
        converter.convert(api, subject, objects, wanted).await.map_err(failed)
    })
}

/// As upstream tells of it: a fault of the server, in the webhook's words.
fn failed(message: String) -> Status {
    Status { code: 500, message, ..Status::default() }
}
