//! Policies as data: what one finds in an object, and what one makes of it.
use super::compiled::{Mutating, Validating};
use super::input::{Input, Scope};
use super::mutation::{self, Fault};
use super::validating;
use crate::admission::webhook::Named;
use api::kinds::find_kind;
use cel::{Authorizer, Check, Decision};
use serde_json::{Value, json};

/// Lets everybody get, and nothing else.
struct Readers;

impl Authorizer for Readers {
    fn decide(&self, account: Option<(&str, &str)>, check: &Check) -> Decision {
        let who = account.map_or("user", |(_, name)| name);
        let reason = format!("{who} {} {}/{}", check.verb, check.group, check.resource);
        Decision { allowed: check.verb == "get", reason, error: None }
    }
}

fn with_input<T>(object: &Value, run: impl FnOnce(Input<'_>) -> T) -> T {
    let request = json!({
        "operation": "CREATE", "name": "web", "namespace": "shop", "dryRun": false,
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "userInfo": {"username": "ann", "groups": ["staff"]},
    });
    let namespace =
        json!({"metadata": {"name": "shop", "creationTimestamp": "2020-01-01T00:00:00Z"}});
    let params = json!({"data": {"most": "5"}});
    let (old, authorizer) = (&Value::Null, &Readers);
    let (request, namespace, params) = (&request, &namespace, &params);
    run(Input { object, old, request, namespace, params, authorizer })
}

/// What one expression, as a validation, has against a deployment.
fn found(expression: &str) -> String {
    let policy = json!({ "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [
            {"name": "n", "expression": "object.spec.replicas"},
            {"name": "twice", "expression": "variables.n * 2"},
            {"name": "broken", "expression": "object.nope"},
        ],
        "validations": [{"expression": expression, "messageExpression": "'n is ' + string(variables.n)"}],
    }});
    let policy = serde_json::from_value(policy).expect("a policy");
    let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3}});
    let denials =
        with_input(&object, |input| validating::messages(&Validating::compile(&policy), input));
    denials.join("; ")
}

#[test]
fn validations_see_what_upstream_gives_them() {
    for (expression, expected) in [
        ("object.spec.replicas == 3", ""),
        ("object.spec.replicas > 3", "n is 3"),
        ("variables.twice == 6", ""),
        ("has(variables.twice) && variables.n < int(params.data.most)", ""),
        (
            "variables.broken > 1",
            "expression 'variables.broken > 1' resulted in error: composited variable \"broken\" fails to evaluate: no such key: nope",
        ),
        ("oldObject == null", ""),
        ("request.operation == 'CREATE' && request.resource.resource == 'deployments'", ""),
        ("!has(request.subResource) && 'staff' in request.userInfo.groups", ""),
        ("namespaceObject.metadata.creationTimestamp < timestamp('2021-01-01T00:00:00Z')", ""),
        ("authorizer.group('').resource('nodes').check('get').allowed()", ""),
        ("authorizer.group('').resource('nodes').check('delete').allowed()", "n is 3"),
        ("authorizer.requestResource.check('get').reason() == 'user get apps/deployments'", ""),
        (
            "authorizer.serviceAccount('shop', 'bot').path('/x').check('get').reason() == 'bot get /'",
            "",
        ),
        ("object.spec.nope", "compilation error: must evaluate to bool but got dyn"),
        (
            "variables.nope",
            "compilation error: compilation failed: ERROR: <input>:1:10: undefined field 'nope'\n | variables.nope\n | .........^",
        ),
        (
            "request.nope == 1",
            "compilation error: compilation failed: ERROR: <input>:1:8: undefined field 'nope'\n | request.nope == 1\n | .......^",
        ),
        (
            "lists.range(300000).all(x, x >= 0)",
            "expression 'lists.range(300000).all(x, x >= 0)' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
    ] {
        assert_eq!(found(expression), expected, "{expression}");
    }
}

#[test]
fn an_expression_that_would_explode_is_cut_short() {
    let doubling = format!("'x'{} == ''", ".replace('', 'xxxxxxxxxxxxxxxx')".repeat(20));
    let pattern = "'a'.matches('(a{0,500}){0,500}' + string(variables.n))".to_owned();
    let pairs = "lists.range(5000).all(a, lists.range(5000).all(b, a + b >= 0))".to_owned();
    let nested = format!("{}true{}", "[1].all(x, ".repeat(100), ")".repeat(100));
    let brackets = format!("{}true{}", "(".repeat(50_000), ")".repeat(50_000));
    let long = format!("'{}' == ''", "x".repeat(200_000));
    for expression in [doubling, pattern, pairs, nested, brackets, long] {
        let begun = std::time::Instant::now();
        let denied = found(&expression);
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:.80}", expression);
        // What is judged true is fine; what is not is told without being shown whole again and again.
        assert!(
            denied.len() < 4 * expression.len() + 10_000,
            "{:.80}: {}",
            expression,
            denied.len()
        );
    }
}

