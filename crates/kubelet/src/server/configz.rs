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
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": { "enabled": server.anonymous_auth },
            "webhook": { "enabled": true, "cacheTTL": "2m0s" },
            "x509": {},
        },
        "authorization": { "mode": mode, "webhook": { "cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s" } },
        "staticPodPath": config.manifests.as_ref().map(|path| path.display().to_string()),
        "podLogsDir": config.log_root.display().to_string(),
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns,
        "resolvConf": config.resolv_conf.display().to_string(),
        "maxPods": config.max_pods,
        "nodeStatusReportFrequency": seconds(config.status_period),
        "cgroupRoot": "/",
        "cgroupsPerQOS": true,
        "cgroupDriver": "cgroupfs",
        "enableServer": true,
        "enableSystemLogHandler": server.system_log_handler,
        "enableDebuggingHandlers": true,
        "failSwapOn": false,
    } }))
}
