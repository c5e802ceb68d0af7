//! HorizontalPodAutoscaler: v2, in which it is stored, and v1, which knows only a CPU target.
//!
//! What v1 has no field for is kept in its annotations as JSON: the other metrics and the current
//! ones in v1's older shapes, the conditions, and the behaviour (under Go's field names, as
//! upstream has always written it). Going back, the annotations are spent.
use super::moves::{Object, backward, forward, put, take};
use crate::quantity::Quantity;
use crate::quote::in_order;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const OTHERS: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// What v1 means when it names no metric at all.
const DEFAULT_CPU_UTILIZATION: i32 = 80;

type Moves = &'static [(&'static str, &'static str)];

/// Where v1's and v2's shapes of a metric differ, by its type.
const SOURCES: &[(&str, Moves)] = &[
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("targetValue", "target.value"),
            ("averageValue", "target.averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("targetAverageValue", "target.averageValue"),
        ],
    ),
    ("resource", RESOURCE_SOURCE),
    ("containerResource", RESOURCE_SOURCE),
    (
        "external",
        &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("targetValue", "target.value"),
            ("targetAverageValue", "target.averageValue"),
        ],
    ),
];

const RESOURCE_SOURCE: Moves = &[
    ("targetAverageUtilization", "target.averageUtilization"),
    ("targetAverageValue", "target.averageValue"),
];

const STATUSES: &[(&str, Moves)] = &[
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("currentValue", "current.value"),
            ("averageValue", "current.averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("currentAverageValue", "current.averageValue"),
        ],
    ),
    ("resource", RESOURCE_STATUS),
    ("containerResource", RESOURCE_STATUS),
    (
        "external",
        &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("currentValue", "current.value"),
            ("currentAverageValue", "current.averageValue"),
        ],
    ),
];

const RESOURCE_STATUS: Moves = &[
    ("currentAverageUtilization", "current.averageUtilization"),
    ("currentAverageValue", "current.averageValue"),
];

/// Fields that v1's shapes cannot leave out: a zero stands for an absent quantity.
const REQUIRED_IN_V1: &[(&str, &str)] = &[
    ("object", "targetValue"),
    ("object", "currentValue"),
    ("pods", "targetAverageValue"),
    ("pods", "currentAverageValue"),
    ("resource", "currentAverageValue"),
    ("containerResource", "currentAverageValue"),
    ("external", "currentValue"),
];

pub(super) fn v2_to_v1(hpa: &mut Object) {
    spend_annotations(hpa);
    let mut metrics = list(take(hpa, "spec.metrics"));
    if let Some(target) = metrics.iter().find_map(cpu_target) {
        put(hpa, "spec.targetCPUUtilizationPercentage", target);
    }
    metrics.retain(|metric| cpu_target(metric).is_none());
    for metric in &mut metrics {
        older(metric, SOURCES, "target");
    }
    annotate(hpa, METRICS, metrics);

    let mut current = list(take(hpa, "status.currentMetrics"));
    if let Some(utilization) = current.iter().filter_map(cpu_current).next_back() {
        put(hpa, "status.currentCPUUtilizationPercentage", utilization);
    }
    for metric in &mut current {
        older(metric, STATUSES, "current");
    }
    annotate(hpa, CURRENT_METRICS, current);
    if let Some(behavior) = take(hpa, "spec.behavior") {
        put_annotation(hpa, BEHAVIOR, go_behavior(&behavior));
    }
    let conditions = list(take(hpa, "status.conditions"));
    annotate(hpa, CONDITIONS, conditions);
}

pub(super) fn v1_to_v2(hpa: &mut Object) {
    let annotations = spend_annotations(hpa);
    let from = |name: &str| -> Option<Value> {
        serde_json::from_str(annotations.get(name)?.as_str()?).ok()
    };

    let mut metrics = list(from(METRICS));
    for metric in &mut metrics {
        newer(metric, SOURCES, "target");
        name_target_type(metric);
    }
    if let Some(utilization) = take(hpa, "spec.targetCPUUtilizationPercentage") {
        metrics.push(cpu_metric("target", utilization));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric("target", DEFAULT_CPU_UTILIZATION.into()));
    }
    put(hpa, "spec.metrics", metrics.into());

    if let Some(utilization) = take(hpa, "status.currentCPUUtilizationPercentage") {
        put(hpa, "status.currentMetrics", json!([cpu_metric("current", utilization)]));
    }
    // The annotation knows more than the one field above.
    if let Some(mut current) = from(CURRENT_METRICS) {
        for metric in current.as_array_mut().into_iter().flatten() {
            newer(metric, STATUSES, "current");
        }
        put(hpa, "status.currentMetrics", current);
    }
    if let Some(behavior) = from(BEHAVIOR).map(json_behavior).filter(|b| *b != json!({})) {
        put(hpa, "spec.behavior", behavior);
    }
    if let Some(conditions) = from(CONDITIONS) {
        put(hpa, "status.conditions", conditions);
    }
}

