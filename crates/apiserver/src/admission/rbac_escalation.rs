//! Roles and bindings are written by those who hold what they give. Upstream does this where it
//! stores them; it is no plugin that a flag could switch off.
use super::{Attributes, Operation};
use crate::authz::escalation;
use api::rules::prepare;
use api::status::Status;

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let (context, call) = (attributes.context, attributes.context.call);
    let (Some(object), false) = (&attributes.object, attributes.operation == Operation::Delete)
    else {
        return Ok(());
    };
    if call.resource.group != "rbac.authorization.k8s.io" {
        return Ok(());
    }
    // Labels may change without a question.
    if attributes.old.is_some_and(|old| !prepare::changed(object, old)) {
        return Ok(());
    }
    let (user, plural) = (&context.received.user, call.resource.plural);
    match call.resource.kind {
        "Role" | "ClusterRole" => escalation::check_role(context.api, user, plural, object).await,
        _ => escalation::check_binding(context.api, user, plural, object).await,
    }
}
