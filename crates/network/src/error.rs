//! What can go wrong with a pod's network.
use crate::Cidr;
use netlink::NetlinkError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error("no address is free in the pod CIDR {0}: remove pods, or give the node a larger one")]
    Exhausted(Cidr),
    #[error("the pod network needs a pod CIDR, and at most one for each address family")]
    Cidrs,
    #[error("failed to {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is held by another process: is another skiff running?", .0.display())]
    Held(PathBuf),
    #[error("the annotation {name}: {problem}")]
    Bandwidth { name: &'static str, problem: String },
    #[error("the API server has not told of the network policies yet")]
    Policies,
    #[error("the host port {port}/{protocol} of {sandbox} is taken by {holder}")]
    HostPort { port: u16, protocol: &'static str, sandbox: String, holder: String },
    #[error("unknown protocol {0:?} of a host port: it is TCP, UDP or SCTP")]
    Protocol(String),
}
