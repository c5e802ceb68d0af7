//! The registry as a value: the built-in rows and those of definitions, at one moment.
//!
//! It is replaced as a whole when a definition changes; whoever answers a request keeps the one it
//! began with. Built-in rows come first: no definition takes a built-in version's place.
use super::{RESOURCES, Resource};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A row, built in or defined: cheap to hold and to pass on.
#[derive(Clone)]
pub enum ResourceRef {
    BuiltIn(&'static Resource),
    Defined(Arc<Resource>),
}

impl Deref for ResourceRef {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        match self {
            ResourceRef::BuiltIn(row) => row,
            ResourceRef::Defined(row) => row,
        }
    }
}

impl fmt::Debug for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.plural)
    }
}

impl From<&'static Resource> for ResourceRef {
    fn from(row: &'static Resource) -> ResourceRef {
        ResourceRef::BuiltIn(row)
    }
}

/// Every row there is at one moment.
#[derive(Debug)]
pub struct Registry {
    /// Grows with every change.
    generation: u64,
    rows: Vec<ResourceRef>,
    by_plural: Places,
    by_kind: Places,
}

/// Where in `rows` those are that share a name: every request looks for its own.
type Places = HashMap<&'static str, Vec<usize>>;

impl Default for Registry {
    fn default() -> Registry {
        Registry::new(0, Vec::new())
    }
}

impl Registry {
    /// The built-in rows and these. Those of a version that is built in are left out, as is what
    /// another row already is.
    pub fn new(generation: u64, defined: Vec<ResourceRef>) -> Registry {
        let mut registry = Registry {
            generation,
            rows: RESOURCES.iter().map(ResourceRef::BuiltIn).collect(),
            by_plural: Places::new(),
            by_kind: Places::new(),
        };
        for place in 0..registry.rows.len() {
            registry.index(place);
        }
        let built_in = registry.rows.len();
        for row in defined {
            let mut others = registry.rows[..built_in].iter();
            let taken = others.any(|r| r.group == row.group && r.version == row.version);
            if taken || registry.find(row.group, row.version, row.plural).is_some() {
                continue;
            }
            registry.rows.push(row);
            registry.index(registry.rows.len() - 1);
        }
        registry
    }

    fn index(&mut self, place: usize) {
        let row = &self.rows[place];
        self.by_plural.entry(row.plural).or_default().push(place);
        self.by_kind.entry(row.kind).or_default().push(place);
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether these are the rows of definitions in it, in this order.
    pub fn is_of(&self, defined: &[ResourceRef]) -> bool {
        let mine = self.rows.iter().filter(|row| row.definition.is_some());
        let mut pairs = mine.clone().zip(defined);
        mine.count() == defined.len() && pairs.all(|(a, b)| std::ptr::eq(&**a, &**b))
    }

    /// The row of a path: `/apis/{group}/{version}/{plural}`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&ResourceRef> {
        let rows = self.by_plural.get(plural)?.iter().map(|place| &self.rows[*place]);
        rows.into_iter().find(|row| row.version == version && row.group == group)
    }

    /// The same objects under other versions or groups: rows that share their place in the store, and so
    /// their plural.
    pub fn others(&self, resource: &Resource) -> impl Iterator<Item = &ResourceRef> {
        let rows = self.by_plural.get(resource.plural).into_iter().flatten();
        let rows = rows.map(|place| &self.rows[*place]).filter(|_| resource.is_stored());
        rows.filter(|other| {
            other.storage == resource.storage
                && (other.group, other.version) != (resource.group, resource.version)
        })
    }

    /// The row of an object's own `apiVersion` and `kind`.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&ResourceRef> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let rows = self.by_kind.get(kind)?.iter().map(|place| &self.rows[*place]);
        rows.into_iter().find(|row| row.version == version && row.group == group)
    }

    /// Every row, the built-in ones first.
    pub fn rows(&self) -> &[ResourceRef] {
        &self.rows
    }

    /// The rows of one group and version.
    pub fn rows_of(&self, group: &str, version: &str) -> impl Iterator<Item = &ResourceRef> {
        self.rows.iter().filter(move |row| row.group == group && row.version == version)
    }

    /// Groups in the order discovery lists them, each with its versions, preferred first: the
    /// built-in ones as their rows stand, then those of definitions by name.
    pub fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for row in &self.rows {
            let place = *places.entry(row.group).or_insert_with(|| {
                groups.push((row.group, Vec::new()));
                groups.len() - 1
            });
            let versions = &mut groups[place].1;
            if !versions.contains(&row.version) {
                versions.push(row.version);
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_version_is_preferred() {
        let groups = Registry::default().groups();
        let autoscaling = groups.iter().find(|(group, _)| *group == "autoscaling").unwrap();
        assert_eq!(autoscaling.1, ["v2", "v1"]);
        assert_eq!(groups[0], ("", vec!["v1"]));
    }

    #[test]
    fn every_built_in_row_is_found() {
        let registry = Registry::default();
        for row in RESOURCES {
            let found = registry.find(row.group, row.version, row.plural).unwrap();
            assert!(std::ptr::eq(&**found, row));
            let found = registry.find_kind(&row.api_version(), row.kind).unwrap();
            assert!(std::ptr::eq(&**found, row));
        }
    }
}
