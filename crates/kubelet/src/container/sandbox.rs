//! A pod's sandbox, in CRI's words: name, host name, DNS, ports, control group.
use super::{resources, security};
use crate::config::Config;
use crate::found::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::pod;
use crate::runtime::cri;
use crate::users;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::path::PathBuf;

pub fn config(
    config: &Config,
    pod: &Pod,
    attempt: u32,
    users: Option<users::Map>,
) -> cri::PodSandboxConfig {
    let spec = pod::spec(pod);
    let mut labels: HashMap<String, String> =
        pod.metadata.labels.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    labels.insert(POD_NAME.to_owned(), pod::name(pod).to_owned());
    labels.insert(POD_NAMESPACE.to_owned(), pod::namespace(pod).to_owned());
    labels.insert(POD_UID.to_owned(), pod::uid(pod).to_owned());
    let annotations = pod.metadata.annotations.iter().flatten();
    let whole = security::pod_context(pod);
    let id = |value| cri::Int64Value { value };
    let sysctls = whole.sysctls.iter().flatten();
    let privileged = pod::containers(pod).any(|(_, one)| {
        one.security_context.as_ref().is_some_and(|own| own.privileged == Some(true))
    });
    cri::PodSandboxConfig {
        metadata: Some(pod::sandbox_metadata(pod, attempt)),
        // A pod on the host's network has the host's name.
        hostname: if pod::uses_host_network(pod) { String::new() } else { host_names(pod, "").0 },
        log_directory: log_folder(config, pod).display().to_string(),
        dns_config: Some(dns(config, pod, &host_resolver(config))),
        port_mappings: ports(pod),
        labels,
        annotations: annotations.map(|(k, v)| (k.clone(), v.clone())).collect(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: resources::cgroup_parent(&config.cgroup_root, pod),
            sysctls: sysctls.map(|one| (one.name.clone(), one.value.clone())).collect(),
            security_context: Some(cri::LinuxSandboxSecurityContext {
                namespace_options: Some(security::namespaces(pod, users)),
                run_as_user: whole.run_as_user.map(id),
                run_as_group: whole.run_as_group.map(id),
                supplemental_groups: security::groups(&whole),
                supplemental_groups_policy: security::policy(&whole),
                privileged,
                seccomp: Some(security::seccomp(
                    Some(&security::runtime_default()),
                    privileged,
                    &config.root,
                )),
                ..cri::LinuxSandboxSecurityContext::default()
            }),
            ..cri::LinuxPodSandboxConfig::default()
        }),
        windows: None,
    }
    .with_hostname(spec.set_hostname_as_fqdn == Some(true), &config.cluster_domain, pod)
}

trait WithHostname {
    fn with_hostname(self, full: bool, domain: &str, pod: &Pod) -> Self;
}

impl WithHostname for cri::PodSandboxConfig {
    fn with_hostname(mut self, full: bool, domain: &str, pod: &Pod) -> Self {
        let (name, tail) = host_names(pod, domain);
        if full && !tail.is_empty() && !self.hostname.is_empty() {
            self.hostname = format!("{name}.{tail}");
        }
        self
    }
}

/// `/var/log/pods/NAMESPACE_NAME_UID`
pub fn log_folder(config: &Config, pod: &Pod) -> PathBuf {
    let folder = format!("{}_{}_{}", pod::namespace(pod), pod::name(pod), pod::uid(pod));
    config.log_root.join(folder)
}

/// The host name and, for a pod with a subdomain, the rest of its full name.
pub fn host_names(pod: &Pod, domain: &str) -> (String, String) {
    let spec = pod::spec(pod);
    // A name longer than the kernel takes is cut, and must not end in what separates labels.
    let cut = |name: &str| {
        let mut name = name.to_owned();
        name.truncate(63);
        name.truncate(name.trim_end_matches(['-', '.']).len());
        name
    };
    if let Some(name) = spec.hostname_override.as_deref().filter(|name| !name.is_empty()) {
        return (cut(name), String::new());
    }
    let own = spec.hostname.as_deref().filter(|name| !name.is_empty());
    let name = cut(own.unwrap_or(pod::name(pod)));
    match spec.subdomain.as_deref().filter(|name| !name.is_empty()) {
        Some(sub) => (name, format!("{sub}.{}.svc.{domain}", pod::namespace(pod))),
        None => (name, String::new()),
    }
}

fn host_resolver(config: &Config) -> cri::DnsConfig {
    parse_resolver(&std::fs::read_to_string(&config.resolv_conf).unwrap_or_default())
}

fn parse_resolver(text: &str) -> cri::DnsConfig {
    let mut dns = cri::DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            Some("search" | "domain") => dns.searches = words.map(str::to_owned).collect(),
            Some("options") => dns.options = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    dns
}

