//! Volumes of CSI drivers are attached to the nodes whose pods use them, and detached once nobody
//! there does.
//!
//! A VolumeAttachment asks a driver's own attacher to do it; the kubelet waits until the node's
//! `status.volumesAttached` names the volume, and says in `status.volumesInUse` what it has not let
//! go of yet. Keys are nodes.
#[cfg(test)]
mod tests;
mod wanted;

use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::{Memo, World};
use api::names::NamespacedName;
use api::object::Object;
use client::events::{Happening, reference};
use client::source::Patch;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{
    CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wanted::Volume;

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    account: "attachdetach-controller",
    workers: 4,
    watch,
    reconcile,
};

/// How long a node that is not ready may hold on to a volume: upstream's.
const MOST: SignedDuration = SignedDuration::from_mins(6);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The node's kubelet leaves attaching to us.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Since when a node's volumes have been wanted back, by attachment.
#[derive(Debug, Clone, Default, PartialEq)]
struct WantedBack(BTreeMap<String, Timestamp>);

fn watch(on: &Watching) {
    on.objects::<Node>();
    on.each::<Pod>(|_, change| {
        let pods = change.old.iter().chain(&change.new);
        // Most pods bring nothing that could be attached.
        let pods = pods.filter(|pod| !crate::pods::claims(pod).is_empty());
        let nodes = pods.map(|pod| crate::pods::node(pod)).filter(|node| !node.is_empty());
        let mut keys: Vec<_> = nodes.map(|node| NamespacedName::new("", node)).collect();
        keys.dedup();
        keys
    });
    on.each::<PersistentVolumeClaim>(|world, change| wanted::nodes_of_claim(&change.key, world));
    on.each::<PersistentVolume>(|world, change| {
        let volumes = change.old.iter().chain(&change.new);
        volumes.flat_map(|volume| wanted::nodes_of_volume(volume, world)).collect()
    });
    on.each::<VolumeAttachment>(|world, change| {
        let mut keys = Vec::new();
        for attachment in change.old.iter().chain(&change.new) {
            keys.push(NamespacedName::new("", &attachment.spec.node_name));
            // Others may wait for it to go.
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            let volume = volume.and_then(|name| {
                world.informer::<PersistentVolume>().get(&NamespacedName::new("", name))
            });
            keys.extend(volume.iter().flat_map(|it| wanted::nodes_of_volume(it, world)));
        }
        keys
    });
    on.reads::<CSIDriver>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let node = world.get::<Node>(key);
    let all = world.all::<VolumeAttachment>();
    let here: Vec<_> = all.iter().filter(|it| it.spec.node_name == *key.name).collect();
    let is_managed = node.as_ref().is_some_and(|node| {
        node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MANAGED))
    });
    let wanted = if is_managed { wanted::on(&key.name, world) } else { BTreeMap::new() };

    let mut turn = NodeTurn { key, node: node.as_ref(), world, now, actions: Vec::new() };
    let mut attached = Vec::new();
    // Detached first, so that another node can have them.
    let before = world.recall::<WantedBack>(&key.name).as_deref().cloned().unwrap_or_default();
    let mut back = WantedBack::default();
    let mut letting_go = Vec::new();
    for attachment in &here {
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let Some(volume) = wanted::of_attachment(attachment, world) else { continue };
        if let Some((_, pods)) = wanted.get(name) {
            if attachment.metadata.deletion_timestamp.is_none() {
                if is_attached {
                    turn.tell_attached(&volume, pods);
                    attached.push(volume.unique_name());
                } else {
                    turn.tell_failure(attachment, &volume, pods);
                }
            }
            continue;
        }
        if !is_managed && node.is_some() {
            continue;
        }
        let since = before.0.get(name).copied().unwrap_or(now);
        back.0.insert(name.to_owned(), since);
        if attachment.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match turn.may_detach(&volume, since) {
            Detach::Now { is_forced } => letting_go.push((*attachment, volume, is_forced)),
            Detach::Later(after) => {
                if is_attached {
                    attached.push(volume.unique_name());
                }
                turn.actions.extend(after.map(Action::Again));
            }
        }
    }
    if back != before {
        let memo = match back.0.is_empty() {
            true => Memo::nothing::<WantedBack>(&key.name),
            false => Memo::new(&key.name, back),
        };
        turn.actions.push(Action::Remember(memo));
    }
    turn.report(attached);
    for (attachment, volume, is_forced) in letting_go {
        turn.detach(attachment, &volume, is_forced);
    }
    for (name, (volume, pods)) in &wanted {
        if here.iter().all(|it| it.metadata.name.as_ref() != Some(name)) {
            turn.attach(name, volume, pods, &all);
        }
    }
    turn.actions
}

enum Detach {
    Now { is_forced: bool },
    Later(Option<Duration>),
}

/// One node's turn.
struct NodeTurn<'a> {
    key: &'a NamespacedName,
    /// `None`: it is gone.
    node: Option<&'a Arc<Node>>,
    world: &'a World,
    now: Timestamp,
    actions: Vec<Action>,
}

type Pods = Vec<Arc<Pod>>;

