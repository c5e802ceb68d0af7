//! Objects as the server itself reads and changes them: no client, no rules, no owners of fields.
use crate::resources::{ApiServer, range, status_of};
use crate::stored;
use crate::verbs::current;
use api::kinds::Resource;
use api::status::Status;
use serde_json::Value;
use std::sync::Arc;
use store::cache::{At, Item, Selection};
use store::{KeyRange, KeyValue, Outcome, WriteOptions};

pub async fn get(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    stored::decode(&*current(api, resource, namespace, name).await?, resource)
}

/// Until there is such an object, or it cannot be told.
pub async fn wait_for(api: &ApiServer, resource: &Resource, namespace: &str, name: &str) {
    let Ok(cache) = api.cache(resource).await else { return };
    let range = KeyRange::key(resource.key(namespace, name));
    let wanted = Selection { range, term: None };
    let Ok(mut watch) = cache.watch_list(wanted, At::Any).await else { return };
    loop {
        match watch.next().await {
            Ok(Item::Initial(objects)) if !objects.is_empty() => return,
            Ok(Item::Events(batch)) if batch.events.iter().any(|event| !event.is_delete()) => {
                return;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// All objects in a namespace, or in all; for whoever decides by every one of them.
pub async fn list(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
) -> Result<Vec<Value>, Status> {
    let found = stored(api, resource, namespace, At::Latest).await?;
    found.iter().map(|stored| stored::decode(stored, resource)).collect()
}

/// The same without those that cannot be read: for whoever must go on without them.
pub async fn readable(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
) -> Result<Vec<Value>, Status> {
    let found = stored(api, resource, namespace, At::Latest).await?;
    let read = |stored: &Arc<KeyValue>| {
        api.unreadable().skip(stored, resource, stored::decode(stored, resource))
    };
    Ok(found.iter().filter_map(read).collect())
}

/// The same, as the store has them.
pub async fn stored(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    at: At,
) -> Result<Vec<Arc<KeyValue>>, Status> {
    let wanted = Selection { range: range(resource, namespace), term: None };
    let found = api.cache(resource).await?.list(&wanted, 0, at).await;
    Ok(found.map_err(|error| status_of(error, resource))?.kvs)
}

/// Changes an object until nobody was faster; `change` decides on each state it meets. With
/// `dry_run` it decides, and nothing is written.
pub async fn modify(
    api: &ApiServer,
    resource: &Resource,
    (namespace, name): (&str, &str),
    dry_run: bool,
    change: impl Fn(&mut Value) -> Result<(), Status>,
) -> Result<Value, Status> {
    let mut old = current(api, resource, namespace, name).await?;
    loop {
        let mut object = stored::decode(&old, resource)?;
        change(&mut object)?;
        if dry_run {
            return Ok(object);
        }
        let bytes = stored::encode(&object, resource)?;
        let options = WriteOptions::default();
        match api.store().update(old.key.clone(), bytes, old.mod_revision, options).await {
            Ok(Outcome::Applied(event)) => {
                stored::put_resource_version(&mut object, event.revision());
                return Ok(object);
            }
            Ok(Outcome::Conflict(Some(newer))) => old = newer,
            Ok(Outcome::Conflict(None)) => {
                return Err(Status::not_found(resource.group_resource(), name));
            }
            Err(error) => return Err(status_of(error, resource)),
        }
    }
}
