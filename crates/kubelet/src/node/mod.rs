//! This machine as a Node: what it has ([`facts`]), the object that says so ([`object`]), and the
//! loop that registers it, renews its lease, keeps its status true and tells what changed ([`news`]).
mod facts;
mod news;
mod object;
mod usage;

pub use facts::Facts;
pub use object::{MANAGED, allocatable, labels, without_reserved};
pub use usage::Usage;

use crate::config::Config;
use crate::devices::Devices;
use crate::eviction::Pressure;
use crate::runtime::{Runtime, cri};
use crate::shutdown::GoingDown;
use crate::volumes::in_use::InUse;
use api::status::Status;
use client::events::{Happening, Recorder, reference};
use client::source::Patch;
use client::{Client, Context};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use news::News;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
const LEASES: &str = "kube-node-lease";

pub struct NodeLoop {
    pub config: Arc<Config>,
    pub context: Context,
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    pub recorder: Recorder,
    /// Where the kubelet is reached.
    pub port: Option<u16>,
    /// What the machine is short of.
    pub pressure: Arc<Pressure>,
    pub in_use: Arc<InUse>,
    pub devices: Arc<Devices>,
    pub going_down: Arc<GoingDown>,
    /// Whether pods as a whole could be limited, if they are to be.
    pub limited: Option<Result<(), String>>,
}

/// As many names as a Node tells of an image.
const MOST_NAMES: usize = 5;

/// The largest images: what the scheduler likes to find here.
fn images(mut all: Vec<cri::Image>, most: Option<usize>) -> Vec<(Vec<String>, i64)> {
    all.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    all.truncate(most.unwrap_or(usize::MAX));
    let one = |image: cri::Image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags);
        (names.take(MOST_NAMES).collect(), i64::try_from(image.size).unwrap_or(i64::MAX))
    };
    all.into_iter().map(one).collect()
}

