//! Waits until an object is as somebody wants it, or until it is too late.
use crate::cluster::{Cluster, collection};
use crate::failure::Outcome;
use api::status::Status;
use client::ApiResource;
use client::source::{Collection, Event, Page, WatchFrom};
use futures_util::StreamExt;
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Longer than anybody waits.
pub const FOREVER: Duration = Duration::from_secs(168 * 3600);

/// What somebody makes of an object as it is now; none if it is not there.
pub type Look<'l, T> = dyn FnMut(Option<&Value>) -> Outcome<ControlFlow<T>> + 'l;

/// One object, seen each time that it changes until `look` breaks off; none if that takes too long.
pub async fn until<T>(
    cluster: &Cluster,
    of: &ApiResource,
    namespace: &str,
    name: &str,
    patience: Duration,
    look: &mut Look<'_, T>,
) -> Outcome<Option<T>> {
    let one = collection(of, namespace, "", &format!("metadata.name={name}"))?;
    until_any(cluster, one, patience, look).await
}

/// The same for any of a collection: `look` sees none at first if it is empty, and for each that goes.
pub async fn until_any<T>(
    cluster: &Cluster,
    of: Collection,
    patience: Duration,
    look: &mut Look<'_, T>,
) -> Outcome<Option<T>> {
    let end = Instant::now() + patience;
    loop {
        let listed = timeout_at(end, cluster.source.list(of.clone(), Page::default())).await;
        let Ok(listed) = listed else { return Ok(None) };
        let listed = listed?;
        if listed.items.is_empty()
            && let ControlFlow::Break(found) = look(None)?
        {
            return Ok(Some(found));
        }
        for object in &listed.items {
            let tree = object.tree().map_err(|error| error.to_string())?;
            if let ControlFlow::Break(found) = look(Some(&tree))? {
                return Ok(Some(found));
            }
        }
        let from = WatchFrom { revision: listed.revision, initial_events: false, timeout: None };
        let watch = timeout_at(end, cluster.source.watch(of.clone(), from)).await;
        let mut watch = match watch {
            Err(_) => return Ok(None),
            Ok(Ok(watch)) => watch,
            Ok(Err(status)) if status.is_expired() => continue,
            Ok(Err(status)) => return Err(status.into()),
        };
        loop {
            let event = match timeout_at(end, watch.next()).await {
                Err(_) => return Ok(None),
                Ok(None) => break,
                Ok(Some(Err(status))) if status.is_expired() || is_cut(&status) => break,
                Ok(Some(Err(status))) => return Err(status.into()),
                Ok(Some(Ok(event))) => event,
            };
            let tree = match &event {
                Event::Added(object) | Event::Modified(object) => {
                    Some(object.tree().map_err(|error| error.to_string())?)
                }
                Event::Deleted(_) => None,
                Event::Bookmark { .. } => continue,
            };
            if let ControlFlow::Break(found) = look(tree.as_ref())? {
                return Ok(Some(found));
            }
        }
    }
}

/// The connection broke off, which says nothing about the object.
fn is_cut(status: &Status) -> bool {
    status.message.starts_with("an answer broke off")
}
