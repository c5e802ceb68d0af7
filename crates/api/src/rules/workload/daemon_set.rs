//! DaemonSet.
use super::super::table::{AGE, Column, NAME, integer, labels, with};
use super::super::{Field, Kind, Part, pod, prepare, shown};
use super::{
    CONTAINERS, IMAGES, SELECTOR, at_most_everything, collisions, count_of, count_or_percent,
    counters, selector_and_template, template,
};
use crate::field::Error;
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;

/// Counts the changes of the template; once a field, now an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl Kind for DaemonSet {
    const COLUMNS: &[Column] = &[
        NAME,
        integer("Desired", "status.desiredNumberScheduled"),
        integer("Current", "status.currentNumberScheduled"),
        integer("Ready", "status.numberReady"),
        integer("Up-to-date", "status.updatedNumberScheduled"),
        integer("Available", "status.numberAvailable"),
        with("Node Selector", |set, _| labels(&set.at("spec.template.spec.nodeSelector"))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ];

    fn prepare_create(set: &mut Value) {
        prepare::create(set, &Self::STRATEGY);
        set_template_generation(set, template_generation(set).max(1));
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        if part == Part::Main {
            let changed = new["spec"]["template"] != old["spec"]["template"];
            set_template_generation(new, template_generation(old) + i64::from(changed));
        }
    }

    fn validate(set: &Field<'_, '_>) {
        let spec = set.at("spec");
        let selector = selector_and_template(&spec, "daemonset");
        template(&spec, selector.as_ref(), "DaemonSet");
        spec.at("minReadySeconds").nonnegative();
        strategy(&spec.at("updateStrategy"));
        spec.at("revisionHistoryLimit").nonnegative();
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            new.at("spec.selector").immutable(&old.at("spec.selector"));
            return Self::validate(new);
        }
        counters(
            &new.at("status"),
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
        );
        collisions(new, old);
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        pod::template_warnings(&new.at("spec.template"))
    }
}

fn template_generation(set: &Value) -> i64 {
    let text = set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(set: &mut Value, generation: i64) {
    if !set["metadata"]["annotations"].is_object() {
        set["metadata"]["annotations"] = serde_json::json!({});
    }
    set["metadata"]["annotations"][TEMPLATE_GENERATION] = generation.to_string().into();
}

fn strategy(strategy: &Field<'_, '_>) {
    let update = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !update.exists() => update.required(""),
        "RollingUpdate" => {
            let (unavailable, surge) = (update.at("maxUnavailable"), update.at("maxSurge"));
            for field in [&unavailable, &surge] {
                count_or_percent(field);
                at_most_everything(field);
            }
            match (count_of(&unavailable) != 0, count_of(&surge) != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (false, false) => unavailable.required("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let shown = shown::structure(strategy.value(), shown::DEPLOYMENT_STRATEGY);
            strategy.push(Error::not_supported(
                strategy.path(),
                shown,
                ["RollingUpdate", "OnDelete"],
            ));
        }
    }
}
