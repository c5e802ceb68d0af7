//! Server-side apply as data: a story of writes, and what the object and its managers are after
//! each.
use super::typed::View;
use super::*;
use crate::schema::{self, Schema, TypeRef};
use crate::status::Status;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TABLE: &str = "\
package meta/v1 m
struct ObjectMeta
name 1 string
namespace 2 string
uid 3 string
labels 4 {string}
annotations 5 {string}
finalizers 6 []string list=set
package t/v1 t group=t
struct Thing
kind 0 string
apiVersion 0 string
metadata 1 meta/v1.ObjectMeta
spec 2 Spec
status 3 Status
struct Spec
replicas 1 *int32
text 2 string
flag 3 bool
whole 4 []string
tags 5 []string list=set
ports 6 []Port list=map:port,protocol
atom 7 *Atom
options 8 {string} atomic
child 9 *Spec
raw 10 RawExtension
free 11 JSON
limits 12 {Quantity}
struct Port
port 1 int32 required
protocol 2 string default=\"TCP\"
name 3 string
struct Atom atomic
a 1 string
b 2 string
struct Status
ready 1 int32
conditions 2 []Condition list=map:type
struct Condition
type 1 string
status 2 string
package t/v2 t2 group=t
struct Thing
kind 0 string
apiVersion 0 string
metadata 1 meta/v1.ObjectMeta
spec 2 Spec
struct Spec
count 1 *int32
text 2 string";

/// What a story may set up beside its steps.
#[derive(Default)]
struct World {
    reset: BTreeMap<String, Filter>,
    subresource: &'static str,
    view: Option<View>,
}

impl World {
    /// Tells `story`, one step a line, and shows what each step leads to. A step is
    /// `apply|force|update MANAGER {…}`, with `spec` in YAML, or `… {metadata: …, spec: …}` when
    /// it begins with `metadata`; `@v2` uses the other version. Each step is a second later.
    fn tell(&self, story: &str) -> String {
        let schema = Schema::parse(TABLE).unwrap();
        let types = |version: &str| schema.named(&format!("{version}.Thing"));
        let mut live = json!({"apiVersion": "t/v1", "kind": "Thing"});
        let mut shown = String::new();
        for (second, line) in story.lines().map(str::trim).filter(|l| !l.is_empty()).enumerate() {
            let (verb, rest) = line.split_once(' ').unwrap();
            let (manager, object) = rest.split_once(' ').unwrap();
            let (manager, version) = match manager.split_once('@') {
                Some((manager, version)) => (manager, format!("t/{version}")),
                None => (manager, "t/v1".to_owned()),
            };
            let mut object: Value = serde_saphyr::from_str(object).unwrap();
            if object.get("metadata").is_none() && object.get("status").is_none() {
                object = json!({ "spec": object });
            }
            for (key, value) in [("apiVersion", &*version), ("kind", "Thing")] {
                object.as_object_mut().unwrap().entry(key).or_insert_with(|| value.into());
            }
            let manager_of_fields = FieldManager {
                api_version: &version,
                kind: "Thing",
                subresource: self.subresource,
                types: &types,
                convert: &convert,
                reset: &self.reset,
                view: self.view.unwrap_or(View::Tree),
                unchecked: false,
            };
            let now = jiff::Timestamp::from_second(second as i64).unwrap();
            let before = match version.as_str() {
                "t/v1" => live.clone(),
                other => convert(&live, "t/v1", other).unwrap(),
            };
            let outcome = match verb {
                "apply" => manager_of_fields.apply(&before, &object, manager, false, now),
                "force" => manager_of_fields.apply(&before, &object, manager, true, now),
                "update" => manager_of_fields.update(&before, object, manager, now),
                _ => panic!("no such step: {verb}"),
            };
            match outcome {
                Ok(object) if version == "t/v1" => live = object,
                Ok(object) => live = convert(&object, &version, "t/v1").unwrap(),
                Err(error) => {
                    let status = Status::from(error);
                    shown += &format!("{} {}\n", status.code, status.message);
                }
            }
        }
        shown + &show(&live)
    }
}

/// The two versions differ in what they call the replicas.
fn convert(object: &Value, from: &str, to: &str) -> Result<Value, ConvertError> {
    let mut object = object.clone();
    let (old, new) = match (from, to) {
        ("t/v1", "t/v2") => ("replicas", "count"),
        ("t/v2", "t/v1") => ("count", "replicas"),
        _ => return Err(ConvertError::MissingVersion),
    };
    object["apiVersion"] = to.into();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(old)
    {
        spec.insert(new.to_owned(), value);
    }
    Ok(object)
}

/// The object without what every object has, then a line for each manager.
fn show(object: &Value) -> String {
    let mut object = object.clone();
    let managers = managed_fields::take(&mut object).unwrap_or_default();
    let map = object.as_object_mut().unwrap();
    map.remove("apiVersion");
    map.remove("kind");
    map.retain(|_, value| *value != json!({}));
    let mut lines = vec![object.to_string()];
    let managed = ManagedFields::decode(Some(&managers)).unwrap();
    for entry in managed.entries() {
        let manager = &entry.manager;
        let (name, operation) = (&manager.name, manager.operation.as_str());
        let version = manager.api_version.trim_start_matches("t/");
        let slash = if manager.subresource.is_empty() { "" } else { "/" };
        let time = entry.time.map_or("-".to_owned(), |time| time.as_second().to_string());
        let fields = entry.fields().to_json();
        let subresource = &manager.subresource;
        lines.push(format!("{name} {operation} {version}{slash}{subresource} at {time}: {fields}"));
    }
    lines.join("\n")
}

