//! Control groups as systemd names them, and what it is told of them: `/kubepods/burstable/podUID` is the slice
//! `kubepods-burstable-podUID.slice`, inside of those that its name says (`pkg/kubelet/cm`).
use crate::dbus::Property;
use runtime::cgroup::{Resources, weight};

const SLICE: &str = ".slice";
/// No limit, as systemd says it.
const INFINITY: u64 = u64::MAX;
/// The kernel's period of processor time, and the steps in which systemd counts shares of it: microseconds.
const PERIOD: u64 = 100_000;
const STEP: u64 = 10_000;
const SECOND: u64 = 1_000_000;

/// A path of groups as slices: `/a/kubepods` is `/a.slice/a-kubepods.slice`.
pub fn of(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(String::new(), |parent, part| inside(&parent, part))
}

/// A group in another: a slice, if that is one.
pub fn below(parent: &str, name: &str) -> String {
    match parent.ends_with(SLICE) {
        true => inside(parent, name),
        false => format!("{parent}/{name}"),
    }
}

/// What is between dashes is a slice's own name.
fn inside(parent: &str, name: &str) -> String {
    let name = name.replace('-', "_");
    match stem(parent) {
        Some(stem) => format!("{parent}/{stem}-{name}{SLICE}"),
        None => format!("{parent}/{name}{SLICE}"),
    }
}

fn stem(path: &str) -> Option<&str> {
    path.rsplit('/').next()?.strip_suffix(SLICE)
}

/// The unit that a group is, if it is one of systemd's, and the one that it is in.
pub fn unit(path: &str) -> Option<(String, String)> {
    let stem = stem(path)?;
    let parent = stem.rsplit_once('-').map_or("-", |(parent, _)| parent);
    Some((format!("{stem}{SLICE}"), format!("{parent}{SLICE}")))
}

/// The names of groups from the outside, whoever made them: `/a.slice/a-kubepods.slice` is `a`, `kubepods`.
pub fn names(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let name = |part: &str| match part.strip_suffix(SLICE) {
        Some(stem) => stem.rsplit('-').next().unwrap_or(stem).replace('_', "-"),
        None => part.to_owned(),
    };
    parts.map(name).collect()
}

/// What systemd has to know of limits: it writes them anew whenever it looks at its units, and what it does not
/// know it takes away.
pub fn properties(limits: &Resources, is_unified: bool) -> Vec<(&'static str, Property)> {
    let mut all = Vec::new();
    let mut add = |name, number: Option<u64>| {
        all.extend(number.map(|number| (name, Property::Long(number))));
    };
    let or_none = |limit: i64| u64::try_from(limit).ok().filter(|limit| *limit > 0);
    let most = |limit: Option<i64>| limit.map(|limit| or_none(limit).unwrap_or(INFINITY));
    if is_unified {
        add("MemoryMax", most(limits.memory));
        add("CPUWeight", limits.cpu_shares.map(weight));
        let files = [
            ("MemoryMin", "memory.min"),
            ("MemoryLow", "memory.low"),
            ("MemoryHigh", "memory.high"),
        ];
        for (name, file) in files {
            let text = limits.unified.get(file);
            add(name, text.map(|text| text.parse().unwrap_or(INFINITY)));
        }
    } else {
        add("MemoryLimit", most(limits.memory));
        add("CPUShares", limits.cpu_shares);
    }
    if let Some(quota) = limits.cpu_quota {
        let period = limits.cpu_period.filter(|period| *period > 0).unwrap_or(PERIOD);
        let each_second =
            or_none(quota).map(|quota| (quota * SECOND / period).next_multiple_of(STEP));
        add("CPUQuotaPeriodUSec", limits.cpu_period);
        add("CPUQuotaPerSecUSec", Some(each_second.unwrap_or(INFINITY)));
    }
    add("TasksMax", most(limits.pids));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_as_systemd_has_them() {
        let root = of("/my-own/kubepods");
        assert_eq!(root, "/my_own.slice/my_own-kubepods.slice");
        let class = below(&of("/kubepods"), "burstable");
        let pod = below(&class, "pod1234-abcd");
        assert_eq!(
            pod,
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice"
        );
        let unit = |path: &str| unit(path).unwrap_or_default();
        let pair = |unit: &str, parent: &str| (unit.to_owned(), parent.to_owned());
        assert_eq!(
            unit(&pod),
            pair("kubepods-burstable-pod1234_abcd.slice", "kubepods-burstable.slice")
        );
        assert_eq!(unit("/kubepods.slice"), pair("kubepods.slice", "-.slice"));
        assert_eq!(super::unit("/kubepods/podx"), None);
        assert_eq!(below("/kubepods", "podx-y"), "/kubepods/podx-y");
        for (path, expected) in [
            (root.as_str(), "my-own kubepods"),
            ("/my-own/kubepods", "my-own kubepods"),
            (&pod, "kubepods burstable pod1234-abcd"),
        ] {
            assert_eq!(names(path).join(" "), expected);
        }
    }

    /// `MemoryMax=5 TasksMax=max`
    fn check(limits: &Resources, is_unified: bool, expected: &str) {
        let shown =
            properties(limits, is_unified).into_iter().map(|(name, property)| match property {
                Property::Long(INFINITY) => format!("{name}=max"),
                Property::Long(number) => format!("{name}={number}"),
                other => format!("{name}={other:?}"),
            });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn systemd_knows_the_limits() {
        let limits = Resources {
            cpu_shares: Some(1024),
            cpu_period: Some(100_000),
            cpu_quota: Some(50_500),
            memory: Some(5),
            pids: Some(-1),
            unified: [("memory.high".to_owned(), "7".to_owned())].into(),
            ..Resources::default()
        };
        let quota = "CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=510000 TasksMax=max";
        check(&limits, true, &format!("MemoryMax=5 CPUWeight=100 MemoryHigh=7 {quota}"));
        check(&limits, false, &format!("MemoryLimit=5 CPUShares=1024 {quota}"));
        check(&Resources::default(), true, "");
        let free = Resources { cpu_quota: Some(-1), memory: Some(-1), ..Resources::default() };
        check(&free, true, "MemoryMax=max CPUQuotaPerSecUSec=max");
    }
}
