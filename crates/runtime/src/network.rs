//! The network of a sandbox, as far as the runtime cares: somebody gives the namespace at a path
//! its links and says which addresses it has. The namespace has its loopback device already.
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

mod cni;
pub use cni::Cni;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

/// What a network may know of a sandbox.
#[derive(Debug, Clone)]
pub struct Attachment {
    pub sandbox_id: String,
    pub namespace_path: PathBuf,
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub annotations: BTreeMap<String, String>,
    pub ports: Vec<PortMapping>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    pub host_port: i32,
    pub container_port: i32,
    pub protocol: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

/// Filled in by the pod network, by CNI plugins, or by nobody.
pub trait Network: Send + Sync + 'static {
    /// Whether sandboxes can be given a network now; why not, if not.
    fn ready(&self) -> Result<(), NetworkError>;
    fn attach(&self, sandbox: Attachment) -> Answer<'_, Vec<IpAddr>>;
    /// Must bear to be called twice, and for what was never attached.
    fn detach(&self, sandbox: Attachment) -> Answer<'_, ()>;
    /// These sandboxes are all there are: what any other was given comes back.
    fn keep_only(&self, _sandbox_ids: Vec<String>) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// Loopback and nothing else.
pub struct Loopback;

impl Network for Loopback {
    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    fn attach(&self, _: Attachment) -> Answer<'_, Vec<IpAddr>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn detach(&self, _: Attachment) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
