//! `--sort-by`: objects in the order of one of their fields.
use super::jsonpath::Template;
use crate::failure::{Failure, Outcome};
use api::quantity::Quantity;
use serde_json::Value;
use std::cmp::Ordering;

/// Sorts by what a path finds in what `object` shows of an item.
pub fn by<T>(items: &mut [T], path: &str, object: impl Fn(&T) -> &Value) -> Outcome {
    let template = Template::relaxed(path)?;
    let key = |item: &T| -> Option<Value> {
        template.values(object(item)).ok()?.first().map(|value| value.as_ref().clone())
    };
    let mut keyed: Vec<(Option<Value>, usize)> =
        items.iter().enumerate().map(|(at, item)| (key(item), at)).collect();
    if !items.is_empty() && keyed.iter().all(|(key, _)| key.is_none()) {
        return Err(Failure::Plain(format!(
            "couldn't find any field with path \"{path}\" in the list of objects"
        )));
    }
    keyed.sort_by(|(left, _), (right, _)| compare(left.as_ref(), right.as_ref()));
    let order: Vec<usize> = keyed.into_iter().map(|(_, at)| at).collect();
    permute(items, order);
    Ok(())
}

/// Brings items to the places where `order` has their numbers.
fn permute<T>(items: &mut [T], mut order: Vec<usize>) {
    for at in 0..items.len() {
        let mut from = order[at];
        while from < at {
            from = order[from];
        }
        items.swap(at, from);
        order[at] = from;
    }
}

/// What has no such field comes first.
pub fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => left.cmp(right),
        (Some(Value::String(left)), Some(Value::String(right))) => {
            match (Quantity::parse(left), Quantity::parse(right)) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                _ => natural(left, right),
            }
        }
        (Some(left), Some(right)) => left.to_string().cmp(&right.to_string()),
    }
}

/// Numbers inside of texts count as numbers: `a2` before `a10`.
pub fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    loop {
        let (Some(a), Some(b)) = (left.first(), right.first()) else {
            return left.len().cmp(&right.len());
        };
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let ((x, rest_left), (y, rest_right)) =
                (left.split_at(digits(left)), right.split_at(digits(right)));
            let plain = |digits: &[u8]| -> Vec<u8> {
                digits.iter().copied().skip_while(|digit| *digit == b'0').collect()
            };
            let (p, q) = (plain(x), plain(y));
            let order = p.len().cmp(&q.len()).then(p.cmp(&q)).then(x.len().cmp(&y.len()));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (rest_left, rest_right);
            continue;
        }
        if a != b {
            return a.cmp(b);
        }
        (left, right) = (&left[1..], &right[1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_compared_as_what_they_are() {
        let mut items = vec![
            json!({ "n": "a10", "q": "1Gi", "i": 10 }),
            json!({ "n": "a2", "q": "500Mi", "i": 9 }),
            json!({ "n": "b1" }),
        ];
        let mut sorted = |path: &str| {
            by(&mut items, path, |item| item).unwrap();
            let names: Vec<&str> = items.iter().filter_map(|item| item["n"].as_str()).collect();
            names.join(" ")
        };
        assert_eq!(sorted(".n"), "a2 a10 b1");
        assert_eq!(sorted("{.q}"), "b1 a2 a10");
        assert_eq!(sorted("i"), "b1 a2 a10");
        assert!(by(&mut items, ".x", |item| item).is_err());
    }
}
