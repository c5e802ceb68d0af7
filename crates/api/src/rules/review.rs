//! Questions: who am I, may I, is this token good; and a storage migration, which is an order.
use super::table::{Column, text, with};
use super::{Anew, Field, Kind, Metadata, Part, Strategy};
use crate::field::BadValue;
use crate::names;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use serde_json::Value;

const QUESTION: Strategy = Strategy::USUAL.without_status().without_generation();

macro_rules! questions {
    ($($kind:ty: $validate:expr;)*) => {
        $(impl Kind for $kind {
            const STRATEGY: Strategy = QUESTION;
            const METADATA: Metadata = Metadata::Unasked;

            fn validate(review: &Field<'_, '_>) {
                let validate: fn(&Field<'_, '_>) = $validate;
                validate(review);
            }
        })*
    };
}

questions! {
    SelfSubjectReview: |_| ();
    SelfSubjectRulesReview: |_| ();
    TokenReview: |_| ();
    SelfSubjectAccessReview: |review| {
        either(&review.at("spec"));
        attributes(&review.at("spec"));
        nothing_but(&review.at("metadata"), &[], "must be empty");
    };
    SubjectAccessReview: |review| {
        either(&review.at("spec"));
        somebody(&review.at("spec"));
        attributes(&review.at("spec"));
        nothing_but(&review.at("metadata"), &[], "must be empty");
    };
    LocalSubjectAccessReview: |review| {
        let spec = review.at("spec");
        either(&spec);
        somebody(&spec);
        attributes(&spec);
        nothing_but(&review.at("metadata"), &["namespace"], "must be empty except for namespace");
        let namespace = spec.at("resourceAttributes.namespace");
        if spec.at("resourceAttributes").exists() && namespace.text() != review.at("metadata.namespace").text() {
            namespace.invalid("must match metadata.namespace");
        }
        let other = spec.at("nonResourceAttributes");
        if other.exists() {
            other.invalid_as(other.internal(PATH_AND_VERB), "disallowed on this kind of request");
        }
    };
}

const PATH_AND_VERB: &[(&str, &str, &str)] = &[("Path", "path", "\"\""), ("Verb", "verb", "\"\"")];

fn somebody(spec: &Field<'_, '_>) {
    if spec.at("user").is_empty() && spec.at("groups").is_empty() {
        spec.at("user").invalid_as("", "at least one of user or group must be specified");
    }
}

/// A question has no identity.
fn nothing_but(metadata: &Field<'_, '_>, allowed: &[&str], detail: &'static str) {
    let empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    let odd = |(name, value): (&String, &Value)| {
        name != "managedFields" && !allowed.contains(&name.as_str()) && !empty(value)
    };
    if metadata.map().is_some_and(|fields| fields.iter().any(odd)) {
        metadata.invalid_as(super::metadata::shown(metadata.value()), detail);
    }
}

fn either(spec: &Field<'_, '_>) {
    let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if resource.exists() == other.exists() {
        let shown = if other.exists() { other.internal(PATH_AND_VERB) } else { BadValue::null() };
        spec.invalid_as(
            shown,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
    }
}

fn attributes(spec: &Field<'_, '_>) {
    let resource = spec.at("resourceAttributes");
    for field in ["fieldSelector", "labelSelector"] {
        let selector = resource.at(field);
        if !selector.exists() {
            continue;
        }
        let (raw, requirements) = (selector.at("rawSelector"), selector.at("requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            raw.invalid("may not specified at the same time as requirements");
        }
        if raw.is_empty() && requirements.is_empty() {
            requirements.required(format!(
                "when {} is specified, requirements or rawSelector is required",
                selector.path()
            ));
        }
        requirements.items().for_each(|each| requirement(&each, field == "labelSelector"));
    }
}

/// Operators of a later version are let through: they make the question a broader one.
fn requirement(requirement: &Field<'_, '_>, of_labels: bool) {
    let (key, values) = (requirement.at("key"), requirement.at("values"));
    if !of_labels && key.is_empty() {
        key.required("must be specified");
    }
    match requirement.at("operator").text() {
        "In" | "NotIn" => {
            values.require_for("must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        _ => {}
    }
    if of_labels {
        key.faults(names::qualified_name(key.text()));
        values.items().for_each(|value| {
            value.faults(names::label_value(value.text()));
        });
    }
}

impl Kind for StorageVersionMigration {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const COLUMNS: &[Column] = &[
        text("Name", "metadata.name"),
        with("Resource", |migration, _| {
            let resource = migration.at("spec.resource");
            match resource.at("group").text() {
                "" => resource.at("resource").text().into(),
                group => format!("{}.{group}", resource.at("resource").text()).into(),
            }
        }),
        with("Status", |migration, _| {
            let conditions = migration.at("status.conditions");
            let is = |kind: &str| {
                conditions.items().any(|condition| {
                    condition.at("type").text() == kind && condition.at("status").text() == "True"
                })
            };
            match () {
                () if is("Succeeded") => "Succeeded",
                () if is("Failed") => "Failed",
                () if is("Running") => "Running",
                () => "Unknown",
            }
            .into()
        }),
    ];

    fn validate(migration: &Field<'_, '_>) {
        let (resource, group) =
            (migration.at("spec.resource.resource"), migration.at("spec.resource.group"));
        if resource.require_for("resource is required to be set") {
            let faults = names::dns1035_label(resource.text());
            if !faults.is_empty() {
                resource.invalid(faults.join(","));
            }
        }
        let faults = names::dns1123_subdomain(group.text());
        if !group.is_empty() && !faults.is_empty() {
            group.invalid(faults.join(","));
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
            let (now, then) = (new.at("spec"), old.at("spec"));
            if now.value() != then.value() {
                let shown = now.internal(&[("Resource", "resource", "{}")]);
                now.invalid_as(shown, super::metadata::IMMUTABLE);
            }
            return;
        }
        let (now, then) = (new.at("status.resourceVersion"), old.at("status.resourceVersion"));
        let digits = now.text().bytes().all(|b| b.is_ascii_digit());
        if !now.is_empty() && (!digits || now.text().starts_with('0')) {
            now.invalid(format!("resource version is not well formed: {}", now.text()));
        }
        super::conditions(&new.at("status.conditions"));
        if !then.is_empty() && now.text() != then.text() {
            now.invalid(super::metadata::IMMUTABLE);
        }
    }
}
