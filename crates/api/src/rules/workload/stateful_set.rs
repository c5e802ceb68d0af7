//! StatefulSet.
use super::super::table::{AGE, Column, NAME, with};
use super::super::{Field, Kind, NameRule, Part, claim, pod, prepare, shown};
use super::{
    CONTAINERS, IMAGES, at_most, at_most_everything, collisions, count_of, count_or_percent,
    counters, restarts, selector_and_template,
};
use crate::field::BadValue;
use crate::names;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

impl Kind for StatefulSet {
    const NAME: NameRule = names::name_is_dns_label;
    const COLUMNS: &[Column] = &[
        NAME,
        with("Ready", |set, _| {
            format!("{}/{}", set.at("status.readyReplicas").int(), set.at("spec.replicas").int())
                .into()
        }),
        AGE,
        CONTAINERS,
        IMAGES,
    ];

    fn validate(set: &Field<'_, '_>) {
        whole(set, true);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            // What was asked of the templates once is not asked again: they stay as they are.
            whole(new, false);
            for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"]
            {
                new.at("spec").at(field).immutable(&old.at("spec").at(field));
            }
            return;
        }
        let status = new.at("status");
        counters(
            &status,
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
        );
        at_most(
            &status,
            &[
                ("readyReplicas", "status.replicas"),
                ("currentReplicas", "status.replicas"),
                ("updatedReplicas", "status.replicas"),
                ("availableReplicas", "status.replicas"),
                ("availableReplicas", "status.readyReplicas"),
            ],
        );
        collisions(new, old);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = pod::template_warnings(&new.at("spec.template"));
        for template in new.at("spec.volumeClaimTemplates").items() {
            // An update spells the path otherwise.
            let path = template.path();
            let place = if old.is_some() { format!("{path}.Spec") } else { path.to_string() };
            warnings.extend(claim::spec_warnings(&template.at("spec"), &place));
        }
        let limit = new.at("spec.revisionHistoryLimit");
        if limit.int() < 0 {
            warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
        }
        warnings
    }
}

/// The template as its pods will be: with a volume for each claim, and names that the set gives.
fn with_claims(spec: &Field<'_, '_>, selector: Option<&crate::selector::label::Selector>) {
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    if let Some(selector) = selector
        && !selector.matches(&labels.labels())
    {
        let shown = BadValue::json(labels.value());
        labels.invalid_as(shown, "`selector` does not match template `labels`");
    }
    let mut made = template.value().clone();
    if made["spec"].is_object() {
        for field in ["subdomain", "hostname"] {
            prepare::put(&mut made["spec"], field, None);
        }
        let mut claims: Vec<&Value> = Vec::new();
        for claim in spec.at("volumeClaimTemplates").list() {
            let name = &claim["metadata"]["name"];
            if !claims.contains(&name) {
                claims.push(name);
            }
        }
        let volume =
            |name: &&Value| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
        let own = made["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        let others = own.into_iter().filter(|volume| !claims.contains(&&volume["name"]));
        let volumes: Vec<Value> = claims.iter().map(volume).chain(others).collect();
        if !volumes.is_empty() {
            made["spec"]["volumes"] = volumes.into();
        }
    }
    template.with_value(&made, pod::template);
}

fn whole(set: &Field<'_, '_>, is_new: bool) {
    let spec = set.at("spec");
    let management = spec.at("podManagementPolicy");
    if management.require() && !matches!(management.text(), "OrderedReady" | "Parallel") {
        management.invalid("must be 'OrderedReady' or 'Parallel'");
    }
    strategy(&spec.at("updateStrategy"));
    for field in ["whenDeleted", "whenScaled"] {
        let retention = spec.at("persistentVolumeClaimRetentionPolicy");
        if retention.exists() {
            retention.at(field).one_of(&["Retain", "Delete"]);
        }
    }
    if is_new {
        for template in spec.at("volumeClaimTemplates").items() {
            claim::validate_spec(&template.at("spec"));
        }
    }
    spec.at("replicas").nonnegative();
    spec.at("minReadySeconds").nonnegative();
    let start = spec.at("ordinals.start");
    start.on_path(spec.path().child("ordinals.start")).nonnegative();
    if is_new {
        spec.at("serviceName").named_if_given(names::dns1123_label);
    }
    let selector = selector_and_template(&spec, "statefulset");
    if selector.is_some() {
        with_claims(&spec, selector.as_ref());
    }
    restarts(&spec.at("template"), "StatefulSet");
}

fn strategy(strategy: &Field<'_, '_>) {
    let update = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "" => strategy.required(""),
        "OnDelete" if update.exists() => {
            let shown = update.internal(&[
                ("Partition", "partition", "0"),
                ("MaxUnavailable", "maxUnavailable", "null"),
            ]);
            update.invalid_as(shown, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            update.at("partition").nonnegative();
            let unavailable = update.at("maxUnavailable");
            if unavailable.exists() {
                count_or_percent(&unavailable);
                if count_of(&unavailable) == 0 {
                    unavailable.invalid("cannot be 0");
                }
                at_most_everything(&unavailable);
            }
        }
        _ => {
            let shown = shown::structure(strategy.value(), shown::SET_STRATEGY);
            strategy.invalid_as(shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}
