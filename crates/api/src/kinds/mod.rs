//! Every resource the API serves, one row each ([`RESOURCES`]).
//!
//! Routes, discovery, OpenAPI, storage keys and kubectl's names are derived from the rows. A row
//! is made from its typed form, so that group, version, kind, plural and scope are the type's and
//! cannot be misspelt. What is peculiar to one kind is its [`Rules`], which it cannot be without.
mod interned;
mod registry;
mod shape;
mod table;

pub use interned::{intern, intern_all};
pub use registry::{Registry, ResourceRef};
pub use table::RESOURCES;

use crate::custom::Definition;
use crate::depth;
use crate::group::{GroupKind, GroupResource};
use crate::rules::{Form, Kind, Rules};
use crate::schema::{TypeRef, builtin};
use k8s_openapi::{ClusterResourceScope, ListableResource, NamespaceResourceScope};
use serde_json::Value;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// A resource as it is served in one version.
#[derive(Debug)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Kind of its list; empty where there is none.
    pub list_kind: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: Verbs,
    pub subresources: &'static [Subresource],
    /// Where its objects are, below `/registry/`; empty for what is never stored.
    pub storage: &'static str,
    /// The `apiVersion` its objects are stored in, when that is another row's.
    pub stored_as: Option<&'static str>,
    /// A deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// To and from its typed form.
    pub typed: Typed,
    /// What is peculiar to the kind.
    pub rules: Rules,
    /// What it has from its CustomResourceDefinition, if it is not built in.
    pub definition: Option<Arc<Definition>>,
}

/// A kind's typed form behind one signature, so that a cache can hold objects of every kind and
/// decode each at most once.
#[derive(Debug, Clone, Copy)]
pub struct Typed {
    /// JSON into the typed form.
    pub decode: fn(&[u8]) -> Result<Shared, serde_json::Error>,
    /// The typed form into JSON; `None` if it is another kind's.
    pub encode: fn(&(dyn Any + Send + Sync)) -> Option<Encoded>,
}

/// JSON, or why there is none.
pub type Encoded = Result<Vec<u8>, serde_json::Error>;

/// A typed object whose kind is known from elsewhere.
pub type Shared = Box<dyn Any + Send + Sync>;

impl Typed {
    /// Of a kind that is known from its definition only: a tree.
    pub fn untyped() -> Typed {
        Typed {
            decode: |json| Ok(Box::new(depth::read::<Value>(json)?)),
            encode: |object| Some(serde_json::to_vec(object.downcast_ref::<Value>()?)),
        }
    }
}

const fn typed<T: Form>() -> Typed {
    Typed {
        decode: |json| Ok(Box::new(depth::read::<T>(json)?)),
        encode: |object| Some(serde_json::to_vec(object.downcast_ref::<T>()?)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// A set of verbs, listed in alphabetical order as discovery does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verbs(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

/// A part of a resource with a path and verbs of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Subresource {
    pub name: &'static str,
    /// The kind it is read and written as; `None`: the resource's own kind.
    pub kind: Option<Foreign>,
    pub verbs: Verbs,
}

/// A kind of another group and version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Foreign {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

impl Verb {
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

impl Verbs {
    pub const ALL: Verbs = Verbs(0xff);

    pub const fn of(verbs: &[Verb]) -> Verbs {
        let mut set = 0;
        let mut i = 0;
        while i < verbs.len() {
            set |= 1 << verbs[i] as u8;
            i += 1;
        }
        Verbs(set)
    }

    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.contains(*verb))
    }
}

/// A row of a namespaced kind, with every verb, stored below its plural.
const fn namespaced<T: Kind + ListableResource<Scope = NamespaceResourceScope>>() -> Resource {
    row::<T>(Scope::Namespaced)
}

/// A row of a kind that belongs to no namespace.
const fn cluster<T: Kind + ListableResource<Scope = ClusterResourceScope>>() -> Resource {
    row::<T>(Scope::Cluster)
}

const fn row<T: Kind + ListableResource>(scope: Scope) -> Resource {
    let mut row = question::<T>(scope);
    row.list_kind = T::LIST_KIND;
    row.storage = T::URL_PATH_SEGMENT;
    row.verbs = Verbs::ALL;
    row
}

/// A kind that is a question: created, answered, never stored.
const fn question<T: Kind>(scope: Scope) -> Resource {
    Resource {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        list_kind: "",
        plural: T::URL_PATH_SEGMENT,
        short_names: &[],
        categories: &[],
        scope,
        verbs: Verbs::of(&[Verb::Create]),
        subresources: &[],
        storage: "",
        stored_as: None,
        returns_deleted: false,
        typed: typed::<T>(),
        rules: Rules::of::<T>(),
        definition: None,
    }
}

impl Resource {
    const fn short(mut self, short_names: &'static [&'static str]) -> Self {
        self.short_names = short_names;
        self
    }

    const fn category(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    const fn verbs(mut self, verbs: &[Verb]) -> Self {
        self.verbs = Verbs::of(verbs);
        self
    }

    const fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    const fn plural(mut self, plural: &'static str) -> Self {
        self.plural = plural;
        self
    }

    const fn stored_at(mut self, storage: &'static str) -> Self {
        self.storage = storage;
        self
    }

    const fn stored_as(mut self, api_version: &'static str) -> Self {
        self.stored_as = Some(api_version);
        self
    }

    const fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        join(self.group, self.version)
    }

    /// The `apiVersion` its objects are stored in.
    pub fn storage_version(&self) -> String {
        self.stored_as.map_or_else(|| self.api_version(), str::to_owned)
    }

    pub fn singular(&self) -> String {
        match &self.definition {
            Some(definition) => definition.singular.to_owned(),
            None => self.kind.to_ascii_lowercase(),
        }
    }

    /// Whether it is this built-in kind: a definition may call its own the same.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group == group && self.definition.is_none()
    }

    /// Group and kind of what is built in; both are empty for what a definition brought. For whoever
    /// tells kinds apart: a name alone may be anybody's.
    pub fn built_in(&self) -> (&'static str, &'static str) {
        if self.definition.is_none() { (self.group, self.kind) } else { ("", "") }
    }

    pub const fn is_namespaced(&self) -> bool {
        matches!(self.scope, Scope::Namespaced)
    }

    /// Whether its objects are sent as they are stored: what a definition says may have changed since,
    /// and another version is made of the stored one.
    pub fn is_sent_as_stored(&self) -> bool {
        self.stored_as.is_none() && self.definition.is_none()
    }

    /// Questions are answered and forgotten; everything else is kept.
    pub const fn is_stored(&self) -> bool {
        !self.storage.is_empty()
    }

    /// Its type: in the schema of built-in kinds, or in its definition's own.
    pub fn ty(&self) -> TypeRef<'_> {
        if let Some(definition) = &self.definition {
            return definition.version.schema.root();
        }
        builtin()
            .kind(self.group, self.version, self.kind)
            .expect("every row's kind is in the facts: a test says so")
    }

    /// Its list's type, where it has one.
    pub fn list_ty(&self) -> Option<TypeRef<'static>> {
        if self.definition.is_some() {
            return None;
        }
        builtin().kind(self.group, self.version, self.list_kind)
    }

    pub const fn group_resource(&self) -> GroupResource<'static> {
        GroupResource::new(self.group, self.plural)
    }

    pub const fn group_kind(&self) -> GroupKind<'static> {
        GroupKind::new(self.group, self.kind)
    }

    /// The kind as it is stored: what messages about it name.
    pub fn stored_group_kind(&self) -> GroupKind<'static> {
        let group = self
            .stored_as
            .map_or(self.group, |stored| stored.split_once('/').map_or("", |(group, _)| group));
        GroupKind::new(group, self.kind)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The key prefix of its objects, with the slash: `/registry/services/specs/`.
    pub fn key_prefix(&self) -> String {
        format!("/registry/{}/", self.storage)
    }

    /// The key of one object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        match self.scope {
            Scope::Namespaced => format!("/registry/{}/{namespace}/{name}", self.storage),
            Scope::Cluster => format!("/registry/{}/{name}", self.storage),
        }
    }
}