/// A deployment after one mutation.
fn changed(kind: &str, expression: &str) -> Result<Value, String> {
    let field = if kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
    let policy = json!({ "spec": { "mutations": [
        {"patchType": kind, field: {"expression": expression}},
    ]}});
    let policy = serde_json::from_value(policy).expect("a policy");
    let compiled = Mutating::compile(&policy);
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "web", "image": "x"}]}}},
    });
    let target = Named::of(&find_kind("apps/v1", "Deployment").expect("a kind").into(), None);
    let changed = with_input(&object, |input| {
        let scope = Scope::new(input, &compiled.composed.variables);
        mutation::apply(&compiled.mutations[0], &scope, &object, &target)
    });
    changed.map_err(|fault| match fault {
        Fault::Failed(message) => message,
        Fault::Refused(status) => format!("{}: {}", status.code, status.message),
    })
}

#[test]
fn mutations_merge_and_patch() {
    let apply = |expression: &str| changed("ApplyConfiguration", expression);
    let object = apply("Object{metadata: Object.metadata{labels: {'c': 'd'}}, spec: Object.spec{replicas: object.spec.replicas + 1}}").expect("it applies");
    assert_eq!(object["metadata"]["labels"], json!({"a": "b", "c": "d"}));
    assert_eq!(object["spec"]["replicas"], 4);
    let object = apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'web', image: 'y'}]}}}}").expect("it applies");
    let containers = &object["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[0]["image"], &containers[1]), (&json!("y"), &Value::Null));
    let patch = |expression: &str| changed("JSONPatch", expression);
    let object = patch("[JSONPatch{op: 'test', path: '/spec/replicas', value: 3}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 9}]").expect("it applies");
    assert_eq!(object["spec"]["replicas"], 9);
    let object = patch("[JSONPatch{op: 'test', path: '/spec/replicas', value: 8}, JSONPatch{op: 'remove', path: '/spec'}]").expect("it applies");
    assert_eq!(object["spec"]["replicas"], 3);
}

#[test]
fn mutations_that_cannot_be() {
    for (kind, expression, expected) in [
        (
            "ApplyConfiguration",
            "Object{spec: Object.other{}}",
            "type mismatch: unexpected type name \"Object.other\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (
            "ApplyConfiguration",
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            "ApplyConfiguration",
            "{'spec': 1}",
            "compilation error: must evaluate to Object but got map(string, int)",
        ),
        (
            "JSONPatch",
            "[1]",
            "compilation error: must evaluate to list(JSONPatch) but got list(int)",
        ),
        (
            "JSONPatch",
            "[JSONPatch{nope: 1}]",
            "compilation error: compilation failed: ERROR: <input>:1:16: undefined field 'nope'\n | [JSONPatch{nope: 1}]\n | ...............^",
        ),
        (
            "JSONPatch",
            "[JSONPatch{op: 'add', path: '/spec/nope', value: 1}]",
            "500: Internal error occurred: strict decoding error: unknown field \"spec.nope\"",
        ),
    ] {
        assert_eq!(changed(kind, expression).expect_err("it fails"), expected, "{expression}");
    }
}
