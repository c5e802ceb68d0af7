//! Who knows the fields of objects.
use crate::types::Type;
use api::schema::{Scalar, Type as SchemaType, TypeRef};
use std::borrow::Cow;

/// Knows object types by name.
pub trait Types: Send + Sync {
    /// Whether there is a type of this name.
    fn knows(&self, object: &str) -> bool;

    /// The type of a field; none if there is no such field.
    fn field(&self, object: &str, field: &str) -> Option<Type>;
}

/// Object types that are a table: of each its fields, with their types as signatures spell them, or the
/// names of other rows.
pub struct Declared(pub fn(&str) -> Option<Fields>);

/// The fields of one object type.
pub type Fields = &'static [(&'static str, &'static str)];

impl Types for Declared {
    fn knows(&self, object: &str) -> bool {
        (self.0)(object).is_some()
    }

    fn field(&self, object: &str, field: &str) -> Option<Type> {
        let (_, ty) = (self.0)(object)?.iter().find(|(name, _)| *name == field)?;
        let element = ty.strip_prefix("list(").and_then(|rest| rest.strip_suffix(')'));
        match (self.knows(ty), element.filter(|name| self.knows(name))) {
            (true, _) => Some(Type::object(ty)),
            (_, Some(name)) => Some(Type::list(Type::object(name))),
            _ => Type::parse(ty),
        }
    }
}

/// The types of a built-in kind. The root has a name; what it contains is named by the way there:
/// `Pod.spec`, `Pod.spec.containers.@idx`.
pub struct SchemaTypes {
    name: String,
    root: TypeRef<'static>,
}

impl SchemaTypes {
    pub fn of_kind(name: String, root: TypeRef<'static>) -> Self {
        SchemaTypes { name, root }
    }

    fn find(&self, object: &str) -> Option<TypeRef<'_>> {
        let mut at = self.root;
        let rest = object.strip_prefix(&*self.name)?;
        for step in rest.split('.').skip(1) {
            at = match step {
                "@idx" => at.at(at.as_list()?.element),
                "@elem" => at.at(at.as_map()?.value),
                field => at.at(at.field(field)?.ty),
            };
        }
        (rest.is_empty() || rest.starts_with('.')).then_some(at)
    }

    /// The type of what is found on a way.
    fn declared(&self, path: &str, ty: TypeRef<'_>) -> Type {
        match ty.get() {
            SchemaType::Scalar(named) => match named.scalar {
                Scalar::String | Scalar::Quantity | Scalar::Duration => Type::String,
                Scalar::Bytes => Type::Bytes,
                Scalar::Bool => Type::Bool,
                Scalar::Int32 | Scalar::Int64 => Type::Int,
                Scalar::Double => Type::Double,
                Scalar::Time | Scalar::MicroTime => Type::Timestamp,
                _ => Type::Dyn,
            },
            SchemaType::Struct(object) if object.fields.is_empty() => Type::Dyn,
            SchemaType::Struct(_) => Type::object(path),
            SchemaType::List(list) => {
                Type::list(self.declared(&format!("{path}.@idx"), ty.at(list.element)))
            }
            SchemaType::Map(map) => {
                let value = self.declared(&format!("{path}.@elem"), ty.at(map.value));
                Type::map(Type::String, value)
            }
            SchemaType::Either(..) | SchemaType::Any => Type::Dyn,
        }
    }
}

impl Types for SchemaTypes {
    fn knows(&self, object: &str) -> bool {
        self.find(object).is_some_and(|ty| ty.as_struct().is_some())
    }

    fn field(&self, object: &str, field: &str) -> Option<Type> {
        let ty = self.find(object)?;
        let name = unescape(field);
        let field = ty.field(&name)?;
        Some(self.declared(&format!("{object}.{name}"), ty.at(field.ty)))
    }
}

/// Words that are no names in expressions.
const WORDS: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub fn is_word(name: &str) -> bool {
    WORDS.contains(&name)
}

/// What stands for what in a field's name (`apiserver/pkg/cel/escaping.go`).
const ESCAPES: &[(&str, &str)] =
    &[("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// A field's name in the form in which an expression can write it; none if there is no such form.
pub fn escape(field: &str) -> Option<String> {
    let first = field.chars().next()?;
    let known = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if first.is_ascii_digit() || !field.chars().all(known) {
        return None;
    }
    if WORDS.contains(&field) {
        return Some(format!("__{field}__"));
    }
    let (mut escaped, mut rest) = (String::with_capacity(field.len()), field);
    while let Some(first) = rest.chars().next() {
        let found = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain));
        let length = match found {
            Some((plain, name)) => {
                escaped.extend(["__", name, "__"]);
                plain.len()
            }
            None => {
                escaped.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(escaped)
}

/// A field's name out of that form; none if it is not in it.
pub fn unescape_field(field: &str) -> Option<Cow<'_, str>> {
    if !field.contains("__") {
        return Some(Cow::Borrowed(field));
    }
    let (mut plain, mut rest) = (String::with_capacity(field.len()), field);
    while let Some(first) = rest.chars().next() {
        let inner = rest.strip_prefix("__").and_then(|inner| {
            let end = inner.find('_')?;
            (end > 0 && inner[end..].starts_with("__")).then(|| &inner[..end])
        });
        let Some(name) = inner else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let whole = name.len() + 4;
        match ESCAPES.iter().find(|(_, known)| *known == name) {
            Some((meant, _)) => plain.push_str(meant),
            None if WORDS.contains(&name) && whole == field.len() => plain.push_str(name),
            None => return None,
        }
        rest = &rest[whole..];
    }
    Some(Cow::Owned(plain))
}

/// A field's name out of the form in which an expression can write it; as it is if it is not in it.
pub fn unescape(field: &str) -> String {
    unescape_field(field).map_or_else(|| field.to_owned(), Cow::into_owned)
}
