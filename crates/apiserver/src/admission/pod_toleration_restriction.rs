//! Which taints the pods of a namespace tolerate, and which they may.
use super::chain::Settings;
use super::configuration::typed;
use super::{Attributes, items, namespace, plain, text};
use api::rules::{qos_class, toleration_faults};
use api::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// For namespaces that say nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    #[serde(rename = "default")]
    defaults: Vec<Value>,
    #[serde(rename = "whitelist")]
    allowed: Vec<Value>,
}

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), String> {
    let Some(told) = told else { return Ok(()) };
    let group = "podtolerationrestriction.admission.k8s.io";
    let configuration: Configuration = typed(told, group, &["v1alpha1"], "Configuration")?;
    let lists = [("default", &configuration.defaults), ("whitelist", &configuration.allowed)];
    let mut faults = Vec::new();
    for (field, list) in lists {
        for fault in toleration_faults(&json!(list)) {
            let fault = fault.to_string();
            let rest = fault.strip_prefix("tolerations").unwrap_or(&fault);
            faults.push(format!("podtolerationrestriction.{field}{rest}"));
        }
    }
    if !faults.is_empty() {
        return Err(format!("invalid config: [{}]", faults.join(" ")));
    }
    settings.pod_toleration_restriction = configuration;
    Ok(())
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.writes() {
        return Ok(());
    }
    let mut extra = Vec::new();
    if attributes.creates() {
        let own = of_namespace(attributes, DEFAULTS).await?;
        let settings = &attributes.api.admission().settings.pod_toleration_restriction;
        extra = own.unwrap_or_else(|| settings.defaults.clone());
    }
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    let class = match text(&pod["status"]["qosClass"]) {
        "" => qos_class(&pod["spec"]),
        class => class,
    };
    if class != "BestEffort" {
        let key = "node.kubernetes.io/memory-pressure";
        extra.push(json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }));
    }
    if !extra.is_empty() {
        let all = [items(&pod["spec"]["tolerations"]), &extra].concat();
        pod["spec"]["tolerations"] = merged(&all).into();
    }
    validate(attributes).await
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.writes() || items(&attributes.new_object()["spec"]["tolerations"]).is_empty() {
        return Ok(());
    }
    let own = of_namespace(attributes, ALLOWED).await?;
    let settings = &attributes.api.admission().settings.pod_toleration_restriction;
    let (scope, allowed) = match &own {
        Some(own) => ("namespace", own),
        None => ("cluster", &settings.allowed),
    };
    let tolerations = items(&attributes.new_object()["spec"]["tolerations"]);
    let covered = |wanted: &Value| allowed.iter().any(|allowed| is_superset(allowed, wanted));
    match allowed.is_empty() || tolerations.iter().all(covered) {
        true => Ok(()),
        // Upstream forgets to make it a refusal.
        false => Err(plain(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        ))),
    }
}

/// The tolerations in an annotation of the namespace; none if it has no such annotation.
async fn of_namespace(
    attributes: &Attributes<'_>,
    annotation: &str,
) -> Result<Option<Vec<Value>>, Status> {
    let namespace = namespace::of(attributes).await?;
    match namespace["metadata"]["annotations"][annotation].as_str() {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => serde_json::from_str(text).map_err(|error| plain(error.to_string())),
    }
}

/// Without those that another covers; of equals the first stays.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let mut later = all[i + 1..].iter();
        let covered = kept.iter().any(|other| is_superset(other, one))
            || later.any(|other| other != one && is_superset(other, one));
        if !covered {
            kept.push(one.clone());
        }
    }
    kept
}

/// Whether `wide` tolerates all that `narrow` does.
fn is_superset(wide: &Value, narrow: &Value) -> bool {
    let (w, n) = (|field: &str| text(&wide[field]), |field: &str| text(&narrow[field]));
    if wide == narrow {
        return true;
    }
    let all_keys = w("key").is_empty() && w("operator") == "Exists";
    if w("key") != n("key") && !all_keys || w("effect") != n("effect") && !w("effect").is_empty() {
        return false;
    }
    if w("effect") == "NoExecute"
        && let Some(most) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match w("operator") {
        "Equal" | "" => n("operator") == "Equal" && n("value") == w("value"),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_valid_tolerations() {
        let told = |list: Value| {
            let document = json!({"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1",
                "kind": "Configuration", "whitelist": list});
            configure(Some(document), &mut Settings::default())
        };
        assert_eq!(told(json!([{"key": "a", "operator": "Exists"}])), Ok(()));
        assert_eq!(
            told(json!([{"operator": "Equal"}])),
            Err("invalid config: [podtolerationrestriction.whitelist[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]".into())
        );
    }

    #[test]
    fn the_wider_toleration_stays() {
        let all = json!({"operator": "Exists"});
        let one = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let any_value = json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"});
        assert_eq!(merged(&[one.clone(), all.clone()]), [all]);
        assert_eq!(merged(&[any_value.clone(), one.clone()]), [any_value]);
        assert_eq!(merged(&[one.clone(), one.clone()]), [one]);
    }

    #[test]
    fn a_shorter_stay_is_narrower() {
        let stay = |seconds: i64| {
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds})
        };
        assert!(is_superset(&stay(10), &stay(5)));
        assert!(!is_superset(&stay(5), &stay(10)));
    }
}
