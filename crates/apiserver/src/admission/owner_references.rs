//! Who makes an object another's must be allowed to delete it; who lets it hold up the owner's
//! deletion must be allowed to set the owner's finalizers.
use super::{Attributes, Operation, items, text};
use crate::guard::authz::{self, What};
use api::status::Status;
use serde_json::Value;

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update)
        || attributes.is("", "Pod") && attributes.is_sub("status")
    {
        return Ok(());
    }
    let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
    let (new, old) = (owners(attributes.new_object()), attributes.old.map(owners));
    let old = old.unwrap_or_default();
    if items(&new) == items(&old) {
        return Ok(());
    }
    let (api, user, call) = (attributes.api, attributes.user, attributes.call);
    if attributes.operation != Operation::Create {
        let wanted =
            authz::Attributes { verb: "delete".into(), ..authz::Attributes::of_call(call) };
        let decision = authz::decide(api, user, &wanted).await;
        if !decision.allowed {
            return Err(attributes.forbidden(format!(
                "cannot set an ownerRef on a resource you can't delete: {}, <nil>",
                decision.reason
            )));
        }
    }
    let blocking = newly_blocking(items(&new), items(&old));
    let may = |group: &str, version: &str, resource: &str, namespace: &str, name: &str| {
        let what = What::Resource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: "finalizers".into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let selected = authz::Selected::default();
        let wanted = authz::Attributes { verb: "update".into(), what, selected };
        async move { authz::decide(api, user, &wanted).await }
    };
    if blocking.is_empty() || may("*", "*", "*", "", "*").await.allowed {
        return Ok(());
    }
    let registry = api.registry();
    for owner in blocking {
        let (version, kind) = (text(&owner["apiVersion"]), text(&owner["kind"]));
        let Some(resource) = registry.find_kind(version, kind) else {
            return Err(attributes.forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: no matches for kind {kind:?} in version {version:?}"
            )));
        };
        let namespace = if resource.is_namespaced() { call.namespace.as_str() } else { "" };
        let name = text(&owner["name"]);
        let decision =
            may(resource.group, resource.version, resource.plural, namespace, name).await;
        if !decision.allowed {
            return Err(attributes.forbidden(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}, <nil>",
                decision.reason
            )));
        }
    }
    Ok(())
}

/// The owners whose deletion this object holds up, and did not before.
fn newly_blocking<'v>(new: &'v [Value], old: &[Value]) -> Vec<&'v Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let before = |owner: &Value| old.iter().rfind(|old| old["uid"] == owner["uid"]);
    new.iter().filter(|owner| blocks(owner) && !before(owner).is_some_and(blocks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_begins_to_block_is_asked_about() {
        let owner = |uid: &str, blocks: bool| json!({"uid": uid, "blockOwnerDeletion": blocks});
        let old = [owner("a", true), owner("b", false)];
        let new = [owner("a", true), owner("b", true), owner("c", true), owner("d", false)];
        let uids: Vec<&str> =
            newly_blocking(&new, &old).iter().map(|owner| text(&owner["uid"])).collect();
        assert_eq!(uids, ["b", "c"]);
    }
}
