//! What a type is to server-side apply: a scalar, a list or a map.
use super::super::fieldset::PathElement;
use crate::schema::{Either, Field, ListKind, Scalar, Struct, Type, TypeRef};
use serde_json::{Map, Value};

/// A type, or the lack of one.
#[derive(Clone, Copy)]
pub(super) enum Ty<'s> {
    Known(TypeRef<'s>),
    /// Taken from the value: maps have parts, lists are atomic.
    Deduced,
    /// Taken from the value, which is atomic whatever it is.
    Untyped,
}

pub(super) enum Atom<'s> {
    Scalar(Option<Scalar>),
    List(ListAtom<'s>),
    Map(MapAtom<'s>),
}

pub(super) struct ListAtom<'s> {
    pub element: Ty<'s>,
    /// `None` if atomic.
    pub identity: Option<Identity<'s>>,
}

/// How an element is known.
#[derive(Clone, Copy)]
pub(super) enum Identity<'s> {
    Value,
    Keys(&'s [crate::schema::Name]),
}

pub(super) struct MapAtom<'s> {
    pub fields: Option<(&'s Struct, TypeRef<'s>)>,
    /// The type of keys that are no declared fields; `None` if there may be none.
    pub element: Option<Ty<'s>>,
    pub atomic: bool,
}

impl<'s> Ty<'s> {
    /// What this type is when it has that value.
    pub(super) fn atom(self, value: Option<&Value>) -> Atom<'s> {
        let ty = match self {
            Ty::Known(ty) => ty,
            Ty::Deduced | Ty::Untyped => return self.atom_of_value(value),
        };
        match ty.get() {
            Type::Struct(s) => {
                // An object without declared fields is free-form.
                let open = s.preserve_unknown || s.fields.is_empty();
                let element = open.then_some(Ty::Deduced);
                Atom::Map(MapAtom { fields: Some((s, ty)), element, atomic: s.atomic })
            }
            Type::Map(map) => {
                let element = Some(Ty::Known(ty.at(map.value)));
                Atom::Map(MapAtom { fields: None, element, atomic: map.atomic })
            }
            Type::List(list) => {
                let identity = match &list.kind {
                    ListKind::Atomic => None,
                    ListKind::Set => Some(Identity::Value),
                    ListKind::Map(keys) => Some(Identity::Keys(keys)),
                };
                Atom::List(ListAtom { element: Ty::Known(ty.at(list.element)), identity })
            }
            Type::Scalar(named) => match named.scalar {
                Scalar::RawExtension => Ty::Untyped.atom_of_value(value),
                Scalar::Json => Ty::Deduced.atom_of_value(value),
                Scalar::FieldsV1 => {
                    Atom::Map(MapAtom { fields: None, element: Some(Ty::Deduced), atomic: false })
                }
                scalar => Atom::Scalar(Some(scalar)),
            },
            Type::Either(
                Either::SchemaOrBool | Either::SchemaOrList | Either::SchemaOrStrings,
                _,
            )
            | Type::Any => Ty::Deduced.atom_of_value(value),
        }
    }

    fn atom_of_value(self, value: Option<&Value>) -> Atom<'s> {
        let atomic = matches!(self, Ty::Untyped);
        match value {
            Some(Value::Array(_)) => Atom::List(ListAtom { element: Ty::Untyped, identity: None }),
            // Upstream takes an absent or null value of any type for a map.
            None | Some(Value::Object(_) | Value::Null) => {
                Atom::Map(MapAtom { fields: None, element: Some(self), atomic })
            }
            Some(_) => Atom::Scalar(None),
        }
    }
}

impl Atom<'_> {
    pub(super) fn same_kind(&self, other: &Atom<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl<'s> MapAtom<'s> {
    pub(super) fn field(&self, key: &str) -> Option<&'s Field> {
        self.fields.and_then(|(s, _)| s.field(key))
    }

    /// The type below `key`, as far as it is declared.
    pub(super) fn declared(&self, key: &str) -> Option<Ty<'s>> {
        match (self.fields, self.field(key)) {
            (Some((_, ty)), Some(field)) => Some(Ty::Known(ty.at(field.ty))),
            _ => self.element,
        }
    }

    /// The type below `key`. What is not declared is taken as it comes: only a configuration being
    /// applied is held to the schema, and that is [`validate`](super::validate())'s task.
    pub(super) fn child(&self, key: &str) -> Ty<'s> {
        self.declared(key).unwrap_or(Ty::Deduced)
    }
}

impl<'s> ListAtom<'s> {
    /// What identifies `item` among its siblings.
    pub(super) fn element(
        &self,
        identity: Identity<'s>,
        item: &Value,
    ) -> Result<PathElement, String> {
        match identity {
            Identity::Value => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null"
                        .into())
                }
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            Identity::Keys(keys) => self.key(keys, item),
        }
    }

    fn key(&self, keys: &'s [crate::schema::Name], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => {
                return Err("associative list with keys may not have a null element".into());
            }
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let found = keys.iter().filter_map(|key| {
            let value = map.get(&**key).or_else(|| self.default_of(key))?;
            Some((&**key, value.clone()))
        });
        let element = PathElement::key(found);
        match &element {
            PathElement::Key(found) if found.is_empty() && !keys.is_empty() => {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ))
            }
            _ => Ok(element),
        }
    }

    fn default_of(&self, key: &str) -> Option<&'s Value> {
        match self.element {
            Ty::Known(ty) => ty.field(key)?.default.as_ref(),
            _ => None,
        }
    }
}

pub(super) fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub(super) fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

/// The keys of both maps in order, each with its values.
pub(super) fn zip<'v>(
    left: Option<&'v Map<String, Value>>,
    right: Option<&'v Map<String, Value>>,
) -> impl Iterator<Item = (&'v str, Option<&'v Value>, Option<&'v Value>)> {
    let lefts = left.into_iter().flatten();
    let rights = right.into_iter().flatten();
    let both = lefts.map(move |(key, value)| {
        (key.as_str(), Some(value), right.and_then(|right| right.get(key)))
    });
    let only_right =
        rights.filter(move |(key, _)| !left.is_some_and(|left| left.contains_key(*key)));
    both.chain(only_right.map(|(key, value)| (key.as_str(), None, Some(value))))
}
