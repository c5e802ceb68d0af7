//! Sets written under an older schema, in which what is now one value had parts.
use super::super::fieldset::{Node, PathElement, Set};
use super::atom::{Atom, MapAtom, Ty};
use super::set::shape;

/// Whether anything in `set` lies inside of what is atomic today.
pub(super) fn needed(set: &Set, ty: Ty<'_>) -> bool {
    below(set, ty).any(|(node, ty)| is_whole(ty, node) || needed(&node.children, ty))
}

pub(super) fn rewrite(set: &Set, ty: Ty<'_>) -> Set {
    let atom = shape(ty);
    let nodes = set.nodes().iter().map(|node| {
        let children = match child(&atom, node) {
            Some(ty) if is_whole(ty, node) => {
                return Node { element: node.element.clone(), member: true, children: Set::new() };
            }
            Some(ty) => rewrite(&node.children, ty),
            None => node.children.clone(),
        };
        Node { element: node.element.clone(), member: node.member, children }
    });
    Set::from_nodes(nodes.collect())
}

fn below<'a>(set: &'a Set, ty: Ty<'a>) -> impl Iterator<Item = (&'a Node, Ty<'a>)> {
    let atom = shape(ty);
    set.nodes().iter().filter_map(move |node| Some((node, child(&atom, node)?)))
}

fn child<'s>(atom: &Atom<'s>, node: &Node) -> Option<Ty<'s>> {
    match (atom, &node.element) {
        // What has no schema cannot have changed it.
        (Atom::Map(MapAtom { fields: None, element: Some(Ty::Deduced), .. }), _) => None,
        (Atom::Map(map), PathElement::Field(name)) => map.declared(name),
        (Atom::List(list), _) => Some(list.element),
        _ => None,
    }
}

fn is_whole(ty: Ty<'_>, node: &Node) -> bool {
    if node.children.is_empty() {
        return false;
    }
    match shape(ty) {
        Atom::List(list) => list.identity.is_none(),
        Atom::Map(map) => map.atomic,
        Atom::Scalar(_) => false,
    }
}