fn list(value: Option<Value>) -> Vec<Value> {
    if let Some(Value::Array(elements)) = value { elements } else { Vec::new() }
}

/// The utilization that v1 has a field for.
fn cpu_target(metric: &Value) -> Option<Value> {
    cpu(metric)?.pointer("/target/averageUtilization").filter(|v| !v.is_null()).cloned()
}

fn cpu_current(metric: &Value) -> Option<Value> {
    cpu(metric)?.pointer("/current/averageUtilization").filter(|v| !v.is_null()).cloned()
}

fn cpu(metric: &Value) -> Option<&Value> {
    let resource = metric.get("resource").filter(|_| metric["type"] == "Resource")?;
    (resource["name"] == "cpu").then_some(resource)
}

fn cpu_metric(part: &str, utilization: Value) -> Value {
    let mut value = json!({ "averageUtilization": utilization });
    if part == "target" {
        value["type"] = "Utilization".into();
    }
    json!({ "type": "Resource", "resource": { "name": "cpu", part: value } })
}

/// One metric, from v2's shape to v1's. `part` is what v2 gathers the values under.
fn older(metric: &mut Value, shapes: &[(&str, Moves)], part: &str) {
    for (name, moves) in shapes {
        let Some(Value::Object(source)) = metric.get_mut(*name) else { continue };
        take(source, &format!("{part}.type"));
        backward(source, moves);
        let required =
            REQUIRED_IN_V1.iter().filter(|(of, field)| of == name && field.starts_with(part));
        for (_, field) in required {
            source.entry(*field).or_insert_with(|| "0".into());
        }
    }
}

fn newer(metric: &mut Value, shapes: &[(&str, Moves)], part: &str) {
    for (name, moves) in shapes {
        let Some(Value::Object(source)) = metric.get_mut(*name) else { continue };
        let target_zero = *name == "object"
            && part == "target"
            && source.contains_key("averageValue")
            && source.get("targetValue").is_none_or(is_zero);
        if target_zero {
            // v1 could not leave it out; v2 must not have both.
            source.remove("targetValue");
        }
        forward(source, moves);
    }
}

fn is_zero(quantity: &Value) -> bool {
    quantity.as_str().and_then(|text| Quantity::parse(text).ok()).is_none_or(|q| q.is_zero())
}

/// v2 says which of its values a target means; in v1 it went without saying.
fn name_target_type(metric: &mut Value) {
    for (name, _) in SOURCES {
        let Some(Value::Object(source)) = metric.get_mut(*name) else { continue };
        let has = |field: &str| source.get("target").is_some_and(|t| !t[field].is_null());
        let target_type = match *name {
            "resource" | "containerResource" if has("averageUtilization") => "Utilization",
            "object" if !has("averageValue") => "Value",
            "external" if has("value") => "Value",
            _ => "AverageValue",
        };
        put(source, "target.type", target_type.into());
    }
}

/// Takes the annotations that only carry fields between versions; the rest stay.
fn spend_annotations(hpa: &mut Object) -> Map<String, Value> {
    let mut spent = Map::new();
    if let Some(Value::Object(annotations)) =
        hpa.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"))
    {
        for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].iter().chain(OTHERS) {
            if let Some(value) = annotations.remove(*name) {
                spent.insert((*name).to_owned(), value);
            }
        }
    }
    spent
}

fn annotate(hpa: &mut Object, name: &str, elements: Vec<Value>) {
    if !elements.is_empty() {
        put_annotation(hpa, name, Value::Array(elements));
    }
}

/// The order in which Go declares the fields of what annotations carry.
const ORDER: &[&str] = &[
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Type",
    "Value",
    "PeriodSeconds",
    "Tolerance",
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "metricName",
    "metricSelector",
    "targetValue",
    "currentValue",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetAverageValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "apiVersion",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
];

fn put_annotation(hpa: &mut Object, name: &str, value: Value) {
    let annotations = take(hpa, "metadata.annotations");
    let mut annotations = if let Some(Value::Object(all)) = annotations { all } else { Map::new() };
    annotations.insert(name.to_owned(), in_order(&value, ORDER).into());
    put(hpa, "metadata.annotations", annotations.into());
}

