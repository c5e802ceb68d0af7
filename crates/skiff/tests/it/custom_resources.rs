//! Custom resources, driven by the real kubectl: what upstream's own tests of them expect
//! (`test/e2e/apimachinery/{custom_resource_definition,crd_*,field_validation}.go`).
use crate::cluster::Cluster;
use crate::controllers::{Controlled, autoscaler};
use serde_json::{Value, json};
use std::io::BufRead;

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [toys]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        description: Widget is a thing to play with
        properties:
          spec:
            type: object
            description: What it is like
            required: [color]
            properties:
              color: {type: string, maxLength: 5, description: its color}
              replicas: {type: integer, default: 2}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}
              any: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn with_widgets() -> Cluster {
    let cluster = Cluster::start();
    define(&cluster, WIDGETS);
    cluster
}

fn define(cluster: &Cluster, definition: &str) {
    let said = cluster.kubectl_with("create -f -", definition);
    assert!(said.ends_with(" created"), "{said}");
    let name = said.split([' ', '/']).nth(1).expect("a name").to_owned();
    let wait = format!("wait --for=condition=Established --timeout=10s crd/{name}");
    assert!(cluster.kubectl(&wait).ends_with("condition met"), "{name}");
}

fn widget(name: &str, spec: Value) -> String {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec })
    .to_string()
}

