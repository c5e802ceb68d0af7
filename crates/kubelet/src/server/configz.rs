//! `/configz`: how this kubelet is set up, in the words of upstream's `KubeletConfiguration`.
use super::answer::{self, Reply};
use super::{Authorization, ServerConfig};
use crate::config::Config;
use serde_json::json;

pub fn page(config: &Config, server: &ServerConfig) -> Reply {
    let seconds = |duration: std::time::Duration| format!("{}s", duration.as_secs());
    let mode = match server.authorization {
        Authorization::Webhook => "Webhook",
        Authorization::AlwaysAllow => "AlwaysAllow",
    };
    answer::json(&json!({ "kubeletconfig": {
        "address": server.address.to_string(),
        "port": server.port,
        "readOnlyPort": server.read_only_port.unwrap_or(0),
        "healthzPort": server.healthz_port.unwrap_or(0),
        "healthzBindAddress": server.healthz_address.to_string(),
        "authentication": {
            "anonymous": { "enabled": server.anonymous_auth },
            "webhook": { "enabled": server.token_webhook, "cacheTTL": "2m0s" },
            "x509": {},
        },
        "authorization": { "mode": mode, "webhook": { "cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s" } },
        "staticPodPath": config.manifests.as_ref().map(|path| path.display().to_string()),
        "podLogsDir": config.log_root.display().to_string(),
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns,
        "resolvConf": config.resolv_conf.display().to_string(),
        "maxPods": config.max_pods,
        "nodeStatusUpdateFrequency": seconds(config.look_period),
        "nodeStatusReportFrequency": seconds(config.status_period),
        "nodeLeaseDurationSeconds": config.lease_duration.as_secs(),
        "registerNode": config.registers,
        "cgroupRoot": above_pods(&config.cgroup_root),
        "cgroupsPerQOS": true,
        "cgroupDriver": if config.by_systemd { "systemd" } else { "cgroupfs" },
        "enableServer": true,
        "enableSystemLogHandler": server.system_log_handler,
        "enableDebuggingHandlers": server.debugging_handlers,
        "failSwapOn": false,
    } }))
}

/// The group in which that of all pods is.
fn above_pods(root: &str) -> String {
    let names = crate::cgroups::names(root);
    let above = names.split_last().map_or(&[][..], |(_, above)| above);
    format!("/{}", above.join("/"))
}
