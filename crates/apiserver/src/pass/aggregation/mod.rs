//! Groups that other servers answer for: APIServices.
//!
//! ```text
//!  registration  an APIService for each group and version that is served here      (rows, definitions)
//!  remote        what an APIService says about the server behind it
//!  availability  whether that server is to be had, and who is told                 (decide, then check)
//!  discovery     what it serves, merged with what is served here                   (merge is pure)
//!  openapi       the same for descriptions, when somebody asks
//!  pass          a request of its groups, passed on in its client's name
//! ```
//! A server that does not answer is marked so and costs nobody else anything: what was known of it is
//! still shown, and nothing here waits for it but those who ask for what is its own.
mod availability;
mod discovery;
mod openapi;
mod pass;
mod priorities;
mod registration;
mod remote;
#[cfg(test)]
mod tests;

pub use discovery::{aggregated, group, groups};
pub use openapi::{document as openapi_document, index as openapi_index, whole as openapi_whole};
pub use pass::pass;
pub use registration::built_in as built_in_services;
pub use remote::Remote;

use crate::server::ApiServer;
use crate::state::following::{Change, follow};
use crate::state::objects;
use crate::state::stored;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use memchr::memmem;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use store::KeyValue;
use store::cache::{At, Item};

/// The servers of one moment, by group and version.
pub type Remotes = HashMap<(String, String), Arc<Remote>>;

/// The servers that answer for groups now.
#[derive(Default)]
pub struct Aggregation {
    current: RwLock<Arc<Remotes>>,
    /// The last description of everything.
    openapi_v2: openapi::Latest,
}

impl Aggregation {
    pub fn current(&self) -> Arc<Remotes> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, remotes: Remotes) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(remotes);
    }

    /// The server that answers for a path, if it is another than this one.
    pub fn find(&self, path: &str) -> Option<Arc<Remote>> {
        let remotes = self.current();
        if remotes.is_empty() {
            return None;
        }
        let path = percent_decode_str(path).decode_utf8_lossy();
        let mut parts = path.trim_start_matches('/').split('/');
        let key = match (parts.next()?, parts.next()?) {
            ("api", version) => (String::new(), version.to_owned()),
            ("apis", group) => (group.to_owned(), parts.next()?.to_owned()),
            _ => return None,
        };
        remotes.get(&key).cloned()
    }
}

fn kind(api_version: &str, kind: &str) -> &'static Resource {
    find_kind(api_version, kind).expect("what aggregation works with is in the registry")
}

fn api_services() -> &'static Resource {
    kind("apiregistration.k8s.io/v1", "APIService")
}

/// Reads the APIServices, and follows them and what they depend on from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    registration::follow_definitions(api).await?;
    refresh(api).await?;
    let kinds =
        [api_services(), kind("v1", "Service"), kind("discovery.k8s.io/v1", "EndpointSlice")];
    let server = api.clone();
    follow(api, &kinds, move |change| {
        let api = server.clone();
        async move {
            let outcome = match &change {
                Change::Item(kind, item) if !kind.is("apiregistration.k8s.io", "APIService") => {
                    nudge(&api, item);
                    Ok(())
                }
                _ => refresh(&api).await,
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "failed to follow APIServices");
            }
        }
    })
    .await
}

/// Reads every APIService anew; what is known of a server stays known.
async fn refresh(api: &ApiServer) -> Result<(), Status> {
    let all = objects::stored(api, api_services(), "", At::Latest).await?;
    let has = |stored: &KeyValue, text: &[u8]| memmem::find(&stored.value, text).is_some();
    // Those that say nothing of a service and all that there is to say are passed over unread.
    let told =
        all.iter().filter(|stored| has(stored, b"\"service\"") || !has(stored, b"\"Local\""));
    let read = told.filter_map(|stored| {
        let read = stored::decode(stored, api_services());
        api.unreadable().skip(stored, api_services(), read)
    });
    let all: Vec<Value> = read.collect();
    let before = api.extend().aggregation.current();
    let mut remotes = Remotes::new();
    let mut new = Vec::new();
    for service in &all {
        let Some(remote) = Remote::read(service, api.proxy_client(), &before) else {
            registration::settle_local(api, service).await?;
            continue;
        };
        let remote = Arc::new(remote);
        if !before.values().any(|known| known.is_checked_as(&remote)) {
            new.push(remote.clone());
        }
        remote.nudge();
        remotes.insert((remote.group.clone(), remote.version.clone()), remote);
    }
    api.extend().aggregation.replace(remotes);
    for remote in new {
        availability::watch_over(api, &remote);
    }
    Ok(())
}

/// What is counted of APIServices, at this moment.
pub async fn metrics(api: &ApiServer) -> String {
    match objects::readable(api, api_services(), "").await {
        Ok(services) => availability::metrics(&services),
        Err(_) => String::new(),
    }
}

/// A service or its endpoints changed: servers in that namespace are looked at again.
fn nudge(api: &ApiServer, item: &Item) {
    let remotes = api.extend().aggregation.current();
    let Item::Events(batch) = item else { return };
    for remote in remotes.values() {
        let inside = format!("/{}/", remote.namespace);
        let concerns = batch
            .events
            .iter()
            .any(|event| memmem::find(event.kv.key.as_ref(), inside.as_bytes()).is_some());
        if concerns {
            remote.nudge();
        }
    }
}
