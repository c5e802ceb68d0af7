//! Folders of manifests, and a whole API server that has some.
use super::*;
use crate::admission::Chain;
use crate::testing::{Beside, Server, reply, until};
use http::Method;
use serde_json::json;
use std::future::ready;
use tempfile::TempDir;

const VERSION: &str = "admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SUFFIX: &str = ".static.k8s.io";

fn folder(files: &[(&str, &Value)]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content.to_string()).expect("written");
    }
    folder
}

fn policy(name: &str, resource: &str, expression: &str) -> Value {
    let group = if resource == "configmaps" { "" } else { "admissionregistration.k8s.io" };
    json!({ "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": format!("{name}{SUFFIX}") },
        "spec": { "validations": [{ "expression": expression }], "matchConstraints": {
            "resourceRules": [{ "operations": ["CREATE", "DELETE"], "apiGroups": [group],
                "apiVersions": ["*"], "resources": [resource] }] } } })
}

fn binding(name: &str) -> Value {
    json!({ "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": format!("{name}{SUFFIX}") },
        "spec": { "policyName": format!("{name}{SUFFIX}"), "validationActions": ["Deny"] } })
}

/// A hook about everything in its group.
fn hooks(name: &str, client: Value) -> Value {
    json!({ "apiVersion": VERSION, "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name }, "webhooks": [{ "name": "h.e.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": client,
            "rules": [{ "operations": ["CREATE"], "apiGroups": ["", "admissionregistration.k8s.io"],
                "apiVersions": ["v1"], "resources": ["configmaps", "validatingwebhookconfigurations"] }] }] })
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "a": "b" } })
}

fn read(sort: &'static Sort, files: &[(&str, &Value)]) -> Result<Said, String> {
    let folder = folder(files);
    let path = folder.path().to_string_lossy();
    Said::read(folder.path(), sort).map_err(|cause| cause.replace(&*path, "DIR"))
}

