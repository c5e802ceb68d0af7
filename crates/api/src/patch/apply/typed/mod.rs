//! Walks over an object that are led by its schema: which fields it sets, how a configuration is
//! merged into it, what differs between two of it, and what remains without some fields.
//!
//! They see a tree as structured-merge-diff does: every type is a scalar, a list or a map (a
//! struct is a map whose keys have types of their own), and lists and maps are either atomic, one
//! value owned as a whole, or made of parts with owners of their own (see `atom`).
mod atom;
mod compare;
mod merge;
mod reconcile;
mod remove;
mod set;
mod validate;
mod zero;

pub use compare::{Comparison, View};
pub use validate::ValidationErrors;

use super::fieldset::Set;
use crate::schema::TypeRef;
use atom::Ty;
use serde_json::Value;

/// Checks that `value` has the declared fields and types; unless `duplicates` are allowed, that
/// no set or keyed list has an element twice.
pub fn validate(value: &Value, ty: TypeRef<'_>, duplicates: bool) -> Result<(), ValidationErrors> {
    validate::check(value, Ty::Known(ty), duplicates)
}

/// Every field and list element that `value` sets.
pub fn field_set(value: &Value, ty: TypeRef<'_>) -> Set {
    set::collect(value, Ty::Known(ty)).children
}

/// `config` merged over `live`. Nothing is removed.
pub fn merge(live: &Value, config: &Value, ty: TypeRef<'_>) -> Value {
    merge::merge(live, config, Ty::Known(ty)).unwrap_or(Value::Null)
}

/// What was removed, modified and added between `old` and `new`.
pub fn compare(old: &Value, new: &Value, ty: TypeRef<'_>, view: View) -> Comparison {
    compare::compare(old, new, Ty::Known(ty), view)
}

/// Whether two trees are the same, with numbers compared as numbers.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// `value` without the fields of `set`.
pub fn remove_items(value: &Value, set: &Set, ty: TypeRef<'_>, emptied: Emptied) -> Value {
    remove::remove(value, set, Ty::Known(ty), emptied).unwrap_or(Value::Null)
}

/// What becomes of a list or map all of whose parts are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptied {
    /// It stays as `null`, which counts as being there: upstream's way between two steps.
    Null,
    /// A map stays, empty: somebody may own it as such. A list, which nobody can, is `null`.
    Empty,
}

/// Of `value` only the fields of `set`. With `keys`, list elements keep the fields that identify
/// them.
pub fn extract_items(value: &Value, set: &Set, ty: TypeRef<'_>, keys: bool) -> Value {
    if !keys {
        return remove::extract(value, set, Ty::Known(ty)).unwrap_or(Value::Null);
    }
    let set = remove::with_key_fields(set, &field_set(value, ty));
    remove::extract(value, &set, Ty::Known(ty)).unwrap_or(Value::Null)
}

/// `set` as it would have been written under today's schema, if that makes a difference: parts of
/// what has become atomic turn into the whole.
pub fn reconcile(set: &Set, ty: TypeRef<'_>) -> Option<Set> {
    reconcile::needed(set, Ty::Known(ty)).then(|| reconcile::rewrite(set, Ty::Known(ty)))
}

/// `set` with every struct field on the way to a member made a member too.
pub fn with_named_fields(set: &Set, ty: TypeRef<'_>) -> Set {
    set::with_named_fields(set, Some(Ty::Known(ty)))
}
