//! A pod template as Go's spew library shows it: what upstream's `pod-template-hash` is the hash of
//! (`ComputeHash` in pkg/controller/controller_utils.go, `ForHash` in k8s.io/utils/dump).
//!
//! Spew walks a value by reflection, so that its text has the names of Go's fields and types in their
//! order of declaration, unset ones too, and even fields that no API shows: those of quantities and times
//! are written by hand here. The others are in a generated table:
//!
//! ```text
//! v1.Volume
//!   Name name string
//!   VolumeSource - v1.VolumeSource       embedded: its fields are the object's own
//! v1.PullPolicy = string
//! ```
//!
//! What is shown is what upstream's controllers see, who receive objects in protobuf: there a list or a
//! map that is empty is none.
use crate::quantity::{Held, held};
use crate::time;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::LazyLock;

/// By the name that reflection gives to a type.
static SHAPES: LazyLock<HashMap<&'static str, Shape>> =
    LazyLock::new(|| read(include_str!("shapes.txt")));

enum Shape {
    Struct(Vec<Field>),
    /// Another type under a name of its own.
    Of(&'static str),
}

struct Field {
    go: &'static str,
    /// `None`: embedded.
    json: Option<&'static str>,
    ty: &'static str,
}

fn read(table: &'static str) -> HashMap<&'static str, Shape> {
    let mut shapes = HashMap::new();
    let mut last = "";
    for line in table.lines() {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        match (line.starts_with(' '), &words[..]) {
            (false, [name]) => {
                last = name;
                shapes.insert(*name, Shape::Struct(Vec::new()));
            }
            (false, [name, "=", target]) => drop(shapes.insert(*name, Shape::Of(target))),
            (true, [go, json, ty]) => {
                if let Some(Shape::Struct(fields)) = shapes.get_mut(last) {
                    fields.push(Field { go, json: (*json != "-").then_some(json), ty });
                }
            }
            _ => {}
        }
    }
    shapes
}

/// Writes a `PodTemplateSpec`, given as its JSON.
pub fn pod_template(template: &Value, out: &mut impl Write) -> fmt::Result {
    let mut spew = Spew { out };
    spew.value("v1.PodTemplateSpec", Some(template), true)
}

struct Spew<'a, W> {
    out: &'a mut W,
}

impl<W: Write> Spew<'_, W> {
    /// Elements of lists and maps and what pointers lead to are shown without their type.
    fn value(&mut self, ty: &str, value: Option<&Value>, with_type: bool) -> fmt::Result {
        let value = value.filter(|value| !value.is_null());
        if let Some(target) = ty.strip_prefix('*') {
            write!(self.out, "({ty})")?;
            return match value {
                Some(_) => self.value(target, value, false),
                None => self.out.write_str("<nil>"),
            };
        }
        if with_type {
            write!(self.out, "({ty})")?;
        }
        if let Some(element) = ty.strip_prefix("[]") {
            return self.list(element, value);
        }
        if let Some((_, element)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return self.map(element, value);
        }
        match ty {
            "string" => self.out.write_str(value.and_then(Value::as_str).unwrap_or_default()),
            "bool" => write!(self.out, "{}", value.and_then(Value::as_bool).unwrap_or_default()),
            "int32" | "int64" => {
                write!(self.out, "{}", value.and_then(Value::as_i64).unwrap_or_default())
            }
            "resource.Quantity" => self.quantity(value),
            "intstr.IntOrString" => self.int_or_string(value),
            "v1.Time" => self.time(value),
            "v1.FieldsV1" => self.fields(value),
            _ => match SHAPES.get(ty) {
                Some(Shape::Of(target)) => self.value(target, value, false),
                Some(Shape::Struct(fields)) => self.structure(fields, value),
                None => Ok(()),
            },
        }
    }