impl NodeTurn<'_> {
    fn tell(&mut self, pods: &Pods, is_warning: bool, reason: &str, note: &str) {
        for pod in pods {
            let normal = Happening::normal(reference(&**pod), reason, note);
            self.actions.push(Action::Record(Happening { is_warning, ..normal }));
        }
    }

    /// Told once: as long as the node's status does not name it.
    fn tell_attached(&mut self, volume: &Volume, pods: &Pods) {
        if !reported(self.node).any(|name| name == volume.unique_name()) {
            let note = format!("AttachVolume.Attach succeeded for volume {:?} ", volume.name);
            self.tell(pods, false, "SuccessfulAttachVolume", &note);
        }
    }

    fn tell_failure(&mut self, attachment: &VolumeAttachment, volume: &Volume, pods: &Pods) {
        let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
        if let Some(error) = error {
            let text = error.message.as_deref().unwrap_or_default();
            let note = format!("AttachVolume.Attach failed for volume {:?} : {text}", volume.name);
            self.tell(pods, true, "FailedAttachVolume", &note);
        }
    }

    /// What the kubelet still uses stays, unless the node is lost.
    fn may_detach(&self, volume: &Volume, since: Timestamp) -> Detach {
        let Some(node) = self.node else { return self.after_a_while(since) };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        if taints.unwrap_or_default().iter().any(|taint| taint.key == OUT_OF_SERVICE) {
            return Detach::Now { is_forced: true };
        }
        let status = node.status.as_ref();
        let mut used = status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
        if !used.any(|name| *name == volume.unique_name()) {
            return Detach::Now { is_forced: false };
        }
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let is_ready = |conditions: &[k8s_openapi::api::core::v1::NodeCondition]| {
            conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
        };
        if self.world.settings.keep_attached || conditions.is_some_and(is_ready) {
            return Detach::Later(None);
        }
        self.after_a_while(since)
    }

    fn after_a_while(&self, since: Timestamp) -> Detach {
        match Duration::try_from((since + MOST).duration_since(self.now)) {
            Ok(left) if !left.is_zero() => Detach::Later(Some(left)),
            _ if self.world.settings.keep_attached => Detach::Later(None),
            _ => Detach::Now { is_forced: true },
        }
    }

    /// The kubelet is asked once more, by what it says on the server, before it loses a volume.
    fn detach(&mut self, attachment: &VolumeAttachment, volume: &Volume, is_forced: bool) {
        let delete = Action::delete(attachment);
        if is_forced {
            return self.actions.push(delete);
        }
        let name = volume.unique_name();
        let object = Target {
            resource: client::ApiResource::of::<Node>(),
            namespace: String::new(),
            name: self.key.name.to_string(),
            uid: String::new(),
        };
        let then = move |live: Option<Arc<Object>>| {
            let node = live.and_then(|live| live.typed::<Node>().ok());
            let status = node.as_ref().and_then(|node| node.status.as_ref());
            let mut used = status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
            if used.any(|used| *used == name) { Vec::new() } else { vec![delete] }
        };
        self.actions.push(Action::Look { object, then: Box::new(then) });
    }

    fn attach(&mut self, name: &str, volume: &Volume, pods: &Pods, all: &[Arc<VolumeAttachment>]) {
        let others: Vec<_> = all
            .iter()
            .filter(|it| it.spec.source.persistent_volume_name.as_ref() == Some(&volume.name))
            .filter(|it| it.spec.node_name != *self.key.name)
            .map(|it| it.spec.node_name.clone())
            .collect();
        if !volume.is_shared && !others.is_empty() {
            return self.tell_waiting(volume, pods, &others);
        }
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: volume.driver.clone(),
                node_name: self.key.name.to_string(),
                source: VolumeAttachmentSource {
                    persistent_volume_name: Some(volume.name.clone()),
                    inline_volume_spec: None,
                },
            },
            status: None,
        };
        self.actions.push(Action::ensure(&attachment));
    }

    /// It can be on one node only, and another has it.
    fn tell_waiting(&mut self, volume: &Volume, pods: &Pods, others: &[String]) {
        let users: Vec<_> = others
            .iter()
            .filter_map(|node| {
                let name = volume.attachment(node);
                Some(wanted::on(node, self.world).remove(&name)?.1)
            })
            .flatten()
            .collect();
        for pod in pods {
            let here = &pod.metadata.namespace;
            let (near, far): (Vec<_>, Vec<_>) =
                users.iter().partition(|user| user.metadata.namespace == *here);
            let names: Vec<_> = near.iter().filter_map(|it| it.metadata.name.clone()).collect();
            let names = names.join(", ");
            let text = match (near.len(), far.len()) {
                (0, 0) => "Volume is already exclusively attached to one node, waiting on detach \
                           before it can be attached to another node"
                    .to_owned(),
                (0, far) => {
                    format!("Volume is already used by {far} pod(s) in different namespaces")
                }
                (_, 0) => format!("Volume is already used by pod(s) {names}"),
                (_, far) => format!(
                    "Volume is already used by pod(s) {names} and {far} pod(s) in different namespaces"
                ),
            };
            let note = format!("Waiting for detach for volume {:?} {text}", volume.name);
            let told = Happening::warning(reference(&**pod), "FailedAttachVolume", note);
            self.actions.push(Action::Record(told));
        }
    }

    fn report(&mut self, mut attached: Vec<String>) {
        let Some(node) = self.node else { return };
        attached.sort();
        let mut known: Vec<_> = reported(self.node).collect();
        known.sort_unstable();
        if known == attached {
            return;
        }
        let list: Vec<_> =
            attached.iter().map(|name| json!({ "name": name, "devicePath": "" })).collect();
        let patch = Patch::Merge(json!({ "status": { "volumesAttached": list } }));
        self.actions.push(Action::Patch { object: Target::of(&**node), part: "status", patch });
    }
}

/// What the node's status says is attached.
fn reported(node: Option<&Arc<Node>>) -> impl Iterator<Item = &str> {
    let status = node.and_then(|node| node.status.as_ref());
    let attached = status.and_then(|status| status.volumes_attached.as_ref());
    attached.into_iter().flatten().map(|it| &*it.name)
}
