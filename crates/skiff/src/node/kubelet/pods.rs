//! What pods may do and use here: limits, users, images, and the machine's last seconds.
use anyhow::{Context as _, bail};
use api::duration::Duration as Span;
use kubelet::Enforcement;
use kubelet::numa;
use kubelet::pulls::providers::Providers;
use kubelet::pulls::records::Policy;
use kubelet::shutdown::{Group, Settings};
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Pods {
    /// Processes that a pod may have; -1 for as many as it likes.
    #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
    pod_max_pids: i64,
    /// Whether limits of processors are enforced.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    cpu_cfs_quota: bool,
    /// The time in which a limit of processors is counted.
    #[arg(long, default_value = "100ms", value_parser = span)]
    cpu_cfs_quota_period: Duration,
    /// Whether burstable pods may swap: `NoSwap` or `LimitedSwap`.
    #[arg(long, default_value = "NoSwap", value_parser = ["NoSwap", "LimitedSwap"])]
    memory_swap_behavior: String,
    /// Where between a container's request and its limit memory is throttled, from 0 to 1.
    #[arg(long)]
    memory_throttling_factor: Option<f64>,
    /// Whether memory that pods ask for is protected: `None` or `TieredReservation`.
    #[arg(long, default_value = "None", value_parser = ["None", "TieredReservation"])]
    memory_reservation_policy: String,
    /// Whether running out of memory ends one process of a container, or all.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    single_process_oom_kill: bool,
    /// Whether guaranteed pods have memory for themselves: `None` or `Static`.
    #[arg(long, default_value = "None", value_parser = ["None", "Static"])]
    memory_manager_policy: String,
    /// Memory of each NUMA node that no pod has for itself: `0:memory=1Gi;1:memory=1Gi`.
    #[arg(long)]
    reserved_memory: Vec<String>,
    /// Whether what containers have for themselves is near each other.
    #[arg(long, default_value = "none", value_parser = ["none", "best-effort", "restricted", "single-numa-node"])]
    topology_manager_policy: String,
    /// Whether that is so of each container, or of whole pods.
    #[arg(long, default_value = "container", value_parser = ["container", "pod"])]
    topology_manager_scope: String,
    /// `max-allowable-numa-nodes=NUMBER`.
    #[arg(long, value_delimiter = ',')]
    topology_manager_policy_options: Vec<String>,
    /// Settings of the kernel that pods may have besides the safe ones: `net.core.*`.
    #[arg(long, value_delimiter = ',', value_parser = kubelet::sysctl)]
    allowed_unsafe_sysctls: Vec<String>,
    /// Users that a pod with users of its own has, in units of 65536.
    #[arg(long, default_value_t = 65_536)]
    user_namespaces_ids_per_pod: u32,
    /// Whether containers that ask for no filter of system calls get the runtime's.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    seccomp_default: bool,
    /// How long the container runtime has for an answer; pulls have all the time they need.
    #[arg(long, default_value = "2m", value_parser = span)]
    pub(super) runtime_request_timeout: Duration,
    /// The longest pause before a container is started again, 1s to 300s.
    #[arg(long, default_value = "5m", value_parser = span)]
    crash_loop_back_off_max: Duration,
    /// What pods have together when the machine goes down.
    #[arg(long, default_value = "0s", value_parser = span)]
    shutdown_grace_period: Duration,
    /// What of it critical pods have, after all others.
    #[arg(long, default_value = "0s", value_parser = span)]
    shutdown_grace_period_critical_pods: Duration,
    /// The same by priority: `PRIORITY=SECONDS`.
    #[arg(long, value_delimiter = ',', value_parser = group, allow_hyphen_values = true)]
    shutdown_grace_period_by_pod_priority: Vec<Group>,
    /// Which images a pod must be able to pull itself: `NeverVerify`, `NeverVerifyPreloadedImages`,
    /// `NeverVerifyAllowlistedImages` or `AlwaysVerify`.
    #[arg(long, default_value = "NeverVerifyPreloadedImages")]
    image_pull_credentials_verification_policy: String,
    /// The images that `NeverVerifyAllowlistedImages` means.
    #[arg(long, value_delimiter = ',')]
    preloaded_images_verification_allowlist: Vec<String>,
    /// A file with a CredentialProviderConfig: programs that know registries' credentials.
    #[arg(long, requires = "image_credential_provider_bin_dir")]
    image_credential_provider_config: Option<std::path::PathBuf>,
    /// The folder that those programs are in.
    #[arg(long, requires = "image_credential_provider_config")]
    image_credential_provider_bin_dir: Option<std::path::PathBuf>,
    /// Pulls at once; as many as there are to do without it.
    #[arg(long)]
    max_parallel_image_pulls: Option<usize>,
    /// An image younger than this is not removed.
    #[arg(long, default_value = "2m", value_parser = span)]
    minimum_image_ttl_duration: Duration,
    /// An image that was not used for so long is removed; 0s for never.
    #[arg(long, default_value = "0s", value_parser = span)]
    maximum_image_age: Duration,
    /// How often pods' volumes are measured; never if it is not above zero.
    #[arg(long, default_value = "1m", value_parser = Span::parse, allow_hyphen_values = true)]
    volume_stats_agg_period: Span,
    /// Images that the Node names; -1 for all.
    #[arg(long, default_value_t = 50, allow_hyphen_values = true)]
    node_status_max_images: i64,
    /// What the cloud calls this machine.
    #[arg(long)]
    provider_id: Option<String>,
}

