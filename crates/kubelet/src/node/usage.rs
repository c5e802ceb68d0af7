//! What this machine uses, read from `/proc`.
use runtime::cgroup::Pressure;
use std::fs;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Of all processors since the machine booted, without being idle.
    pub cpu_nanoseconds: u64,
    /// Of late; 0 until it has been looked at twice.
    pub nano_cores: u64,
    /// Seconds since 1970.
    pub booted: i64,
    pub memory_free: u64,
    pub memory_anonymous: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub swap: u64,
    pub swap_free: u64,
    pub interfaces: Vec<Interface>,
    /// Of processors, memory and disks, where the kernel measures it.
    pub cpu_pressure: Option<Pressure>,
    pub memory_pressure: Option<Pressure>,
    pub io_pressure: Option<Pressure>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_errors: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
}

impl Usage {
    pub fn read() -> Usage {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (stat, memory, virtual_memory) =
            (text("/proc/stat"), text("/proc/meminfo"), text("/proc/vmstat"));
        let memory = |field: &str| super::facts::memory_field(&memory, field);
        Usage {
            cpu_nanoseconds: cpu(&stat),
            nano_cores: 0,
            booted: i64::try_from(number(&stat, "btime")).unwrap_or(0),
            memory_free: memory("MemFree"),
            memory_anonymous: memory("AnonPages"),
            page_faults: number(&virtual_memory, "pgfault"),
            major_page_faults: number(&virtual_memory, "pgmajfault"),
            swap: memory("SwapTotal"),
            swap_free: memory("SwapFree"),
            interfaces: interfaces(&text("/proc/net/dev")),
            cpu_pressure: Pressure::parse(&text("/proc/pressure/cpu")),
            memory_pressure: Pressure::parse(&text("/proc/pressure/memory")),
            io_pressure: Pressure::parse(&text("/proc/pressure/io")),
        }
    }
}

/// `cpu user nice system idle iowait irq softirq steal …`, in hundredths of a second: the unit that
/// Linux has for programs on every architecture that we run on.
fn cpu(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks = line.split_whitespace().take(8).map(|word| word.parse::<u64>().unwrap_or(0));
    let busy = ticks.enumerate().filter(|(i, _)| !matches!(i, 3 | 4)).map(|(_, ticks)| ticks);
    busy.sum::<u64>().saturating_mul(10_000_000)
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Interfaces with traffic to elsewhere: neither loopback nor the host's ends of pods' pairs.
fn interfaces(text: &str) -> Vec<Interface> {
    let lines = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    let named = lines.map(|(name, rest)| (name.trim(), rest));
    let real = named.filter(|(name, _)| *name != "lo" && !name.starts_with("veth"));
    let read = |(name, rest): (&str, &str)| {
        let words: Vec<u64> =
            rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        Interface {
            name: name.to_owned(),
            rx_bytes: at(0),
            rx_errors: at(2),
            tx_bytes: at(8),
            tx_errors: at(10),
        }
    };
    real.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(cpu("cpu  100 1 50 9000 7 0 2 3 0 0\ncpu0 1 1\n"), 156 * 10_000_000);
        assert_eq!(number("btime 17\nprocesses 3\n", "btime"), 17);
        let text = "Inter-| x\n face |y\n    lo: 1 1 0 0 0 0 0 0 1 1 0\n  eth0: 10 1 2 0 0 0 0 0 30 4 5 0\nvethab: 1\n";
        assert_eq!(
            interfaces(text),
            [Interface {
                name: "eth0".into(),
                rx_bytes: 10,
                rx_errors: 2,
                tx_bytes: 30,
                tx_errors: 5
            }]
        );
        let usage = Usage::read();
        assert!(usage.cpu_nanoseconds > 0 && usage.booted > 0, "{usage:?}");
    }
}
