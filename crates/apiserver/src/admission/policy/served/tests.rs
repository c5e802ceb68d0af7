//! Policies as they are: stored objects, asked by a whole API server, beside its plugins and a webhook.
use crate::testing::{Beside, Server, reply, until};
use api::kinds::find_kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use std::future::ready;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Rules for all that happens to one resource.
fn rules(resource: &str) -> Value {
    json!([{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["v1"],
        "resources": [resource] }])
}

/// Stores a policy (`Validating` or `Mutating`) over a resource with a binding, and waits until it counts.
async fn policy(server: &Server, sort: &str, name: &str, resource: &str, mut spec: Value) {
    spec["matchConstraints"] = json!({ "resourceRules": rules(resource) });
    let (version, kind) = ("admissionregistration.k8s.io/v1", format!("{sort}AdmissionPolicy"));
    let path = format!("{ADMISSION}/{}admissionpolic", sort.to_lowercase());
    let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name },
        "spec": spec });
    let said = server.create(&format!("{path}ies"), object).await;
    assert_eq!(said.code, 201, "{said:?}");
    let mut spec = json!({ "policyName": name });
    if sort == "Validating" {
        spec["validationActions"] = json!(["Deny"]);
    }
    let object = json!({ "apiVersion": version, "kind": format!("{kind}Binding"),
        "metadata": { "name": name }, "spec": spec });
    let said = server.create(&format!("{path}ybindings"), object).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("the policy counts", async || {
        let now = server.api.policies().current();
        let mutating = now.mutating.iter().map(|bound| &bound.policy.metadata);
        let validating = now.validating.iter().map(|bound| &bound.policy.metadata);
        mutating.chain(validating).any(|metadata| metadata.name.as_deref() == Some(name))
    })
    .await;
}

/// A mutation that adds an `x` to an entry of a ConfigMap's data.
fn lengthening(entry: &str, reinvocation: &str) -> Value {
    let grown = format!("object.data.?{entry}.orValue('') + 'x'");
    let expression = format!("Object{{data: {{'{entry}': {grown}}}}}");
    json!({ "reinvocationPolicy": reinvocation, "mutations": [
        { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }] })
}

/// A webhook that says of every ConfigMap that it was there.
async fn marking(server: &Server) -> Beside {
    let beside = Beside::start(&[], |asked| {
        let patch = json!([{ "op": "add", "path": "/data/hooked", "value": "yes" }]);
        ready(reply(&json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": { "uid": asked.body["request"]["uid"], "allowed": true,
                "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()) } })))
    })
    .await;
    let hook = json!({ "name": "h.e.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": beside.url("/"), "caBundle": beside.bundle() },
        "rules": rules("configmaps") });
    let object = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration", "metadata": { "name": "h" }, "webhooks": [hook] });
    let said = server.create(&format!("{ADMISSION}/mutatingwebhookconfigurations"), object).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("the hook counts", async || !server.api.extend().hooks.current().mutating.is_empty())
        .await;
    beside
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "a": "b" } })
}

#[tokio::test]
async fn a_policy_is_repeated_if_it_wants_to_see_what_others_changed() {
    let server = Server::start().await;
    let check = async |name: &str, expected: Value| {
        let said = server.create(CONFIG_MAPS, config_map(name)).await;
        assert_eq!((said.code, &said.body["data"]), (201, &expected), "{said:?}");
    };
    policy(&server, "Mutating", "never", "configmaps", lengthening("never", "Never")).await;
    check("a", json!({ "a": "b", "never": "x" })).await;
    // Upstream repeats it for its own change, too.
    policy(&server, "Mutating", "again", "configmaps", lengthening("again", "IfNeeded")).await;
    check("b", json!({ "a": "b", "never": "x", "again": "xx" })).await;
    let beside = marking(&server).await;
    check("c", json!({ "a": "b", "never": "x", "again": "xx", "hooked": "yes" })).await;
    assert_eq!(beside.questions().len(), 1);
}

#[tokio::test]
async fn plugins_see_what_a_policy_adds() {
    let server = Server::start().await;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "default" } });
    server.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let limits = json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "l" },
        "spec": { "limits": [{ "type": "Container", "default": { "memory": "64Mi" } }] } });
    let said = server.create("/api/v1/namespaces/default/limitranges", limits).await;
    assert_eq!(said.code, 201, "{said:?}");
    let expression = "[JSONPatch{op: 'add', path: '/spec/containers/-', \
                      value: Object.spec.containers{name: 'side', image: 'side'}}]";
    let spec = json!({ "reinvocationPolicy": "Never",
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }] });
    policy(&server, "Mutating", "side", "pods", spec).await;
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let said = server.create("/api/v1/namespaces/default/pods", pod).await;
    let side = &said.body["spec"]["containers"][1];
    assert_eq!((said.code, &side["name"]), (201, &json!("side")), "{said:?}");
    assert_eq!(side["resources"]["limits"]["memory"], "64Mi");
    let mounted = &side["volumeMounts"][0]["mountPath"];
    assert_eq!(mounted, "/var/run/secrets/kubernetes.io/serviceaccount");
}

