//! `v1` events: what upstream's `tools/record` makes of them before they are written.
use super::recent::Recent;
use super::{Happening, PAUSE, Reporter, TRIES, may_be_retried, name};
use crate::client::Client;
use crate::context::Context;
use crate::queue::Bucket;
use crate::source::Patch;
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// So many different messages of one reason about one object within that time, and from then on
/// they are one event.
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// So many events about one object at once, and then one in five minutes.
const BURST: u32 = 25;
const PER_SECOND: f64 = 1.0 / 300.0;

pub(super) async fn write(
    context: Context,
    client: Client,
    reporter: Reporter,
    mut queue: mpsc::Receiver<(Happening, Timestamp)>,
) {
    let mut correlator = Correlator::default();
    loop {
        let next = tokio::select! {
            () = context.stopped() => return,
            next = queue.recv() => next,
        };
        let Some((happening, at)) = next else { return };
        let event = make(&context, &reporter, happening, at);
        if let Some(record) = correlator.correlate(event, at, Instant::now()) {
            write_one(&context, &client, &mut correlator, record).await;
        }
    }
}

fn make(context: &Context, reporter: &Reporter, happening: Happening, at: Timestamp) -> Event {
    let time = Some(Time(seconds(at)));
    let annotations = Some(happening.annotations.clone()).filter(|map| !map.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(name(context, happening.regarding.name.as_deref(), at)),
            namespace: Some(happening.namespace()),
            annotations,
            ..ObjectMeta::default()
        },
        type_: Some(happening.type_().to_owned()),
        involved_object: happening.regarding,
        reason: Some(happening.reason),
        message: Some(happening.note),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        source: Some(EventSource {
            component: Some(reporter.component.clone()),
            host: Some(reporter.host.clone()).filter(|host| !host.is_empty()),
        }),
        reporting_component: Some(reporter.component.clone()),
        reporting_instance: Some(reporter.host.clone()),
        ..Event::default()
    }
}

/// The API writes whole seconds.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(api::time::parts(time).0).unwrap_or(time)
}

async fn write_one(
    context: &Context,
    client: &Client,
    correlator: &mut Correlator,
    record: Record,
) {
    for attempt in 0..TRIES {
        match send(client, &record).await {
            Ok(name) => return correlator.written(&record.key, name),
            Err(status) if may_be_retried(&status) => {
                // At first at random: not all components at once after the server comes back.
                let pause = if attempt == 0 { PAUSE.mul_f64(context.chance()) } else { PAUSE };
                if !context.sleep(pause).await {
                    return;
                }
            }
            Err(status) => {
                let terminating = status.cause("NamespaceTerminating").is_some();
                if status.is_already_exists() || terminating {
                    tracing::debug!(%status, "the server refused an event");
                } else {
                    tracing::warn!(%status, "the server refused an event");
                }
                return;
            }
        }
    }
    tracing::warn!(reason = record.event.reason, "an event could not be written: no more tries");
}

/// The name that the event has on the server.
async fn send(client: &Client, record: &Record) -> Result<String, Status> {
    let metadata = &record.event.metadata;
    let [namespace, name] =
        [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or_default());
    if let Some(patch) = &record.patch {
        let patched = client.patch::<Event>(namespace, name, Patch::Strategic(patch.clone())).await;
        match patched {
            // It has been forgotten there: told anew, with its count.
            Err(status) if status.is_not_found() => {}
            patched => return patched.map(|object| object.name().to_owned()),
        }
    }
    Ok(client.create(&record.event).await?.name().to_owned())
}

/// What is to be written.
#[derive(Debug)]
struct Record {
    event: Event,
    /// The change, if the event has been written before.
    patch: Option<Value>,
    /// What it is counted by.
    key: String,
}

#[derive(Default)]
struct Correlator {
    similar: Recent<String, Similar>,
    counted: Recent<String, Counted>,
    floods: Recent<String, Option<Bucket>>,
}

struct Similar {
    messages: HashSet<String>,
    last: Timestamp,
}

#[derive(Default, Clone)]
struct Counted {
    count: i32,
    name: String,
    first: Option<Time>,
}

impl Correlator {
    /// What becomes of an event; nothing if there were too many.
    fn correlate(&mut self, event: Event, at: Timestamp, now: Instant) -> Option<Record> {
        let (event, key) = self.combine(event, at);
        let record = self.count(event, key);
        let spam = key_of(&record.event, &[Part::Type]);
        let bucket = self.floods.use_(&spam, || None);
        let bucket = bucket.get_or_insert_with(|| Bucket::new(PER_SECOND, BURST));
        bucket.try_take(now).then_some(record)
    }

    /// Many messages that differ in little become one event.
    fn combine(&mut self, mut event: Event, at: Timestamp) -> (Event, String) {
        let own = key_of(&event, &[Part::FieldPath, Part::Type, Part::Reason, Part::Message]);
        let key = key_of(&event, &[Part::Type, Part::Reason, Part::Reporter]);
        let similar = self.similar.use_(&key, || Similar { messages: HashSet::new(), last: at });
        if at.duration_since(similar.last).unsigned_abs() > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = at;
        let message = event.message.clone().unwrap_or_default();
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR {
            return (event, own);
        }
        // Room for the next one; which one goes does not matter.
        if let Some(any) = similar.messages.iter().next().cloned() {
            similar.messages.remove(&any);
        }
        event.message = Some(format!("(combined from similar events): {message}"));
        event.reporting_component = Some(String::new());
        event.reporting_instance = Some(String::new());
        event.metadata.annotations = None;
        (event, key)
    }

