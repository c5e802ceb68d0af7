//! HorizontalPodAutoscaler in both versions, and PodDisruptionBudget.
use super::pod::resources::container_name;
use super::table::{AGE, Column, NAME, first_of, integer, text_or, with};
use super::workload::{at_most_everything, count_or_percent};
use super::{Field, Kind, Metadata, Part, Strategy};
use crate::codec::given;
use crate::names;
use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler as AutoscalerV1;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
const REFERENCE: Column = with("Reference", |autoscaler, _| {
    let target = autoscaler.at("spec.scaleTargetRef");
    format!("{}/{}", target.at("kind").text(), target.at("name").text()).into()
});
const MIN: Column = text_or("MinPods", "spec.minReplicas", "<unset>");
const MAX: Column = integer("MaxPods", "spec.maxReplicas").of("string");
const REPLICAS: Column = integer("Replicas", "status.currentReplicas").of("string");

impl Kind for HorizontalPodAutoscaler {
    const COLUMNS: &[Column] = &[
        NAME,
        REFERENCE,
        with("Targets", |autoscaler, _| targets(autoscaler)),
        MIN,
        MAX,
        REPLICAS,
        AGE,
    ];

    fn validate(autoscaler: &Field<'_, '_>) {
        let spec = autoscaler.at("spec");
        bounds(&spec);
        object_reference(&spec.at("scaleTargetRef"), false);
        let metrics = spec.at("metrics");
        for metric in metrics.items() {
            metric_spec(&metric);
        }
        let outside =
            |metric: Field<'_, '_>| matches!(metric.at("type").text(), "Object" | "External");
        if spec.at("minReplicas").exists()
            && spec.at("minReplicas").int() == 0
            && !metrics.items().any(outside)
        {
            metrics.forbidden("must specify at least one Object or External metric to support scaling to zero replicas");
        }
        for direction in ["scaleUp", "scaleDown"] {
            let rules = spec.at("behavior");
            if rules.at(direction).exists() {
                scaling_rules(&rules.at(direction));
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => {
                for condition in new.at("status.conditions").items() {
                    condition.at("observedGeneration").nonnegative();
                }
                status(&new.at("status"));
            }
        }
    }
}

/// What v1 has in annotations of its spec and of its status.
const OF_SPEC: [&str; 2] =
    ["autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior"];
const OF_STATUS: [&str; 2] = [
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/conditions",
];

/// A part that a write does not change stays as it was in annotations, too.
fn keep_annotations(new: &mut Value, old: &Value, names: [&str; 2]) {
    let before = &old["metadata"]["annotations"];
    if names.iter().any(|name| before.get(name).is_some())
        && !new["metadata"]["annotations"].is_object()
    {
        new["metadata"]["annotations"] = json!({});
    }
    for name in names {
        super::prepare::put(&mut new["metadata"]["annotations"], name, before.get(name));
    }
}

impl Kind for AutoscalerV1 {
    fn prepare_create(autoscaler: &mut Value) {
        super::prepare::create(autoscaler, &Self::STRATEGY);
        keep_annotations(autoscaler, &Value::Null, OF_STATUS);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        keep_annotations(new, old, if part == Part::Main { OF_STATUS } else { OF_SPEC });
        super::prepare::update(new, old, part, &Self::STRATEGY);
    }

    const COLUMNS: &[Column] = &[
        NAME,
        REFERENCE,
        with("Targets", |autoscaler, _| {
            let current = autoscaler.at("status.currentCPUUtilizationPercentage");
            let target = autoscaler.at("spec.targetCPUUtilizationPercentage");
            let shown = |field: &Field<'_, '_>, absent: &str| match field.exists() {
                true => format!("{}%", field.int()),
                false => absent.to_owned(),
            };
            format!("cpu: {}/{}", shown(&current, "<unknown>"), shown(&target, "<auto>")).into()
        }),
        MIN,
        MAX,
        REPLICAS,
        AGE,
    ];