    fn structure(&mut self, fields: &[Field], value: Option<&Value>) -> fmt::Result {
        self.out.write_char('{')?;
        for (at, field) in fields.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(self.out, "{space}{}:", field.go)?;
            let inner = match field.json {
                Some(name) => value.and_then(|value| value.get(name)),
                None => value,
            };
            self.value(field.ty, inner, true)?;
        }
        self.out.write_char('}')
    }

    fn list(&mut self, element: &str, value: Option<&Value>) -> fmt::Result {
        let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return self.out.write_str("<nil>");
        }
        for (at, item) in items.iter().enumerate() {
            self.out.write_str(if at == 0 { "[" } else { " " })?;
            self.value(element, Some(item), false)?;
        }
        self.out.write_char(']')
    }

    fn map(&mut self, element: &str, value: Option<&Value>) -> fmt::Result {
        let Some(entries) = value.and_then(Value::as_object).filter(|all| !Map::is_empty(all))
        else {
            return self.out.write_str("<nil>");
        };
        // By key, byte by byte, as a tree's maps are sorted anyway.
        for (at, (key, item)) in entries.iter().enumerate() {
            write!(self.out, "{}{key}:", if at == 0 { "map[" } else { " " })?;
            self.value(element, Some(item), false)?;
        }
        self.out.write_char(']')
    }

    fn quantity(&mut self, value: Option<&Value>) -> fmt::Result {
        let text = value.and_then(Value::as_str).unwrap_or("0");
        // What is stored was read by the API server before: it is a quantity.
        let Ok((held, format)) = held(text) else { return Ok(()) };
        let (value, scale) = match &held {
            Held::Int { value, scale, .. } => (*value, *scale),
            Held::Dec { .. } => (0, 0),
        };
        write!(
            self.out,
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)"
        )?;
        match &held {
            Held::Int { .. } => self.out.write_str("<nil>")?,
            Held::Dec { negative, digits, scale } => {
                write!(
                    self.out,
                    "{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat){}}} \
                     scale:(inf.Scale){scale}}}",
                    words(digits)
                )?;
            }
        }
        let is_spelled = matches!(held, Held::Int { is_spelled: true, .. });
        let spelled = if is_spelled { text } else { "" };
        write!(self.out, "}} s:(string){spelled} Format:(resource.Format){format:?}}}")
    }

    fn int_or_string(&mut self, value: Option<&Value>) -> fmt::Result {
        let text = value.and_then(Value::as_str);
        let number = value.and_then(Value::as_i64).unwrap_or_default();
        write!(
            self.out,
            "{{Type:(intstr.Type){} IntVal:(int32){number} StrVal:(string){}}}",
            i32::from(text.is_some()),
            text.unwrap_or_default()
        )
    }

    /// Seconds since the year 1. The place is Go's `time.Local`, of which nothing was asked yet.
    fn time(&mut self, value: Option<&Value>) -> fmt::Result {
        const YEAR_1: i64 = 62_135_596_800;
        let time = value.and_then(Value::as_str).and_then(|text| time::parse(text).ok());
        let seconds = time.map_or(0, |(seconds, _)| seconds + YEAR_1);
        write!(
            self.out,
            "{{Time:(time.Time){{wall:(uint64)0 ext:(int64){seconds} loc:(*time.Location)"
        )?;
        self.out.write_str(match time {
            None => "<nil>}}",
            Some(_) => {
                "{name:(string) zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string) \
                 cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}}}"
            }
        })
    }

    fn fields(&mut self, value: Option<&Value>) -> fmt::Result {
        let text = value.map(Value::to_string).unwrap_or_default();
        let bytes: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
        write!(self.out, "{{Raw:([]uint8)[{}]}}", bytes.join(" "))
    }
}

/// A number's decimal digits as Go's `big.nat`: words of 64 bits, the least one first.
fn words(digits: &str) -> String {
    let mut words: Vec<u64> = Vec::new();
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        let mut carry = u128::from(digit - b'0');
        for word in &mut words {
            let sum = u128::from(*word) * 10 + carry;
            (*word, carry) = (sum as u64, sum >> 64);
        }
        if carry > 0 {
            words.push(carry as u64);
        }
    }
    match &words[..] {
        [] => "<nil>".to_owned(),
        words => {
            let shown: Vec<_> = words.iter().map(u64::to_string).collect();
            format!("[{}]", shown.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    /// What is shown of a template, from one field to the next.
    fn check(template: &Value, from: &str, to: &str, expect: expect_test::Expect) {
        let mut shown = String::new();
        pod_template(template, &mut shown).unwrap();
        let start = shown.find(from).unwrap_or_else(|| panic!("no {from} in {shown}"));
        let end = start + shown[start..].find(to).unwrap_or_else(|| panic!("no {to} in {shown}"));
        expect.assert_eq(&shown[start..end]);
    }

    #[test]
    fn every_type_of_a_template_is_in_the_table() {
        let is_basic = |ty: &str| matches!(ty, "string" | "bool" | "int32" | "int64");
        let is_leaf = |ty: &str| {
            matches!(ty, "resource.Quantity" | "intstr.IntOrString" | "v1.Time" | "v1.FieldsV1")
        };
        let bare = |ty: &'static str| {
            let ty = ty.trim_start_matches('*').trim_start_matches("[]");
            ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')).map_or(ty, |(_, ty)| ty)
        };
        let known = |ty: &str| is_basic(ty) || is_leaf(ty) || SHAPES.contains_key(ty);
        for (name, shape) in SHAPES.iter() {
            match shape {
                Shape::Of(target) => assert!(known(bare(target)), "{name} is a {target}"),
                Shape::Struct(fields) => {
                    for field in fields {
                        assert!(known(bare(field.ty)), "{name}.{} is a {}", field.go, field.ty);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_set_is_shown_too() {
        check(
            &json!({}),
            "ObjectMeta:",
            " DeletionTimestamp",
            expect![[
                r#"ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) Namespace:(string) SelfLink:(string) UID:(types.UID) ResourceVersion:(string) Generation:(int64)0 CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"#
            ]],
        );
    }

    #[test]
    fn quantities_show_how_they_are_held() {
        let overhead = |text: &str| json!({ "spec": { "overhead": { "cpu": text } } });
        check(
            &overhead("100m"),
            "Overhead:",
            " Topology",
            expect![[
                r#"Overhead:(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m Format:(resource.Format)DecimalSI}]"#
            ]],
        );
        check(
            &overhead("128Mi"),
            "Overhead:",
            " Topology",
            expect![[
                r#"Overhead:(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)134217728 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)BinarySI}]"#
            ]],
        );
        check(
            &overhead("9223372036854775808"),
            "Overhead:",
            " Topology",
            expect![[
                r#"Overhead:(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec){unscaled:(big.Int){neg:(bool)false abs:(big.nat)[0 500000000]} scale:(inf.Scale)9}} s:(string) Format:(resource.Format)DecimalSI}]"#
            ]],
        );
    }
}
