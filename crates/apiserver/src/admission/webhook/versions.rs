//! One object in the other versions that its resource is served in.
use super::matter::{Kind, Named};
use crate::extend::definitions;
use crate::server::ApiServer;
use crate::state::another;
use crate::state::scale::{put_replicas, scale_of};
use api::codec::json;
use api::codec::object::TypeMeta;
use api::convert;
use api::custom;
use api::kinds::{Registry, Resource, Subresource};
use api::rules::defaults;
use api::schema::builtin;
use api::status::Status;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Display;

/// A resource in the other versions that are served: those whose objects are stored in one place.
pub fn others(registry: &Registry, resource: &Resource, part: Option<&Subresource>) -> Vec<Named> {
    let others = registry.others(resource);
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

/// An object of a resource in another of its versions.
pub async fn converted(
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
pub fn read_again(mut changed: Value, target: &Named) -> Result<Value, Status> {
    let unreadable = |cause: &dyn Display| Status::internal_error(cause.to_string());
    let (kind, row) = (&target.kind, target.row.as_ref());
    if row.is_some_and(|row| row.definition.is_some()) {
        // Its rules say what is wrong with another kind.
        if TypeMeta::of(&changed).kind.is_empty() {
            return Err(unreadable(&custom::without_kind(&changed.to_string())));
        }
    } else {
        name_type(&mut changed, kind)?;
    }
    if let Some(row) = row {
        let mut object = row.settle_given(changed).map_err(|error| unreadable(&error))?.value;
        row.set_defaults(&mut object);
        return Ok(object);
    }
    let Some(ty) = builtin().kind(&kind.group, &kind.version, &kind.kind) else {
        return Ok(changed);
    };
    let read = json::canonicalize_given(changed, ty).map_err(|error| unreadable(&error))?;
    let mut object = read.value;
    defaults::set(&mut object, ty);
    Ok(object)
}

/// A built-in object that does not say what it is is what it was. One that says it is something else
/// cannot be had back.
fn name_type(changed: &mut Value, kind: &Kind) -> Result<(), Status> {
    if !changed.is_object() {
        TypeMeta::from_tree(changed.clone()).map_err(Status::internal_error)?;
    }
    let own = TypeMeta { api_version: kind.api_version(), kind: kind.kind.clone() };
    let said = TypeMeta::of(changed);
    let or = |said: String, own: &String| if said.is_empty() { own.clone() } else { said };
    let found = TypeMeta {
        api_version: or(said.api_version, &own.api_version),
        kind: or(said.kind, &own.kind),
    };
    if found != own {
        if let Some(fault) = another::unregistered(&found) {
            return Err(Status::internal_error(fault));
        }
        let fault = another::unconvertible(&found, &kind.group, &kind.kind);
        let message =
            fault.unwrap_or_else(|| format!("the patch changes the version to {found:?}"));
        return Err(Status { code: 500, message, ..Status::default() });
    }
    own.write_into(changed);
    Ok(())
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
        let check = |changed: Value, expected: &str| {
            let read = read_again(changed, &target("v1", "Pod"));
            let kind = |pod: Value| pod["kind"].as_str().unwrap_or_default().to_owned();
            assert_eq!(read.map_or_else(|status| status.message, kind), expected);
        };
        check(json!({ "metadata": {} }), "Pod");
        check(
            json!({ "apiVersion": "v1", "kind": "Secret" }),
            "converting (v1.Secret) to (core.Pod): unknown conversion",
        );
        check(
            json!({ "apiVersion": "v2", "kind": "Pod" }),
            "Internal error occurred: no kind \"Pod\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        );
    }
}
