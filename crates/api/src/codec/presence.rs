//! Which fields of an object are written: Go's `omitempty` and `omitzero` rules.
use crate::schema::{Field, Named, Omit, Scalar, Struct, Type, TypeRef};
use serde_json::{Map, Value};

/// Whether a decoded value is written at all. An optional zero value is not.
pub(crate) fn is_written(value: &Value, field: &Field, ty: TypeRef<'_>) -> bool {
    if field.omit == Omit::Never {
        return true;
    }
    if field.pointer {
        return !value.is_null();
    }
    match value {
        Value::Null => field.omit == Omit::Empty && is_struct_in_go(ty),
        Value::String(s) if s.is_empty() => is_struct_in_go(ty),
        Value::Bool(false) => is_struct_in_go(ty),
        Value::Number(n) if n.as_f64() == Some(0.0) => is_struct_in_go(ty),
        Value::Array(a) => !a.is_empty() || is_struct_in_go(ty),
        Value::Object(o) if o.is_empty() && ty.as_map().is_some() => false,
        _ => field.omit == Omit::Empty || !is_zero(value, ty),
    }
}

/// Whether a value is its type's [`zero`], which is not made for that.
fn is_zero(value: &Value, ty: TypeRef<'_>) -> bool {
    match (ty.as_struct(), value) {
        (Some(structure), Value::Object(object)) => {
            let mut always = structure.fields.iter().filter(|field| field.always);
            let count = structure.fields.iter().filter(|field| field.always).count();
            object.len() == count
                && always.all(|field| match object.get(&*field.name) {
                    Some(value) if field.pointer => value.is_null(),
                    Some(value) => is_zero(value, ty.at(field.ty)),
                    None => false,
                })
        }
        (Some(_), _) => false,
        (None, _) => *value == zero(ty),
    }
}

/// Adds the fields that are written even when nobody set them.
pub(super) fn complete(object: &mut Map<String, Value>, structure: &Struct, ty: TypeRef<'_>) {
    for field in structure.fields.iter().filter(|field| field.always) {
        if !object.contains_key(&*field.name) {
            let value = if field.pointer { Value::Null } else { zero(ty.at(field.ty)) };
            object.insert(field.name.to_string(), value);
        }
    }
}

/// What a value that was never set is written as.
pub(super) fn zero(ty: TypeRef<'_>) -> Value {
    match ty.get() {
        Type::Scalar(Named { scalar, .. }) => match scalar {
            Scalar::String => "".into(),
            Scalar::Bool => false.into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Double | Scalar::IntOrString => 0.into(),
            Scalar::Quantity => "0".into(),
            Scalar::Duration => "0s".into(),
            _ => Value::Null,
        },
        Type::Struct(s) => {
            let mut object = Map::new();
            complete(&mut object, s, ty);
            Value::Object(object)
        }
        Type::Either(..) => true.into(),
        Type::List(_) | Type::Map(_) | Type::Any => Value::Null,
    }
}

/// Structs are never empty for `omitempty`, and several of our scalars are structs in Go.
pub(crate) fn is_struct_in_go(ty: TypeRef<'_>) -> bool {
    match ty.get() {
        Type::Struct(_) | Type::Either(..) => true,
        Type::Scalar(named) => matches!(
            named.scalar,
            Scalar::Quantity
                | Scalar::Time
                | Scalar::MicroTime
                | Scalar::Duration
                | Scalar::IntOrString
                | Scalar::RawExtension
                | Scalar::FieldsV1
                | Scalar::Json
        ),
        _ => false,
    }
}
