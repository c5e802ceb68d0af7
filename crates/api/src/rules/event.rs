//! Events, in both of their groups.
use super::table::{Column, age, text, timestamp, with};
use super::{Field, Kind, Metadata, NameRule, Part, Strategy, asked_by_kind, metadata, shown};
use crate::field::BadValue;
use crate::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use serde_json::Value;

const PLAIN: Strategy = Strategy::USUAL.without_status().without_generation().creates_on_update();

impl Kind for CoreEvent {
    const STRATEGY: Strategy = PLAIN;
    // Old clients name events after whatever they are about.
    const NAME: NameRule = metadata::path_segment;
    const METADATA: Metadata = Metadata::Last;
    const COLUMNS: &[Column] = &[
        with("Last Seen", |event, now| {
            last_seen(event, now, "lastTimestamp", "firstTimestamp").into()
        }),
        text("Type", "type"),
        text("Reason", "reason"),
        with("Object", |event, _| target(&event.at("involvedObject"))),
        text("Subobject", "involvedObject.fieldPath").wide(),
        with("Source", |event, _| source(event, "source")).wide(),
        with("Message", |event, _| event.at("message").text().trim().into()),
        with("First Seen", |event, now| first_seen(event, now, "firstTimestamp").into()).wide(),
        with("Count", |event, _| count(event, "count")).wide(),
        text("Name", "metadata.name").named().wide(),
    ];

    fn validate(event: &Field<'_, '_>) {
        namespaces_match(event, "involvedObject");
        // Old clients write events with little in them.
        if event.at("eventTime").exists() {
            reported(event, "reportingComponent", "reportingComponent", "message");
        }
    }
}

impl Kind for Event {
    const METADATA: Metadata = Metadata::ByKind;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[
        with("Last Seen", |event, now| {
            last_seen(event, now, "deprecatedLastTimestamp", "deprecatedFirstTimestamp").into()
        }),
        text("Type", "type"),
        text("Reason", "reason"),
        with("Object", |event, _| target(&event.at("regarding"))),
        text("Subobject", "regarding.fieldPath").wide(),
        with("Source", |event, _| source(event, "deprecatedSource")).wide(),
        with("Message", |event, _| event.at("note").text().trim().into()),
        with("First Seen", |event, now| first_seen(event, now, "deprecatedFirstTimestamp").into())
            .wide(),
        with("Count", |event, _| count(event, "deprecatedCount")).wide(),
        text("Name", "metadata.name").named().wide(),
    ];

    fn validate(event: &Field<'_, '_>) {
        basic(event);
        asked_by_kind::<Self>(event, true);
        series(&event.at("series"));
        if !event.at("eventTime").exists() {
            event.at("eventTime").required("");
        }
        let kind = event.at("type");
        if !matches!(kind.text(), "Normal" | "Warning") {
            kind.invalid_as("", "has invalid value: ".to_owned() + kind.text());
        }
        for (field, spelled) in [
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
        ] {
            if event.at(field).exists() {
                event.spelled(spelled).invalid_as("", "needs to be unset");
            }
        }
        if event.at("deprecatedCount").int() != 0 {
            event.spelled("count").invalid_as("", "needs to be unset");
        }
        let source = event.at("deprecatedSource");
        if !source.at("component").is_empty() || !source.at("host").is_empty() {
            event.spelled("source").invalid_as("", "needs to be unset");
        }
    }

    /// Only the series of an event goes on.
    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        const FIXED: &[(&str, &str)] = &[
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("deprecatedSource", "source"),
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ];
        basic(new);
        asked_by_kind::<Self>(new, false);
        if new.at("series").value() != old.at("series").value() {
            series(&new.at("series"));
        }
        for (field, spelled) in FIXED {
            let (now, then) = (new.at(field), old.at(field));
            let place = now.on_path(crate::field::Path::new(spelled));
            let shown = match *field {
                "regarding" => shown::structure(now.value(), shown::REFERENCE),
                "related" => {
                    if now.value() != then.value() {
                        let shown = shown::pointer(now.value(), shown::REFERENCE);
                        place.invalid_as(shown, metadata::IMMUTABLE);
                    }
                    continue;
                }
                "eventTime" if !now.exists() => BadValue::null(),
                "deprecatedSource" => shown::structure(now.value(), shown::EVENT_SOURCE),
                "deprecatedCount" => now.int().into(),
                _ => {
                    place.immutable(&then);
                    continue;
                }
            };
            let empty = |field: &Field<'_, '_>| *field.value() == Value::Object(Default::default());
            let same = now.value() == then.value()
                || empty(&now) && !then.exists()
                || empty(&then) && !now.exists();
            if !same {
                place.invalid_as(shown, metadata::IMMUTABLE);
            }
        }
    }
}

