//! etcd's KV service.
use tonic::{Request, Response, Status};

use super::{Member, convert, header_at, status_of};
use crate::model::{Op, OpResponse, Txn};
use crate::proto::kv_server::Kv;
use crate::proto::*;

impl Member {
    /// One operation as a transaction of its own.
    async fn single(&self, op: Op) -> Result<(u64, OpResponse), Status> {
        let txn = Txn { success: vec![op], ..Txn::default() };
        let mut response = self.engine.txn(txn).await.map_err(status_of)?;
        let answer = response.responses.pop();
        answer
            .map(|answer| (response.revision, answer))
            .ok_or_else(|| Status::internal("no answer"))
    }
}

#[tonic::async_trait]
impl Kv for Member {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let request = request.into_inner();
        convert::key(&request.key)?;
        let found = self.engine.range(&convert::range_request(&request)).map_err(status_of)?;
        Ok(Response::new(convert::range_response(&request, found)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        let prev_kv = request.prev_kv;
        match self.single(Op::Put(convert::put(request)?)).await? {
            (revision, OpResponse::Put(event)) => {
                Ok(Response::new(convert::put_response(prev_kv, &event, revision)))
            }
            _ => Err(Status::internal("an answer to another question")),
        }
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        let range = range_of(convert::key(&request.key)?, &request.range_end);
        match self.single(Op::Delete(range)).await? {
            (revision, OpResponse::Delete(events)) => {
                Ok(Response::new(convert::delete_response(request.prev_kv, &events, revision)))
            }
            _ => Err(Status::internal("an answer to another question")),
        }
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        let response = self.engine.txn(convert::txn(request.clone())?).await.map_err(status_of)?;
        Ok(Response::new(convert::txn_response(&request, response)))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let revision = request.into_inner().revision.max(0) as u64;
        self.engine.compact(revision).await.map_err(status_of)?;
        Ok(Response::new(CompactionResponse { header: Some(header_at(self.engine.revision())) }))
    }
}