/// `pkg/kubelet/network/dns`.
fn dns(config: &Config, pod: &Pod, host: &cri::DnsConfig) -> cri::DnsConfig {
    let spec = pod::spec(pod);
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let cluster = match policy {
        "ClusterFirst" => !pod::uses_host_network(pod),
        "ClusterFirstWithHostNet" => true,
        _ => false,
    };
    let mut dns = match policy {
        "None" => cri::DnsConfig::default(),
        _ if cluster && !config.cluster_dns.is_empty() => {
            let domain = &config.cluster_domain;
            let namespace = pod::namespace(pod);
            let own =
                [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            cri::DnsConfig {
                servers: config.cluster_dns.iter().map(ToString::to_string).collect(),
                searches: own.into_iter().chain(host.searches.iter().cloned()).collect(),
                options: vec!["ndots:5".to_owned()],
            }
        }
        _ => host.clone(),
    };
    if let Some(own) = &spec.dns_config {
        let add = |list: &mut Vec<String>, more: Vec<String>| {
            more.into_iter().for_each(|one| {
                if !list.contains(&one) {
                    list.push(one)
                }
            });
        };
        add(&mut dns.servers, own.nameservers.clone().unwrap_or_default());
        add(&mut dns.searches, own.searches.clone().unwrap_or_default());
        for option in own.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            let text =
                option.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}"));
            dns.options.retain(|one| one.split(':').next() != Some(name));
            dns.options.push(text);
        }
    }
    dns
}

fn ports(pod: &Pod) -> Vec<cri::PortMapping> {
    if pod::uses_host_network(pod) {
        return Vec::new();
    }
    let all = pod::containers(pod).flat_map(|(_, one)| one.ports.iter().flatten());
    all.filter(|port| port.host_port.is_some_and(|port| port > 0))
        .map(|port| cri::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => cri::Protocol::Udp,
                Some("SCTP") => cri::Protocol::Sctp,
                _ => cri::Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// `/etc/hosts` of a pod with a network of its own.
pub fn hosts(pod: &Pod, ips: &[String], domain: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let (name, tail) = host_names(pod, domain);
    for ip in ips {
        text += &match tail.is_empty() {
            true => format!("{ip}\t{name}\n"),
            false => format!("{ip}\t{name}.{tail}\t{name}\n"),
        };
    }
    aliases(pod, text)
}

/// `/etc/hosts` of a pod on the host's network: the host's own.
pub fn host_hosts(pod: &Pod, host: &str) -> String {
    aliases(pod, format!("# Kubernetes-managed hosts file (host network).\n{host}"))
}

fn aliases(pod: &Pod, mut text: String) -> String {
    let aliases = pod::spec(pod).host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
        for alias in aliases {
            text += &format!(
                "{}\t{}\n",
                alias.ip,
                alias.hostnames.clone().unwrap_or_default().join("\t")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let metadata = json!({ "name": "web", "namespace": "ns", "uid": "u" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn check_dns(spec: Value, expected: &str) {
        let mut config = Config::new("n", std::net::Ipv4Addr::LOCALHOST.into());
        config.cluster_dns = vec!["10.96.0.10".parse().unwrap()];
        let host =
            parse_resolver("# mine\nnameserver 1.1.1.1\nsearch example.com\noptions edns0\n");
        let dns = dns(&config, &pod(spec), &host);
        let text = format!(
            "{} | {} | {}",
            dns.servers.join(" "),
            dns.searches.join(" "),
            dns.options.join(" ")
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn dns_follows_the_policy() {
        let cluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5";
        let host = "1.1.1.1 | example.com | edns0";
        check_dns(json!({}), cluster);
        check_dns(json!({ "dnsPolicy": "Default" }), host);
        check_dns(json!({ "hostNetwork": true }), host);
        check_dns(json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" }), cluster);
        check_dns(
            json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["9.9.9.9"], "options": [{ "name": "ndots", "value": "2" }] } }),
            "9.9.9.9 |  | ndots:2",
        );
    }

    #[test]
    fn a_subdomain_makes_a_full_name() {
        let pod = pod(
            json!({ "hostname": "a", "subdomain": "b", "hostAliases": [{ "ip": "1.2.3.4", "hostnames": ["x", "y"] }] }),
        );
        let text = hosts(&pod, &["10.0.0.5".to_owned()], "cluster.local");
        assert!(text.contains("10.0.0.5\ta.b.ns.svc.cluster.local\ta\n"), "{text}");
        assert!(text.ends_with("# Entries added by HostAliases.\n1.2.3.4\tx\ty\n"), "{text}");
    }
}
