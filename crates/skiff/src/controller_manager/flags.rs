//! Flags that are a table.
use crate::alone::Upstreams;
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;

/// How many keys each loop works on at once.
#[derive(Debug, Default)]
pub struct Workers(pub BTreeMap<&'static str, usize>);

/// The flag, and the loop that it is about.
const WORKERS: &[(&str, &str)] = &[
    ("concurrent-cron-job-syncs", "cronjob-controller"),
    ("concurrent-daemonset-syncs", "daemonset-controller"),
    ("concurrent-deployment-syncs", "deployment-controller"),
    ("concurrent-device-taint-eviction-syncs", "device-taint-eviction-controller"),
    ("concurrent-disruption-syncs", "disruption-controller"),
    ("concurrent-endpoint-syncs", "endpoints-controller"),
    ("concurrent-ephemeralvolume-syncs", "ephemeral-volume-controller"),
    ("concurrent-gc-syncs", "garbage-collector-controller"),
    ("concurrent-horizontal-pod-autoscaler-syncs", "horizontal-pod-autoscaler-controller"),
    ("concurrent-job-syncs", "job-controller"),
    ("concurrent-namespace-syncs", "namespace-controller"),
    ("concurrent-rc-syncs", "replicationcontroller-controller"),
    ("concurrent-replicaset-syncs", "replicaset-controller"),
    ("concurrent-resource-quota-syncs", "resourcequota-controller"),
    ("concurrent-resourceclaim-syncs", "resourceclaim-controller"),
    ("concurrent-service-endpoint-syncs", "endpointslice-controller"),
    ("concurrent-serviceaccount-token-syncs", "serviceaccount-token-controller"),
    ("concurrent-statefulset-syncs", "statefulset-controller"),
    ("concurrent-ttl-after-finished-syncs", "ttl-after-finished-controller"),
    ("mirroring-concurrent-service-endpoint-syncs", "endpointslice-mirroring-controller"),
];

impl clap::Args for Workers {
    fn augment_args(command: Command) -> Command {
        let flag = |(name, row): &(&'static str, &'static str)| {
            Arg::new(*name)
                .long(*name)
                .value_parser(clap::value_parser!(u16).range(1..))
                .help(format!("How many keys the {row} works on at once"))
        };
        command.args(WORKERS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Workers::augment_args(command)
    }
}

impl clap::FromArgMatches for Workers {
    fn from_arg_matches(found: &ArgMatches) -> Result<Workers, clap::Error> {
        let given = WORKERS
            .iter()
            .filter_map(|(flag, row)| Some((*row, usize::from(*found.get_one::<u16>(flag)?))));
        Ok(Workers(given.collect()))
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Workers::from_arg_matches(found)?;
        Ok(())
    }
}

/// Flags of upstream's controller manager that mean nothing here.
#[derive(Debug, Default)]
pub struct Flags;

impl Upstreams for Flags {
    const FLAGS: &[&str] = ACCEPTED;
}

const ACCEPTED: &[&str] = &[
    "attach-detach-reconcile-sync-period",
    "authentication-kubeconfig",
    "authentication-skip-lookup",
    "authentication-token-webhook-cache-ttl",
    "authentication-tolerate-lookup-failure",
    "authorization-kubeconfig",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "cidr-allocator-type",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "configure-cloud-routes",
    "contention-profiling",
    "controller-start-interval",
    "controller-shutdown-timeout",
    "disable-attach-detach-reconcile-sync",
    "emulated-version",
    "enable-dynamic-provisioning",
    "enable-garbage-collector",
    "enable-hostpath-provisioner",
    "enable-leader-migration",
    "endpoint-updates-batch-period",
    "endpointslice-updates-batch-period",
    "external-cloud-volume-plugin",
    "feature-gates",
    "flex-volume-plugin-dir",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "leader-elect-resource-lock",
    "log-flush-frequency",
    "logging-format",
    "max-endpoints-per-slice",
    "min-resync-period",
    "mirroring-endpointslice-updates-batch-period",
    "mirroring-max-endpoints-per-subset",
    "namespace-sync-period",
    "node-monitor-period",
    "node-startup-grace-period",
    "profiling",
    "pv-recycler-increment-timeout-nfs",
    "pv-recycler-minimum-timeout-hostpath",
    "pv-recycler-minimum-timeout-nfs",
    "pv-recycler-pod-template-filepath-hostpath",
    "pv-recycler-pod-template-filepath-nfs",
    "pv-recycler-timeout-increment-hostpath",
    "pvclaimbinder-sync-period",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-username-headers",
    "resource-quota-sync-period",
    "route-reconciliation-period",
    "service-cluster-ip-range",
    "show-hidden-metrics-for-version",
    "vmodule",
];
