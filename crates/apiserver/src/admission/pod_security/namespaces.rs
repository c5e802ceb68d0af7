//! A namespace that is made or grows stricter: its labels must be right, and whoever writes them
//! hears which of its pods would not be let in again.
use super::checks;
use super::policy::{Level, LevelVersion, Policy, label};
use crate::admission::{Attributes, Operation, items, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// So many pods are looked at, and for so long.
const MAX_PODS: usize = 3000;
const MAX_TIME: Duration = Duration::from_secs(1);

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let settings = &attributes.api.admission().settings.pod_security;
    let name = text(&attributes.new_object()["metadata"]["name"]).to_owned();
    let labels = attributes.new_object()["metadata"]["labels"].clone();
    let (policy, errors) = settings.defaults.of_labels(&labels);
    let exempt = settings.namespaces.contains(&name);
    let ignored = exempt.then(|| exempt_warning(&name, &policy, &settings.defaults, &labels));
    let invalid = || {
        let kind = attributes.call.resource.group_kind();
        Err(Status::invalid(kind, &attributes.name(), &errors))
    };
    if attributes.operation == Operation::Create {
        if !errors.is_empty() {
            return invalid();
        }
        if let Some(Some(warning)) = ignored {
            attributes.warn(warning);
        }
        return Ok(());
    }
    let Some(old) = attributes.old else { return Ok(()) };
    let (before, old_errors) = settings.defaults.of_labels(&old["metadata"]["labels"]);
    let shown =
        |errors: &[api::field::Error]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    if !errors.is_empty() && shown(&errors) != shown(&old_errors) {
        return invalid();
    }
    let (new, old) = (policy.enforce, before.enforce);
    let not_stricter = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || not_stricter {
        return Ok(());
    }
    match ignored {
        Some(warning) => warning.into_iter().for_each(|warning| attributes.warn(warning)),
        None => {
            let pods = find_kind("v1", "Pod").expect("pods are in the registry");
            let warnings = match objects::list(attributes.api, pods, &name).await {
                Ok(pods) => {
                    let exempt = |pod: &Value| {
                        let class = text(&pod["spec"]["runtimeClassName"]);
                        settings.runtime_classes.iter().any(|exempt| exempt == class)
                    };
                    existing(&name, new, pods.into_iter().filter(|pod| !exempt(pod)).collect())
                }
                Err(_) => {
                    vec!["failed to list pods while checking new PodSecurity enforce level".into()]
                }
            };
            warnings.into_iter().for_each(|warning| attributes.warn(warning));
        }
    }
    Ok(())
}

/// What to say about the pods there are: each kind of violation once, with the first pod's name.
fn existing(namespace: &str, enforce: LevelVersion, pods: Vec<Value>) -> Vec<String> {
    let begun = Instant::now();
    let pods = one_of_each_first(pods);
    let (total, mut checked) = (pods.len(), pods.len().min(MAX_PODS));
    let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for (i, pod) in pods.iter().take(MAX_PODS).enumerate() {
        let violations = checks::evaluate(enforce, pod);
        if !violations.is_empty() {
            let name = text(&pod["metadata"]["name"]);
            let entry = found.entry(violations.reasons()).or_insert((name, 0));
            *entry = (entry.0.min(name), entry.1 + 1);
        }
        if begun.elapsed() > MAX_TIME {
            checked = i + 1;
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!("new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"));
    }
    if !found.is_empty() {
        warnings.push(format!("existing pods in namespace {namespace:?} violate the new PodSecurity enforce level {:?}", enforce.to_string()));
    }
    let mut of_pods: Vec<String> = found
        .iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            more => format!("{name} (and {} other pods): {reasons}", more - 1),
        })
        .collect();
    of_pods.sort();
    warnings.extend(of_pods);
    warnings
}

/// Pods of one controller are alike: the first of each comes before all others.
fn one_of_each_first(pods: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    let (mut first, more): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(|pod| {
        let mut owners = items(&pod["metadata"]["ownerReferences"]).iter();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.is_none_or(|controller| seen.insert(controller["uid"].to_string()))
    });
    first.extend(more);
    first
}

/// Labels of an exempt namespace have no effect; that is worth a word.
fn exempt_warning(
    name: &str,
    policy: &Policy,
    defaults: &Policy,
    labels: &Value,
) -> Option<String> {
    let open = policy.modes().iter().all(|(_, mode)| mode.level == Level::Privileged);
    if open || policy.is_equivalent(defaults) {
        return None;
    }
    let labelled = |word: &str| {
        let key = label(word);
        labels.get(&key).is_some() || labels.get(format!("{key}-version")).is_some()
    };
    let modes = policy.modes();
    let shown: Vec<String> = modes
        .iter()
        .filter(|(word, mode)| mode.level != Level::Privileged && labelled(word))
        .map(|(word, mode)| format!("{word}={mode}"))
        .collect();
    let shown = shown.join(", ");
    Some(format!(
        "namespace {name:?} is exempt from Pod Security, and the policy ({shown}) will be ignored"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::pod_security::policy::Version;
    use serde_json::json;

    fn pod(name: &str, owner: &str, network: bool) -> Value {
        let owners = match owner {
            "" => json!([]),
            uid => json!([{"controller": true, "uid": uid}]),
        };
        json!({"metadata": {"name": name, "ownerReferences": owners},
            "spec": {"hostNetwork": network, "containers": []}})
    }

    #[test]
    fn each_violation_is_told_once() {
        let enforce = LevelVersion { level: Level::Baseline, version: Version::Latest };
        let pods = vec![
            pod("c", "x", true),
            pod("a", "x", true),
            pod("b", "", true),
            pod("fine", "", false),
        ];
        assert_eq!(
            existing("ns", enforce, pods),
            [
                "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 2 other pods): host namespaces",
            ]
        );
    }

    #[test]
    fn an_exempt_namespace_hears_that_its_labels_do_nothing() {
        let labels = json!({(label("enforce")): "baseline"});
        let (policy, _) = Policy::default().of_labels(&labels);
        assert_eq!(
            exempt_warning("ns", &policy, &Policy::default(), &labels).unwrap(),
            "namespace \"ns\" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored"
        );
        assert_eq!(exempt_warning("ns", &Policy::default(), &Policy::default(), &labels), None);
    }
}