fn span(text: &str) -> Result<Duration, String> {
    let span = Span::parse(text).map_err(|error| error.to_string())?;
    u64::try_from(span.nanos).map(Duration::from_nanos).map_err(|_| "it is negative".to_owned())
}

/// Machines with more NUMA nodes are refused.
fn most_nodes(options: &[String]) -> anyhow::Result<Option<usize>> {
    let mut most = None;
    for option in options {
        match option.split_once('=') {
            Some(("max-allowable-numa-nodes", number)) => most = Some(number.parse()?),
            _ => bail!("topologyManagerPolicyOptions: {option:?} is not supported by this kubelet"),
        }
    }
    Ok(most)
}

fn group(text: &str) -> Result<Group, String> {
    let (priority, seconds) = text.split_once('=').ok_or("it must be PRIORITY=SECONDS")?;
    let wrong = |error: std::num::ParseIntError| error.to_string();
    Ok(Group {
        priority: priority.parse().map_err(wrong)?,
        seconds: seconds.parse().map_err(wrong)?,
    })
}

impl Pods {
    pub fn add_to(self, config: &mut kubelet::Config) -> anyhow::Result<()> {
        let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        if !(1..=300).contains(&self.crash_loop_back_off_max.as_secs()) {
            bail!("crashLoopBackOff.maxContainerRestartPeriod must be between 1s and 300s");
        }
        if self.runtime_request_timeout.is_zero() {
            bail!("runtimeRequestTimeout must be greater than 0");
        }
        config.runtime_patience = self.runtime_request_timeout;
        if !self.user_namespaces_ids_per_pod.is_multiple_of(65_536)
            || self.user_namespaces_ids_per_pod == 0
        {
            bail!("userNamespaces.idsPerPod must be a multiple of 65536");
        }
        if self.memory_throttling_factor.is_some_and(|factor| factor <= 0.0 || factor > 1.0) {
            bail!("memoryThrottlingFactor must be greater than 0 and less than or equal to 1.0");
        }
        let period = i64::try_from(self.cpu_cfs_quota_period.as_micros()).unwrap_or(0);
        if !(1_000..=1_000_000).contains(&period) {
            bail!("cpuCFSQuotaPeriod must be between 1ms and 1sec, inclusive");
        }
        config.enforcement = Enforcement {
            period: self.cpu_cfs_quota.then_some(period),
            limited_swap: self.memory_swap_behavior == "LimitedSwap",
            throttling: self.memory_throttling_factor,
            reserves: self.memory_reservation_policy == "TieredReservation",
            ends_together: !self.single_process_oom_kill,
            ..Enforcement::default()
        };
        let topology = match self.topology_manager_policy.as_str() {
            "best-effort" => numa::hints::Policy::BestEffort,
            "restricted" => numa::hints::Policy::Restricted,
            "single-numa-node" => numa::hints::Policy::SingleNumaNode,
            _ => numa::hints::Policy::None,
        };
        let most = most_nodes(&self.topology_manager_policy_options)?;
        let whole_pods = self.topology_manager_scope == "pod";
        config.topology =
            numa::Settings::new(topology, whole_pods, most).map_err(anyhow::Error::msg)?;
        if self.memory_manager_policy == "Static" {
            let reserved = numa::memory::parse(&self.reserved_memory.join(";"));
            let reserved = reserved.map_err(anyhow::Error::msg).context("--reserved-memory")?;
            let system = std::path::Path::new("/sys/devices/system");
            let policy = numa::memory::Policy::new(system, &reserved);
            config.memory_policy = Some(policy.map_err(anyhow::Error::msg)?);
        }
        config.pod_pids = Some(self.pod_max_pids).filter(|pids| *pids > 0);
        config.allowed_sysctls = self.allowed_unsafe_sysctls;
        config.users_per_pod = self.user_namespaces_ids_per_pod;
        config.seccomp_default = self.seccomp_default;
        config.longest_backoff = self.crash_loop_back_off_max;
        config.shutdown = Settings::new(
            self.shutdown_grace_period_by_pod_priority,
            seconds(self.shutdown_grace_period),
            seconds(self.shutdown_grace_period_critical_pods),
        )
        .map_err(anyhow::Error::msg)?;
        config.pull_policy = match self.image_pull_credentials_verification_policy.as_str() {
            "NeverVerify" => Policy::NeverVerify,
            "NeverVerifyPreloadedImages" => Policy::NeverVerifyPreloadedImages,
            "AlwaysVerify" => Policy::AlwaysVerify,
            "NeverVerifyAllowlistedImages" => {
                Policy::NeverVerifyAllowlistedImages(self.preloaded_images_verification_allowlist)
            }
            other => bail!("{other:?} is no imagePullCredentialsVerificationPolicy"),
        };
        let programs =
            self.image_credential_provider_config.zip(self.image_credential_provider_bin_dir);
        if let Some((file, folder)) = programs {
            let providers = Providers::read(&file, &folder).map_err(anyhow::Error::msg)?;
            config.credential_providers = Some(Arc::new(providers));
        }
        config.parallel_pulls = self.max_parallel_image_pulls;
        config.image_min_age = self.minimum_image_ttl_duration;
        config.image_max_age = Some(self.maximum_image_age).filter(|age| !age.is_zero());
        let measures = u64::try_from(self.volume_stats_agg_period.nanos).ok();
        config.volume_stats_period = measures.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
        config.status_images = usize::try_from(self.node_status_max_images).ok();
        config.provider_id = self.provider_id.filter(|id| !id.is_empty());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::configured_by;
    use super::*;

    fn config(flags: &[&str]) -> anyhow::Result<kubelet::Config> {
        configured_by(flags, |pods: Pods, config| pods.add_to(config))
    }

    #[test]
    fn flags_are_configuration() {
        let config = config(&[
            "--shutdown-grace-period=30s",
            "--shutdown-grace-period-critical-pods=10s",
            "--memory-swap-behavior=LimitedSwap",
            "--cpu-cfs-quota-period=50ms",
            "--pod-max-pids=100",
            "--volume-stats-agg-period=-1m",
            "--allowed-unsafe-sysctls=net.core.*,kernel.msgmax",
        ])
        .unwrap();
        let groups: Vec<_> = config.shutdown.groups().iter().map(|one| one.seconds).collect();
        assert_eq!(groups, [20, 10]);
        assert_eq!((config.enforcement.period, config.pod_pids), (Some(50_000), Some(100)));
        assert!(config.enforcement.limited_swap && config.enforcement.ends_together);
        assert_eq!((config.allowed_sysctls.len(), config.volume_stats_period), (2, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for flag in [
            "--shutdown-grace-period-by-pod-priority=x",
            "--crash-loop-back-off-max=0s",
            "--cpu-cfs-quota-period=2s",
            "--memory-throttling-factor=2",
            "--user-namespaces-ids-per-pod=5",
            "--allowed-unsafe-sysctls=vm.swappiness",
            "--image-pull-credentials-verification-policy=Maybe",
            "--memory-manager-policy=Static",
            "--topology-manager-policy-options=prefer-closest-numa-nodes=true",
        ] {
            assert!(config(&[flag]).is_err(), "{flag}");
        }
        assert!(config(&["--shutdown-grace-period-by-pod-priority=-5=10,0=3"]).is_ok());
    }
}