/// The behaviour as Go writes a struct without JSON names: every field, capitalised.
fn go_behavior(behavior: &Value) -> Value {
    let rules = |rules: &Value| match rules {
        Value::Object(_) => {
            let policies = rules["policies"].as_array().map(|policies| -> Vec<Value> {
                policies
                    .iter()
                    .map(|p| json!({"Type": p["type"], "Value": p["value"], "PeriodSeconds": p["periodSeconds"]}))
                    .collect()
            });
            json!({
                "StabilizationWindowSeconds": rules["stabilizationWindowSeconds"],
                "SelectPolicy": rules["selectPolicy"],
                "Policies": policies,
                "Tolerance": rules["tolerance"],
            })
        }
        _ => Value::Null,
    };
    json!({ "ScaleUp": rules(&behavior["scaleUp"]), "ScaleDown": rules(&behavior["scaleDown"]) })
}

/// Back to JSON's names. Go reads such names in any case, so the first letter is all that counts.
fn json_behavior(value: Value) -> Value {
    match value {
        Value::Object(object) => object
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| {
                let mut chars = name.chars();
                let first = chars.next().map(|c| c.to_ascii_lowercase());
                (first.into_iter().chain(chars).collect::<String>(), json_behavior(value))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(elements) => elements.into_iter().map(json_behavior).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::convert::convert;
    use serde_json::{Value, json};

    fn hpa(api_version: &str, spec: Value, status: Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "annotations": {"mine": "1"}}, "spec": spec, "status": status,
        })
    }

    /// v2 → v1 → v2 gives the same object; returns v1 for a closer look.
    fn there_and_back(spec: Value, status: Value) -> Value {
        let newer = convert(
            convert(hpa("autoscaling/v2", spec, status), "autoscaling/v1").unwrap(),
            "autoscaling/v2",
        )
        .unwrap();
        let older = convert(newer.clone(), "autoscaling/v1").unwrap();
        assert_eq!(convert(older.clone(), "autoscaling/v2").unwrap(), newer);
        older
    }

    fn reference() -> Value {
        json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"})
    }

    #[test]
    fn a_cpu_target_is_a_field() {
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]);
        let spec = json!({"scaleTargetRef": reference(), "maxReplicas": 3, "metrics": metrics});
        let older = there_and_back(spec, json!({"desiredReplicas": 1, "currentMetrics": null}));
        assert_eq!(older["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(older["metadata"]["annotations"], json!({"mine": "1"}));
    }

    #[test]
    fn everything_else_travels_in_annotations() {
        let selector = json!({"matchLabels": {"a": "b"}});
        let spec = json!({
            "scaleTargetRef": reference(), "maxReplicas": 3,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "rps", "selector": selector},
                    "target": {"type": "AverageValue", "averageValue": "10"}}},
                {"type": "Object", "object": {"describedObject": reference(), "metric": {"name": "q"},
                    "target": {"type": "Value", "value": "2"}}},
                {"type": "Object", "object": {"describedObject": reference(), "metric": {"name": "q"},
                    "target": {"type": "AverageValue", "averageValue": "2"}}},
                {"type": "External", "external": {"metric": {"name": "x"},
                    "target": {"type": "Value", "value": "1"}}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                    "target": {"type": "Utilization", "averageUtilization": 5}}},
                {"type": "Resource", "resource": {"name": "memory",
                    "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            ],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
                "selectPolicy": "Max", "tolerance": "10m"}},
        });
        let status = json!({
            "currentReplicas": 2, "desiredReplicas": 2,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                "current": {"averageUtilization": 7, "averageValue": "70m"}}}],
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}],
        });
        let original = hpa("autoscaling/v2", spec.clone(), status.clone());
        let older = there_and_back(spec, status);
        let back = convert(older.clone(), "autoscaling/v2").unwrap();
        assert_eq!(back["spec"]["metrics"], original["spec"]["metrics"]);
        assert_eq!(back["spec"]["behavior"], original["spec"]["behavior"]);
        assert_eq!(back["status"], original["status"]);
        assert_eq!(older["status"]["currentCPUUtilizationPercentage"], 7);
        assert_eq!(
            older["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/behavior"],
            r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":"10m"},"ScaleDown":null}"#
        );
    }

    #[test]
    fn v1_without_a_metric_means_eighty_percent() {
        let older = hpa(
            "autoscaling/v1",
            json!({"scaleTargetRef": reference(), "maxReplicas": 1}),
            json!({}),
        );
        let newer = convert(older, "autoscaling/v2").unwrap();
        assert_eq!(newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    }
}
