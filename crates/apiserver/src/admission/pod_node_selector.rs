//! Pods of a namespace run where the namespace says: its selector is added to theirs, and theirs
//! may not leave what the cluster allows it.
use super::chain::Settings;
use super::{Attributes, namespace, plain, text};
use api::names::{label_value, qualified_name};
use api::status::Status;
use serde_json::Value;
use std::collections::BTreeMap;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;
/// By namespace, what its pods may select; the default's name is no namespace's.
pub type Selectors = BTreeMap<String, String>;

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), String> {
    let selectors = told.unwrap_or_default()["podNodeSelectorPluginConfig"].take();
    // Upstream reads on after what it cannot read, and so has nothing then.
    settings.pod_node_selector = serde_json::from_value(selectors).unwrap_or_default();
    Ok(())
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.creates() {
        return Ok(());
    }
    let wanted = of_namespace(attributes).await?;
    check_conflict(attributes, &wanted)?;
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    for (key, value) in wanted {
        pod["spec"]["nodeSelector"][key] = value.into();
    }
    check_allowed(attributes)
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.creates() {
        return Ok(());
    }
    let wanted = of_namespace(attributes).await?;
    check_conflict(attributes, &wanted)?;
    check_allowed(attributes)
}

async fn of_namespace(attributes: &Attributes<'_>) -> Result<Labels, Status> {
    let namespace = namespace::of(attributes).await?;
    let selectors = &attributes.api.admission().settings.pod_node_selector;
    let selector = match namespace["metadata"]["annotations"][ANNOTATION].as_str() {
        Some(selector) => selector,
        None => selectors.get(DEFAULT).map_or("", String::as_str),
    };
    parse(selector).map_err(plain)
}

fn refused(attributes: &Attributes<'_>, cause: &str) -> Status {
    let name = text(&attributes.new_object()["metadata"]["name"]);
    Status::forbidden(attributes.call.resource.group_resource(), name, cause)
}

fn check_conflict(attributes: &Attributes<'_>, wanted: &Labels) -> Result<(), Status> {
    let given = &attributes.new_object()["spec"]["nodeSelector"];
    let differs =
        |(key, value): (&String, &String)| given[key].as_str().is_some_and(|given| given != value);
    match wanted.iter().any(differs) {
        false => Ok(()),
        true => Err(refused(
            attributes,
            "pod node label selector conflicts with its namespace node label selector",
        )),
    }
}

fn check_allowed(attributes: &Attributes<'_>) -> Result<(), Status> {
    let selectors = &attributes.api.admission().settings.pod_node_selector;
    let allowed = selectors.get(&attributes.call.namespace).map_or("", String::as_str);
    let allowed = parse(allowed).map_err(plain)?;
    let given = attributes.new_object()["spec"]["nodeSelector"].as_object();
    let within = |(key, value): (&String, &Value)| {
        allowed.get(key).is_some_and(|allowed| value.as_str() == Some(allowed))
    };
    match allowed.is_empty() || given.into_iter().flatten().all(within) {
        true => Ok(()),
        false => Err(refused(
            attributes,
            "pod node label selector labels conflict with its namespace whitelist",
        )),
    }
}

/// `a=b,c=d`.
fn parse(selector: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    for label in selector.split(',').filter(|_| !selector.is_empty()) {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = parts[..] else {
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        let faults = qualified_name(key);
        if !faults.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; ")));
        }
        let faults = label_value(value);
        if !faults.is_empty() {
            return Err(format!("[{key}]: Invalid value: {value:?}: {}", faults.join("; ")));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_selector_is_a_list_of_labels() {
        assert!(parse("").unwrap().is_empty());
        let labels = parse("env=test, zone = a").unwrap();
        assert_eq!(labels["env"], "test");
        assert_eq!(labels["zone"], "a");
        assert_eq!(parse("env in (a)").unwrap_err(), "invalid selector: [env in (a)]");
        assert!(parse("a=b c").is_err());
    }
}
