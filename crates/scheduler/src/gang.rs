//! Pods that have a node together or not at all: pod groups with a gang policy (upstream's GangScheduling
//! plugin, `pkg/scheduler/framework/plugins/gangscheduling`). Off unless `GenericWorkload` is on, as the kind
//! is served only then.
//!
//! A pod of a group is held until its PodGroup is there and has as many pods as it needs. Then all that wait
//! are decided about one after the other, each with those before it in place; if too few find one, all of
//! them are taken away again and nobody is told to go for their sake.
use crate::decide::{Decision, Plan};
use crate::engine::{Engine, Nomination, Task};
use crate::event;
use crate::extend::Extenders;
use crate::pod::PodInfo;
use crate::queue::Refused;
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// As much of a PodGroup as matters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Fewer than these are nobody; `None`: each pod is for itself.
    pub min_count: Option<usize>,
}

impl Keep for Group {
    fn keep(object: &Arc<Object>) -> Result<Arc<Group>, DecodeError> {
        #[derive(Deserialize)]
        struct Read {
            spec: Spec,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            scheduling_policy: Policy,
        }
        #[derive(Deserialize)]
        struct Policy {
            gang: Option<Gang>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Gang {
            min_count: usize,
        }
        let read: Read = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        let min_count = read.spec.scheduling_policy.gang.map(|gang| gang.min_count);
        Ok(Arc::new(Group { min_count }))
    }
}

/// Groups, and who belongs to them.
#[derive(Debug, Default)]
pub struct Gangs {
    /// Whether groups mean anything.
    pub are_on: bool,
    groups: HashMap<NamespacedName, Arc<Group>>,
    /// Pods that wait or run, by their uids.
    members: HashMap<NamespacedName, HashSet<Box<str>>>,
}

/// The group that a pod names.
pub fn group_of(pod: &PodInfo) -> Option<NamespacedName> {
    let name = pod.group.as_deref()?;
    Some(NamespacedName::new(&pod.key.namespace, name))
}

impl Gangs {
    pub fn new(are_on: bool) -> Gangs {
        Gangs { are_on, ..Gangs::default() }
    }

    /// How many pods of its group have to have a node with it; `None`: it is for itself.
    fn min_count(&self, pod: &PodInfo) -> Option<(NamespacedName, usize)> {
        let group = group_of(pod).filter(|_| self.are_on)?;
        let min_count = self.groups.get(&group)?.min_count?;
        Some((group, min_count))
    }

    /// It is not to be tried before its group is there, and enough of its like.
    pub fn holds(&self, pod: &PodInfo) -> bool {
        let Some(name) = group_of(pod).filter(|_| self.are_on) else { return false };
        let Some(group) = self.groups.get(&name) else { return true };
        let count = self.members.get(&name).map_or(0, HashSet::len);
        group.min_count.is_some_and(|min_count| count < min_count)
    }

    /// Whether the group has another number of pods now.
    pub fn set(&mut self, pod: &PodInfo, is_there: bool) -> bool {
        let Some(group) = group_of(pod).filter(|_| self.are_on) else { return false };
        let members = self.members.entry(group.clone()).or_default();
        let is_other = match is_there {
            true => members.insert(pod.uid.clone()),
            false => members.remove(&pod.uid),
        };
        if members.is_empty() {
            self.members.remove(&group);
        }
        is_other
    }
}

/// One that has a place, if enough others have.
struct Placed {
    pod: Arc<PodInfo>,
    node: Box<str>,
    plan: Plan,
}

/// One that has none, and why.
struct Unplaced {
    pod: Arc<PodInfo>,
    message: String,
    by: Refused,
}

impl Engine {
    /// A group is new, changed or gone.
    pub fn pod_group(&mut self, key: &NamespacedName, new: Option<Arc<Group>>, now: Timestamp) {
        match new {
            Some(new) => drop(self.gangs.groups.insert(key.clone(), new)),
            None => drop(self.gangs.groups.remove(key)),
        }
        self.look_again(key, now);
    }

