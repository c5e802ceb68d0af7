//! The table of facts in its written form: generated, compact, meant to be read in a diff.
//!
//! ```text
//! package core/v1 io.k8s.api.core.v1 group=
//! scalar PullPolicy string Always IfNotPresent Never
//! list ExtraValue []string
//! map ResourceList {ResourceName:Quantity}
//! struct Volume
//!   + VolumeSource 2
//!   name 1 string keep required
//! ```
//!
//! A name is looked up in its own package unless qualified (`meta/v1.ObjectMeta`). Types are
//! written as in Go where Go is short: `*T` pointer, `[]T` list, `{T}` map of strings to T,
//! `{K:T}` the same with a named key type. A list with a name is a message of its own in protobuf.
//! A line `+ T 2` embeds T, as message number 2 in protobuf. A field is `NAME NUMBER TYPE` and
//! then, where they apply:
//!
//! | word | meaning |
//! | --- | --- |
//! | `keep`, `omitzero` | how an empty value is written; without either, it is omitted |
//! | `required`, `nullable` | as in OpenAPI |
//! | `default=JSON` | its default, when there is more to it than the zero value |
//! | `list=atomic`, `list=set`, `list=map:k1,k2` | the list's kind; without it, atomic |
//! | `atomic`, `granular` | a map or struct that is, or is not, replaced as a whole |
//! | `patch=merge,retainKeys:key` | strategic merge |
//! | `discriminator` | says which member of a `union` struct is set |
use super::{
    Either, Field, Inline, List, ListKind, Map, Name, Named, Omit, Package, Patch, Scalar, Schema,
    Struct, Type, TypeId,
};
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
#[error("schema facts, line {line}: {problem}")]
pub struct ParseError {
    line: usize,
    problem: String,
}

pub(super) fn parse(table: &'static str) -> Result<Schema, ParseError> {
    let mut parser = Parser::default();
    parser.declare(table)?;
    parser.define(table)?;
    parser.flatten();
    Ok(parser.schema)
}

#[derive(Default)]
struct Parser {
    schema: Schema,
    package: &'static str,
    line: usize,
    /// `struct` lines in order, with what they embed.
    structs: Vec<TypeId>,
}

