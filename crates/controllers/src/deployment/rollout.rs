//! One turn of a rollout, on copies of the sets.
use super::proportion::{self, DESIRED, MAX, Sizes};
use super::{status, template};
use crate::action::Action;
use api::int_or_string::{Round, scaled_value};
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const HISTORY_LENGTH: usize = 2000;
/// Annotations of a deployment that its sets do not get.
const OWN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
];

pub struct Rollout<'a> {
    pub deployment: &'a Deployment,
    pub now: Timestamp,
    /// The status as it is going to be.
    pub status: DeploymentStatus,
    pub new: Option<ReplicaSet>,
    /// Sets of other templates, the oldest first.
    pub old: Vec<ReplicaSet>,
    is_created: bool,
    deleted: Vec<ReplicaSet>,
    pub again: Option<std::time::Duration>,
}

pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

pub fn annotation<T: std::str::FromStr>(set: &ReplicaSet, name: &str) -> Option<T> {
    set.metadata.annotations.as_ref()?.get(name)?.parse().ok()
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

impl<'a> Rollout<'a> {
    pub fn new(deployment: &'a Deployment, sets: &[Arc<ReplicaSet>], now: Timestamp) -> Self {
        let mut old: Vec<ReplicaSet> = sets.iter().map(|set| (**set).clone()).collect();
        let key =
            |set: &ReplicaSet| (set.metadata.creation_timestamp.clone(), set.metadata.name.clone());
        old.sort_by_key(key);
        let is_new = |set: &ReplicaSet| {
            let own = set.spec.template.as_ref();
            own.is_some_and(|own| template::is_same(own, &deployment.spec.template))
        };
        // Of several, the oldest.
        let new = old.iter().position(is_new).map(|at| old.remove(at));
        let status = deployment.status.clone().unwrap_or_default();
        let (is_created, deleted, again) = (false, Vec::new(), None);
        let mut rollout = Rollout { deployment, now, status, new, old, is_created, deleted, again };
        rollout.adopt_annotations();
        rollout
    }

    pub fn wanted(&self) -> i32 {
        self.deployment.spec.replicas.unwrap_or(1)
    }

    pub fn is_paused(&self) -> bool {
        self.deployment.spec.paused == Some(true)
    }

    pub fn is_rolling(&self) -> bool {
        let strategy = self.deployment.spec.strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
    }

    /// How many pods may be too many, and how many too few.
    fn fences(&self) -> (i32, i32) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let strategy = self.deployment.spec.strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let wanted = i64::from(self.wanted());
        let share = |value, round| scaled_value(value, wanted, round).unwrap_or_default() as i32;
        let surge = share(rolling.and_then(|it| it.max_surge.as_ref()), Round::Up);
        let unavailable = share(rolling.and_then(|it| it.max_unavailable.as_ref()), Round::Down);
        // Rounded down to nothing, it could never move.
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    pub fn max_surge(&self) -> i32 {
        self.fences().0
    }

    pub fn max_unavailable(&self) -> i32 {
        if self.is_rolling() { self.fences().1.min(self.wanted()) } else { 0 }
    }

    pub fn sets(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    fn total(&self) -> i32 {
        self.sets().map(replicas).sum()
    }

    /// A set that has pods was made for another size than is wanted now.
    pub fn is_being_scaled(&self) -> bool {
        let active = self.sets().filter(|set| replicas(set) > 0);
        let mut desired = active.filter_map(|set| annotation::<i32>(set, DESIRED));
        desired.any(|desired| desired != self.wanted())
    }

    /// The set of the current template has the newest revision, and the deployment's annotations.
    fn adopt_annotations(&mut self) {
        let revision = self.old.iter().filter_map(|set| annotation::<i64>(set, REVISION)).max();
        let revision = revision.unwrap_or_default() + 1;
        let Some(set) = &mut self.new else { return };
        let own = self.deployment.metadata.annotations.iter().flatten();
        let copied = own.filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str()));
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
        advance(annotations, revision);
        set.spec.min_ready_seconds = self.deployment.spec.min_ready_seconds;
        status::found(self);
    }

    fn create(&mut self) {
        if self.new.is_some() {
            return;
        }
        self.new = Some(template::new_set(self.deployment, self.status.collision_count));
        self.is_created = true;
        let size = self.room_for_new();
        if let Some(set) = &mut self.new {
            set.spec.replicas = Some(size);
        }
        status::created(self);
        self.adopt_annotations();
        let created = self.new.as_ref().map(name).unwrap_or_default().to_owned();
        self.annotate(|set| name(set) == created);
    }

    /// The size that the new set may have now.
    fn room_for_new(&self) -> i32 {
        let Some(new) = &self.new else { return 0 };
        if !self.is_rolling() {
            return self.wanted();
        }
        let room = self.wanted() + self.max_surge() - self.total();
        replicas(new) + room.min(self.wanted() - replicas(new)).max(0)
    }

    /// New pods as far as there may be more, then fewer old ones as far as enough are available.
    pub fn roll(&mut self) {
        self.create();
        let size = self.new.as_ref().map(replicas).unwrap_or_default();
        let wanted = self.wanted();
        let room = if size > wanted { wanted } else { self.room_for_new() };
        if room != size || self.is_created {
            return self.resize_new(room);
        }
        if !self.shrink_old() && status::is_complete(self.deployment, &self.last_status()) {
            self.forget_history();
        }
    }

    fn resize_new(&mut self, size: i32) {
        if let Some(set) = &mut self.new
            && replicas(set) != size
        {
            set.spec.replicas = Some(size);
            let changed = name(set).to_owned();
            self.annotate(|set| name(set) == changed);
        }
    }

    /// Pods that are not available go first, as they serve nobody.
    fn shrink_old(&mut self) -> bool {
        let Some(new) = &self.new else { return false };
        let least = self.wanted() - self.max_unavailable();
        let unavailable = replicas(new) - available(new);
        let mut most = self.total() - least - unavailable;
        let mut changed = Vec::new();
        let mut shrink = |set: &mut ReplicaSet, by: i32| {
            set.spec.replicas = Some(replicas(set) - by);
            changed.push(name(set).to_owned());
        };
        if most <= 0 {
            return false;
        }
        for set in &mut self.old {
            let by = most.min(replicas(set) - available(set));
            if by > 0 {
                shrink(set, by);
                most -= by;
            }
        }
        let available: i32 = self.old.iter().chain(&self.new).map(available).sum();
        let mut most = available - least;
        for set in &mut self.old {
            let by = most.min(replicas(set));
            if by > 0 {
                shrink(set, by);
                most -= by;
            }
        }
        self.annotate(|set| changed.iter().any(|changed| changed == name(set)));
        !changed.is_empty()
    }

    /// No new pod before the last old one is gone.
    pub fn recreate(&mut self, has_pods: impl Fn(&str) -> bool) {
        let mut changed = Vec::new();
        for set in self.old.iter_mut().filter(|set| replicas(set) > 0) {
            set.spec.replicas = Some(0);
            changed.push(name(set).to_owned());
        }
        self.annotate(|set| changed.iter().any(|changed| changed == name(set)));
        let is_running = |set: &ReplicaSet| {
            let counted = set.status.as_ref().is_some_and(|status| status.replicas > 0);
            counted || has_pods(set.metadata.uid.as_deref().unwrap_or_default())
        };
        if !changed.is_empty() || self.old.iter().any(is_running) {
            return;
        }
        self.create();
        self.resize_new(self.wanted());
        if status::is_complete(self.deployment, &self.last_status()) {
            self.forget_history();
        }
    }

    /// Another size, while no rollout goes on or in the middle of one.
    pub fn scale(&mut self) {
        let sizes = Sizes {
            wanted: self.wanted(),
            surge: self.max_surge(),
            counted: self.last_status().replicas.unwrap_or_default(),
        };
        let (is_rolling, is_saturated) = (self.is_rolling(), self.is_saturated());
        let size = |set: &ReplicaSet| (name(set).to_owned(), replicas(set));
        let before: Vec<_> = self.old.iter().chain(&self.new).map(size).collect();
        let mut active: Vec<&mut ReplicaSet> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| replicas(set) > 0).collect();
        match active.as_mut_slice() {
            [] => {
                let latest = self.new.as_mut().or(self.old.last_mut());
                if let Some(set) = latest {
                    set.spec.replicas = Some(sizes.wanted);
                }
            }
            [one] => one.spec.replicas = Some(sizes.wanted),
            _ if is_saturated => {
                self.old.iter_mut().for_each(|set| set.spec.replicas = Some(0));
            }
            all if is_rolling => proportion::share_out(all, &sizes),
            _ => {}
        }
        self.annotate(|set| replicas(set) > 0 || !before.contains(&size(set)));
        if self.is_paused() {
            self.forget_history();
        }
    }

    fn is_saturated(&self) -> bool {
        self.new.as_ref().is_some_and(|new| {
            let wanted = self.wanted();
            annotation(new, DESIRED) == Some(wanted)
                && replicas(new) == wanted
                && available(new) == wanted
        })
    }

    /// Says in sets for which size they were made.
    fn annotate(&mut self, which: impl Fn(&ReplicaSet) -> bool) {
        let (wanted, surge) = (self.wanted(), self.max_surge());
        for set in self.old.iter_mut().chain(&mut self.new).filter(|set| which(set)) {
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(DESIRED.to_owned(), wanted.to_string());
            annotations.insert(MAX.to_owned(), (wanted + surge).to_string());
        }
    }

    /// Old sets beyond `revisionHistoryLimit` go, the oldest revision first.
    fn forget_history(&mut self) {
        let Some(limit) = self.deployment.spec.revision_history_limit else { return };
        let alive = |set: &&ReplicaSet| set.metadata.deletion_timestamp.is_none();
        let mut sets: Vec<_> = self.old.iter().filter(alive).cloned().collect();
        let excess = sets.len().saturating_sub(limit.max(0) as usize);
        sets.sort_by_key(|set| annotation::<i64>(set, REVISION));
        let is_empty = |set: &ReplicaSet| {
            let status = set.status.clone().unwrap_or_default();
            replicas(set) == 0
                && status.replicas == 0
                && status.observed_generation >= set.metadata.generation
        };
        self.deleted = sets.into_iter().take(excess).filter(is_empty).collect();
    }

    pub fn last_status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    /// What has to be written, compared with the sets as they were.
    pub fn actions(self, were: Vec<Arc<ReplicaSet>>) -> Vec<Action> {
        let mut actions = Vec::new();
        for set in self.sets() {
            let was = were.iter().find(|was| was.metadata.uid == set.metadata.uid);
            match was {
                None => actions.push(status::creation(&self, set)),
                Some(was) if **was != *set => actions.push(Action::update(set)),
                Some(_) => continue,
            }
            let (from, to) = (was.map_or(0, |was| replicas(was)), replicas(set));
            actions.extend(scaled(self.deployment, set, from, to));
        }
        actions.extend(self.deleted.iter().map(Action::delete));
        actions.extend(status::change(&self));
        actions.extend(self.again.map(Action::Again));
        actions
    }
}

fn scaled(deployment: &Deployment, set: &ReplicaSet, from: i32, to: i32) -> Option<Action> {
    let way = if from < to { "up" } else { "down" };
    let note = format!("Scaled {way} replica set {} from {from} to {to}", name(set));
    let happening = Happening::normal(reference(deployment), "ScalingReplicaSet", note);
    (from != to).then_some(Action::Record(happening))
}

/// A set that becomes the newest again remembers which revisions it was.
fn advance(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let was = annotations.get(REVISION).cloned();
    let number = was.as_ref().map_or(Some(0), |was| was.parse::<i64>().ok());
    if number.is_none_or(|number| number >= revision) {
        return;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    let Some(was) = was else { return };
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut all: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).collect();
    all.push(&was);
    while all.len() > 1 && all.iter().map(|one| one.len() + 1).sum::<usize>() > HISTORY_LENGTH {
        all.remove(0);
    }
    annotations.insert(HISTORY.to_owned(), all.join(","));
}
