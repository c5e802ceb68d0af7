//! `events.k8s.io/v1` events: the first of a kind is written at once, the second makes it a
//! series, and a series is written again only now and then (upstream's `tools/events`).
use super::{Happening, PAUSE, Reporter, TRIES, may_be_retried, name};
use crate::client::Client;
use crate::context::Context;
use crate::source::Patch;
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// A series is over when nothing was added for so long; what is open is looked through as often.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// An open series is written again.
const REFRESH: Duration = Duration::from_secs(30 * 60);

pub(super) async fn write(
    context: Context,
    client: Client,
    reporter: Reporter,
    mut queue: mpsc::Receiver<(Happening, Timestamp)>,
) {
    let [mut finish, mut refresh] = [FINISH, REFRESH].map(tokio::time::interval);
    for interval in [&mut finish, &mut refresh] {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut open = Open::default();
    loop {
        let due = tokio::select! {
            () = context.stopped() => return,
            next = queue.recv() => match next {
                None => return,
                Some((happening, at)) => {
                    open.add(make(&context, &reporter, happening, at), at).into_iter().collect()
                }
            },
            _ = finish.tick() => open.finish(context.now()),
            _ = refresh.tick() => open.refresh(),
        };
        for event in due {
            write_one(&context, &client, &event).await;
        }
    }
}

fn make(context: &Context, reporter: &Reporter, happening: Happening, at: Timestamp) -> Event {
    let annotations = Some(happening.annotations.clone()).filter(|map| !map.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(name(context, happening.regarding.name.as_deref(), at)),
            namespace: Some(happening.namespace()),
            annotations,
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some(happening.type_().to_owned()),
        regarding: Some(happening.regarding),
        related: happening.related,
        reason: Some(happening.reason),
        action: Some(happening.action),
        note: Some(happening.note),
        reporting_controller: Some(reporter.component.clone()),
        reporting_instance: Some(reporter.host.clone()),
        ..Event::default()
    }
}

async fn write_one(context: &Context, client: &Client, event: &Event) {
    for _ in 0..TRIES {
        match send(client, event).await {
            Ok(()) => return,
            Err(status) if may_be_retried(&status) => {
                if !context.sleep(context.jitter(PAUSE, 0.25)).await {
                    return;
                }
            }
            Err(status) => return tracing::warn!(%status, "the server refused an event"),
        }
    }
    tracing::warn!(reason = event.reason, "an event could not be written: no more tries");
}

async fn send(client: &Client, event: &Event) -> Result<(), Status> {
    if event.series.is_some() {
        let [namespace, name] = [&event.metadata.namespace, &event.metadata.name]
            .map(|text| text.as_deref().unwrap_or_default());
        let patch = Patch::Strategic(json!({ "series": event.series }));
        match client.patch::<Event>(namespace, name, patch).await {
            Err(status) if status.is_not_found() => {}
            patched => return patched.map(drop),
        }
    }
    client.create(event).await.map(drop)
}

/// Events that more of the same may follow, by their key: a scheduler has thousands.
#[derive(Default)]
struct Open(BTreeMap<String, Event>);

impl Open {
    /// What is to be written now.
    fn add(&mut self, event: Event, at: Timestamp) -> Option<Event> {
        let key = key(&event);
        let Some(same) = self.0.get_mut(&key) else {
            self.0.insert(key, event.clone());
            return Some(event);
        };
        let is_first = same.series.is_none();
        let series =
            same.series.get_or_insert(EventSeries { count: 1, last_observed_time: MicroTime(at) });
        series.count += 1;
        series.last_observed_time = MicroTime(at);
        is_first.then(|| same.clone())
    }

    /// Closes what is over; a series is written one last time.
    fn finish(&mut self, now: Timestamp) -> Vec<Event> {
        let is_over = |event: &Event| {
            let last = event.series.as_ref().map(|series| &series.last_observed_time);
            let last =
                last.or(event.event_time.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
            now.duration_since(last).unsigned_abs() > FINISH
        };
        let over = self.0.extract_if(.., |_, event| is_over(event)).map(|(_, event)| event);
        over.filter(|event| event.series.is_some()).collect()
    }

    fn refresh(&self) -> Vec<Event> {
        self.0.values().filter(|event| event.series.is_some()).cloned().collect()
    }
}

/// Events with the same key are one series: their notes may differ.
fn key(event: &Event) -> String {
    let words = [
        &event.type_,
        &event.action,
        &event.reason,
        &event.reporting_controller,
        &event.reporting_instance,
    ];
    format!("{words:?} {:?} {:?}", event.regarding, event.related)
}

#[cfg(test)]
mod tests {
    use super::super::Recorder;
    use super::*;
    use crate::testing::World;
    use expect_test::expect;
    use k8s_openapi::api::core::v1::ObjectReference;

    #[tokio::test(start_paused = true)]
    async fn the_second_makes_a_series_that_is_written_now_and_then() {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let world = World::new(&context);
        let reporter = Reporter::new("default-scheduler", "default-scheduler-n");
        let recorder = Recorder::series(&context, world.client(), reporter);
        let about = |name: &str| ObjectReference {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectReference::default()
        };
        let happening = |name: &str, note: &str| {
            Happening::warning(about(name), "FailedScheduling", note).while_("Scheduling")
        };
        let mut seen = Vec::new();
        let steps = [("web", 1), ("web", 1), ("web", 1), ("db", 60), ("web", 3600)];
        for (i, (name, seconds)) in steps.into_iter().enumerate() {
            recorder.record(happening(name, &format!("try {i}")));
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let counts = world.all::<Event>().into_iter().map(|event| {
                let regarding = event.regarding.as_ref().and_then(|about| about.name.clone());
                let count = event.series.as_ref().map_or(1, |series| series.count);
                format!("{} {} x{count}", regarding.unwrap(), event.note.clone().unwrap())
            });
            let counts: Vec<_> = counts.collect();
            seen.push(format!("{} | {}", world.written().join(", "), counts.join(", ")));
        }
        expect![[r#"
            create events.events.k8s.io ns/web.18867251edfa0000 | web try 0 x1
            patch events.events.k8s.io ns/web.18867251edfa0000 | web try 0 x2
             | web try 0 x2
            create events.events.k8s.io ns/db.18867252a0ca5e00 | db try 3 x1, web try 0 x2
            patch events.events.k8s.io ns/web.18867251edfa0000 | db try 3 x1, web try 0 x4"#]]
        .assert_eq(&seen.join("\n"));
    }
}
