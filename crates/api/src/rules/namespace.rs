//! Namespaces: they live until their finalizers say that nothing is left in them.
use super::{Kind, Part, Strategy, prepare};
use crate::field::ErrorList;
use crate::names;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

impl Kind for Namespace {
    const STRATEGY: Strategy = Strategy { counts_generations: false, ..Strategy::USUAL };
    const NAME: super::NameRule = names::name_is_dns_label;

    fn prepare_create(namespace: &mut Value) {
        namespace["status"] = json!({ "phase": "Active" });
        let finalizers = &mut namespace["spec"]["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Value::Array(all) = finalizers
            && !all.iter().any(|finalizer| finalizer == "kubernetes")
        {
            all.push("kubernetes".into());
        }
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        match part {
            Part::Sub("finalize") => prepare::put(new, "status", old.get("status")),
            Part::Main => {
                prepare::put(new, "spec", old.get("spec"));
                prepare::put(new, "status", old.get("status"));
            }
            Part::Sub(_) => prepare::update(new, old, part, &Self::STRATEGY),
        }
    }

    fn validate(&self) -> ErrorList {
        ErrorList::new()
    }
}
