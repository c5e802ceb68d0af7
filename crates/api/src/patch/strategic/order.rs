//! The order of merged lists: what the patch names comes in the patch's order, what only the
//! server knows keeps the server's order, and the two are interleaved by where the server had them.
use super::{Error, PATCH, SET_ELEMENT_ORDER};
use crate::patch::golang::GoList;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

/// What a list that is merged holds; mixed lists and lists of lists are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    Objects,
    Scalars,
}

impl Elements {
    pub(super) fn of(lists: &[&[Value]]) -> Result<Elements, Error> {
        let mut all = lists.iter().copied().flatten();
        let first = all.next().ok_or(Error::NoElements)?;
        if first.is_array() {
            return Err(Error::ListOfLists);
        }
        let alike = |item: &Value| match (first, item) {
            (Value::Number(a), Value::Number(b)) => a.is_f64() == b.is_f64(),
            _ => discriminant(first) == discriminant(item),
        };
        match all.all(alike) {
            true if first.is_object() => Ok(Elements::Objects),
            true => Ok(Elements::Scalars),
            false => Err(Error::mixed(lists)),
        }
    }
}

/// What identifies each element: itself, or the value of its merge key. An object without one
/// is an error.
pub(super) fn keys(
    list: &[Value],
    merge_key: Option<&str>,
    elements: Elements,
) -> Result<Vec<Value>, Error> {
    if elements == Elements::Scalars {
        return Ok(list.to_vec());
    }
    list.iter().map(|item| key_of(item, merge_key.unwrap_or_default()).cloned()).collect()
}

/// `{mergeKey: …}` for each element.
pub(super) fn key_objects(list: &[Value], merge_key: &str) -> Result<Vec<Value>, Error> {
    list.iter().map(|item| Ok(json!({ merge_key: key_of(item, merge_key)? }))).collect()
}

pub(super) fn key_of<'v>(item: &'v Value, merge_key: &str) -> Result<&'v Value, Error> {
    match item {
        Value::Object(map) => map.get(merge_key).ok_or_else(|| Error::no_merge_key(map, merge_key)),
        other => Err(Error::bad_type("map[string]interface {}", other)),
    }
}

/// Brings `merged` into order. `patch_order` holds scalars, or objects with the merge key;
/// `server_order` holds the keys of the elements the server had.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: Vec<Value>,
    merge_key: Option<&str>,
    elements: Elements,
) -> Result<Vec<Value>, Error> {
    let patch_order = keys(patch_order, merge_key, elements)?;
    let patch_places = places(&patch_order);
    let server_places = places(&server_order);
    let (mut patched, mut server_only) = (Vec::new(), Vec::new());
    for item in merged {
        let key = match elements {
            Elements::Objects => key_of(&item, merge_key.unwrap_or_default())?,
            Elements::Scalars => &item,
        };
        let (in_patch, in_server) = (patch_places.get(key), server_places.get(key));
        let place = Placed { in_patch: in_patch.copied(), in_server: in_server.copied(), item };
        if place.in_patch.is_some() { patched.push(place) } else { server_only.push(place) }
    }
    let patched = sort(patched, |placed| placed.in_patch);
    let server_only = sort(server_only, |placed| placed.in_server);
    Ok(interleave(server_only, patched))
}

struct Placed {
    item: Value,
    in_patch: Option<usize>,
    in_server: Option<usize>,
}

impl Placed {
    /// In a patch being combined, elements to delete come after all others.
    fn is_deletion(&self) -> bool {
        self.item.get(PATCH).and_then(Value::as_str) == Some("delete")
    }
}

fn places(order: &[Value]) -> HashMap<&Value, usize> {
    let mut places = HashMap::with_capacity(order.len());
    for (place, key) in order.iter().enumerate() {
        places.entry(key).or_insert(place);
    }
    places
}

fn sort(items: Vec<Placed>, place: impl Fn(&Placed) -> Option<usize>) -> Vec<Placed> {
    let (deletions, mut items): (Vec<_>, Vec<_>) = items.into_iter().partition(Placed::is_deletion);
    if items.iter().all(|item| place(item).is_some()) {
        items.sort_by_key(|item| place(item));
    } else if items.len() <= LONG {
        // Upstream's comparison is no order when an element has no place; its outcome is that of
        // the insertion sort which Go uses on short lists.
        for i in 1..items.len() {
            let mut j = i;
            while j > 0 && before(place(&items[j]), place(&items[j - 1])) {
                items.swap(j, j - 1);
                j -= 1;
            }
        }
    }
    items.extend(deletions);
    items
}

fn before(a: Option<usize>, b: Option<usize>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    }
}

/// Inserts the server's elements among the patch's, each before the first that the server had
/// after it.
fn interleave(server_only: Vec<Placed>, patched: Vec<Placed>) -> Vec<Value> {
    let mut all = Vec::with_capacity(server_only.len() + patched.len());
    let mut server_only = server_only.into_iter().peekable();
    let mut patched = patched.into_iter().peekable();
    loop {
        let next = match (server_only.peek(), patched.peek()) {
            (None, None) => return all,
            (Some(_), None) => server_only.next(),
            (None, Some(_)) => patched.next(),
            (Some(left), Some(right)) => match (left.in_server, right.in_server) {
                (Some(left), Some(right)) if left < right => server_only.next(),
                _ => patched.next(),
            },
        };
        all.extend(next.map(|placed| placed.item));
    }
}

/// Beyond this, upstream's quadratic ways would be a way to stall the server.
const LONG: usize = 2000;

/// Drops repeated scalars, and fills each gap with the then last one: upstream's way, visible in
/// patches it makes. (A long list just loses them.)
pub(super) fn deduplicate(mut list: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(list.len());
    if list.iter().all(|item| seen.insert(item)) {
        return list;
    }
    if list.len() > LONG {
        let mut seen = HashSet::with_capacity(list.len());
        return list.into_iter().filter(|item| seen.insert(item.clone())).collect();
    }
    let mut i = 0;
    while i < list.len() {
        let mut j = i + 1;
        while j < list.len() {
            if list[i] == list[j] {
                list.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    list
}

/// The patch's elements must all be in the stated order, and in that order.
pub(super) fn check(
    patch: &[Value],
    order: &[Value],
    merge_key: Option<&str>,
) -> Result<(), Error> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch {
        if let (Some(_), other) = (merge_key, item)
            && !other.is_object()
        {
            return Err(Error::bad_type("map[string]interface {}", other));
        }
        let directive = item.get(PATCH);
        if merge_key.is_some() && directive.and_then(Value::as_str) == Some("delete") {
            continue;
        }
        // Upstream stops looking where the order ends, even at an element that is no element.
        if directive.is_some() && rest.len() > 0 {
            continue;
        }
        let mut found = false;
        for candidate in rest.by_ref() {
            let same = match merge_key {
                Some(key) => key_of(item, key)? == key_of(candidate, key)?,
                None => item == candidate,
            };
            if same {
                found = true;
                break;
            }
        }
        if !found {
            return Err(Error::OrderMismatch {
                patch: GoList(patch).to_string(),
                order: GoList(order).to_string(),
            });
        }
    }
    Ok(())
}

/// Upstream's name of the directive that states the order of `field`.
pub(super) fn directive(field: &str) -> String {
    format!("{SET_ELEMENT_ORDER}/{field}")
}
