//! etcd's requests in our words and our answers in etcd's.
use tonic::Status;

use super::header_at;
use crate::model::*;
use crate::proto::{self, mvccpb, range_of, request_op, response_op};

pub fn txn(request: proto::TxnRequest) -> Result<Txn, Status> {
    let ops = |ops: Vec<proto::RequestOp>| ops.into_iter().map(op).collect::<Result<Vec<_>, _>>();
    Ok(Txn {
        compare: request.compare.into_iter().map(compare).collect::<Result<_, _>>()?,
        success: ops(request.success)?,
        failure: ops(request.failure)?,
        durability: Durability::Durable,
    })
}

fn op(op: proto::RequestOp) -> Result<Op, Status> {
    use request_op::Request;
    Ok(match op.request {
        Some(Request::RequestRange(request)) => Op::Range(range_request(&request)),
        Some(Request::RequestPut(request)) => Op::Put(put(request)?),
        Some(Request::RequestDeleteRange(request)) => {
            Op::Delete(range_of(key(&request.key)?, &request.range_end))
        }
        Some(Request::RequestTxn(request)) => Op::Txn(Box::new(txn(request)?)),
        None => return Err(Status::invalid_argument("etcdserver: empty operation")),
    })
}

pub fn key(key: &[u8]) -> Result<&[u8], Status> {
    let missing = || Status::invalid_argument("etcdserver: key is not provided");
    (!key.is_empty()).then_some(key).ok_or_else(missing)
}

pub fn put(request: proto::PutRequest) -> Result<Put, Status> {
    if request.ignore_value && !request.value.is_empty() {
        return Err(Status::invalid_argument("etcdserver: value is provided"));
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Status::invalid_argument("etcdserver: lease is provided"));
    }
    Ok(Put {
        key: key(&request.key)?.into(),
        value: (!request.ignore_value).then_some(request.value),
        lease: (!request.ignore_lease).then_some(request.lease),
    })
}

pub fn range_request(request: &proto::RangeRequest) -> RangeRequest {
    RangeRequest {
        range: range_of(&request.key, &request.range_end),
        // Sorting and filtering come before the limit.
        limit: if is_plain(request) { request.limit.max(0) as usize } else { 0 },
        revision: request.revision.max(0) as u64,
        count: true,
        keys_only: request.keys_only,
        serializable: request.serializable,
    }
}

/// In key order and unfiltered, as almost everybody asks.
fn is_plain(request: &proto::RangeRequest) -> bool {
    use proto::range_request::{SortOrder, SortTarget};
    let by_key = request.sort_target() == SortTarget::Key;
    by_key
        && request.sort_order() != SortOrder::Descend
        && request.min_mod_revision == 0
        && request.max_mod_revision == 0
        && request.min_create_revision == 0
        && request.max_create_revision == 0
}

/// The answer to a range, with what the engine leaves to its callers: sorting, filtering, leaving
/// values out.
pub fn range_response(request: &proto::RangeRequest, found: RangeResponse) -> proto::RangeResponse {
    let mut response = proto::RangeResponse {
        header: Some(header_at(found.revision)),
        count: found.count as i64,
        more: found.more,
        kvs: Vec::new(),
    };
    if request.count_only {
        response.more = false;
        return response;
    }
    let mut kvs = found.kvs;
    if !is_plain(request) {
        arrange(request, &mut kvs);
        let limit = request.limit.max(0) as usize;
        response.more = limit > 0 && kvs.len() > limit;
        if response.more {
            kvs.truncate(limit);
        }
    }
    response.kvs = kvs.iter().map(mvccpb::KeyValue::from).collect();
    if request.keys_only {
        response.kvs.iter_mut().for_each(|kv| kv.value.clear());
    }
    response
}

