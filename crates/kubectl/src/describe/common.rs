//! What many describers write: labels, annotations, times, tolerations; and how they read fields.

use std::collections::BTreeMap;

use api::duration::Duration;
use api::quantity::Quantity;
use api::selector::label::{Selector, format_label_selector};
use jiff::Timestamp;
use serde_json::Value;

use super::writer::{Writer, put};
use api::template::go_print;

/// A text field, empty if it is not there.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Any scalar as Go's `%v` shows it; what is not there is empty.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => go_print(other),
    }
}

pub fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn texts(value: &Value) -> Vec<&str> {
    items(value).iter().map(text).collect()
}

/// A list as Go's `%v` shows it.
pub fn bracketed(value: &Value) -> String {
    format!("[{}]", texts(value).join(" "))
}

pub fn or<'t>(text: &'t str, none: &'t str) -> &'t str {
    if text.is_empty() { none } else { text }
}

pub fn true_false(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

/// The entries of a map of texts, in order.
pub fn pairs(value: &Value) -> BTreeMap<&str, &str> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.as_str(), text(value))).collect()
}

pub fn quantity(value: &Value) -> Quantity {
    Quantity::parse(&shown(value)).unwrap_or_default()
}

/// A quantity, and zero for what is not there.
pub fn amount(value: &Value) -> String {
    quantity(value).to_string()
}

/// A moment in time, if it is one.
pub fn moment(value: &Value) -> Option<Timestamp> {
    let (seconds, nanos) =
        api::time::parse_micro(value.as_str()?).or_else(|_| api::time::parse(text(value))).ok()?;
    api::time::timestamp(seconds, nanos)
}

/// A moment as Go's RFC1123Z has it.
pub fn time(value: &Value) -> String {
    match moment(value) {
        Some(moment) => moment.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
        None => "Mon, 01 Jan 0001 00:00:00 +0000".to_owned(),
    }
}

/// How long ago a moment was.
pub fn since(value: &Value, now: Timestamp) -> String {
    match moment(value) {
        Some(moment) => span(moment, now),
        None => "<unknown>".to_owned(),
    }
}

pub fn span(from: Timestamp, to: Timestamp) -> String {
    let nanos = to.as_nanosecond() - from.as_nanosecond();
    let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
    Duration { nanos }.human()
}

/// A selector of an object as text for people.
pub fn selector_text(value: &Value) -> String {
    match serde_json::from_value(value.clone()) {
        Ok(selector) => format_label_selector(Some(&selector)),
        Err(_) if value.is_null() => format_label_selector(None),
        Err(_) => "<error>".to_owned(),
    }
}

/// A selector of an object, compiled; what is wrong with it otherwise.
pub fn selector(value: &Value) -> Result<Selector, String> {
    if value.is_null() {
        return Ok(Selector::nothing());
    }
    let selector = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    Selector::from_label_selector(Some(&selector)).map_err(|error| error.to_string())
}

/// Labels on one line.
pub fn format_labels(value: &Value) -> String {
    let pairs = pairs(value).into_iter().map(|(key, value)| format!("{key}={value}"));
    let text = pairs.collect::<Vec<_>>().join(",");
    or(&text, "<none>").to_owned()
}

/// `Name:`, and `Namespace:` of what is in one.
pub fn head(w: &mut Writer, object: &Value, namespaced: bool) {
    put!(w, 0, "Name:\t{}\n", name(object));
    if namespaced {
        put!(w, 0, "Namespace:\t{}\n", namespace(object));
    }
}

pub fn labels_and_annotations(w: &mut Writer, object: &Value) {
    labels(w, "Labels", &object["metadata"]["labels"]);
    annotations(w, "Annotations", &object["metadata"]["annotations"]);
}

/// Several lines under one title; `indent` goes before each.
pub fn lines_under(w: &mut Writer, level: usize, title: &str, indent: &str, lines: &[String]) {
    put!(w, level, "{indent}{title}:\t");
    if lines.is_empty() {
        w.raw("<none>\n");
        return;
    }
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            put!(w, level, "{indent}\t");
        }
        w.raw(&format!("{line}\n"));
    }
}

