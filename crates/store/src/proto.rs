//! etcd's v3 protocol, generated from `proto/`, and its translation to and from [`crate::model`].
//! The etcd engine and the etcd face are its two ends.
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{self, Key, KeyRange, RangeEnd};

#[allow(clippy::all, reason = "generated")]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}
#[allow(clippy::all, reason = "generated")]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

pub use etcdserverpb::*;

/// How etcd writes "from the key on" as a range's end.
const UNBOUNDED: &[u8] = &[0];

pub fn range_of(key: &[u8], range_end: &[u8]) -> KeyRange {
    let end = match range_end {
        [] => RangeEnd::Single,
        end if end == UNBOUNDED => RangeEnd::Unbounded,
        end => RangeEnd::Before(end.into()),
    };
    KeyRange { start: key.into(), end }
}

pub fn range_end(range: &KeyRange) -> Bytes {
    match &range.end {
        RangeEnd::Single => Bytes::new(),
        RangeEnd::Before(end) => Bytes::copy_from_slice(end),
        RangeEnd::Unbounded => Bytes::from_static(UNBOUNDED),
    }
}

impl From<mvccpb::KeyValue> for model::KeyValue {
    fn from(kv: mvccpb::KeyValue) -> Self {
        model::KeyValue {
            key: Key::from(&kv.key[..]),
            // Of its own: a slice would keep the whole answer it came in.
            value: Bytes::copy_from_slice(&kv.value),
            create_revision: kv.create_revision as u64,
            mod_revision: kv.mod_revision as u64,
            version: kv.version as u64,
            lease: kv.lease,
            slot: Default::default(),
        }
    }
}

impl From<&Arc<model::KeyValue>> for mvccpb::KeyValue {
    fn from(kv: &Arc<model::KeyValue>) -> Self {
        mvccpb::KeyValue {
            key: Bytes::copy_from_slice(&kv.key),
            value: kv.value.clone(),
            create_revision: kv.create_revision as i64,
            mod_revision: kv.mod_revision as i64,
            version: kv.version as i64,
            lease: kv.lease,
        }
    }
}