#[tokio::test]
async fn a_deletion_is_judged_by_what_its_client_said() {
    let server = Server::start().await;
    let spec = json!({ "matchConditions": [
            { "name": "deletion", "expression": "request.operation == 'DELETE'" },
            { "name": "said", "expression": "has(request.options.propagationPolicy)" }],
        "validations": [{ "expression": "request.options.propagationPolicy != 'Orphan'" },
            { "expression": "request.options.gracePeriodSeconds == 7" }] });
    policy(&server, "Validating", "orphans", "configmaps", spec).await;
    server.create(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let check = async |options: Value, expected: &str| {
        let said = server.ask(Method::DELETE, &path, options).await;
        assert_eq!(said.body["status"], expected, "{said:?}");
    };
    let options = |propagation: &str| {
        json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 7,
            "propagationPolicy": propagation })
    };
    check(options("Orphan"), "Failure").await;
    check(options("Background"), "Success").await;
}

#[tokio::test]
async fn a_namespace_that_is_gone_is_in_the_way_of_nothing_that_no_policy_is_about() {
    let server = Server::start().await;
    let resource = find_kind("v1", "ConfigMap").expect("a kind");
    let mut left = config_map("left");
    left["metadata"]["namespace"] = "gone".into();
    crate::state::objects::first(&server.api, resource, left).await.expect("stored");
    let path = "/api/v1/namespaces/gone/configmaps/left";
    let media = "application/merge-patch+json";
    let check = async |value: &str, expected: (u16, &str)| {
        let said =
            server.ask_as(Method::PATCH, path, media, json!({ "data": { "a": value } })).await;
        assert_eq!((said.code, said.message()), expected, "{said:?}");
    };
    let spec = json!({ "validations": [{ "expression": "true" }] });
    policy(&server, "Validating", "pods", "pods", spec.clone()).await;
    policy(&server, "Mutating", "also-pods", "pods", lengthening("x", "Never")).await;
    check("1", (200, "")).await;
    policy(&server, "Validating", "maps", "configmaps", spec).await;
    check("2", (404, "namespaces \"gone\" not found")).await;
}

#[tokio::test]
async fn a_patch_with_a_field_that_nobody_knows_refuses_the_request() {
    let server = Server::start().await;
    let expression = "[JSONPatch{op: 'add', path: '/nope', value: 'x'}]";
    let spec = json!({ "reinvocationPolicy": "Never", "failurePolicy": "Ignore",
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }] });
    policy(&server, "Mutating", "nope", "configmaps", spec).await;
    let said = server.create(CONFIG_MAPS, config_map("a")).await;
    let text = "Internal error occurred: strict decoding error: unknown field \"nope\"";
    assert_eq!((said.code, said.message()), (500, text));
}

#[tokio::test]
async fn what_policies_do_is_counted() {
    let server = Server::start().await;
    let validations = json!([{ "expression": "object.data.a != 'b'" }]);
    let conditions = json!([{ "name": "c", "expression": "object.metadata.name == 'a'" }]);
    let judge = json!({ "validations": validations, "matchConditions": conditions });
    policy(&server, "Validating", "judge", "configmaps", judge).await;
    let validations = json!([{ "expression": "object.data.none == 'b'" }]);
    let lax = json!({ "failurePolicy": "Ignore", "validations": validations });
    policy(&server, "Validating", "lax", "configmaps", lax).await;
    policy(&server, "Mutating", "grow", "configmaps", lengthening("grown", "Never")).await;
    let said = server.create(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(said.code, 422, "{said:?}");
    let counts = server.api.extend().counts.text();
    let judged = r#"apiserver_admission_match_condition_evaluation_seconds_count{kind="policy",name="judge",operation="CREATE",type="validate"} 1"#;
    assert!(counts.lines().any(|told| told == judged), "{counts}");
    let refused = r#"{enforcement_action="deny",error_type="invalid_error",policy="judge",policy_binding="judge""#;
    let passed = r#"{enforcement_action="allow",error_type="invalid_error",policy="lax",policy_binding="lax""#;
    let grown = r#"{error_type="no_error",policy="grow",policy_binding="grow""#;
    for (sort, labels) in [("validating", refused), ("validating", passed), ("mutating", grown)] {
        for line in [
            format!("apiserver_{sort}_admission_policy_check_total{labels}}} 1"),
            format!(
                "apiserver_{sort}_admission_policy_check_duration_seconds_bucket{labels},le=\"1\"}} 1"
            ),
        ] {
            assert!(counts.lines().any(|told| told == line), "{line}\n{counts}");
        }
    }
}

#[tokio::test]
async fn policies_are_about_webhooks_but_not_about_policies() {
    let server = Server::start().await;
    let spec = || json!({ "validations": [{ "expression": "object.metadata.name == 'good'" }] });
    policy(&server, "Validating", "good", "*", spec()).await;
    let hooks = format!("{ADMISSION}/validatingwebhookconfigurations");
    let configuration = |name: &str| json!({ "metadata": { "name": name }, "webhooks": [] });
    let said = server.create(&hooks, configuration("other")).await;
    assert_eq!(said.code, 422, "{said:?}");
    assert_eq!(server.create(&hooks, configuration("good")).await.code, 201);
    policy(&server, "Validating", "another", "*", spec()).await;
}
