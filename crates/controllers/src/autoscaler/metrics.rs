//! What has to be read for an autoscaler's metrics, and what the answers say.
use super::Minds;
use super::review::Review;
use super::target;
use crate::world::World;
use api::quantity::Quantity;
use api::selector::label::Selector;
use api::status::Status;
use client::source::{Raw, escaped};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, MetricIdentifier, MetricSpec,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::Value;
use std::collections::BTreeMap;

/// What one pod uses, in thousandths.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub at: Option<Timestamp>,
    pub window: SignedDuration,
    pub value: i64,
}

pub type Samples = BTreeMap<String, Sample>;

pub fn specs(hpa: &HorizontalPodAutoscaler) -> &[MetricSpec] {
    hpa.spec.metrics.as_deref().unwrap_or_default()
}

pub fn has_object_or_external(hpa: &HorizontalPodAutoscaler) -> bool {
    specs(hpa).iter().any(|metric| matches!(&*metric.type_, "Object" | "External"))
}

/// Other autoscalers that mind pods which this selector selects.
pub fn minders(review: &Review, selector: &Selector) -> Vec<String> {
    let namespace = review.namespace();
    let mut pods = review.world.in_namespace::<Pod>(namespace);
    pods.retain(|pod| selector.matches(&pod.metadata.labels));
    let own = review.key();
    let others = review.world.in_namespace::<HorizontalPodAutoscaler>(namespace);
    let keys = others
        .iter()
        .map(|hpa| format!("{namespace}/{}", hpa.metadata.name.as_deref().unwrap_or_default()));
    let minds = |key: &String| {
        let minds = review.world.recall::<Minds>(key);
        minds.is_some_and(|it| pods.iter().any(|pod| it.0.matches(&pod.metadata.labels)))
    };
    keys.filter(|key| *key != own && minds(key)).collect()
}

/// One request for each metric, in their order.
pub fn requests(hpa: &HorizontalPodAutoscaler, pods: &Selector, world: &World) -> Vec<Raw> {
    let namespace = escaped(hpa.metadata.namespace.as_deref().unwrap_or_default());
    let one = |metric: &MetricSpec| {
        let custom =
            format!("/apis/custom.metrics.k8s.io/{}/namespaces/{namespace}", custom_version(world));
        if let Some(source) = &metric.pods {
            let name = escaped(&source.metric.name);
            return Raw::get(format!("{custom}/pods/*/{name}"))
                .with("labelSelector", &pods.to_string())
                .with("metricLabelSelector", &selector_text(&source.metric));
        }
        if let Some(source) = &metric.object {
            let name = escaped(&source.metric.name);
            let object = object_path(&source.described_object, world);
            return Raw::get(format!("{custom}/{object}/{name}"))
                .with("metricLabelSelector", &selector_text(&source.metric));
        }
        if let Some(source) = &metric.external {
            let name = escaped(&source.metric.name);
            let path =
                format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}");
            return Raw::get(path).with("labelSelector", &selector_text(&source.metric));
        }
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
        Raw::get(path).with("labelSelector", &pods.to_string())
    };
    specs(hpa).iter().map(one).collect()
}

/// A selector that is none fails before anything is read of the answer.
fn selector_text(metric: &MetricIdentifier) -> String {
    let selector = Selector::from_label_selector(metric.selector.as_ref());
    match &metric.selector {
        // No selector selects all here, unlike elsewhere.
        None => String::new(),
        Some(_) => selector.map(|selector| selector.to_string()).unwrap_or_default(),
    }
}

fn object_path(object: &CrossVersionObjectReference, world: &World) -> String {
    let version = object.api_version.as_deref().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if group.is_empty() && object.kind == "Namespace" {
        return "metrics".to_owned();
    }
    let resource = match target::find(group, &object.kind, world).first() {
        Some(resource) => resource.to_string(),
        // Nobody knows it; the metrics' API will say so.
        None => object.kind.to_lowercase(),
    };
    format!("{}/{}", escaped(&resource), escaped(&object.name))
}

