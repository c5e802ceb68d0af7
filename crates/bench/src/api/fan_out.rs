//! Many watchers of the same objects while a few writers write.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::place::{Place, config_map};
use crate::measured::Measured;
use testkit::client::Endpoint;
use testkit::client::{Connection, JSON};

const WRITERS: usize = 4;

/// How long the last events may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every event that reached a watcher, with the time since its write was sent.
pub async fn run(
    endpoint: &Arc<Endpoint>,
    place: &Place,
    watchers: usize,
    time: Duration,
) -> Result<Measured> {
    let mut connection = Connection::open(endpoint).await?;
    let page = format!("{}?limit=1", place.collection);
    let list = connection.call(Method::GET, &page, Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
    let path = format!("{}?watch=true&resourceVersion={version}", place.collection);
    let (begun, written) = (Instant::now(), Arc::new(AtomicUsize::new(usize::MAX)));
    let mut watching = Vec::new();
    for _ in 0..watchers {
        let mut connection = Connection::open(endpoint).await?;
        let events = connection.send(Method::GET, &path, JSON, Bytes::new()).await?.into_body();
        let written = written.clone();
        watching.push(tokio::spawn(async move {
            // The connection lives as long as its events are read.
            let _connection = connection;
            watch(events, begun, &written).await
        }));
    }
    let started = Instant::now();
    let mut writing = Vec::new();
    for writer in 0..WRITERS {
        let (connection, path) = (Connection::open(endpoint).await?, place.collection.clone());
        writing.push(tokio::spawn(write(connection, path, writer, begun, time)));
    }
    let mut writes = 0;
    for task in writing {
        writes += task.await.map_err(|e| anyhow!("a writer failed: {e}"))??;
    }
    written.store(writes, Ordering::SeqCst);
    let mut latencies = Vec::new();
    for task in watching {
        let seen = tokio::time::timeout(PATIENCE, task).await.context("events are missing")?;
        latencies.extend(seen.map_err(|e| anyhow!("a watcher failed: {e}"))??);
    }
    Ok(Measured { took: started.elapsed(), latencies })
}

/// Creates a config map and replaces it again and again; each says when it was sent. Returns how
/// often.
async fn write(
    mut connection: Connection,
    collection: String,
    writer: usize,
    begun: Instant,
    time: Duration,
) -> Result<usize> {
    let name = format!("watched-{writer}");
    let path = format!("{collection}/{name}");
    let (started, mut writes) = (Instant::now(), 0);
    while started.elapsed() < time {
        let body = config_map(&name, &format!("sent-{}-", begun.elapsed().as_micros()));
        let (method, path) =
            if writes == 0 { (Method::POST, &collection) } else { (Method::PUT, &path) };
        connection.drain(method, path, JSON, body).await?;
        writes += 1;
    }
    Ok(writes)
}

/// Reads events, a line each, until as many have come as were written.
async fn watch(mut events: Incoming, begun: Instant, written: &AtomicUsize) -> Result<Vec<u32>> {
    let (mut latencies, mut line) = (Vec::new(), Vec::new());
    while latencies.len() < written.load(Ordering::SeqCst) {
        // The number to expect may become known while nothing is left to come.
        let frame = match tokio::time::timeout(Duration::from_millis(50), events.frame()).await {
            Err(_) => continue,
            Ok(frame) => frame.context("the server ended a watch")??,
        };
        let now = begun.elapsed().as_micros() as u32;
        for part in frame.data_ref().map_or(&[][..], |data| data).split_inclusive(|b| *b == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                latencies.extend(sent(&line).map(|sent| now.saturating_sub(sent)));
                line.clear();
            }
        }
    }
    Ok(latencies)
}

/// When the object of an event was sent.
fn sent(line: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"\"sent-";
    let at = line.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = line[at..].split(|b| *b == b'-').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_event_says_when_its_object_was_sent() {
        let body = super::config_map("a", "sent-1234-");
        assert_eq!(super::sent(&body), Some(1234));
        assert_eq!(super::sent(&super::config_map("a", "created")), None);
    }
}
