//! Which fields a value sets.
use super::super::fieldset::{Node, PathElement, Set};
use super::atom::{Atom, Identity, ListAtom, MapAtom, Ty};
use serde_json::{Map, Value};

/// Whether the value is itself a member, and what is below it.
pub(super) struct Part {
    pub member: bool,
    pub children: Set,
}

impl Part {
    const MEMBER: Part = Part { member: true, children: Set::EMPTY };
}

pub(super) fn collect(value: &Value, ty: Ty<'_>) -> Part {
    match ty.atom(Some(value)) {
        Atom::Scalar(_) => Part::MEMBER,
        Atom::List(ListAtom { identity: None, .. }) | Atom::Map(MapAtom { atomic: true, .. }) => {
            Part::MEMBER
        }
        Atom::List(list) => match (list.identity, value) {
            (Some(identity), Value::Array(items)) => {
                Part { member: false, children: of_list(items, identity, &list) }
            }
            _ => Part { member: false, children: Set::new() },
        },
        Atom::Map(map) => match value {
            Value::Object(entries) => Part { member: false, children: of_map(entries, &map) },
            _ => Part { member: false, children: Set::new() },
        },
    }
}

fn of_map(entries: &Map<String, Value>, map: &MapAtom<'_>) -> Set {
    let nodes = entries.iter().map(|(key, value)| {
        let part = collect(value, map.child(key));
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        // A struct's field is owned through what is in it, a map's key also as such.
        let member = part.member || empty || map.field(key).is_none();
        Node { element: PathElement::field(key), member, children: part.children }
    });
    Set::from_nodes(nodes.collect())
}

fn of_list(items: &[Value], identity: Identity<'_>, list: &ListAtom<'_>) -> Set {
    // An element whose identity is unclear is not tracked.
    let mut found: Vec<(PathElement, &Value)> =
        items.iter().filter_map(|item| Some((list.element(identity, item).ok()?, item))).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let groups = found.chunk_by(|a, b| a.0 == b.0);
    let nodes = groups.map(|group| {
        // Elements that share an identity are owned as one, without their parts.
        let children = match group {
            [(_, item)] => collect(item, list.element).children,
            _ => Set::new(),
        };
        Node { element: group[0].0.clone(), member: true, children }
    });
    Set::from_nodes(nodes.collect())
}

pub(super) fn with_named_fields(set: &Set, ty: Option<Ty<'_>>) -> Set {
    let atom = ty.map(|ty| shape(ty));
    let nodes = set.nodes().iter().map(|node| {
        let (named, child) = match (&node.element, &atom) {
            (PathElement::Field(name), Some(Atom::Map(map))) => {
                (map.field(name).is_some(), map.declared(name))
            }
            (PathElement::Key(_), Some(Atom::List(list))) => (false, Some(list.element)),
            _ => (false, None),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (named && !node.children.is_empty()),
            children: with_named_fields(&node.children, child),
        }
    });
    Set::from_nodes(nodes.collect())
}

/// What the type is for a value that has parts.
pub(super) fn shape(ty: Ty<'_>) -> Atom<'_> {
    ty.atom(None)
}
