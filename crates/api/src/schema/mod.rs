//! Schema facts: the one description of types behind every operation on an object's tree.
//!
//! A [`Schema`] is an arena of [`Type`]s. Built-in types are parsed once from a generated table
//! of facts ([`builtin`]); a CustomResourceDefinition's OpenAPI schema is compiled into the same
//! form ([`CustomSchema`]). Decoding, pruning, protobuf, strategic merge, server-side apply
//! and the OpenAPI documents walk it with a [`TypeRef`] and never ask which of the two it was.
//!
//! The facts are upstream's Go types seen from outside: what a field is called in JSON, its
//! protobuf number, when it is left out, how a list is keyed. A Go struct embedded in another
//! (`json:",inline"`) is one JSON object but a message of its own in protobuf; so a [`Struct`]
//! lists all its JSON fields flattened, and says apart which [`Inline`] messages some of them
//! travel in.

mod builtin;
mod crd;
mod default;
mod import;
mod prune;
mod text;

pub use builtin::builtin;
pub use crd::{CrdError, CustomSchema};
pub use default::{TooMuch, set_defaults};
pub use prune::prune;
pub use text::ParseError;

use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A name out of the static table, or out of a CRD.
pub type Name = Cow<'static, str>;

/// An arena of types that refer to each other by [`TypeId`].
#[derive(Debug, Default)]
pub struct Schema {
    types: Vec<Type>,
    packages: Vec<Package>,
    /// `core/v1.Pod` → its type.
    names: HashMap<Name, TypeId>,
    /// `Pod` → where it is a kind, made when it is first asked for: every request does.
    kinds: OnceLock<Kinds>,
}

/// Types by the name of their kind, each with the place of its package.
type Kinds = HashMap<Box<str>, Vec<(usize, TypeId)>>;

/// A Go package of API types: a group and version, or a library such as `meta/v1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// As type names spell it: `core/v1`.
    pub name: Name,
    /// The API group its kinds belong to; `None` for a library of shared types.
    pub group: Option<Name>,
    /// What precedes a type's name in OpenAPI: `io.k8s.api.core.v1`.
    pub openapi: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

#[derive(Debug)]
pub enum Type {
    Scalar(Named),
    Struct(Struct),
    List(List),
    Map(Map),
    /// One of two shapes, told apart by looking: only CRD schemas have these.
    Either(Either, TypeId),
    /// Any JSON at all; what its parts are is seen from the value.
    Any,
}

/// A scalar, perhaps with a name of its own (`core/v1.PullPolicy`) and the values it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    pub scalar: Scalar,
    pub name: Option<Name>,
    pub values: Vec<Name>,
}

/// A value with no parts that the schema can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    String,
    /// Base64 in JSON.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// Any JSON number: `type: number` or an integer of unknown width in a CRD.
    Number,
    Quantity,
    Time,
    MicroTime,
    Duration,
    IntOrString,
    /// An embedded object or other JSON, carried as its bytes in protobuf.
    RawExtension,
    /// The `fieldsV1` of managed fields.
    FieldsV1,
    /// `apiextensions/v1.JSON`.
    Json,
}

/// The three either-or types inside CRD schemas; the `TypeId` beside is `JSONSchemaProps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either {
    SchemaOrBool,
    SchemaOrList,
    SchemaOrStrings,
}

#[derive(Debug, Clone, Default)]
pub struct Struct {
    /// `core/v1.PodSpec`; empty for an anonymous object of a CRD.
    pub name: Name,
    /// Every JSON field, inlined ones too, sorted by name.
    pub fields: Vec<Field>,
    /// Embedded structs that are messages of their own in protobuf.
    pub inline: Vec<Inline>,
    /// `x-kubernetes-map-type: atomic`: owned and replaced as a whole.
    pub atomic: bool,
    /// At most one of its fields is set (`x-kubernetes-unions`).
    pub union: bool,
    /// Fields the schema does not name are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Holds a whole object: has `apiVersion`, `kind`, `metadata` (`x-kubernetes-embedded-resource`).
    pub embedded_resource: bool,
    /// In order of protobuf number: what the encoder writes, what the decoder looks up.
    wire: Vec<(u32, Part)>,
    /// Where in `fields` a name is, by its hash: an open table that is at least half empty. The
    /// places are counted from one; zero is none. A decoder asks this for every key it meets, and
    /// a search would touch as many names as the table is bits wide.
    places: Box<[u16]>,
}

