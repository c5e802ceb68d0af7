//! Changes in, decisions out: the scheduler without the API.
use crate::cluster::{Labelled, Owner};
use crate::config::{Configuration, Profile};
use crate::decide::{Decider, Decision, Plan};
use crate::event;
use crate::extend::{Extenders, Nobody};
use crate::filter::{devices, hints};
use crate::gang::{Gangs, group_of};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::preemption::{Preemption, Victim};
use crate::queue::Queue;
use crate::reasons::Pending;
use api::names::NamespacedName;
use futures_util::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;
use std::sync::Arc;

pub struct Engine {
    pub decider: Decider,
    pub queue: Queue,
    /// Why pods that wait have no node.
    pub pending: Pending,
    pub gangs: Gangs,
}

/// What is to be done about a pod.
#[derive(Debug)]
pub enum Task {
    /// Volumes and devices first, then the binding.
    Bind { pod: Arc<PodInfo>, node: Box<str>, plan: Plan },
    /// Devices that nobody uses where they are may be found elsewhere.
    Free(Arc<ResourceClaim>),
    /// Its condition and an event say why it has no node.
    Tell {
        pod: Arc<PodInfo>,
        /// `Unschedulable`, or `SchedulerError`.
        reason: &'static str,
        message: String,
        nomination: Nomination,
        victims: Vec<Victim>,
    },
    /// Room is made on their node for somebody more important.
    Unnominate(Arc<PodInfo>),
}

/// What becomes of `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Set(Box<str>),
}

impl Engine {
    pub fn new(configuration: &Configuration, seed: u64) -> Engine {
        Engine {
            decider: Decider::new(configuration.profiles.clone(), seed),
            queue: Queue::new(configuration),
            pending: Pending::default(),
            gangs: Gangs::new(configuration.gangs),
        }
    }

    /// The next pod's fate, with nobody else to ask; none if no pod is to be tried now.
    pub fn next(&mut self, now: Timestamp) -> Option<Vec<Task>> {
        self.next_with(now, &Nobody).now_or_never().expect("nobody is waited for")
    }

    pub async fn next_with(
        &mut self,
        now: Timestamp,
        extenders: &dyn Extenders,
    ) -> Option<Vec<Task>> {
        let pod = self.queue.take(now)?;
        if pod.deleting || self.decider.cluster.is_assumed(&pod.uid) {
            return Some(Vec::new());
        }
        if let Some(tasks) = self.together(&pod, now, extenders).await {
            return Some(tasks);
        }
        match self.decider.decide_with(&pod, now, extenders).await {
            Decision::Place { node, plan } => {
                self.pending.with(|reasons| reasons.remove(&pod.uid));
                self.assume(&pod, &node, &plan);
                Some(vec![Task::Bind { pod, node, plan }])
            }
            Decision::Fail { message } => {
                self.queue.failed(&pod.uid, now);
                let nomination = Nomination::Keep;
                let (reason, victims) = ("SchedulerError", Vec::new());
                Some(vec![Task::Tell { pod, reason, message, nomination, victims }])
            }
            Decision::Refuse { message, by, preemption, free, refused } => {
                let cluster = &self.decider.cluster;
                self.pending.with(|reasons| reasons.keep(&pod.uid, cluster, refused, now));
                let mut tasks: Vec<Task> = free.into_iter().map(Task::Free).collect();
                let (nomination, victims) = match preemption {
                    Preemption::Keep => (Nomination::Keep, Vec::new()),
                    Preemption::Clear => (Nomination::Set("".into()), Vec::new()),
                    Preemption::Make { node, victims } => (Nomination::Set(node), victims),
                };
                if let Nomination::Set(node) = &nomination {
                    tasks.extend(self.nominate(&pod, node));
                }
                self.queue.refused(&pod.uid, by, !victims.is_empty(), now);
                let reason = "Unschedulable";
                tasks.push(Task::Tell { pod, reason, message, nomination, victims });
                Some(tasks)
            }
        }
    }

    /// It is there from now on, whatever the API server has heard of that.
    pub(crate) fn assume(&mut self, pod: &Arc<PodInfo>, node: &str, plan: &Plan) {
        let cluster = &mut self.decider.cluster;
        cluster.place(Arc::new(pod.on(node)), true);
        for (key, allocation) in plan.devices.promises(pod) {
            cluster.devices.promise(key, allocation);
        }
        let volumes = &plan.volumes;
        for (volume, claim) in &volumes.give {
            let name = volume.metadata.name.clone().unwrap_or_default();
            cluster.storage.given.insert(name.into(), claim_key(claim));
        }
        for claim in &volumes.provide {
            cluster.storage.selected.insert(claim_key(claim), node.to_owned());
        }
    }

