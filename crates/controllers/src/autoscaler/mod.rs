//! As many pods as the load asks for: every HorizontalPodAutoscaler is looked at four times a
//! minute.
//!
//! ```text
//!  target    which resource has the scale, and what the scale says
//!  metrics   what has to be read, and what the answers say
//!  replicas  how many pods a metric asks for
//!  pace      how fast that may be reached: windows of the past, policies, limits
//!  review    conditions, events and the status that follow
//! ```
//! Metrics and scales are asked for at the moment of the decision, so a look is a chain: the scale,
//! then the metrics, then the scale's update, then the status. Each link is a pure function of what
//! was answered.
mod metrics;
mod pace;
mod replicas;
mod review;
mod target;
#[cfg(test)]
mod tests;

use crate::action::{self, Action};
use crate::definitions;
use crate::driver::{Controller, Watching};
use crate::world::{Memo, World};
use api::names::NamespacedName;
use api::selector::label::Selector;
use api::status::Status;
use bytes::Bytes;
use client::source::{Ask, Call, Write};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use pace::History;
use review::Review;
use serde_json::Value;
use std::time::Duration;
use target::Scale;

pub const CONTROLLER: Controller = Controller {
    name: "horizontal-pod-autoscaler-controller",
    account: "horizontal-pod-autoscaler",
    workers: 5,
    watch,
    reconcile,
};

/// What `--horizontal-pod-autoscaler-*` say.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub sync_period: Duration,
    pub downscale_stabilization: SignedDuration,
    pub cpu_initialization_period: SignedDuration,
    pub initial_readiness_delay: SignedDuration,
    pub tolerance: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: SignedDuration::from_mins(5),
            cpu_initialization_period: SignedDuration::from_mins(5),
            initial_readiness_delay: SignedDuration::from_secs(30),
            tolerance: 0.1,
        }
    }
}

/// Whose pods an autoscaler minds, as its target said the last time.
#[derive(Debug)]
struct Minds(Selector);

fn watch(on: &Watching) {
    on.each::<HorizontalPodAutoscaler>(|_, change| {
        let generation = |hpa: &std::sync::Arc<HorizontalPodAutoscaler>| hpa.metadata.generation;
        let is_same = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                old.metadata.uid == new.metadata.uid && generation(old) == generation(new)
            }
            _ => false,
        };
        // Its own status is no reason to look before the time.
        if is_same { Vec::new() } else { vec![change.key.clone()] }
    });
    on.each_of::<definitions::Defined>(definitions::collection(), |_, _| Vec::new());
    on.reads::<Pod>();
    on.reads::<APIService>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(hpa) = world.get::<HorizontalPodAutoscaler>(key) else {
        let key = key.to_string();
        return vec![
            Action::Remember(Memo::nothing::<History>(&key)),
            Action::Remember(Memo::nothing::<Minds>(&key)),
        ];
    };
    let mut review = Review::new(hpa, world, now);
    let resources = match target::resources(&review.hpa.spec.scale_target_ref, world) {
        Ok(resources) => resources,
        Err(fault) => return no_scale(review, &fault),
    };
    review.resources = resources;
    ask_scale(review, 0, None)
}

fn no_scale(mut review: Review, fault: &str) -> Vec<Action> {
    review.tell_failure("FailedGetScale", fault);
    let text = format!("the HPA controller was unable to get the target's current scale: {fault}");
    review.set("AbleToScale", "False", "FailedGetScale", &text);
    review.finish()
}

/// Kinds of one name may be several resources: the first that has such an object is it.
fn ask_scale(review: Review, at: usize, first: Option<String>) -> Vec<Action> {
    let Some(resource) = review.resources.get(at).cloned() else {
        return no_scale(review, &first.unwrap_or_else(|| "unrecognized resource".to_owned()));
    };
    let call = Call {
        resource: resource.clone(),
        namespace: review.namespace().to_owned(),
        name: review.hpa.spec.scale_target_ref.name.clone(),
        subresource: "scale".into(),
        ask: Ask::Get,
    };
    let then = move |answer: Result<Value, Status>| match answer {
        Ok(tree) => with_scale(review, Scale { resource, tree }),
        Err(status) => ask_scale(review, at + 1, first.or(Some(status.message))),
    };
    vec![Action::Try { call, then: Box::new(then) }]
}