/// What a protobuf number of a struct leads to: an index into `fields`, or into `inline`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    Field(u16),
    Inline(u16),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: Name,
    pub ty: TypeId,
    /// Protobuf number; 0 when the field is not part of the struct's own message: it belongs to
    /// an [`Inline`], or does not travel in protobuf (`kind`, `apiVersion`).
    pub number: u32,
    /// A Go pointer: absent and zero are different things.
    pub pointer: bool,
    pub omit: Omit,
    pub required: bool,
    /// JSON `null` is a value of its own (CRDs).
    pub nullable: bool,
    pub default: Option<Value>,
    /// Says which member of a union is set.
    pub discriminator: bool,
    /// The list is said to be atomic, not just taken for it: OpenAPI repeats what was said.
    pub declares_kind: bool,
    /// Whether the field's map or struct is owned as a whole, where the field says so itself.
    pub atomic: Option<bool>,
    pub patch: Patch,
    /// Written even when nobody set it: derived from the rest.
    pub(crate) always: bool,
}

/// When the encoder leaves a field out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omit {
    /// Always written, be it as zero, `{}` or `null`.
    Never,
    /// Go's `omitempty`: zero scalars, empty lists and maps, null pointers; never a struct.
    Empty,
    /// Go's `omitzero`: also a struct all of whose fields are zero.
    Zero,
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// Lists are merged by `key` (or as a set of scalars) instead of replaced.
    pub merge: bool,
    /// Map fields not named in the patch's `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// `patchStrategy: replace` spelled out on a struct or map.
    pub replace: bool,
    pub key: Option<Name>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Inline {
    pub number: u32,
    pub ty: TypeId,
}

#[derive(Debug, Clone, PartialEq)]
pub struct List {
    pub element: TypeId,
    pub kind: ListKind,
    /// Set for a list that is a message of its own in protobuf, with one repeated field
    /// (`authentication/v1.ExtraValue`).
    pub name: Option<Name>,
    /// Elements may be `null` (CRDs).
    pub nullable: bool,
}

/// `x-kubernetes-list-type`: what identifies an element, and so who owns what.
#[derive(Debug, Clone, PartialEq)]
pub enum ListKind {
    Atomic,
    Set,
    Map(Vec<Name>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    pub value: TypeId,
    /// The Go type of the keys where it is not plain `string`.
    pub key: Option<Name>,
    /// The Go name of a map that is a type (`core/v1.ResourceList`).
    pub name: Option<Name>,
    pub atomic: bool,
    /// Values may be `null` (CRDs).
    pub nullable: bool,
}

/// A type in its schema: the cursor with which trees are walked.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'s> {
    pub schema: &'s Schema,
    pub id: TypeId,
}

impl Schema {
    /// Parses a table of facts; see `schema/text.rs` for its grammar.
    pub fn parse(table: &'static str) -> Result<Schema, ParseError> {
        text::parse(table)
    }

    /// The type called, for example, `core/v1.Pod`.
    pub fn named(&self, name: &str) -> Option<TypeRef<'_>> {
        self.names.get(name).map(|&id| TypeRef { schema: self, id })
    }

    /// The type of a kind. Options and other kinds of `meta/v1` exist in every group.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeRef<'_>> {
        let places = self.kinds.get_or_init(|| self.kinds_by_name()).get(kind)?;
        let in_group = |(package, _): &&(usize, TypeId)| {
            let package = &self.packages[*package];
            package.group.as_deref() == Some(group) && package.version() == version
        };
        let shared = |(package, _): &&(usize, TypeId)| self.packages[*package].name == "meta/v1";
        let found = places.iter().find(in_group).or_else(|| places.iter().find(shared));
        found.map(|&(_, id)| TypeRef { schema: self, id })
    }

    fn kinds_by_name(&self) -> Kinds {
        let packages: HashMap<&str, usize> =
            self.packages.iter().enumerate().map(|(at, package)| (&*package.name, at)).collect();
        let mut kinds = Kinds::new();
        for (name, &id) in &self.names {
            let Some((owner, name)) = name.rsplit_once('.') else { continue };
            let Some(&package) = packages.get(owner) else { continue };
            if (TypeRef { schema: self, id }).is_kind() {
                kinds.entry(name.into()).or_default().push((package, id));
            }
        }
        for places in kinds.values_mut() {
            places.sort_unstable_by_key(|(package, _)| *package);
        }
        kinds
    }

    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Every named type of a package, by name.
    pub fn types_of<'s>(&'s self, package: &str) -> Vec<(&'s str, TypeRef<'s>)> {
        let mut types: Vec<_> = self
            .names
            .iter()
            .filter_map(|(name, &id)| {
                let (owner, name) = name.rsplit_once('.')?;
                (owner == package).then_some((name, TypeRef { schema: self, id }))
            })
            .collect();
        types.sort_by_key(|(name, _)| *name);
        types
    }

    pub(crate) fn add(&mut self, ty: Type) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("far fewer types than 2^32"));
        self.types.push(ty);
        id
    }

    pub fn at(&self, id: TypeId) -> TypeRef<'_> {
        TypeRef { schema: self, id }
    }
}

