//! How groups are ordered, and versions within them: upstream's numbers
//! (`cmd/kube-apiserver/app/aggregator.go`, `pkg/controlplane/apiserver/aggregator.go`).

/// Group, version, priority of the group, of the version.
#[rustfmt::skip]
const PRIORITIES: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
    ("internal.apiserver.k8s.io", "v1alpha1", 16_000, 9),
    ("storagemigration.k8s.io", "v1", 15_800, 15),
    ("storagemigration.k8s.io", "v1beta1", 15_800, 9),
];

/// The group of APIServices themselves comes before all others.
pub const REGISTRATION: (&str, i64) = ("apiregistration.k8s.io", 20_001);

/// What definitions' groups and versions have.
pub const DEFINED: (i64, i64) = (1000, 100);

/// The priorities of a group and version that every server has.
pub fn of(group: &str, version: &str) -> Option<(i64, i64)> {
    let mut rows = PRIORITIES.iter();
    let row = rows.find(|row| row.0 == group && row.1 == version)?;
    Some((row.2, row.3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_group_has_its_place() {
        for (group, versions) in api::kinds::groups() {
            for version in versions {
                let has_one = of(group, version).is_some() || group == REGISTRATION.0;
                assert!(has_one, "{group}/{version}");
            }
        }
    }
}
