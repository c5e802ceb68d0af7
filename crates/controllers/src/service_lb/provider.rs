//! What a cloud has to be able to do for services.
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub type Said<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// A cloud's load balancers: upstream's `cloudprovider.LoadBalancer`. Each call may come again: what is
/// there already, or gone already, is success.
pub trait LoadBalancers: Send + Sync {
    /// `None`: the service has no balancer.
    fn get<'a>(&'a self, service: &'a Service) -> Said<'a, Option<LoadBalancerStatus>>;

    /// Makes the balancer, or changes it to what the service wants now.
    fn ensure<'a>(
        &'a self,
        service: &'a Service,
        nodes: &'a [Arc<Node>],
    ) -> Said<'a, LoadBalancerStatus>;

    /// Only the nodes have changed.
    fn update<'a>(&'a self, service: &'a Service, nodes: &'a [Arc<Node>]) -> Said<'a, ()>;

    fn delete<'a>(&'a self, service: &'a Service) -> Said<'a, ()>;
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// Another controller looks after it.
    #[error("implemented by alternate to cloud provider")]
    Elsewhere,
    /// Asked again not before so long.
    #[error("{1}")]
    Later(Duration, String),
    #[error("{0}")]
    Failed(String),
}

/// A cloud, as settings hold it.
#[derive(Clone)]
pub struct Provider(pub Arc<dyn LoadBalancers>);

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
