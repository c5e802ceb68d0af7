//! Signals and thresholds: what is watched, and below what it is too little
//! (`pkg/kubelet/eviction/helpers.go`).
use api::quantity::{Format, Quantity};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    Memory,
    AllocatableMemory,
    NodeFs,
    NodeFsInodes,
    ImageFs,
    ImageFsInodes,
    ContainerFs,
    ContainerFsInodes,
    Pids,
}

/// Every signal: its name, the condition of the node that it means, the resource that is low.
const SIGNALS: &[(Signal, &str, &str, &str)] = &[
    (Signal::Memory, "memory.available", MEMORY_PRESSURE, "memory"),
    (Signal::AllocatableMemory, "allocatableMemory.available", MEMORY_PRESSURE, "memory"),
    (Signal::NodeFs, "nodefs.available", DISK_PRESSURE, "ephemeral-storage"),
    (Signal::NodeFsInodes, "nodefs.inodesFree", DISK_PRESSURE, "inodes"),
    (Signal::ImageFs, "imagefs.available", DISK_PRESSURE, "ephemeral-storage"),
    (Signal::ImageFsInodes, "imagefs.inodesFree", DISK_PRESSURE, "inodes"),
    (Signal::ContainerFs, "containerfs.available", DISK_PRESSURE, "ephemeral-storage"),
    (Signal::ContainerFsInodes, "containerfs.inodesFree", DISK_PRESSURE, "inodes"),
    (Signal::Pids, "pid.available", PID_PRESSURE, "pids"),
];

pub const MEMORY_PRESSURE: &str = "MemoryPressure";
pub const DISK_PRESSURE: &str = "DiskPressure";
pub const PID_PRESSURE: &str = "PIDPressure";

impl Signal {
    fn row(self) -> &'static (Signal, &'static str, &'static str, &'static str) {
        let row = SIGNALS.iter().find(|(signal, ..)| *signal == self);
        row.expect("every signal has a row")
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn condition(self) -> &'static str {
        self.row().2
    }

    pub fn resource(self) -> &'static str {
        self.row().3
    }

    /// How amounts of it are written.
    pub fn format(self) -> Format {
        match self.resource() {
            "inodes" | "pids" => Format::DecimalSI,
            _ => Format::BinarySI,
        }
    }

    pub fn is_memory(self) -> bool {
        self.resource() == "memory"
    }

    fn parse(name: &str) -> Result<Signal, String> {
        let row = SIGNALS.iter().find(|(_, known, ..)| *known == name);
        row.map(|row| row.0).ok_or_else(|| format!("unsupported eviction signal {name}"))
    }
}

/// An amount, or a share of what there is.
#[derive(Debug, Clone, PartialEq)]
pub enum Level {
    Amount(Quantity),
    Percent(f64),
}

impl Level {
    pub fn of(&self, capacity: i64) -> i64 {
        match self {
            Level::Amount(quantity) => quantity.value(),
            #[allow(clippy::cast_possible_truncation, reason = "a share of an i64 is one")]
            #[allow(clippy::cast_precision_loss, reason = "upstream multiplies floats too")]
            Level::Percent(percent) => (capacity as f64 * percent / 100.0) as i64,
        }
    }