    /// Who is less important and waits for room on the node looks for another.
    fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) -> Vec<Task> {
        let cluster = &mut self.decider.cluster;
        let less = cluster
            .nominated(node)
            .iter()
            .filter(|other| other.uid != pod.uid && other.wishes.priority < pod.wishes.priority);
        let less: Vec<_> = less.cloned().collect();
        for other in &less {
            cluster.unnominate(&other.uid);
        }
        let nominated = PodInfo { nominated: node.into(), ..(**pod).clone() };
        cluster.nominate(Arc::new(nominated), node);
        less.into_iter().map(Task::Unnominate).collect()
    }

    /// Its binding failed: it is nowhere, and tried again.
    pub fn unbind(&mut self, pod: &PodInfo, plan: &Plan, now: Timestamp) {
        if self.take_back(pod, plan) {
            self.queue.failed(&pod.uid, now);
            self.queue.wake(event::POD_GONE, now);
        }
    }

    /// It is nowhere again; false: it is where the API server says, or was nowhere.
    pub(crate) fn take_back(&mut self, pod: &PodInfo, plan: &Plan) -> bool {
        let (uid, cluster) = (&pod.uid, &mut self.decider.cluster);
        // What was written meanwhile is counted by the claims themselves.
        for (key, _) in plan.devices.promises(pod) {
            cluster.devices.forget(&key);
        }
        if !cluster.is_assumed(uid) {
            return false;
        }
        cluster.forget(uid);
        let volumes = &plan.volumes;
        for (volume, _) in &volumes.give {
            cluster.storage.given.remove(volume.metadata.name.as_deref().unwrap_or_default());
        }
        for claim in &volumes.provide {
            cluster.storage.selected.remove(&claim_key(claim));
        }
        true
    }

    pub fn pod(&mut self, old: Option<&Arc<PodInfo>>, new: Option<&Arc<PodInfo>>, now: Timestamp) {
        if let Some(old) = old
            && new.is_none_or(|new| new.uid != old.uid)
        {
            self.pod_gone(old, now);
        }
        let Some(new) = new else { return };
        // One more of its group may be what the others wait for.
        let group = group_of(new).filter(|_| self.gangs.set(new, !new.deleting));
        self.pod_there(old, new, now);
        if let Some(group) = group {
            self.look_again(&group, now);
        }
    }

    fn pod_there(&mut self, old: Option<&Arc<PodInfo>>, new: &Arc<PodInfo>, now: Timestamp) {
        if !new.node.is_empty() {
            self.queue.remove(&new.uid);
            let before = self.decider.cluster.pod(&new.uid).cloned();
            self.decider.cluster.place(new.clone(), false);
            let events = match before {
                None => event::POD_ADD,
                Some(before) => difference(&before, new),
            };
            self.wake_about(&new.node, events, now);
            return;
        }
        if self.decider.profile(&new.wishes.scheduler).is_none() {
            return;
        }
        let cluster = &mut self.decider.cluster;
        if cluster.is_assumed(&new.uid) {
            // Its binding is under way; if that fails, this is what is tried again.
            self.queue.set(new.clone(), false, now);
            return;
        }
        if new.deleting {
            // Whoever goes needs no place, and holds none.
            self.pod_gone(new, now);
            return;
        }
        let is_told_otherwise = old.is_none_or(|old| old.nominated != new.nominated);
        if is_told_otherwise {
            cluster.nominate(new.clone(), &new.nominated);
        }
        let is_held = self.is_held(new);
        self.queue.set(new.clone(), is_held, now);
    }

    /// It is not to be tried: a gate holds it, its group, or claims of its that nobody has made yet.
    pub(crate) fn is_held(&self, pod: &PodInfo) -> bool {
        let honors = |profile: &Arc<Profile>| profile.honors_gates;
        self.gangs.holds(pod)
            || (pod.wishes.gated && self.decider.profile(&pod.wishes.scheduler).is_none_or(honors))
            || (!pod.device_claims.is_empty()
                && devices::missing(&self.decider.cluster, pod).is_some())
    }

    /// A claim of devices is new, changed or gone.
    pub fn device_claim(
        &mut self,
        key: &NamespacedName,
        new: Option<Arc<ResourceClaim>>,
        now: Timestamp,
    ) {
        let cluster = &mut self.decider.cluster;
        cluster.devices.set_claim(key, new);
        let held = self.queue.held();
        for pod in held.into_iter().filter(|pod| !pod.device_claims.is_empty()) {
            let is_held = self.is_held(&pod);
            self.queue.set(pod, is_held, now);
        }
        self.queue.wake(event::DEVICE_CLAIM, now);
    }

    fn pod_gone(&mut self, pod: &PodInfo, now: Timestamp) {
        self.gangs.set(pod, false);
        self.queue.remove(&pod.uid);
        self.pending.with(|reasons| reasons.remove(&pod.uid));
        let cluster = &mut self.decider.cluster;
        let was_nominated = !pod.nominated.is_empty();
        cluster.unnominate(&pod.uid);
        let was_there = cluster.forget(&pod.uid);
        if was_nominated {
            self.queue.wake(event::POD_GONE, now);
        } else if let Some(was_there) = was_there {
            self.wake_about(&was_there.node, event::POD_GONE, now);
        }
    }

    pub fn node(&mut self, old: Option<&NodeInfo>, new: Option<&Arc<NodeInfo>>, now: Timestamp) {
        let cluster = &mut self.decider.cluster;
        let events = match (old, new) {
            (_, None) => {
                cluster.remove_node(old.map_or("", |old| &old.name));
                event::NODE_GONE
            }
            (None, Some(_)) => event::NODE_ADD,
            (Some(old), Some(new)) => node_difference(old, new),
        };
        if let Some(new) = new
            && old.is_none_or(|old| *old != **new)
        {
            cluster.set_node(new.clone());
        }
        match new {
            Some(new) => self.wake_about(&new.name, events, now),
            None => self.queue.wake(events, now),
        }
    }

    /// Something happened on one node.
    fn wake_about(&mut self, node: &str, events: u32, now: Timestamp) {
        let Engine { decider, queue, .. } = self;
        let Some(row) = decider.cluster.find(node) else { return queue.wake(events, now) };
        queue.wake_if(events, now, |pod, filters| {
            let profile = decider.profile(&pod.wishes.scheduler);
            profile.is_none_or(|it| hints::may_fit(&decider.cluster, it, pod, filters, row))
        });
    }

    pub fn owner(&mut self, old: Option<&Owner>, new: Option<&Arc<Owner>>) {
        let owners = &mut self.decider.cluster.owners;
        match (old, new) {
            (_, Some(new)) => owners.set(new.clone()),
            (Some(old), None) => owners.remove(old),
            (None, None) => {}
        }
    }

    pub fn namespace(&mut self, name: &str, new: Option<&Arc<Labelled>>, now: Timestamp) {
        let namespaces = &mut self.decider.cluster.namespaces;
        match new {
            Some(new) => drop(namespaces.insert(name.into(), new.clone())),
            None => drop(namespaces.remove(name)),
        }
        self.queue.wake(event::NAMESPACE, now);
    }
}

