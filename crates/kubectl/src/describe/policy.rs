//! Namespaces, quotas, limits, budgets, autoscalers, priorities.

use std::collections::BTreeSet;

use api::quantity::{Format, Quantity};
use api::quote::Quoted;
use serde_json::Value;

use super::Seen;
use super::around::{Slot, Want};
use super::common::{
    amount, format_labels, head, int, is_true, items, labels_and_annotations, long_conditions,
    name, pairs, quantity, selector_text, shown, text, texts, time,
};
use super::writer::{Writer, put};

pub fn wants_of_namespace(namespace: &Value) -> Vec<Want> {
    let name = name(namespace);
    vec![
        Want::all(Slot::Quotas, "v1", "resourcequotas", name).required(),
        Want::all(Slot::LimitRanges, "v1", "limitranges", name).required(),
    ]
}

pub fn namespace(w: &mut Writer, namespace: &Value, seen: &Seen<'_>) {
    head(w, namespace, false);
    labels_and_annotations(w, namespace);
    put!(w, 0, "Status:\t{}\n", text(&namespace["status"]["phase"]));
    let conditions = items(&namespace["status"]["conditions"]);
    if !conditions.is_empty() {
        long_conditions(w, conditions);
    }
    if let Some(mut quotas) = seen.around.list(Slot::Quotas) {
        w.write(0, "\n");
        quotas.sort_by_key(|quota| name(quota));
        quotas_of_namespace(w, &quotas);
    }
    if let Some(ranges) = seen.around.list(Slot::LimitRanges) {
        w.write(0, "\n");
        if ranges.is_empty() {
            w.write(0, "No LimitRange resource.\n");
            return;
        }
        w.write(0, "Resource Limits\n");
        limits_head(w, " ");
        for range in ranges {
            limits(w, range, " ");
        }
    }
}

fn quotas_of_namespace(w: &mut Writer, quotas: &[&Value]) {
    if quotas.is_empty() {
        w.write(0, "No resource quota.\n");
        return;
    }
    w.write(0, "Resource Quotas\n");
    for quota in quotas {
        put!(w, 1, "Name:\t{}\n", name(quota));
        scopes(w, 1, quota, "* ");
        w.write(1, "Resource\tUsed\tHard\n");
        w.write(1, "--------\t---\t---\n");
        for resource in pairs(&quota["status"]["hard"]).keys() {
            let (used, hard) =
                (&quota["status"]["used"][*resource], &quota["status"]["hard"][*resource]);
            put!(w, 1, "{resource}\t{}\t{}\n", amount(used), amount(hard));
        }
    }
}

fn scopes(w: &mut Writer, level: usize, quota: &Value, bullet: &str) {
    let mut scopes = texts(&quota["spec"]["scopes"]);
    if scopes.is_empty() {
        return;
    }
    scopes.sort_unstable();
    put!(w, level, "Scopes:\t{}\n", scopes.join(", "));
    for scope in scopes {
        let help = match scope {
            "Terminating" => {
                "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before \
                 being actively terminated by the system."
            }
            "NotTerminating" => {
                "Matches all pods that do not have an active deadline. These pods usually include long running pods \
                 whose container command is not expected to terminate."
            }
            "BestEffort" => {
                "Matches all pods that do not have resource requirements set. These pods have a best effort quality \
                 of service."
            }
            "NotBestEffort" => {
                "Matches all pods that have at least one resource requirement set. These pods have a burstable or \
                 guaranteed quality of service."
            }
            _ => continue,
        };
        put!(w, level, "{bullet}{help}\n");
    }
}

pub fn quota(w: &mut Writer, quota: &Value, _: &Seen<'_>) {
    head(w, quota, true);
    scopes(w, 0, quota, " * ");
    w.write(0, "Resource\tUsed\tHard\n");
    w.write(0, "--------\t----\t----\n");
    for resource in pairs(&quota["status"]["hard"]).keys() {
        let (used, hard) =
            (&quota["status"]["used"][*resource], &quota["status"]["hard"][*resource]);
        put!(w, 0, "{resource}\t{}\t{}\n", in_form_of(used, &shown(hard)), amount(hard));
    }
}