fn custom_version(world: &World) -> &'static str {
    let has = |version: &str| {
        world.find::<APIService>("", &format!("{version}.custom.metrics.k8s.io")).is_some()
    };
    if has("v1beta1") && !has("v1beta2") { "v1beta1" } else { "v1beta2" }
}

fn fetched<'a>(
    answer: &'a Result<Value, Status>,
    api: &str,
    asked: &str,
) -> Result<&'a [Value], String> {
    let tree = answer.as_ref().map_err(|status| {
        // Who asks for a resource hears which; a path says less.
        let generic = "the server could not find the requested resource";
        let suffix =
            if status.message == generic { format!(" (get {asked})") } else { String::new() };
        format!("unable to fetch metrics from {api} metrics API: {}{suffix}", status.message)
    })?;
    let items = tree["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match items.is_empty() {
        true => Err(format!("no metrics returned from {api} metrics API")),
        false => Ok(items),
    }
}

/// What pods use of a resource: all containers of each, or one of them.
pub fn of_pods(
    answer: &Result<Value, Status>,
    resource: &str,
    container: &str,
) -> Result<Samples, String> {
    let items = fetched(answer, "resource", "pods.metrics.k8s.io")?;
    let mut samples = Samples::new();
    for item in items {
        let containers = item["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut used = containers
            .iter()
            .filter(|it| container.is_empty() || it["name"] == container)
            .map(|it| milli(&it["usage"][resource]));
        let value = match containers.is_empty() {
            true => None,
            false if container.is_empty() => used.sum::<Option<i64>>(),
            false => used.next().flatten(),
        };
        let Some(value) = value else { continue };
        let window = duration(item["window"].as_str().unwrap_or_default());
        samples.insert(text(&item["metadata"]["name"]), Sample { at: at(item), window, value });
    }
    Ok(samples)
}

/// What each pod says of a custom metric.
pub fn of_custom_pods(answer: &Result<Value, Status>, asked: &str) -> Result<Samples, String> {
    let items = fetched(answer, "custom", &format!("pods.custom.metrics.k8s.io {asked}"))?;
    let samples = items.iter().filter_map(|item| {
        let seconds = item["windowSeconds"].as_i64().unwrap_or(60);
        let window = SignedDuration::from_secs(seconds);
        let sample = Sample { at: at(item), window, value: milli(&item["value"])? };
        Some((text(&item["describedObject"]["name"]), sample))
    });
    Ok(samples.collect())
}

/// What one object says of a custom metric.
pub fn of_object(answer: &Result<Value, Status>, asked: &str) -> Result<i64, String> {
    let items = match fetched(answer, "custom", asked) {
        Ok(items) => items,
        Err(_) if answer.is_ok() => &[],
        Err(fault) => return Err(fault),
    };
    let [item] = items else {
        return Err(format!(
            "unable to fetch metrics from custom metrics API: the custom metrics API server \
             returned {} results when we asked for exactly one",
            items.len()
        ));
    };
    Ok(milli(&item["value"]).unwrap_or(0))
}

/// The sum of an external metric's values, as large as a number can be.
pub fn of_external(answer: &Result<Value, Status>, asked: &str) -> Result<i64, String> {
    let items = fetched(answer, "external", &format!("{asked}.external.metrics.k8s.io"))?;
    let values = items.iter().filter_map(|item| milli(&item["value"]));
    Ok(values.fold(0_i64, i64::saturating_add))
}

fn milli(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => Quantity::parse(text.trim()).ok().map(|it| it.milli_value()),
        Value::Number(number) => {
            Quantity::parse(&number.to_string()).ok().map(|it| it.milli_value())
        }
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn at(item: &Value) -> Option<Timestamp> {
    item["timestamp"].as_str()?.parse().ok()
}

fn duration(text: &str) -> SignedDuration {
    let parsed = api::duration::Duration::parse(text).unwrap_or_default();
    SignedDuration::from_nanos(parsed.nanos)
}

/// A selector as Go prints one.
pub fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let rules = selector.match_expressions.iter().flatten().map(|rule| {
        let values = rule.values.as_deref().unwrap_or_default().join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            rule.key, rule.operator
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        rules.collect::<String>()
    )
}