impl Scalar {
    /// Whether it is a scalar to us only because we do not look into it.
    pub fn is_opaque(self) -> bool {
        matches!(self, Scalar::RawExtension | Scalar::FieldsV1 | Scalar::Json)
    }
}

impl Package {
    pub fn version(&self) -> &str {
        self.name.rsplit_once('/').map_or(&*self.name, |(_, version)| version)
    }
}

impl<'s> TypeRef<'s> {
    pub fn get(self) -> &'s Type {
        &self.schema.types[self.id.0 as usize]
    }

    pub fn at(self, id: TypeId) -> TypeRef<'s> {
        TypeRef { schema: self.schema, id }
    }

    pub fn as_struct(self) -> Option<&'s Struct> {
        if let Type::Struct(s) = self.get() { Some(s) } else { None }
    }

    pub fn as_list(self) -> Option<&'s List> {
        if let Type::List(l) = self.get() { Some(l) } else { None }
    }

    pub fn as_map(self) -> Option<&'s Map> {
        if let Type::Map(m) = self.get() { Some(m) } else { None }
    }

    /// The struct's field of this JSON name.
    pub fn field(self, name: &str) -> Option<&'s Field> {
        self.as_struct().and_then(|s| s.field(name))
    }

    /// The type of the child that `name` leads to: a struct's field or a map's value.
    pub fn child(self, name: &str) -> Option<TypeRef<'s>> {
        match self.get() {
            Type::Struct(s) => s.field(name).map(|f| self.at(f.ty)),
            Type::Map(m) => Some(self.at(m.value)),
            _ => None,
        }
    }

    /// Whether this is a kind: an object that names itself with `apiVersion` and `kind`. They are
    /// part of its envelope in protobuf, unlike those of a mere reference.
    pub fn is_kind(self) -> bool {
        ["kind", "apiVersion"].iter().all(|name| self.field(name).is_some_and(|f| f.number == 0))
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|i| &self.fields[i])
    }

    /// Where in `fields` the field of this name is.
    pub fn position(&self, name: &str) -> Option<usize> {
        let last = self.places.len().checked_sub(1)?;
        let mut at = hash(name) & last;
        loop {
            let place = usize::from(self.places[at]).checked_sub(1)?;
            if *self.fields[place].name == *name {
                return Some(place);
            }
            at = (at + 1) & last;
        }
    }

    /// The message's parts in order of their numbers.
    pub fn wire(&self) -> &[(u32, Part)] {
        &self.wire
    }

    /// What a protobuf number stands for.
    pub fn numbered(&self, number: u32) -> Option<Part> {
        self.wire.binary_search_by_key(&number, |(n, _)| *n).ok().map(|i| self.wire[i].1)
    }

    /// Sorts the fields and derives `wire` and `places`; call once when all fields are known.
    pub(crate) fn seal(&mut self) {
        self.fields.sort_by(|a, b| a.name.cmp(&b.name));
        self.fields.dedup_by(|a, b| a.name == b.name);
        let fields = self.fields.iter().enumerate();
        let inlines = self.inline.iter().enumerate();
        self.wire = fields
            .filter(|(_, f)| f.number != 0)
            .map(|(i, f)| (f.number, Part::Field(i as u16)))
            .chain(inlines.map(|(i, inline)| (inline.number, Part::Inline(i as u16))))
            .collect();
        self.wire.sort_by_key(|(number, _)| *number);
        let mut places = vec![0; (2 * self.fields.len()).next_power_of_two()];
        let last = places.len() - 1;
        for (i, field) in self.fields.iter().enumerate() {
            let mut at = hash(&field.name) & last;
            while places[at] != 0 {
                at = (at + 1) & last;
            }
            places[at] = i as u16 + 1;
        }
        self.places = places.into();
    }
}

/// Of a field's name: its ends and its length tell the fields of one struct apart.
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let ends = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            u64::from_be_bytes(*first) ^ u64::from_be_bytes(*last).rotate_left(29)
        }
        _ => word(bytes),
    };
    let mixed = (ends ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize
}

impl Field {
    /// A plain optional field, as a CRD's property is.
    pub fn new(name: impl Into<Name>, ty: TypeId) -> Self {
        Field {
            name: name.into(),
            ty,
            number: 0,
            pointer: true,
            omit: Omit::Empty,
            required: false,
            nullable: false,
            default: None,
            discriminator: false,
            declares_kind: false,
            atomic: None,
            patch: Patch::default(),
            always: false,
        }
    }
}
