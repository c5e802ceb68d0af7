//! What was done and what waits, under kube-proxy's names.
use crate::ServicePort;
use api::names::NamespacedName;
use client::{Metrics, Registry};
use jiff::Timestamp;
use netlink::nftables::AddressFamily;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How one address family's rules were changed the last time.
#[derive(Debug, Clone)]
pub struct Synced {
    pub family: AddressFamily,
    /// Everything was written, not only what had changed.
    pub is_full: bool,
    pub took: Duration,
    /// Connections that led to endpoints that are gone, and how long they were looked for.
    pub forgotten: usize,
    pub forgetting: Duration,
    pub is_done: bool,
}

fn name(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::Ipv4 => "IPv4",
        AddressFamily::Ipv6 => "IPv6",
    }
}

/// Whose word a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Services,
    Endpoints,
}

#[derive(Default)]
pub struct Counts {
    waiting: Mutex<Waiting>,
    /// Of which services this node has no endpoints although only its own count, by port: within the
    /// cluster, and from outside.
    without_local: Mutex<HashMap<NamespacedName, [[usize; 2]; 2]>>,
}

#[derive(Default)]
struct Waiting {
    services: BTreeSet<NamespacedName>,
    endpoints: BTreeSet<NamespacedName>,
    /// When what is waiting happened, as its slices say.
    since: Vec<(AddressFamily, Timestamp)>,
}

impl Counts {
    pub fn queued(&self, registry: &Registry, of: Of, key: &NamespacedName, now: Timestamp) {
        let mut waiting = self.waiting.lock();
        let (total, pending, count) = match of {
            Of::Services => {
                waiting.services.insert(key.clone());
                let count = waiting.services.len();
                (
                    "kubeproxy_sync_proxy_rules_service_changes_total",
                    "kubeproxy_sync_proxy_rules_service_changes_pending",
                    count,
                )
            }
            Of::Endpoints => {
                waiting.endpoints.insert(key.clone());
                let count = waiting.endpoints.len();
                (
                    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                    count,
                )
            }
        };
        registry.count(total, &[]);
        registry.set(pending, &[], count as f64);
        for family in AddressFamily::BOTH {
            let labels = [("ip_family", name(family))];
            let queued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
            registry.set(queued, &labels, now.as_second() as f64);
        }
    }

    /// What a slice says about is in the rules from the next change on.
    pub fn happened(&self, family: AddressFamily, then: Timestamp) {
        self.waiting.lock().since.push((family, then));
    }

    /// What waited is taken in hand.
    pub fn taken(&self, registry: &Registry) -> Vec<(AddressFamily, Timestamp)> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        registry.set("kubeproxy_sync_proxy_rules_service_changes_pending", &[], 0.0);
        registry.set("kubeproxy_sync_proxy_rules_endpoint_changes_pending", &[], 0.0);
        waiting.since
    }

    pub fn synced(
        &self,
        registry: &Registry,
        all: &[Synced],
        since: &[(AddressFamily, Timestamp)],
        now: Timestamp,
    ) {
        for one in all {
            let labels = [("ip_family", name(one.family))];
            let took = one.took.as_secs_f64();
            registry.observe("kubeproxy_sync_proxy_rules_duration_seconds", &labels, took);
            let kind = match one.is_full {
                true => "kubeproxy_sync_full_proxy_rules_duration_seconds",
                false => "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            };
            registry.observe(kind, &labels, took);
            registry.add(
                "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
                &labels,
                0.0,
            );
            let failures = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
            registry.add(failures, &labels, if one.is_done { 0.0 } else { 1.0 });
            if !one.is_done {
                continue;
            }
            let last = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
            registry.set(last, &labels, now.as_second() as f64);
            let forgetting = "kubeproxy_conntrack_reconciler_sync_duration_seconds";
            registry.observe(forgetting, &labels, one.forgetting.as_secs_f64());
            let forgotten = "kubeproxy_conntrack_reconciler_deleted_entries_total";
            registry.add(forgotten, &labels, one.forgotten as f64);
            for (_, then) in since.iter().filter(|(family, _)| *family == one.family) {
                let took = now.duration_since(*then).as_secs_f64().max(0.0);
                registry.observe("kubeproxy_network_programming_duration_seconds", &labels, took);
            }
        }
    }

    /// These services have these ports now.
    pub fn changed<'a>(
        &self,
        registry: &Registry,
        services: impl Iterator<Item = (&'a NamespacedName, &'a [ServicePort])>,
    ) {
        let mut all = self.without_local.lock();
        for (key, ports) in services {
            let counts = without_local(ports);
            match counts == [[0; 2]; 2] {
                true => drop(all.remove(key)),
                false => drop(all.insert(key.clone(), counts)),
            }
        }
        for (policy, policy_name) in ["internal", "external"].into_iter().enumerate() {
            for (family, of) in AddressFamily::BOTH.into_iter().enumerate() {
                let count: usize = all.values().map(|one| one[policy][family]).sum();
                let labels = [("traffic_policy", policy_name), ("ip_family", name(of))];
                let metric = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
                registry.set(metric, &labels, count as f64);
            }
        }
    }
}

