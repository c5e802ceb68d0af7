//! Our requests in etcd's words and its answers in ours; every key passes through the prefix.
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::tombstone;
use crate::error::{Error, Result};
use crate::model::*;
use crate::proto::{self, mvccpb, request_op, response_op};

#[derive(Clone)]
pub struct Prefix(pub Arc<[u8]>);

impl Prefix {
    pub fn add(&self, key: &[u8]) -> Bytes {
        [&self.0, key].concat().into()
    }

    pub fn range(&self, range: &KeyRange) -> (Bytes, Bytes) {
        let end = match &range.end {
            RangeEnd::Before(end) => self.add(end),
            RangeEnd::Unbounded => proto::range_end(&KeyRange::prefix(&self.0[..])),
            RangeEnd::Single => Bytes::new(),
        };
        (self.add(&range.start), end)
    }

    pub fn version(&self, kv: mvccpb::KeyValue) -> Arc<KeyValue> {
        let mut kv = KeyValue::from(kv);
        if !self.0.is_empty() {
            kv.key = Key::from(kv.key.strip_prefix(&*self.0).unwrap_or(&kv.key));
        }
        Arc::new(kv)
    }

    pub fn event(&self, event: mvccpb::Event) -> Option<Event> {
        let kv = self.version(event.kv?);
        Some(Event {
            kv: match event.r#type {
                1 => tombstone(kv.key.clone(), kv.mod_revision),
                _ => kv,
            },
            prev: event.prev_kv.map(|kv| self.version(kv)),
        })
    }

    pub fn range_request(&self, request: &RangeRequest) -> proto::RangeRequest {
        let (key, range_end) = self.range(&request.range);
        proto::RangeRequest {
            key,
            range_end,
            limit: request.limit as i64,
            revision: request.revision as i64,
            serializable: request.serializable,
            keys_only: request.keys_only,
            ..Default::default()
        }
    }

    pub fn range_response(&self, response: proto::RangeResponse) -> RangeResponse {
        RangeResponse {
            revision: response.header.unwrap_or_default().revision as u64,
            more: response.more,
            count: response.count as usize,
            kvs: response.kvs.into_iter().map(|kv| self.version(kv)).collect(),
        }
    }

    pub fn txn_request(&self, txn: &Txn) -> proto::TxnRequest {
        proto::TxnRequest {
            compare: txn.compare.iter().map(|compare| self.compare(compare)).collect(),
            success: txn.success.iter().map(|op| self.op(op)).collect(),
            failure: txn.failure.iter().map(|op| self.op(op)).collect(),
        }
    }

    fn compare(&self, compare: &Compare) -> proto::Compare {
        use proto::compare::{CompareResult, CompareTarget, TargetUnion};
        let (key, range_end) = self.range(&compare.range);
        let result = match compare.relation {
            Relation::Equal => CompareResult::Equal,
            Relation::NotEqual => CompareResult::NotEqual,
            Relation::Greater => CompareResult::Greater,
            Relation::Less => CompareResult::Less,
        };
        let (target, union) = match &compare.target {
            Target::Version(n) => (CompareTarget::Version, TargetUnion::Version(*n as i64)),
            Target::CreateRevision(n) => {
                (CompareTarget::Create, TargetUnion::CreateRevision(*n as i64))
            }
            Target::ModRevision(n) => (CompareTarget::Mod, TargetUnion::ModRevision(*n as i64)),
            Target::Value(value) => (CompareTarget::Value, TargetUnion::Value(value.clone())),
            Target::Lease(lease) => (CompareTarget::Lease, TargetUnion::Lease(*lease)),
        };
        proto::Compare {
            result: result.into(),
            target: target.into(),
            key,
            range_end,
            target_union: Some(union),
        }
    }

    fn op(&self, op: &Op) -> proto::RequestOp {
        use request_op::Request;
        let request = match op {
            Op::Range(request) => Request::RequestRange(self.range_request(request)),
            Op::Put(put) => Request::RequestPut(proto::PutRequest {
                key: self.add(&put.key),
                value: put.value.clone().unwrap_or_default(),
                lease: put.lease.unwrap_or_default(),
                prev_kv: true,
                ignore_value: put.value.is_none(),
                ignore_lease: put.lease.is_none(),
            }),
            Op::Delete(range) => {
                let (key, range_end) = self.range(range);
                let delete = proto::DeleteRangeRequest { key, range_end, prev_kv: true };
                Request::RequestDeleteRange(delete)
            }
            Op::Txn(txn) => Request::RequestTxn(self.txn_request(txn)),
        };
        proto::RequestOp { request: Some(request) }
    }

    pub fn txn_response(&self, txn: &Txn, response: proto::TxnResponse) -> Result<TxnResponse> {
        let revision = response.header.unwrap_or_default().revision as u64;
        self.branch(txn, response, revision)
    }

    fn branch(
        &self,
        txn: &Txn,
        response: proto::TxnResponse,
        revision: Revision,
    ) -> Result<TxnResponse> {
        let ops = if response.succeeded { &txn.success } else { &txn.failure };
        let responses = ops
            .iter()
            .zip(response.responses)
            .map(|(op, response)| self.op_response(op, response, revision))
            .collect::<Result<_>>()?;
        Ok(TxnResponse { revision, succeeded: response.succeeded, responses })
    }

    fn op_response(
        &self,
        op: &Op,
        response: proto::ResponseOp,
        revision: Revision,
    ) -> Result<OpResponse> {
        use response_op::Response;
        Ok(match (op, response.response) {
            (Op::Range(_), Some(Response::ResponseRange(range))) => {
                OpResponse::Range(RangeResponse { revision, ..self.range_response(range) })
            }
            (Op::Put(put), Some(Response::ResponsePut(done))) => {
                let prev = done.prev_kv.map(|kv| self.version(kv));
                OpResponse::Put(Event { kv: written(put, prev.as_deref(), revision), prev })
            }
            (Op::Delete(_), Some(Response::ResponseDeleteRange(done))) => {
                let deleted = done.prev_kvs.into_iter().map(|kv| {
                    let prev = self.version(kv);
                    Event { kv: tombstone(prev.key.clone(), revision), prev: Some(prev) }
                });
                OpResponse::Delete(deleted.collect())
            }
            (Op::Txn(txn), Some(Response::ResponseTxn(response))) => {
                OpResponse::Txn(self.branch(txn, response, revision)?)
            }
            _ => return Err(Error::Unavailable("etcd gave an answer to another question".into())),
        })
    }
}

/// The version a put made; etcd's answer leaves it to the client to work it out.
fn written(put: &Put, prev: Option<&KeyValue>, revision: Revision) -> Arc<KeyValue> {
    let kept = || prev.map(|prev| prev.value.clone()).unwrap_or_default();
    Arc::new(KeyValue {
        key: put.key.clone(),
        value: put.value.clone().unwrap_or_else(kept),
        create_revision: prev.map_or(revision, |prev| prev.create_revision),
        mod_revision: revision,
        version: prev.map_or(1, |prev| prev.version + 1),
        lease: put.lease.unwrap_or_else(|| prev.map_or(0, |prev| prev.lease)),
        slot: Default::default(),
    })
}
