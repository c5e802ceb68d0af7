//! RuntimeClass.
use super::table::{AGE, Column, NAME, text};
use super::{Anew, Field, Kind, Metadata, Part, Strategy, pod, scheduling};
use crate::field::Error;
use crate::names;
use k8s_openapi::api::node::v1::RuntimeClass;

const TOLERATION: &[(&str, &str, &str)] = &[
    ("Key", "key", "\"\""),
    ("Operator", "operator", "\"\""),
    ("Value", "value", "\"\""),
    ("Effect", "effect", "\"\""),
    ("TolerationSeconds", "tolerationSeconds", "null"),
];

impl Kind for RuntimeClass {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().conditional().creates_on_update();
    const COLUMNS: &[Column] = &[NAME, text("Handler", "handler"), AGE];

    fn validate(class: &Field<'_, '_>) {
        let handler = class.at("handler").declared();
        if handler.require() {
            // Declared, the rule counts bytes.
            let faults = names::dns1123_label(handler.text()).into_iter();
            let faults = faults.map(|fault| fault.replace("63 characters", "63 bytes"));
            faults.for_each(|fault| handler.invalid(fault));
        }
        rest(class);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        // What is declared about a handler that may not change is not asked, so others speak.
        let handler = new.at("handler");
        if !handler.is_empty() {
            handler.faults(names::dns1123_label(handler.text()));
        }
        rest(new);
        handler.declared_immutable(&old.at("handler"));
        handler.declared().require();
    }
}

/// Beside the handler.
fn rest(class: &Field<'_, '_>) {
    let overhead = class.at("overhead");
    pod::resources::overhead(&overhead.at("podFixed").on_path(*overhead.path()));
    let scheduling = class.at("scheduling");
    if scheduling.exists() {
        scheduling.at("nodeSelector").label_map();
        let tolerations = scheduling.at("tolerations");
        scheduling::tolerations(&tolerations);
        let list = tolerations.list();
        for (i, toleration) in tolerations.items().enumerate() {
            if list[..i].contains(&list[i]) {
                toleration
                    .push(Error::duplicate(toleration.path(), toleration.internal(TOLERATION)));
            }
        }
    }
}
