//! What only one object in the cluster may have: addresses and node ports of services. And what else
//! has to change together with an object: the usage of its namespace's quotas.
//!
//! A claim is a key of its own in the store. It is taken in the same transaction that writes the
//! object and freed in the one that removes it; so no two objects ever have the same, however many
//! servers write at once, and a crash leaves nothing to repair.
//!
//! ```text
//!  object ─► settle: fill in what is left to us ─► Claims ─► commit: object and claims, or neither
//! ```
mod address;
mod network;
mod port;
mod service;

use crate::server::ApiServer;
use crate::state::keys::status_of;
use crate::state::peculiar;
use api::kinds::Resource;
use api::status::Status;
use bytes::Bytes;
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use store::{Compare, Event, Key, KeyRange, KeyValue, Op, OpResponse, Outcome, Txn, WriteOptions};
use tokio::sync::OwnedMutexGuard;

/// What a write takes and what it frees, and what else it changes on the way.
#[derive(Debug, Default)]
pub struct Claims {
    take: Vec<(Key, Bytes)>,
    free: Vec<Key>,
    change: Vec<Change>,
    /// Held until the write is done: whoever changes the same waits for it.
    turn: Option<OwnedMutexGuard<()>>,
}

/// Another object that changes with the write, if it is still what it was.
#[derive(Debug)]
struct Change {
    key: Key,
    revision: u64,
    value: Bytes,
}

impl Claims {
    /// Changes another object in the same transaction.
    pub fn change(&mut self, old: &KeyValue, value: Bytes) {
        self.change.push(Change { key: old.key.clone(), revision: old.mod_revision, value });
    }

    pub fn hold(&mut self, turn: OwnedMutexGuard<()>) {
        self.turn = Some(turn);
    }

    pub fn join(&mut self, other: Claims) {
        self.take.extend(other.take);
        self.free.extend(other.free);
        self.change.extend(other.change);
        self.turn = self.turn.take().or(other.turn);
    }

    fn is_empty(&self) -> bool {
        self.take.is_empty() && self.free.is_empty() && self.change.is_empty()
    }
}

/// Whether anything is ever filled in for objects of this kind.
pub fn chooses(resource: &Resource) -> bool {
    is_service(resource)
}

/// Fills in what the object leaves to the cluster, and says what that takes and frees.
pub async fn settle(
    api: &ApiServer,
    resource: &Resource,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Claims, Status> {
    match is_service(resource) {
        true => service::settle(api, object, old).await,
        false => Ok(Claims::default()),
    }
}

/// The first address of the cluster's first network: the API server's own.
pub async fn first_address(api: &ApiServer) -> Result<Option<IpAddr>, Status> {
    Ok(address::networks(api).await?.first().map(|network| network.address(1)))
}

/// What an object that goes has to give back.
pub fn released(resource: &Resource, object: &Value) -> Claims {
    match is_service(resource) {
        true => Claims { free: service::held(object), ..Claims::default() },
        false => Claims::default(),
    }
}

fn is_service(resource: &Resource) -> bool {
    peculiar::of(resource).has_addresses
}

/// How a write with claims ended.
pub enum Committed {
    Applied(Event),
    /// The object is not what it was.
    Conflict(Option<Arc<KeyValue>>),
    /// Somebody else has taken what was claimed, or changed what was to change.
    Taken,
}

/// Writes the object (removes it, without a value) if it is still at `revision`, with its claims.
pub async fn commit(
    api: &ApiServer,
    resource: &Resource,
    (key, revision): (Key, u64),
    value: Option<Bytes>,
    claims: Claims,
    options: WriteOptions,
) -> Result<Committed, Status> {
    let store = api.store();
    if claims.is_empty() {
        let outcome = match (value, revision) {
            (Some(value), 0) => store.create(key, value, options).await,
            (Some(value), revision) => store.update(key, value, revision, options).await,
            (None, revision) => store.delete(key, revision).await,
        };
        return match outcome.map_err(|error| status_of(error, resource))? {
            Outcome::Applied(event) => Ok(Committed::Applied(event)),
            Outcome::Conflict(found) => Ok(Committed::Conflict(found)),
        };
    }
    let mut txn = Txn { durability: options.durability, ..Txn::default() };
    txn.compare.push(Compare::mod_revision(&key, revision));
    txn.compare.extend(claims.take.iter().map(|(key, _)| Compare::mod_revision(key, 0)));
    let changes = claims.change.iter();
    txn.compare.extend(changes.map(|change| Compare::mod_revision(&change.key, change.revision)));
    txn.success.push(match value {
        Some(value) => Op::put(&key, value, options.lease),
        None => Op::Delete(KeyRange::key(&key)),
    });
    txn.success.extend(claims.take.into_iter().map(|(key, value)| Op::put(key, value, 0)));
    txn.success.extend(claims.free.into_iter().map(|key| Op::Delete(KeyRange::key(key))));
    let changes = claims.change.into_iter();
    txn.success.extend(changes.map(|change| Op::put(change.key, change.value, 0)));
    txn.failure.push(Op::get(&key));
    let answer = store.txn(txn).await.map_err(|error| status_of(error, resource))?;
    let first = answer.responses.into_iter().next();
    match (answer.succeeded, first) {
        (true, Some(OpResponse::Put(event))) => Ok(Committed::Applied(event)),
        (true, Some(OpResponse::Delete(mut events))) if !events.is_empty() => {
            Ok(Committed::Applied(events.remove(0)))
        }
        (false, Some(OpResponse::Range(found))) => match found.kvs.into_iter().next() {
            Some(found) if found.mod_revision == revision => Ok(Committed::Taken),
            None if revision == 0 => Ok(Committed::Taken),
            found => Ok(Committed::Conflict(found)),
        },
        _ => Err(Status::internal_error("the store answered another question")),
    }
}
