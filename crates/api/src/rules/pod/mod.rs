//! Pods, and what is made from a template of pods.
//!
//! ```text
//!  spec ──► containers ──► env, mounts, probes, resources, security
//!    ├────► volumes
//!    └────► scheduling: affinity, tolerations, spreading
//! ```
//! A template's spec passes the same rules as a pod's, but for a few that only a pod can break.
mod container;
mod env;
mod mount;
mod overlaps;
mod probe;
mod qos;
mod resize;
pub mod resources;
mod security;
pub mod spec;
mod status;
mod strategy;
mod table;
mod template;
mod update;
pub mod volumes;
mod warnings;

pub use qos::class as qos_class;
pub use template::template;

use super::{Anew, Column, Field, Kind, Part, Strategy};
use crate::meta::TableRowCondition;
use k8s_openapi::api::core::v1::{Binding, Pod, PodTemplate};
use serde_json::Value;

impl Kind for Pod {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy { status_resets: &["ownerReferences"], ..Strategy::USUAL };
    const COLUMNS: &[Column] = table::COLUMNS;

    fn prepare_create(pod: &mut Value) {
        strategy::create(pod);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        strategy::update(new, old, part, &Self::STRATEGY);
    }

    fn validate(pod: &Field<'_, '_>) {
        whole(pod);
        let spec = pod.at("spec");
        if !spec.at("ephemeralContainers").is_empty() {
            spec.at("ephemeralContainers").forbidden("cannot be set on create");
        }
        if !spec.at("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            spec.at("nodeName").forbidden(detail);
        }
        security::annotations_match(pod);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => update::main(new, old),
            Part::Sub("status") => status::validate(new, old),
            Part::Sub("ephemeralcontainers") => update::ephemeral_containers(new, old),
            Part::Sub("resize") => resize::validate(new, old),
            Part::Sub(_) => {}
        }
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        if old.is_some() { Vec::new() } else { warnings::pod(new) }
    }

    fn conditions(pod: &Field<'_, '_>) -> Vec<TableRowCondition> {
        table::conditions(pod)
    }
}

/// What is checked of a pod whenever it is written.
fn whole(pod: &Field<'_, '_>) {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    security::annotations(&metadata.at("annotations"), &spec);
    annotation_values(&metadata.at("annotations"), &spec);
    spec::validate(&spec, metadata.at("name").text(), true);
    if spec.at("serviceAccountName").is_empty() {
        for volume in spec.at("volumes").items() {
            for source in volume.at("projected.sources").items() {
                let token = source.at("serviceAccountToken");
                if token.exists() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    token.forbidden(detail);
                }
            }
        }
    }
    spec.at("terminationGracePeriodSeconds").nonnegative();
    for list in ["containers", "initContainers"] {
        for image in spec.at(list).items() {
            untrimmed(&image.at("image"));
        }
    }
}

/// A pod with this annotation stands for one that its kubelet read from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Annotations that mean something to Kubernetes itself.
fn annotation_values(annotations: &Field<'_, '_>, spec: &Field<'_, '_>) {
    let mirror = annotations.key(MIRROR);
    if mirror.exists() && spec.at("nodeName").is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key("controller.kubernetes.io/pod-deletion-cost");
    let odd = |text: &str| text.starts_with('+') || text.starts_with('0') && text.len() > 1;
    if cost.exists() && (odd(cost.text()) || cost.text().parse::<i32>().is_err()) {
        cost.invalid("must be a 32bit integer");
    }
}

fn untrimmed(image: &Field<'_, '_>) {
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

impl Kind for PodTemplate {
    const STRATEGY: Strategy = Strategy::USUAL.without_status();
    const COLUMNS: &[Column] = template::COLUMNS;

    fn validate(object: &Field<'_, '_>) {
        template(&object.at("template"));
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        warnings::template(&new.at("template"))
    }
}

impl Kind for Binding {
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation();

    fn validate(binding: &Field<'_, '_>) {
        let target = binding.at("target");
        if !matches!(target.at("kind").text(), "" | "Node") {
            target.at("kind").not_supported(&["Node", "<empty>"]);
        }
        if target.at("name").is_empty() {
            target.at("name").required("");
        }
    }
}

pub use warnings::template as template_warnings;