    fn validate(autoscaler: &Field<'_, '_>) {
        let spec = autoscaler.at("spec");
        bounds(&spec);
        object_reference(&spec.at("scaleTargetRef"), false);
        let target = spec.at("targetCPUUtilizationPercentage");
        if target.exists() && target.int() < 1 {
            let path = spec.path().child("metrics");
            let path = path.index(0);
            let path = path.child("resource.target");
            target.on_path(path.child("averageUtilization")).invalid("must be greater than 0");
        }
        if spec.at("minReplicas").exists() && spec.at("minReplicas").int() == 0 {
            spec.spelled("metrics").forbidden("must specify at least one Object or External metric to support scaling to zero replicas");
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => status(&new.at("status")),
        }
    }
}

fn bounds(spec: &Field<'_, '_>) {
    let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    min.declared().nonnegative();
    if max.int() == 0 {
        max.declared().required("");
    } else if max.int() < 0 {
        max.declared().invalid("must be greater than or equal to 1");
    }
    if min.exists() && max.int() < min.int() {
        max.invalid_as(max.int(), "must be greater than or equal to `minReplicas`");
    }
}

fn object_reference(reference: &Field<'_, '_>, any_group: bool) {
    reference.at("kind").named(names::path_segment_name);
    reference.at("name").named(names::path_segment_name);
    let version = reference.at("apiVersion");
    let slashes = version.text().matches('/').count();
    if slashes > 1 {
        version.invalid(format!("unexpected GroupVersion string: {}", version.text()));
    } else if !any_group && (slashes == 0 || version.text().starts_with('/')) {
        version.invalid("apiVersion must specify API group");
    }
}

fn metric_spec(metric: &Field<'_, '_>) {
    let kind = metric.at("type");
    if kind.is_empty() {
        kind.required("must specify a metric source type");
    }
    if !TYPES.contains(&kind.text()) {
        kind.not_supported(TYPES);
    }
    let given: Vec<&'static str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.at(field).exists()).collect();
    if let Some(first) = given.first() {
        metric_source(&metric.at(first), first);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    if let Some(expected) = expected
        && !metric.at(expected).exists()
    {
        metric.at(expected).required("must populate information for the given metric source");
    }
    if given.len() != 1 {
        for field in given.into_iter().filter(|field| Some(*field) != expected) {
            metric.at(field).forbidden("must populate the given metric source only");
        }
    }
}

fn metric_source(source: &Field<'_, '_>, kind: &str) {
    let target = source.at("target");
    let (value, average, utilization) =
        (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    if kind == "object" {
        object_reference(&source.at("describedObject"), true);
    }
    if matches!(kind, "object" | "external" | "pods") {
        let name = source.at("metric.name");
        if name.require_for("must specify a metric name") {
            name.faults(names::path_segment_name(name.text()));
        }
    } else {
        let name = source.at("name");
        if name.require_for("must specify a resource name") && kind == "containerResource" {
            container_name(&name, name.text());
        }
    }
    if kind == "containerResource" {
        let container = source.at("container");
        if container.require_for("must specify a container") {
            container.faults(names::dns1123_label(container.text()));
        }
    }
    metric_target(&target);
    match kind {
        "object" if !value.exists() && !average.exists() => {
            average.required("must set either a target value or averageValue");
        }
        "external" if !value.exists() && !average.exists() => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        "external" if value.exists() && average.exists() => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.exists() => {
            average.required("must specify a positive target averageValue")
        }
        "resource" | "containerResource" => match (utilization.exists(), average.exists()) {
            (false, false) => {
                utilization.required("must set either a target raw value or a target utilization");
            }
            (true, true) => {
                average.forbidden("may not set both a target raw value and a target utilization");
            }
            _ => {}
        },
        _ => {}
    }
}

fn metric_target(target: &Field<'_, '_>) {
    let kind = target.at("type");
    kind.require_for("must specify a metric target type");
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        kind.invalid("must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = target.at(field);
        if amount.quantity().is_some_and(|amount| !amount.sign().is_gt()) {
            amount.invalid("must be positive");
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.exists() && utilization.int() < 1 {
        utilization.invalid("must be greater than 0");
    }
}

fn scaling_rules(rules: &Field<'_, '_>) {
    let window = rules.at("stabilizationWindowSeconds");
    if window.int() < 0 {
        window.invalid("must be greater than or equal to zero");
    }
    if window.int() > 3600 {
        window.invalid("must be less than or equal to 3600");
    }
    rules.at("selectPolicy").one_of_if_given(&["Disabled", "Max", "Min"]);
    let policies = rules.at("policies");
    policies.require_for("must specify at least one Policy");
    for policy in policies.items() {
        policy.at("type").one_of(&["Percent", "Pods"]);
        let period = policy.at("periodSeconds");
        policy.at("value").positive();
        period.positive();
        if period.int() > 1800 {
            period.invalid("must be less than or equal to 1800");
        }
    }
    let tolerance = rules.at("tolerance");
    if tolerance.quantity().is_some_and(|tolerance| tolerance.is_negative()) {
        tolerance.invalid(super::check::NOT_NEGATIVE);
    }
}

fn status(status: &Field<'_, '_>) {
    status.at("currentReplicas").nonnegative();
    status.at("desiredReplicas").nonnegative();
}

/// Current and wanted, for the first two metrics.
fn targets(autoscaler: &Field<'_, '_>) -> Value {
    let current = autoscaler.at("status.currentMetrics");
    let cells: Vec<String> = autoscaler
        .at("spec.metrics")
        .items()
        .enumerate()
        .map(|(i, metric)| {
            target_cell(metric.value(), current.list().get(i).unwrap_or(&Value::Null))
        })
        .collect();
    first_of(&cells, 2, ", ").into()
}

fn target_cell(metric: &Value, status: &Value) -> String {
    let Some((_, field)) = SOURCES.iter().find(|(name, _)| metric["type"] == *name) else {
        return "<unknown type>".to_owned();
    };
    let (target, current) = (&metric[field]["target"], &status[field]["current"]);
    let shown = |value: &Value, absent: &str| value.as_str().unwrap_or(absent).to_owned();
    let known =
        |value: &Value| shown(value, if status[field].is_object() { "0" } else { "<unknown>" });
    match *field {
        "pods" => {
            format!("{}/{}", known(&current["averageValue"]), shown(&target["averageValue"], "0"))
        }
        "object" | "external" if target["averageValue"].is_string() => {
            format!(
                "{}/{} (avg)",
                shown(&current["averageValue"], "<unknown>"),
                shown(&target["averageValue"], "0")
            )
        }
        "object" | "external" => {
            format!("{}/{}", known(&current["value"]), shown(&target["value"], "0"))
        }
        _ => {
            let name = metric[field]["name"].as_str().unwrap_or_default();
            if target["averageValue"].is_string() {
                return format!(
                    "{name}: {}/{}",
                    known(&current["averageValue"]),
                    shown(&target["averageValue"], "0")
                );
            }
            let percent = |value: &Value, absent: &str| {
                value.as_i64().map_or_else(|| absent.to_owned(), |percent| format!("{percent}%"))
            };
            format!(
                "{name}: {}/{}",
                percent(&current["averageUtilization"], "<unknown>"),
                percent(&target["averageUtilization"], "<auto>")
            )
        }
    }
}

impl Kind for PodDisruptionBudget {
    const METADATA: Metadata = Metadata::Last;
    const STRATEGY: Strategy = Strategy::USUAL.conditional();
    const COLUMNS: &[Column] = &[
        NAME,
        text_or("Min Available", "spec.minAvailable", "N/A"),
        text_or("Max Unavailable", "spec.maxUnavailable", "N/A"),
        integer("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ];

    fn validate(budget: &Field<'_, '_>) {
        let spec = budget.at("spec");
        let (min, max) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
        if min.exists() && max.exists() {
            let mut whole = spec.value().clone();
            given::forget_empty(&mut whole["selector"], selector_type());
            let shown = spec.with_value(&whole, |spec| {
                spec.internal(&[
                    ("MinAvailable", "minAvailable", "null"),
                    ("Selector", "selector", "null"),
                    ("MaxUnavailable", "maxUnavailable", "null"),
                    ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", "null"),
                ])
            });
            spec.invalid_as(shown, "minAvailable and maxUnavailable cannot be both set");
        }
        for field in [&min, &max].iter().filter(|field| field.exists()) {
            count_or_percent(field);
            at_most_everything(field);
        }
        spec.at("selector").label_selector();
        spec.at("unhealthyPodEvictionPolicy").one_of_if_given(&["AlwaysAllow", "IfHealthyBudget"]);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            return Self::validate(new);
        }
        let status = new.at("status");
        super::conditions(&status.at("conditions"));
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.at(field).nonnegative();
        }
    }
}

fn selector_type() -> crate::schema::TypeRef<'static> {
    crate::schema::builtin().named("meta/v1.LabelSelector").expect("selectors are in the facts")
}
