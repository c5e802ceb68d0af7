//! One object in the other versions that its resource is served in.
use super::matter::{Kind, Named};
use crate::extend::definitions;
use crate::server::ApiServer;
use crate::state::another;
use crate::state::scale::{put_replicas, scale_of};
use api::codec::json::{self, FieldValidation};
use api::codec::object::TypeMeta;
use api::convert;
use api::custom::{self, Definition};
use api::kinds::{Registry, Resource, Subresource};
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
        None => convert::convert(object, version).map_err(plain),
    }
}

/// A fault of the server that says nothing but what it is.
fn plain(cause: impl Display) -> Status {
    Status { code: 500, message: cause.to_string(), ..Status::default() }
}

/// That an object cannot be had in a hook's version. Upstream says whose fault that is, and says it twice where
/// hooks may change the object (`webhook/mutating/dispatcher.go`, `VersionedAttribute`).
pub fn unconverted(status: Status, is_mutating: bool) -> Status {
    let told = Status::internal_error(status.message);
    if is_mutating { Status::internal_error(told.message) } else { told }
}

/// What a hook or a policy made of an object: a built-in one is read as a client's would be, in its type; either
/// gets the defaults of its version. Fields that nobody knows are dropped or refused.
pub fn read_again(
    mut changed: Value,
    target: &Named,
    unknown: FieldValidation,
) -> Result<Value, Status> {
    let unreadable = |cause: &dyn Display| Status::internal_error(cause.to_string());
    let (kind, row) = (&target.kind, target.row.as_ref());
    if let Some(definition) = row.and_then(|row| row.definition.as_ref()) {
        // Its rules say what is wrong with another kind.
        if TypeMeta::of(&changed).kind.is_empty() {
            return Err(unreadable(&custom::without_kind(&changed.to_string())));
        }
        return custom::patched(changed, definition).map_err(|error| unreadable(&error));
    }
    name_type(&mut changed, kind)?;
    let read = match (row, target.ty()) {
        (Some(row), _) => row.settle_given(changed),
        (None, Some(ty)) => json::canonicalize_given(changed, ty),
        (None, None) => return Ok(changed),
    };
    let read = read.and_then(|read| read.validate(unknown)).map_err(|error| unreadable(&error))?;
    let mut object = read.0;
    target.set_defaults(&mut object);
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
        // It is read as what it says that it is before anybody sees that it is not what it was.
        let (group, version) = found.group_version();
        if let Some(ty) = builtin().kind(group, version, &found.kind) {
            json::canonicalize_given(changed.clone(), ty).map_err(Status::internal_error)?;
        }
        let fault = another::unconvertible(&found, &kind.group, &kind.kind);
        let message =
            fault.unwrap_or_else(|| format!("the patch changes the version to {found:?}"));
        return Err(plain(message));
    }
    own.write_into(changed);
    Ok(())
}

/// Puts what a hook made of the object it was shown in the object's place, in the version of the hook: the next may
/// speak the same.
pub fn put_back(object: &mut Value, changed: Value, resource: &Resource, target: &Named) {
    match is_scale_of(object, target) {
        true => put_replicas(object, &changed, resource),
        false => *object = changed,
    }
}

/// Puts an object that hooks changed in another version back into the one that its request has it in (`home`).
pub async fn bring_home(
    api: &ApiServer,
    object: &mut Value,
    resource: &Resource,
    home: &str,
) -> Result<(), Status> {
    if TypeMeta::of(object).api_version == home {
        return Ok(());
    }
    if let Some(definition) = &resource.definition
        && let Some(cause) = foreign(object, definition, home)
    {
        return Err(plain(cause));
    }
    *object = converted(api, object.take(), resource, home).await?;
    Ok(())
}

/// Why a custom object cannot come from what it says that it is, in upstream's words
/// (`apiextensions-apiserver/pkg/apiserver/conversion/converter.go`).
fn foreign(object: &Value, definition: &Definition, home: &str) -> Option<String> {
    let said = TypeMeta::of(object);
    let ((group, version), kind) = (said.group_version(), &said.kind);
    if home.split_once('/').is_none_or(|(own, _)| own != group) {
        return Some(format!(
            "{group}/{version}, Kind={kind} is unstructured and is not suitable for converting to {home:?}"
        ));
    }
    let is_known = definition.family.version(&said.api_version).is_some();
    let fault = "request to convert CR from an invalid group/version";
    (!is_known).then(|| format!("{fault}: {}", said.api_version))
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
        let changed = read_again(shown, &v1, FieldValidation::Ignore).expect("reads");
        put_back(&mut object, changed, resource, &v1);
        assert_eq!(object["apiVersion"], "autoscaling/v1");
        let home = "autoscaling/v2";
        bring_home(&server.api, &mut object, resource, home).await.expect("converts");
        assert_eq!(object["apiVersion"], home);
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
        put_back(&mut object, shown, resource, &scale);
        assert_eq!(
            (&object["kind"], &object["spec"]["replicas"]),
            (&json!("Deployment"), &json!(4))
        );
    }

    #[test]
    fn a_custom_object_comes_home_from_its_own_versions_alone() {
        let names =
            json!({ "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" });
        let version = json!({ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object" } } });
        let definition = json!({ "metadata": { "name": "foos.a.io", "uid": "u" },
            "spec": { "group": "a.io", "scope": "Namespaced", "names": names,
                "versions": [version] },
            "status": { "acceptedNames": names } });
        let defined = custom::define(&definition).expect("a sound definition");
        let definition = defined.rows[0].definition.clone().expect("a definition's row");
        for (version, expected) in [
            ("a.io/v1", None),
            ("a.io/v9", Some("request to convert CR from an invalid group/version: a.io/v9")),
            (
                "v1",
                Some(
                    "/v1, Kind=Foo is unstructured and is not suitable for converting to \"a.io/v1\"",
                ),
            ),
        ] {
            let object = json!({ "apiVersion": version, "kind": "Foo" });
            assert_eq!(foreign(&object, &definition, "a.io/v1").as_deref(), expected);
        }
    }

    #[test]
    fn what_a_hook_adds_gets_defaults_and_what_nobody_knows_is_dropped() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "c", "image": "i", "what": 1 }] } });
        let read =
            read_again(pod.clone(), &target("v1", "Pod"), FieldValidation::Ignore).expect("reads");
        let container = &read["spec"]["containers"][0];
        assert_eq!(container["terminationMessagePolicy"], "File");
        assert!(container.get("what").is_none());
        let strictly = read_again(pod, &target("v1", "Pod"), FieldValidation::Strict);
        assert_eq!(
            strictly.map_err(|status| status.message),
            Err("Internal error occurred: strict decoding error: unknown field \"spec.containers[0].what\"".to_owned())
        );
        let check = |changed: Value, expected: &str| {
            let read = read_again(changed, &target("v1", "Pod"), FieldValidation::Ignore);
            let kind = |pod: Value| pod["kind"].as_str().unwrap_or_default().to_owned();
            assert_eq!(read.map_or_else(|status| status.message, kind), expected);
        };
        check(json!({ "metadata": {} }), "Pod");
        check(
            json!({ "apiVersion": "v1", "kind": "Secret" }),
            "converting (v1.Secret) to (core.Pod): unknown conversion",
        );
        check(
            json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "1" } }),
            "Internal error occurred: illegal base64 data at input byte 0",
        );
        check(
            json!({ "apiVersion": "v2", "kind": "Pod" }),
            "Internal error occurred: no kind \"Pod\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        );
    }
}