/// An event lives where its object does; those of objects in no namespace live in the default one.
fn namespaces_match(event: &Field<'_, '_>, object: &'static str) {
    let (own, other) = (event.at("metadata.namespace"), event.at(object));
    let place = event.spelled("involvedObject");
    let place = place.spelled("namespace");
    let namespace = other.at("namespace").text();
    let detail = "does not match event.namespace";
    // An event with a time of its own may be about an object in another namespace.
    let modern = event.at("eventTime").exists();
    match (namespace, own.text()) {
        ("", "" | "default") => {}
        ("", "kube-system") if modern => {}
        ("", _) => place.invalid_as(namespace, detail),
        (namespace, own) if namespace != own && !modern => place.invalid_as(namespace, detail),
        _ => {}
    }
}

/// What any event must have; one with a time of its own says who reports it.
fn basic(event: &Field<'_, '_>) {
    namespaces_match(event, "regarding");
    if event.at("eventTime").exists() {
        reported(event, "reportingController", "reportingController", "note");
    }
}

fn series(series: &Field<'_, '_>) {
    if !series.exists() {
        return;
    }
    if series.at("count").int() < 2 {
        series.at("count").invalid_as("", "should be at least 2");
    }
    if !series.at("lastObservedTime").exists() {
        series.at("lastObservedTime").required("");
    }
}

/// Who says what. The reporter's field has another name in each group.
fn reported(
    event: &Field<'_, '_>,
    controller: &'static str,
    spelled: &'static str,
    message: &'static str,
) {
    let place = event.at(controller).on_path(crate::field::Path::new(spelled));
    place.require();
    place.faults(names::qualified_name(place.text()));
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = event.at(field);
        value.require();
        if value.text().len() > limit {
            value.invalid_as("", format!("can have at most {limit} characters"));
        }
    }
    let text = event.at(message).on_path(crate::field::Path::new("message"));
    if text.text().len() > 1024 {
        text.invalid_as("", "can have at most 1024 characters");
    }
}

fn target(object: &Field<'_, '_>) -> Value {
    let kind = object.at("kind").text().to_lowercase();
    match object.at("name").text() {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn first_seen(event: &Field<'_, '_>, now: Timestamp, first: &'static str) -> String {
    match timestamp(&event.at(first)) {
        Some(_) => age(&event.at(first), now),
        None => age(&event.at("eventTime"), now),
    }
}

fn last_seen(
    event: &Field<'_, '_>,
    now: Timestamp,
    last: &'static str,
    first: &'static str,
) -> String {
    if event.at("series").exists() {
        return age(&event.at("series.lastObservedTime"), now);
    }
    match timestamp(&event.at(last)) {
        Some(_) => age(&event.at(last), now),
        None => first_seen(event, now, first),
    }
}

fn count(event: &Field<'_, '_>, field: &'static str) -> Value {
    match event.at("series").exists() {
        true => event.at("series.count").int().into(),
        false => event.at(field).int().max(1).into(),
    }
}

fn source(event: &Field<'_, '_>, source: &'static str) -> Value {
    let source = event.at(source);
    let either = |first: &str, second: &str| {
        if first.is_empty() { second.to_owned() } else { first.to_owned() }
    };
    let reporting = event.value();
    let controller =
        reporting["reportingComponent"].as_str().or(reporting["reportingController"].as_str());
    let component = either(source.at("component").text(), controller.unwrap_or_default());
    let host = either(source.at("host").text(), event.at("reportingInstance").text());
    if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
}
