//! Pods with names that stay, made and ended in order, each with claims of its own.
mod claims;
mod identity;
mod rollout;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching};
use crate::history::{History, REVISION};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use std::collections::BTreeSet;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "statefulset-controller",
    account: "statefulset-controller",
    workers: 5,
    watch,
    reconcile,
};

/// Where a set's revisions say their hash.
const HASH: &str = "controller.kubernetes.io/hash";

fn watch(on: &Watching) {
    on.objects::<StatefulSet>();
    on.owned::<Pod, StatefulSet>(selector);
    on.reads::<ControllerRevision>();
    // A claim that goes may hold up its pod.
    on.each::<PersistentVolumeClaim>(|world, change| {
        let sets = world.informer::<StatefulSet>();
        let read = sets.read();
        let of_namespace = read.in_namespace(&change.key.namespace);
        let has = |set: &StatefulSet| {
            let mut prefixes = claims::prefixes(set);
            prefixes.any(|prefix| change.key.name.starts_with(&prefix))
        };
        of_namespace.filter(|(_, set)| has(set)).map(|(key, _)| key.clone()).collect()
    });
}

fn selector(set: &StatefulSet) -> Selector {
    Selector::from_label_selector(Some(&set.spec.selector)).unwrap_or_else(|_| Selector::nothing())
}

/// What a decision about a set looks at.
struct View<'a> {
    set: &'a StatefulSet,
    world: &'a World,
    now: Timestamp,
    history: &'a History,
    /// The revision that pods are of which are not to be updated yet.
    current: &'a str,
    /// Their template.
    old: PodTemplateSpec,
    min_ready: i32,
}

impl View<'_> {
    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready, self.now)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || is_going(pod)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        revision(pod) == self.history.name
    }

    /// The pod goes, and the set's events say so.
    fn delete(&self, pod: &Pod) -> Vec<Action> {
        let text = self.event("Delete", pod);
        let told = Happening::normal(reference(self.set), "SuccessfulDelete", text);
        vec![Action::delete(pod), Action::Record(told)]
    }

    fn create(&self, pod: &Pod) -> Vec<Action> {
        let mut actions = claims::missing(self, pod);
        let failed = {
            let (object, text) = (reference(self.set), self.event("Create", pod));
            let text = text.trim_end_matches("successful").to_owned();
            Box::new(move |status: &api::status::Status| {
                let text = format!("{text}failed error: {}", status.message);
                vec![Action::Record(Happening::warning(object, "FailedCreate", text))]
            })
        };
        let create = vec![Action::create(pod)];
        actions.push(Action::Several { actions: create, otherwise: Some(failed) });
        let text = self.event("Create", pod);
        let told = Happening::normal(reference(self.set), "SuccessfulCreate", text);
        actions.push(Action::Record(told));
        actions
    }

    fn event(&self, verb: &str, pod: &Pod) -> String {
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        let (pod, set) = (name(&pod.metadata.name), name(&self.set.metadata.name));
        format!("{verb} Pod {pod} in StatefulSet {set} successful")
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_running(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(set) = world.get::<StatefulSet>(key) else { return Vec::new() };
    let spec = &set.spec;
    let Claimed { objects, mut actions } = claim(&*set, &selector(&set), world, |_: &Pod| true);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let mine: Vec<Arc<Pod>> =
        objects.into_iter().filter(|pod| identity::ordinal(name, pod).is_some()).collect();
    let status = set.status.clone().unwrap_or_default();
    let mut history = History::of(&*set, &spec.template, HASH, status.collision_count, world);
    let told = status
        .current_revision
        .clone()
        .filter(|name| history.all.iter().any(|one| one.metadata.name.as_ref() == Some(name)));
    let current = told.unwrap_or_else(|| history.name.clone());
    actions.append(&mut history.actions);
    let view = View {
        set: &set,
        world,
        now,
        old: history.template(&current).unwrap_or_else(|| spec.template.clone()),
        history: &history,
        current: &current,
        min_ready: spec.min_ready_seconds.unwrap_or_default(),
    };
    if set.metadata.deletion_timestamp.is_none() {
        actions.extend(rollout::steps(&view, &mine));
        let used: BTreeSet<&str> =
            mine.iter().map(|pod| revision(pod)).chain([&*current]).collect();
        actions.extend(history.surplus(spec.revision_history_limit, &used));
    }
    let new = count(&view, &mine, &status);
    if Some(&new) != set.status.as_ref() {
        let changed = StatefulSet { status: Some(new), ..(*set).clone() };
        // The status tells what is, whether or not something could be done about it.
        actions.insert(0, Action::update_part("status", &changed));
    }
    let next = pods::next_available(mine.iter().map(|pod| &**pod), view.min_ready, now);
    actions.extend(next.map(Action::Again));
    actions
}

/// What the set says of its pods.
fn count(view: &View<'_>, pods: &[Arc<Pod>], old: &StatefulSetStatus) -> StatefulSetStatus {
    let number = |which: &dyn Fn(&Pod) -> bool| pods.iter().filter(|pod| which(pod)).count() as i32;
    let some = |number: i32| (number != 0).then_some(number);
    let of = |name: &str| number(&|pod| !is_going(pod) && revision(pod) == name);
    let (update, spec) = (&view.history.name, &view.set.spec);
    let mut current = view.current.to_owned();
    let (replicas, updated) = (number(&|_| true), of(update));
    let ready = number(&|pod| is_running(pod));
    let mut currents = of(&current);
    // All are of the new revision: it is the current one from now on.
    let is_rolling = spec
        .update_strategy
        .as_ref()
        .and_then(|it| it.type_.as_deref())
        .is_none_or(|strategy| strategy == "RollingUpdate");
    if is_rolling && updated == replicas && ready == replicas && current != *update {
        current.clone_from(update);
        currents = updated;
    }
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(number(&|pod| is_running(pod) && view.is_available(pod))),
        current_replicas: some(currents),
        updated_replicas: some(updated),
        current_revision: Some(current),
        update_revision: Some(update.clone()),
        collision_count: Some(view.history.collisions.unwrap_or_default()),
        observed_generation: view.set.metadata.generation,
        conditions: old.conditions.clone(),
    }
}
