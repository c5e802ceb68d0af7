//! Volumes of CSI drivers: processes on this machine that mount what they know how to mount.
//!
//! ```text
//!  volume    what the API says of a volume → where it is and what its driver is asked   (pure)
//!  mount     attach, stage, publish, expand; and the way back
//!  stats     how full a volume is, as its driver tells
//!  register  a driver that came: its name, the node's id to it, where the node is
//! ```
//! What is mounted is written beside it on disk (`vol_data.json`, as upstream does), so that a
//! kubelet which was killed takes it up, and what nobody needs any more goes.
mod mount;
mod register;
mod stats;
#[cfg(test)]
mod tests;
mod volume;

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

pub use register::publish_node;
pub use volume::Volume;

use crate::plugins::connect;
use crate::turns::Turns;
use crate::volumes::in_use::InUse;
use parking_lot::Mutex;
use proto::node_client::NodeClient;
use proto::node_service_capability::{self, rpc::Type};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// How long a driver may take for one call: upstream's.
const PATIENCE: Duration = Duration::from_secs(120);

/// The drivers of this node, and what is known of their volumes beyond what is on disk.
#[derive(Default)]
pub struct Csi {
    drivers: Mutex<BTreeMap<String, Node>>,
    /// Targets that this process has published.
    published: Mutex<HashSet<PathBuf>>,
    /// Calls for one volume wait for each other.
    turns: Turns,
}

impl Csi {
    fn driver(&self, name: &str) -> Result<Node, String> {
        let found = self.drivers.lock().get(name).cloned();
        found.ok_or_else(|| {
            format!("driver name {name} not found in the list of registered CSI drivers")
        })
    }

    async fn turn(&self, name: String) -> tokio::sync::OwnedMutexGuard<()> {
        self.turns.wait(&name).await
    }
}

/// What was staged before this process began is in use.
pub fn take_up(root: &Path, in_use: &InUse) {
    for (file, data) in mount::staged(root) {
        in_use.take_up(volume::unique_name(&data.driver, &data.handle), &file);
    }
}

/// A driver's node service.
#[derive(Clone)]
pub struct Node {
    client: NodeClient<Channel>,
}

/// Calls with one question and one answer, one row each.
macro_rules! calls {
    ($($name:ident: $request:ident => $response:ident,)*) => {
        impl Node {
            $(async fn $name(&self, request: proto::$request) -> Result<proto::$response, Status> {
                let mut request = Request::new(request);
                request.set_timeout(PATIENCE);
                let mut client = self.client.clone();
                match tokio::time::timeout(PATIENCE, client.$name(request)).await {
                    Ok(answer) => answer.map(tonic::Response::into_inner),
                    Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
                }
            })*
        }
    };
}

calls! {
    node_stage_volume: NodeStageVolumeRequest => NodeStageVolumeResponse,
    node_unstage_volume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse,
    node_publish_volume: NodePublishVolumeRequest => NodePublishVolumeResponse,
    node_unpublish_volume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse,
    node_expand_volume: NodeExpandVolumeRequest => NodeExpandVolumeResponse,
    node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse,
    node_get_volume_stats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse,
    node_get_info: NodeGetInfoRequest => NodeGetInfoResponse,
}

impl Node {
    fn at(endpoint: &str) -> Result<Node, String> {
        Ok(Node { client: NodeClient::new(connect(Path::new(endpoint))?) })
    }

    async fn can(&self) -> Result<Vec<Type>, Status> {
        let answer = self.node_get_capabilities(proto::NodeGetCapabilitiesRequest {}).await?;
        let rows = answer.capabilities.into_iter().filter_map(|one| one.r#type);
        Ok(rows.map(|node_service_capability::Type::Rpc(rpc)| rpc.r#type()).collect())
    }
}

/// What a driver said, as Go's clients show it.
fn shown(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