pub fn labels(w: &mut Writer, title: &str, value: &Value) {
    let lines: Vec<String> =
        pairs(value).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    lines_under(w, 0, title, "", &lines);
}

/// A line of an annotation is no longer than this.
const LONGEST: usize = 140;

pub fn annotations(w: &mut Writer, title: &str, value: &Value) {
    put!(w, 0, "{title}:\t");
    let mut all = pairs(value);
    all.remove("kubectl.kubernetes.io/last-applied-configuration");
    if all.is_empty() {
        w.raw("<none>\n");
        return;
    }
    for (i, (key, value)) in all.into_iter().enumerate() {
        if i > 0 {
            put!(w, 0, "\t");
        }
        let value = value.strip_suffix('\n').unwrap_or(value);
        if value.len() + key.len() + 2 <= LONGEST && !value.contains('\n') {
            w.raw(&format!("{key}: {value}\n"));
            continue;
        }
        w.raw(&format!("{key}:\n"));
        for line in value.split('\n') {
            put!(w, 0, "\t  {}\n", shortened(line, LONGEST - 2));
        }
    }
}

/// The first bytes of a text, whole characters only.
pub fn shortened(line: &str, most: usize) -> String {
    if line.len() <= most {
        return line.to_owned();
    }
    format!("{}...", &line[..line.floor_char_boundary(most)])
}

pub fn tolerations(w: &mut Writer, title: &str, value: &Value) {
    let mut all: Vec<&Value> = items(value).iter().collect();
    all.sort_by_key(|toleration| text(&toleration["key"]));
    let lines: Vec<String> = all.into_iter().map(toleration).collect();
    lines_under(w, 0, title, "", &lines);
}

fn toleration(toleration: &Value) -> String {
    let field = |name: &str| text(&toleration[name]);
    let mut line = field("key").to_owned();
    if !field("value").is_empty() {
        line.push_str(&format!("={}", field("value")));
    }
    if !field("effect").is_empty() {
        line.push_str(&format!(":{}", field("effect")));
    }
    if field("operator") == "Exists" && field("value").is_empty() {
        line.push_str(if line.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
        line.push_str(&format!(" for {seconds}s"));
    }
    line
}

/// `Deployment/web`, if a controller has it.
pub fn controller(object: &Value) -> Option<String> {
    let controller = items(&object["metadata"]["ownerReferences"])
        .iter()
        .find(|owner| is_true(&owner["controller"]))?;
    Some(format!("{}/{}", text(&controller["kind"]), text(&controller["name"])))
}

pub fn controlled_by(w: &mut Writer, object: &Value) {
    if let Some(controller) = controller(object) {
        put!(w, 0, "Controlled By:\t{controller}\n");
    }
}

/// The conditions of workloads.
pub fn short_conditions(w: &mut Writer, object: &Value) {
    let conditions = items(&object["status"]["conditions"]);
    if conditions.is_empty() {
        return;
    }
    w.write(0, "Conditions:\n  Type\tStatus\tReason\n");
    w.write(1, "----\t------\t------\n");
    for c in conditions {
        put!(w, 1, "{} \t{}\t{}\n", text(&c["type"]), text(&c["status"]), text(&c["reason"]));
    }
}

/// The rows of conditions with when they changed.
pub fn long_conditions(w: &mut Writer, conditions: &[Value]) {
    w.write(0, "Conditions:\n");
    w.write(1, "Type\tStatus\tLastTransitionTime\tReason\tMessage\n");
    w.write(1, "----\t------\t------------------\t------\t-------\n");
    for c in conditions {
        let at = time(&c["lastTransitionTime"]);
        put!(
            w,
            1,
            "{}\t{}\t{at}\t{}\t{}\n",
            text(&c["type"]),
            text(&c["status"]),
            text(&c["reason"]),
            text(&c["message"])
        );
    }
}

/// `Title:\t[value]\n` for each that is there and not empty.
pub fn optional(w: &mut Writer, level: usize, title: &str, value: &Value) {
    let value = shown(value);
    if !value.is_empty() {
        put!(w, level, "{title}:\t{value}\n");
    }
}
