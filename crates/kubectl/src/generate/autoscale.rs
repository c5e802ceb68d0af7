//! The HorizontalPodAutoscaler of `kubectl autoscale`.

use api::quantity::Quantity;
use serde_json::{Value, json};

use super::required;
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, number, text};

pub static FLAGS: &[Flag] = &[
    number("min", "-1", "The fewest pods; the server decides if it is not given."),
    number("max", "-1", "The most pods.").required(),
    number("cpu-percent", "-1", "Deprecated: use --cpu.").hidden(),
    text("cpu", "", "Wanted use of CPU: 70% of what is requested, or an amount such as 500m."),
    text(
        "memory",
        "",
        "Wanted use of memory: 60% of what is requested, or an amount such as 200Mi.",
    ),
    text("name", "", "Name of the autoscaler; that of the object if it is not given."),
];

/// Whether the flags say something that can be done, before any object is looked for.
pub fn check(arguments: &Arguments) -> Outcome {
    required(arguments, &["max"])?;
    let (least, most) = (arguments.number("min"), arguments.number("max"));
    if most < 1 {
        return Err(format!("--max=MAXPODS is required and must be at least 1, max: {most}").into());
    }
    if most < least {
        return Err(format!(
            "--max=MAXPODS must be larger or equal to --min=MINPODS, max: {most}, min: {least}"
        )
        .into());
    }
    if arguments.number("cpu-percent") > 0 && !arguments.text("cpu").is_empty() {
        return Err("--cpu-percent and --cpu are mutually exclusive".into());
    }
    for resource in ["cpu", "memory"] {
        if let Some(text) = arguments.some(resource) {
            target(text, resource)?;
        }
    }
    Ok(())
}

/// The autoscaler of an object that can be scaled.
pub fn autoscaler(arguments: &Arguments, object: &Value) -> Outcome<Value> {
    let own = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut metrics = Vec::new();
    let metric = |resource: &str, target: Value| json!({"type": "Resource", "resource": {"name": resource, "target": target}});
    if arguments.number("cpu-percent") > 0 {
        let percent = arguments.number("cpu-percent");
        metrics.push(metric("cpu", json!({"type": "Utilization", "averageUtilization": percent})));
    }
    for resource in ["cpu", "memory"] {
        if let Some(text) = arguments.some(resource) {
            metrics.push(metric(resource, target(text, resource)?));
        }
    }
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": object["apiVersion"], "kind": object["kind"], "name": own},
        "maxReplicas": arguments.number("max"),
    });
    if arguments.number("min") > 0 {
        spec["minReplicas"] = arguments.number("min").into();
    }
    super::put(&mut spec, "metrics", metrics);
    Ok(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": arguments.some("name").unwrap_or(own)},
        "spec": spec,
        "status": {"currentMetrics": null, "desiredReplicas": 0},
    }))
}

/// A percentage, or an amount whose unit may be left out.
fn target(text: &str, resource: &str) -> Outcome<Value> {
    let text = text.trim();
    if text.is_empty() {
        return Err("empty input".into());
    }
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.parse::<i32>() {
            Ok(value) if value >= 0 => {
                Ok(json!({"type": "Utilization", "averageUtilization": value}))
            }
            _ => Err(format!("invalid percentage value: {percent}").into()),
        };
    }
    let with_unit = match text.parse::<f64>() {
        Ok(number) => {
            let shown = api::template::go_print(&json!(number));
            format!("{shown}{}", if resource == "cpu" { "m" } else { "Mi" })
        }
        Err(_) => text.to_owned(),
    };
    match Quantity::parse(&with_unit) {
        Ok(amount) => Ok(json!({"type": "AverageValue", "averageValue": amount.to_string()})),
        Err(_) => Err(format!("invalid resource {resource} value: {text}").into()),
    }
}
