//! Back to the template of an earlier revision: what `kubectl rollout undo` did through the API of
//! old, which an annotation still asks for.
use super::rollout::{REVISION, annotation};
use super::template;
use crate::action::Action;
use client::events::{Happening, reference};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use std::sync::Arc;

/// The revision to go back to; 0: the one before.
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// `None`: nobody asks for it.
pub fn reconcile(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Option<Vec<Action>> {
    let annotations = deployment.metadata.annotations.as_ref()?;
    let wanted = annotations.get(ROLLBACK_TO)?.parse::<i64>().ok()?;
    let mut new = deployment.clone();
    if let Some(annotations) = &mut new.metadata.annotations {
        annotations.remove(ROLLBACK_TO);
    }
    let tell = |is_warning: bool, reason: &str, note: String| {
        let normal = Happening::normal(reference(deployment), reason, note);
        Action::Record(Happening { is_warning, ..normal })
    };
    let missing = |text: &str| tell(true, "DeploymentRollbackRevisionNotFound", text.to_owned());
    let revision = |set: &ReplicaSet| annotation::<i64>(set, REVISION).unwrap_or_default();
    let wanted = match wanted {
        0 => {
            let mut revisions: Vec<_> = sets.iter().map(|set| revision(set)).collect();
            revisions.sort_unstable();
            // Of one alone there is none before.
            match revisions.len().checked_sub(2).map(|at| revisions[at]) {
                Some(last) if last > 0 => last,
                _ => {
                    return Some(vec![
                        missing("Unable to find last revision."),
                        Action::update(&new),
                    ]);
                }
            }
        }
        wanted => wanted,
    };
    let Some(set) = sets.iter().find(|set| revision(set) == wanted) else {
        let told = missing("Unable to find the revision to rollback to.");
        return Some(vec![told, Action::update(&new)]);
    };
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let old = set.spec.template.clone().unwrap_or_default();
    if template::is_same(&old, &deployment.spec.template) {
        let note = format!(
            "The rollback revision contains the same template as current deployment {name:?}"
        );
        let told = tell(true, "DeploymentRollbackTemplateUnchanged", note);
        return Some(vec![told, Action::update(&new)]);
    }
    new.spec.template = old;
    if let Some(labels) = new.spec.template.metadata.as_mut().and_then(|it| it.labels.as_mut()) {
        labels.remove(template::HASH);
    }
    let note = format!("Rolled back deployment {name:?} to revision {wanted}");
    Some(vec![tell(false, "DeploymentRollback", note), Action::update(&new)])
}
