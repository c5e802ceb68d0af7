//! Answers made nobody's: without what is each server's own, or by chance.
use serde_json::Value;

/// The answer without identity, versions, moments, and what controllers in one of the servers wrote.
pub fn nobodys(answer: &Value) -> Value {
    let mut answer = without_identity(answer);
    forget_controllers(&mut answer);
    sort_rules(&mut answer);
    sort_conditions(&mut answer);
    answer
}

/// The answer with the object's uid, and the names that were made up for it, made nobody's wherever
/// they occur.
fn without_identity(answer: &Value) -> Value {
    let mut text = without_uids(&answer.to_string());
    let mut hide = |made_up: &Value, word: &str| {
        if let Some(made_up) = made_up.as_str().filter(|made_up| made_up.len() > SUFFIX) {
            text = text.replace(made_up, word);
        }
    };
    for name in [&answer["metadata"]["name"], &answer["details"]["name"]] {
        if is_generated(name.as_str().unwrap_or_default()) {
            hide(name, "NAME");
        }
    }
    let (first, parts) = (text.find(ACCESS).unwrap_or(text.len()), text.split(ACCESS).skip(1));
    let parts = parts.map(|part| format!("{ACCESS}NAME{}", part.get(SUFFIX..).unwrap_or_default()));
    let text = without_versions(&(text[..first].to_owned() + &parts.collect::<String>()));
    let text = without_moments(&text);
    serde_json::from_str(&text).unwrap_or_else(|_| answer.clone())
}

/// What messages say before a version.
const BEFORE_VERSIONS: [&str; 3] = [
    "ResourceVersion in object meta: ",
    "object not decodable revision=",
    "\\\"resourceVersion\\\":\\\"",
];

/// The versions that messages say objects have made nobody's.
fn without_versions(text: &str) -> String {
    let number = |rest: &str| rest.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
    BEFORE_VERSIONS
        .iter()
        .fold(text.to_owned(), |text, before| hidden(&text, before, "VERSION", number))
}

/// What messages say before a moment: of managers, and of the object that they show.
const BEFORE_MOMENTS: [&str; 2] = ["\\\"time\\\":\\\"", "\\\"creationTimestamp\\\":\\\""];

/// The moments that messages show made nobody's.
fn without_moments(text: &str) -> String {
    let moment = |rest: &str| rest.split_once('Z').map_or(rest, |(_, rest)| rest).to_owned();
    BEFORE_MOMENTS.iter().fold(text.to_owned(), |text, before| hidden(&text, before, "NOW", moment))
}

/// A text with a word in place of what `rest` takes away, everywhere behind `before`.
fn hidden(text: &str, before: &str, word: &str, rest: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(before);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + before + word + &rest(part))
}

/// Every uid made nobody's.
fn without_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |word: &[u8]| {
        word.len() == LENGTH
            && word.iter().enumerate().all(|(i, byte)| match i {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let (mut rest, mut clean) = (text, String::with_capacity(text.len()));
    while let Some(dash) = rest.find('-') {
        match dash
            .checked_sub(8)
            .filter(|start| rest.as_bytes().get(*start..start + LENGTH).is_some_and(is_uid))
        {
            Some(start) => {
                clean.push_str(&rest[..start]);
                clean.push_str("UID");
                rest = &rest[start + LENGTH..];
            }
            None => {
                clean.push_str(&rest[..=dash]);
                rest = &rest[dash + 1..];
            }
        }
    }
    clean + rest
}

/// How the names of the volumes begin that the ServiceAccount plugin adds to pods.
const ACCESS: &str = "kube-api-access-";

/// A made-up name ends in so many letters and digits.
const SUFFIX: usize = 5;

/// Whether the name is one of the prefixes that [`super::mutate`] asks names to be made up from,
/// with more behind it.
fn is_generated(name: &str) -> bool {
    let prefix = name.len().checked_sub(SUFFIX).and_then(|end| name.get(..end));
    prefix.is_some_and(|prefix| {
        matches!(prefix, "Bad_Value!" | "-x" | "good-name")
            || prefix.len() > 57 && prefix.chars().all(|c| c == 'a')
    })
}

/// Kinds whose status controllers inside upstream's server write, and nobody in ours.
const CONTROLLED: &[&str] = &["CustomResourceDefinition", "APIService"];

/// The rules that somebody has come in any order.
fn sort_rules(review: &mut Value) {
    if review["kind"] != "SelfSubjectRulesReview" {
        return;
    }
    for list in ["resourceRules", "nonResourceRules"] {
        if let Some(rules) = review["status"].get_mut(list).and_then(Value::as_array_mut) {
            rules.sort_by_key(Value::to_string);
        }
    }
}

/// Three controllers write what is said of a definition, each when it comes to it. Where one goes, what they said is
/// compared, and not who was first; elsewhere a client may have written it, and the order is its own.
fn sort_conditions(object: &mut Value) {
    let goes = object["metadata"]["deletionTimestamp"].is_string();
    if object["kind"] != "CustomResourceDefinition" || !goes {
        return;
    }
    if let Some(all) = object["status"].get_mut("conditions").and_then(Value::as_array_mut) {
        all.sort_by_key(|condition| condition["type"].to_string());
    }
}

/// Who owns their status cannot be compared; who owns the rest can.
fn forget_controllers(object: &mut Value) {
    if !CONTROLLED.iter().any(|kind| object["kind"] == *kind) {
        return;
    }
    if let Some(managers) =
        object["metadata"].get_mut("managedFields").and_then(Value::as_array_mut)
    {
        managers.retain(|manager| manager["subresource"] != "status");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_of_a_definition_that_goes_have_no_order() {
        let definition = |metadata: Value, types: [&str; 2]| {
            let conditions = types.map(|name| json!({ "type": name }));
            nobodys(&json!({ "kind": "CustomResourceDefinition", "metadata": metadata,
                "status": { "conditions": conditions } }))
        };
        let goes = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(definition(goes.clone(), ["B", "A"]), definition(goes, ["A", "B"]));
        assert_ne!(definition(json!({}), ["B", "A"]), definition(json!({}), ["A", "B"]));
    }
}
