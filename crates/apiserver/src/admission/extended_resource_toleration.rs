//! A pod that asks for a special resource tolerates the nodes that are kept for it.
use super::resource_list::is_extended;
use super::{Attributes, items, push};
use api::status::Status;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.writes() {
        return Ok(());
    }
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    let containers = ["containers", "initContainers"].map(|list| items(&pod["spec"][list]));
    let requests = containers.iter().copied().flatten().map(|c| &c["resources"]["requests"]);
    let names = requests.filter_map(Value::as_object).flat_map(|requests| requests.keys());
    let wanted: BTreeSet<String> = names.filter(|name| is_extended(name)).cloned().collect();
    for key in wanted {
        tolerate(pod, json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" }));
    }
    Ok(())
}

/// Two tolerations are of the same taint if all but their time is the same.
fn tolerate(pod: &mut Value, wanted: Value) {
    let same = |toleration: &Value| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|field| toleration[field] == wanted[field])
    };
    let tolerations = &mut pod["spec"]["tolerations"];
    let mut found = false;
    for known in tolerations.as_array_mut().into_iter().flatten().filter(|known| same(known)) {
        *known = wanted.clone();
        found = true;
    }
    if !found {
        push(tolerations, wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_toleration_for_a_taint() {
        let wanted = json!({"key": "a.com/b", "operator": "Exists", "effect": "NoSchedule"});
        let mut pod = json!({"spec": {}});
        tolerate(&mut pod, wanted.clone());
        tolerate(&mut pod, wanted.clone());
        assert_eq!(pod["spec"]["tolerations"], json!([wanted]));
    }
}
