//! Objects of built-in kinds as the server itself reads and changes them: no client, no owners of fields,
//! and of rules only what a kind cannot be without.
use super::{allocation, identity, stored};
use crate::server::ApiServer;
use crate::state::keys::{range, status_of};
use api::codec::json;
use api::kinds::Resource;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use store::cache::{At, Item, Selection};
use store::{Key, KeyRange, KeyValue, Outcome, WriteOptions};

pub async fn get(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    stored::decode(&*found(api, resource, namespace, name).await?, resource)
}

/// The object as the store has it now, in the version that it is stored in.
pub async fn found(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Arc<KeyValue>, Status> {
    let key = resource.key(namespace, name);
    let found = api.store().get(key.as_bytes()).await.map_err(|e| status_of(e, resource))?;
    found.ok_or_else(|| Status::not_found(resource.group_resource(), name))
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
    let mut old = found(api, resource, namespace, name).await?;
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

/// What the server itself creates on an empty store. A conflict is another start's object.
pub async fn first(
    api: &ApiServer,
    resource: &'static Resource,
    mut object: Value,
) -> Result<(), Status> {
    resource.set_defaults(&mut object);
    identity::begin(&mut object, Timestamp::now());
    let claims = allocation::settle(api, resource, &mut object, None).await?;
    (resource.rules.prepare_create)(resource, &mut object);
    let object = json::canonicalize(object, resource.ty()).map_err(Status::internal_error)?.value;
    let key = Key::from(
        resource.key(identity::text(&object, "namespace"), identity::text(&object, "name")),
    );
    let bytes = stored::encode(&object, resource)?;
    let options = WriteOptions::default();
    allocation::commit(api, resource, (key, 0), Some(bytes), claims, options).await.map(drop)
}
