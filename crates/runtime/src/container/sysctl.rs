//! Kernel settings of a sandbox: only those that a namespace has for itself, and only if the sandbox
//! has that namespace. Every other one is the whole machine's.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SysctlError {
    #[error("sysctl {0:?} is not in a separate kernel namespace")]
    NotNamespaced(String),
    #[error("sysctl {name:?} is not allowed: the sandbox has the host's {namespace} namespace")]
    Hosts { name: String, namespace: &'static str },
    #[error("sysctl {0:?} is not a name")]
    Name(String),
    #[error("sysctl {0:?} is set by the sandbox's host name")]
    HostName(String),
}

/// Which namespaces a sandbox has of its own.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    pub network: bool,
    pub ipc: bool,
    pub users: bool,
}

/// Settings of an IPC namespace, besides `fs.mqueue.*`. Those of a network namespace are all `net.*`
/// that are seen in it.
#[rustfmt::skip]
const IPC: &[&str] = &[
    "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shmall",
    "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
];

/// What a network namespace gets unless something else is said, as with containerd 2: ports below
/// 1024 and `ping` for everybody. The second cannot be said of groups that are not there, as in a
/// user namespace.
const DEFAULTS: &[(&str, &str, bool)] = &[
    ("net/ipv4/ip_unprivileged_port_start", "0", true),
    ("net/ipv4/ping_group_range", "0 2147483647", false),
];

/// What to write, by path below `/proc/sys`. `exists` tells whether the kernel has a default's file.
pub fn settle(
    asked: impl IntoIterator<Item = (String, String)>,
    own: Own,
    exists: impl Fn(&Path) -> bool,
) -> Result<BTreeMap<PathBuf, String>, SysctlError> {
    let mut settings = BTreeMap::new();
    if own.network {
        for (path, value, with_users) in DEFAULTS {
            if (*with_users || !own.users) && exists(Path::new(path)) {
                settings.insert(PathBuf::from(path), (*value).to_owned());
            }
        }
    }
    for (name, value) in asked {
        settings.insert(allowed(&name, own)?.into(), value);
    }
    Ok(settings)
}

/// The setting's path, if it is the sandbox's to change.
fn allowed(name: &str, own: Own) -> Result<String, SysctlError> {
    let path = path(name).ok_or_else(|| SysctlError::Name(name.to_owned()))?;
    let (own, namespace) = match path.as_str() {
        path if path.starts_with("net/") => (own.network, "network"),
        path if path.starts_with("fs/mqueue/") || IPC.contains(&path) => (own.ipc, "IPC"),
        "kernel/domainname" => (own.network, "UTS"),
        "kernel/hostname" => return Err(SysctlError::HostName(name.to_owned())),
        _ => return Err(SysctlError::NotNamespaced(name.to_owned())),
    };
    match own {
        true => Ok(path),
        false => Err(SysctlError::Hosts { name: name.to_owned(), namespace }),
    }
}

/// A name may have dots between its parts, or slashes; whichever comes first is what it has. The other
/// is then part of a name (`net/ipv4/conf/eth0.1/forwarding`), in the first spelling as a slash.
fn path(name: &str) -> Option<String> {
    let path: String = match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.to_owned(),
        _ => {
            let swap = |letter| match letter {
                '.' => '/',
                '/' => '.',
                letter => letter,
            };
            name.chars().map(swap).collect()
        }
    };
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.split('/').all(plain).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Own = Own { network: true, ipc: true, users: false };

    fn check(name: &str, own: Own, expected: &str) {
        let found = allowed(name, own).unwrap_or_else(|error| error.to_string());
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn only_what_is_the_sandbox_s_own_is_written() {
        check("net.ipv4.ip_forward", ALL, "net/ipv4/ip_forward");
        check("net/ipv4/conf/eth0.1/forwarding", ALL, "net/ipv4/conf/eth0.1/forwarding");
        check("net.ipv4.conf.eth0/1.forwarding", ALL, "net/ipv4/conf/eth0.1/forwarding");
        check("kernel.shm_rmid_forced", ALL, "kernel/shm_rmid_forced");
        check("fs.mqueue.msg_max", ALL, "fs/mqueue/msg_max");
        check("kernel.domainname", ALL, "kernel/domainname");
        for name in ["kernel.core_pattern", "vm.swappiness", "kernel.msg", "fs.mqueue", "net"] {
            check(name, ALL, &format!("sysctl {name:?} is not in a separate kernel namespace"));
        }
        for name in ["net/../kernel/core_pattern", "net...kernel", "", "net/", "/net/x", "net//x"] {
            check(name, ALL, &format!("sysctl {name:?} is not a name"));
        }
        check(
            "kernel.hostname",
            ALL,
            "sysctl \"kernel.hostname\" is set by the sandbox's host name",
        );
    }

    #[test]
    fn the_host_s_namespaces_are_not_a_sandbox_s_to_change() {
        let hosts = Own { network: false, ipc: false, users: false };
        for (name, namespace) in [
            ("net.ipv4.ip_forward", "network"),
            ("kernel.sem", "IPC"),
            ("kernel.domainname", "UTS"),
        ] {
            let text = format!(
                "sysctl {name:?} is not allowed: the sandbox has the host's {namespace} namespace"
            );
            check(name, hosts, &text);
        }
    }

    #[test]
    fn defaults_give_way() {
        let settle = |asked: &[(&str, &str)], own| {
            let asked = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let settled = settle(asked, own, |_| true).unwrap();
            let line = |(path, value): (&PathBuf, &String)| format!("{}={value}", path.display());
            settled.iter().map(line).collect::<Vec<_>>().join(" ")
        };
        let (port, ping) =
            ("net/ipv4/ip_unprivileged_port_start", "net/ipv4/ping_group_range=0 2147483647");
        assert_eq!(settle(&[], ALL), format!("{port}=0 {ping}"));
        assert_eq!(settle(&[], Own { users: true, ..ALL }), format!("{port}=0"));
        assert_eq!(settle(&[], Own { network: false, ..ALL }), "");
        let asked = [("net.ipv4.ip_unprivileged_port_start", "80")];
        assert_eq!(settle(&asked, ALL), format!("{port}=80 {ping}"));
    }
}
