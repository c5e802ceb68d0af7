//! What differs between two objects.
use super::super::fieldset::{Node, PathElement, Set};
use super::atom::{Atom, Identity, ListAtom, MapAtom, Ty, as_list, as_map, zip};
use super::same;
use super::zero::{empty_object, zero};
use crate::codec::is_written;
use crate::schema::TypeRef;
use serde_json::{Map, Value};
use std::cell::Cell;

/// No field is in more than one of the sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
    /// An element of a keyed list lacks its keys: nobody can own it, so nothing is decided.
    pub keyless: bool,
}

/// How the objects compared were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Trees as they are.
    Tree,
    /// Trees that stand for typed objects, as built-in kinds are upstream: there a struct that is
    /// no pointer exists whether written or not, and an empty value that would not be written is
    /// no value. Ownership must not depend on which of the two forms a client sent.
    Typed,
    /// The old one stands for a typed object; the new one is that with a tree merged into it,
    /// where even what would not be written is meant.
    Merged,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    pub(crate) fn map(self, mut change: impl FnMut(Set) -> Set) -> Comparison {
        Comparison {
            removed: change(self.removed),
            modified: change(self.modified),
            added: change(self.added),
            keyless: self.keyless,
        }
    }
}

pub(super) fn compare(old: &Value, new: &Value, ty: Ty<'_>, view: View) -> Comparison {
    let typed = |value| match view {
        View::Tree => value,
        _ if Value::is_object(value) => value,
        // The empty object that a created one is compared with.
        _ => empty_object(),
    };
    let (old, new) = (typed(old), typed(new));
    let walker = Walker { view, keyless: Cell::new(false) };
    let Delta { removed, modified, added } = walker.compare(Some(old), Some(new), ty);
    let (removed, modified, added) = (removed.children, modified.children, added.children);
    Comparison { removed, modified, added, keyless: walker.keyless.get() }
}

#[derive(Default)]
struct Part {
    member: bool,
    children: Set,
}

impl Part {
    const MEMBER: Part = Part { member: true, children: Set::EMPTY };

    fn absorb(&mut self, other: Part) {
        self.member |= other.member;
        self.children = std::mem::take(&mut self.children).union(other.children);
    }
}

/// What a comparison says of one field and of all below it.
#[derive(Default)]
struct Delta {
    removed: Part,
    modified: Part,
    added: Part,
}

#[derive(Default)]
struct Nodes {
    removed: Vec<Node>,
    modified: Vec<Node>,
    added: Vec<Node>,
}

impl Nodes {
    fn push(&mut self, delta: Delta, element: impl Fn() -> PathElement) {
        for (nodes, Part { member, children }) in [
            (&mut self.removed, delta.removed),
            (&mut self.modified, delta.modified),
            (&mut self.added, delta.added),
        ] {
            if member || !children.is_empty() {
                nodes.push(Node { element: element(), member, children });
            }
        }
    }

    fn finish(self) -> Delta {
        let part = |nodes| Part { member: false, children: Set::from_nodes(nodes) };
        Delta {
            removed: part(self.removed),
            modified: part(self.modified),
            added: part(self.added),
        }
    }
}

struct Walker {
    view: View,
    keyless: Cell<bool>,
}

impl Walker {
    fn compare(&self, old: Option<&Value>, new: Option<&Value>, ty: Ty<'_>) -> Delta {
        let (left, right) = (ty.atom(old), ty.atom(new));
        match (old, new) {
            (_, None) => self.compare_as(&left, old, new),
            (None, _) => self.compare_as(&right, old, new),
            _ if left.same_kind(&right) => self.compare_as(&right, old, new),
            _ => {
                // The value has become another kind of thing: its old parts go, new ones come.
                let mut delta = self.compare_as(&left, old, new);
                let other = self.compare_as(&right, old, new);
                delta.removed.absorb(other.removed);
                delta.modified.absorb(other.modified);
                delta.added.absorb(other.added);
                delta
            }
        }
    }

