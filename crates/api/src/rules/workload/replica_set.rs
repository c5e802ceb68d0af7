//! ReplicaSet and ReplicationController.
use super::super::table::{AGE, Column, NAME, integer, labels, with};
use super::super::{Field, Kind, Metadata, NameRule, Part, metadata, pod};
use super::{CONTAINERS, IMAGES, SELECTOR, at_most, counters, selector_and_template, template_of};
use crate::field::BadValue;
use crate::selector::label::Selector;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;

const DESIRED: Column = integer("Desired", "spec.replicas");
const CURRENT: Column = integer("Current", "status.replicas");
const READY: Column = integer("Ready", "status.readyReplicas");

impl Kind for ReplicaSet {
    const COLUMNS: &[Column] = &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR];

    fn validate(set: &Field<'_, '_>) {
        let spec = set.at("spec");
        spec.at("replicas").nonnegative();
        spec.at("minReadySeconds").nonnegative();
        let selector = selector_and_template(&spec, "deployment");
        template_of(&spec, selector.as_ref(), "ReplicaSet");
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
            new.at("spec.selector").immutable(&old.at("spec.selector"));
        } else {
            validate_status(&new.at("status"), &["terminatingReplicas"]);
        }
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        pod::template_warnings(&new.at("spec.template"))
    }
}

/// Of a set or a controller: both count alike, but for what only a set has.
fn validate_status(status: &Field<'_, '_>, more: &[&'static str]) {
    const COUNTERS: &[&str] = &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ];
    counters(status, COUNTERS);
    counters(status, more);
    at_most(
        status,
        &[
            ("fullyLabeledReplicas", "status.replicas"),
            ("readyReplicas", "status.replicas"),
            ("availableReplicas", "status.replicas"),
            ("availableReplicas", "readyReplicas"),
        ],
    );
}

impl Kind for ReplicationController {
    const METADATA: Metadata = Metadata::AnyPrefix;
    const NAME: NameRule = metadata::long_name;
    const COLUMNS: &[Column] = &[
        NAME,
        DESIRED,
        CURRENT,
        READY,
        AGE,
        CONTAINERS,
        IMAGES,
        with("Selector", |controller, _| labels(&controller.at("spec.selector"))).wide(),
    ];

    fn validate(controller: &Field<'_, '_>) {
        let spec = controller.at("spec");
        let selector = spec.at("selector");
        if selector.is_empty() {
            selector.required("");
        }
        spec.at("replicas").declared().nonnegative();
        spec.at("minReadySeconds").declared().nonnegative();
        let template = spec.at("template");
        if !template.exists() {
            return template.required("");
        }
        let wanted = selector.labels();
        let labels = template.at("metadata.labels");
        if !wanted.is_empty() && !Selector::from_set(&wanted).matches(&labels.labels()) {
            let shown = BadValue::json(labels.value());
            labels.invalid_as(shown, "`selector` does not match template `labels`");
        }
        pod::template(&template);
        super::restarts(&template, "ReplicationController");
        let replicas = spec.at("replicas");
        if !replicas.exists() {
            replicas.declared().required("");
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
        } else {
            validate_status(&new.at("status"), &[]);
        }
    }

    /// Upstream warns of the old template when there is a new one.
    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let generation = |set: &Field<'_, '_>| set.at("metadata.generation").int();
        let template = old.unwrap_or(new).at("spec.template");
        let same = old.is_some_and(|old| generation(old) == generation(new));
        match template.exists() && !same {
            true => pod::template_warnings(&template),
            false => Vec::new(),
        }
    }
}
