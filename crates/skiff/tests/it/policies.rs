//! Admission policies from outside: what upstream's conformance tests ask of them, and a little more.
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GROUP: &str = "admissionregistration.k8s.io/v1";

fn create(cluster: &Cluster, object: &Value) -> String {
    cluster.kubectl_with("create -f -", &object.to_string())
}

/// A policy over deployments, and a binding for one namespace.
fn policy(cluster: &Cluster, kind: &str, mut spec: Value, binding: Value) {
    spec["matchConstraints"] = json!({ "resourceRules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }]});
    let metadata = json!({ "name": "p.example.com" });
    let policy = json!({ "apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec });
    let created = create(cluster, &policy);
    assert!(created.ends_with("p.example.com created"), "{created}");
    let mut spec = json!({
        "policyName": "p.example.com",
        "matchResources": { "namespaceSelector": { "matchLabels": { "watched": "yes" } } },
    });
    for (field, value) in binding.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let metadata = json!({ "name": "b.example.com" });
    let kind = format!("{kind}Binding");
    let binding = json!({ "apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec });
    let created = create(cluster, &binding);
    assert!(created.ends_with("b.example.com created"), "{created}");
}

fn shop(cluster: &Cluster) {
    cluster.kubectl("create namespace shop");
    cluster.kubectl("label namespace shop watched=yes");
    cluster.kubectl("create namespace other");
}

fn deploy(cluster: &Cluster, kind: &str, namespace: &str, name: &str, replicas: i64) -> String {
    let labels = json!({ "app": name });
    let object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    });
    create(cluster, &object)
}

/// Until a policy that was just written counts.
fn wait_for(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came to hold");
        std::thread::yield_now();
    }
}

fn refused_marker(cluster: &Cluster) -> String {
    let mut answer = String::new();
    wait_for(|| {
        answer = deploy(cluster, "Deployment", "shop", "marker", 1);
        cluster.kubectl("delete deployment marker -n shop --ignore-not-found");
        !answer.ends_with("created")
    });
    answer
}

#[test]
fn a_policy_validates_deployments_of_its_namespace() {
    let cluster = Cluster::start();
    shop(&cluster);
    policy(
        &cluster,
        "ValidatingAdmissionPolicy",
        json!({ "validations": [
            {
                "expression": "object.spec.replicas > 1",
                "messageExpression": "'wants replicas > 1, got ' + string(object.spec.replicas)",
            },
            { "expression": "namespaceObject.metadata.name == 'shop'", "message": "another place" },
        ]}),
        json!({ "validationActions": ["Deny"] }),
    );
    let refused = refused_marker(&cluster);
    let text = "The deployments \"marker\" is invalid: : ValidatingAdmissionPolicy 'p.example.com' with \
                binding 'b.example.com' denied request: wants replicas > 1, got 1";
    assert!(refused.contains(text), "{refused}");
    assert_eq!(deploy(&cluster, "Deployment", "shop", "two", 2), "deployment.apps/two created");
    assert_eq!(deploy(&cluster, "ReplicaSet", "shop", "one", 1), "replicaset.apps/one created");
    assert_eq!(deploy(&cluster, "Deployment", "other", "one", 1), "deployment.apps/one created");
    let scaled = cluster.kubectl("patch deployment two -n shop -p {\"spec\":{\"replicas\":1}}");
    assert!(scaled.contains("denied request: wants replicas > 1, got 1"), "{scaled}");
    // Whoever would mend the policy is not stopped by it.
    cluster.kubectl("delete validatingadmissionpolicybinding b.example.com");
    wait_for(|| {
        cluster.kubectl("delete deployment marker -n shop --ignore-not-found");
        deploy(&cluster, "Deployment", "shop", "marker", 1).ends_with("created")
    });
}

#[test]
fn expressions_name_variables_parameters_and_rights() {
    let cluster = Cluster::start();
    shop(&cluster);
    cluster.kubectl("create configmap limits -n shop --from-literal=most=5");
    policy(
        &cluster,
        "ValidatingAdmissionPolicy",
        json!({
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "matchConditions": [
                { "name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')" },
            ],
            "variables": [
                { "name": "replicas", "expression": "object.spec.replicas" },
                { "name": "odd", "expression": "variables.replicas % 2 == 1" },
            ],
            "validations": [
                { "expression": "variables.replicas <= int(params.data.most)", "reason": "Forbidden" },
                { "expression": "variables.odd || authorizer.group('').resource('nodes').check('delete').allowed() == false" },
                { "expression": "request.operation != 'UPDATE'" },
            ],
        }),
        json!({
            "validationActions": ["Deny"],
            "paramRef": { "name": "limits", "parameterNotFoundAction": "Deny" },
        }),
    );
    let mut answer = String::new();
    wait_for(|| {
        answer = deploy(&cluster, "Deployment", "shop", "marker", 7);
        cluster.kubectl("delete deployment marker -n shop --ignore-not-found");
        !answer.ends_with("created")
    });
    assert!(
        answer.contains(
            "denied request: failed expression: variables.replicas <= int(params.data.most)"
        ),
        "{answer}"
    );
    let even = deploy(&cluster, "Deployment", "shop", "even", 2);
    assert!(even.contains("denied request: failed expression: variables.odd"), "{even}");
    assert_eq!(deploy(&cluster, "Deployment", "shop", "odd", 3), "deployment.apps/odd created");
    assert_eq!(
        deploy(&cluster, "Deployment", "shop", "exempt", 100),
        "deployment.apps/exempt created"
    );
    let changed = cluster.kubectl("patch deployment odd -n shop -p {\"spec\":{\"replicas\":1}}");
    assert!(changed.contains("failed expression: request.operation != 'UPDATE'"), "{changed}");
    cluster.kubectl("delete configmap limits -n shop");
    let missing = deploy(&cluster, "Deployment", "shop", "later", 3);
    assert!(
        missing.contains("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{missing}"
    );
}

#[test]
fn a_binding_may_only_warn() {
    let cluster = Cluster::start();
    shop(&cluster);
    policy(
        &cluster,
        "ValidatingAdmissionPolicy",
        json!({ "validations": [{ "expression": "object.spec.replicas > 1", "message": "lonely" }] }),
        json!({ "validationActions": ["Warn", "Audit"] }),
    );
    let command = "create deployment web --image=web -n shop --dry-run=server";
    wait_for(|| {
        let output = cluster.command(command).output().expect("kubectl runs");
        assert!(output.status.success());
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        warned.contains(
            "Warning: Validation failed for ValidatingAdmissionPolicy 'p.example.com' with binding 'b.example.com': lonely",
        )
    });
}

#[test]
fn policies_change_deployments() {
    let cluster = Cluster::start();
    shop(&cluster);
    policy(
        &cluster,
        "MutatingAdmissionPolicy",
        json!({
            // Repeated, it would add its container twice.
            "reinvocationPolicy": "Never",
            "variables": [{ "name": "wanted", "expression": "1337" }],
            "mutations": [
                { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                    "\n  Object{\n    metadata: Object.metadata{ annotations: { \"mutated-by\": \"policy\" } },\n    spec: Object.spec{ replicas: variables.wanted }\n  }" } },
                { "patchType": "JSONPatch", "jsonPatch": { "expression":
                    "[JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/by'), value: 'patch'}, JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: Object.spec.template.spec.containers{name: 'side', image: 'side'}}]" } },
            ],
        }),
        json!({}),
    );
    wait_for(|| {
        deploy(&cluster, "Deployment", "shop", "web", 1);
        let web = cluster.json("get deployment web -n shop");
        cluster.kubectl("delete deployment web -n shop");
        if web["spec"]["replicas"] != 1337 {
            return false;
        }
        assert_eq!(web["metadata"]["annotations"]["mutated-by"], "policy");
        assert_eq!(web["metadata"]["annotations"]["example.com/by"], "patch");
        let side = &web["spec"]["template"]["spec"]["containers"][1];
        assert_eq!(
            (&side["name"], &side["terminationMessagePath"]),
            (&json!("side"), &json!("/dev/termination-log"))
        );
        true
    });
    deploy(&cluster, "Deployment", "other", "web", 1);
    assert_eq!(cluster.json("get deployment web -n other")["spec"]["replicas"], 1);
}

#[test]
fn what_does_not_compile_is_refused() {
    let cluster = Cluster::start();
    let rules = json!([{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
    }]);
    let refused = create(
        &cluster,
        &json!({
            "apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "p" },
            "spec": {
                "matchConstraints": { "resourceRules": rules },
                "validations": [{ "expression": "object.x > 1 &&" }, { "expression": "'text'" }],
            },
        }),
    );
    for text in [
        "spec.validations[0].expression: Invalid value: \"object.x > 1 &&\": compilation failed: ERROR: <input>:1:16: Syntax error: mismatched input '<EOF>'",
        "spec.validations[1].expression: Invalid value: \"'text'\": must evaluate to bool but got string",
    ] {
        assert!(refused.contains(text), "{refused}");
    }
    let refused = create(
        &cluster,
        &json!({
            "apiVersion": GROUP, "kind": "ValidatingWebhookConfiguration", "metadata": { "name": "w" },
            "webhooks": [{
                "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": { "url": "https://localhost/x" }, "rules": rules,
                "matchConditions": [{ "name": "bad", "expression": "has(object.metadata.namespace) && nope" }],
            }],
        }),
    );
    let text = "webhooks[0].matchConditions[0].expression: Invalid value: \"has(object.metadata.namespace) && nope\": compilation failed: ERROR: <input>:1:35: undeclared reference to 'nope' (in container '')";
    assert!(refused.contains(text), "{refused}");
}
