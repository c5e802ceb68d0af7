//! Identities: long random names, as every runtime's. A caller may shorten them.
use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Status;

/// A new identity: 64 hexadecimal digits.
pub fn new_id() -> String {
    (0..4).map(|_| format!("{:016x}", fastrand::u64(..))).collect()
}

/// Finds by identity or by an unambiguous beginning of it.
pub fn find<T>(map: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = map.get(id) {
        return Some(found.clone());
    }
    if id.is_empty() {
        return None;
    }
    let mut matches = map.range(id.to_owned()..).take_while(|(known, _)| known.starts_with(id));
    match (matches.next(), matches.next()) {
        (Some((_, found)), None) => Some(found.clone()),
        _ => None,
    }
}

pub fn not_found(kind: &str, id: &str) -> Status {
    Status::not_found(format!("could not find {kind} {id:?}: not found"))
}
