//! One object in the other versions that its resource is served in.
use super::matter::Named;
use crate::extend::definitions;
use crate::server::ApiServer;
use crate::state::scale::{put_replicas, scale_of};
use api::codec::json;
use api::convert;
use api::kinds::{Registry, Resource, ResourceRef, Subresource};
use api::rules::defaults;
use api::schema::builtin;
use api::status::Status;
use serde_json::Value;
use std::borrow::Cow;

/// A resource in the other versions that are served: those whose objects are stored in one place.
pub fn others(registry: &Registry, resource: &Resource, part: Option<&Subresource>) -> Vec<Named> {
    if !resource.is_stored() {
        return Vec::new();
    }
    let is_other = |other: &&ResourceRef| {
        other.storage == resource.storage
            && (other.group, other.version) != (resource.group, resource.version)
    };
    let others = registry.rows().iter().filter(is_other);
    others
        .filter_map(|other| match part {
            None => Some(Named::of(other, None)),
            Some(part) => Some(Named::of(other, Some(other.subresource(part.name)?))),
        })
        .collect()
}

/// An object as a hook is shown it: in the version that its rules are about. A scale is a view of its
/// object, as which alone clients know it.
pub async fn shown<'o>(
    api: &ApiServer,
    object: Option<&'o Value>,
    resource: &Resource,
    target: &Named,
) -> Result<Option<Cow<'o, Value>>, Status> {
    let Some(object) = object else { return Ok(None) };
    if is_scale_of(object, target) {
        return Ok(Some(Cow::Owned(scale_of(object, resource))));
    }
    let version = target.kind.api_version();
    if object["kind"] != *target.kind.kind || object["apiVersion"] == *version {
        return Ok(Some(Cow::Borrowed(object)));
    }
    converted(api, object.clone(), resource, &version).await.map(|other| Some(Cow::Owned(other)))
}

fn is_scale_of(object: &Value, target: &Named) -> bool {
    target.row.is_none() && target.kind.kind == "Scale" && object["kind"] != "Scale"
}

async fn converted(
    api: &ApiServer,
    object: Value,
    resource: &Resource,
    version: &str,
) -> Result<Value, Status> {
    match &resource.definition {
        Some(definition) => definitions::in_version(api, definition, object, version).await,
        None => convert::convert(object, version).map_err(Status::internal_error),
    }
}

/// What a hook made of an object, read as a client's would be: in its type, with its defaults.
pub fn read_again(changed: Value, target: &Named) -> Result<Value, String> {
    let kind = &target.kind;
    let (version, found) = (kind.api_version(), &changed["kind"]);
    if *found != *kind.kind || changed["apiVersion"] != *version {
        return Err(format!("the patch makes a {} of {version} another kind", kind.kind));
    }
    if let Some(row) = &target.row {
        let mut object = row.settle_given(changed).map_err(|error| error.to_string())?.value;
        row.set_defaults(&mut object);
        return Ok(object);
    }
    let Some(ty) = builtin().kind(&kind.group, &kind.version, &kind.kind) else {
        return Ok(changed);
    };
    let read = json::canonicalize_given(changed, ty).map_err(|error| error.to_string())?;
    let mut object = read.value;
    defaults::set(&mut object, ty);
    Ok(object)
}

/// Puts what a hook made of the object it was shown back into the version of the request.
pub async fn put_back(
    api: &ApiServer,
    object: &mut Value,
    changed: Value,
    resource: &Resource,
    target: &Named,
) -> Result<(), Status> {
    if is_scale_of(object, target) {
        put_replicas(object, &changed, resource);
        return Ok(());
    }
    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    *object = match changed["apiVersion"] == *version {
        true => changed,
        false => converted(api, changed, resource, &version).await?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::webhook::matter::Kind;
    use crate::testing::Server;
    use api::kinds::find_kind;
    use serde_json::json;

    fn target(version: &str, kind: &str) -> Named {
        Named::of(&find_kind(version, kind).expect("a kind").into(), None)
    }

    #[tokio::test]
    async fn an_object_goes_to_another_version_and_comes_back_changed() {
        let server = Server::start().await;
        let resource = find_kind("autoscaling/v2", "HorizontalPodAutoscaler").expect("a kind");
        let mut object = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": { "name": "a" },
            "spec": { "maxReplicas": 3, "scaleTargetRef": { "kind": "D", "name": "d" } } });
        let v1 = target("autoscaling/v1", "HorizontalPodAutoscaler");
        let shown = shown(&server.api, Some(&object), resource, &v1).await.expect("converts");
        let mut shown = shown.expect("an object").into_owned();
        assert_eq!(shown["apiVersion"], "autoscaling/v1");
        shown["spec"]["maxReplicas"] = json!(5);
        let changed = read_again(shown, &v1).expect("reads");
        put_back(&server.api, &mut object, changed, resource, &v1).await.expect("converts");
        assert_eq!(object["apiVersion"], "autoscaling/v2");
        assert_eq!(object["spec"]["maxReplicas"], 5);
        let resource = find_kind("apps/v1", "Deployment").expect("a kind");
        let mut object = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "a" }, "spec": { "replicas": 2 } });
        let kind = Kind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
        let scale = Named { kind, row: None, ..target("apps/v1", "Deployment") };
        let shown = self::shown(&server.api, Some(&object), resource, &scale).await;
        let mut shown = shown.expect("shown").expect("an object").into_owned();
        assert_eq!((&shown["kind"], &shown["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
        shown["spec"]["replicas"] = json!(4);
        put_back(&server.api, &mut object, shown, resource, &scale).await.expect("put back");
        assert_eq!(
            (&object["kind"], &object["spec"]["replicas"]),
            (&json!("Deployment"), &json!(4))
        );
    }

    #[test]
    fn what_a_hook_adds_gets_defaults_and_what_nobody_knows_is_dropped() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "c", "image": "i", "what": 1 }] } });
        let read = read_again(pod, &target("v1", "Pod")).expect("reads");
        let container = &read["spec"]["containers"][0];
        assert_eq!(container["terminationMessagePolicy"], "File");
        assert!(container.get("what").is_none());
        let other = json!({ "apiVersion": "v1", "kind": "Secret" });
        assert!(read_again(other, &target("v1", "Pod")).is_err());
    }
}
