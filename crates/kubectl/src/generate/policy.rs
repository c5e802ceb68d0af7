//! Namespaces, quotas, budgets, priorities.

use api::quantity::Quantity;
use api::selector::label::Selector;
use serde_json::{Value, json};

use super::{Generator, Made, Rim, int_or_string, name, named, put};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, number, switch, text};

pub static NAMESPACE: Generator = Generator {
    name: "namespace",
    aliases: &["ns"],
    about: "Create a namespace with the specified name",
    usage: "NAME [--dry-run=server|client|none]",
    make: |arguments, _| {
        let mut object = named("v1", "Namespace", name(arguments)?);
        object["spec"] = json!({});
        object["status"] = json!({});
        Ok(object.into())
    },
    ..Generator::EMPTY
};

pub static QUOTA: Generator = Generator {
    name: "quota",
    aliases: &["resourcequota"],
    about: "Create a quota with the specified name",
    usage: "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    flags: &[
        text("hard", "", "Limits: RESOURCE=QUANTITY, divided by commas."),
        text("scopes", "", "Scopes that all have to fit what is counted, divided by commas."),
    ],
    refused: "failed to create quota: ",
    make: quota,
    ..Generator::EMPTY
};

fn quota(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let mut object = named("v1", "ResourceQuota", name(arguments)?);
    let mut hard = json!({});
    for pair in arguments.some("hard").into_iter().flat_map(|text| text.split(',')) {
        let parts: Vec<&str> = pair.split('=').collect();
        let [resource, amount] = parts[..] else {
            return Err(
                format!("Invalid argument syntax {pair}, expected <resource>=<value>").into()
            );
        };
        let amount = Quantity::parse(amount).map_err(|error| Failure::Plain(error.to_string()))?;
        hard[resource] = amount.to_string().into();
    }
    let scopes: Vec<&str> =
        arguments.some("scopes").into_iter().flat_map(|text| text.split(',')).collect();
    if scopes.contains(&"") {
        return Err("invalid resource quota scope \"\"".into());
    }
    object["spec"] = json!({});
    put(&mut object["spec"], "hard", hard);
    put(&mut object["spec"], "scopes", scopes);
    object["status"] = json!({});
    Ok(object.into())
}

pub static BUDGET: Generator = Generator {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    about: "Create a pod disruption budget with the specified name",
    usage: "NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    flags: &[
        text("min-available", "", "How many pods, or percent of them, have to be available."),
        text("max-unavailable", "", "How many pods, or percent of them, may be unavailable."),
        text("selector", "", "Labels of the pods."),
    ],
    refused: "failed to create poddisruptionbudgets: ",
    make: budget,
    ..Generator::EMPTY
};

fn budget(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let name = name(arguments)?;
    let selector = arguments.text("selector");
    let (least, most) = (arguments.text("min-available"), arguments.text("max-unavailable"));
    if selector.is_empty() {
        return Err("a selector must be specified".into());
    }
    let (field, flag, value) = match (least, most) {
        ("", "") => return Err("one of min-available or max-unavailable must be specified".into()),
        (least, "") => ("minAvailable", "min-available", least),
        ("", most) => ("maxUnavailable", "max-unavailable", most),
        _ => return Err("min-available and max-unavailable cannot be both specified".into()),
    };
    let digits = value.strip_suffix('%').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("invalid format specified for {flag}").into());
    }
    let fault = |error: api::selector::label::Error| {
        Failure::Plain(format!("couldn't parse the selector string \"{selector}\": {error}"))
    };
    let selector =
        Selector::parse(selector).and_then(|parsed| parsed.to_label_selector()).map_err(fault)?;
    let mut object = named("policy/v1", "PodDisruptionBudget", name);
    object["spec"] = json!({field: int_or_string(value), "selector": serde_json::to_value(selector).unwrap_or_default()});
    object["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    Ok(object.into())
}

pub static PRIORITY_CLASS: Generator = Generator {
    name: "priorityclass",
    aliases: &["pc"],
    about: "Create a priority class with the specified name",
    usage: "NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    flags: &[
        number("value", "0", "The priority."),
        switch("global-default", "It is the priority of pods that name none."),
        text("description", "", "When to use it."),
        text(
            "preemption-policy",
            "PreemptLowerPriority",
            "Whether pods of lower priority make room.",
        ),
    ],
    refused: "failed to create priorityclass: ",
    make: priority_class,
    ..Generator::EMPTY
};

fn priority_class(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let mut object = named("scheduling.k8s.io/v1", "PriorityClass", name(arguments)?);
    object["value"] = arguments.number("value").into();
    if arguments.is("global-default") {
        object["globalDefault"] = Value::Bool(true);
    }
    put(&mut object, "description", arguments.text("description"));
    object["preemptionPolicy"] = arguments.text("preemption-policy").into();
    Ok(object.into())
}