fn check(story: &str, expected: Expect) {
    expected.assert_eq(&World::default().tell(story));
}

#[test]
fn an_applier_owns_what_it_mentions() {
    check(
        "apply ann {replicas: 1, tags: [a], ports: [{port: 80}], atom: {a: x}, options: {o: x}, whole: [w]}",
        expect![[r#"
            {"spec":{"atom":{"a":"x"},"options":{"o":"x"},"ports":[{"port":80}],"replicas":1,"tags":["a"],"whole":["w"]}}
            ann Apply v1 at 0: {"f:spec":{"f:atom":{},"f:options":{},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:replicas":{},"f:tags":{"v:\"a\"":{}},"f:whole":{}}}"#]],
    );
}

#[test]
fn identity_and_server_fields_are_never_owned() {
    check(
        "apply ann {metadata: {name: web, namespace: s, labels: {a: x}}}",
        expect![[r#"
            {"metadata":{"labels":{"a":"x"},"name":"web","namespace":"s"}}
            ann Apply v1 at 0: {"f:metadata":{"f:labels":{"f:a":{}}}}"#]],
    );
    check("apply ann {metadata: {name: web}}", expect![[r#"{"metadata":{"name":"web"}}"#]]);
}

#[test]
fn changing_what_another_owns_is_a_conflict() {
    check(
        "apply ann {replicas: 1, text: x}
         apply bob {replicas: 2}",
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "ann": .spec.replicas
            {"spec":{"replicas":1,"text":"x"}}
            ann Apply v1 at 0: {"f:spec":{"f:replicas":{},"f:text":{}}}"#]],
    );
    check(
        "update cli {replicas: 1, ports: [{port: 80, name: a}]}
         apply ann {text: x}
         apply bob {replicas: 2, text: z, ports: [{port: 80, name: b}]}",
        expect![[r#"
            409 Apply failed with 3 conflicts: conflicts with "ann":
            - .spec.text
            conflicts with "cli" using t/v1:
            - .spec.replicas
            - .spec.ports[port=80,protocol="TCP"].name
            {"spec":{"ports":[{"name":"a","port":80}],"replicas":1,"text":"x"}}
            ann Apply v1 at 1: {"f:spec":{"f:text":{}}}
            cli Update v1 at 0: {"f:spec":{".":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}},"f:replicas":{}}}"#]],
    );
}

#[test]
fn a_conflict_is_told_as_a_status() {
    let schema = Schema::parse(TABLE).unwrap();
    let types = |version: &str| schema.named(&format!("{version}.Thing"));
    let fields = FieldManager {
        api_version: "t/v1",
        kind: "Thing",
        subresource: "status",
        types: &types,
        convert: &convert,
        reset: &BTreeMap::new(),
        view: View::Tree,
        unchecked: false,
    };
    let thing = |n: i64| json!({"apiVersion": "t/v1", "kind": "Thing", "status": {"ready": n}});
    let now = jiff::Timestamp::UNIX_EPOCH;
    let live = fields.update(&Value::Null, thing(1), "a\"b", now).unwrap();
    let error = fields.apply(&live, &thing(2), "bob", false, now).unwrap_err();
    expect![[r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Apply failed with 1 conflict: conflict with \"a\\\"b\" with subresource \"status\" using t/v1: .status.ready","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"a\\\"b\" with subresource \"status\" using t/v1","field":".status.ready"}]},"code":409}"#]]
    .assert_eq(&serde_json::to_string(&Status::from(error)).unwrap());
}

#[test]
fn force_takes_the_field_over() {
    check(
        "apply ann {replicas: 1, text: x}
         force bob {replicas: 2}",
        expect![[r#"
            {"spec":{"replicas":2,"text":"x"}}
            ann Apply v1 at 0: {"f:spec":{"f:text":{}}}
            bob Apply v1 at 1: {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn agreeing_on_a_value_shares_it() {
    check(
        "apply ann {replicas: 1}
         apply bob {replicas: 1}
         apply ann {replicas: 2}",
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "bob": .spec.replicas
            {"spec":{"replicas":1}}
            ann Apply v1 at 0: {"f:spec":{"f:replicas":{}}}
            bob Apply v1 at -: {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn what_is_no_longer_applied_is_removed() {
    check(
        "apply ann {replicas: 1, text: x, tags: [a, b], ports: [{port: 80}, {port: 81}]}
         apply ann {replicas: 1, tags: [b], ports: [{port: 81}]}",
        expect![[r#"
            {"spec":{"ports":[{"port":81}],"replicas":1,"tags":["b"]}}
            ann Apply v1 at 1: {"f:spec":{"f:ports":{"k:{\"port\":81,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:replicas":{},"f:tags":{"v:\"b\"":{}}}}"#]],
    );
    check(
        "apply ann {child: {child: {text: x}}, limits: {cpu: 1}}
         apply ann {text: x}",
        expect![[r#"
            {"spec":{"text":"x"}}
            ann Apply v1 at 1: {"f:spec":{"f:text":{}}}"#]],
    );
}

#[test]
fn what_is_no_longer_applied_stays_if_another_owns_it() {
    check(
        "apply ann {replicas: 1, text: x, ports: [{port: 80, name: web}]}
         apply bob {replicas: 1, ports: [{port: 80}]}
         apply ann {text: x}",
        expect![[r#"
            {"spec":{"ports":[{"port":80}],"replicas":1,"text":"x"}}
            bob Apply v1 at -: {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:replicas":{}}}
            ann Apply v1 at 2: {"f:spec":{"f:text":{}}}"#]],
    );
    check(
        "apply ann {replicas: 1}
         update bob {replicas: 1, text: x}
         update bob {replicas: 2, text: x}
         apply ann {flag: true}",
        expect![[r#"
            {"spec":{"flag":true,"replicas":2,"text":"x"}}
            ann Apply v1 at 3: {"f:spec":{"f:flag":{}}}
            bob Update v1 at 2: {"f:spec":{"f:replicas":{},"f:text":{}}}"#]],
    );
}

#[test]
fn nobody_owns_what_was_removed() {
    check(
        "apply ann {replicas: 1, tags: [a, b]}
         update bob {tags: [b, c]}",
        expect![[r#"
            {"spec":{"tags":["b","c"]}}
            ann Apply v1 at 0: {"f:spec":{"f:tags":{"v:\"b\"":{}}}}
            bob Update v1 at 1: {"f:spec":{"f:tags":{"v:\"c\"":{}}}}"#]],
    );
}

#[test]
fn an_update_owns_what_it_changed() {
    check(
        "update ann {replicas: 1, text: x}
         update bob {replicas: 2, text: x, flag: true}
         update bob {replicas: 2, text: z, flag: true}",
        expect![[r#"
            {"spec":{"flag":true,"replicas":2,"text":"z"}}
            ann Update v1 at 0: {"f:spec":{}}
            bob Update v1 at 2: {"f:spec":{"f:flag":{},"f:replicas":{},"f:text":{}}}"#]],
    );
}

#[test]
fn typed_structs_exist_before_anyone_sets_them() {
    let world = World { view: Some(View::Typed), ..World::default() };
    expect![[r#"
        {"spec":{"atom":{"a":"x"},"flag":false,"replicas":0,"tags":[],"text":"x"}}
        ann Update v1 at 0: {"f:spec":{"f:atom":{},"f:replicas":{},"f:text":{}}}"#]]
    .assert_eq(
        &world.tell("update ann {replicas: 0, text: x, flag: false, tags: [], atom: {a: x}}"),
    );
}

#[test]
fn a_write_that_changes_nothing_changes_no_time() {
    check(
        "apply ann {replicas: 1}
         update bob {replicas: 1}
         apply ann {replicas: 1}
         update ann {replicas: 1}",
        expect![[r#"
            {"spec":{"replicas":1}}
            ann Apply v1 at 0: {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn atomic_values_have_one_owner() {
    check(
        "apply ann {whole: [a], atom: {a: x}, options: {a: x}, raw: {deep: {a: 1}}}
         apply bob {whole: [a, b]}
         apply bob {atom: {b: z}}
         apply bob {options: {b: z}}
         apply bob {raw: {deep: {b: 1}}}",
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "ann": .spec.whole
            409 Apply failed with 1 conflict: conflict with "ann": .spec.atom
            409 Apply failed with 1 conflict: conflict with "ann": .spec.options
            409 Apply failed with 1 conflict: conflict with "ann": .spec.raw
            {"spec":{"atom":{"a":"x"},"options":{"a":"x"},"raw":{"deep":{"a":1}},"whole":["a"]}}
            ann Apply v1 at 0: {"f:spec":{"f:atom":{},"f:options":{},"f:raw":{},"f:whole":{}}}"#]],
    );
}

#[test]
fn values_without_a_schema_have_parts_by_their_keys() {
    check(
        "apply ann {free: {a: {x: 1}, l: [1]}}
         apply bob {free: {a: {z: 1}}}",
        expect![[r#"
            {"spec":{"free":{"a":{"x":1,"z":1},"l":[1]}}}
            ann Apply v1 at 0: {"f:spec":{"f:free":{"f:a":{".":{},"f:x":{}},"f:l":{}}}}
            bob Apply v1 at 1: {"f:spec":{"f:free":{"f:a":{".":{},"f:z":{}}}}}"#]],
    );
}

#[test]
fn lists_keep_the_order_of_who_applied_last() {
    check(
        "apply ann {tags: [a, b, c]}
         apply bob {tags: [c, x, a]}",
        expect![[r#"
            {"spec":{"tags":["b","c","x","a"]}}
            ann Apply v1 at 0: {"f:spec":{"f:tags":{"v:\"a\"":{},"v:\"b\"":{},"v:\"c\"":{}}}}
            bob Apply v1 at 1: {"f:spec":{"f:tags":{"v:\"a\"":{},"v:\"c\"":{},"v:\"x\"":{}}}}"#]],
    );
}

#[test]
fn a_key_left_out_has_its_default() {
    check(
        "apply ann {ports: [{port: 80, name: a}]}
         apply bob {ports: [{port: 80, protocol: TCP}, {port: 80, protocol: UDP}]}",
        expect![[r#"
            {"spec":{"ports":[{"name":"a","port":80,"protocol":"TCP"},{"port":80,"protocol":"UDP"}]}}
            ann Apply v1 at 0: {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}
            bob Apply v1 at 1: {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}"#]],
    );
}

#[test]
fn a_list_may_have_duplicates_but_not_apply_them() {
    check(
        "update ann {tags: [a, a, b], ports: [{port: 80}, {port: 80, name: x}]}
         apply bob {tags: [a, a]}
         apply bob {ports: [{port: 80}, {port: 80}]}
         apply bob {tags: [b]}",
        expect![[r#"
            500 failed to create typed patch object (/; t/v1, Kind=Thing): .spec.tags: duplicate entries for key [="a"]
            500 failed to create typed patch object (/; t/v1, Kind=Thing): .spec.ports: duplicate entries for key [port=80,protocol="TCP"]
            {"spec":{"ports":[{"port":80},{"name":"x","port":80}],"tags":["a","a","b"]}}
            bob Apply v1 at -: {"f:spec":{"f:tags":{"v:\"b\"":{}}}}
            ann Update v1 at 0: {"f:spec":{".":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{}},"f:tags":{".":{},"v:\"a\"":{},"v:\"b\"":{}}}}"#]],
    );
}

#[test]
fn a_configuration_must_fit_the_schema() {
    check(
        "apply ann {metadata: {name: web, namespace: s}, spec: {bogus: 1}}
         apply ann {replicas: many}
         apply ann {text: 5, flag: no-bool}
         apply ann {tags: x, limits: [], child: 1}
         apply ann {ports: [{name: x, protocol: null}, 1]}
         apply ann {metadata: {managedFields: []}}
         apply ann@v2 {metadata: {}, apiVersion: t/v1}",
        expect![[r#"
            500 failed to create typed patch object (s/web; t/v1, Kind=Thing): .spec.bogus: field not declared in schema
            500 failed to create typed patch object (/; t/v1, Kind=Thing): .spec.replicas: expected numeric (int or float), got string
            500 failed to create typed patch object (/; t/v1, Kind=Thing): errors:
              .spec.flag: expected boolean, got &{no-bool}
              .spec.text: expected string, got &value.valueUnstructured{Value:5}
            500 failed to create typed patch object (/; t/v1, Kind=Thing): errors:
              .spec.child: expected map, got &{1}
              .spec.limits: expected map, got &{[]}
              .spec.tags: expected list, got &{x}
            500 failed to create typed patch object (/; t/v1, Kind=Thing): .spec.ports: element 1: associative list with keys may not have non-map elements
            400 metadata.managedFields must be nil
            400 invalid object type: t/v1, Kind=Thing
            {}"#]],
    );
}

#[test]
fn what_an_endpoint_ignores_is_not_owned() {
    let mut world = World::default();
    world.reset.insert("t/v1".to_owned(), Filter::exclude(&[&["status"]]));
    expect![[r#"
        {"spec":{"replicas":1},"status":{"ready":1}}
        ann Apply v1 at 0: {"f:spec":{"f:replicas":{}}}"#]]
    .assert_eq(&world.tell("apply ann {spec: {replicas: 1}, status: {ready: 1}}"));
    world.reset.insert(
        "t/v1".to_owned(),
        Filter::include(&[&["status"], &["spec", "ports", "*", "name"]]),
    );
    expect![[r#"
        {"spec":{"ports":[{"name":"a","port":80}],"replicas":1},"status":{"ready":1}}
        ann Apply v1 at 0: {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{}}}},"f:status":{"f:ready":{}}}"#]]
    .assert_eq(&world.tell(
        "apply ann {spec: {replicas: 1, ports: [{port: 80, name: a}]}, status: {ready: 1}}",
    ));
}

#[test]
fn a_subresource_is_another_manager_and_may_not_edit_the_list() {
    let world = World { subresource: "status", ..World::default() };
    expect![[r#"
        {"status":{"ready":2}}
        ann Update v1/status at 1: {"f:status":{".":{},"f:ready":{}}}"#]]
    .assert_eq(&world.tell(
        "update ann {status: {ready: 1}}
         update ann {metadata: {managedFields: []}, status: {ready: 2}}",
    ));
}

#[test]
fn an_applier_keeps_its_identity_across_versions() {
    check(
        "apply ann {replicas: 1, text: x}
         apply ann@v2 {text: x}",
        expect![[r#"
            {"spec":{"text":"x"}}
            ann Apply v2 at 1: {"f:spec":{"f:text":{}}}"#]],
    );
    check(
        "apply ann@v2 {count: 1, text: x}
         apply bob {replicas: 2}
         force bob {replicas: 3}
         apply ann@v2 {text: x}",
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "ann": .spec.count
            {"spec":{"replicas":3,"text":"x"}}
            ann Apply v2 at 0: {"f:spec":{"f:text":{}}}
            bob Apply v1 at 2: {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn managers_of_a_version_that_is_gone_are_forgotten() {
    check(
        r#"update ann {metadata: {managedFields: [{manager: old, operation: Update, apiVersion: t/v0, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:text": {}}}}]}, spec: {text: x}}
         update bob {replicas: 1, text: x}"#,
        expect![[r#"
            {"spec":{"replicas":1,"text":"x"}}
            ann Update v1 at 0: {"f:spec":{".":{},"f:text":{}}}
            bob Update v1 at 1: {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn ownership_of_parts_becomes_ownership_of_what_turned_atomic() {
    check(
        r#"update ann {atom: {a: x}, options: {o: x}}
         update ann {metadata: {managedFields: [{manager: old, operation: Apply, apiVersion: t/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:atom": {"f:a": {}}, "f:options": {".": {}, "f:o": {}}}}}]}, spec: {atom: {a: x}, options: {o: x}}}
         apply bob {atom: {a: z}}"#,
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "old": .spec.atom
            {"spec":{"atom":{"a":"x"},"options":{"o":"x"}}}
            old Apply v1 at -: {"f:spec":{"f:atom":{},"f:options":{}}}"#]],
    );
}

#[test]
fn the_list_of_managers_can_be_reset_and_stays_so_until_applied_to() {
    check(
        "update ann {metadata: {uid: u}, spec: {replicas: 1}}
         update ann {metadata: {uid: u, managedFields: [{}]}, spec: {replicas: 1}}
         update bob {metadata: {uid: u}, spec: {replicas: 2}}",
        expect![[r#"{"metadata":{"uid":"u"},"spec":{"replicas":2}}"#]],
    );
    check(
        "update ann {metadata: {uid: u, managedFields: []}, spec: {replicas: 1}}
         update ann {metadata: {uid: u, managedFields: []}, spec: {replicas: 1, text: x}}
         apply bob {replicas: 1}
         apply bob {text: z}",
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "before-first-apply" using t/v1: .spec.text
            {"metadata":{"uid":"u"},"spec":{"replicas":1,"text":"x"}}
            bob Apply v1 at -: {"f:spec":{"f:replicas":{}}}
            before-first-apply Update v1 at 2: {"f:spec":{".":{},"f:replicas":{},"f:text":{}}}"#]],
    );
}

#[test]
fn a_client_that_knows_no_managers_does_not_lose_them() {
    check(
        "apply ann {replicas: 1}
         update bob {metadata: {managedFields: [{manager: x, operation: Nonsense}]}, spec: {replicas: 1, text: x}}",
        expect![[r#"
            {"spec":{"replicas":1,"text":"x"}}
            ann Apply v1 at 0: {"f:spec":{"f:replicas":{}}}
            bob Update v1 at 1: {"f:spec":{"f:text":{}}}"#]],
    );
}

#[test]
fn many_updaters_are_merged_into_ancient_changes() {
    let story: String =
        (0..13).map(|i| format!("update m{i:02} {{limits: {{{}}}}}\n", limits(i))).collect();
    check(
        &story,
        expect![[r#"
            {"spec":{"limits":{"l00":"1","l01":"1","l02":"1","l03":"1","l04":"1","l05":"1","l06":"1","l07":"1","l08":"1","l09":"1","l10":"1","l11":"1","l12":"1"}}}
            ancient-changes Update v1 at 3: {"f:spec":{".":{},"f:limits":{".":{},"f:l00":{},"f:l01":{},"f:l02":{},"f:l03":{}}}}
            m04 Update v1 at 4: {"f:spec":{"f:limits":{"f:l04":{}}}}
            m05 Update v1 at 5: {"f:spec":{"f:limits":{"f:l05":{}}}}
            m06 Update v1 at 6: {"f:spec":{"f:limits":{"f:l06":{}}}}
            m07 Update v1 at 7: {"f:spec":{"f:limits":{"f:l07":{}}}}
            m08 Update v1 at 8: {"f:spec":{"f:limits":{"f:l08":{}}}}
            m09 Update v1 at 9: {"f:spec":{"f:limits":{"f:l09":{}}}}
            m10 Update v1 at 10: {"f:spec":{"f:limits":{"f:l10":{}}}}
            m11 Update v1 at 11: {"f:spec":{"f:limits":{"f:l11":{}}}}
            m12 Update v1 at 12: {"f:spec":{"f:limits":{"f:l12":{}}}}"#]],
    );
}

fn limits(upto: usize) -> String {
    (0..=upto).map(|i| format!("l{i:02}: \"1\"")).collect::<Vec<_>>().join(", ")
}

const LAST_APPLIED: &str =
    r#"'{"apiVersion":"t/v1","kind":"Thing","spec":{"replicas":1,"text":"x"}}'"#;

#[test]
fn kubectl_takes_over_what_it_applied_in_the_old_way() {
    let story = |text: &str| {
        format!(
            "update kubectl-client-side-apply {{metadata: {{annotations: {{kubectl.kubernetes.io/last-applied-configuration: {LAST_APPLIED}}}}}, spec: {{replicas: 1, text: {text}}}}}
             apply kubectl {{replicas: 3, text: z}}"
        )
    };
    check(
        &story("x"),
        expect![[r#"
            {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"t/v1\",\"kind\":\"Thing\",\"spec\":{\"replicas\":3,\"text\":\"z\"}}\n"}},"spec":{"replicas":3,"text":"z"}}
            kubectl Apply v1 at 1: {"f:spec":{"f:replicas":{},"f:text":{}}}
            kubectl-client-side-apply Update v1 at 0: {"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}},"f:spec":{}}"#]],
    );
    // Somebody changed the text since.
    check(
        &story("changed"),
        expect![[r#"
            409 Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using t/v1: .spec.text
            {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"t/v1\",\"kind\":\"Thing\",\"spec\":{\"replicas\":1,\"text\":\"x\"}}"}},"spec":{"replicas":1,"text":"changed"}}
            kubectl-client-side-apply Update v1 at 0: {"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}},"f:spec":{".":{},"f:replicas":{},"f:text":{}}}"#]],
    );
}

fn entry(manager: &str, operation: &str, version: &str, fields: &str) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": version,
           "fieldsType": "FieldsV1", "fieldsV1": serde_json::from_str::<Value>(fields).unwrap()})
}

fn managers(list: Option<Value>) -> String {
    let list = list.unwrap_or_default();
    let lines = list.as_array().into_iter().flatten().map(|entry| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, subresource) = (text("manager"), text("subresource"));
        let (operation, version) = (text("operation"), text("apiVersion"));
        format!("{name} {operation} {version}/{subresource} {}", entry["fieldsV1"])
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn client_side_updaters_become_an_applier() {
    let list = json!([
        entry("kubectl", "Apply", "t/v1", r#"{"f:a":{}}"#),
        entry("cli", "Update", "t/v1", r#"{"f:b":{}}"#),
        entry("cli", "Update", "t/v0", r#"{"f:c":{}}"#),
    ]);
    expect![[r#"kubectl Apply t/v1/ {"f:a":{},"f:b":{}}"#]]
        .assert_eq(&managers(csa_upgrade::upgrade(Some(&list), &["cli"], "kubectl", "").unwrap()));
    let object = json!({"metadata": {"resourceVersion": "7", "managedFields": [list[1]]}});
    expect![[r#"[{"op":"replace","path":"/metadata/managedFields","value":[{"apiVersion":"t/v1","fieldsType":"FieldsV1","fieldsV1":{"f:b":{}},"manager":"kubectl","operation":"Apply"}]},{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]"#]]
        .assert_eq(&csa_upgrade::patch(&object, &["cli"], "kubectl", "").unwrap().unwrap().to_string());
    assert_eq!(csa_upgrade::patch(&object, &["other"], "kubectl", "").unwrap(), None);
}

#[test]
fn replicas_have_the_same_owner_in_a_scale() {
    let parent = json!([
        entry("ann", "Apply", "apps/v1", r#"{"f:spec":{"f:replicas":{},"f:selector":{}}}"#),
        entry("bob", "Update", "apps/v1", r#"{"f:spec":{"f:paused":{}}}"#),
        entry("old", "Update", "apps/v0", r#"{"f:spec":{"f:replicas":{}}}"#),
    ]);
    let path = ["spec", "replicas"].map(fieldset::PathElement::field).to_vec();
    let replicas = BTreeMap::from([("apps/v1".to_owned(), Some(path))]);
    let handler =
        ScaleHandler { parent: Some(&parent), api_version: "apps/v1", replicas: &replicas };
    let scale = handler.to_subresource().unwrap();
    expect![[r#"ann Apply autoscaling/v1/ {"f:spec":{"f:replicas":{}}}"#]]
        .assert_eq(&managers(scale.clone()));
    expect![[r#"
        ann Apply apps/v1/ {"f:spec":{"f:replicas":{},"f:selector":{}}}
        bob Update apps/v1/ {"f:spec":{"f:paused":{}}}"#]]
    .assert_eq(&managers(handler.to_parent(scale.as_ref()).unwrap()));
    let mut taken = entry("hpa", "Update", "autoscaling/v1", r#"{"f:spec":{"f:replicas":{}}}"#);
    taken["subresource"] = "scale".into();
    expect![[r#"
        ann Apply apps/v1/ {"f:spec":{"f:selector":{}}}
        bob Update apps/v1/ {"f:spec":{"f:paused":{}}}
        hpa Update apps/v1/scale {"f:spec":{"f:replicas":{}}}"#]]
    .assert_eq(&managers(handler.to_parent(Some(&json!([taken]))).unwrap()));
}

#[test]
fn what_a_manager_applied_can_be_extracted() {
    let schema = Schema::parse(TABLE).unwrap();
    let ty = schema.named("t/v1.Thing").unwrap();
    let object = json!({
        "apiVersion": "t/v1", "kind": "Thing",
        "metadata": {"name": "n", "labels": {"a": "x", "b": "x"}, "managedFields": [entry(
            "ann", "Apply", "t/v1",
            r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}"#)]},
        "spec": {"replicas": 1, "ports": [{"port": 80, "name": "web", "protocol": "TCP"}, {"port": 81}]},
    });
    expect![[r#"{"apiVersion":"t/v1","kind":"Thing","metadata":{"labels":{"a":"x"}},"spec":{"ports":[{"name":"web","port":80}]}}"#]]
        .assert_eq(&extract(&object, ty, "ann", "").unwrap().to_string());
    assert_eq!(extract(&object, ty, "bob", ""), None);
}

#[test]
fn times_alone_are_no_change() {
    let old = json!({"metadata": {"name": "n", "managedFields": [{"manager": "a", "time": "t1"}]}, "spec": {"a": 1}});
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = "t2".into();
    let changed = {
        let mut changed = new.clone();
        changed["spec"]["a"] = 2.into();
        changed
    };
    keep_timestamps_if_unchanged(&old, &mut new);
    assert_eq!(new, old);
    let mut kept = changed.clone();
    keep_timestamps_if_unchanged(&old, &mut kept);
    assert_eq!(kept, changed);
}

#[test]
fn a_deployment_is_owned_as_upstream_shows_it() {
    let deployment = |version: &str| match version {
        "apps/v1" => schema::builtin().kind("apps", "v1", "Deployment"),
        _ => None,
    };
    let fields = FieldManager {
        api_version: "apps/v1",
        kind: "Deployment",
        subresource: "",
        types: &deployment,
        convert: &convert,
        reset: &BTreeMap::new(),
        view: View::Typed,
        unchecked: false,
    };
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {}}],
                    "securityContext": {},
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    });
    let now = jiff::Timestamp::UNIX_EPOCH;
    let created = fields.update(&Value::Null, object, "kubectl-create", now).unwrap();
    let managed = ManagedFields::decode(managed_fields::of(&created)).unwrap();
    expect![[r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{}}},"f:securityContext":{},"f:volumes":{".":{},"k:{\"name\":\"tmp\"}":{".":{},"f:emptyDir":{},"f:name":{}}}}}}}"#]]
        .assert_eq(&managed.entries()[0].fields().to_json());
}

#[test]
fn custom_resources_are_applied_to_alike() {
    let custom = schema::CustomSchema::compile(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "plain": {"type": "array", "items": {"type": "string"}},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    }}}))
    .unwrap();
    let types = |version: &str| (version == "x/v1").then(|| custom.root());
    let fields = FieldManager {
        api_version: "x/v1",
        kind: "Custom",
        subresource: "",
        types: &types,
        convert: &convert,
        reset: &BTreeMap::new(),
        view: View::Typed,
        unchecked: false,
    };
    let object = |spec: Value| json!({"apiVersion": "x/v1", "kind": "Custom", "metadata": {"name": "n", "finalizers": ["x/f"]}, "spec": spec});
    let live = object(
        json!({"size": 1, "plain": ["a"], "ports": [{"name": "a", "port": 1}], "free": {"k": {"l": [1]}}}),
    );
    let live = fields.update(&Value::Null, live, "ann", NOW).unwrap();
    let config = object(json!({"ports": [{"name": "b", "port": 2}], "free": {"k": {"m": 1}}}));
    let live = fields.apply(&live, &config, "bob", false, NOW).unwrap();
    expect![[r#"
        {"metadata":{"finalizers":["x/f"],"name":"n"},"spec":{"free":{"k":{"l":[1],"m":1}},"plain":["a"],"ports":[{"name":"a","port":1},{"name":"b","port":2}],"size":1}}
        bob Apply x/v1 at 0: {"f:metadata":{"f:finalizers":{"v:\"x/f\"":{}}},"f:spec":{"f:free":{"f:k":{".":{},"f:m":{}}},"f:ports":{"k:{\"name\":\"b\"}":{".":{},"f:name":{},"f:port":{}}}}}
        ann Update x/v1 at 0: {"f:metadata":{"f:finalizers":{".":{},"v:\"x/f\"":{}}},"f:spec":{".":{},"f:free":{".":{},"f:k":{".":{},"f:l":{}}},"f:plain":{},"f:ports":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:port":{}}},"f:size":{}}}"#]]
    .assert_eq(&show(&live));
    let bogus = fields.apply(&live, &object(json!({"size": 1, "bogus": 1})), "bob", false, NOW);
    let error = bogus.unwrap_err().to_string();
    assert!(error.ends_with(".spec.bogus: field not declared in schema"), "{error}");
}

/// A configuration of a `Thing`. Its lists are not empty: nobody can own an empty list.
fn config() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["a", "b", "c"]);
    let set = prop::collection::btree_set(word(), 1..3);
    let map = || prop::collection::btree_map(word(), word(), 0..3);
    let ports = prop::collection::btree_map((80..83i64, word()), prop::option::of(word()), 1..3);
    let spec = (
        prop::option::of(0..3i64),
        prop::option::of(word()),
        prop::option::of(set),
        prop::option::of(ports),
        prop::option::of(map()),
        prop::option::of(map()),
    );
    spec.prop_map(|(replicas, text, tags, ports, options, limits)| {
        let mut spec = serde_json::Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            spec.extend(value.map(|value| (key.to_owned(), value)));
        };
        put("replicas", replicas.map(Value::from));
        put("text", text.map(Value::from));
        put("tags", tags.map(|tags| tags.into_iter().collect()));
        put("options", options.map(|map| json!(map)));
        put("limits", limits.map(|map| json!(map)));
        let port = |((port, protocol), name): ((i64, &str), Option<&str>)| match name {
            Some(name) => json!({"port": port, "protocol": protocol, "name": name}),
            None => json!({"port": port, "protocol": protocol}),
        };
        put("ports", ports.map(|ports| ports.into_iter().map(port).collect()));
        json!({"apiVersion": "t/v1", "kind": "Thing", "spec": spec})
    })
}

fn with_fields<T>(run: impl FnOnce(&FieldManager<'_, '_>, TypeRef<'_>) -> T) -> T {
    let schema = Schema::parse(TABLE).unwrap();
    let types = |version: &str| schema.named(&format!("{version}.Thing"));
    let fields = FieldManager {
        api_version: "t/v1",
        kind: "Thing",
        subresource: "",
        types: &types,
        convert: &convert,
        reset: &BTreeMap::new(),
        view: View::Tree,
        unchecked: false,
    };
    run(&fields, types("t/v1").unwrap())
}

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

proptest! {
    #[test]
    fn applying_twice_is_applying_once(live in config(), config in config()) {
        with_fields(|fields, _| {
            let live = fields.update(&Value::Null, live, "ann", NOW).unwrap();
            let once = fields.apply(&live, &config, "bob", true, NOW).unwrap();
            let later = jiff::Timestamp::from_second(9).unwrap();
            let twice = fields.apply(&once, &config, "bob", true, later).unwrap();
            prop_assert_eq!(once, twice);
            Ok(())
        })?;
    }

    #[test]
    fn what_is_applied_is_there_and_owned(live in config(), first in config(), second in config()) {
        with_fields(|fields, ty| {
            let live = fields.update(&Value::Null, live, "ann", NOW).unwrap();
            let live = fields.apply(&live, &first, "bob", true, NOW).unwrap();
            let live = fields.apply(&live, &second, "bob", true, NOW).unwrap();
            prop_assert_eq!(&typed::merge(&live, &second, ty), &live);
            let managed = ManagedFields::decode(managed_fields::of(&live)).unwrap();
            let there = typed::with_named_fields(&typed::field_set(&live, ty), ty);
            for entry in managed.entries().iter().filter(|entry| entry.is_applier()) {
                prop_assert!(entry.fields().is_subset(&there));
            }
            Ok(())
        })?;
    }

    #[test]
    fn applying_and_giving_up_leaves_no_trace(live in config(), config in config()) {
        with_fields(|fields, ty| {
            let live = fields.update(&Value::Null, live, "ann", NOW).unwrap();
            let Ok(applied) = fields.apply(&live, &config, "bob", false, NOW) else { return Ok(()) };
            let nothing = json!({"apiVersion": "t/v1", "kind": "Thing"});
            let given_up = fields.apply(&applied, &nothing, "bob", false, NOW).unwrap();
            let differs = typed::compare(&live, &given_up, ty, View::Typed);
            // Bob may have emptied nothing that was Ann's, nor left anything of his.
            prop_assert!(differs.modified.is_empty() && differs.added.is_empty(), "{differs:?}");
            Ok(())
        })?;
    }

    #[test]
    fn comparing_agrees_with_the_fields(old in config(), new in config()) {
        with_fields(|_, ty| {
            let comparison = typed::compare(&old, &new, ty, View::Tree);
            prop_assert_eq!(comparison.is_same(), typed::field_set(&old, ty) == typed::field_set(&new, ty)
                && typed::merge(&old, &new, ty) == old);
            let removed = typed::remove_items(&old, &comparison.removed, ty, typed::Emptied::Empty);
            let again = typed::compare(&removed, &new, ty, View::Tree);
            prop_assert!(again.removed.is_empty());
            Ok(())
        })?;
    }

    #[test]
    fn nothing_panics(live in crate::testing::tree(), object in crate::testing::tree()) {
        with_fields(|fields, ty| {
            _ = fields.update(&live, object.clone(), "ann", NOW);
            _ = fields.apply(&live, &object, "ann", true, NOW);
            let mut config = object.clone();
            if let Value::Object(map) = &mut config {
                map.insert("apiVersion".into(), "t/v1".into());
                map.insert("kind".into(), "Thing".into());
            }
            _ = fields.apply(&live, &config, "ann", true, NOW);
            _ = typed::validate(&object, ty, false);
            _ = typed::extract_items(&object, &typed::field_set(&live, ty), ty, true);
            _ = typed::merge(&live, &object, ty);
            _ = extract(&object, ty, "ann", "");
            _ = csa_upgrade::patch(&object, &["a"], "b", "");
        });
    }
}
