//! Filling in what the schema has defaults for.
use super::{Field, Type, TypeRef};
use crate::depth;
use serde_json::Value;

/// Sets every absent field that has a default, at any depth; a default may itself get defaults.
///
/// `null` is a value only where the schema says so. Elsewhere it is the same as absent: replaced
/// by the default if there is one, else dropped.
pub fn set_defaults(value: &mut Value, ty: TypeRef<'_>) {
    if depth::within_limit(value) {
        walk(value, ty, depth::LIMIT);
    }
}

fn walk(value: &mut Value, ty: TypeRef<'_>, left: usize) {
    let Some(left) = left.checked_sub(1) else { return };
    match (ty.get(), value) {
        (Type::Struct(s), Value::Object(map)) => {
            let missing = |value: Option<&Value>, field: &Field| match value {
                None => true,
                Some(value) => value.is_null() && !field.nullable,
            };
            if map.values().any(Value::is_null) {
                map.retain(|key, value| match s.field(key) {
                    Some(field) => !missing(Some(value), field),
                    None => true,
                });
            }
            for field in s.fields.iter().filter(|field| field.default.is_some()) {
                if missing(map.get(&*field.name), field) {
                    map.extend(field.default.clone().map(|value| (field.name.to_string(), value)));
                }
            }
            for (key, value) in map {
                if let Some(field) = s.field(key) {
                    walk(value, ty.at(field.ty), left);
                }
            }
        }
        (Type::Map(m), Value::Object(map)) => {
            if !m.nullable {
                map.retain(|_, value| !value.is_null());
            }
            map.values_mut().for_each(|value| walk(value, ty.at(m.value), left));
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(item, ty.at(list.element), left));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::CustomSchema;
    use expect_test::{Expect, expect};
    use serde_json::json;

    const SCHEMA: &str = "
type: object
properties:
  spec:
    type: object
    properties:
      a: {type: string, default: x}
      b: {type: string, default: x, nullable: true}
      c: {type: string}
      d: {type: string, nullable: true}
      nested: {type: object, default: {}, properties: {deep: {type: integer, default: 1}}}
      absent: {type: object, properties: {deep: {type: integer, default: 1}}}
      list: {type: array, items: {type: object, properties: {e: {type: string, default: x}}}}
      map: {type: object, additionalProperties: {type: object, properties: {e: {type: string, default: x}}}}
      words: {type: object, additionalProperties: {type: string}}
      nulls: {type: object, additionalProperties: {type: string, nullable: true}}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {e: {type: string, default: x}}}";

    fn check(spec: Value, expected: Expect) {
        let compiled = CustomSchema::compile(&serde_saphyr::from_str(SCHEMA).unwrap()).unwrap();
        let mut object = json!({ "spec": spec });
        set_defaults(&mut object, compiled.root());
        expected.assert_eq(&object["spec"].to_string());
    }

    #[test]
    fn absent_fields_get_their_defaults() {
        check(json!({}), expect![[r#"{"a":"x","b":"x","nested":{"deep":1}}"#]]);
        check(
            json!({"a": "y", "nested": {"deep": 2}}),
            expect![[r#"{"a":"y","b":"x","nested":{"deep":2}}"#]],
        );
    }

    #[test]
    fn what_is_not_there_gets_no_parts() {
        check(
            json!({"absent": {}}),
            expect![[r#"{"a":"x","absent":{"deep":1},"b":"x","nested":{"deep":1}}"#]],
        );
    }

    #[test]
    fn null_is_absent_unless_it_may_be_a_value() {
        check(
            json!({"a": null, "b": null, "c": null, "d": null, "words": {"w": null}, "nulls": {"w": null}}),
            expect![[
                r#"{"a":"x","b":null,"d":null,"nested":{"deep":1},"nulls":{"w":null},"words":{}}"#
            ]],
        );
    }

    #[test]
    fn elements_and_entries_are_defaulted() {
        check(
            json!({"list": [{}, {"e": "y"}], "map": {"k": {}}, "open": {"other": null}}),
            expect![[
                r#"{"a":"x","b":"x","list":[{"e":"x"},{"e":"y"}],"map":{"k":{"e":"x"}},"nested":{"deep":1},"open":{"e":"x","other":null}}"#
            ]],
        );
    }

    proptest::proptest! {
        #[test]
        fn defaulting_never_panics_and_settles(openapi in crate::testing::tree(), mut object in crate::testing::tree()) {
            if let Ok(compiled) = CustomSchema::compile(&openapi) {
                set_defaults(&mut object, compiled.root());
                let once = object.clone();
                set_defaults(&mut object, compiled.root());
                proptest::prop_assert_eq!(once, object);
            }
        }
    }
}
