//! PriorityClass.
use super::table::{AGE, Column, NAME, boolean, integer, text};
use super::{Field, Kind, Part, Strategy, prepare};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

/// Above this are the classes of the system itself.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

impl Kind for PriorityClass {
    const STRATEGY: Strategy = Strategy::USUAL.without_status();
    const COLUMNS: &[Column] = &[
        NAME,
        integer("Value", "value"),
        boolean("Global-Default", "globalDefault"),
        AGE,
        text("PreemptionPolicy", "preemptionPolicy"),
    ];

    /// Its generation is always the first.
    fn prepare_update(new: &mut Value, old: &Value, _: Part<'_>) {
        prepare::put(&mut new["metadata"], "generation", old["metadata"].get("generation"));
    }

    fn validate(class: &Field<'_, '_>) {
        let (name, value) = (class.at("metadata.name").text(), class.at("value"));
        let system =
            [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
        if name.starts_with("system-") {
            let known = system.iter().any(|(known, priority)| {
                name == *known && value.int() == *priority && !class.at("globalDefault").flag()
            });
            if !known {
                class.at("metadata.name").forbidden(format!("priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"));
            }
        } else if value.int() > HIGHEST_USER_PRIORITY {
            value.forbidden(format!(
                "maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            ));
        }
        let policy = class.at("preemptionPolicy");
        if policy.exists() {
            policy.require_one_of(&["PreemptLowerPriority", "Never"]);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        if new.at("value").int() != old.at("value").int() {
            new.at("value").forbidden("may not be changed in an update.");
        }
        new.at("preemptionPolicy").immutable(&old.at("preemptionPolicy"));
    }
}
