//! Node ports: a key for each that is taken.
use crate::server::ApiServer;
use crate::state::keys::status_of;
use api::kinds::find_kind;
use api::status::Status;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use store::{Key, KeyRange, RangeRequest};

/// Upstream's default.
pub const RANGE: RangeInclusive<i64> = 30000..=32767;
/// The lower ports, up to here, are for those who ask for one by number.
const RESERVED: i64 = 30000 + 86;
const PREFIX: &str = "/registry/ranges/servicenodeports/";
const TRIES: usize = 32;

pub fn key(port: i64) -> Key {
    Key::from(format!("{PREFIX}{port}"))
}

/// Who has a port.
pub fn claim(port: i64, service: &Value) -> (Key, Bytes) {
    let owner = json!({
        "namespace": service["metadata"]["namespace"], "name": service["metadata"]["name"],
    });
    (key(port), Bytes::from(owner.to_string()))
}

pub async fn is_taken(api: &ApiServer, port: i64) -> Result<bool, Status> {
    Ok(api.store().get(&key(port)).await.map_err(failed)?.is_some())
}

fn failed(error: store::Error) -> Status {
    status_of(error, find_kind("v1", "Service").expect("services are in the registry"))
}

/// A free port that is not among `ours`; none when all are taken.
pub async fn choose(api: &ApiServer, ours: &HashSet<i64>) -> Result<Option<i64>, Status> {
    for _ in 0..TRIES {
        let port = fastrand::i64(RESERVED..=*RANGE.end());
        if !ours.contains(&port) && !is_taken(api, port).await? {
            return Ok(Some(port));
        }
    }
    let request = RangeRequest { keys_only: true, ..RangeRequest::new(KeyRange::prefix(PREFIX)) };
    let found = api.store().range(request).await.map_err(failed)?;
    let number = |key: &Key| std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?.parse().ok();
    let taken: HashSet<i64> = found.kvs.iter().filter_map(|kv| number(&kv.key)).collect();
    let mut all = (RESERVED..=*RANGE.end()).chain(*RANGE.start()..RESERVED);
    Ok(all.find(|port| !taken.contains(port) && !ours.contains(port)))
}