    pub fn shown(&self, signal: Signal, capacity: i64) -> String {
        match self {
            Level::Amount(quantity) => quantity.to_string(),
            Level::Percent(_) => Quantity::new(self.of(capacity), signal.format()).to_string(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub level: Level,
    /// So much more than the threshold has to be free before the signal is well again.
    pub reclaim: Option<Level>,
    /// How long it may last; a hard threshold has none.
    pub grace: Duration,
}

impl Threshold {
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// What a user says, in upstream's words: signals with amounts or durations.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub hard: BTreeMap<String, String>,
    pub soft: BTreeMap<String, String>,
    pub soft_grace: BTreeMap<String, String>,
    pub reclaim: BTreeMap<String, String>,
}

/// Upstream's defaults on Linux.
pub fn default_hard() -> BTreeMap<String, String> {
    let rows = [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ];
    rows.map(|(signal, level)| (signal.to_owned(), level.to_owned())).into()
}

pub fn parse(wishes: &Wishes) -> Result<Vec<Threshold>, String> {
    let mut all = statements(&wishes.hard)?;
    for mut soft in statements(&wishes.soft)? {
        let name = soft.signal.name();
        let grace = wishes.soft_grace.get(name).ok_or_else(|| {
            format!("grace period must be specified for the soft eviction threshold {name}")
        })?;
        soft.grace = grace_of(grace)?;
        all.push(soft);
    }
    for name in wishes.soft_grace.keys() {
        Signal::parse(name)?;
    }
    for (name, text) in &wishes.reclaim {
        let signal = Signal::parse(name)?;
        let level = level(text)?;
        match &level {
            Level::Percent(percent) if *percent <= 0.0 => {
                return Err(format!(
                    "eviction percentage minimum reclaim {name} must be positive: {text}"
                ));
            }
            Level::Amount(amount) if amount.is_negative() => {
                return Err(format!("negative eviction minimum reclaim specified for {name}"));
            }
            _ => {}
        }
        for threshold in all.iter_mut().filter(|one| one.signal == signal) {
            threshold.reclaim = Some(level.clone());
        }
    }
    // All pods together are held to what they may have as the machine is to its memory.
    let memory = all.iter().find(|one| one.signal == Signal::Memory && one.is_hard()).cloned();
    all.extend(memory.map(|one| Threshold { signal: Signal::AllocatableMemory, ..one }));
    Ok(all)
}

fn statements(said: &BTreeMap<String, String>) -> Result<Vec<Threshold>, String> {
    let mut all = Vec::new();
    for (name, text) in said {
        let signal = Signal::parse(name)?;
        // Upstream ignores these two.
        if matches!(text.as_str(), "0%" | "100%") {
            continue;
        }
        let level = level(text)?;
        match &level {
            Level::Percent(percent) if *percent < 0.0 => {
                return Err(format!("eviction percentage threshold {name} must be >= 0%: {text}"));
            }
            Level::Percent(percent) if *percent > 100.0 => {
                return Err(format!(
                    "eviction percentage threshold {name} must be <= 100%: {text}"
                ));
            }
            Level::Amount(amount) if !amount.sign().is_gt() => {
                return Err(format!("eviction threshold {name} must be positive: {amount}"));
            }
            _ => {}
        }
        all.push(Threshold { signal, level, reclaim: None, grace: Duration::ZERO });
    }
    Ok(all)
}

fn level(text: &str) -> Result<Level, String> {
    match text.strip_suffix('%') {
        Some(number) => {
            let percent = number.parse::<f64>().ok().filter(|percent| percent.is_finite());
            percent.map(Level::Percent).ok_or_else(|| format!("{text:?} is no percentage"))
        }
        None => Quantity::parse(text).map(Level::Amount).map_err(|error| error.to_string()),
    }
}

fn grace_of(text: &str) -> Result<Duration, String> {
    let grace = api::duration::Duration::parse(text).map_err(|error| error.to_string())?;
    if grace.nanos < 0 {
        return Err(format!(
            "invalid eviction grace period specified: {text}, must be a positive value"
        ));
    }
    Ok(grace.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter().map(|(name, text)| (String::from(*name), String::from(*text))).collect()
    }

    fn check(wishes: &Wishes) -> String {
        match parse(wishes) {
            Ok(all) => {
                let shown = all.iter().map(|one| {
                    format!(
                        "{}<{} +{} {}s",
                        one.signal.name(),
                        one.level.shown(one.signal, 1000),
                        one.reclaim.as_ref().map_or(0, |level| level.of(1000)),
                        one.grace.as_secs()
                    )
                });
                shown.collect::<Vec<_>>().join(", ")
            }
            Err(error) => error,
        }
    }

    #[test]
    fn thresholds_are_read_as_upstream_reads_them() {
        let wishes = Wishes {
            hard: said(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]),
            soft: said(&[("imagefs.inodesFree", "20%"), ("pid.available", "0%")]),
            soft_grace: said(&[("imagefs.inodesFree", "1m30s")]),
            reclaim: said(&[("nodefs.available", "5%")]),
        };
        assert_eq!(
            check(&wishes),
            "memory.available<100Mi +0 0s, nodefs.available<100 +50 0s, \
             imagefs.inodesFree<200 +0 90s, allocatableMemory.available<100Mi +0 0s"
        );
    }

    #[test]
    fn nonsense_is_refused_in_upstreams_words() {
        let hard = |name, text| check(&Wishes { hard: said(&[(name, text)]), ..Wishes::default() });
        assert_eq!(hard("disk.full", "1"), "unsupported eviction signal disk.full");
        assert_eq!(
            hard("memory.available", "-1"),
            "eviction threshold memory.available must be positive: -1"
        );
        assert_eq!(
            hard("nodefs.available", "101%"),
            "eviction percentage threshold nodefs.available must be <= 100%: 101%"
        );
        let soft = said(&[("memory.available", "1Gi")]);
        assert_eq!(
            check(&Wishes { soft, ..Wishes::default() }),
            "grace period must be specified for the soft eviction threshold memory.available"
        );
        assert_eq!(parse(&Wishes { hard: default_hard(), ..Wishes::default() }).unwrap().len(), 6);
    }
}