    /// Those of a group that are held, or were refused, may be tried now.
    pub(crate) fn look_again(&mut self, group: &NamespacedName, now: Timestamp) {
        let held = self.queue.held();
        for pod in held.into_iter().filter(|pod| group_of(pod).as_ref() == Some(group)) {
            let is_held = self.is_held(&pod);
            self.queue.set(pod, is_held, now);
        }
        self.queue.wake_if(event::POD_GROUP, now, |pod, _| group_of(pod).as_ref() == Some(group));
    }

    /// The fate of all that wait of a pod's gang; `None`: the pod is for itself.
    pub(crate) async fn together(
        &mut self,
        pod: &Arc<PodInfo>,
        now: Timestamp,
        extenders: &dyn Extenders,
    ) -> Option<Vec<Task>> {
        let (group, min_count) = self.gangs.min_count(pod)?;
        let mut waiting = vec![pod.clone()];
        waiting.extend(self.queue.take_with(|other| group_of(other).as_ref() == Some(&group)));
        let is_there = |uid: &str| self.decider.cluster.pod(uid).is_some();
        let members = self.gangs.members.get(&group);
        let there = members.into_iter().flatten().filter(|uid| is_there(uid)).count();
        let (mut placed, mut unplaced) = (Vec::new(), Vec::new());
        for pod in waiting {
            if pod.deleting || self.decider.cluster.is_assumed(&pod.uid) {
                continue;
            }
            match self.decider.decide_with(&pod, now, extenders).await {
                Decision::Place { node, plan } => {
                    self.assume(&pod, &node, &plan);
                    placed.push(Placed { pod, node, plan });
                }
                Decision::Refuse { message, by, refused, .. } => {
                    let cluster = &self.decider.cluster;
                    self.pending.with(|reasons| reasons.keep(&pod.uid, cluster, refused, now));
                    unplaced.push(Unplaced { pod, message, by });
                }
                Decision::Fail { message } => {
                    let by = Refused { wakes: event::ANYTHING, filters: 0 };
                    unplaced.push(Unplaced { pod, message, by });
                }
            }
        }
        if there + placed.len() < min_count {
            // What keeps one out keeps out all.
            let wakes = unplaced.iter().fold(event::POD_GROUP, |all, one| all | one.by.wakes);
            for Placed { pod, plan, .. } in placed.drain(..) {
                self.take_back(&pod, &plan);
                let message = "pod group is unschedulable".to_owned();
                unplaced.push(Unplaced { pod, message, by: Refused { wakes, filters: 0 } });
            }
            unplaced.iter_mut().for_each(|one| one.by = Refused { wakes, filters: 0 });
        }
        let mut tasks = Vec::new();
        for Placed { pod, node, plan } in placed {
            self.pending.with(|reasons| reasons.remove(&pod.uid));
            tasks.push(Task::Bind { pod, node, plan });
        }
        for Unplaced { pod, message, by } in unplaced {
            self.queue.refused(&pod.uid, by, false, now);
            let (nomination, victims) = (Nomination::Keep, Vec::new());
            tasks.push(Task::Tell { pod, reason: "Unschedulable", message, nomination, victims });
        }
        Some(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;
    use crate::testing::{now, pod, put};
    use expect_test::{Expect, expect};

    fn engine(text: &str) -> Engine {
        let mut engine = Engine::new(&Configuration::default(), 1);
        engine.gangs.are_on = true;
        text.lines().for_each(|line| put(&mut engine, line));
        engine
    }

    fn group(engine: &mut Engine, name: &str, min_count: Option<usize>) {
        let key = NamespacedName::new("default", name);
        engine.pod_group(&key, Some(Arc::new(Group { min_count })), now());
    }

    /// Everything that is decided until nobody is to be tried.
    fn check(engine: &mut Engine, expect: Expect) {
        let mut lines = Vec::new();
        while let Some(tasks) = engine.next(now()) {
            lines.extend(tasks.iter().map(|task| match task {
                Task::Bind { pod, .. } => format!("bind {}\n", pod.key.name),
                Task::Tell { pod, message, .. } => format!("{}: {message}\n", pod.key.name),
                task => format!("{task:?}\n"),
            }));
        }
        lines.sort();
        expect.assert_eq(&lines.concat());
    }

    fn check_all_come(engine: &mut Engine) {
        check(
            engine,
            expect![[r#"
                bind a
                bind b
                bind c
            "#]],
        );
    }

    const GANG: &str = "pod a cpu=1 group=g\npod b cpu=1 group=g\npod c cpu=1 group=g";

    #[test]
    fn a_gang_waits_for_its_group_and_for_enough_pods() {
        let mut engine = engine("node n cpu=4\npod a cpu=1 group=g\npod b cpu=1 group=g");
        check(&mut engine, expect![""]);
        group(&mut engine, "g", Some(3));
        check(&mut engine, expect![""]);
        put(&mut engine, "pod c cpu=1 group=g");
        check_all_come(&mut engine);
    }

    #[test]
    fn a_gang_that_does_not_fit_leaves_room_for_others() {
        let mut engine = engine(&format!("node n cpu=2\n{GANG}"));
        group(&mut engine, "g", Some(3));
        check(
            &mut engine,
            expect![[r#"
                a: pod group is unschedulable
                b: pod group is unschedulable
                c: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            "#]],
        );
        put(&mut engine, "pod other cpu=2");
        check(
            &mut engine,
            expect![[r#"
                bind other
            "#]],
        );
        // A node for all of them.
        put(&mut engine, "node m cpu=3");
        check_all_come(&mut engine);
    }

    #[test]
    fn more_than_are_needed_come_as_there_is_room() {
        let mut engine = engine(&format!("node n cpu=2\n{GANG}"));
        group(&mut engine, "g", Some(2));
        check(
            &mut engine,
            expect![[r#"
                bind a
                bind b
                c: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            "#]],
        );
        put(&mut engine, "node m cpu=1");
        check(
            &mut engine,
            expect![[r#"
                bind c
            "#]],
        );
    }

    #[test]
    fn a_gang_takes_nobodys_place_and_a_basic_group_is_no_gang() {
        let mut engine = engine(
            "node n cpu=2\npod low cpu=2 node=n priority=1\npod a cpu=1 group=g priority=9\n\
             pod b cpu=1 group=g priority=9",
        );
        group(&mut engine, "g", Some(2));
        while let Some(tasks) = engine.next(now()) {
            for task in tasks {
                assert!(
                    matches!(&task, Task::Tell { victims, .. } if victims.is_empty()),
                    "{task:?}"
                );
            }
        }
        let mut engine = self::engine(&format!("node n cpu=2\n{GANG}"));
        group(&mut engine, "g", None);
        check(
            &mut engine,
            expect![[r#"
                bind a
                bind b
                c: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            "#]],
        );
    }

    #[test]
    fn without_the_gate_groups_mean_nothing() {
        let mut engine = engine("node n cpu=4");
        engine.gangs.are_on = false;
        engine.pod(None, Some(&pod("a cpu=1 group=g")), now());
        check(
            &mut engine,
            expect![[r#"
                bind a
            "#]],
        );
    }

    #[test]
    fn a_group_is_read_as_the_api_has_it() {
        let read = |policy: serde_json::Value| {
            let tree = serde_json::json!({ "metadata": { "name": "g", "namespace": "default" },
                "spec": { "schedulingPolicy": policy } });
            let object = Arc::new(Object::from_tree(&tree).expect("an object"));
            Group::keep(&object).expect("a group").min_count
        };
        assert_eq!(read(serde_json::json!({ "gang": { "minCount": 3 } })), Some(3));
        assert_eq!(read(serde_json::json!({ "basic": {} })), None);
    }
}