fn with_scale(mut review: Review, scale: Scale) -> Vec<Action> {
    let text = "the HPA controller was able to get the target's current scale";
    review.set("AbleToScale", "True", "SucceededGetScale", text);
    let current = scale.spec_replicas();
    review.history.begin(current, review.now);
    let (min, max) = (review.min_replicas(), review.hpa.spec.max_replicas);
    if current == 0 {
        let was_scaled_to_zero = review.has("ScaledToZero", "True");
        let may_compute =
            was_scaled_to_zero && (min != 0 || metrics::has_object_or_external(&review.hpa));
        if !may_compute {
            let text = "scaling is disabled since the replica count of the target is zero";
            review.set("ScalingActive", "False", "ScalingDisabled", text);
            review.count(current, current, None);
            return review.finish();
        }
    } else if current > max {
        return rescale(review, scale, max, "Current number of replicas above Spec.MaxReplicas");
    } else if current < min {
        return rescale(review, scale, min, "Current number of replicas below Spec.MinReplicas");
    }
    let selector = match selector(&mut review, &scale) {
        Ok(selector) => selector,
        Err(fault) => return no_count(review, current, &fault),
    };
    let memo = Memo::new(&review.key(), Minds(selector.clone()));
    let asked = metrics::requests(&review.hpa, &selector, &review.world);
    let then = move |answers: Vec<Result<Bytes, Status>>| {
        let answers: Vec<_> = answers.into_iter().map(action::json).collect();
        with_metrics(review, scale, &selector, &answers)
    };
    vec![Action::Remember(memo), Action::Read { requests: asked, then: Box::new(then) }]
}

/// The pods that the target selects, which no other autoscaler may mind.
fn selector(review: &mut Review, scale: &Scale) -> Result<Selector, String> {
    let refuse = |review: &mut Review, reason: &str, told: String, text: &str| {
        review.tell_failure(reason, &told);
        let reason = if reason == "SelectorRequired" { "InvalidSelector" } else { reason };
        review.set("ScalingActive", "False", reason, text);
        told
    };
    let text = scale.selector();
    if text.is_empty() {
        let why = "the HPA target's scale is missing a selector";
        return Err(refuse(review, "SelectorRequired", "selector is required".to_owned(), why));
    }
    let parsed = Selector::parse(text).map_err(|fault| {
        let told = format!(
            "couldn't convert selector into a corresponding internal selector object: {fault}"
        );
        refuse(review, "InvalidSelector", told.clone(), &told)
    })?;
    let others = metrics::minders(review, &parsed);
    if let Some(other) = others.first() {
        let told = format!(
            "pods by selector {text} are controlled by more than one HPA (e.g. [{} {}])",
            review.key(),
            other
        );
        return Err(refuse(review, "AmbiguousSelector", told.clone(), &told));
    }
    Ok(parsed)
}

fn no_count(mut review: Review, current: i32, fault: &str) -> Vec<Action> {
    let desired = review.hpa.status.as_ref().map_or(0, |status| status.desired_replicas);
    review.count(current, desired, None);
    review.tell_failure("FailedComputeMetricsReplicas", fault);
    review.finish()
}

