//! What the schema says about one key of an object being patched.
use super::Error;
use crate::schema::{Patch, Scalar, Type, TypeRef};

/// The type that `key` leads to, and how patches treat it.
pub(super) fn field<'s>(ty: TypeRef<'s>, key: &str) -> Result<(TypeRef<'s>, &'s Patch), Error> {
    let unknown = |name: &str| Error::UnknownField { name: name.to_owned(), field: key.to_owned() };
    match ty.get() {
        Type::Struct(s) => {
            // Go's decoder falls back to a name that differs only in case.
            let field = s
                .field(key)
                .or_else(|| s.fields.iter().find(|field| field.name.eq_ignore_ascii_case(key)));
            match field {
                Some(field) => Ok((ty.at(field.ty), &field.patch)),
                None => Err(unknown(s.name.rsplit('.').next().unwrap_or_default())),
            }
        }
        Type::Either(..) => Err(unknown("JSONSchemaProps")),
        Type::Scalar(named) if named.scalar == Scalar::RawExtension => Err(unknown("RawExtension")),
        Type::Scalar(named) if named.scalar == Scalar::Json => Err(unknown("JSON")),
        Type::Scalar(_) => Err(Error::NotAStruct("string")),
        Type::Map(_) => Err(Error::NotAStruct("map")),
        Type::List(_) => Err(Error::NotAStruct("slice")),
        Type::Any => Err(Error::NotAStruct("interface")),
    }
}

/// The type of the elements of the list that `key` leads to.
pub(super) fn list<'s>(ty: TypeRef<'s>, key: &str) -> Result<(TypeRef<'s>, &'s Patch), Error> {
    let (list, patch) = field(ty, key)?;
    match list.get() {
        Type::List(l) => Ok((list.at(l.element), patch)),
        // An embedded object may well be a list in JSON; what is in it is nobody's business.
        Type::Any | Type::Scalar(_) => Ok((list, patch)),
        _ => Err(Error::NotAList),
    }
}

/// The Go kind of a list's elements, for messages.
pub(super) fn kind(ty: TypeRef<'_>) -> &'static str {
    match ty.get() {
        Type::Struct(_) | Type::Either(..) => "struct",
        Type::Map(_) => "map",
        Type::List(_) => "slice",
        Type::Scalar(_) | Type::Any => "string",
    }
}
