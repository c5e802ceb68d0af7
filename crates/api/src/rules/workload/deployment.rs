//! Deployment.
use super::super::table::{AGE, Column, NAME, integer, with};
use super::super::{Field, Kind, Part, Strategy, pod, prepare, shown};
use super::{
    CONTAINERS, IMAGES, at_most, at_most_everything, collisions, count_of, count_or_percent,
    counters, selector_and_template, template_of,
};
use crate::field::Error;
use crate::selector::label::Selector;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

impl Kind for Deployment {
    const STRATEGY: Strategy = Strategy { status_resets: &["labels"], ..Strategy::USUAL };
    const COLUMNS: &[Column] = &[
        NAME,
        with("Ready", |deployment, _| {
            let (ready, wanted) =
                (deployment.at("status.readyReplicas"), deployment.at("spec.replicas"));
            format!("{}/{}", ready.int(), wanted.int()).into()
        }),
        integer("Up-to-date", "status.updatedReplicas").of("string"),
        integer("Available", "status.availableReplicas").of("string"),
        AGE,
        CONTAINERS,
        IMAGES,
        with("Selector", |deployment, _| {
            let selector =
                Selector::from_label_selector(deployment.at("spec.selector").read().as_ref());
            selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string()).into()
        })
        .wide(),
    ];

    /// Annotations count as well: they say what a rollout is about.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        let (now, then) = (&new["metadata"], &old["metadata"]);
        if part == Part::Main
            && now.get("annotations") != then.get("annotations")
            && now.get("generation") == then.get("generation")
        {
            let generation = then["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn validate(deployment: &Field<'_, '_>) {
        let spec = deployment.at("spec");
        spec.at("replicas").nonnegative();
        let selector = selector_and_template(&spec, "deployment");
        template_of(&spec, selector.as_ref(), "ReplicaSet");
        strategy(&spec.at("strategy"));
        spec.at("minReadySeconds").nonnegative();
        spec.at("revisionHistoryLimit").nonnegative();
        let deadline = spec.at("progressDeadlineSeconds");
        if deadline.exists() {
            deadline.nonnegative();
            if deadline.int() <= spec.at("minReadySeconds").int() {
                deadline.invalid("must be greater than minReadySeconds");
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
            new.at("spec.selector").immutable(&old.at("spec.selector"));
            return;
        }
        let status = new.at("status");
        counters(
            &status,
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
        );
        at_most(
            &status,
            &[
                ("updatedReplicas", "status.replicas"),
                ("readyReplicas", "status.replicas"),
                ("availableReplicas", "status.replicas"),
                ("availableReplicas", "readyReplicas"),
            ],
        );
        collisions(new, old);
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        pod::template_warnings(&new.at("spec.template"))
    }
}

fn strategy(strategy: &Field<'_, '_>) {
    let update = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if update.exists() => {
            update.forbidden("may not be specified when strategy `type` is 'Recreate'")
        }
        "Recreate" => {}
        "RollingUpdate" if !update.exists() => {
            update.required("this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (update.at("maxUnavailable"), update.at("maxSurge"));
            count_or_percent(&unavailable);
            count_or_percent(&surge);
            if count_of(&unavailable) == 0 && count_of(&surge) == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            at_most_everything(&unavailable);
        }
        _ => {
            let shown = shown::structure(strategy.value(), shown::DEPLOYMENT_STRATEGY);
            let error = Error::not_supported(strategy.path(), shown, ["Recreate", "RollingUpdate"]);
            strategy.push(error);
        }
    }
}