    fn compare_as(&self, atom: &Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> Delta {
        let mut delta = match atom {
            Atom::Scalar(_) => return leaf(old, new),
            Atom::List(list) => {
                let (left, right) = (as_list(old), as_list(new));
                let (left, right) = (left.unwrap_or(&[]), right.unwrap_or(&[]));
                match list.identity {
                    Some(identity) if !(left.is_empty() && right.is_empty()) => {
                        self.compare_lists(left, right, identity, list)
                    }
                    _ => return leaf(old, new),
                }
            }
            Atom::Map(map) => {
                let (left, right) = (as_map(old), as_map(new));
                let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
                if map.atomic && self.alike(left, right, map) {
                    return Delta::default();
                }
                if map.atomic || (empty(left) && empty(right) && !self.sees_struct(map)) {
                    return leaf(old, new);
                }
                self.compare_maps(left, right, map)
            }
        };
        delta.added.member |= old.is_none();
        delta.removed.member |= new.is_none() && old.is_some();
        delta
    }

    /// Typed structs have no empty and no null form that could differ.
    fn sees_struct(&self, map: &MapAtom<'_>) -> bool {
        self.view != View::Tree && is_typed(map)
    }

    /// Whether two typed structs without parts are the same: what would not be written does not
    /// count. Inside their lists it does, as it does upstream.
    fn alike(
        &self,
        left: Option<&Map<String, Value>>,
        right: Option<&Map<String, Value>>,
        map: &MapAtom<'_>,
    ) -> bool {
        match (left, right, map.fields) {
            (Some(left), Some(right), Some((_, ty))) => {
                self.view == View::Typed && is_typed(map) && structs_alike(left, right, ty)
            }
            _ => false,
        }
    }

    fn compare_maps(
        &self,
        left: Option<&Map<String, Value>>,
        right: Option<&Map<String, Value>>,
        map: &MapAtom<'_>,
    ) -> Delta {
        let mut nodes = Nodes::default();
        let typed = self.sees_struct(map);
        for (key, mut old, mut new) in zip(left, right) {
            if typed && let (Some(field), Some((_, ty))) = (map.field(key), map.fields) {
                let ty = ty.at(field.ty);
                if self.view == View::Typed {
                    old = old.filter(|value| is_written(value, field, ty));
                    new = new.filter(|value| is_written(value, field, ty));
                    new = new.or_else(|| zero(field, ty).filter(|_| right.is_some()));
                }
                old = old.or_else(|| zero(field, ty).filter(|_| left.is_some()));
            }
            if old.is_none() && new.is_none() {
                continue;
            }
            let delta = self.compare(old, new, map.child(key));
            nodes.push(delta, || PathElement::field(key));
        }
        nodes.finish()
    }

    fn compare_lists(
        &self,
        left: &[Value],
        right: &[Value],
        identity: Identity<'_>,
        list: &ListAtom<'_>,
    ) -> Delta {
        if left == right {
            return Delta::default();
        }
        let index = |items: &'_ [Value]| {
            let mut found: Vec<(PathElement, usize)> = items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| {
                    let element = list.element(identity, item);
                    self.keyless.set(self.keyless.get() || element.is_err());
                    Some((element.ok()?, i))
                })
                .collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            found
        };
        let (lefts, rights) = (index(left), index(right));
        let (mut l, mut r) = (&lefts[..], &rights[..]);
        let mut nodes = Nodes::default();
        while let Some(element) = first_element(l, r) {
            let old: Vec<&Value> =
                take_group(&mut l, element).iter().map(|(_, i)| &left[*i]).collect();
            let new: Vec<&Value> =
                take_group(&mut r, element).iter().map(|(_, i)| &right[*i]).collect();
            nodes.push(self.compare_groups(&old, &new, list), || element.clone());
        }
        nodes.finish()
    }

    /// Elements that share an identity are compared as one value without parts.
    fn compare_groups(&self, old: &[&Value], new: &[&Value], list: &ListAtom<'_>) -> Delta {
        match (old, new) {
            ([] | [_], [] | [_]) => {
                self.compare(old.first().copied(), new.first().copied(), list.element)
            }
            ([_, _, ..], [_, _, ..]) => match old == new {
                true => Delta::default(),
                false => Delta { modified: Part::MEMBER, ..Delta::default() },
            },
            ([_, _, ..], _) => {
                let mut delta = match new.first() {
                    Some(new) => self.compare(None, Some(new), list.element),
                    None => Delta::default(),
                };
                delta.removed.member = true;
                delta
            }
            _ => {
                let mut delta = match old.first() {
                    Some(old) => self.compare(Some(old), None, list.element),
                    None => Delta::default(),
                };
                delta.added.member = true;
                delta
            }
        }
    }
}

fn structs_alike(left: &Map<String, Value>, right: &Map<String, Value>, ty: TypeRef<'_>) -> bool {
    zip(Some(left), Some(right)).all(|(name, old, new)| {
        let Some(field) = ty.field(name) else { return old == new };
        let ty = ty.at(field.ty);
        let written = |value: Option<&'_ Value>| value.is_some_and(|v| is_written(v, field, ty));
        match (old, new) {
            (Some(old), Some(new)) if written(Some(old)) && written(Some(new)) => {
                match (old, new) {
                    (Value::Object(old), Value::Object(new)) if ty.as_struct().is_some() => {
                        structs_alike(old, new, ty)
                    }
                    _ => same(old, new),
                }
            }
            _ => written(old) == written(new),
        }
    })
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Delta {
    match (old, new) {
        (None, _) => Delta { added: Part::MEMBER, ..Delta::default() },
        (_, None) => Delta { removed: Part::MEMBER, ..Delta::default() },
        (Some(old), Some(new)) if same(old, new) => Delta::default(),
        _ => Delta { modified: Part::MEMBER, ..Delta::default() },
    }
}

type Indexed<'a> = &'a [(PathElement, usize)];

fn first_element<'a>(left: Indexed<'a>, right: Indexed<'a>) -> Option<&'a PathElement> {
    match (left.first(), right.first()) {
        (Some(left), Some(right)) => Some(left.0.min_ref(&right.0)),
        (one, other) => one.or(other).map(|(element, _)| element),
    }
}

fn take_group<'a>(list: &mut Indexed<'a>, element: &PathElement) -> Indexed<'a> {
    let end = list.iter().take_while(|(other, _)| other == element).count();
    let (group, rest) = list.split_at(end);
    *list = rest;
    group
}

impl PathElement {
    fn min_ref<'e>(&'e self, other: &'e PathElement) -> &'e PathElement {
        if other < self { other } else { self }
    }
}

fn is_typed(map: &MapAtom<'_>) -> bool {
    // Structs of a CRD have no name: their objects are trees upstream too.
    map.fields.is_some_and(|(s, _)| !s.name.is_empty())
}