#[test]
fn what_a_folder_holds_is_read_by_name() {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [
        binding("b"), { "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyList",
            "items": [policy("b", "configmaps", "true"), policy("a", "configmaps", "true")] }] });
    let (other, none) = (json!("not a manifest"), json!({}));
    let said = read(&VALIDATING_POLICIES, &[("x.JSON", &list), ("x.txt", &other)]).expect("read");
    let names = |all: &[Value]| -> Vec<String> {
        all.iter().map(|one| one["metadata"]["name"].as_str().unwrap_or_default().into()).collect()
    };
    assert_eq!(names(&said.objects), ["a.static.k8s.io", "b.static.k8s.io"]);
    assert_eq!(names(&said.bindings), ["b.static.k8s.io"]);
    // With the API's defaults.
    assert_eq!(said.objects[0]["spec"]["failurePolicy"], "Fail");
    assert_eq!(said.objects[0]["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
    assert_eq!(said.hash.len(), "sha256:".len() + 64);
    let nothing = read(&VALIDATING_POLICIES, &[("x.txt", &none)]).expect("read");
    assert_eq!((nothing.objects.len(), &*nothing.hash), (0, ""));
}

#[test]
fn manifests_are_refused_in_upstreams_words() {
    let check = |sort: &'static Sort, objects: &[Value], expected: &str| {
        let names = ["a.yaml", "b.yaml"];
        let files: Vec<(&str, &Value)> = names.into_iter().zip(objects).collect();
        assert_eq!(read(sort, &files), Err(expected.to_owned()));
    };
    let (good, bound) = (policy("a", "configmaps", "true"), binding("a"));
    let with = |object: &Value, pointer: &str, value: Value| {
        let mut object = object.clone();
        let (place, field) = pointer.rsplit_once('/').expect("a field");
        object.pointer_mut(place).expect("a place")[field] = value;
        object
    };
    let policies = &VALIDATING_POLICIES;
    check(
        policies,
        &[with(&good, "/metadata/name", json!("a"))],
        "error loading DIR/a.yaml: \"a\" in file \"DIR/a.yaml\" must have a name ending with \".static.k8s.io\"",
    );
    check(
        policies,
        &[good.clone(), good.clone()],
        "error loading DIR/b.yaml: duplicate name \"a.static.k8s.io\" found in file \"DIR/b.yaml\" (previously seen in \"DIR/a.yaml\")",
    );
    check(
        policies,
        &[with(&good, "/spec/paramKind", json!({ "apiVersion": "v1", "kind": "ConfigMap" }))],
        "error loading DIR/a.yaml: ValidatingAdmissionPolicy \"a.static.k8s.io\": spec.paramKind is not supported for static manifests",
    );
    check(
        policies,
        &[good.clone(), with(&bound, "/spec/policyName", json!("a"))],
        "error loading DIR/b.yaml: binding \"a.static.k8s.io\": spec.policyName \"a\" must end with \".static.k8s.io\"",
    );
    check(
        policies,
        std::slice::from_ref(&bound),
        "binding \"a.static.k8s.io\" references policy \"a.static.k8s.io\" which does not exist in the manifest directory",
    );
    check(
        policies,
        &[with(&good, "/spec/unknown", json!(1))],
        "error loading DIR/a.yaml: strict decoding error: unknown field \"spec.unknown\"",
    );
    check(
        &MUTATING_POLICIES,
        std::slice::from_ref(&good),
        "error loading DIR/a.yaml: unsupported resource type *v1.ValidatingAdmissionPolicy",
    );
    let broken = read(policies, &[("a.yaml", &policy("a", "configmaps", "object."))]);
    let text = broken.expect_err("it does not compile");
    let begin = "error loading DIR/a.yaml: ValidatingAdmissionPolicy \"a.static.k8s.io\": spec.validations[0].expression: Invalid value: \"object.\": compilation failed: ";
    assert!(text.starts_with(begin), "{text}");
    let service = json!({ "service": { "name": "s", "namespace": "n" } });
    check(
        &VALIDATING_WEBHOOKS,
        &[hooks("a.static.k8s.io", service)],
        "error loading DIR/a.yaml: webhook \"h.e.io\" in \"a.static.k8s.io\" (file \"DIR/a.yaml\"): clientConfig.service is not supported for static manifests; use clientConfig.url instead",
    );
}

#[test]
fn a_folder_is_there_or_the_server_is_not() {
    let check = |path: &str, expected: Fault| {
        assert_eq!(Folder::open(path, &MUTATING_WEBHOOKS).map(|_| ()), Err(expected));
    };
    let wrong = |path: &str, detail: &str| {
        Fault::Init(format!("staticManifestsDir: Invalid value: {path:?}: {detail}"))
    };
    check("x/y", wrong("x/y", "must be an absolute file path"));
    let detail = "unable to read: stat /nowhere/at/all: no such file or directory";
    check("/nowhere/at/all", wrong("/nowhere/at/all", detail));
    check("/proc/version", wrong("/proc/version", "must be a directory"));
    let folder = folder(&[("a.yaml", &json!({ "kind": "Pod", "apiVersion": "v1" }))]);
    let path = folder.path().to_string_lossy();
    let cause = format!(
        "failed to load static webhook manifests from {path:?}: error loading {path}/a.yaml: no kind \"Pod\" is registered for version \"v1\""
    );
    check(&path, Fault::Initialize(cause));
    assert!(Folder::open("", &MUTATING_WEBHOOKS).is_ok_and(|folder| folder.is_none()));
}

/// A server that is told of a plugin's folder by its configuration file.
async fn server(plugin: &str, kind: &str, manifests: &TempDir) -> Server {
    let told = json!({ "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration", "plugins": [{ "name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind,
            "staticManifestsDir": manifests.path() } }] });
    let place = folder(&[("admission.yaml", &told)]);
    let chain = Chain::new(&[], &[], Some(&place.path().join("admission.yaml"))).expect("a chain");
    Server::start_with(|options| options.admission = chain).await
}

