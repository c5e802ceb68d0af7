//! etcd's Lease service.
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Member, status_of};
use crate::error::Error;
use crate::proto::lease_server::Lease;
use crate::proto::*;

#[tonic::async_trait]
impl Lease for Member {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        let ttl = ttl.max(1);
        let id = self.engine.grant(id, ttl as u64).await.map_err(status_of)?;
        let response = LeaseGrantResponse { header: self.header(), id, ttl, error: String::new() };
        Ok(Response::new(response))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.engine.revoke(request.into_inner().id).await.map_err(status_of)?;
        Ok(Response::new(LeaseRevokeResponse { header: self.header() }))
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let member = self.clone();
        let answers = request.into_inner().map(move |request| {
            let id = request?.id;
            // Zero is etcd's way to say that the lease is gone.
            let ttl = match member.engine.keep_alive(id) {
                Ok(ttl) => ttl as i64,
                Err(Error::LeaseNotFound(_)) => 0,
                Err(error) => return Err(status_of(error)),
            };
            Ok(LeaseKeepAliveResponse { header: member.header(), id, ttl })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let header = self.header();
        let response = match self.engine.lease(id) {
            Ok(lease) => LeaseTimeToLiveResponse {
                header,
                id,
                ttl: lease.ttl as i64,
                granted_ttl: lease.granted_ttl as i64,
                keys: lease.keys.iter().filter(|_| keys).map(|key| key.to_vec().into()).collect(),
            },
            Err(_) => LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() },
        };
        Ok(Response::new(response))
    }

    async fn lease_leases(
        &self,
        _: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let leases = self.engine.leases().into_iter().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header: self.header(), leases }))
    }
}