fn claim_key(claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> NamespacedName {
    let [namespace, name] = [&claim.metadata.namespace, &claim.metadata.name]
        .map(|text| text.as_deref().unwrap_or_default());
    NamespacedName::new(namespace, name)
}

/// What a pod that has a node did.
fn difference(old: &PodInfo, new: &PodInfo) -> u32 {
    let mut events = 0;
    if old.labels != new.labels || old.deleting != new.deleting {
        events |= event::POD_LABELS;
    }
    let (was, is) = (&old.wishes.requests, &new.wishes.requests);
    if was != is {
        events |= event::POD_SHRUNK;
    }
    events
}

fn node_difference(old: &NodeInfo, new: &NodeInfo) -> u32 {
    let mut events = 0;
    if old.labels != new.labels {
        events |= event::NODE_LABELS;
    }
    if old.taints != new.taints || old.unschedulable != new.unschedulable {
        events |= event::NODE_TAINTS;
    }
    if old.features != new.features {
        events |= event::NODE_FEATURES;
    }
    if old.allocatable != new.allocatable || old.allowed_pods != new.allowed_pods {
        events |= event::NODE_ALLOCATABLE;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, now, pod, put};

    #[test]
    fn a_pod_is_tried_again_when_a_node_would_do_and_not_before() {
        let mut engine = crate::testing::engine("node a cpu=1\npod x node=a cpu=1\npod p cpu=2");
        assert!(matches!(engine.next(now()).as_deref(), Some([Task::Tell { .. }])));
        for (line, is_tried) in [
            ("node b cpu=1", false),
            (r#"node c cpu=4 taints=[{"key":"k","effect":"NoSchedule"}]"#, false),
            ("pod y node=b cpu=500m", false),
            // Its taint is taken away.
            ("node c cpu=4", true),
        ] {
            put(&mut engine, line);
            assert_eq!(engine.next(now()).is_some(), is_tried, "{line}");
        }
    }

    /// The bound is for a busy machine and code that is not optimised; `bench -- scheduler` has
    /// the figures.
    #[test]
    fn five_thousand_nodes_are_no_reason_to_be_slow() {
        const PODS: usize = 1000;
        let mut engine = Engine::new(&Configuration::default(), 1);
        for index in 0..5000 {
            let zone = index % 3;
            engine.node(None, Some(&node(&format!("n{index} zone=z{zone}"))), now());
        }
        put(&mut engine, r#"service s selector={"app":"w"}"#);
        for index in 0..PODS {
            engine.pod(None, Some(&pod(&format!("p{index} cpu=100m labels.app=w"))), now());
        }
        let begun = std::time::Instant::now();
        let mut placed = 0;
        while let Some(tasks) = engine.next(now()) {
            for task in tasks {
                let Task::Bind { pod, node, .. } = task else { panic!("{task:?}") };
                engine.pod(Some(&pod), Some(&Arc::new(pod.on(&node))), now());
                placed += 1;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!("{:.0} pods/s", PODS as f64 / seconds);
        assert_eq!(placed, PODS);
        assert!(seconds < 30.0, "{seconds} s for {PODS} pods");
    }
}
