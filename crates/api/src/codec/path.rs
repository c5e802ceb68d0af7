//! Where a decoder is, and how upstream names that place and its type in an error.
use crate::schema::{Named, Scalar, Type, TypeRef};

/// Where the decoder is, as a list on the stack.
pub(super) enum Path<'a> {
    Root,
    Field { parent: &'a Path<'a>, name: &'a str, owner: TypeRef<'a> },
    Key { parent: &'a Path<'a>, key: &'a str },
    Index { parent: &'a Path<'a>, index: usize },
}

impl Path<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Path::Root => {}
            Path::Field { parent, name: key, .. } | Path::Key { parent, key } => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Path::Index { parent, index } => {
                parent.write(text);
                text.push_str(&format!("[{index}]"));
            }
        }
    }

    /// The same without the keys of maps, which upstream's converter of trees forgets.
    pub fn join_without_keys(&self, name: &str) -> String {
        match self {
            Path::Root => name.to_owned(),
            Path::Key { parent, .. } => parent.join_without_keys(name),
            Path::Field { parent, name: own, .. } => {
                parent.join_without_keys(&format!("{own}.{name}"))
            }
            Path::Index { parent, index } => {
                let text = parent.join_without_keys("");
                format!("{}[{index}].{name}", text.trim_end_matches('.'))
            }
        }
    }

    pub fn join(&self, name: &str) -> String {
        let text = self.text();
        if text.is_empty() { name.to_owned() } else { format!("{text}.{name}") }
    }

    /// `PodSpec.spec.containers`: the innermost Go struct, then the field names from the root.
    pub fn go_field(&self) -> Option<String> {
        let mut names = Vec::new();
        let mut innermost = None;
        let mut path = self;
        loop {
            path = match path {
                Path::Root => break,
                Path::Field { parent, name, owner } => {
                    innermost.get_or_insert(*owner);
                    names.push((*name).to_owned());
                    names.extend(embedding(*owner, name).into_iter().rev());
                    parent
                }
                Path::Key { parent, .. } | Path::Index { parent, .. } => parent,
            };
        }
        names.reverse();
        let owner = innermost?.as_struct()?;
        let owner = owner.name.rsplit('.').next().unwrap_or_default();
        Some(format!("{owner}.{}", names.join(".")))
    }
}

/// The embedded structs that lead from a struct to its inlined field, outermost first.
fn embedding(owner: TypeRef<'_>, name: &str) -> Vec<String> {
    let Some(s) = owner.as_struct() else { return Vec::new() };
    if s.field(name).is_none_or(|f| f.number != 0) {
        return Vec::new();
    }
    for inline in &s.inline {
        let inner = owner.at(inline.ty);
        if let Some(found) = inner.as_struct().filter(|inner| inner.field(name).is_some()) {
            let go_name = found.name.rsplit('.').next().unwrap_or_default().to_owned();
            let mut path = vec![go_name];
            path.extend(embedding(inner, name));
            return path;
        }
    }
    Vec::new()
}

/// The type as Go prints it, for upstream's error texts.
pub(super) fn go_type(ty: TypeRef<'_>) -> String {
    let short = |name: &str| {
        let (package, name) = name.rsplit_once('.').unwrap_or(("", name));
        format!("{}.{name}", package.rsplit('/').next().unwrap_or(package))
    };
    match ty.get() {
        Type::Scalar(Named { name: Some(name), .. }) => short(name),
        Type::Scalar(Named { scalar, .. }) => match scalar {
            Scalar::String => "string",
            Scalar::Bytes => "[]uint8",
            Scalar::Bool => "bool",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Double | Scalar::Number => "float64",
            Scalar::Quantity => "resource.Quantity",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Duration => "v1.Duration",
            Scalar::IntOrString => "intstr.IntOrString",
            Scalar::RawExtension => "runtime.RawExtension",
            Scalar::FieldsV1 => "v1.FieldsV1",
            Scalar::Json => "v1.JSON",
        }
        .to_owned(),
        Type::Struct(s) => short(&s.name),
        Type::List(list) => match &list.name {
            Some(name) => short(name),
            None => format!("[]{}", go_type(ty.at(list.element))),
        },
        Type::Map(map) => match &map.name {
            Some(name) => short(name),
            None => {
                let key = map.key.as_deref().map_or("string".to_owned(), short);
                format!("map[{key}]{}", go_type(ty.at(map.value)))
            }
        },
        Type::Either(_, props) => go_type(ty.at(*props)),
        Type::Any => "interface {}".to_owned(),
    }
}
