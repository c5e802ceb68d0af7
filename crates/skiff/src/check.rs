//! `skiff check`: is this machine fit to be a node? One row per thing that a node needs; a row reads
//! what was found of the machine and says how it is, and what to do if it is not well.
//!
//! `skiff up` asks the same before it touches anything, and goes no further than the first thing that
//! is missing. What is only wanting does not stop it.
mod facts;

pub use facts::Facts;

use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Where state would be kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
}

/// How a thing is.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Fine(String),
    /// It will do, but not as well as it could: what, and the remedy.
    Wanting(String, &'static str),
    /// Nothing runs without it: what, and the remedy.
    Missing(String, &'static str),
}

use Verdict::{Fine, Missing, Wanting};

pub struct Row {
    pub name: &'static str,
    look: fn(&Facts) -> Verdict,
}

/// What everything else needs comes first.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    Row { name: "user", look: user },
    Row { name: "kernel", look: kernel },
    Row { name: "namespaces", look: namespaces },
    Row { name: "control groups", look: control_groups },
    Row { name: "network", look: network },
    Row { name: "encryption", look: encryption },
    Row { name: "file systems", look: file_systems },
    Row { name: "ports", look: ports },
    Row { name: "clock", look: clock },
    Row { name: "disk", look: disk },
    Row { name: "memory", look: memory },
    Row { name: "file watches", look: watches },
    Row { name: "others", look: others },
];

/// Says how everything is; an error if something is missing.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let facts = Facts::of_this_machine(&options.data_dir);
    let found: Vec<(&str, Verdict)> =
        ROWS.iter().map(|row| (row.name, (row.look)(&facts))).collect();
    print!("{}", page(&found));
    let missing = found.iter().filter(|(_, verdict)| matches!(verdict, Missing(..))).count();
    anyhow::ensure!(
        missing == 0,
        "this machine cannot be a node yet: {missing} of these are missing"
    );
    println!("\nThis machine is fit: `skiff up` makes it a cluster.");
    Ok(())
}

/// The first thing that is missing, with its remedy.
pub fn trouble(facts: &Facts) -> Option<String> {
    ROWS.iter().find_map(|row| match (row.look)(facts) {
        Missing(what, remedy) => Some(format!("{what}: {remedy}")),
        Fine(_) | Wanting(..) => None,
    })
}

fn page(found: &[(&str, Verdict)]) -> String {
    let line = |(name, verdict): &(&str, Verdict)| match verdict {
        Fine(text) => format!("✓ {name:<16}{text}\n"),
        Wanting(text, remedy) => format!("! {name:<16}{text}\n  {:<16}→ {remedy}\n", ""),
        Missing(text, remedy) => format!("✗ {name:<16}{text}\n  {:<16}→ {remedy}\n", ""),
    };
    found.iter().map(line).collect()
}

fn user(facts: &Facts) -> Verdict {
    match facts.is_root {
        true => Fine("root".into()),
        false if facts.may_make_users => Wanting(
            "not root: the cluster is this user's own, without what only root may do".into(),
            "run `sudo skiff up` for limits, other users and low ports, or read docs/rootless.md",
        ),
        false => Missing(
            "only root can run containers here: users may not make namespaces".into(),
            "run `sudo skiff up`, or let users make them with `sysctl -w user.max_user_namespaces=10000`",
        ),
    }
}

/// The oldest kernel with all we ask of it: id-mapped mounts and `mount_setattr` are of 5.12.
const OLDEST: (u32, u32) = (5, 12);

fn kernel(facts: &Facts) -> Verdict {
    let (major, minor) = facts.kernel;
    match facts.kernel >= OLDEST {
        true => Fine(format!("{major}.{minor}")),
        false => Missing(format!("kernel {major}.{minor} is too old"), "it needs 5.12 or newer"),
    }
}

fn namespaces(facts: &Facts) -> Verdict {
    const NEEDED: [&str; 5] = ["net", "mnt", "pid", "ipc", "uts"];
    let has = |name: &str| facts.namespaces.iter().any(|found| found == name);
    let lacks: Vec<&str> = NEEDED.into_iter().filter(|name| !has(name)).collect();
    if !lacks.is_empty() {
        let what = format!("the kernel has no namespaces of kind {}", lacks.join(", "));
        return Missing(
            what,
            "it needs CONFIG_NET_NS, CONFIG_PID_NS, CONFIG_IPC_NS and CONFIG_UTS_NS",
        );
    }
    match has("user") {
        true => Fine("all kinds".into()),
        false => Wanting(
            "no user namespaces: pods with hostUsers: false do not start".into(),
            "it needs CONFIG_USER_NS",
        ),
    }
}