/// What of the conditions that count keeps pods from running: a runtime may have others, of which
/// containerd has one that deprecated settings make false.
fn unready(conditions: &[cri::RuntimeCondition]) -> Vec<String> {
    let rows = [
        ("RuntimeReady", "container runtime not ready"),
        ("NetworkReady", "container runtime network not ready"),
    ];
    let problem = |(name, what): (&str, &str)| match conditions
        .iter()
        .find(|condition| condition.r#type == name)
    {
        Some(condition) if condition.status => None,
        Some(cri::RuntimeCondition { reason, message, .. }) => {
            Some(format!("{what}: {name}=false reason:{reason} message:{message}"))
        }
        None => Some(format!("{what}: <nil>")),
    };
    rows.into_iter().filter_map(problem).collect()
}

impl NodeLoop {
    /// Registers, then keeps the status and the lease, until the context stops.
    pub async fn run(self) {
        let node = loop {
            match self.register().await {
                Ok(node) => break node,
                Err(status) => {
                    tracing::warn!(error = %status.message, "failed to register the node")
                }
            }
            if !self.context.sleep(PAUSE).await {
                return;
            }
        };
        let starting = Happening::normal(self.reference(&node), "Starting", "Starting kubelet.");
        self.recorder.record(starting);
        if let Some(limited) = &self.limited {
            self.tell(&node, news::enforced(&self.config.cgroup_root, limited));
        }
        tokio::join!(self.keep_status(node.clone()), self.keep_lease(&node));
    }

    fn reference(&self, node: &Node) -> k8s_openapi::api::core::v1::ObjectReference {
        // Upstream's kubelet refers to its node by name in place of the uid.
        let uid = Some(self.config.node_name.clone());
        k8s_openapi::api::core::v1::ObjectReference {
            uid,
            resource_version: None,
            ..reference(node)
        }
    }

    async fn facts(&self) -> Facts {
        let mut facts = self.config.machine.read(&self.config.root);
        facts.pressures = self.pressure.now();
        facts.volumes_in_use = self.in_use.names();
        facts.devices = self.devices.amounts();
        match self.runtime.version(cri::VersionRequest::default()).await {
            Ok(version) => {
                facts.runtime = format!("{}://{}", version.runtime_name, version.runtime_version);
            }
            Err(error) => facts.trouble.push(format!("container runtime is down: {error}")),
        }
        match self.runtime.status(cri::StatusRequest::default()).await {
            Ok(answer) => {
                let handler = |one: cri::RuntimeHandler| {
                    let features = one.features.unwrap_or_default();
                    (one.name, features.recursive_read_only_mounts, features.user_namespaces)
                };
                facts.handlers = answer.runtime_handlers.into_iter().map(handler).collect();
                facts.strict_groups =
                    answer.features.map(|features| features.supplemental_groups_policy);
                facts.trouble.extend(unready(&answer.status.unwrap_or_default().conditions));
            }
            Err(error) => {
                facts.trouble.push(format!("container runtime status check failed: {error}"))
            }
        }
        if self.going_down.is() {
            facts.trouble.push("node is shutting down".to_owned());
        }
        facts
    }

    /// With the images that are here; to list them may take a while when the runtime is new.
    async fn facts_and_images(&self) -> Facts {
        let mut facts = self.facts().await;
        if let Ok(listed) = self.runtime.list_images(Default::default()).await {
            facts.images = images(listed.images, self.config.status_images);
        }
        facts
    }

    async fn register(&self) -> Result<Node, Status> {
        if !self.config.registers {
            let found = self.client.get::<Node>("", &self.config.node_name).await?;
            return found.decode().map_err(Status::internal_error);
        }
        let facts = self.facts().await;
        let node = object::node(&self.config, &facts, self.port, self.context.now());
        let made = match self.client.create(&node).await {
            Err(status) if status.is_already_exists() => {
                let (labels, annotations) = (&node.metadata.labels, &node.metadata.annotations);
                let metadata = json!({ "labels": labels, "annotations": annotations });
                let patch = Patch::Strategic(json!({ "metadata": metadata }));
                let name = &self.config.node_name;
                self.client.patch::<Node>("", name, patch).await?
            }
            made => made?,
        };
        made.decode().map_err(Status::internal_error)
    }

    async fn keep_status(&self, node: Node) {
        let mut last = node;
        let mut written: Option<(Value, jiff::Timestamp)> = None;
        loop {
            let now = self.context.now();
            // The first time the scheduler waits for us, and can do without images.
            let facts = match written {
                None => self.facts().await,
                Some(_) => self.facts_and_images().await,
            };
            let status = object::status(&self.config, &facts, self.port, last.status.as_ref(), now);
            let gist = object::gist(&status);
            let due = written.as_ref().is_none_or(|(before, at)| {
                let age = now.duration_since(*at).unsigned_abs();
                *before != gist || age >= self.config.status_period
            });
            if due {
                let patch = Patch::Strategic(json!({ "status": object::patch(&status) }));
                match self.client.patch_status::<Node>("", &self.config.node_name, patch).await {
                    Ok(made) => {
                        let name = &self.config.node_name;
                        let is_first = written.is_none();
                        for one in news::news(name, last.status.as_ref(), &status, is_first) {
                            self.tell(&last, one);
                        }
                        if let Ok(node) = made.decode() {
                            last = node;
                        }
                        written = Some((gist, now));
                    }
                    Err(status) => {
                        tracing::warn!(error = %status.message, "failed to write the node's status");
                        if status.is_not_found() {
                            let _ = self.register().await;
                        }
                    }
                }
            }
            tokio::select! {
                () = self.config.look_again.notified() => {}
                slept = self.context.sleep(self.config.look_period) => if !slept { return },
            }
        }
    }

    fn tell(&self, node: &Node, news: News) {
        let News { is_warning, reason, note } = news;
        let reference = self.reference(node);
        self.recorder.record(match is_warning {
            true => Happening::warning(reference, reason, note),
            false => Happening::normal(reference, reason, note),
        });
    }

    async fn keep_lease(&self, node: &Node) {
        loop {
            let pause = match self.renew(node).await {
                Ok(()) => self.config.lease_duration / 4,
                Err(status) => {
                    tracing::warn!(error = %status.message, "failed to renew the node's lease");
                    PAUSE
                }
            };
            if !self.context.sleep(pause).await {
                return;
            }
        }
    }

    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    async fn renew(&self, node: &Node) -> Result<(), Status> {
        let name = &self.config.node_name;
        let renew_time = Some(MicroTime(self.context.now()));
        match self.client.get::<Lease>(LEASES, name).await {
            Ok(object) => {
                let mut lease: Lease = object.decode().map_err(Status::internal_error)?;
                let spec = lease.spec.get_or_insert_default();
                spec.renew_time = renew_time;
                spec.lease_duration_seconds = Some(self.lease_seconds());
                self.client.update(&lease).await.map(drop)
            }
            Err(status) if status.is_not_found() => {
                let owner = OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: name.clone(),
                    uid: node.metadata.uid.clone().unwrap_or_default(),
                    ..OwnerReference::default()
                };
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        namespace: Some(LEASES.to_owned()),
                        owner_references: Some(vec![owner]),
                        ..ObjectMeta::default()
                    },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(name.clone()),
                        lease_duration_seconds: Some(self.lease_seconds()),
                        renew_time,
                        ..LeaseSpec::default()
                    }),
                };
                self.client.create(&lease).await.map(drop)
            }
            Err(status) => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_conditions_of_a_runtime_count() {
        let check = |conditions: &[(&str, bool)], expected: &[&str]| {
            let condition = |(name, status): &(&str, bool)| cri::RuntimeCondition {
                r#type: (*name).to_owned(),
                status: *status,
                reason: "R".to_owned(),
                message: "m".to_owned(),
            };
            let conditions: Vec<_> = conditions.iter().map(condition).collect();
            assert_eq!(unready(&conditions), expected);
        };
        let warned = ("ContainerdHasNoDeprecationWarnings", false);
        check(&[("RuntimeReady", true), ("NetworkReady", true), warned], &[]);
        let network = "container runtime network not ready: NetworkReady=false reason:R message:m";
        check(&[("RuntimeReady", true), ("NetworkReady", false)], &[network]);
        let runtime = "container runtime not ready: RuntimeReady=false reason:R message:m";
        check(&[("RuntimeReady", false), ("NetworkReady", false)], &[runtime, network]);
        let nothing =
            ["container runtime not ready: <nil>", "container runtime network not ready: <nil>"];
        check(&[], &nothing);
    }
}