fn arrange(request: &proto::RangeRequest, kvs: &mut Vec<std::sync::Arc<KeyValue>>) {
    use proto::range_request::{SortOrder, SortTarget};
    let within =
        |n: u64, min: i64, max: i64| (min == 0 || n >= min as u64) && (max == 0 || n <= max as u64);
    kvs.retain(|kv| {
        within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
            && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
    });
    match request.sort_target() {
        SortTarget::Key => {}
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if request.sort_order() == SortOrder::Descend {
        kvs.reverse();
    }
}

fn compare(compare: proto::Compare) -> Result<Compare, Status> {
    use proto::compare::{CompareResult, CompareTarget, TargetUnion};
    let number = |n: i64| n.max(0) as u64;
    // The union may be left out where its value is zero; the target still says what is meant.
    let target = match (compare.target(), &compare.target_union) {
        (_, Some(TargetUnion::Version(n))) => Target::Version(number(*n)),
        (_, Some(TargetUnion::CreateRevision(n))) => Target::CreateRevision(number(*n)),
        (_, Some(TargetUnion::ModRevision(n))) => Target::ModRevision(number(*n)),
        (_, Some(TargetUnion::Value(value))) => Target::Value(value.clone()),
        (_, Some(TargetUnion::Lease(lease))) => Target::Lease(*lease),
        (CompareTarget::Version, None) => Target::Version(0),
        (CompareTarget::Create, None) => Target::CreateRevision(0),
        (CompareTarget::Mod, None) => Target::ModRevision(0),
        (CompareTarget::Value, None) => Target::Value(Default::default()),
        (CompareTarget::Lease, None) => Target::Lease(0),
    };
    let relation = match compare.result() {
        CompareResult::Equal => Relation::Equal,
        CompareResult::NotEqual => Relation::NotEqual,
        CompareResult::Greater => Relation::Greater,
        CompareResult::Less => Relation::Less,
    };
    Ok(Compare { range: range_of(key(&compare.key)?, &compare.range_end), relation, target })
}

/// The answer to a transaction; the request says which details each operation asked for.
pub fn txn_response(request: &proto::TxnRequest, response: TxnResponse) -> proto::TxnResponse {
    let ops = if response.succeeded { &request.success } else { &request.failure };
    let revision = response.revision;
    let responses = ops.iter().zip(response.responses);
    proto::TxnResponse {
        header: Some(header_at(revision)),
        succeeded: response.succeeded,
        responses: responses.map(|(op, response)| op_response(op, response, revision)).collect(),
    }
}

fn op_response(op: &proto::RequestOp, response: OpResponse, revision: u64) -> proto::ResponseOp {
    use request_op::Request;
    use response_op::Response;
    let response = match (&op.request, response) {
        (Some(Request::RequestRange(request)), OpResponse::Range(found)) => {
            Some(Response::ResponseRange(range_response(request, found)))
        }
        (Some(Request::RequestPut(request)), OpResponse::Put(event)) => {
            Some(Response::ResponsePut(put_response(request.prev_kv, &event, revision)))
        }
        (Some(Request::RequestDeleteRange(request)), OpResponse::Delete(events)) => {
            let deleted = delete_response(request.prev_kv, &events, revision);
            Some(Response::ResponseDeleteRange(deleted))
        }
        (Some(Request::RequestTxn(request)), OpResponse::Txn(response)) => {
            Some(Response::ResponseTxn(txn_response(request, response)))
        }
        _ => None,
    };
    proto::ResponseOp { response }
}

pub fn put_response(prev_kv: bool, event: &Event, revision: u64) -> proto::PutResponse {
    let prev_kv = event.prev.as_ref().filter(|_| prev_kv).map(mvccpb::KeyValue::from);
    proto::PutResponse { header: Some(header_at(revision)), prev_kv }
}

pub fn delete_response(
    prev_kv: bool,
    events: &[Event],
    revision: u64,
) -> proto::DeleteRangeResponse {
    let before = events.iter().filter_map(|event| event.prev.as_ref());
    proto::DeleteRangeResponse {
        header: Some(header_at(revision)),
        deleted: events.len() as i64,
        prev_kvs: before.filter(|_| prev_kv).map(mvccpb::KeyValue::from).collect(),
    }
}

pub fn event(event: &Event, prev_kv: bool) -> mvccpb::Event {
    use mvccpb::event::EventType;
    let kind = if event.is_delete() { EventType::Delete } else { EventType::Put };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some((&event.kv).into()),
        prev_kv: event.prev.as_ref().filter(|_| prev_kv).map(mvccpb::KeyValue::from),
    }
}
