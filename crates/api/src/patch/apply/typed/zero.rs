//! What a Go struct holds in a field that nobody set.
use crate::schema::{Field, Omit, Scalar, Type, TypeRef};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// The value that Go's encoder writes for a field that nobody set, if it writes one.
pub(super) fn zero<'v>(field: &Field, ty: TypeRef<'_>) -> Option<&'v Value> {
    if ty.as_struct().is_some() && !field.pointer && field.omit != Omit::Zero {
        return Some(&EMPTY_OBJECT);
    }
    // A time is a struct in Go, and written whoever set it.
    let is_time = matches!(ty.get(), Type::Scalar(named) if matches!(named.scalar, Scalar::Time | Scalar::MicroTime));
    if is_time && !field.pointer && field.omit == Omit::Empty {
        return Some(&NULL);
    }
    if field.omit != Omit::Never {
        return None;
    }
    let Type::Scalar(named) = ty.get() else { return Some(&NULL) };
    if field.pointer {
        return Some(&NULL);
    }
    Some(match named.scalar {
        Scalar::String => &EMPTY_STRING,
        Scalar::Bool => &FALSE,
        Scalar::Int32 | Scalar::Int64 | Scalar::Double | Scalar::Number | Scalar::IntOrString => {
            &ZERO
        }
        Scalar::Quantity => &ZERO_QUANTITY,
        _ => &NULL,
    })
}

pub(super) fn empty_object() -> &'static Value {
    &EMPTY_OBJECT
}

static NULL: Value = Value::Null;
static FALSE: Value = Value::Bool(false);
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static EMPTY_STRING: LazyLock<Value> = LazyLock::new(|| Value::from(""));
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));
static ZERO_QUANTITY: LazyLock<Value> = LazyLock::new(|| Value::from("0"));
