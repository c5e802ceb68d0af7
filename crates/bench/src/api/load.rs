//! Workers that send one request after the other, each on a connection of its own.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use http::{HeaderValue, Method};

use super::lean::Lean;
use super::place::{Place, config_map};
use crate::measured::Measured;
use testkit::client::{Endpoint, JSON};

/// One request of a workload.
pub struct Call {
    pub method: Method,
    pub path: String,
    pub accept: HeaderValue,
    pub body: Bytes,
}

impl Call {
    pub fn get(path: String, accept: HeaderValue) -> Call {
        Call { method: Method::GET, path, accept, body: Bytes::new() }
    }
}

/// When a load is over.
#[derive(Clone, Copy)]
pub enum Until {
    Calls(usize),
    Time(Duration),
}

/// Has so many workers make calls, which are made up from their running number.
pub async fn run(
    endpoint: &Arc<Endpoint>,
    workers: usize,
    until: Until,
    call: impl Fn(usize) -> Call + Send + Sync + 'static,
) -> Result<Measured> {
    // Connecting is no part of what is measured.
    let mut connections = Vec::new();
    for _ in 0..workers {
        connections.push(Lean::open(endpoint).await?);
    }
    let (call, next) = (Arc::new(call), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|connection| tokio::spawn(work(connection, until, call.clone(), next.clone())))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.map_err(|e| anyhow!("a worker failed: {e}"))??);
    }
    Ok(Measured { took: begun.elapsed(), latencies })
}

async fn work(
    mut connection: Lean,
    until: Until,
    call: Arc<impl Fn(usize) -> Call>,
    next: Arc<AtomicUsize>,
) -> Result<Vec<u32>> {
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let over = match until {
            Until::Calls(calls) => number >= calls,
            Until::Time(time) => begun.elapsed() >= time,
        };
        if over {
            return Ok(latencies);
        }
        let call = call(number);
        let started = Instant::now();
        connection.drain(&call).await?;
        latencies.push(started.elapsed().as_micros() as u32);
    }
}

pub fn name(number: usize) -> String {
    format!("object-{number:06}")
}

pub fn create(place: &Place) -> impl Fn(usize) -> Call + Send + Sync + use<> {
    let path = place.collection.clone();
    move |number| Call {
        method: Method::POST,
        path: path.clone(),
        accept: JSON,
        body: config_map(&name(number), "created"),
    }
}

pub fn get(place: &Place, objects: usize) -> impl Fn(usize) -> Call + Send + Sync + use<> {
    let path = place.path("");
    move |_| Call::get(format!("{path}{}", name(fastrand::usize(..objects))), JSON)
}

pub fn list(
    place: &Place,
    query: &'static str,
    accept: HeaderValue,
) -> impl Fn(usize) -> Call + Send + Sync + use<> {
    let path = format!("{}{query}", place.collection);
    move |_| Call::get(path.clone(), accept.clone())
}

/// Of twenty calls sixteen get, three replace and one lists a page.
pub fn mixed(place: &Place, objects: usize) -> impl Fn(usize) -> Call + Send + Sync + use<> {
    let (get, list) = (get(place, objects), list(place, "?limit=100", JSON));
    let path = place.path("");
    move |number| match number % 20 {
        0 => list(number),
        1..=3 => {
            let name = name(fastrand::usize(..objects));
            let body = config_map(&name, &number.to_string());
            Call { method: Method::PUT, path: format!("{path}{name}"), accept: JSON, body }
        }
        _ => get(number),
    }
}
