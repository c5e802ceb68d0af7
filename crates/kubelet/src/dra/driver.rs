//! A driver of dynamic resources: how it registers, and what it is asked.
use super::proto::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use super::proto_v1::{NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use crate::plugins::connect;
use client::Context;
use std::path::Path;
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// How long a driver may take to answer: upstream's.
const PATIENCE: Duration = Duration::from_secs(45);

/// Versions of the protocol, as drivers say them and as gRPC names their services; the messages are
/// the same. The first that a driver names is taken.
const SERVICES: &[(&str, &str)] = &[
    ("v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
    ("v1beta1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"),
];

/// The same of the stream on which a driver tells how its devices are; the newest is taken.
const HEALTH_SERVICES: &[&str] = &["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

#[derive(Clone)]
pub struct Driver {
    channel: Channel,
    service: &'static str,
    /// If it tells it.
    health_service: Option<&'static str>,
    pub endpoint: String,
    /// Stops when its socket is gone.
    pub life: Context,
}

impl Driver {
    pub fn new(
        life: Context,
        name: &str,
        endpoint: &str,
        versions: &[String],
    ) -> Result<Driver, String> {
        let invalid = |why: String| {
            format!(
                "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {why}"
            )
        };
        if versions.is_empty() {
            let why = "empty list of supported gRPC services (aka supported versions)";
            return Err(invalid(why.to_owned()));
        }
        let known =
            |version: &String| SERVICES.iter().find(|(said, _)| said == version).map(|row| row.1);
        let service = versions.iter().find_map(known).ok_or_else(|| {
            let ours: Vec<&str> = SERVICES.iter().map(|row| row.0).collect();
            invalid(format!(
                "none of services supported by the plugin ({versions:?}) are supported by the kubelet ({ours:?})"
            ))
        })?;
        let channel = connect(Path::new(endpoint))?;
        let is_spoken = |service: &&str| versions.iter().any(|version| version == service);
        let health_service = HEALTH_SERVICES.iter().copied().find(is_spoken);
        let endpoint = endpoint.to_owned();
        Ok(Driver { channel, service, health_service, endpoint, life })
    }

    pub async fn prepare(
        &self,
        claims: Vec<Claim>,
    ) -> Result<NodePrepareResourcesResponse, String> {
        let request = NodePrepareResourcesRequest { claims };
        self.call("NodePrepareResources", request).await
    }

    pub async fn unprepare(
        &self,
        claims: Vec<Claim>,
    ) -> Result<NodeUnprepareResourcesResponse, String> {
        let request = NodeUnprepareResourcesRequest { claims };
        self.call("NodeUnprepareResources", request).await
    }

    pub fn tells_health(&self) -> bool {
        self.health_service.is_some()
    }

    /// How its devices are, from now on.
    pub async fn watch_health(&self) -> Result<Streaming<NodeWatchResourcesResponse>, Status> {
        let Some(service) = self.health_service else {
            return Err(Status::unimplemented("it does not say so"));
        };
        let path = PathAndQuery::try_from(format!("/{service}/NodeWatchResources"));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        let ready = tokio::time::timeout(PATIENCE, client.ready()).await;
        let ready = ready.map_err(|_| Status::deadline_exceeded("it does not answer"))?;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = tonic_prost::ProstCodec::default();
        let request = tonic::Request::new(NodeWatchResourcesRequest {});
        Ok(client.server_streaming(request, path, codec).await?.into_inner())
    }

    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, String>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let path = format!("/{}/{method}", self.service);
        let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        let asked = async {
            client.ready().await.map_err(|error| format!("Unavailable desc = {error}"))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = client.unary(tonic::Request::new(request), path, codec).await;
            let said = |status: Status| format!("{:?} desc = {}", status.code(), status.message());
            answer.map(tonic::Response::into_inner).map_err(said)
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let late = || Err("DeadlineExceeded desc = context deadline exceeded".to_owned());
        answer
            .unwrap_or_else(|_| late())
            .map_err(|why| format!("{method}: rpc error: code = {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_driver_says_what_it_speaks() {
        let check = |versions: &[&str], expected: &str| {
            let versions: Vec<String> = versions.iter().map(|one| String::from(*one)).collect();
            let said = match Driver::new(Context::new(), "d", "/run/d.sock", &versions) {
                Ok(driver) => driver.service.to_owned(),
                Err(why) => why,
            };
            assert!(said.ends_with(expected), "{said}");
        };
        check(&["v1alpha4", "v1beta1.DRAPlugin", "v1.DRAPlugin"], "dra.v1beta1.DRAPlugin");
        check(&["v1.DRAPlugin"], "dra.v1.DRAPlugin");
        check(&[], "empty list of supported gRPC services (aka supported versions)");
        check(
            &["v9.DRAPlugin"],
            "are supported by the kubelet ([\"v1.DRAPlugin\", \"v1beta1.DRAPlugin\"])",
        );
    }
}
