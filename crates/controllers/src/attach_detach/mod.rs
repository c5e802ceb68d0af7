//! Volumes are attached to the nodes whose pods use them, and detached once nobody there does.
//!
//! The kubelet waits until the node's `status.volumesAttached` names the volume, and says in
//! `status.volumesInUse` what it has not let go of yet. For a volume of a CSI driver, a VolumeAttachment asks
//! the driver's own attacher. A disk of an iSCSI target can be reached from every node: nobody has to do
//! anything, and the nodes' statuses are the book of who has it. That book is what keeps two nodes from one
//! disk. Keys are nodes.
#[cfg(test)]
mod tests;
pub mod wanted;

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
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wanted::{Means, Volume, Wanted};

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    account: "attachdetach-controller",
    // One at a time: of two nodes that want a disk, the second has to see what the first was given.
    workers: 1,
    watch,
    reconcile,
};

/// How long a node that is not ready may hold on to a volume: upstream's.
const MOST: SignedDuration = SignedDuration::from_mins(6);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The node's kubelet leaves attaching to us.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// How soon a node asks again for a disk that another one has, if no change of that node will tell.
const SOON: Duration = Duration::from_secs(10);

/// Since when a node's volumes have been wanted back, by their unique names.
#[derive(Debug, Clone, Default, PartialEq)]
struct WantedBack(BTreeMap<String, Timestamp>);

/// The volumes that are attached by nodes' statuses alone, by node: what statuses in the cache may not say yet,
/// or not any more. The node may be gone, or be about to be asked whether it uses the volume. A process that
/// begins anew does without: it reads what the one before it has written before it decides anything.
#[derive(Debug, Clone, Default, PartialEq)]
struct Given(BTreeMap<String, BTreeSet<String>>);

/// What [`Given`] is remembered by: there is one for all nodes.
const ALL_NODES: &str = "all nodes";

impl Given {
    fn to(&self, node: &str) -> BTreeSet<String> {
        self.0.get(node).cloned().unwrap_or_default()
    }

    fn set(&mut self, node: &str, names: BTreeSet<String>) {
        match names.is_empty() {
            true => drop(self.0.remove(node)),
            false => drop(self.0.insert(node.to_owned(), names)),
        }
    }

    fn remember(&self) -> Action {
        Action::Remember(match self.0.is_empty() {
            true => Memo::nothing::<Given>(ALL_NODES),
            false => Memo::new(ALL_NODES, self.clone()),
        })
    }
}

