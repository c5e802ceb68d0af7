//! Sets of fields: who owns what, and what a change touched.
//!
//! A [`Set`] is a tree. Each [`Node`] is one [`PathElement`] below its parent; the field it leads
//! to may itself be in the set (`member`), or have fields in the set below it, or both. Nodes are
//! kept in upstream's order of elements, so that set operations are merges of sorted vectors and
//! the written form comes out as upstream writes it.
mod element;
mod json;

pub use element::{Path, PathElement, compare_values};
pub use json::Error;

use std::cmp::Ordering;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Set {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub element: PathElement,
    pub member: bool,
    pub children: Set,
}

static EMPTY: Set = Set::EMPTY;

impl Set {
    pub const EMPTY: Set = Set { nodes: Vec::new() };

    pub fn new() -> Set {
        Set::default()
    }

    /// The set of fields reached by name: `["spec", "replicas"]`.
    pub fn of_names(paths: &[&[&str]]) -> Set {
        let mut set = Set::new();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds the field that `path` leads to; fields on the way are not added. The empty path is
    /// the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: first.clone(), member: false, children: Set::new() };
                self.nodes.insert(at, node);
                at
            }
        };
        match rest {
            [] => self.nodes[at].member = true,
            rest => self.nodes[at].children.insert(rest),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many fields are in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.below(first).has(rest),
        }
    }

    pub fn has_member(&self, element: &PathElement) -> bool {
        self.get(element).is_some_and(|node| node.member)
    }

    /// The fields below `element`, with paths that begin there.
    pub fn below(&self, element: &PathElement) -> &Set {
        self.get(element).map_or(&EMPTY, |node| &node.children)
    }

    pub fn get(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().map(|at| &self.nodes[at])
    }

    /// The node of a struct's field or map's key.
    pub fn named(&self, name: &str) -> Option<&Node> {
        let order = |node: &Node| match &node.element {
            PathElement::Field(field) => (**field).cmp(name),
            _ => Ordering::Greater,
        };
        self.nodes.binary_search_by(order).ok().map(|at| &self.nodes[at])
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The fields in either set.
    pub fn union(self, other: Set) -> Set {
        if self.nodes.is_empty() {
            return other;
        }
        if other.nodes.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) =
            (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, _) => {
                    nodes.extend(right);
                    return Set { nodes };
                }
                (_, None) => {
                    nodes.extend(left);
                    return Set { nodes };
                }
                (Some(left), Some(right)) => left.element.cmp(&right.element),
            };
            match order {
                Ordering::Less => nodes.extend(left.next()),
                Ordering::Greater => nodes.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(mut node), Some(other)) = (left.next(), right.next()) {
                        node.member |= other.member;
                        node.children = node.children.union(other.children);
                        nodes.push(node);
                    }
                }
            }
        }
    }

    /// The fields in both sets.
    pub fn intersection(&self, other: &Set) -> Set {
        let mut nodes = Vec::new();
        for (node, other) in self.pairs(other) {
            let Some(other) = other else { continue };
            let member = node.member && other.member;
            let children = node.children.intersection(&other.children);
            if member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), member, children });
            }
        }
        Set { nodes }
    }

    /// The fields of this set that are not in the other. Owning a field says nothing of those
    /// below it: taking away `a` leaves `a.b`.
    pub fn difference(mut self, other: &Set) -> Set {
        self.subtract(other, false);
        self
    }

    /// As [`difference`](Set::difference), but a field in `other` takes all fields below it along.
    pub fn recursive_difference(mut self, other: &Set) -> Set {
        self.subtract(other, true);
        self
    }

    fn subtract(&mut self, other: &Set, recursive: bool) {
        if other.nodes.is_empty() {
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            let Some(their) = theirs.next_if(|their| their.element == node.element) else {
                return true;
            };
            if recursive && their.member {
                return false;
            }
            node.member &= !their.member;
            node.children.subtract(&their.children, recursive);
            node.member || !node.children.is_empty()
        });
    }

    /// Whether every field of this set is in the other.
    pub fn is_subset(&self, other: &Set) -> bool {
        self.pairs(other).all(|(node, other)| {
            other.is_some_and(|other| {
                (!node.member || other.member) && node.children.is_subset(&other.children)
            })
        })
    }

    /// The fields with no field of the set below them.
    pub fn leaves(&self) -> Set {
        let leaf = |node: &Node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        };
        Set { nodes: self.nodes.iter().map(leaf).collect() }
    }

    /// Each field's path: at every level first the members, then what is below.
    pub fn for_each(&self, visit: &mut impl FnMut(&[PathElement])) {
        self.visit(&mut Vec::new(), visit);
    }

    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.for_each(&mut |path| paths.push(Path(path.to_vec())));
        paths
    }

    fn visit(&self, prefix: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            prefix.push(node.element.clone());
            visit(prefix);
            prefix.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.visit(prefix, visit);
            prefix.pop();
        }
    }

    /// Each node with the other set's node of the same element.
    fn pairs<'s>(&'s self, other: &'s Set) -> impl Iterator<Item = (&'s Node, Option<&'s Node>)> {
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.iter().map(move |node| {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            (node, theirs.next_if(|their| their.element == node.element))
        })
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// Makes a set of nodes in any order; nodes with nothing in them are dropped.
    pub(super) fn from_nodes(mut nodes: Vec<Node>) -> Set {
        nodes.retain(|node| node.member || !node.children.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, first| {
                let same = later.element == first.element;
                if same {
                    first.member |= later.member;
                    let children = std::mem::take(&mut later.children);
                    first.children = std::mem::take(&mut first.children).union(children);
                }
                same
            });
        }
        Set { nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn set(json: &str) -> Set {
        Set::from_json(json).unwrap()
    }

    const LEFT: &str = r#"{"f:a":{".":{},"f:b":{},"f:c":{}},"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:v":{}}},"f:z":{}}"#;
    const RIGHT: &str = r#"{"f:a":{"f:b":{},"f:d":{}},"f:l":{"k:{\"name\":\"x\"}":{}},"f:y":{}}"#;

    fn check(operation: impl Fn(Set, Set) -> Set, expected: Expect) {
        expected.assert_eq(&operation(set(LEFT), set(RIGHT)).to_json());
    }

    #[test]
    fn union_has_what_either_has() {
        check(
            Set::union,
            expect![[
                r#"{"f:a":{".":{},"f:b":{},"f:c":{},"f:d":{}},"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:v":{}}},"f:y":{},"f:z":{}}"#
            ]],
        );
    }

    #[test]
    fn intersection_has_what_both_have() {
        check(
            |a, b| a.intersection(&b),
            expect![[r#"{"f:a":{"f:b":{}},"f:l":{"k:{\"name\":\"x\"}":{}}}"#]],
        );
    }

    #[test]
    fn difference_leaves_what_is_below_a_lost_field() {
        check(
            |a, b| a.difference(&b),
            expect![[
                r#"{"f:a":{".":{},"f:c":{}},"f:l":{"k:{\"name\":\"x\"}":{"f:v":{}}},"f:z":{}}"#
            ]],
        );
    }

    #[test]
    fn recursive_difference_takes_what_is_below_along() {
        check(
            |a, b| a.recursive_difference(&b),
            expect![[r#"{"f:a":{".":{},"f:c":{}},"f:z":{}}"#]],
        );
    }

    #[test]
    fn leaves_have_nothing_below_them() {
        check(
            |a, _| a.leaves(),
            expect![[
                r#"{"f:a":{"f:b":{},"f:c":{}},"f:l":{"k:{\"name\":\"x\"}":{"f:v":{}}},"f:z":{}}"#
            ]],
        );
    }

    #[test]
    fn paths_read_as_in_messages_members_first() {
        let paths: Vec<String> = set(LEFT).paths().iter().map(Path::to_string).collect();
        assert_eq!(paths, [".a", ".z", ".a.b", ".a.c", ".l[name=\"x\"]", ".l[name=\"x\"].v"]);
    }

    fn any_set() -> impl Strategy<Value = Set> {
        let element = prop_oneof![
            prop::sample::select(vec!["a", "b", "c"]).prop_map(PathElement::field),
            (0..3i64).prop_map(|n| PathElement::Value(n.into())),
            (0..3i64).prop_map(|n| PathElement::key([("n", n.into())])),
            (0..3i64).prop_map(PathElement::Index),
        ];
        prop::collection::vec(prop::collection::vec(element, 1..4), 0..12).prop_map(|paths| {
            let mut set = Set::new();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn the_written_form_reads_back(set in any_set()) {
            prop_assert_eq!(&Set::from_json(&set.to_json()).unwrap(), &set);
            prop_assert_eq!(&Set::from_value(&set.to_value()).unwrap(), &set);
        }

        #[test]
        fn the_operations_agree_with_each_other(a in any_set(), b in any_set()) {
            let both = a.intersection(&b);
            prop_assert!(both.is_subset(&a) && both.is_subset(&b));
            prop_assert_eq!(&a.clone().difference(&b).union(both.clone()), &a);
            prop_assert_eq!(&b.clone().union(a.clone()), &a.clone().union(b.clone()));
            prop_assert_eq!(a.clone().union(b.clone()).len() + both.len(), a.len() + b.len());
            prop_assert_eq!(a.is_subset(&b), a.clone().difference(&b).is_empty());
            for path in a.paths() {
                prop_assert_eq!(both.has(&path.0), b.has(&path.0));
            }
        }

        #[test]
        fn decoding_never_panics(tree in crate::testing::tree(), text in "\\PC*") {
            _ = Set::from_value(&tree);
            _ = Set::from_json(&text);
        }
    }
}
