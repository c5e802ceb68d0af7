//! What was asked and answered, under CoreDNS's names.
use crate::forward::{Forward, Way};
use crate::wire::Kind;
use client::{Metrics, Registry};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Kinds of questions that are counted each; all others are one.
const KINDS: [(Kind, &str); 7] = [
    (Kind::A, "A"),
    (Kind::Aaaa, "AAAA"),
    (Kind::Srv, "SRV"),
    (Kind::Ptr, "PTR"),
    (Kind::Txt, "TXT"),
    (Kind::Soa, "SOA"),
    (Kind::Cname, "CNAME"),
];
const OTHER: &str = "other";
const WAYS: [&str; 2] = ["udp", "tcp"];
const FAMILIES: [&str; 2] = ["1", "2"];
const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
/// Upper bounds in seconds: a quarter of a millisecond, and twice as long each.
const BOUNDS: usize = 16;

/// By kind, way and address family.
type Requests = [[[AtomicU64; 2]; 2]; KINDS.len() + 1];

#[derive(Default)]
pub struct Counts {
    requests: Requests,
    codes: [AtomicU64; 16],
    buckets: [AtomicU64; BOUNDS],
    answered: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counts {
    pub fn asked(&self, kind: Kind, way: Way, client: IpAddr) {
        let kind = KINDS.iter().position(|(other, _)| *other == kind).unwrap_or(KINDS.len());
        let family = usize::from(client.is_ipv6());
        self.requests[kind][way as usize][family].fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self, answer: &[u8], took: Duration) {
        let Some(flags) = answer.get(3) else { return };
        self.codes[usize::from(flags & 0xf)].fetch_add(1, Ordering::Relaxed);
        let quarters = took.as_nanos().div_ceil(250_000).max(1);
        // The first bound that is not below it.
        let bucket = (u128::BITS - (quarters - 1).leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Prometheus' text.
    pub fn text(&self, forward: &Forward) -> String {
        let registry = Registry::default();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let server = [("server", "dns://:53"), ("zone", "."), ("view", "")];
        let names = KINDS.iter().map(|(_, name)| *name).chain([OTHER]);
        for (name, ways) in names.zip(&self.requests) {
            for (way, families) in WAYS.iter().zip(ways) {
                for (family, count) in FAMILIES.iter().zip(families) {
                    let own = [("proto", *way), ("family", *family), ("type", name)];
                    if read(count) > 0.0 {
                        let labels = [&server[..], &own].concat();
                        registry.add("coredns_dns_requests_total", &labels, read(count));
                    }
                }
            }
        }
        for (count, code) in self.codes.iter().zip(CODES) {
            let labels = [&server[..], &[("rcode", code), ("plugin", "")]].concat();
            registry.add("coredns_dns_responses_total", &labels, read(count));
        }
        let of_cache = [("server", "dns://:53"), ("zones", "."), ("view", "")];
        let (success, denial) = forward.cache.lock().len();
        for (kind, entries) in [("success", success), ("denial", denial)] {
            let labels = [&of_cache[..], &[("type", kind)]].concat();
            registry.set("coredns_cache_entries", &labels, entries as f64);
        }
        let counts = &forward.counts;
        for (name, count) in [
            ("coredns_cache_hits_total", &counts.hits),
            ("coredns_cache_misses_total", &counts.misses),
            ("coredns_forward_requests_total", &counts.asked),
            ("coredns_forward_healthcheck_failures_total", &counts.failed),
            ("coredns_forward_max_concurrent_rejects_total", &counts.refused),
        ] {
            registry.add(name, if name.contains("cache") { &of_cache } else { &[] }, read(count));
        }
        registry.add("coredns_panics_total", &[], 0.0);
        let build = [("version", "1.14.2"), ("goversion", ""), ("revision", "skiff")];
        registry.set("coredns_build_info", &build, 1.0);
        registry.text() + &self.durations()
    }

    fn durations(&self) -> String {
        const NAME: &str = "coredns_dns_request_duration_seconds";
        const LABELS: &str = "server=\"dns://:53\",zone=\".\",view=\"\"";
        let mut text = format!("# TYPE {NAME} histogram\n");
        let (mut bound, mut below) = (0.00025, 0);
        for bucket in &self.buckets {
            below += bucket.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{NAME}_bucket{{{LABELS},le=\"{bound}\"}} {below}");
            bound *= 2.0;
        }
        let all = self.answered.load(Ordering::Relaxed);
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        let _ = writeln!(text, "{NAME}_bucket{{{LABELS},le=\"+Inf\"}} {all}");
        let _ = writeln!(text, "{NAME}_sum{{{LABELS}}} {seconds}");
        let _ = writeln!(text, "{NAME}_count{{{LABELS}}} {all}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Context;

    #[tokio::test]
    async fn what_was_asked_is_told_under_corednss_names() {
        let counts = Counts::default();
        let client = "10.0.0.1".parse().unwrap();
        counts.asked(Kind::A, Way::Udp, client);
        counts.asked(Kind::Other(99), Way::Tcp, "fd00::1".parse().unwrap());
        for micros in [1, 250, 251, 3_000_000, 60_000_000] {
            counts.answered(&[0, 0, 0, 3], Duration::from_micros(micros));
        }
        let text = counts.text(&Forward::new(&Context::new()));
        for line in [
            r#"coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="udp",family="1",type="A"} 1"#,
            r#"coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="tcp",family="2",type="other"} 1"#,
            r#"coredns_dns_responses_total{server="dns://:53",zone=".",view="",rcode="NXDOMAIN",plugin=""} 5"#,
            r#"coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone=".",view="",le="0.00025"} 2"#,
            r#"coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone=".",view="",le="0.0005"} 3"#,
            r#"coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone=".",view="",le="8.192"} 4"#,
            r#"coredns_dns_request_duration_seconds_count{server="dns://:53",zone=".",view=""} 5"#,
            r#"coredns_cache_entries{server="dns://:53",zones=".",view="",type="success"} 0"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