fn watch(on: &Watching) {
    on.each::<Node>(|world, change| {
        let mut keys = vec![change.key.clone()];
        // Others may wait for what it does not have any more.
        let has = |name: &str| reported(change.new.as_ref()).any(|now| now == name);
        let gone = reported(change.old.as_ref()).filter(|name| wanted::is_of_status(name));
        let gone: Vec<&str> = gone.filter(|name| !has(name)).collect();
        if !gone.is_empty() {
            keys.extend(wanted::nodes_of_names(&gone, world));
        }
        keys
    });
    on.each::<Pod>(|_, change| {
        let pods = change.old.iter().chain(&change.new);
        let pods = pods.filter(|pod| wanted::may_need(pod));
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
    let is_managed = |node: &Arc<Node>| {
        node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MANAGED))
    };
    // Its kubelet sees to itself.
    if node.as_ref().is_some_and(|node| !is_managed(node)) {
        return Vec::new();
    }
    let wanted = if node.is_some() { wanted::on(&key.name, world) } else { Wanted::new() };
    let all = world.all::<VolumeAttachment>();
    let here: Vec<_> = all.iter().filter(|it| it.spec.node_name == *key.name).collect();

    let mut turn = NodeTurn {
        key,
        node: node.as_ref(),
        world,
        now,
        given: world.recall::<Given>(ALL_NODES).as_deref().cloned().unwrap_or_default(),
        before: world.recall::<WantedBack>(&key.name).as_deref().cloned().unwrap_or_default(),
        back: WantedBack::default(),
        attached: BTreeSet::new(),
        actions: Vec::new(),
    };
    // Detached first, so that another node can have them.
    let letting_go = turn.review_attachments(&here, &wanted);
    let returning = turn.review_disks(&wanted);
    turn.report();
    for (attachment, name, is_forced) in letting_go {
        turn.detach(attachment, name, is_forced);
    }
    turn.take_back(returning);
    for (volume, pods) in wanted.values() {
        let Some(name) = volume.attachment(&key.name) else { continue };
        if here.iter().all(|it| it.metadata.name.as_ref() != Some(&name)) {
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
    given: Given,
    /// As the last turn left it, and as this one does.
    before: WantedBack,
    back: WantedBack,
    /// What the status is to say, by unique names.
    attached: BTreeSet<String>,
    actions: Vec<Action>,
}

type Pods = Vec<Arc<Pod>>;

impl NodeTurn<'_> {
    /// What drivers' attachers have done, or are at. Those that are to go, with their volumes' names, and
    /// whether the kubelet is not asked.
    fn review_attachments<'v>(
        &mut self,
        here: &[&'v Arc<VolumeAttachment>],
        wanted: &Wanted,
    ) -> Vec<(&'v VolumeAttachment, String, bool)> {
        let mut letting_go = Vec::new();
        for attachment in here.iter().copied() {
            let name = attachment.metadata.name.as_deref().unwrap_or_default();
            let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
            let Some(volume) = wanted::of_attachment(attachment, self.world) else { continue };
            let Some(own) = volume.attachment(&self.key.name) else { continue };
            let is_deleting = attachment.metadata.deletion_timestamp.is_some();
            let users = wanted.get(&volume.unique_name).filter(|_| own == name);
            if let Some((_, pods)) = users {
                if is_attached && !is_deleting {
                    self.tell_attached(&volume, pods);
                    self.attached.insert(volume.unique_name);
                } else if !is_deleting {
                    self.tell_failure(attachment, &volume, pods);
                }
                continue;
            }
            let since = self.wanted_back(&volume.unique_name);
            if is_deleting {
                continue;
            }
            match self.may_detach(&volume.unique_name, since) {
                Detach::Now { is_forced } => {
                    letting_go.push((&**attachment, volume.unique_name, is_forced));
                }
                Detach::Later(after) => {
                    if is_attached {
                        self.attached.insert(volume.unique_name);
                    }
                    self.actions.extend(after.map(Action::Again));
                }
            }
        }
        letting_go
    }

    /// What the node has by its status alone, and what it may have besides. Those that are to go, and whether
    /// the kubelet is not asked.
    fn review_disks(&mut self, wanted: &Wanted) -> Vec<(String, bool)> {
        let said = reported(self.node).filter(|name| wanted::is_of_status(name));
        let mut disks = self.given.to(&self.key.name);
        disks.extend(said.map(str::to_owned));
        let mut returning = Vec::new();
        for name in &disks {
            if let Some((volume, pods)) = wanted.get(name) {
                self.tell_attached(volume, pods);
                self.attached.insert(name.clone());
                continue;
            }
            let since = self.wanted_back(name);
            match self.may_detach(name, since) {
                Detach::Now { is_forced } => returning.push((name.clone(), is_forced)),
                Detach::Later(after) => {
                    self.attached.insert(name.clone());
                    self.actions.extend(after.map(Action::Again));
                }
            }
        }
        for (volume, pods) in wanted.values() {
            let name = &volume.unique_name;
            let is_new = volume.means == Means::Status && !disks.contains(name);
            if is_new && self.may_have(volume, pods) {
                self.tell_attached(volume, pods);
                self.attached.insert(name.clone());
                disks.insert(name.clone());
            }
        }
        // Before the status says so: the next node that asks must not depend on the cache.
        if self.given.to(&self.key.name) != disks {
            self.given.set(&self.key.name, disks);
            self.actions.push(self.given.remember());
        }
        returning
    }

    /// Since when a volume has been wanted back.
    fn wanted_back(&mut self, name: &str) -> Timestamp {
        let since = self.before.0.get(name).copied().unwrap_or(self.now);
        self.back.0.insert(name.to_owned(), since);
        since
    }

    fn tell(&mut self, pods: &Pods, is_warning: bool, reason: &str, note: &str) {
        for pod in pods {
            let normal = Happening::normal(reference(&**pod), reason, note);
            self.actions.push(Action::Record(Happening { is_warning, ..normal }));
        }
    }

    /// Told once: as long as the node's status does not name it.
    fn tell_attached(&mut self, volume: &Volume, pods: &Pods) {
        if !reported(self.node).any(|name| name == volume.unique_name) {
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
    fn may_detach(&self, volume: &str, since: Timestamp) -> Detach {
        let Some(node) = self.node else { return self.after_a_while(since) };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        if taints.unwrap_or_default().iter().any(|taint| taint.key == OUT_OF_SERVICE) {
            return Detach::Now { is_forced: true };
        }
        if !uses(node, volume) {
            return Detach::Now { is_forced: false };
        }
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
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
    fn detach(&mut self, attachment: &VolumeAttachment, name: String, is_forced: bool) {
        let delete = Action::delete(attachment);
        if is_forced {
            return self.actions.push(delete);
        }
        self.look(move |node| match node.is_some_and(|node| uses(node, &name)) {
            true => Vec::new(),
            false => vec![delete],
        });
    }

    fn look(&mut self, then: impl FnOnce(Option<&Node>) -> Vec<Action> + Send + 'static) {
        let object = Target {
            resource: client::ApiResource::of::<Node>(),
            namespace: String::new(),
            name: self.key.name.to_string(),
            uid: String::new(),
        };
        let then = move |live: Option<Arc<Object>>| {
            let node = live.and_then(|live| live.typed::<Node>().ok());
            then(node.as_deref())
        };
        self.actions.push(Action::Look { object, then: Box::new(then) });
    }

    fn attach(
        &mut self,
        name: String,
        volume: &Volume,
        pods: &Pods,
        all: &[Arc<VolumeAttachment>],
    ) {
        let Means::Driver { driver, .. } = &volume.means else { return };
        let others: BTreeSet<_> = all
            .iter()
            .filter(|it| it.spec.source.persistent_volume_name.as_ref() == Some(&volume.name))
            .filter(|it| it.spec.node_name != *self.key.name)
            .map(|it| it.spec.node_name.clone())
            .collect();
        if !volume.is_shared && !others.is_empty() {
            return self.tell_waiting(volume, pods, &others);
        }
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: driver.clone(),
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

    /// Whether no other node has a disk that only one may have.
    fn may_have(&mut self, volume: &Volume, pods: &Pods) -> bool {
        if volume.is_shared {
            return true;
        }
        let name = &volume.unique_name;
        let nodes = self.world.all::<Node>();
        let says = |node: &Arc<Node>| reported(Some(node)).any(|it| it == name);
        let named = nodes.iter().filter(|node| says(node));
        let mut others: BTreeSet<String> =
            named.filter_map(|node| node.metadata.name.clone()).collect();
        // A change of their statuses wakes this node; of the rest there may be none.
        let are_heard = others.clone();
        let given = self.given.0.iter().filter(|(_, names)| names.contains(name));
        others.extend(given.map(|(node, _)| node.clone()));
        others.remove(&*self.key.name);
        if others.is_empty() {
            return true;
        }
        if !others.is_subset(&are_heard) {
            self.actions.push(Action::Again(SOON));
        }
        self.tell_waiting(volume, pods, &others);
        false
    }

    /// After the status says that they are not attached, so that no kubelet begins to use them, each is
    /// another's only if this node's kubelet, asked at the server, does not use it.
    fn take_back(&mut self, returning: Vec<(String, bool)>) {
        if returning.is_empty() {
            return;
        }
        let (forced, asked): (Vec<_>, Vec<_>) =
            returning.into_iter().partition(|(_, is_forced)| *is_forced);
        let (mut given, key) = (self.given.clone(), self.key.name.to_string());
        let mut attached = self.attached.clone();
        let mut left = given.to(&key);
        if !forced.is_empty() {
            left.retain(|name| forced.iter().all(|(other, _)| other != name));
            given.set(&key, left.clone());
            self.actions.push(given.remember());
        }
        if asked.is_empty() {
            return;
        }
        self.look(move |node| {
            let is_used = |name: &str| node.is_some_and(|node| uses(node, name));
            let (used, unused): (Vec<_>, Vec<_>) =
                asked.into_iter().map(|(name, _)| name).partition(|name| is_used(name));
            left.retain(|name| !unused.contains(name));
            given.set(&key, left);
            let mut actions = vec![given.remember()];
            if let Some(node) = node.filter(|_| !used.is_empty()) {
                attached.extend(used);
                actions.push(say_attached(node, &attached));
            }
            actions
        });
    }

    /// It can be on one node only, and another has it.
    fn tell_waiting(&mut self, volume: &Volume, pods: &Pods, others: &BTreeSet<String>) {
        let users: Vec<_> = others
            .iter()
            .filter_map(|node| Some(wanted::on(node, self.world).remove(&volume.unique_name)?.1))
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

    fn report(&mut self) {
        if self.back != self.before {
            let memo = match self.back.0.is_empty() {
                true => Memo::nothing::<WantedBack>(&self.key.name),
                false => Memo::new(&self.key.name, self.back.clone()),
            };
            self.actions.push(Action::Remember(memo));
        }
        let Some(node) = self.node else { return };
        let mut known: Vec<_> = reported(self.node).collect();
        known.sort_unstable();
        if !known.into_iter().eq(self.attached.iter().map(String::as_str)) {
            self.actions.push(say_attached(node, &self.attached));
        }
    }
}

fn say_attached(node: &Node, names: &BTreeSet<String>) -> Action {
    let list: Vec<_> = names.iter().map(|name| json!({ "name": name, "devicePath": "" })).collect();
    let patch = Patch::Merge(json!({ "status": { "volumesAttached": list } }));
    Action::Patch { object: Target::of(node), part: "status", patch }
}

/// Whether the node's kubelet has not let go of a volume.
fn uses(node: &Node, volume: &str) -> bool {
    let used = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref());
    used.unwrap_or_default().iter().any(|name| name == volume)
}

/// What the node's status says is attached.
fn reported(node: Option<&Arc<Node>>) -> impl Iterator<Item = &str> {
    let status = node.and_then(|node| node.status.as_ref());
    let attached = status.and_then(|status| status.volumes_attached.as_ref());
    attached.into_iter().flatten().map(|it| &*it.name)
}
