//! Sample objects of any kind, made from the schema: a type added to the facts has its samples.
use api::schema::{Either, Named, Scalar, Struct, Type, TypeRef};
use serde_json::{Map, Value, json};

/// Numbers that look random and are the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Zero is the one state this generator cannot leave.
        Random(seed | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    fn one_of<'a, T: ?Sized>(&mut self, values: &[&'a T]) -> &'a T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// An object of a type: some fields absent, some empty, some odd, none of the wrong type. It
/// need not be canonical, nor valid.
pub fn object(ty: TypeRef<'_>, random: &mut Random) -> Value {
    value(ty, random, 0)
}

/// Nothing of the API needs more, and the recursive types have to end somewhere.
const DEPTH: usize = 12;

fn value(ty: TypeRef<'_>, random: &mut Random, depth: usize) -> Value {
    match ty.get() {
        Type::Scalar(Named { values, .. }) if !values.is_empty() => {
            (*values[random.below(values.len() as u64) as usize]).into()
        }
        Type::Scalar(named) => scalar(named.scalar, random),
        Type::Struct(s) => structure(s, ty, random, depth),
        // Never an empty list or map: protobuf cannot tell it from an absent one.
        Type::List(list) => match length(random, depth).max(u64::from(list.name.is_some())) {
            0 => Value::Null,
            n => (0..n).map(|_| value(ty.at(list.element), random, depth + 1)).collect(),
        },
        Type::Map(map) => match length(random, depth) {
            0 => Value::Null,
            n => {
                let mut entry =
                    |i| (format!("key-{i}"), value(ty.at(map.value), random, depth + 1));
                (0..n).map(&mut entry).collect::<Map<_, _>>().into()
            }
        },
        Type::Either(which, props) => match which {
            _ if random.below(2) == 0 && depth < DEPTH => value(ty.at(*props), random, depth + 1),
            Either::SchemaOrBool => (random.below(2) == 0).into(),
            Either::SchemaOrList => json!([value(ty.at(*props), random, depth.max(DEPTH))]),
            Either::SchemaOrStrings => json!(["a", "b"]),
        },
        Type::Any => json!({"any": [1, "two", null]}),
    }
}

fn length(random: &mut Random, depth: usize) -> u64 {
    if depth > DEPTH { 0 } else { random.below(3) }
}

fn structure(structure: &Struct, ty: TypeRef<'_>, random: &mut Random, depth: usize) -> Value {
    let mut object = Map::new();
    // The deeper, the sparser: an object has some hundred fields, not a million.
    let chance = if depth == 0 { 1 } else { 1 + depth as u64 };
    for field in &structure.fields {
        // A kind's own names are the caller's to write; inside others protobuf does not have them.
        let type_meta = ty.is_kind() && matches!(&*field.name, "kind" | "apiVersion");
        // No typed form has a place for a required pointer, time or bytes that are null.
        let no_null = matches!(
            ty.at(field.ty).get(),
            Type::Scalar(Named { scalar: Scalar::Time | Scalar::MicroTime | Scalar::Bytes, .. })
        );
        let must = field.required && (field.pointer || no_null);
        if !type_meta && (must || depth <= DEPTH && random.below(chance) == 0) {
            object.insert(field.name.to_string(), value(ty.at(field.ty), random, depth + 1));
        }
    }
    object.into()
}

fn scalar(scalar: Scalar, random: &mut Random) -> Value {
    match scalar {
        Scalar::String => {
            random.one_of(&["", "a", "name-1", "ünïcödé ✓", "line\nbreak", "\"quoted\""]).into()
        }
        Scalar::Bytes => random.one_of(&["", "AAEC/w==", "c2VjcmV0"]).into(),
        Scalar::Bool => (random.below(2) == 0).into(),
        Scalar::Int32 => [0, 1, -1, i32::MAX, i32::MIN, 80][random.below(6) as usize].into(),
        Scalar::Int64 => {
            [0, 1, -1, i64::MAX, i64::MIN, 1_700_000_000][random.below(6) as usize].into()
        }
        Scalar::Double | Scalar::Number => {
            [0.0, 1.5, -2.25, 1e300, 3.0][random.below(5) as usize].into()
        }
        Scalar::Quantity => {
            random.one_of(&["0", "100m", "1.5", "1Gi", "1e3", "-5k", "0.1Ki"]).into()
        }
        Scalar::Time => {
            random.one_of(&["2020-02-29T23:59:59Z", "1999-12-31T22:00:00+02:00"]).into()
        }
        Scalar::MicroTime => {
            random.one_of(&["2020-02-29T23:59:59.000001Z", "2020-01-01T00:00:00.999999Z"]).into()
        }
        Scalar::Duration => random.one_of(&["0s", "1h2m3.5s", "250ms", "-90s"]).into(),
        Scalar::IntOrString if random.below(2) == 0 => random.one_of(&["50%", "http", ""]).into(),
        Scalar::IntOrString => [0, 8080, -1][random.below(3) as usize].into(),
        Scalar::RawExtension => {
            json!({"apiVersion": "example.com/v1", "kind": "Sample", "n": random.below(9)})
        }
        Scalar::FieldsV1 => json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
        Scalar::Json => {
            [json!("text"), json!(7), json!({"a": [true]})][random.below(3) as usize].clone()
        }
    }
}
