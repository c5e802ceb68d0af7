//! What of an object is as it was before: faults of that are only warned about, so that a schema may
//! become stricter than objects that exist (`apiserver/pkg/cel/common/equality.go`).
use crate::shape::{Identity, Shape};
use serde_json::Value as Json;
use std::cell::Cell;
use std::collections::HashMap;

/// A value and the one that it was before.
pub struct Pair<'v> {
    new: &'v Json,
    old: &'v Json,
    shape: Shape<'v>,
    /// Whether they are the same, once somebody has asked.
    same: Cell<Option<bool>>,
}

impl<'v> Pair<'v> {
    pub fn new(new: &'v Json, old: &'v Json, shape: Shape<'v>) -> Self {
        Pair { new, old, shape, same: Cell::new(None) }
    }

    /// The same of a field, or of an entry of a map; none if it was not there before.
    pub fn key(&self, name: &str) -> Option<Pair<'v>> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = self.shape.written();
        let known = schema["properties"].get(name).map(Shape::of);
        Some(Pair::new(new, old, known.or_else(|| self.shape.values())?))
    }

    pub fn is_same(&self) -> bool {
        if let Some(same) = self.same.get() {
            return same;
        }
        let same = self.compared();
        self.same.set(Some(same));
        same
    }

    fn compared(&self) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) => match self.shape.identity() {
                _ if new.len() != old.len() => false,
                Identity::Keys(keys) => {
                    let by_key = Keyed::new(old, keys);
                    new.iter().all(|item| {
                        let pair = by_key.find(item).zip(self.shape.items());
                        pair.is_some_and(|(old, shape)| Pair::new(item, old, shape).is_same())
                    })
                }
                _ => new == old,
            },
            (Json::Object(new), Json::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.key(name).is_some_and(|pair| pair.is_same()))
            }
            (new, old) => new == old,
        }
    }
}

/// What makes an item of a list itself; none if it has not all of the keys.
fn identity(item: &Json, keys: &[Json]) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        let value = item.as_object()?.get(key.as_str()?)?;
        if value.is_null() || value.is_array() || value.is_object() {
            return None;
        }
        text += &value.to_string();
        text.push('\0');
    }
    Some(text)
}

/// The items of a list with keys, by their keys.
pub struct Keyed<'v> {
    keys: &'v [Json],
    items: HashMap<String, &'v Json>,
}

impl<'v> Keyed<'v> {
    pub fn new(list: &'v [Json], keys: &'v [Json]) -> Self {
        let mut items = HashMap::with_capacity(list.len());
        for item in list {
            if let Some(identity) = identity(item, keys) {
                // Of two with the same keys the first counts.
                items.entry(identity).or_insert(item);
            }
        }
        Keyed { keys, items }
    }

    pub fn find(&self, item: &Json) -> Option<&'v Json> {
        self.items.get(&identity(item, self.keys)?).copied()
    }
}

/// Where the nearest pair is, seen from a place on the way through an object.
#[derive(Clone, Copy, Default)]
pub struct Ratchet<'p, 'v> {
    pub current: Option<&'p Pair<'v>>,
    /// Above, if there is none here.
    pub parent: Option<&'p Pair<'v>>,
}

impl<'p, 'v> Ratchet<'p, 'v> {
    /// Whether what is here, or what it is part of, is as it was.
    pub fn holds(self) -> bool {
        self.current.or(self.parent).is_some_and(Pair::is_same)
    }

    /// The pair of a field, to be passed to [`Ratchet::below`].
    pub fn key(self, name: &str) -> Option<Pair<'v>> {
        self.current?.key(name)
    }

    pub fn index(self, old: Option<&'v Json>, new: &'v Json) -> Option<Pair<'v>> {
        let shape = self.current?.shape;
        matches!(shape.identity(), Identity::Keys(_))
            .then(|| Some(Pair::new(new, old?, shape.items()?)))?
    }

    pub fn below<'q>(self, pair: Option<&'q Pair<'v>>) -> Ratchet<'q, 'v>
    where
        'p: 'q,
    {
        match self.current {
            None => self,
            Some(current) => Ratchet { current: pair, parent: Some(current) },
        }
    }
}
