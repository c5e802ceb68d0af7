//! The node as the cluster knows it, and what of the machine the kubelet minds: upstream's flags.
use anyhow::{Context as _, bail};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Node {
    /// Whether the kubelet makes its Node, or waits for somebody who does.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    register_node: bool,
    /// How often the node is looked at.
    #[arg(long, default_value = "10s", value_parser = crate::apiserver::duration)]
    node_status_update_frequency: Duration,
    /// How often the status of a node is written that has not changed.
    #[arg(long, default_value = "5m", value_parser = crate::apiserver::duration)]
    node_status_report_frequency: Duration,
    /// A node that does not renew its lease for so many seconds is given up.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    node_lease_duration_seconds: u32,
    /// Pods that may run here at most.
    #[arg(long, default_value_t = 110)]
    max_pods: u32,
    /// The same for each processor, if that is less; 0 for no such bound.
    #[arg(long, default_value_t = 0)]
    pods_per_core: u32,
    /// The control group below which those of pods are.
    #[arg(long, default_value = "/")]
    pod_cgroup_root: String,
    /// Who makes the control groups of pods, where the container runtime does not say it.
    #[arg(long, default_value = "cgroupfs", value_parser = ["cgroupfs", "systemd"])]
    cgroup_driver: String,
    /// Whether it is an error if the kernel is not set up as Kubernetes wants it. It is never changed.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    protect_kernel_defaults: bool,
    /// `NAME=true`: gates of upstream's that are not as they are here are told.
    #[arg(long, value_delimiter = ',')]
    feature_gates: Vec<String>,
}

/// Gates that mean something here.
const GATES: &[&str] = &[CPU_ALPHA];
/// Whether some options of the CPU manager may be given.
const CPU_ALPHA: &str = "CPUManagerPolicyAlphaOptions";

/// What `--protect-kernel-defaults` demands: upstream's (`setupKernelTunables`).
const KERNEL: &[(&str, i64)] = &[
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

impl Node {
    /// Whether `align-by-socket` and `distribute-cpus-across-cores` may be given.
    pub fn allows_alpha_of_cpus(&self) -> bool {
        let last = self.feature_gates.iter().rev().filter_map(|gate| gate.split_once('='));
        last.into_iter().find(|(name, _)| *name == CPU_ALPHA).is_some_and(|(_, on)| on == "true")
    }

    pub fn add_to(&self, config: &mut kubelet::Config) -> anyhow::Result<()> {
        for gate in &self.feature_gates {
            let (name, value) =
                gate.split_once('=').with_context(|| format!("missing bool value for {gate}"))?;
            let _: bool =
                value.parse().with_context(|| format!("invalid value of {name}={value}"))?;
            if !GATES.contains(&name) {
                tracing::warn!("--feature-gates: {name} has no effect here");
            }
        }
        if self.protect_kernel_defaults {
            check_kernel(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).ok())?;
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        config.max_pods = match self.pods_per_core {
            0 => self.max_pods,
            each => self.max_pods.min(each.saturating_mul(cores)),
        };
        config.registers = self.register_node;
        config.look_period = self.node_status_update_frequency.max(Duration::from_secs(1));
        config.status_period = self.node_status_report_frequency;
        config.lease_duration = Duration::from_secs(self.node_lease_duration_seconds.into());
        config.cgroup_root = format!("{}/kubepods", self.pod_cgroup_root.trim_end_matches('/'));
        config.by_systemd = self.cgroup_driver == "systemd";
        Ok(())
    }
}

fn check_kernel(read: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    for (name, wanted) in KERNEL {
        let text = read(name).with_context(|| format!("failed to read kernel flag {name}"))?;
        let found = text.trim();
        if found != wanted.to_string() {
            bail!("invalid kernel flag: {name}, expected value: {wanted}, actual value: {found}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::configured_by;
    use super::*;

    fn config(flags: &[&str]) -> anyhow::Result<kubelet::Config> {
        configured_by(flags, |node: Node, config| node.add_to(config))
    }

    #[test]
    fn flags_are_configuration() {
        let usual = config(&[]).unwrap();
        assert_eq!(
            (usual.max_pods, usual.registers, &*usual.cgroup_root),
            (110, true, "/kubepods")
        );
        let config = config(&[
            "--register-node=false",
            "--node-lease-duration-seconds=60",
            "--max-pods=100000",
            "--pods-per-core=3",
            "--pod-cgroup-root=/mine/",
            "--cgroup-driver=systemd",
            "--feature-gates=A=true,B=false",
        ])
        .unwrap();
        assert!(!config.registers);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        assert_eq!(config.max_pods, 3 * cores);
        assert_eq!(config.lease_duration, Duration::from_secs(60));
        assert_eq!((&*config.cgroup_root, config.by_systemd), ("/mine/kubepods", true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for flag in
            ["--feature-gates=A", "--feature-gates=A=maybe", "--node-lease-duration-seconds=0"]
        {
            assert!(config(&[flag]).is_err(), "{flag}");
        }
        let wanted = |name: &str| {
            KERNEL.iter().find(|(known, _)| *known == name).map(|(_, value)| format!("{value}\n"))
        };
        assert!(check_kernel(wanted).is_ok());
        let other = |name: &str| wanted(name).map(|_| "7\n".to_owned());
        let said = check_kernel(other).unwrap_err().to_string();
        assert_eq!(
            said,
            "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 7"
        );
    }
}