#[test]
fn a_definition_is_served_as_soon_as_it_says_so() {
    let cluster = with_widgets();
    let status = cluster.json("get crd widgets.example.com")["status"].clone();
    assert_eq!(status["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(status["storedVersions"], json!(["v1"]));
    let conditions: Vec<String> = status["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .map(|it| format!("{} {} {}: {}", it["type"], it["status"], it["reason"], it["message"]))
        .map(|text| text.replace('"', ""))
        .collect();
    assert_eq!(
        conditions,
        [
            "NamesAccepted True NoConflicts: no conflicts found",
            "Established True InitialNamesAccepted: the initial names have been accepted",
        ]
    );
    let created = cluster.kubectl_with("create -f -", &widget("a", json!({ "color": "red" })));
    assert_eq!(created, "widget.example.com/a created");
    let object = cluster.json("get wd a -n default");
    assert_eq!(object["spec"], json!({ "color": "red", "replicas": 2 }));
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(cluster.kubectl("get toys -n default"), "NAME   COLOR   REPLICAS\na      red     2");
    let older = cluster.json("get widgets.v1beta1.example.com a -n default");
    assert_eq!(
        (&older["apiVersion"], &older["spec"]),
        (&json!("example.com/v1beta1"), &object["spec"])
    );
    let named = |color: &str| {
        cluster.kubectl(&format!("get wd -n default --field-selector spec.color={color} -o name"))
    };
    assert_eq!((&*named("red"), &*named("blue")), ("widget.example.com/a", ""));
    assert_eq!(
        cluster.kubectl("get wd -n default --field-selector spec.replicas=2"),
        "error: Error from server (BadRequest): Unable to find \"example.com/v1, Resource=widgets\" that match label selector \"\", field selector \"spec.replicas=2\": field label not supported: spec.replicas"
    );
    let group = cluster.kubectl("get --raw /apis/example.com");
    let group: Value = serde_json::from_str(&group).expect("a group");
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    let explained = cluster.kubectl("explain widgets.spec");
    for part in ["What it is like", "color\t<string> -required-", "its color"] {
        assert!(explained.contains(part), "{explained}");
    }
    let explained = cluster.kubectl("explain widgets.metadata");
    assert!(explained.contains("CreationTimestamp is a timestamp"), "{explained}");
    let v2: Value = serde_json::from_str(&cluster.kubectl("get --raw /openapi/v2")).expect("JSON");
    let model = &v2["definitions"]["com.example.v1.Widget"];
    assert_eq!(model["properties"]["spec"]["required"], json!(["color"]));
    assert!(
        v2["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"].is_object()
    );
    assert!(v2["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
}

#[test]
fn objects_are_what_their_schema_says() {
    let cluster = with_widgets();
    let create = |spec: Value, flags: &str| {
        cluster.kubectl_with(&format!("create -f - {flags}"), &widget("a", spec))
    };
    assert_eq!(
        create(json!({ "color": "purple", "tags": ["x", "x"] }), "--validate=ignore"),
        "error: The Widget \"a\" is invalid: \n* spec.color: Too long: may not be more than 5 bytes\n* spec.tags[1]: Duplicate value: \"x\""
    );
    assert_eq!(
        create(json!({ "replicas": "two" }), "--validate=ignore"),
        "error: The Widget \"a\" is invalid: \n* spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"\n* spec.color: Required value\n* .spec.replicas: Invalid value: 0: .spec.replicas accessor error: two is of the type string, expected int64"
    );
    let strict = create(json!({ "color": "red", "colour": "red" }), "--validate=strict");
    assert_eq!(
        strict,
        "error: Error from server (BadRequest): error when creating \"STDIN\": Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.colour\""
    );
    let spec = json!({ "color": "red", "colour": "red", "any": { "x": { "y": 1 } },
        "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "n" }, "x": 1 } });
    assert_eq!(create(spec, "--validate=ignore"), "widget.example.com/a created");
    let object = cluster.json("get wd a -n default");
    assert_eq!(
        object["spec"],
        json!({ "color": "red", "replicas": 2, "any": { "x": { "y": 1 } },
            "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "n" } } })
    );
    // What the schema says later, old objects are read by.
    let patch = r#"[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size","value":{"type":"string","default":"M"}}]"#;
    let patched =
        cluster.kubectl_args(&["patch", "crd", "widgets.example.com", "--type=json", "-p", patch]);
    assert_eq!(
        patched,
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.com patched"
    );
    cluster.until("get wd a -n default -o jsonpath={.spec.size}", "M");
}

#[test]
fn every_patch_but_the_strategic_one() {
    let cluster = with_widgets();
    cluster.kubectl_with("create -f -", &widget("a", json!({ "color": "red" })));
    let patch = |kind: &str, patch: &str| {
        cluster.kubectl_args(&[
            "patch",
            "wd",
            "a",
            "-n",
            "default",
            &format!("--type={kind}"),
            "-p",
            patch,
        ])
    };
    assert_eq!(patch("merge", r#"{"spec":{"color":"blue"}}"#), "widget.example.com/a patched");
    let json_patch = r#"[{"op":"replace","path":"/spec/color","value":"green"}]"#;
    assert_eq!(patch("json", json_patch), "widget.example.com/a patched");
    let refused = patch("strategic", "{}");
    assert!(refused.contains("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"), "{refused}");
    assert_eq!(
        cluster.kubectl("scale wd a --replicas=7 -n default"),
        "widget.example.com/a scaled"
    );
    let status = r#"{"spec":{"color":"none"},"status":{"replicas":3,"selector":"a=b"}}"#;
    let said = cluster.kubectl_args(&[
        "patch",
        "wd",
        "a",
        "-n",
        "default",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ]);
    assert_eq!(said, "widget.example.com/a patched");
    let object = cluster.json("get wd a -n default");
    assert_eq!(object["spec"], json!({ "color": "green", "replicas": 7 }));
    assert_eq!(object["metadata"]["generation"], 4);
    let scale =
        cluster.kubectl("get --raw /apis/example.com/v1/namespaces/default/widgets/a/scale");
    let scale: Value = serde_json::from_str(&scale).expect("a scale");
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({ "replicas": 7 }), &json!({ "replicas": 3, "selector": "a=b" }))
    );
    // Applied: owned, merged, and refused where it is not declared or said twice.
    let apply = |body: &str| {
        let flags = "apply --server-side --force-conflicts --validate=strict -f -";
        cluster.kubectl_with(flags, body)
    };
    let head =
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: b, namespace: default}\n";
    assert_eq!(
        apply(&format!("{head}spec:\n  color: red\n")),
        "widget.example.com/b serverside-applied"
    );
    let unknown = apply(&format!("{head}spec:\n  color: red\nunknownField: x\n"));
    assert!(unknown.contains(".unknownField: field not declared in schema"), "{unknown}");
    let owners = cluster.json("get wd b -n default --show-managed-fields");
    assert_eq!(
        owners["metadata"]["managedFields"][0]["fieldsV1"],
        json!({ "f:spec": { "f:color": {} } })
    );
}

#[test]
fn names_are_given_once() {
    let cluster = with_widgets();
    let second = WIDGETS
        .replace("widgets", "gadgets")
        .replace("singular: widget", "singular: gadget")
        .replace("[wd]", "[gd]");
    let said = cluster.kubectl_with("create -f -", &second);
    assert!(said.ends_with(" created"), "{said}");
    let condition = "get crd gadgets.example.com -o jsonpath={.status.conditions[*].message}";
    cluster.until(condition, "\"WidgetList\" is already in use not all names are accepted");
    let missing = cluster.kubectl("get --raw /apis/example.com/v1/gadgets");
    assert!(missing.contains("could not find the requested resource"), "{missing}");
    // The name is free again: whoever waited gets it.
    cluster.kubectl("delete crd widgets.example.com");
    cluster.until(condition, "no conflicts found the initial names have been accepted");
    assert!(cluster.kubectl("get --raw /apis/example.com/v1/gadgets").contains("WidgetList"));
}

#[test]
fn a_definition_goes_after_its_objects() {
    let cluster = with_widgets();
    cluster.kubectl_with("create -f -", &widget("a", json!({ "color": "red" })));
    let held = widget("held", json!({ "color": "red" }))
        .replace(r#""name":"held""#, r#""name":"held","finalizers":["example.com/wait"]"#);
    cluster.kubectl_with("create -f -", &held);
    let (mut watch, mut events) =
        cluster.stream("get wd -n default --watch --output-watch-events -o jsonpath={.type}:{.object.metadata.name}{\"\\n\"}");
    let mut next = || {
        let mut line = String::new();
        events.read_line(&mut line).expect("an event");
        line.trim().to_owned()
    };
    assert!([next(), next()].iter().all(|event| event.starts_with("ADDED:")));
    cluster.kubectl("delete crd widgets.example.com --wait=false");
    assert_eq!(next(), "DELETED:a");
    assert_eq!(next(), "MODIFIED:held");
    let refused = cluster
        .kubectl_with("create -f - --validate=ignore", &widget("b", json!({ "color": "red" })));
    assert!(
        refused.contains("create not allowed while custom resource definition is terminating"),
        "{refused}"
    );
    let reason = "get crd widgets.example.com -o jsonpath={.status.conditions[?(@.type=='Terminating')].reason}";
    cluster.until(reason, "InstanceDeletionInProgress");
    let free = r#"{"metadata":{"finalizers":null}}"#;
    cluster.kubectl_args(&["patch", "wd", "held", "-n", "default", "--type=merge", "-p", free]);
    assert_eq!(next(), "DELETED:held");
    // The watch ends with its resource.
    assert!(watch.wait().is_ok());
    cluster.until(
        "get crd widgets.example.com",
        "error: Error from server (NotFound): customresourcedefinitions.apiextensions.k8s.io \"widgets.example.com\" not found",
    );
    let gone = cluster.kubectl("get --raw /apis/example.com/v1/widgets");
    assert!(gone.contains("could not find the requested resource"), "{gone}");
    // The same again begins with nothing.
    define(&cluster, WIDGETS);
    assert_eq!(cluster.kubectl("get wd -A"), "");
}

#[test]
fn a_definition_named_like_a_built_in_kind_is_nobody_elses() {
    let cluster = Cluster::start();
    for (plural, kind) in [
        ("events", "Event"),
        ("namespaces", "Namespace"),
        ("bindings", "Binding"),
        ("pods", "Pod"),
        ("services", "Service"),
    ] {
        define(
            &cluster,
            &json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": format!("{plural}.example.com") },
                "spec": { "group": "example.com", "scope": "Namespaced",
                    "names": { "plural": plural, "kind": kind },
                    "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                        "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
            .to_string(),
        );
        let object = json!({ "apiVersion": "example.com/v1", "kind": kind,
            "metadata": { "name": "a", "namespace": "default" }, "spec": { "finalizers": ["x"], "type": "ExternalName" } });
        let created = cluster.kubectl_with("create -f -", &object.to_string());
        assert_eq!(created, format!("{}.example.com/a created", kind.to_lowercase()));
        let path = format!("{plural}.example.com a -n default");
        assert_eq!(cluster.json(&format!("get {path}"))["spec"], object["spec"]);
        let deleted = cluster.kubectl(&format!("delete {path}"));
        assert!(deleted.contains("deleted"), "{deleted}");
        assert!(cluster.kubectl(&format!("get {path}")).contains("NotFound"));
    }
}

#[test]
fn definitions_outlive_a_restart() {
    let mut cluster = with_widgets();
    cluster.kubectl_with("create -f -", &widget("a", json!({ "color": "red" })));
    cluster.crash_and_restart();
    assert_eq!(cluster.kubectl("get wd -n default -o name"), "widget.example.com/a");
}

const FLEETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {replicas: {type: integer}}
            x-kubernetes-validations:
            - {rule: self.replicas <= 5, message: too many ships, fieldPath: .replicas}
            - {rule: self.replicas >= oldSelf.replicas - 2, messageExpression: \"oldSelf.replicas > 4 ? 'not from so many' : 'not so few'\"}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
";

fn fleet(replicas: i64) -> String {
    json!({ "apiVersion": "example.com/v1", "kind": "Fleet",
        "metadata": { "name": "f", "namespace": "default" }, "spec": { "replicas": replicas } })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn autoscalers_scale_custom_objects() {
    let it = Controlled::start();
    tokio::task::block_in_place(|| define(&it.cluster, FLEETS));
    it.create(&fleet(3));
    assert_eq!(it.kubectl("scale fleet f --replicas=4"), "fleet.example.com/f scaled");
    it.create(&autoscaler("f", "{ apiVersion: example.com/v1, kind: Fleet, name: f }"));
    it.until("get fleet f -o jsonpath={.spec.replicas}", "2");
    let able = "get hpa f -o jsonpath={.status.conditions[?(@.type=='AbleToScale')].status}";
    it.until(able, "True");
}

#[test]
fn a_definitions_own_rules_hold() {
    let cluster = Cluster::start();
    let wrong = FLEETS.replace("self.replicas <= 5", "self.ships <= 5");
    let said = cluster.kubectl_with("create -f -", &wrong);
    assert!(said.contains("spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value"), "{said}");
    assert!(said.contains("undefined field 'ships'"), "{said}");
    define(&cluster, FLEETS);
    let said = cluster.kubectl_with("create -f -", &fleet(6));
    let prefix = "error: The Fleet \"f\" is invalid: ";
    assert_eq!(said, format!("{prefix}spec.replicas: Invalid value: too many ships"));
    assert_eq!(cluster.kubectl_with("create -f -", &fleet(5)), "fleet.example.com/f created");
    let patch = |replicas: i64| {
        let patch = json!({ "spec": { "replicas": replicas } }).to_string();
        cluster.kubectl_args(&[
            "patch",
            "fleet",
            "f",
            "-n",
            "default",
            "--type=merge",
            "-p",
            &patch,
        ])
    };
    assert_eq!(patch(1), format!("{prefix}spec: Invalid value: not from so many"));
    assert_eq!(patch(4), "fleet.example.com/f patched");
    let said = cluster.kubectl_with("apply --server-side --force-conflicts -f -", &fleet(7));
    assert!(said.contains("spec.replicas: Invalid value: too many ships"), "{said}");
}
