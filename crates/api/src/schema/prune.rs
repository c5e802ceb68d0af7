//! Dropping what the schema does not know.
use super::{Either, Type, TypeRef};
use crate::depth;
use serde_json::Value;

/// Removes every field that the type does not declare, and returns the paths of those removed
/// (`spec.list[0].bogus`), sorted. What keeps unknown fields keeps them, with all below them. A
/// tree too deep to be an object is emptied.
pub fn prune(value: &mut Value, ty: TypeRef<'_>) -> Vec<String> {
    if !depth::within_limit(value) {
        *value = Value::Null;
        return Vec::new();
    }
    let mut pruner = Pruner { path: String::new(), dropped: Vec::new() };
    pruner.prune(value, ty);
    pruner.dropped.sort();
    pruner.dropped
}

struct Pruner {
    path: String,
    dropped: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, value: &mut Value, ty: TypeRef<'_>) {
        match (ty.get(), value) {
            (Type::Struct(s), Value::Object(map)) => {
                if !s.preserve_unknown && map.keys().any(|key| s.field(key).is_none()) {
                    map.retain(|key, _| {
                        let known = s.field(key).is_some();
                        if !known {
                            self.dropped.push(self.below(key));
                        }
                        known
                    });
                }
                for (key, value) in map {
                    if let Some(field) = s.field(key) {
                        self.descend(Step::Key(key), value, ty.at(field.ty));
                    }
                }
            }
            (Type::Map(m), Value::Object(map)) => {
                for (key, value) in map {
                    self.descend(Step::Key(key), value, ty.at(m.value));
                }
            }
            (Type::List(list), Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.descend(Step::Index(i), item, ty.at(list.element));
                }
            }
            (Type::Either(which, props), value) => match (which, value) {
                (_, value @ Value::Object(_)) => self.prune(value, ty.at(*props)),
                (Either::SchemaOrList, Value::Array(items)) => {
                    for (i, item) in items.iter_mut().enumerate() {
                        self.descend(Step::Index(i), item, ty.at(*props));
                    }
                }
                _ => {}
            },
            (Type::Any, _) => {}
            (Type::Struct(s), _) if s.preserve_unknown => {}
            (Type::Scalar(named), _) if named.scalar.is_opaque() => {}
            // Not what the type says, which validation will complain of; nothing in it is known.
            (_, value) => self.strip(value),
        }
    }

    /// Removes every field.
    fn strip(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, _) in std::mem::take(map) {
                    self.dropped.push(self.below(&key));
                }
            }
            Value::Array(items) => {
                let length = self.path.len();
                for (i, item) in items.iter_mut().enumerate() {
                    self.path += &format!("[{i}]");
                    self.strip(item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn descend(&mut self, step: Step<'_>, value: &mut Value, ty: TypeRef<'_>) {
        if !value.is_object() && !value.is_array() {
            return;
        }
        let length = self.path.len();
        match step {
            Step::Key(key) => self.path = self.below(key),
            Step::Index(i) => self.path += &format!("[{i}]"),
        }
        self.prune(value, ty);
        self.path.truncate(length);
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

enum Step<'k> {
    Key(&'k str),
    Index(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{CustomSchema, builtin};
    use expect_test::{Expect, expect};
    use serde_json::json;

    const SCHEMA: &str = "
type: object
properties:
  spec:
    type: object
    properties:
      a: {type: string}
      list: {type: array, items: {type: object, properties: {a: {type: string}}}}
      map: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}
      keys: {type: object, additionalProperties: true}
      empty: {type: object}
      open:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties: {closed: {type: object, properties: {a: {type: string}}}}
      opens:
        type: array
        x-kubernetes-preserve-unknown-fields: true
        items: {type: object, properties: {a: {type: object, properties: {b: {type: string}}}}}
      any: {x-kubernetes-preserve-unknown-fields: true}
      template:
        type: object
        x-kubernetes-embedded-resource: true
        properties: {spec: {type: object, properties: {a: {type: string}}}}";

    fn check(spec: Value, expected: Expect) {
        let compiled = CustomSchema::compile(&serde_saphyr::from_str(SCHEMA).unwrap()).unwrap();
        let mut object = json!({ "spec": spec });
        let dropped = prune(&mut object, compiled.root());
        expected.assert_eq(&format!("{}\n{}", object["spec"], dropped.join(" ")));
    }

    #[test]
    fn unknown_fields_go_at_any_depth() {
        check(
            json!({"a": "x", "b": 1, "list": [{"a": 1, "b": 2}, {"c": {}}], "map": {"k": {"a": 1, "b": 2}}}),
            expect![[r#"
                {"a":"x","list":[{"a":1},{}],"map":{"k":{"a":1}}}
                spec.b spec.list[0].b spec.list[1].c spec.map.k.b"#]],
        );
    }

    #[test]
    fn nothing_is_known_of_a_bare_object() {
        check(
            json!({"empty": {"a": 1}, "keys": {"k": 1, "l": {"a": 1}}}),
            expect![[r#"
                {"empty":{},"keys":{"k":1,"l":{}}}
                spec.empty.a spec.keys.l.a"#]],
        );
    }

    #[test]
    fn what_keeps_unknown_fields_still_prunes_the_known_ones() {
        check(
            json!({"open": {"x": {"y": 1}, "closed": {"a": 1, "b": 1}}, "opens": [{"x": 1, "a": {"b": 1, "c": 1}}], "any": {"x": [{"y": 1}]}}),
            expect![[r#"
                {"any":{"x":[{"y":1}]},"open":{"closed":{"a":1},"x":{"y":1}},"opens":[{"a":{"b":1},"x":1}]}
                spec.open.closed.b spec.opens[0].a.c"#]],
        );
    }

    #[test]
    fn an_embedded_resource_has_type_and_metadata() {
        check(
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n", "x": 1}, "spec": {"a": 1, "b": 1}, "x": 1}}),
            expect![[r#"
                {"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"a":1}}}
                spec.template.metadata.x spec.template.spec.b spec.template.x"#]],
        );
    }

    #[test]
    fn nothing_is_known_of_what_has_another_type() {
        check(
            json!({"a": {"x": 1}, "list": {"x": 1}, "map": [{"x": 1}], "keys": {"k": [{"x": 1}]}}),
            expect![[r#"
                {"a":{},"keys":{"k":[{}]},"list":{},"map":[{}]}
                spec.a.x spec.keys.k[0].x spec.list.x spec.map[0].x"#]],
        );
    }

    #[test]
    fn built_in_types_are_pruned_alike() {
        let pod = builtin().kind("", "v1", "Pod").unwrap();
        let mut object =
            json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "imag": "x"}]}});
        assert_eq!(prune(&mut object, pod), ["spec.containers[0].imag"]);
    }

    proptest::proptest! {
        #[test]
        fn pruning_never_panics_and_settles(openapi in crate::testing::tree(), mut object in crate::testing::tree()) {
            if let Ok(compiled) = CustomSchema::compile(&openapi) {
                prune(&mut object, compiled.root());
                let once = object.clone();
                proptest::prop_assert!(prune(&mut object, compiled.root()).is_empty());
                proptest::prop_assert_eq!(once, object);
            }
        }
    }
}