fn with_metrics(
    mut review: Review,
    scale: Scale,
    selector: &Selector,
    answers: &[Result<Value, Status>],
) -> Vec<Action> {
    let current = scale.spec_replicas();
    let min = review.min_replicas();
    let counted = replicas::count(&mut review, &scale, selector, answers);
    review.metrics = Some(counted.statuses);
    let (proposed, metric) = match counted.proposal {
        Ok(found) => found,
        Err(fault) => {
            let desired = review.hpa.status.as_ref().map_or(0, |status| status.desired_replicas);
            let statuses = review.metrics.take();
            review.count(current, desired, statuses);
            review.tell_failure("FailedComputeMetricsReplicas", &fault);
            return review.finish();
        }
    };
    let mut reason = match proposed.cmp(&current) {
        std::cmp::Ordering::Greater => format!("{metric} above target"),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    let mut desired = pace::limit(&mut review, current, proposed.max(0), min);
    // One that stood at zero and may not any more comes up at once.
    if current == 0 && min != 0 && desired < min {
        desired = min;
        if reason.is_empty() {
            reason = "Current number of replicas below Spec.MinReplicas".to_owned();
        }
    }
    if desired != current {
        return rescale(review, scale, desired, &reason);
    }
    let statuses = review.metrics.take();
    review.count(current, current, statuses);
    review.finish()
}

/// How often an update is tried that somebody else's came before.
const TRIES: u32 = 5;

fn rescale(review: Review, scale: Scale, desired: i32, reason: &str) -> Vec<Action> {
    let current = scale.spec_replicas();
    update_scale(review, scale, Step { current, desired, reason: reason.to_owned() }, TRIES)
}

struct Step {
    current: i32,
    desired: i32,
    reason: String,
}

fn update_scale(review: Review, mut scale: Scale, step: Step, tries: u32) -> Vec<Action> {
    scale.tree["spec"]["replicas"] = step.desired.into();
    let call = |ask| Call {
        resource: scale.resource.clone(),
        namespace: review.namespace().to_owned(),
        name: review.hpa.spec.scale_target_ref.name.clone(),
        subresource: "scale".into(),
        ask,
    };
    let update =
        call(Ask::Update(scale.tree.clone(), Write::managed_by("kube-controller-manager")));
    let get = call(Ask::Get);
    let then = move |answer: Result<Value, Status>| match answer {
        Ok(_) => rescaled(review, &step),
        Err(status) if status.is_conflict() && tries > 1 => {
            let resource = scale.resource.clone();
            let then = move |newest: Result<Value, Status>| match newest {
                Ok(tree) => update_scale(review, Scale { resource, tree }, step, tries - 1),
                Err(status) => not_rescaled(review, &step, &status.message),
            };
            vec![Action::Try { call: get, then: Box::new(then) }]
        }
        Err(status) => not_rescaled(review, &step, &status.message),
    };
    vec![Action::Try { call: update, then: Box::new(then) }]
}

fn not_rescaled(mut review: Review, step: &Step, fault: &str) -> Vec<Action> {
    let Step { current, desired, reason } = step;
    let note = format!("New size: {desired}; reason: {reason}; error: {fault}");
    review.tell_failure("FailedRescale", &note);
    let text = format!("the HPA controller was unable to update the target scale: {fault}");
    review.set("AbleToScale", "False", "FailedUpdateScale", &text);
    let before = review.hpa.status.as_ref().map_or(0, |status| status.desired_replicas);
    let statuses = review.metrics.take();
    review.count(*current, before, statuses);
    review.finish()
}

fn rescaled(mut review: Review, step: &Step) -> Vec<Action> {
    let Step { current, desired, reason } = step;
    let text = format!("the HPA controller was able to update the target scale to {desired}");
    review.set("AbleToScale", "True", "SucceededRescale", &text);
    review.tell("SuccessfulRescale", &format!("New size: {desired}; reason: {reason}"));
    if review.hpa.spec.behavior.is_some() {
        review.history.changed(*current, *desired, review.now);
    }
    let is_zero = *current > 0
        && *desired == 0
        && review.min_replicas() == 0
        && metrics::has_object_or_external(&review.hpa);
    match is_zero {
        true => review.set(
            "ScaledToZero",
            "True",
            "ScaledToZero",
            "the HPA controller scaled the workload to zero",
        ),
        false => review.set(
            "ScaledToZero",
            "False",
            "NotScaledToZero",
            "the HPA controller did not scale the workload to zero",
        ),
    }
    let statuses = review.metrics.take();
    review.count(*current, *desired, statuses);
    review.scaled_now();
    review.finish()
}
