//! Templates of pods.
use super::super::table::{Column, NAME, containers, labels, with};
use super::super::{Field, metadata};
use super::spec;

pub const COLUMNS: &[Column] = &[
    NAME,
    with("Containers", |object, _| containers(&object.at("template.spec"), "name")),
    with("Images", |object, _| containers(&object.at("template.spec"), "image")),
    with("Pod Labels", |object, _| labels(&object.at("template.metadata.labels"))),
];

/// A template wherever it stands.
pub fn template(template: &Field<'_, '_>) {
    // Upstream leaves the metadata out of these paths.
    let annotations =
        template.at("metadata.annotations").on_path(template.path().child("annotations"));
    template.at("metadata.labels").on_path(template.path().child("labels")).label_map();
    annotations.extend(metadata::validate_annotations(&annotations.labels(), annotations.path()));
    super::security::annotations(&annotations, &template.at("spec"));
    super::annotation_values(&annotations, &template.at("spec"));
    spec::validate(&template.at("spec"), "", false);
    if !template.at("spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        template.at("spec.ephemeralContainers").forbidden(detail);
    }
}