    /// The same again is the same event, with a count.
    fn count(&mut self, mut event: Event, key: String) -> Record {
        let counted = self.counted.use_(&key, Counted::default);
        let mut patch = None;
        if counted.count > 0 {
            event.metadata.name = Some(counted.name.clone());
            event.first_timestamp = counted.first.clone();
            event.count = Some(counted.count + 1);
            patch = Some(json!({
                "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message,
            }));
        }
        *counted = Counted {
            count: event.count.unwrap_or(1),
            name: event.metadata.name.clone().unwrap_or_default(),
            first: event.first_timestamp.clone(),
        };
        Record { event, patch, key }
    }

    fn written(&mut self, key: &String, name: String) {
        self.counted.use_(key, Counted::default).name = name;
    }
}

enum Part {
    FieldPath,
    Type,
    Reason,
    Message,
    Reporter,
}

/// Who said it about whom, and these parts of what was said.
fn key_of(event: &Event, parts: &[Part]) -> String {
    let (source, about) = (event.source.as_ref(), &event.involved_object);
    let mut all = vec![
        source.and_then(|source| source.component.as_deref()),
        source.and_then(|source| source.host.as_deref()),
        about.kind.as_deref(),
        about.namespace.as_deref(),
        about.name.as_deref(),
        about.uid.as_deref(),
        about.api_version.as_deref(),
    ];
    for part in parts {
        match part {
            Part::FieldPath => all.push(about.field_path.as_deref()),
            Part::Type => all.push(event.type_.as_deref()),
            Part::Reason => all.push(event.reason.as_deref()),
            Part::Message => all.push(event.message.as_deref()),
            Part::Reporter => {
                all.push(event.reporting_component.as_deref());
                all.push(event.reporting_instance.as_deref());
            }
        }
    }
    all.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("\0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use k8s_openapi::api::core::v1::ObjectReference;

    /// Each line is an event a second later, `object reason message`; `+N` waits N seconds first.
    async fn check(events: &str, want: Expect) {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let reporter = Reporter::new("tester", "");
        let (mut correlator, mut out) = (Correlator::default(), Vec::new());
        for line in events.lines().map(str::trim) {
            if let Some(seconds) = line.strip_prefix('+') {
                tokio::time::advance(Duration::from_secs(seconds.parse().unwrap())).await;
                continue;
            }
            let mut words = line.splitn(3, ' ');
            let [object, reason, note] = [(); 3].map(|()| words.next().unwrap());
            let about = ObjectReference { name: Some(object.into()), ..ObjectReference::default() };
            let (happening, at) = (Happening::normal(about, reason, note), context.now());
            let event = make(&context, &reporter, happening, at);
            out.push(match correlator.correlate(event, at, Instant::now()) {
                None => "dropped".to_owned(),
                Some(Record { event, patch, .. }) => {
                    let verb = if patch.is_some() { "patch" } else { "create" };
                    let [name, message] = [event.metadata.name, event.message].map(Option::unwrap);
                    format!("{verb} {name} x{} {message}", event.count.unwrap())
                }
            });
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        want.assert_eq(&out.join("\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_again_is_counted() {
        check(
            "web Pulling image a
             web Pulling image a
             web Pulling image b
             db Pulling image a",
            expect![[r#"
                create web.18867251edfa0000 x1 image a
                patch web.18867251edfa0000 x2 image a
                create web.18867252652f9400 x1 image b
                create db.18867252a0ca5e00 x1 image a"#]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn ten_similar_ones_are_combined() {
        let events: Vec<_> = (0..12).map(|i| format!("web Failed try {i}")).collect();
        let mut events = events.join("\n");
        // Ten minutes of silence, and they are told apart again.
        events.push_str("\n+700\nweb Failed try 20");
        check(
            &events,
            expect![[r#"
            create web.18867251edfa0000 x1 try 0
            create web.188672522994ca00 x1 try 1
            create web.18867252652f9400 x1 try 2
            create web.18867252a0ca5e00 x1 try 3
            create web.18867252dc652800 x1 try 4
            create web.1886725317fff200 x1 try 5
            create web.18867253539abc00 x1 try 6
            create web.188672538f358600 x1 try 7
            create web.18867253cad05000 x1 try 8
            create web.18867254066b1a00 x1 (combined from similar events): try 9
            patch web.18867254066b1a00 x2 (combined from similar events): try 10
            patch web.18867254066b1a00 x3 (combined from similar events): try 11
            create web.188672f7b47bd000 x1 try 20"#]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_and_comes_through_slowly() {
        let events = ["web Failed again"; 26].join("\n") + "\n+280\nweb Failed again";
        check(
            &events,
            expect![[r#"
            create web.18867251edfa0000 x1 again
            patch web.18867251edfa0000 x2 again
            patch web.18867251edfa0000 x3 again
            patch web.18867251edfa0000 x4 again
            patch web.18867251edfa0000 x5 again
            patch web.18867251edfa0000 x6 again
            patch web.18867251edfa0000 x7 again
            patch web.18867251edfa0000 x8 again
            patch web.18867251edfa0000 x9 again
            patch web.18867251edfa0000 x10 again
            patch web.18867251edfa0000 x11 again
            patch web.18867251edfa0000 x12 again
            patch web.18867251edfa0000 x13 again
            patch web.18867251edfa0000 x14 again
            patch web.18867251edfa0000 x15 again
            patch web.18867251edfa0000 x16 again
            patch web.18867251edfa0000 x17 again
            patch web.18867251edfa0000 x18 again
            patch web.18867251edfa0000 x19 again
            patch web.18867251edfa0000 x20 again
            patch web.18867251edfa0000 x21 again
            patch web.18867251edfa0000 x22 again
            patch web.18867251edfa0000 x23 again
            patch web.18867251edfa0000 x24 again
            patch web.18867251edfa0000 x25 again
            dropped
            patch web.18867251edfa0000 x27 again"#]],
        )
        .await;
    }
}
