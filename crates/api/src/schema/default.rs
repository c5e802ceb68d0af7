//! Filling in what the schema has defaults for.
use super::{Field, Type, TypeRef};
use crate::depth;
use serde_json::Value;

/// What defaults may add to one object, in memory: many times what can be stored. A megabyte of `{}` in a
/// list whose items have a default of a kilobyte would be a gigabyte.
const MOST_ADDED: usize = 64 << 20;

/// Defaults that would make more of an object than anybody could store. It has not all of them then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema add more than {} bytes to it", MOST_ADDED)]
pub struct TooMuch;

/// Sets every absent field that has a default, at any depth; a default may itself get defaults.
///
/// `null` is a value only where the schema says so. Elsewhere it is the same as absent: replaced
/// by the default if there is one, else dropped.
pub fn set_defaults(value: &mut Value, ty: TypeRef<'_>) -> Result<(), TooMuch> {
    let mut room = MOST_ADDED;
    match depth::within_limit(value) {
        true => walk(value, ty, depth::LIMIT, &mut room),
        false => Ok(()),
    }
}

/// About what a value takes in memory.
fn weight(value: &Value) -> usize {
    const EACH: usize = std::mem::size_of::<Value>();
    match value {
        Value::String(text) => EACH + text.len(),
        Value::Array(items) => EACH + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => {
            EACH + fields.iter().map(|(key, value)| EACH + key.len() + weight(value)).sum::<usize>()
        }
        _ => EACH,
    }
}

fn walk(value: &mut Value, ty: TypeRef<'_>, left: usize, room: &mut usize) -> Result<(), TooMuch> {
    let Some(left) = left.checked_sub(1) else { return Ok(()) };
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
                    let added = field.name.len() + field.default.as_ref().map_or(0, weight);
                    *room = room.checked_sub(added).ok_or(TooMuch)?;
                    map.extend(field.default.clone().map(|value| (field.name.to_string(), value)));
                }
            }
            for (key, value) in map {
                if let Some(field) = s.field(key) {
                    walk(value, ty.at(field.ty), left, room)?;
                }
            }
            Ok(())
        }
        (Type::Map(m), Value::Object(map)) => {
            if !m.nullable {
                map.retain(|_, value| !value.is_null());
            }
            map.values_mut().try_for_each(|value| walk(value, ty.at(m.value), left, room))
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().try_for_each(|item| walk(item, ty.at(list.element), left, room))
        }
        _ => Ok(()),
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
        set_defaults(&mut object, compiled.root()).expect("there is room");
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

    #[test]
    fn defaults_do_not_make_a_mountain_of_an_object() {
        let text = "x".repeat(100_000);
        let schema = json!({ "type": "object", "properties": { "list": { "type": "array",
            "items": { "type": "object", "properties": {
                "e": { "type": "string", "default": text } } } } } });
        let compiled = CustomSchema::compile(&schema).unwrap();
        let object = |items: usize| json!({ "list": vec![json!({}); items] });
        let mut few = object(100);
        assert_eq!(set_defaults(&mut few, compiled.root()), Ok(()));
        assert_eq!(few["list"][99]["e"], text);
        assert_eq!(set_defaults(&mut object(1_000_000), compiled.root()), Err(TooMuch));
    }

    proptest::proptest! {
        #[test]
        fn defaulting_never_panics_and_settles(openapi in crate::testing::tree(), mut object in crate::testing::tree()) {
            if let Ok(compiled) = CustomSchema::compile(&openapi) {
                set_defaults(&mut object, compiled.root()).expect("there is room");
                let once = object.clone();
                set_defaults(&mut object, compiled.root()).expect("there is room");
                proptest::prop_assert_eq!(once, object);
            }
        }
    }
}
