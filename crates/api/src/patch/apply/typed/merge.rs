//! A configuration merged over the live object.
use super::super::fieldset::PathElement;
use super::atom::{Atom, Identity, ListAtom, MapAtom, Ty, as_list, as_map, zip};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Both values exist here: where only one does, it is the outcome.
pub(super) fn merge(live: &Value, config: &Value, ty: Ty<'_>) -> Option<Value> {
    match ty.atom(Some(config)) {
        Atom::Scalar(_) => Some(config.clone()),
        Atom::List(list) => merge_lists(live, config, &list),
        Atom::Map(map) => merge_maps(live, config, &map),
    }
}

fn merge_maps(live: &Value, config: &Value, map: &MapAtom<'_>) -> Option<Value> {
    let (left, right) = (as_map(Some(live)), as_map(Some(config)));
    let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
    // With nothing to merge, the difference of empty and null is kept.
    if map.atomic || (empty(left) && empty(right)) {
        return Some(config.clone());
    }
    let merged = zip(left, right).filter_map(|(key, left, right)| {
        let value = match (left, right) {
            (Some(left), Some(right)) => merge(left, right, map.child(key))?,
            (one, other) => one.or(other)?.clone(),
        };
        Some((key.to_owned(), value))
    });
    Some(Value::Object(merged.collect()))
}

fn merge_lists(live: &Value, config: &Value, list: &ListAtom<'_>) -> Option<Value> {
    let (left, right) = (as_list(Some(live)), as_list(Some(config)));
    let (left, right) = (left.unwrap_or(&[]), right.unwrap_or(&[]));
    match list.identity {
        Some(identity) if !(left.is_empty() && right.is_empty()) => {
            let merged = Merger::new(left, right, identity, list).run();
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        _ => Some(config.clone()),
    }
}

/// Merges two lists with identified elements: the configuration's order wins where it says
/// something, and live elements keep their place among the others.
struct Merger<'a, 's> {
    list: &'a ListAtom<'s>,
    left: Vec<(PathElement, &'a Value)>,
    right: Vec<(PathElement, &'a Value)>,
    out: Vec<Value>,
}

impl<'a, 's> Merger<'a, 's> {
    fn new(
        left: &'a [Value],
        right: &'a [Value],
        identity: Identity<'s>,
        list: &'a ListAtom<'s>,
    ) -> Self {
        let index = |items: &'a [Value]| {
            let known =
                items.iter().filter_map(|item| Some((list.element(identity, item).ok()?, item)));
            known.collect::<Vec<_>>()
        };
        Merger { list, left: index(left), right: index(right), out: Vec::new() }
    }

    fn run(mut self) -> Vec<Value> {
        let left = std::mem::take(&mut self.left);
        let right = std::mem::take(&mut self.right);
        // A live element that occurs more than once has no one value to merge with.
        let mut live: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
        for (element, value) in &left {
            live.entry(element).and_modify(|found| *found = None).or_insert(Some(*value));
        }
        let config: BTreeSet<&PathElement> = right.iter().map(|(element, _)| element).collect();
        let mut shared =
            right.iter().map(|(element, _)| element).filter(|element| live.contains_key(element));
        let mut next_shared = shared.next();
        let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
        let (mut l, mut r) = (0, 0);
        while l < left.len() || r < right.len() {
            if let (Some((element, _)), Some((wanted, value))) = (left.get(l), right.get(r)) {
                if element == wanted {
                    merged.insert(element);
                    self.push(live.get(element).copied().flatten(), value);
                    l += 1;
                    r += 1;
                    next_shared = shared.next();
                    continue;
                }
                if config.contains(element) && next_shared.is_some_and(|next| next != element) {
                    // In both, but not the one whose turn it is.
                    l += 1;
                    continue;
                }
            }
            if let Some((element, value)) = left.get(l) {
                if !config.contains(element) {
                    self.out.push((*value).clone());
                    l += 1;
                    continue;
                } else if merged.contains(element) {
                    l += 1;
                }
            }
            if let Some((element, value)) = right.get(r) {
                merged.insert(element);
                self.push(live.get(element).copied().flatten(), value);
                r += 1;
                if next_shared == Some(element) {
                    next_shared = shared.next();
                }
            }
        }
        self.out
    }

    fn push(&mut self, live: Option<&Value>, config: &Value) {
        self.out.extend(match live {
            Some(live) => merge(live, config, self.list.element),
            None => Some(config.clone()),
        });
    }
}