/// How many ports are Local and have endpoints, none of them here: by policy and family.
fn without_local(ports: &[ServicePort]) -> [[usize; 2]; 2] {
    let mut counts = [[0; 2]; 2];
    for port in ports {
        for (family, is_ipv4) in [true, false].into_iter().enumerate() {
            let of = || port.endpoints.iter().filter(|one| one.address.is_ipv4() == is_ipv4);
            let usable = of().any(|one| one.ready || (one.serving && one.terminating));
            let here = of().any(|one| one.local && (one.ready || one.serving));
            if usable && !here {
                counts[0][family] += usize::from(port.internal_local);
                counts[1][family] += usize::from(port.external_local);
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    #[test]
    fn everything_is_told_under_kube_proxys_names() {
        let (registry, counts) = (Registry::default(), Counts::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        let key = NamespacedName::new("x", "web");
        counts.queued(&registry, Of::Services, &key, at(100));
        counts.queued(&registry, Of::Endpoints, &key, at(101));
        counts.happened(AddressFamily::Ipv4, at(100));
        assert!(registry.text().contains("endpoint_changes_pending 1"));
        let since = counts.taken(&registry);
        let synced = |family, is_full, is_done| Synced {
            family,
            is_full,
            took: Duration::from_millis(3),
            forgotten: 2,
            forgetting: Duration::ZERO,
            is_done,
        };
        let all =
            [synced(AddressFamily::Ipv4, true, true), synced(AddressFamily::Ipv6, false, false)];
        counts.synced(&registry, &all, &since, at(102));
        let far = Endpoint {
            address: "10.1.0.1".parse().unwrap(),
            port: 80,
            ready: true,
            serving: true,
            terminating: false,
            local: false,
            for_node: None,
            for_zone: None,
        };
        let port = ServicePort {
            endpoints: vec![far.clone()],
            external_local: true,
            ..ServicePort::default()
        };
        counts.changed(&registry, [(&key, &[port.clone()][..])].into_iter());
        let text = registry.text();
        for line in [
            "kubeproxy_sync_proxy_rules_service_changes_total 1",
            "kubeproxy_sync_proxy_rules_service_changes_pending 0",
            "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
            r#"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 101"#,
            r#"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 102"#,
            r#"kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1"#,
            r#"kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1"#,
            r#"kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 1"#,
            r#"kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 2"#,
            r#"kubeproxy_network_programming_duration_seconds_sum{ip_family="IPv4"} 2"#,
            r#"kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external",ip_family="IPv4"} 1"#,
            r#"kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="internal",ip_family="IPv4"} 0"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let here = ServicePort { endpoints: vec![Endpoint { local: true, ..far }], ..port };
        counts.changed(&registry, [(&key, &[here][..])].into_iter());
        assert!(registry.text().contains(r#"policy="external",ip_family="IPv4"} 0"#));
    }
}
