//! `kubectl events`: what happened, the newest last.
use super::get::age;
use super::{Command, Group};
use crate::builder::ALL_NAMESPACES;
use crate::cluster::{Cluster, collection};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, list, number, switch, text};
use crate::print::tabs::Tabs;
use crate::print::{self, Printer};
use crate::session::Session;
use client::ApiResource;
use client::source::{Event, WatchFrom};
use futures_util::StreamExt;
use serde_json::Value;

static FLAGS: &[Flag] = &[
    number("chunk-size", "500", "How many are asked for at a time; 0: all."),
    text("for", "", "Only events of this object: TYPE/NAME."),
    switch("no-headers", "Without headers."),
    list("types", "Only events of these types: Normal, Warning."),
    switch("watch", "Go on as they come.").short('w'),
];

pub static COMMAND: Command = Command {
    name: "events",
    group: Group::Troubleshooting,
    about: "List events",
    usage: "[(-o|--output=)json|yaml|…] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    flags: &[FLAGS, ALL_NAMESPACES, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    for kind in arguments.list("types") {
        if !["normal", "warning"].contains(&kind.to_lowercase().as_str()) {
            return Err("valid --types are Normal or Warning".into());
        }
    }
    let cluster = session.cluster(&arguments)?;
    let all = arguments.is("all-namespaces");
    let namespace = if all { "" } else { &cluster.namespace };
    let events = ApiResource::custom("", "v1", "events", "Event", api::kinds::Scope::Namespaced);
    let fields = subject(&cluster, arguments.text("for")).await?;
    let of = collection(&events, namespace, "", &fields)?;
    let (mut found, revision) =
        cluster.list_from(of.clone(), arguments.number("chunk-size")).await?;
    let types = arguments.list("types");
    let fits = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        types.is_empty() || types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind))
    };
    found.retain(&fits);
    found.sort_by_key(moment);
    let watches = arguments.is("watch");
    if found.is_empty() && !watches {
        match all {
            true => writeln!(session.err, "No events found.")?,
            false => writeln!(session.err, "No events found in {namespace} namespace.")?,
        }
        return Ok(());
    }
    let mut shown = Shown {
        printer: Printer::of(&arguments)?,
        tabs: Tabs::default(),
        headers: !arguments.is("no-headers"),
        with_namespace: all,
    };
    if shown.printer.is_some() && !watches {
        let list = super::get::list_of(found);
        let list = Value::Object(
            list.as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| match key.as_str() {
                    "kind" => (key.clone(), "EventList".into()),
                    "metadata" => (key.clone(), serde_json::json!({})),
                    _ => (key.clone(), value.clone()),
                })
                .collect(),
        );
        return match &mut shown.printer {
            Some(printer) => printer.print(&list, &mut session.out),
            None => Ok(()),
        };
    }
    shown.print(session, &found)?;
    if !watches {
        return Ok(());
    }
    let from = WatchFrom { revision, initial_events: false, timeout: None };
    let mut watch = cluster.source.watch(of, from).await?;
    while let Some(event) = watch.next().await {
        if let Event::Added(object) | Event::Modified(object) = event? {
            let event = object.tree().map_err(|error| Failure::Plain(error.to_string()))?;
            if fits(&event) {
                shown.print(session, &[event])?;
            }
        }
    }
    Ok(())
}

/// Which object's events: as the server selects them.
async fn subject(cluster: &Cluster, of: &str) -> Outcome<String> {
    if of.is_empty() {
        return Ok(String::new());
    }
    let Some((kind, name)) = of.split_once('/') else {
        return Err("--for must be in resource/name form".into());
    };
    let found = &cluster.mapper().await?.find(kind)?.api;
    Ok(format!(
        "involvedObject.kind={},involvedObject.name={name},involvedObject.apiVersion={}",
        found.kind,
        found.api_version()
    ))
}

/// When an event was last seen.
fn moment(event: &Value) -> String {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    text(&event["series"]["lastObservedTime"])
        .or(text(&event["lastTimestamp"]))
        .or(text(&event["eventTime"]))
        .unwrap_or_default()
}

struct Shown {
    printer: Option<Printer>,
    tabs: Tabs,
    headers: bool,
    with_namespace: bool,
}

impl Shown {
    fn print(&mut self, session: &mut Session, events: &[Value]) -> Outcome {
        if let Some(printer) = &mut self.printer {
            for event in events {
                printer.print(event, &mut session.out)?;
            }
            return session.flush();
        }
        let mut rows = Vec::new();
        if std::mem::take(&mut self.headers) {
            let headers = ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
            let skip = usize::from(!self.with_namespace);
            rows.push(headers.iter().skip(skip).map(|text| (*text).to_owned()).collect());
        }
        for event in events {
            let mut row = self.row(event);
            if !self.with_namespace {
                row.remove(0);
            }
            rows.push(row);
        }
        session.out.write_all(self.tabs.lines(&rows).as_bytes())?;
        session.flush()
    }

    fn row(&self, event: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["involvedObject"];
        vec![
            text(&event["metadata"]["namespace"]),
            interval(event),
            text(&event["type"]),
            text(&event["reason"]),
            format!("{}/{}", text(&object["kind"]), text(&object["name"])),
            text(&event["message"]).trim().to_owned(),
        ]
    }
}

/// `3m (x5 over 10m)`
fn interval(event: &Value) -> String {
    let first = match event["eventTime"].is_string() {
        true => age(&event["eventTime"]),
        false => age(&event["firstTimestamp"]),
    };
    let series = &event["series"];
    if series.is_object() {
        return format!("{} (x{} over {first})", age(&series["lastObservedTime"]), series["count"]);
    }
    match event["count"].as_i64() {
        Some(count) if count > 1 => {
            format!("{} (x{count} over {first})", age(&event["lastTimestamp"]))
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_that_come_again_are_told_once() {
        let now = jiff::Timestamp::now();
        let ago = |seconds: i64| {
            api::time::format_timestamp(now - jiff::SignedDuration::from_secs(seconds))
        };
        let event = json!({ "count": 5, "firstTimestamp": ago(600), "lastTimestamp": ago(180) });
        assert_eq!(interval(&event), "3m (x5 over 10m)");
        assert_eq!(interval(&json!({ "firstTimestamp": ago(50), "count": 1 })), "50s");
        assert_eq!(interval(&json!({})), "<unknown>");
    }
}
