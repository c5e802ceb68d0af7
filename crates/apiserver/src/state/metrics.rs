//! What the server counts about itself, by upstream's names, in Prometheus' text format.
use crate::call::Call;
use crate::server::ApiServer;
use api::kinds::Verb;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

/// Upper bounds of the buckets of a request's duration, in seconds: upstream's.
const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Kind, Series>>,
}

/// What requests are told apart by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    dry_run: bool,
}

#[derive(Debug, Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; SECONDS.len()],
    count: u64,
    sum: f64,
    /// Watches and streams that are under way.
    running: i64,
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, call: &Call, is_apply: bool, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        self.with(call, is_apply, |series| {
            *series.codes.entry(code).or_default() += 1;
            // How long somebody watched says nothing about the server.
            if !is_long(call) {
                if let Some(i) = SECONDS.iter().position(|bound| seconds <= *bound) {
                    series.buckets[i] += 1;
                }
                series.count += 1;
                series.sum += seconds;
            }
        });
    }

    /// A watch or stream begins (1) or ends (-1).
    pub fn running(&self, call: &Call, change: i64) {
        self.with(call, false, |series| series.running += change);
    }

    fn with(&self, call: &Call, is_apply: bool, change: impl FnOnce(&mut Series)) {
        let kind = Kind {
            verb: verb(call, is_apply),
            group: call.resource.group,
            version: call.resource.version,
            resource: call.resource.plural,
            subresource: call.subresource.map_or("", |subresource| subresource.name),
            scope: scope(call),
            dry_run: call.is_dry_run(),
        };
        let mut requests = self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        change(requests.entry(kind).or_default());
    }

    /// The whole page.
    pub async fn page(&self, api: &ApiServer) -> String {
        let mut out = String::new();
        self.write_requests(&mut out);
        let (reads, writes) = match api.fairness() {
            Some(fairness) => fairness.now(),
            None => api.in_flight().now(),
        };
        head(&mut out, "apiserver_current_inflight_requests", "gauge", "Requests under way.");
        line(&mut out, "apiserver_current_inflight_requests{request_kind=\"readOnly\"}", reads);
        line(&mut out, "apiserver_current_inflight_requests{request_kind=\"mutating\"}", writes);
        head(&mut out, "apiserver_storage_objects", "gauge", "Objects stored, by resource.");
        for (resource, count) in api.counts().await {
            let name = format!("apiserver_storage_objects{{resource={resource:?}}}");
            line(&mut out, &name, count);
        }
        out.push_str(&api.unreadable().metrics());
        out.push_str(&api.audit().metrics());
        out.push_str(&api.extend().counts.text());
        out.push_str(&api.admission().durations.text());
        if let Some(fairness) = api.fairness() {
            out.push_str(&fairness.metrics());
        }
        write_process(&mut out);
        out
    }

    fn write_requests(&self, out: &mut String) {
        let requests = self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        head(
            out,
            "apiserver_request_total",
            "counter",
            "Requests, by what they were about and how they ended.",
        );
        for (kind, series) in &*requests {
            for (code, count) in &series.codes {
                let dry_run = if kind.dry_run { "All" } else { "" };
                let labels = kind.labels();
                let name = format!(
                    "apiserver_request_total{{code=\"{code}\",dry_run=\"{dry_run}\",{labels}}}"
                );
                line(out, &name, count);
            }
        }
        let name = "apiserver_request_duration_seconds";
        head(out, name, "histogram", "How long requests took.");
        for (kind, series) in requests.iter().filter(|(_, series)| series.count > 0) {
            let labels =
                format!("dry_run=\"{}\",{}", if kind.dry_run { "All" } else { "" }, kind.labels());
            let mut below = 0;
            for (bound, count) in SECONDS.iter().zip(series.buckets) {
                below += count;
                line(out, &format!("{name}_bucket{{{labels},le=\"{bound}\"}}"), below);
            }
            line(out, &format!("{name}_bucket{{{labels},le=\"+Inf\"}}"), series.count);
            line(out, &format!("{name}_sum{{{labels}}}"), series.sum);
            line(out, &format!("{name}_count{{{labels}}}"), series.count);
        }
        head(out, "apiserver_longrunning_requests", "gauge", "Watches and streams under way.");
        for (kind, series) in
            requests.iter().filter(|(kind, _)| matches!(kind.verb, "WATCH" | "CONNECT"))
        {
            line(
                out,
                &format!("apiserver_longrunning_requests{{{}}}", kind.labels()),
                series.running,
            );
        }
    }
}

impl Kind {
    fn labels(&self) -> String {
        let Kind { verb, group, version, resource, subresource, scope, .. } = self;
        format!(
            "component=\"apiserver\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

/// Requests that last as long as the client likes.
pub fn is_long(call: &Call) -> bool {
    call.verb == Verb::Watch || call.is_passed_on()
}

fn verb(call: &Call, is_apply: bool) -> &'static str {
    match call.verb {
        _ if call.is_passed_on() => "CONNECT",
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if is_apply => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

fn scope(call: &Call) -> &'static str {
    match (call.name.is_empty(), call.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}

/// What the kernel counts about the process.
fn write_process(out: &mut String) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let kilobytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    if let Some(resident) = kilobytes("VmRSS:") {
        head(out, "process_resident_memory_bytes", "gauge", "Memory that the process uses.");
        line(out, "process_resident_memory_bytes", resident * 1024);
    }
    // Times are in ticks of a hundredth of a second, on every kernel there is.
    let stat = read("/proc/self/stat");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> =
        after_name.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    if let (Some(user), Some(system)) = (fields.get(11), fields.get(12)) {
        head(out, "process_cpu_seconds_total", "counter", "Time that the process computed.");
        line(out, "process_cpu_seconds_total", (user + system) / 100.0);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        head(out, "process_open_fds", "gauge", "Files that are open.");
        line(out, "process_open_fds", files.count());
    }
}
