//! The objects of a definition that goes, deleted before it
//! (`apiextensions-apiserver/pkg/controller/finalizer`).
use super::{current, delete, is_gone};
use crate::extend::definitions::definitions;
use crate::server::ApiServer;
use crate::state::keys::{range, status_of};
use crate::state::objects;
use crate::state::stored;
use api::custom::accept::{CLEANUP, Condition, is_true};
use api::kinds::Resource;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use store::cache::{At, Selection};
use store::{Outcome, WriteOptions};

/// How long objects may take to go before the definition says that some are left.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often one looks, if nothing is heard.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Deletes the objects of the definition of this uid, then lets it go. `home` is where they are; none
/// if the definition was never served.
pub fn start(api: &ApiServer, name: String, uid: String, home: Option<Arc<Resource>>) {
    let api = api.clone();
    tokio::spawn(async move {
        let work = async {
            while let Err(error) = clean(&api, &name, &uid, home.as_deref()).await {
                if error.is_not_found() {
                    return;
                }
                tracing::warn!(%error, name, "failed to delete the objects of a definition");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        tokio::select! {
            () = api.stopping() => {}
            () = work => {}
        }
    });
}

async fn clean(
    api: &ApiServer,
    name: &str,
    uid: &str,
    home: Option<&Resource>,
) -> Result<(), Status> {
    let begun = Condition::terminating(
        true,
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    let definition = say(api, name, uid, &begun).await?;
    let end = match home.filter(|_| is_true(&definition, "Established")) {
        None => Condition::terminating(false, "NeverEstablished", "resource was never established"),
        Some(home) => {
            if let Err((condition, error)) = delete_all(api, home).await {
                say(api, name, uid, &condition).await?;
                return Err(error);
            }
            let text = "removed all instances";
            Condition::terminating(false, "InstanceDeletionCompleted", text)
        }
    };
    finish(api, name, uid, &end).await
}

/// Writes a condition into the definition, if it is still the same one.
async fn say(
    api: &ApiServer,
    name: &str,
    uid: &str,
    condition: &Condition,
) -> Result<Value, Status> {
    objects::modify(api, definitions(), ("", name), false, |definition| {
        check(definition, name, uid)?;
        condition.put(definition, Timestamp::now());
        Ok(())
    })
    .await
}

fn check(definition: &Value, name: &str, uid: &str) -> Result<(), Status> {
    match definition["metadata"]["uid"] == uid {
        true => Ok(()),
        false => Err(Status::not_found(definitions().group_resource(), name)),
    }
}

/// Deletes every object, and waits until all are gone: they may have finalizers of their own.
async fn delete_all(api: &ApiServer, home: &Resource) -> Result<(), (Condition, Status)> {
    let failed = |reason: &'static str, text: &str| {
        let text = text.to_owned();
        move |error: Status| {
            let message = format!("{text}: {}", error.message);
            (Condition::terminating(true, reason, &message), error)
        }
    };
    let all = objects::stored(api, home, "", At::Latest).await;
    let all = all.map_err(failed("InstanceDeletionFailed", "could not list instances"))?;
    for stored in &all {
        let meta = stored::meta(stored);
        let gone = delete::remove_unasked(api, home, &meta.namespace, &meta.name).await;
        gone.map_err(failed("InstanceDeletionFailed", "could not issue all deletes"))?;
    }
    let text = "could not confirm zero CustomResources remaining";
    match tokio::time::timeout(PATIENCE, all_gone(api, home)).await {
        Ok(outcome) => outcome.map_err(failed("InstanceDeletionCheck", text)),
        Err(_) => {
            let late = Status::internal_error("context deadline exceeded");
            let message = format!("{text}: context deadline exceeded");
            Err((Condition::terminating(true, "InstanceDeletionCheck", &message), late))
        }
    }
}

async fn all_gone(api: &ApiServer, home: &Resource) -> Result<(), Status> {
    let wanted = Selection { range: range(home, ""), term: None };
    let cache = api.cache(home).await?;
    let watch = cache.watch_list(wanted, At::Any).await;
    let mut watch = watch.map_err(|error| status_of(error, home))?;
    loop {
        if objects::stored(api, home, "", At::Latest).await?.is_empty() {
            return Ok(());
        }
        // Something happened, or nothing did for a while: either way one looks again.
        let heard = tokio::time::timeout(LOOK_EVERY, watch.next()).await;
        if let Ok(Err(error)) = heard {
            return Err(status_of(error, home));
        }
    }
}

/// Takes the finalizer away, and the definition with it if that was the last one.
async fn finish(api: &ApiServer, name: &str, uid: &str, end: &Condition) -> Result<(), Status> {
    let resource = definitions();
    let mut old = current(api, resource, "", name).await?;
    loop {
        let mut definition = stored::decode(&old, resource)?;
        check(&definition, name, uid)?;
        end.put(&mut definition, Timestamp::now());
        if let Some(all) = definition["metadata"]["finalizers"].as_array_mut() {
            all.retain(|finalizer| finalizer != CLEANUP);
        }
        let store = api.store();
        let outcome = match is_gone(&definition, resource) {
            true => store.delete(old.key.clone(), old.mod_revision).await,
            false => {
                let bytes = stored::encode(&definition, resource)?;
                let options = WriteOptions::default();
                store.update(old.key.clone(), bytes, old.mod_revision, options).await
            }
        };
        match outcome.map_err(|error| status_of(error, resource))? {
            Outcome::Applied(_) => return Ok(()),
            Outcome::Conflict(Some(newer)) => old = newer,
            Outcome::Conflict(None) => return Ok(()),
        }
    }
}
