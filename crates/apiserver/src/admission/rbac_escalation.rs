//! Roles and bindings are written by those who hold what they give. Upstream does this where it
//! stores them; it is no plugin that a flag could switch off.
use super::{Attributes, Operation};
use crate::guard::authz::escalation;
use api::status::Status;

const GROUP: &str = "rbac.authorization.k8s.io";
pub const KINDS: &[(&str, &str)] = &[
    (GROUP, "Role"),
    (GROUP, "ClusterRole"),
    (GROUP, "RoleBinding"),
    (GROUP, "ClusterRoleBinding"),
];

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let (api, call) = (attributes.api, attributes.call);
    let (Some(object), false) = (&attributes.object, attributes.operation == Operation::Delete)
    else {
        return Ok(());
    };
    if attributes.only_owners_change() {
        return Ok(());
    }
    let (user, plural) = (attributes.user, call.resource.plural);
    match call.resource.built_in() {
        (_, "Role" | "ClusterRole") => {
            escalation::check_role(api, user, plural, object, attributes.old).await
        }
        _ => escalation::check_binding(api, user, plural, object).await,
    }
}
