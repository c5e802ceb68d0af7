//! Capabilities: their names, and which a container has.
use crate::cri::v1::Capability;
use crate::shim::spec::Capabilities;

/// The kernel's names, by number.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
];

/// What a container has when nothing is said; upstream's runtimes agree on the list.
#[rustfmt::skip]
const DEFAULT: &[&str] = &[
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
    "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
];

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown capability {0:?}")]
pub struct UnknownCapability(String);

/// Every capability there is.
pub fn all() -> u64 {
    (1 << NAMES.len()) - 1
}

/// The sets of a container. `ALL` first, then names: `drop ALL, add X` leaves X.
pub fn choose(
    asked: Option<&Capability>,
    privileged: bool,
) -> Result<Capabilities, UnknownCapability> {
    let mut set = if privileged { all() } else { bits(DEFAULT.iter().copied())? };
    let mut ambient = 0;
    if let Some(asked) = asked.filter(|_| !privileged) {
        let is_all = |name: &&String| name.eq_ignore_ascii_case("ALL");
        let names =
            |list: &[String]| bits(list.iter().filter(|name| !is_all(name)).map(String::as_str));
        if asked.add_capabilities.iter().any(|name| is_all(&name)) {
            set = all();
        }
        if asked.drop_capabilities.iter().any(|name| is_all(&name)) {
            set = 0;
        }
        ambient = names(&asked.add_ambient_capabilities)?;
        set |= names(&asked.add_capabilities)? | ambient;
        set &= !names(&asked.drop_capabilities)?;
        ambient &= set;
    }
    Ok(Capabilities { bounding: set, ambient })
}

/// The names of a set, as OCI's documents spell them.
pub fn names(set: u64) -> Vec<String> {
    let named = NAMES.iter().enumerate().filter(|(number, _)| set & 1 << number != 0);
    named.map(|(_, name)| format!("CAP_{name}")).collect()
}

fn bits<'a>(names: impl Iterator<Item = &'a str>) -> Result<u64, UnknownCapability> {
    let mut set = 0;
    for name in names {
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        let number = NAMES.iter().position(|known| *known == short);
        set |= 1 << number.ok_or_else(|| UnknownCapability(name.to_owned()))?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expected: &str) {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let asked = Capability {
            add_capabilities: own(add),
            drop_capabilities: own(drop),
            add_ambient_capabilities: Vec::new(),
        };
        let found = match choose(Some(&asked), false) {
            Ok(set) => NAMES
                .iter()
                .enumerate()
                .filter(|(number, _)| set.bounding & 1 << number != 0)
                .map(|(_, name)| *name)
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn added_and_dropped() {
        check(&["NET_ADMIN"], &["ALL"], "NET_ADMIN");
        check(&["cap_sys_time", "KILL"], &["all", "KILL"], "SYS_TIME");
        check(&["ALL"], &all_but_admin(), "SYS_ADMIN");
        check(&["FLY"], &[], "unknown capability \"FLY\"");
    }

    fn all_but_admin() -> Vec<&'static str> {
        NAMES.iter().copied().filter(|name| *name != "SYS_ADMIN").collect()
    }
}