fn control_groups(facts: &Facts) -> Verdict {
    let groups = &facts.control_groups;
    if groups.version.is_empty() {
        return Missing(
            "no control groups are mounted at /sys/fs/cgroup".into(),
            "mount them with `mount -t cgroup2 none /sys/fs/cgroup`",
        );
    }
    let has = |name: &str| groups.controllers.iter().any(|found| found == name);
    let lacks: Vec<&str> =
        ["cpu", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    match lacks.is_empty() {
        true => Fine(format!("{} with {}", groups.version, groups.controllers.join(" "))),
        false => Wanting(
            format!("no limits of {}: the kernel has no such controller", lacks.join(", ")),
            "add `cgroup_enable=memory` (or the like) to the kernel's command line",
        ),
    }
}

fn network(facts: &Facts) -> Verdict {
    if let Some(error) = &facts.network_error {
        return Missing(
            format!("no network namespace can be made here: {error}"),
            "it needs CONFIG_NET_NS, and the right to make one",
        );
    }
    let lacks: Vec<String> = facts
        .network
        .iter()
        .filter_map(|(name, option, error)| Some(format!("{name} ({option}): {}", error.as_ref()?)))
        .collect();
    match lacks.is_empty() {
        true => Fine("bridges, pairs of links, tunnels and packet rules work".into()),
        // With another pod network and another proxy a node can do without.
        false => Wanting(
            format!("the kernel refuses {}", lacks.join("; ")),
            "load the module, or build the kernel with the option that is named",
        ),
    }
}

/// Nobody needs it but who asks for it (`up::preflight`).
fn encryption(facts: &Facts) -> Verdict {
    match &facts.encryption_error {
        None => Fine("between nodes, if they are started with --encrypt".into()),
        Some(error) => Wanting(
            format!("no WireGuard, so nothing starts here with --encrypt: {error}"),
            "where it is wanted, load it with `modprobe wireguard`, or use a kernel with CONFIG_WIREGUARD",
        ),
    }
}

fn file_systems(facts: &Facts) -> Verdict {
    let has = |name: &str| facts.file_systems.iter().any(|found| found == name);
    match has("overlay") {
        true => Fine("overlay".into()),
        false => Wanting(
            "no overlay file system: each container gets a copy of its image".into(),
            "load it with `modprobe overlay`",
        ),
    }
}

fn ports(facts: &Facts) -> Verdict {
    let taken: Vec<String> = facts.taken_ports.iter().map(u16::to_string).collect();
    match taken.is_empty() {
        true => Fine("free".into()),
        false => Wanting(
            format!("taken: {}", taken.join(", ")),
            "if a cluster runs here already `skiff status` says how it is; else stop whoever has them",
        ),
    }
}

fn clock(facts: &Facts) -> Verdict {
    match (facts.year >= 2026, facts.is_clock_synchronized) {
        (false, _) => Wanting(
            format!("the clock says it is {}: no certificate would be believed", facts.year),
            "set it, and keep it right with chrony or systemd-timesyncd",
        ),
        (true, false) => Wanting(
            "nobody keeps the clock right".into(),
            "with more than one machine run chrony or systemd-timesyncd",
        ),
        (true, true) => Fine("synchronized".into()),
    }
}

const GIB: u64 = 1 << 30;

fn disk(facts: &Facts) -> Verdict {
    let free = facts.free_disk;
    let text =
        format!("{:.1} GiB free below {}", free as f64 / GIB as f64, facts.data_dir.display());
    match free {
        0..GIB => Missing(text, "make room: images and logs need more than that"),
        _ if free < 5 * GIB => Wanting(text, "make room: images take gigabytes soon"),
        _ => Fine(text),
    }
}

fn memory(facts: &Facts) -> Verdict {
    let text = format!("{} MiB", facts.memory >> 20);
    match facts.memory < GIB / 4 {
        true => Wanting(text, "with so little few pods run: 512 MiB are a beginning"),
        false => Fine(text),
    }
}

/// Every pod's log that somebody follows, and many programs in pods, take one.
fn watches(facts: &Facts) -> Verdict {
    let instances = facts.inotify_instances;
    match instances < 512 {
        true => Wanting(
            format!("{instances} per user"),
            "raise it with `sysctl -w fs.inotify.max_user_instances=8192`",
        ),
        false => Fine(format!("{instances} per user")),
    }
}

fn others(facts: &Facts) -> Verdict {
    match facts.others.is_empty() {
        true => Fine("no other Kubernetes".into()),
        false => Wanting(
            format!("something of another Kubernetes is here: {}", facts.others.join(", ")),
            "remove it first, or use other folders and ports",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::facts::ControlGroups;
    use super::*;
    use expect_test::{Expect, expect};

    fn fit() -> Facts {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        Facts {
            is_root: true,
            may_make_users: true,
            kernel: (6, 1),
            namespaces: words("net mnt pid ipc uts user"),
            control_groups: ControlGroups { version: "v2", controllers: words("cpu memory pids") },
            network: vec![("bridges", "CONFIG_BRIDGE", None)],
            network_error: None,
            encryption_error: None,
            file_systems: words("ext4 overlay"),
            taken_ports: Vec::new(),
            year: 2026,
            is_clock_synchronized: true,
            data_dir: "/var/lib/skiff".into(),
            free_disk: 80 * GIB,
            memory: 8 * GIB,
            inotify_instances: 8192,
            others: Vec::new(),
        }
    }

    fn check(change: impl FnOnce(&mut Facts), expected: Expect) {
        let mut facts = fit();
        change(&mut facts);
        let all: Vec<_> = ROWS.iter().map(|row| (row.name, (row.look)(&facts))).collect();
        let bad: Vec<_> =
            all.into_iter().filter(|(_, verdict)| !matches!(verdict, Fine(_))).collect();
        expected.assert_eq(&page(&bad));
    }

    #[test]
    fn a_fit_machine_has_no_trouble() {
        check(|_| {}, expect![[""]]);
        assert_eq!(trouble(&fit()), None);
    }

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        check(
            |facts| facts.is_root = false,
            expect![[r#"
                ! user            not root: the cluster is this user's own, without what only root may do
                                  → run `sudo skiff up` for limits, other users and low ports, or read docs/rootless.md
            "#]],
        );
        check(
            |facts| (facts.is_root, facts.may_make_users) = (false, false),
            expect![[r#"
                ✗ user            only root can run containers here: users may not make namespaces
                                  → run `sudo skiff up`, or let users make them with `sysctl -w user.max_user_namespaces=10000`
            "#]],
        );
        check(
            |facts| {
                facts.kernel = (4, 19);
                facts.control_groups = ControlGroups::default();
                facts.namespaces.retain(|name| name != "net");
            },
            expect![[r#"
                ✗ kernel          kernel 4.19 is too old
                                  → it needs 5.12 or newer
                ✗ namespaces      the kernel has no namespaces of kind net
                                  → it needs CONFIG_NET_NS, CONFIG_PID_NS, CONFIG_IPC_NS and CONFIG_UTS_NS
                ✗ control groups  no control groups are mounted at /sys/fs/cgroup
                                  → mount them with `mount -t cgroup2 none /sys/fs/cgroup`
            "#]],
        );
        let facts = Facts { free_disk: 7, ..fit() };
        assert_eq!(
            trouble(&facts).as_deref(),
            Some(
                "0.0 GiB free below /var/lib/skiff: make room: images and logs need more than that"
            )
        );
    }

    #[test]
    fn what_is_only_wanting_stops_nobody() {
        let change = |facts: &mut Facts| {
            facts.file_systems.clear();
            facts.taken_ports = vec![6443, 10250];
            facts.is_clock_synchronized = false;
            facts.network = vec![("tunnels between nodes", "CONFIG_VXLAN", Some("no".into()))];
            facts.encryption_error = Some("no".into());
            facts.others = vec!["/etc/kubernetes/admin.conf".into()];
        };
        check(
            change,
            expect![[r#"
                ! network         the kernel refuses tunnels between nodes (CONFIG_VXLAN): no
                                  → load the module, or build the kernel with the option that is named
                ! encryption      no WireGuard, so nothing starts here with --encrypt: no
                                  → where it is wanted, load it with `modprobe wireguard`, or use a kernel with CONFIG_WIREGUARD
                ! file systems    no overlay file system: each container gets a copy of its image
                                  → load it with `modprobe overlay`
                ! ports           taken: 6443, 10250
                                  → if a cluster runs here already `skiff status` says how it is; else stop whoever has them
                ! clock           nobody keeps the clock right
                                  → with more than one machine run chrony or systemd-timesyncd
                ! others          something of another Kubernetes is here: /etc/kubernetes/admin.conf
                                  → remove it first, or use other folders and ports
            "#]],
        );
        let mut facts = fit();
        change(&mut facts);
        assert_eq!(trouble(&facts), None);
    }
}
