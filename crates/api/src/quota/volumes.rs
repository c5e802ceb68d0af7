//! What a claim for a volume uses: its place and its size, in all and of its class.
use super::list::ResourceList;
use super::scope::Selector;
use super::{count, text};
use crate::quantity::Quantity;
use serde_json::Value;

const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const COUNT: &str = "count/persistentvolumeclaims";
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

pub fn is_mine(name: &str) -> bool {
    let of_class = |resource: &str| name.ends_with(&format!("{OF_CLASS}{resource}"));
    [CLAIMS, STORAGE, COUNT].contains(&name) || of_class(CLAIMS) || of_class(STORAGE)
}

pub fn is_in_scope(selector: &Selector, claim: &Value) -> Result<bool, String> {
    let names = [
        text(&claim["spec"]["volumeAttributesClassName"]),
        text(&claim["status"]["currentVolumeAttributesClassName"]),
        text(&claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"]),
    ];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    match selector.scope_name.as_str() {
        "VolumeAttributesClass" => selector.takes(&names),
        _ => Ok(false),
    }
}

pub fn usage(claim: &Value) -> ResourceList {
    let annotated =
        claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = annotated.unwrap_or_else(|| text(&claim["spec"]["storageClassName"]));
    let mut usage = ResourceList::from([(CLAIMS.into(), count(1)), (COUNT.into(), count(1))]);
    let size = size(claim);
    if let Some(size) = &size {
        usage.insert(STORAGE.into(), size.clone());
    }
    if !class.is_empty() {
        usage.insert(format!("{class}{OF_CLASS}{CLAIMS}"), count(1));
        if let Some(size) = size {
            usage.insert(format!("{class}{OF_CLASS}{STORAGE}"), size);
        }
    }
    usage
}

/// What is asked for, or what a growth that failed has taken already; in whole bytes.
fn size(claim: &Value) -> Option<Quantity> {
    let amount = |value: &Value| -> Option<Quantity> {
        let mut amount: Quantity = value.as_str()?.parse().ok()?;
        amount.round_up(0);
        Some(amount)
    };
    let asked = amount(&claim["spec"]["resources"]["requests"]["storage"])?;
    let taken = amount(&claim["status"]["allocatedResources"]["storage"]);
    Some(taken.filter(|taken| *taken > asked).unwrap_or(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::list::printed;
    use serde_json::json;

    #[test]
    fn claims_are_charged_to_their_class_too() {
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"allocatedResources": {"storage": "2Gi"}}});
        assert_eq!(
            printed(&usage(&claim)),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=2Gi,persistentvolumeclaims=1,requests.storage=2Gi"
        );
        assert!(usage(&claim).keys().all(|name| is_mine(name)));
        assert!(!is_mine("pods"));
    }
}
