//! ControllerRevision: what a set's template once was.
use super::super::table::{AGE, Column, NAME, integer, with};
use super::super::{Anew, Field, Kind, Part, Strategy};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::Value;

impl Kind for ControllerRevision {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Controller", |revision, _| {
            let owners = revision.at("metadata.ownerReferences");
            let Some(owner) = owners.items().find(|owner| owner.at("controller").flag()) else {
                return "<none>".into();
            };
            let group =
                owner.at("apiVersion").text().split_once('/').map_or("", |(group, _)| group);
            let kind = owner.at("kind").text().to_lowercase();
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", owner.at("name").text()).into()
        }),
        integer("Revision", "revision").of("string"),
        AGE,
    ];

    fn validate(revision: &Field<'_, '_>) {
        revision.at("revision").nonnegative();
        match revision.at("data").value() {
            Value::Null => revision.at("data").required("data is mandatory"),
            Value::Object(_) => {}
            _ => revision.at("data").required("data must be a valid JSON object"),
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        new.at("revision").nonnegative();
        new.at("data").immutable(&old.at("data"));
    }
}
