//! Questions: who am I, may I, is this token good; and a storage migration, which is an order.
use super::table::{Column, text, with};
use super::{Field, Kind, Part, Strategy};
use crate::field::BadValue;
use crate::names;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;

const QUESTION: Strategy = Strategy::USUAL.without_status().without_generation();

macro_rules! questions {
    ($($kind:ty: $validate:expr;)*) => {
        $(impl Kind for $kind {
            const STRATEGY: Strategy = QUESTION;

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
    TokenReview: |review| {
        review.at("spec.token").require();
    };
    SelfSubjectAccessReview: |review| attributes(&review.at("spec"));
    SubjectAccessReview: |review| {
        attributes(&review.at("spec"));
        somebody(&review.at("spec"));
    };
    LocalSubjectAccessReview: |review| {
        let spec = review.at("spec");
        attributes(&spec);
        somebody(&spec);
        let namespace = spec.at("resourceAttributes.namespace");
        if spec.at("resourceAttributes").exists() && namespace.text() != review.at("metadata.namespace").text() {
            namespace.invalid("must match metadata.namespace");
        }
        let other = spec.at("nonResourceAttributes");
        if other.exists() {
            other.invalid_as(BadValue::json(other.value()), "disallowed on this kind of request");
        }
    };
}

fn somebody(spec: &Field<'_, '_>) {
    if spec.at("user").is_empty() && spec.at("groups").is_empty() {
        spec.at("user").invalid_as("", "at least one of user or group must be specified");
    }
}

fn attributes(spec: &Field<'_, '_>) {
    let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if resource.exists() == other.exists() {
        let shown = if other.exists() { BadValue::json(other.value()) } else { BadValue::null() };
        spec.invalid_as(
            shown,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
    }
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
    }
}

impl Kind for StorageVersionMigration {
    const NAMED_ANEW: bool = true;
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
            new.at("spec").immutable(&old.at("spec"));
            return;
        }
        super::conditions(&new.at("status.conditions"));
        let (now, then) = (new.at("status.resourceVersion"), old.at("status.resourceVersion"));
        if !then.is_empty() && now.text() != then.text() {
            now.invalid(super::metadata::IMMUTABLE);
        }
    }
}