/// What is used, written as what is allowed is written: 1024 of 1Gi is 1Ki.
fn in_form_of(used: &Value, hard: &str) -> Quantity {
    let is_binary = |text: &str| text.ends_with('i');
    let mut amount = quantity(used);
    if is_binary(hard) != is_binary(&shown(used)) {
        amount.set_format(if is_binary(hard) { Format::BinarySI } else { Format::DecimalSI });
    }
    amount
}

pub fn limit_range(w: &mut Writer, range: &Value, _: &Seen<'_>) {
    head(w, range, true);
    limits_head(w, "");
    limits(w, range, "");
}

fn limits_head(w: &mut Writer, indent: &str) {
    put!(
        w,
        0,
        "{indent}Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n"
    );
    put!(
        w,
        0,
        "{indent}----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n"
    );
}

fn limits(w: &mut Writer, range: &Value, indent: &str) {
    const PARTS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
    for item in items(&range["spec"]["limits"]) {
        let resources: BTreeSet<&str> =
            PARTS.iter().flat_map(|part| pairs(&item[*part]).into_keys()).collect();
        for resource in resources {
            let amounts = PARTS.map(|part| match &item[part][resource] {
                Value::Null => "-".to_owned(),
                value => amount(value),
            });
            put!(w, 0, "{indent}{}\t{resource}\t{}\n", text(&item["type"]), amounts.join("\t"));
        }
    }
}

pub fn budget(w: &mut Writer, budget: &Value, _: &Seen<'_>) {
    let (spec, status) = (&budget["spec"], &budget["status"]);
    head(w, budget, true);
    if !spec["minAvailable"].is_null() {
        put!(w, 0, "Min available:\t{}\n", shown(&spec["minAvailable"]));
    } else if !spec["maxUnavailable"].is_null() {
        put!(w, 0, "Max unavailable:\t{}\n", shown(&spec["maxUnavailable"]));
    }
    match spec["selector"].is_object() {
        true => put!(w, 0, "Selector:\t{}\n", selector_text(&spec["selector"])),
        false => w.write(0, "Selector:\t<unset>\n"),
    }
    w.write(0, "Status:\n");
    for (title, field) in [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ] {
        put!(w, 2, "{title}:\t{}\n", int(&status[field]));
    }
}

pub fn priority_class(w: &mut Writer, class: &Value, _: &Seen<'_>) {
    head(w, class, false);
    put!(w, 0, "Value:\t{}\n", int(&class["value"]));
    put!(w, 0, "GlobalDefault:\t{}\n", is_true(&class["globalDefault"]));
    put!(w, 0, "PreemptionPolicy:\t{}\n", text(&class["preemptionPolicy"]));
    put!(w, 0, "Description:\t{}\n", text(&class["description"]));
    put!(w, 0, "Annotations:\t{}\n", format_labels(&class["metadata"]["annotations"]));
}

pub fn autoscaler(w: &mut Writer, hpa: &Value, _: &Seen<'_>) {
    let (spec, status) = (&hpa["spec"], &hpa["status"]);
    head(w, hpa, true);
    labels_and_annotations(w, hpa);
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&hpa["metadata"]["creationTimestamp"]));
    let target = &spec["scaleTargetRef"];
    put!(w, 0, "Reference:\t{}/{}\n", text(&target["kind"]), text(&target["name"]));
    if text(&hpa["apiVersion"]) == "autoscaling/v1" {
        if let Some(wanted) = spec["targetCPUUtilizationPercentage"].as_i64() {
            put!(w, 0, "Target CPU utilization:\t{wanted}%\n");
            let current = match status["currentCPUUtilizationPercentage"].as_i64() {
                Some(current) => current.to_string(),
                None => "<unknown>".to_owned(),
            };
            put!(w, 0, "Current CPU utilization:\t{current}%\n");
        }
    } else {
        w.write(0, "Metrics:\t( current / target )\n");
        for (i, metric) in items(&spec["metrics"]).iter().enumerate() {
            self::metric(w, metric, &status["currentMetrics"][i]);
        }
    }
    match spec["minReplicas"].as_i64() {
        Some(least) => put!(w, 0, "Min replicas:\t{least}\n"),
        None => w.write(0, "Min replicas:\t<unset>\n"),
    }
    put!(w, 0, "Max replicas:\t{}\n", int(&spec["maxReplicas"]));
    if spec["behavior"].is_object() {
        w.write(0, "Behavior:\n");
        behaviour(w, "Scale Up", &spec["behavior"]["scaleUp"]);
        behaviour(w, "Scale Down", &spec["behavior"]["scaleDown"]);
    }
    let (current, desired) = (int(&status["currentReplicas"]), int(&status["desiredReplicas"]));
    put!(w, 0, "{} pods:\t{current} current / {desired} desired\n", text(&target["kind"]));
    let conditions = items(&status["conditions"]);
    if !conditions.is_empty() && text(&hpa["apiVersion"]) != "autoscaling/v1" {
        w.write(0, "Conditions:\n");
        w.write(1, "Type\tStatus\tReason\tMessage\n");
        w.write(1, "----\t------\t------\t-------\n");
        for c in conditions {
            let (kind, status) = (text(&c["type"]), text(&c["status"]));
            put!(w, 1, "{kind}\t{status}\t{}\t{}\n", text(&c["reason"]), text(&c["message"]));
        }
    }
}

