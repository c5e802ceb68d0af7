//! When pods have to go for the sake of the node: upstream's flags.
use crate::apiserver::duration;
use kubelet::eviction::thresholds::{self, Wishes};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Eviction {
    /// Below these pods go at once: `memory.available<100Mi,nodefs.available<10%`.
    #[arg(long, value_delimiter = ',', value_parser = threshold)]
    eviction_hard: Vec<(String, String)>,
    /// Whether the usual hard thresholds hold for what `--eviction-hard` does not name.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    merge_default_eviction_settings: bool,
    /// Below these pods go after a while.
    #[arg(long, value_delimiter = ',', value_parser = threshold)]
    eviction_soft: Vec<(String, String)>,
    /// How long that while is: `memory.available=1m30s`.
    #[arg(long, value_delimiter = ',', value_parser = super::pair)]
    eviction_soft_grace_period: Vec<(String, String)>,
    /// So much more has to be free before it is enough: `nodefs.available=1Gi`.
    #[arg(long, value_delimiter = ',', value_parser = super::pair)]
    eviction_minimum_reclaim: Vec<(String, String)>,
    /// How long the node stays under pressure after the last sign of it.
    #[arg(long, value_parser = duration, default_value = "5m0s")]
    eviction_pressure_transition_period: Duration,
    /// Seconds that a pod has at most which goes for a soft threshold.
    #[arg(long, default_value_t = 0)]
    eviction_max_pod_grace_period: i64,
}

fn threshold(text: &str) -> Result<(String, String), String> {
    let (signal, level) = text.split_once('<').ok_or("it must be SIGNAL<AMOUNT")?;
    Ok((signal.to_owned(), level.to_owned()))
}

impl Eviction {
    pub fn config(&self) -> anyhow::Result<kubelet::eviction::Config> {
        let map = |rows: &[(String, String)]| rows.iter().cloned().collect::<BTreeMap<_, _>>();
        let mut hard = match self.eviction_hard.is_empty() || self.merge_default_eviction_settings {
            true => thresholds::default_hard(),
            false => BTreeMap::new(),
        };
        hard.extend(map(&self.eviction_hard));
        let wishes = Wishes {
            hard,
            soft: map(&self.eviction_soft),
            soft_grace: map(&self.eviction_soft_grace_period),
            reclaim: map(&self.eviction_minimum_reclaim),
        };
        Ok(kubelet::eviction::Config {
            thresholds: thresholds::parse(&wishes).map_err(anyhow::Error::msg)?,
            transition: self.eviction_pressure_transition_period,
            max_grace: self.eviction_max_pod_grace_period,
            ..kubelet::eviction::Config::default()
        })
    }
}