impl Parser {
    /// First pass: every name gets its place, so that a field may name a type further down.
    fn declare(&mut self, table: &'static str) -> Result<(), ParseError> {
        for (number, line) in table.lines().enumerate() {
            self.line = number + 1;
            let mut words = line.trim_start().split(' ');
            match (words.next(), words.next()) {
                (Some("package"), Some(name)) => {
                    self.package = name;
                    let openapi = words.next().ok_or_else(|| self.error("no OpenAPI name"))?;
                    let group = words.next().and_then(|word| word.strip_prefix("group="));
                    self.schema.packages.push(Package {
                        name: name.into(),
                        group: group.map(Name::from),
                        openapi: openapi.into(),
                    });
                }
                (Some("scalar" | "list" | "map" | "struct" | "either"), Some(name)) => {
                    let id = self.schema.add(Type::Any);
                    self.schema.names.insert(self.qualify(name), id);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Second pass: the declared types get their content.
    fn define(&mut self, table: &'static str) -> Result<(), ParseError> {
        let mut open: Option<(TypeId, Struct)> = None;
        for (number, line) in table.lines().enumerate() {
            self.line = number + 1;
            let words: Vec<&'static str> = line.trim_start().split(' ').collect();
            if let ["package" | "scalar" | "list" | "map" | "struct" | "either", _, ..] = words[..]
                && let Some((id, done)) = open.take()
            {
                self.close(id, done);
            }
            match words[..] {
                [""] | ["#", ..] => {}
                ["package", name, ..] => self.package = name,
                ["scalar", name, scalar, ref values @ ..] => {
                    let scalar =
                        scalar_named(scalar).ok_or_else(|| self.error("no such scalar"))?;
                    let values = values.iter().map(|v| Name::from(v.trim_matches('"'))).collect();
                    let named = Named { scalar, name: Some(self.qualify(name)), values };
                    self.fill(name, Type::Scalar(named));
                }
                ["either", name, which] => {
                    let which = match which {
                        "bool" => Either::SchemaOrBool,
                        "list" => Either::SchemaOrList,
                        "strings" => Either::SchemaOrStrings,
                        _ => return Err(self.error("no such either")),
                    };
                    let props = self.resolve("JSONSchemaProps")?;
                    self.fill(name, Type::Either(which, props));
                }
                ["list", name, ty] => {
                    let element = ty.strip_prefix("[]").ok_or_else(|| self.error("no list"))?;
                    let element = self.resolve(element)?;
                    let message = Some(self.qualify(name));
                    let list =
                        List { element, kind: ListKind::Atomic, name: message, nullable: false };
                    self.fill(name, Type::List(list));
                }
                ["map", name, ty] => {
                    let mut map = self.map(ty)?;
                    map.name = Some(self.qualify(name));
                    self.fill(name, Type::Map(map));
                }
                ["struct", name, ref flags @ ..] => {
                    let id = self.resolve(name)?;
                    let atomic = flags.contains(&"atomic");
                    let union = flags.contains(&"union");
                    open = Some((
                        id,
                        Struct { name: self.qualify(name), atomic, union, ..Struct::default() },
                    ));
                }
                ["+", ty, number] => {
                    let inline = Inline { number: self.number(number)?, ty: self.resolve(ty)? };
                    let (_, ref mut into) = *open.as_mut().ok_or_else(|| self.error("outside"))?;
                    into.inline.push(inline);
                }
                [name, number, ty, ref flags @ ..] => {
                    let field = self.field(name, number, ty, flags)?;
                    let (_, ref mut into) = *open.as_mut().ok_or_else(|| self.error("outside"))?;
                    into.fields.push(field);
                }
                _ => return Err(self.error("not a line of the table")),
            }
        }
        if let Some((id, done)) = open.take() {
            self.close(id, done);
        }
        Ok(())
    }

    /// Third pass: the fields of embedded structs become fields of the struct's JSON object.
    fn flatten(&mut self) {
        let mut done = vec![false; self.schema.types.len()];
        for &id in &std::mem::take(&mut self.structs) {
            self.flatten_one(id, &mut done);
            self.override_atomic(id);
        }
    }

    /// A field may own its struct otherwise than the struct says: it gets a copy that agrees.
    fn override_atomic(&mut self, id: TypeId) {
        let Type::Struct(owner) = &self.schema.types[id.0 as usize] else { return };
        let overridden: Vec<(usize, bool, TypeId)> = owner
            .fields
            .iter()
            .enumerate()
            .filter_map(|(i, field)| Some((i, field.atomic?, field.ty)))
            .collect();
        for (i, atomic, ty) in overridden {
            let copy = match &self.schema.types[ty.0 as usize] {
                Type::Struct(s) if s.atomic != atomic => Struct { atomic, ..s.clone() },
                _ => continue,
            };
            let ty = self.schema.add(Type::Struct(copy));
            if let Type::Struct(owner) = &mut self.schema.types[id.0 as usize] {
                owner.fields[i].ty = ty;
            }
        }
    }

    fn flatten_one(&mut self, id: TypeId, done: &mut [bool]) {
        if std::mem::replace(&mut done[id.0 as usize], true) {
            return;
        }
        let inlined: Vec<TypeId> = match &self.schema.types[id.0 as usize] {
            Type::Struct(s) => s.inline.iter().map(|inline| inline.ty).collect(),
            _ => return,
        };
        let mut inherited = Vec::new();
        for ty in inlined {
            self.flatten_one(ty, done);
            if let Type::Struct(s) = &self.schema.types[ty.0 as usize] {
                inherited.extend(s.fields.iter().map(|f| Field { number: 0, ..f.clone() }));
            }
        }
        let mut own = match &self.schema.types[id.0 as usize] {
            Type::Struct(s) => s.fields.clone(),
            _ => return,
        };
        for field in &mut own {
            let by_shape = !field.pointer
                && field.omit == Omit::Empty
                && crate::codec::is_struct_in_go(self.schema.at(field.ty));
            field.always = field.omit == Omit::Never || by_shape;
            if field.default.is_none() && !field.pointer && field.omit == Omit::Never {
                field.default = self.zero(field.ty);
            }
        }
        if let Type::Struct(s) = &mut self.schema.types[id.0 as usize] {
            s.fields = own;
            // The struct's own fields come first: on a shared name they win, as in Go.
            s.fields.extend(inherited);
            s.seal();
        }
    }

    fn field(
        &mut self,
        name: &'static str,
        number: &'static str,
        ty: &'static str,
        flags: &[&'static str],
    ) -> Result<Field, ParseError> {
        let (pointer, ty) = ty.strip_prefix('*').map_or((false, ty), |ty| (true, ty));
        let mut field = Field {
            number: self.number(number)?,
            pointer,
            omit: Omit::Empty,
            ..Field::new(name, TypeId(0))
        };
        let mut kind = ListKind::Atomic;
        for flag in flags {
            match flag.split_once('=').unwrap_or((flag, "")) {
                ("keep", _) => field.omit = Omit::Never,
                ("omitzero", _) => field.omit = Omit::Zero,
                ("required", _) => field.required = true,
                ("nullable", _) => field.nullable = true,
                ("discriminator", _) => field.discriminator = true,
                ("atomic", _) => field.atomic = Some(true),
                ("granular", _) => field.atomic = Some(false),
                ("default", json) => {
                    let value = serde_json::from_str(json).map_err(|e| self.error(e))?;
                    field.default = Some(value);
                }
                ("list", "atomic") => field.declares_kind = true,
                ("list", "set") => kind = ListKind::Set,
                ("list", keys) => {
                    let keys =
                        keys.strip_prefix("map:").ok_or_else(|| self.error("no list kind"))?;
                    kind = ListKind::Map(keys.split(',').map(Name::from).collect());
                }
                ("patch", strategy) => field.patch = self.patch(strategy)?,
                _ => return Err(self.error(format!("unknown word {flag:?}"))),
            }
        }
        field.ty = if let Some(element) = ty.strip_prefix("[]") {
            let element = self.resolve(element)?;
            self.schema.add(Type::List(List { element, kind, name: None, nullable: false }))
        } else if ty.starts_with('{') {
            let map = self.map(ty)?;
            self.schema.add(Type::Map(Map { atomic: field.atomic == Some(true), ..map }))
        } else {
            self.resolve(ty)?
        };
        Ok(field)
    }

    /// A required scalar that is left out means its zero value, which a list's key relies on.
    fn zero(&self, ty: TypeId) -> Option<Value> {
        match &self.schema.types[ty.0 as usize] {
            Type::Scalar(Named { scalar: Scalar::String, .. }) => Some("".into()),
            Type::Scalar(Named { scalar: Scalar::Bool, .. }) => Some(false.into()),
            Type::Scalar(Named { scalar: Scalar::Int32 | Scalar::Int64, .. }) => Some(0.into()),
            _ => None,
        }
    }

    fn patch(&self, strategy: &'static str) -> Result<Patch, ParseError> {
        let (words, key) = strategy.split_once(':').unwrap_or((strategy, ""));
        let mut patch =
            Patch { key: (!key.is_empty()).then(|| Name::from(key)), ..Patch::default() };
        for word in words.split(',') {
            match word {
                "merge" => patch.merge = true,
                "retainKeys" => patch.retain_keys = true,
                "replace" => patch.replace = true,
                _ => return Err(self.error(format!("unknown patch strategy {word:?}"))),
            }
        }
        Ok(patch)
    }

    fn map(&mut self, ty: &'static str) -> Result<Map, ParseError> {
        let inner = ty.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        let inner = inner.ok_or_else(|| self.error("no map"))?;
        let (key, value) = match inner.split_once(':') {
            Some((key, value)) => (Some(self.qualify(key)), value),
            None => (None, inner),
        };
        Ok(Map { value: self.resolve(value)?, key, name: None, atomic: false, nullable: false })
    }

    /// The type a word of the table names; lists and maps of lists or maps are made on the way.
    fn resolve(&mut self, ty: &'static str) -> Result<TypeId, ParseError> {
        if let Some(element) = ty.strip_prefix("[]") {
            let element = self.resolve(element)?;
            let kind = ListKind::Atomic;
            return Ok(self.schema.add(Type::List(List {
                element,
                kind,
                name: None,
                nullable: false,
            })));
        }
        if ty.starts_with('{') {
            let map = self.map(ty)?;
            return Ok(self.schema.add(Type::Map(map)));
        }
        if let Some(&id) = self.schema.names.get(&self.qualify(ty)) {
            return Ok(id);
        }
        let scalar = scalar_named(ty).ok_or_else(|| self.error(format!("no type {ty:?}")))?;
        let id = self.schema.add(Type::Scalar(Named { scalar, name: None, values: Vec::new() }));
        // One entry serves every later mention.
        self.schema.names.insert(self.qualify(ty), id);
        Ok(id)
    }

    fn close(&mut self, id: TypeId, content: Struct) {
        self.schema.types[id.0 as usize] = Type::Struct(content);
        self.structs.push(id);
    }

    fn fill(&mut self, name: &str, content: Type) {
        if let Some(id) = self.schema.names.get(&self.qualify(name)) {
            self.schema.types[id.0 as usize] = content;
        }
    }

    /// Scalars belong to no package; every other unqualified name belongs to the current one.
    fn qualify(&self, name: &str) -> Name {
        if name.contains('.') || scalar_named(name).is_some() {
            Name::Owned(name.to_owned())
        } else {
            Name::Owned(format!("{}.{name}", self.package))
        }
    }

    fn number(&self, word: &str) -> Result<u32, ParseError> {
        word.parse().map_err(|_| self.error(format!("{word:?} is no field number")))
    }

    fn error(&self, problem: impl ToString) -> ParseError {
        ParseError { line: self.line, problem: problem.to_string() }
    }
}

const SCALARS: &[(&str, Scalar)] = &[
    ("string", Scalar::String),
    ("bytes", Scalar::Bytes),
    ("bool", Scalar::Bool),
    ("int32", Scalar::Int32),
    ("int64", Scalar::Int64),
    ("double", Scalar::Double),
    ("Quantity", Scalar::Quantity),
    ("Time", Scalar::Time),
    ("MicroTime", Scalar::MicroTime),
    ("Duration", Scalar::Duration),
    ("IntOrString", Scalar::IntOrString),
    ("RawExtension", Scalar::RawExtension),
    ("FieldsV1", Scalar::FieldsV1),
    ("JSON", Scalar::Json),
];

fn scalar_named(word: &str) -> Option<Scalar> {
    SCALARS.iter().find(|(name, _)| *name == word).map(|(_, scalar)| *scalar)
}

#[cfg(test)]
mod tests {
    use super::super::*;

    const TABLE: &str = "\
package core/v1 io.k8s.api.core.v1 group=
scalar PullPolicy string Always Never
struct Volume
+ VolumeSource 2
name 1 string keep required
struct VolumeSource
emptyDir 2 *EmptyDir
struct EmptyDir
sizeLimit 2 *Quantity
struct Pod
kind 0 string
apiVersion 0 string
volumes 1 []Volume list=map:name patch=merge,retainKeys:name
limits 7 {Quantity} atomic
policy 9 PullPolicy default=\"Always\"";

    #[test]
    fn embedded_fields_are_json_fields_of_the_outer_struct() {
        let schema = Schema::parse(TABLE).unwrap();
        let volume = schema.named("core/v1.Volume").unwrap().as_struct().unwrap();
        let names: Vec<&str> = volume.fields.iter().map(|f| &*f.name).collect();
        assert_eq!(names, ["emptyDir", "name"]);
        assert_eq!(volume.numbered(1), Some(Part::Field(1)));
        assert_eq!(volume.numbered(2), Some(Part::Inline(0)));
    }

    #[test]
    fn a_field_carries_its_facts() {
        let schema = Schema::parse(TABLE).unwrap();
        let pod = schema.kind("", "v1", "Pod").unwrap();
        let volumes = pod.field("volumes").unwrap();
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
        assert_eq!(volumes.patch.key.as_deref(), Some("name"));
        assert_eq!(pod.at(volumes.ty).as_list().unwrap().kind, ListKind::Map(vec!["name".into()]));
        assert!(pod.child("limits").unwrap().as_map().unwrap().atomic);
        assert_eq!(pod.field("policy").unwrap().default, Some("Always".into()));
    }

    #[test]
    fn an_unknown_word_is_reported_with_its_line() {
        let error = Schema::parse("package a/v1 a\nstruct A\nb 1 string sometimes").unwrap_err();
        assert_eq!(error.to_string(), "schema facts, line 3: unknown word \"sometimes\"");
    }
}
