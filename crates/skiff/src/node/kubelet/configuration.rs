//! `--config` and `--config-dir`: a KubeletConfiguration `v1beta1`, and files that change parts of it.
//!
//! A field is a flag said in a file: each row below tells which, so that both have one meaning. What
//! is said on the command line goes first, then the files of the folder, the last one first, then
//! the file. What a user asks for and this kubelet does not have is an error.
use anyhow::{Context, bail};
use serde_json::{Map, Value};
use std::path::Path;

/// What a field of the configuration means.
enum Means {
    /// A flag with one value.
    Flag(&'static str),
    /// A flag with a list of values.
    List(&'static str),
    /// A flag with a list of `NAME=VALUE`, or `NAME<VALUE`.
    Pairs(&'static str, char),
    /// A flag that counts seconds.
    Seconds(&'static str),
    /// A taint for each item.
    Taints(&'static str),
    /// `NODE:RESOURCE=AMOUNT,…` for each item.
    Memory(&'static str),
    /// `NAME:VALUE` for each value of each name.
    Headers(&'static str),
    /// `PRIORITY=SECONDS` for each item.
    Priorities(&'static str),
    /// It is about how upstream's kubelet works inside, and nothing here depends on it.
    Nothing,
    /// Only this works here; nothing else may be asked for.
    Only(&'static str),
}

use Means::{Flag, Headers, List, Memory, Nothing, Only, Pairs, Priorities, Seconds, Taints};

/// Every field, in the order of upstream's `config/v1beta1/types.go`.
static FIELDS: &[(&str, Means)] = &[
    ("enableServer", Flag("enable-server")),
    ("staticPodPath", Flag("pod-manifest-path")),
    ("podLogsDir", Flag("pod-logs-dir")),
    ("syncFrequency", Nothing),
    ("fileCheckFrequency", Nothing),
    ("httpCheckFrequency", Nothing),
    ("staticPodURL", Flag("manifest-url")),
    ("staticPodURLHeader", Headers("manifest-url-header")),
    ("address", Flag("address")),
    ("port", Flag("port")),
    ("readOnlyPort", Flag("read-only-port")),
    ("tlsCertFile", Flag("tls-cert-file")),
    ("tlsPrivateKeyFile", Flag("tls-private-key-file")),
    ("tlsCipherSuites", List("tls-cipher-suites")),
    ("tlsCurvePreferences", Only("")),
    ("tlsMinVersion", Flag("tls-min-version")),
    ("rotateCertificates", Flag("rotate-certificates")),
    ("serverTLSBootstrap", Flag("rotate-server-certificates")),
    ("authentication.x509.clientCAFile", Flag("client-ca-file")),
    ("authentication.webhook.enabled", Flag("authentication-token-webhook")),
    ("authentication.webhook.cacheTTL", Nothing),
    ("authentication.anonymous.enabled", Flag("anonymous-auth")),
    ("authorization.mode", Flag("authorization-mode")),
    ("authorization.webhook.cacheAuthorizedTTL", Nothing),
    ("authorization.webhook.cacheUnauthorizedTTL", Nothing),
    ("registryPullQPS", Nothing),
    ("registryBurst", Nothing),
    ("imagePullCredentialsVerificationPolicy", Flag("image-pull-credentials-verification-policy")),
    ("preloadedImagesVerificationAllowlist", List("preloaded-images-verification-allowlist")),
    ("eventRecordQPS", Nothing),
    ("eventBurst", Nothing),
    ("enableDebuggingHandlers", Flag("enable-debugging-handlers")),
    ("enableContentionProfiling", Nothing),
    ("healthzPort", Flag("healthz-port")),
    ("healthzBindAddress", Flag("healthz-bind-address")),
    ("oomScoreAdj", Nothing),
    ("clusterDomain", Flag("cluster-domain")),
    ("clusterDNS", List("cluster-dns")),
    ("streamingConnectionIdleTimeout", Nothing),
    ("nodeStatusUpdateFrequency", Flag("node-status-update-frequency")),
    ("nodeStatusReportFrequency", Flag("node-status-report-frequency")),
    ("nodeLeaseDurationSeconds", Flag("node-lease-duration-seconds")),
    ("imageMinimumGCAge", Flag("minimum-image-ttl-duration")),
    ("imageMaximumGCAge", Flag("maximum-image-age")),
    ("imageGCHighThresholdPercent", Flag("image-gc-high-threshold")),
    ("imageGCLowThresholdPercent", Flag("image-gc-low-threshold")),
    ("volumeStatsAggPeriod", Flag("volume-stats-agg-period")),
    ("kubeletCgroups", Only("")),
    ("systemCgroups", Only("")),
    ("cgroupRoot", Flag("pod-cgroup-root")),
    ("cgroupsPerQOS", Flag("cgroups-per-qos")),
    ("cgroupDriver", Flag("cgroup-driver")),
    ("cpuManagerPolicy", Flag("cpu-manager-policy")),
    ("singleProcessOOMKill", Flag("single-process-oom-kill")),
    ("cpuManagerPolicyOptions", Pairs("cpu-manager-policy-options", '=')),
    ("cpuManagerReconcilePeriod", Nothing),
    ("memoryManagerPolicy", Flag("memory-manager-policy")),
    ("topologyManagerPolicy", Flag("topology-manager-policy")),
    ("topologyManagerScope", Flag("topology-manager-scope")),
    ("topologyManagerPolicyOptions", Pairs("topology-manager-policy-options", '=')),
    ("qosReserved", Only("")),
    ("runtimeRequestTimeout", Flag("runtime-request-timeout")),
    ("hairpinMode", Nothing),
    ("maxPods", Flag("max-pods")),
    ("podCIDR", Only("")),
    ("podPidsLimit", Flag("pod-max-pids")),
    ("resolvConf", Flag("resolv-conf")),
    ("runOnce", Only("false")),
    ("cpuCFSQuota", Flag("cpu-cfs-quota")),
    ("cpuCFSQuotaPeriod", Flag("cpu-cfs-quota-period")),
    ("nodeStatusMaxImages", Flag("node-status-max-images")),
    ("maxOpenFiles", Nothing),
    ("contentType", Nothing),
    ("kubeAPIQPS", Nothing),
    ("kubeAPIBurst", Nothing),
    ("serializeImagePulls", Nothing),
    ("maxParallelImagePulls", Flag("max-parallel-image-pulls")),
    ("evictionHard", Pairs("eviction-hard", '<')),
    ("evictionSoft", Pairs("eviction-soft", '<')),
    ("evictionSoftGracePeriod", Pairs("eviction-soft-grace-period", '=')),
    ("evictionPressureTransitionPeriod", Flag("eviction-pressure-transition-period")),
    ("evictionMaxPodGracePeriod", Flag("eviction-max-pod-grace-period")),
    ("evictionMinimumReclaim", Pairs("eviction-minimum-reclaim", '=')),
    ("mergeDefaultEvictionSettings", Flag("merge-default-eviction-settings")),
    ("podsPerCore", Flag("pods-per-core")),
    ("enableControllerAttachDetach", Only("true")),
    ("protectKernelDefaults", Flag("protect-kernel-defaults")),
    ("makeIPTablesUtilChains", Nothing),
    ("iptablesMasqueradeBit", Nothing),
    ("iptablesDropBit", Nothing),
    ("featureGates", Pairs("feature-gates", '=')),
    ("failSwapOn", Nothing),
    ("memorySwap.swapBehavior", Flag("memory-swap-behavior")),
    ("containerLogMaxSize", Flag("container-log-max-size")),
    ("containerLogMaxFiles", Flag("container-log-max-files")),
    ("containerLogMaxWorkers", Nothing),
    ("containerLogMonitorInterval", Seconds("container-log-monitor-interval")),
    ("configMapAndSecretChangeDetectionStrategy", Nothing),
    ("systemReserved", Pairs("system-reserved", '=')),
    ("kubeReserved", Pairs("kube-reserved", '=')),
    ("reservedSystemCPUs", Flag("reserved-cpus")),
    ("showHiddenMetricsForVersion", Nothing),
    ("systemReservedCgroup", Only("")),
    ("kubeReservedCgroup", Only("")),
    ("enforceNodeAllocatable", Nothing),
    ("allowedUnsafeSysctls", List("allowed-unsafe-sysctls")),
    ("defaultPodSysctls", Only("")),
    ("volumePluginDir", Nothing),
    ("providerID", Flag("provider-id")),
    ("kernelMemcgNotification", Nothing),
    ("logging", Nothing),
    ("enableSystemLogHandler", Flag("enable-system-log-handler")),
    ("enableSystemLogQuery", Flag("enable-system-log-query")),
    ("shutdownGracePeriod", Flag("shutdown-grace-period")),
    ("shutdownGracePeriodCriticalPods", Flag("shutdown-grace-period-critical-pods")),
    ("shutdownGracePeriodByPodPriority", Priorities("shutdown-grace-period-by-pod-priority")),
    ("crashLoopBackOff.maxContainerRestartPeriod", Flag("crash-loop-back-off-max")),
    ("reservedMemory", Memory("reserved-memory")),
    ("enableProfilingHandler", Nothing),
    ("enableDebugFlagsHandler", Nothing),
    ("seccompDefault", Flag("seccomp-default")),
    ("memoryThrottlingFactor", Flag("memory-throttling-factor")),
    ("memoryReservationPolicy", Flag("memory-reservation-policy")),
    ("registerWithTaints", Taints("register-with-taints")),
    ("registerNode", Flag("register-node")),
    ("tracing", Only("")),
    ("localStorageCapacityIsolation", Only("true")),
    ("containerRuntimeEndpoint", Flag("container-runtime-endpoint")),
    ("imageServiceEndpoint", Only("")),
    ("failCgroupV1", Nothing),
    ("userNamespaces.idsPerPod", Flag("user-namespaces-ids-per-pod")),
];

/// The arguments with those that the configuration says and they do not.
pub fn extend(
    arguments: &[String],
    file: Option<&Path>,
    folder: Option<&Path>,
) -> anyhow::Result<Vec<String>> {
    let mut tree = Value::Object(Map::new());
    for path in file.map(Path::to_owned).into_iter().chain(drop_ins(folder)?) {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let part = read(&text).with_context(|| format!("{} is not right", path.display()))?;
        merge(&mut tree, part);
    }
    let said = |flag: &str| {
        let (plain, with_value) = (format!("--{flag}"), format!("--{flag}="));
        arguments.iter().any(|argument| *argument == plain || argument.starts_with(&with_value))
    };
    let derived = flags(&tree)?.into_iter().filter(|(flag, _)| !said(flag));
    let derived = derived.map(|(flag, value)| format!("--{flag}={value}"));
    Ok(derived.chain(arguments.iter().cloned()).collect())
}

/// Files that end in `.conf`, by name: upstream's rule.
fn drop_ins(folder: Option<&Path>) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("failed to read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "conf") && path.is_file());
    paths.sort();
    Ok(paths)
}

fn read(text: &str) -> anyhow::Result<Value> {
    let mut tree: Value = serde_saphyr::from_str(text)?;
    let fields = tree.as_object_mut().context("it is no object")?;
    let kind = (fields.remove("apiVersion"), fields.remove("kind"));
    let text = |value: &Option<Value>| {
        value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (version, kind) = (text(&kind.0), text(&kind.1));
    if version != "kubelet.config.k8s.io/v1beta1" || kind != "KubeletConfiguration" {
        bail!("no kind {kind:?} is registered for version {version:?}");
    }
    Ok(tree)
}

/// Objects are merged, everything else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// What a configuration says as flags.
fn flags(tree: &Value) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut fields = Vec::new();
    walk(tree, String::new(), &mut fields);
    let mut flags = Vec::new();
    for (name, value) in fields {
        let row = FIELDS.iter().find(|(known, _)| *known == name);
        let (_, means) = row.with_context(|| format!("unknown field {name:?}"))?;
        let plain = plain(value);
        // What is empty is not said; upstream's tools write durations of nothing.
        if value.is_null() || matches!(plain.as_str(), "" | "0s" | "{}" | "[]") {
            continue;
        }
        match means {
            Flag(flag) => flags.push((*flag, plain)),
            Nothing => {}
            Only(wanted) if plain == *wanted => {}
            Only(wanted) => bail!(
                "{name} is {plain}, which this kubelet does not support{}",
                if wanted.is_empty() { String::new() } else { format!(": it is {wanted} here") }
            ),
            List(flag) => {
                let items = value.as_array().with_context(|| format!("{name} is no list"))?;
                let items: Vec<String> = items.iter().map(self::plain).collect();
                flags.push((*flag, items.join(",")));
            }
            Pairs(flag, sign) => {
                let items = value.as_object().with_context(|| format!("{name} is no object"))?;
                let pair = |(name, value): (&String, &Value)| {
                    format!("{name}{sign}{}", self::plain(value))
                };
                flags.push((*flag, items.iter().map(pair).collect::<Vec<_>>().join(",")));
            }
            Seconds(flag) => {
                let duration = api::duration::Duration::parse(&plain)?;
                flags.push((*flag, duration.as_secs().to_string()));
            }
            Memory(flag) => {
                let items = value.as_array().with_context(|| format!("{name} is no list"))?;
                let node = |one: &Value| {
                    let limits = one["limits"].as_object().into_iter().flatten();
                    let limits: Vec<String> = limits
                        .map(|(name, value)| format!("{name}={}", self::plain(value)))
                        .collect();
                    format!("{}:{}", self::plain(&one["numaNode"]), limits.join(","))
                };
                flags.push((*flag, items.iter().map(node).collect::<Vec<_>>().join(";")));
            }
            Priorities(flag) => {
                let items = value.as_array().with_context(|| format!("{name} is no list"))?;
                let group = |one: &Value| {
                    let part = |field: &str| self::plain(&one[field]);
                    format!("{}={}", part("priority"), part("shutdownGracePeriodSeconds"))
                };
                flags.push((*flag, items.iter().map(group).collect::<Vec<_>>().join(",")));
            }
            Headers(flag) => {
                let names = value.as_object().with_context(|| format!("{name} is no object"))?;
                let one = |(name, values): (&String, &Value)| {
                    let values = values.as_array().cloned().unwrap_or_default();
                    let name = name.clone();
                    values.into_iter().map(move |value| format!("{name}:{}", self::plain(&value)))
                };
                flags.push((*flag, names.iter().flat_map(one).collect::<Vec<_>>().join(",")));
            }
            Taints(flag) => {
                let items = value.as_array().with_context(|| format!("{name} is no list"))?;
                let taint = |one: &Value| {
                    let part = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                    format!("{}={}:{}", part("key"), part("value"), part("effect"))
                };
                flags.push((*flag, items.iter().map(taint).collect::<Vec<_>>().join(",")));
            }
        }
    }
    Ok(flags)
}

/// Fields by their paths, down to those that have a row.
fn walk<'v>(tree: &'v Value, path: String, fields: &mut Vec<(String, &'v Value)>) {
    for (field, value) in tree.as_object().into_iter().flatten() {
        let name = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        let inner = format!("{name}.");
        let has_inner = FIELDS.iter().any(|(known, _)| known.starts_with(&inner));
        match value.is_object() && has_inner {
            true => walk(value, name, fields),
            false => fields.push((name, value)),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(tree: Value) -> String {
        match flags(&tree) {
            Ok(flags) => flags
                .iter()
                .map(|(flag, value)| format!("{flag}={value}"))
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn fields_are_flags() {
        assert_eq!(
            check(json!({
                "authentication": { "anonymous": { "enabled": false }, "x509": { "clientCAFile": "/ca" } },
                "clusterDNS": ["10.0.0.10", "10.0.0.11"], "maxPods": 50, "syncFrequency": "0s",
                "evictionHard": { "memory.available": "1Gi" },
                "kubeReserved": { "cpu": "100m" }, "containerLogMonitorInterval": "1m",
                "registerWithTaints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }],
                "shutdownGracePeriodByPodPriority": [
                    { "priority": -1, "shutdownGracePeriodSeconds": 10 }, { "priority": 5, "shutdownGracePeriodSeconds": 3 }],
                "memorySwap": { "swapBehavior": "LimitedSwap" }, "cgroupDriver": "systemd",
                "staticPodURLHeader": { "X-A": ["1", "2"] }, "featureGates": { "A": true, "B": false },
                "registerNode": false,
            })),
            "anonymous-auth=false client-ca-file=/ca cgroup-driver=systemd clusterDNS"
                .replace("clusterDNS", "cluster-dns=10.0.0.10,10.0.0.11")
                + " container-log-monitor-interval=60 eviction-hard=memory.available<1Gi feature-gates=A=true,B=false kube-reserved=cpu=100m max-pods=50 memory-swap-behavior=LimitedSwap register-node=false register-with-taints=k=v:NoSchedule shutdown-grace-period-by-pod-priority=-1=10,5=3 manifest-url-header=X-A:1,X-A:2"
        );
    }

    #[test]
    fn memory_is_reserved_by_node() {
        assert_eq!(
            check(json!({ "memoryManagerPolicy": "Static", "reservedMemory": [
                { "numaNode": 0, "limits": { "memory": "1Gi", "hugepages-2Mi": "4Mi" } },
                { "numaNode": 1, "limits": { "memory": "2Gi" } }] })),
            "memory-manager-policy=Static reserved-memory=0:hugepages-2Mi=4Mi,memory=1Gi;1:memory=2Gi"
        );
    }

    #[test]
    fn what_is_not_there_is_told() {
        assert_eq!(check(json!({ "maxpods": 1 })), "unknown field \"maxpods\"");
        assert_eq!(
            check(json!({ "runOnce": true })),
            "runOnce is true, which this kubelet does not support: it is false here"
        );
        assert!(read("kind: KubeletConfiguration\napiVersion: v1\n").is_err());
    }

    #[test]
    fn the_command_line_goes_first_and_then_the_last_file() {
        let folder = tempfile::tempdir().unwrap();
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), format!("{head}{text}")).unwrap();
        };
        write("main", "maxPods: 1\nport: 1\nclusterDomain: a\n");
        write("10-a.conf", "maxPods: 2\nclusterDomain: b\n");
        write("20-b.conf", "clusterDomain: c\n");
        write("ignored", "maxPods: 9\n");
        let arguments = ["--port".to_owned(), "7".to_owned()];
        let main = folder.path().join("main");
        let all = extend(&arguments, Some(&main), Some(folder.path())).unwrap();
        assert_eq!(all, ["--cluster-domain=c", "--max-pods=2", "--port", "7"]);
    }
}
