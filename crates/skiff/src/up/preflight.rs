//! What a machine must have, said before anything is touched: a sentence, and the remedy.
use std::path::Path;

/// A machine that is no node needs nothing.
pub fn check(is_node: bool) -> anyhow::Result<()> {
    if !is_node {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    if let Some(trouble) = trouble(is_root, &|path| Path::new(path).exists()) {
        anyhow::bail!("{trouble}");
    }
    Ok(())
}

/// The first thing that is missing.
fn trouble(is_root: bool, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let lacking = |what: &str, remedy: &str| Some(format!("{what}: {remedy}"));
    if !is_root {
        return lacking(
            "only root can run containers and set up their network",
            "run `sudo skiff up`, or leave the node out with --disable kubelet,proxy",
        );
    }
    if !exists("/proc/self/ns/net") {
        return lacking("the kernel has no network namespaces", "it needs CONFIG_NET_NS");
    }
    if !exists("/sys/fs/cgroup/cgroup.controllers") && !exists("/sys/fs/cgroup/memory") {
        return lacking(
            "no control groups are mounted at /sys/fs/cgroup",
            "mount them with `mount -t cgroup2 none /sys/fs/cgroup`",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        let check = |is_root, files: &[&str], expected: Option<&str>| {
            let found = trouble(is_root, &|path| files.contains(&path));
            assert_eq!(
                found.as_deref().map(|text| text.contains("`") || text.contains("CONFIG")),
                expected.map(|_| true),
                "{found:?}"
            );
            if let (Some(found), Some(expected)) = (found, expected) {
                assert!(found.starts_with(expected), "{found}");
            }
        };
        let (ns, v1, v2) =
            ("/proc/self/ns/net", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cgroup.controllers");
        check(true, &[ns, v1], None);
        check(true, &[ns, v2], None);
        check(false, &[ns, v2], Some("only root"));
        check(true, &[v2], Some("the kernel has no network namespaces"));
        check(true, &[ns], Some("no control groups"));
    }
}
