//! One look at one autoscaler: what it found, and what its status and events become.
use super::pace::History;
use crate::action::Action;
use crate::world::{Memo, World};
use client::ApiResource;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
    MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

pub struct Review {
    pub hpa: Arc<HorizontalPodAutoscaler>,
    pub world: World,
    pub now: Timestamp,
    pub history: History,
    /// Where the target may be.
    pub resources: Vec<ApiResource>,
    /// What the metrics came to, once they were read.
    pub metrics: Option<Vec<MetricStatus>>,
    status: HorizontalPodAutoscalerStatus,
    told: Vec<Action>,
}

impl Review {
    pub fn new(hpa: Arc<HorizontalPodAutoscaler>, world: &World, now: Timestamp) -> Review {
        let mut review = Review {
            status: hpa.status.clone().unwrap_or_default(),
            hpa,
            world: world.clone(),
            now,
            history: History::default(),
            resources: Vec::new(),
            metrics: None,
            told: Vec::new(),
        };
        let known = world.recall::<History>(&review.key());
        review.history = known.as_deref().cloned().unwrap_or_default();
        review
    }

    pub fn namespace(&self) -> &str {
        self.hpa.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.hpa.metadata.name.as_deref().unwrap_or_default())
    }

    pub fn min_replicas(&self) -> i32 {
        self.hpa.spec.min_replicas.unwrap_or(1)
    }

    pub fn has(&self, type_: &str, status: &str) -> bool {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.any(|one| one.type_ == type_ && one.status == status)
    }

    pub fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|one| one.type_ == type_).unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition {
                type_: type_.to_owned(),
                ..HorizontalPodAutoscalerCondition::default()
            });
            conditions.len() - 1
        });
        let one = &mut conditions[at];
        if one.status != status {
            one.last_transition_time = Some(Time(self.now));
        }
        one.status = status.to_owned();
        one.reason = Some(reason.to_owned());
        one.message = Some(message.to_owned());
    }

    pub fn tell(&mut self, reason: &str, note: &str) {
        self.told.push(Action::Record(Happening::normal(reference(&*self.hpa), reason, note)));
    }

    pub fn tell_failure(&mut self, reason: &str, note: &str) {
        self.told.push(Action::Record(Happening::warning(reference(&*self.hpa), reason, note)));
    }

    /// What the status says of pods and metrics.
    pub fn count(&mut self, current: i32, desired: i32, metrics: Option<Vec<MetricStatus>>) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.current_metrics = metrics.filter(|metrics| !metrics.is_empty());
        self.status.observed_generation = self.hpa.metadata.generation;
    }

    pub fn scaled_now(&mut self) {
        self.status.last_scale_time = Some(Time(self.now));
    }

    /// The status, if it is another; then the events; and another look when the time has come.
    pub fn finish(self) -> Vec<Action> {
        let mut actions = vec![Action::Remember(Memo::new(&self.key(), self.history))];
        let period = self.world.settings.autoscaler.sync_period;
        actions.extend(self.told);
        if self.hpa.status.as_ref() != Some(&self.status) {
            let mut new = (*self.hpa).clone();
            new.status = Some(self.status);
            actions.push(Action::update_part("status", &new));
        }
        actions.push(Action::Again(period));
        actions
    }
}