/// One metric: what it is now, and what it should be.
fn metric(w: &mut Writer, metric: &Value, current: &Value) {
    const UNKNOWN: &str = "<unknown>";
    let kind = text(&metric["type"]);
    let field = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        other => return put!(w, 1, "<unknown metric type {}>\n", Quoted(other)),
    };
    let (wanted, now) = (&metric[field], &current[field]["current"]);
    let (target, metric_name) = (&wanted["target"], text(&wanted["metric"]["name"]));
    let known =
        |value: &Value| if current[field].is_object() { amount(value) } else { UNKNOWN.to_owned() };
    let average =
        || format!("{} / {}", known(&now["averageValue"]), amount(&target["averageValue"]));
    let value = || format!("{} / {}", known(&now["value"]), amount(&target["value"]));
    match kind {
        "External" if !target["averageValue"].is_null() => {
            let now = if now["averageValue"].is_null() {
                UNKNOWN.to_owned()
            } else {
                amount(&now["averageValue"])
            };
            let wanted = amount(&target["averageValue"]);
            put!(w, 1, "{} (target average value):\t{now} / {wanted}\n", Quoted(metric_name));
        }
        "External" => put!(w, 1, "{} (target value):\t{}\n", Quoted(metric_name), value()),
        "Pods" => put!(w, 1, "{} on pods:\t{}\n", Quoted(metric_name), average()),
        "Object" => {
            let object = &wanted["describedObject"];
            let (kind, object) = (text(&object["kind"]), text(&object["name"]));
            let shown = match text(&target["type"]) {
                "AverageValue" => format!("(target average value):\t{}", average()),
                _ => format!("(target value):\t{}", value()),
            };
            put!(w, 1, "\"{metric_name}\" on {kind}/{object} {shown}\n");
        }
        _ => {
            let resource = text(&wanted["name"]);
            let of = match field {
                "containerResource" => format!(" of container \"{}\"", text(&wanted["container"])),
                _ => String::new(),
            };
            if !target["averageValue"].is_null() {
                put!(w, 1, "resource {resource}{of} on pods:\t{}\n", average());
                return;
            }
            let now = match now["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}% ({})", amount(&now["averageValue"])),
                None => UNKNOWN.to_owned(),
            };
            let wanted = match target["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}%"),
                None => "<auto>".to_owned(),
            };
            put!(
                w,
                1,
                "resource {resource}{of} on pods  (as a percentage of request):\t{now} / {wanted}\n"
            );
        }
    }
}

fn behaviour(w: &mut Writer, title: &str, rules: &Value) {
    if !rules.is_object() {
        return;
    }
    put!(w, 1, "{title}:\n");
    if let Some(window) = rules["stabilizationWindowSeconds"].as_i64() {
        put!(w, 2, "Stabilization Window: {window} seconds\n");
    }
    let policies = items(&rules["policies"]);
    if policies.is_empty() {
        return;
    }
    put!(w, 2, "Select Policy: {}\n", rules["selectPolicy"].as_str().unwrap_or("Max"));
    w.write(2, "Policies:\n");
    for policy in policies {
        let (value, period) = (int(&policy["value"]), int(&policy["periodSeconds"]));
        put!(w, 3, "- Type: {}\tValue: {value}\tPeriod: {period} seconds\n", text(&policy["type"]));
    }
}
