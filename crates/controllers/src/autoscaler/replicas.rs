//! How many pods a metric asks for (upstream's `replica_calculator.go`).
use super::metrics::{self, Sample, Samples};
use super::review::Review;
use super::target::Scale;
use crate::pods;
use api::quantity::{Format, Quantity};
use api::selector::label::Selector;
use api::status::Status;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
    PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Counted {
    /// How many, and the metric that says so.
    pub proposal: Result<(i32, String), String>,
    pub statuses: Vec<MetricStatus>,
}

/// The most that any metric asks for. Those that cannot be read count only against fewer pods.
pub fn count(
    review: &mut Review,
    scale: &Scale,
    selector: &Selector,
    answers: &[Result<Value, Status>],
) -> Counted {
    let hpa = review.hpa.clone();
    let specs = metrics::specs(&hpa);
    let mut pods = review.world.in_namespace::<Pod>(review.namespace());
    pods.retain(|pod| selector.matches(&pod.metadata.labels));
    let (mut best, mut statuses) = ((0, String::new()), Vec::new());
    let (mut first, mut invalid) = (None::<Fault>, 0);
    for (spec, answer) in specs.iter().zip(answers) {
        let asked = Asked { review, pods: &pods, scale, answer };
        match asked.metric(spec) {
            Ok(found) => {
                if best.0 == 0 || found.replicas > best.0 {
                    best = (found.replicas, found.name);
                }
                statuses.push(found.status);
            }
            Err(fault) => {
                review.tell_failure(fault.reason, &fault.cause);
                first.get_or_insert(fault);
                invalid += 1;
                statuses.push(MetricStatus::default());
            }
        }
    }
    let is_lost = invalid >= specs.len() || (invalid > 0 && best.0 < scale.spec_replicas());
    let proposal = match first {
        Some(fault) if is_lost => {
            let text = format!("the HPA was unable to compute the replica count: {}", fault.cause);
            review.set("ScalingActive", "False", fault.reason, &text);
            Err(format!(
                "invalid metrics ({invalid} invalid out of {}), first error is: {}",
                specs.len(),
                fault.whole
            ))
        }
        _ => {
            let text = format!(
                "the HPA was able to successfully calculate a replica count from {}",
                best.1
            );
            review.set("ScalingActive", "True", "ValidMetricFound", &text);
            Ok(best)
        }
    };
    Counted { proposal, statuses }
}

struct Fault {
    reason: &'static str,
    /// What the event and the condition say.
    cause: String,
    /// The same with what was tried.
    whole: String,
}

struct Found {
    replicas: i32,
    name: String,
    status: MetricStatus,
}

/// One metric and what was answered.
struct Asked<'a> {
    review: &'a Review,
    pods: &'a [Arc<Pod>],
    scale: &'a Scale,
    answer: &'a Result<Value, Status>,
}