impl Foreign {
    pub fn ty(&self) -> TypeRef<'static> {
        builtin()
            .kind(self.group, self.version, self.kind)
            .expect("every subresource's kind is in the facts: a test says so")
    }
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The row of a path: `/apis/{group}/{version}/{plural}`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    static ROWS: LazyLock<Rows> = LazyLock::new(|| rows_by(|resource| resource.plural));
    let mut rows = ROWS.get(plural)?.iter();
    rows.find(|r| r.version == version && r.group == group).copied()
}

/// Rows that share a name. Every request looks for its own, so none of them walks the table.
type Rows = HashMap<&'static str, Vec<&'static Resource>>;

fn rows_by(name: fn(&Resource) -> &'static str) -> Rows {
    let mut rows = Rows::new();
    for resource in RESOURCES {
        rows.entry(name(resource)).or_default().push(resource);
    }
    rows
}

/// The row of an object's own `apiVersion` and `kind`.
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    static ROWS: LazyLock<Rows> = LazyLock::new(|| rows_by(|resource| resource.kind));
    let mut rows = ROWS.get(kind)?.iter();
    rows.find(|r| r.version == version && r.group == group).copied()
}

/// The groups of built-in rows in the order discovery lists them, each with its versions, preferred
/// first.
pub fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    built_in().groups()
}

/// The registry without any definition.
pub fn built_in() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::default);
    &REGISTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_has_its_types_in_the_facts() {
        for resource in RESOURCES {
            let ty = resource.ty();
            assert!(ty.child("metadata").is_some(), "{} has no metadata", resource.kind);
            assert_eq!(resource.list_ty().is_some(), !resource.list_kind.is_empty());
            for subresource in resource.subresources {
                if let Some(kind) = &subresource.kind {
                    kind.ty();
                }
            }
        }
    }

    #[test]
    fn no_path_kind_or_short_name_is_taken_twice() {
        let mut taken = HashSet::new();
        for r in RESOURCES {
            assert!(taken.insert((r.group, r.version, r.plural)), "{} twice", r.plural);
            assert!(taken.insert((r.group, r.version, r.kind)), "{} twice", r.kind);
        }
        let mut keys = HashSet::new();
        for r in RESOURCES.iter().filter(|r| r.is_stored() && r.stored_as.is_none()) {
            assert!(keys.insert(r.storage), "{} is stored where another is", r.plural);
        }
    }

    #[test]
    fn another_version_is_stored_with_the_row_it_names() {
        for r in RESOURCES {
            if let Some(api_version) = r.stored_as {
                let home = find_kind(api_version, r.kind).expect("the storage version is a row");
                assert_eq!((home.storage, home.stored_as), (r.storage, None));
            }
        }
    }

    #[test]
    fn keys_are_upstreams() {
        let key = |api_version, kind| find_kind(api_version, kind).unwrap().key("default", "a");
        assert_eq!(key("v1", "Pod"), "/registry/pods/default/a");
        assert_eq!(key("v1", "Node"), "/registry/minions/a");
        assert_eq!(key("v1", "Service"), "/registry/services/specs/default/a");
        assert_eq!(key("networking.k8s.io/v1", "Ingress"), "/registry/ingress/default/a");
        assert_eq!(
            key("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            "/registry/apiextensions.k8s.io/customresourcedefinitions/a"
        );
    }
}
