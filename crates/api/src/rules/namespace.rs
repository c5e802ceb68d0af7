//! Namespace.
use super::table::{AGE, Column, NAME, text};
use super::{Anew, Field, Kind, NameRule, Part, Strategy, metadata, prepare};
use crate::field::Path;
use crate::names;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

/// The finalizer of the server itself: contents are removed before the namespace is.
const KUBERNETES: &str = "kubernetes";

impl Kind for Namespace {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const NAME: NameRule = names::name_is_dns_label;
    const COLUMNS: &[Column] = &[NAME, text("Status", "status.phase"), AGE];

    fn prepare_create(namespace: &mut Value) {
        namespace["status"] = json!({ "phase": "Active" });
        if !namespace["spec"].is_object() {
            namespace["spec"] = json!({});
        }
        let finalizers = &mut namespace["spec"]["finalizers"];
        match finalizers {
            Value::Array(list) if list.iter().any(|finalizer| finalizer == KUBERNETES) => {}
            Value::Array(list) => list.push(KUBERNETES.into()),
            _ => *finalizers = json!([KUBERNETES]),
        }
    }

    /// Finalizers are removed through a subresource of their own.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        let keep = |new: &mut Value, field| prepare::put(new, field, old.get(field));
        match part {
            Part::Main => {
                keep(new, "spec");
                keep(new, "status");
            }
            Part::Sub("finalize") => keep(new, "status"),
            Part::Sub(_) => keep(new, "spec"),
        }
        prepare::put(&mut new["metadata"], "generation", old["metadata"].get("generation"));
    }

    fn validate(namespace: &Field<'_, '_>) {
        let finalizers = namespace.at("spec.finalizers");
        for finalizer in finalizers.texts() {
            for fault in names::qualified_name(finalizer) {
                finalizers.invalid_as(finalizer, fault);
            }
            finalizers.extend(metadata::unqualified_finalizer(finalizer, finalizers.path()));
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => {}
            Part::Sub("finalize") => {
                for finalizer in new.at("spec.finalizers").items() {
                    finalizer.faults(names::qualified_name(finalizer.text()));
                    let odd = metadata::unqualified_finalizer(finalizer.text(), finalizer.path());
                    finalizer.extend(odd);
                }
            }
            Part::Sub(_) => {
                let phase = new.at("status.phase");
                let deleted = new.at("metadata.deletionTimestamp").exists();
                let (wanted, when) =
                    if deleted { ("Terminating", "not empty") } else { ("Active", "empty") };
                if phase.text() != wanted {
                    phase.on_path(Path::new("status.Phase")).invalid(format!(
                        "may only be '{wanted}' if `deletionTimestamp` is {when}"
                    ));
                }
            }
        }
    }
}
