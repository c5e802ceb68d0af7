//! The pod network as the container runtime wants one.
use crate::{PodNetwork, PodNetworkError, PortMapping, Sandbox};
use runtime::network::{Attachment, Network, NetworkError};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

impl Network for PodNetwork {
    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    fn attach(&self, sandbox: Attachment) -> Answer<'_, Vec<IpAddr>> {
        let network: PodNetwork = self.clone();
        Box::pin(off_the_loop(move || PodNetwork::attach(&network, &of(&sandbox))))
    }

    fn detach(&self, sandbox: Attachment) -> Answer<'_, ()> {
        let network: PodNetwork = self.clone();
        Box::pin(off_the_loop(move || PodNetwork::detach(&network, &sandbox.sandbox_id)))
    }
}

async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PodNetworkError> + Send + 'static,
) -> Result<T, NetworkError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| NetworkError(error.to_string())),
        Err(error) => Err(NetworkError(error.to_string())),
    }
}

fn of(attachment: &Attachment) -> Sandbox {
    let ports = attachment.ports.iter().map(|port| PortMapping {
        host_port: port.host_port,
        container_port: port.container_port,
        protocol: port.protocol.clone(),
        host_ip: port.host_ip.clone(),
    });
    Sandbox {
        id: attachment.sandbox_id.clone(),
        namespace_path: attachment.namespace_path.clone(),
        owner: format!("{}/{}", attachment.namespace, attachment.name),
        ports: ports.collect(),
    }
}