impl Asked<'_> {
    fn metric(&self, spec: &MetricSpec) -> Result<Found, Fault> {
        let fault = |reason, cause: String, whole: String| Fault {
            reason,
            whole: format!("{whole}: {cause}"),
            cause,
        };
        if let Some(source) = &spec.object {
            let found = self.object(source);
            return found.map_err(|cause| {
                fault("FailedGetObjectMetric", cause, "failed to get object metric value".into())
            });
        }
        if let Some(source) = &spec.pods {
            let found = self.of_pods(source);
            return found.map_err(|cause| {
                fault("FailedGetPodsMetric", cause, "failed to get pods metric value".into())
            });
        }
        if let Some(source) = &spec.external {
            let name = &source.metric.name;
            return self.external(source).map_err(|cause| {
                let whole = format!("failed to get {name} external metric value");
                fault("FailedGetExternalMetric", cause, whole)
            });
        }
        if let Some(source) = &spec.resource {
            let found = self.resource(&source.target, &source.name, "");
            let (replicas, current, name) = found.map_err(|cause| {
                let whole = format!("failed to get {} resource metric value", source.name);
                fault("FailedGetResourceMetric", cause, whole)
            })?;
            let resource = Some(ResourceMetricStatus { name: source.name.clone(), current });
            let status = MetricStatus { resource, type_: spec.type_.clone(), ..Default::default() };
            return Ok(Found { replicas, name, status });
        }
        if let Some(source) = &spec.container_resource {
            let found = self.resource(&source.target, &source.name, &source.container);
            let (replicas, current, name) = found.map_err(|cause| {
                let whole = format!("failed to get {} container metric value", source.container);
                fault("FailedGetContainerResourceMetric", cause, whole)
            })?;
            let container_resource = Some(ContainerResourceMetricStatus {
                name: source.name.clone(),
                container: source.container.clone(),
                current,
            });
            let type_ = spec.type_.clone();
            let status = MetricStatus { container_resource, type_, ..Default::default() };
            return Ok(Found { replicas, name, status });
        }
        let cause = format!("unknown metric source type {:?}", spec.type_);
        Err(Fault { reason: "InvalidMetricSourceType", whole: cause.clone(), cause })
    }

    fn resource(
        &self,
        target: &MetricTarget,
        resource: &str,
        container: &str,
    ) -> Result<(i32, MetricValueStatus, String), String> {
        let samples = || {
            metrics::of_pods(self.answer, resource, container)
                .map_err(|fault| format!("unable to get metrics for resource {resource}: {fault}"))
        };
        if let Some(average) = &target.average_value {
            let tried = |fault| format!("failed to get {resource} usage: {fault}");
            let target = milli(average);
            let samples = samples().map_err(tried)?;
            let (count, usage) = self.plain(samples, target, resource).map_err(tried)?;
            let average_value = Some(quantity(resource, usage));
            let current = MetricValueStatus { average_value, ..Default::default() };
            return Ok((count, current, format!("{resource} resource")));
        }
        let Some(wanted) = target.average_utilization else {
            return Err(
                "invalid resource metric source: neither an average utilization target nor \
                        an average value (usage) target was set"
                    .to_owned(),
            );
        };
        let tried = |fault| format!("failed to get {resource} utilization: {fault}");
        let samples = samples().map_err(tried)?;
        let (count, percent, raw) =
            self.utilization(samples, wanted, resource, container).map_err(tried)?;
        let current = MetricValueStatus {
            average_utilization: Some(percent),
            average_value: Some(quantity(resource, raw)),
            value: None,
        };
        let of = if container.is_empty() { "" } else { "container " };
        Ok((count, current, format!("{resource} {of}resource utilization (percentage of request)")))
    }

    /// The share of what pods asked for that they use.
    fn utilization(
        &self,
        samples: Samples,
        wanted: i32,
        resource: &str,
        container: &str,
    ) -> Result<(i32, i32, i64), String> {
        let (groups, samples) = self.grouped(samples, resource)?;
        let mut requests = std::collections::BTreeMap::new();
        for pod in self.pods {
            requests.insert(name(pod), request(pod, container, resource)?);
        }
        let ratio = |samples: &Samples| {
            let known = samples.iter().filter_map(|(pod, it)| Some((it, *requests.get(&**pod)?)));
            let (mut used, mut asked, mut count) = (0_i64, 0_i64, 0_i64);
            for (sample, request) in known {
                used = used.saturating_add(sample.value);
                asked = asked.saturating_add(request);
                count += 1;
            }
            if asked == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let percent = (used.saturating_mul(100) / asked) as i32;
            Ok((f64::from(percent) / f64::from(wanted), percent, used / count))
        };
        let (before, percent, raw) = ratio(&samples)?;
        let missing = |pod: &str| {
            let request = requests.get(pod).copied().unwrap_or(0);
            request.saturating_mul(i64::from(wanted.max(100))) / 100
        };
        let count = self.settled(&groups, samples, before, missing, |all| Ok(ratio(all)?.0))?;
        Ok((count, percent, raw))
    }

    /// What pods use on average.
    fn plain(&self, samples: Samples, target: i64, resource: &str) -> Result<(i32, i64), String> {
        let (groups, samples) = self.grouped(samples, resource)?;
        let usage = |all: &Samples| {
            let sum = all.values().fold(0_i64, |sum, it| sum.saturating_add(it.value));
            sum / all.len() as i64
        };
        let ratio = |all: &Samples| usage(all) as f64 / target as f64;
        let (before, used) = (ratio(&samples), usage(&samples));
        let count = self.settled(&groups, samples, before, |_| target, |all| Ok(ratio(all)))?;
        Ok((count, used))
    }

    /// Pods that run and say nothing count against the change: as busy when there would be fewer
    /// pods, as idle when there would be more.
    fn settled(
        &self,
        groups: &Groups,
        mut samples: Samples,
        before: f64,
        missing: impl Fn(&str) -> i64,
        ratio: impl Fn(&Samples) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let current = self.scale.spec_replicas();
        let grows_with_unready = !groups.unready.is_empty() && before > 1.0;
        if !grows_with_unready && groups.missing.is_empty() {
            return Ok(match self.is_within(before) {
                true => current,
                false => ceiling(before * groups.ready as f64),
            });
        }
        let mut assume = |pod: &str, value| {
            let sample = Sample { at: None, window: jiff::SignedDuration::ZERO, value };
            samples.insert(pod.to_owned(), sample);
        };
        for pod in &groups.missing {
            if before < 1.0 {
                assume(pod, missing(pod));
            } else if before > 1.0 {
                assume(pod, 0);
            }
        }
        if grows_with_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let after = ratio(&samples)?;
        let turned = (before < 1.0 && after > 1.0) || (before > 1.0 && after < 1.0);
        if self.is_within(after) || turned {
            return Ok(current);
        }
        let count = ceiling(after * samples.len() as f64);
        let turned = (after < 1.0 && count > current) || (after > 1.0 && count < current);
        Ok(if turned { current } else { count })
    }

    fn grouped(&self, mut samples: Samples, resource: &str) -> Result<(Groups, Samples), String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.groups(&samples, resource);
        samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        match samples.is_empty() {
            true => Err("did not receive metrics for targeted pods (pods might be unready)".into()),
            false => Ok((groups, samples)),
        }
    }

    fn groups(&self, samples: &Samples, resource: &str) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let key = name(pod).to_owned();
            if pod.metadata.deletion_timestamp.is_some() || pods::phase(pod) == "Failed" {
                groups.ignored.insert(key);
            } else if pods::phase(pod) == "Pending" {
                groups.unready.insert(key);
            } else if let Some(sample) = samples.get(&key) {
                if resource == "cpu" && self.is_unready(pod, sample) {
                    groups.unready.insert(key);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(key);
            }
        }
        groups
    }

    /// A pod that starts uses more than it will: its share of a processor does not count yet.
    fn is_unready(&self, pod: &Pod, sample: &Sample) -> bool {
        let settings = &self.review.world.settings.autoscaler;
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else {
            return true;
        };
        let is_false = ready.status == "False";
        let since = ready.last_transition_time.as_ref().map(|time| time.0).unwrap_or_default();
        if started.0 + settings.cpu_initialization_period > self.review.now {
            return is_false || sample.at.is_none_or(|at| at < since + sample.window);
        }
        // It has never been ready.
        is_false && started.0 + settings.initial_readiness_delay > since
    }

    fn of_pods(&self, source: &PodsMetricSource) -> Result<Found, String> {
        let name = &source.metric.name;
        check(&source.metric.selector)?;
        let samples = metrics::of_custom_pods(self.answer, name)
            .map_err(|fault| format!("unable to get metric {name}: {fault}"))?;
        let target = source.target.average_value.as_ref().map_or(0, milli);
        let (replicas, usage) = self.plain(samples, target, "")?;
        let status = MetricStatus {
            type_: "Pods".to_owned(),
            pods: Some(PodsMetricStatus { metric: source.metric.clone(), current: average(usage) }),
            ..Default::default()
        };
        Ok(Found { replicas, name: format!("pods metric {name}"), status })
    }

    fn object(&self, source: &ObjectMetricSource) -> Result<Found, String> {
        let (object, metric) = (&source.described_object, &source.metric.name);
        check(&source.metric.selector)?;
        let usage = || {
            let asked =
                format!("{}.custom.metrics.k8s.io {}", object.kind.to_lowercase(), object.name);
            metrics::of_object(self.answer, &asked).map_err(|fault| {
                let namespace = self.review.namespace();
                let (kind, name) = (&object.kind, &object.name);
                format!("unable to get metric {metric} on {kind} {namespace}/{name}: {fault}")
            })
        };
        let (replicas, current, name) = match &source.target {
            MetricTarget { type_, value: Some(target), .. } if type_ == "Value" => {
                let usage = usage()?;
                let count = self.by_ratio(usage as f64 / milli(target) as f64)?;
                (count, total(usage), format!("{} metric {metric}", object.kind))
            }
            MetricTarget { type_, average_value: Some(target), .. } if type_ == "AverageValue" => {
                let (count, each) = self.per_pod(usage()?, milli(target));
                // Upstream calls it so.
                let selector = metrics::printed(source.metric.selector.as_ref());
                (count, average(each), format!("external metric {metric}({selector})"))
            }
            _ => {
                return Err("invalid object metric source: neither a value target nor an average \
                            value target was set"
                    .to_owned());
            }
        };
        let status = MetricStatus {
            type_: "Object".to_owned(),
            object: Some(ObjectMetricStatus {
                current,
                described_object: object.clone(),
                metric: source.metric.clone(),
            }),
            ..Default::default()
        };
        Ok(Found { replicas, name, status })
    }

    fn external(&self, source: &ExternalMetricSource) -> Result<Found, String> {
        let metric = &source.metric.name;
        let selector = metrics::printed(source.metric.selector.as_ref());
        check(&source.metric.selector)?;
        let usage = || {
            metrics::of_external(self.answer, metric).map_err(|fault| {
                let namespace = self.review.namespace();
                format!("unable to get external metric {namespace}/{metric}/{selector}: {fault}")
            })
        };
        let (replicas, current) = match &source.target {
            MetricTarget { average_value: Some(target), .. } => {
                let (count, each) = self.per_pod(usage()?, milli(target));
                (count, average(each))
            }
            MetricTarget { value: Some(target), .. } => {
                let usage = usage()?;
                let count = self.by_ratio(usage as f64 / milli(target) as f64)?;
                (count, total(usage))
            }
            _ => {
                return Err(
                    "invalid external metric source: neither a value target nor an average \
                            value target was set"
                        .to_owned(),
                );
            }
        };
        let status = MetricStatus {
            type_: "External".to_owned(),
            external: Some(ExternalMetricStatus { current, metric: source.metric.clone() }),
            ..Default::default()
        };
        Ok(Found { replicas, name: format!("external metric {metric}({selector})"), status })
    }

    /// A value for all of them. From zero it says itself how many there should be.
    fn by_ratio(&self, ratio: f64) -> Result<i32, String> {
        let current = self.scale.spec_replicas();
        if current == 0 {
            return Ok(ceiling(ratio));
        }
        if self.is_within(ratio) {
            return Ok(current);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let is_ready = |pod: &&Arc<Pod>| pods::phase(pod) == "Running" && pods::is_ready(pod);
        Ok(ceiling(ratio * self.pods.iter().filter(is_ready).count() as f64))
    }

    fn per_pod(&self, usage: i64, target: i64) -> (i32, i64) {
        let replicas = self.scale.status_replicas();
        let ratio = usage as f64 / (target as f64 * f64::from(replicas));
        let count = match self.is_within(ratio) {
            true => replicas,
            false => ceiling(usage as f64 / target as f64),
        };
        (count, (usage as f64 / f64::from(replicas)).ceil() as i64)
    }

    fn is_within(&self, ratio: f64) -> bool {
        let default = self.review.world.settings.autoscaler.tolerance;
        let behavior = self.review.hpa.spec.behavior.as_ref();
        let own = |text: Option<&Text>| {
            let quantity = text.and_then(|text| Quantity::try_from(text).ok());
            quantity.map_or(default, |quantity| quantity.as_approximate_f64())
        };
        let down = behavior.and_then(|it| it.scale_down.as_ref()?.tolerance.as_ref());
        let up = behavior.and_then(|it| it.scale_up.as_ref()?.tolerance.as_ref());
        (1.0 - own(down)..=1.0 + own(up)).contains(&ratio)
    }
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";

#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

fn check(
    selector: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
) -> Result<(), String> {
    Selector::from_label_selector(selector.as_ref()).map(drop).map_err(|fault| fault.to_string())
}

fn ceiling(count: f64) -> i32 {
    count.ceil() as i32
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn milli(text: &Text) -> i64 {
    Quantity::try_from(text).map_or(0, |quantity| quantity.milli_value())
}

/// Thousandths, as metrics of that resource are printed.
fn quantity(resource: &str, milli: i64) -> Text {
    let mut quantity = Quantity::scaled(milli, api::quantity::MILLI);
    if resource == "memory" {
        quantity.set_format(Format::BinarySI);
    }
    Text::from(&quantity)
}

fn average(milli: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(quantity("", milli)), ..Default::default() }
}

fn total(milli: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(quantity("", milli)), ..Default::default() }
}

/// What a pod, or one container of it, asks for.
fn request(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let pod_level = spec.resources.as_ref().and_then(|it| it.requests.as_ref());
    if let (Some(requests), true) = (pod_level.filter(|it| !it.is_empty()), container.is_empty())
        && let Some(asked) = requests.get(resource)
    {
        return Ok(milli(asked));
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let mut sum = 0_i64;
    for each in spec.containers.iter().chain(sidecars) {
        if !container.is_empty() && each.name != container {
            continue;
        }
        let requests = each.resources.as_ref().and_then(|it| it.requests.as_ref());
        let Some(asked) = requests.and_then(|it| it.get(resource)) else {
            return Err(format!(
                "missing request for {resource} in container {} of Pod {}",
                each.name,
                name(pod)
            ));
        };
        sum = sum.saturating_add(milli(asked));
        if each.name == container {
            return Ok(sum);
        }
    }
    match container {
        "" => Ok(sum),
        _ => Err(format!("container {container} not found in Pod {}", name(pod))),
    }
}
