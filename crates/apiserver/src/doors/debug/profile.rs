//! Where the processor's time goes, in the format that `go tool pprof` and its kin read.
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{ProfilerGuardBuilder, Report};
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Samples a second: odd, so that it does not beat with what happens a hundred times a second.
const FREQUENCY: i32 = 99;
const PERIOD: i64 = 1_000_000_000 / FREQUENCY as i64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Could not enable CPU profiling: {0}")]
    Profiler(#[from] pprof::Error),
    #[error("failed to compress the profile: {0}")]
    Compress(#[from] std::io::Error),
}

/// Samples the process for so long.
pub async fn take(time: Duration) -> Result<Vec<u8>, Error> {
    // Unwinding inside these may deadlock in a signal's handler.
    let unsafe_to_unwind = ["libc", "libgcc", "pthread", "vdso"];
    let guard = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&unsafe_to_unwind)
        .build()?;
    tokio::time::sleep(time).await;
    let profile = profile(&guard.report().build()?);
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(&profile.encode_to_vec())?;
    Ok(out.finish()?)
}

fn profile(report: &Report) -> Profile {
    let mut made = Profile::default();
    let mut strings = Strings::default();
    let mut functions: HashMap<String, u64> = HashMap::new();
    let [samples, count, cpu, nanoseconds] =
        ["samples", "count", "cpu", "nanoseconds"].map(|word| strings.index(word));
    made.sample_type = vec![
        ValueType { r#type: samples, unit: count },
        ValueType { r#type: cpu, unit: nanoseconds },
    ];
    made.period_type = Some(ValueType { r#type: cpu, unit: nanoseconds });
    made.period = PERIOD;
    let started = report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
    made.time_nanos = started.as_nanos() as i64;
    made.duration_nanos = report.timing.duration.as_nanos() as i64;
    for (stack, count) in &report.data {
        let mut sample =
            Sample { value: vec![*count as i64, *count as i64 * PERIOD], ..Default::default() };
        for symbol in stack.frames.iter().flatten() {
            let name = symbol.name();
            // A place in the code is its function: what a profile is read by.
            let id = *functions.entry(name).or_insert_with_key(|name| {
                let id = made.function.len() as u64 + 1;
                let (name, filename) = (strings.index(name), strings.index(&symbol.filename()));
                made.function.push(Function { id, name, filename });
                let line = Line { function_id: id, line: i64::from(symbol.lineno()) };
                made.location.push(Location { id, line: vec![line] });
                id
            });
            sample.location_id.push(id);
        }
        made.sample.push(sample);
    }
    made.string_table = strings.all;
    made
}

/// Texts by their place in the profile's table, which begins with the empty one.
struct Strings {
    all: Vec<String>,
    places: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings { all: vec![String::new()], places: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    fn index(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// `perftools.profiles.Profile`, as far as it is used here.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