#[tokio::test]
async fn a_policy_of_a_manifest_counts_for_policies_too_and_follows_its_file() {
    let all = json!({ "apiVersion": "v1", "kind": "List", "items": [
        policy("maps", "configmaps", "object.metadata.name != 'bad'"), binding("maps"),
        policy("policies", "validatingadmissionpolicies", "object.metadata.name != 'bad'"),
        binding("policies")] });
    let manifests = folder(&[("a.yaml", &all)]);
    let kind = "ValidatingAdmissionPolicyConfiguration";
    let server = server("ValidatingAdmissionPolicy", kind, &manifests).await;
    let create = async |name: &str| server.create(CONFIG_MAPS, config_map(name)).await;
    let said = create("bad").await;
    let text = "configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'maps.static.k8s.io' with binding 'maps.static.k8s.io' denied request: failed expression: object.metadata.name != 'bad'";
    assert_eq!((said.code, said.message()), (422, text));
    assert_eq!(create("good").await.code, 201);
    let policies = format!("/apis/{VERSION}/validatingadmissionpolicies");
    let mut stored = policy("x", "configmaps", "true");
    stored["metadata"]["name"] = "bad".into();
    let said = server.create(&policies, stored.clone()).await;
    assert!(said.message().contains("'policies.static.k8s.io'"), "{said:?}");
    stored["metadata"]["name"] = "good".into();
    assert_eq!(server.create(&policies, stored).await.code, 201);
    // No client sees it.
    let path = format!("{policies}/maps.static.k8s.io");
    assert_eq!(server.ask(Method::DELETE, &path, Value::Null).await.code, 404);
    // What cannot be read leaves all as it was.
    let file = manifests.path().join("a.yaml");
    // In one step, so that nobody sees half of it.
    let aside = manifests.path().join("aside");
    std::fs::write(&aside, "{").expect("written");
    std::fs::rename(&aside, &file).expect("renamed");
    let counted =
        |line: &str| server.api.extend().counts.text().lines().any(|told| told.contains(line));
    let reloads = "apiserver_manifest_admission_config_controller_automatic_reloads_total";
    until("the failure counts", async || counted("status=\"failure\"} ")).await;
    assert!(counted("status=\"success\"} 1") && counted(reloads));
    assert_eq!(create("bad").await.code, 422);
    std::fs::remove_file(&file).expect("removed");
    until("it counts no more", async || create("bad").await.code != 422).await;
    until("the success counts", async || counted("status=\"success\"} 2")).await;
    let info = "apiserver_manifest_admission_config_controller_last_config_info";
    let text = server.api.extend().counts.text();
    assert_eq!(text.lines().filter(|line| line.starts_with(info)).count(), 1, "{text}");
}

#[tokio::test]
async fn a_webhook_of_a_manifest_is_asked_about_webhooks() {
    let beside = Beside::start(&[], |asked| {
        let allowed = asked.body["request"]["object"]["metadata"]["name"] != "bad";
        ready(reply(&json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": { "uid": asked.body["request"]["uid"], "allowed": allowed } })))
    })
    .await;
    let client = json!({ "url": beside.url("/judge"), "caBundle": beside.bundle() });
    let manifests = folder(&[("a.json", &hooks("a.static.k8s.io", client.clone()))]);
    let kind = "WebhookAdmissionConfiguration";
    let server = server("ValidatingAdmissionWebhook", kind, &manifests).await;
    let stored = format!("/apis/{VERSION}/validatingwebhookconfigurations");
    for (name, code) in [("bad", 400), ("good", 201)] {
        assert_eq!(server.create(CONFIG_MAPS, config_map(name)).await.code, code, "{name}");
        // The one that is stored now is asked about nothing that configures admission.
        assert_eq!(server.create(&stored, hooks(name, client.clone())).await.code, code, "{name}");
    }
    assert_eq!(beside.questions().len(), 4);
}
