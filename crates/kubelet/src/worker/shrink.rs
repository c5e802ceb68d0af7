//! Memory that is in use is not taken away: with a limit below what they use, the kernel would end processes of a
//! container whose limit somebody only wanted to change (`validateMemoryResizeAction` in `pkg/kubelet/kuberuntime`).
use super::{Kubelet, SyncError};
use crate::admission;
use crate::found::{CONTAINER_NAME, Found};
use crate::plan::Step;
use crate::runtime::cri;
use crate::server::value;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use std::collections::HashMap;

/// A limit that is to be lower than it is, in bytes.
#[derive(Debug, PartialEq)]
struct Lower {
    /// Of which container, or of the pod.
    container: Option<String>,
    to: i64,
}

/// What a pod uses, in bytes: as a whole, and by container.
#[derive(Debug, Default)]
struct Used {
    whole: Option<u64>,
    containers: HashMap<String, u64>,
}

impl Kubelet {
    /// Before limits of containers change.
    pub(super) async fn may_shrink(
        &self,
        pod: &Pod,
        found: &Found,
        steps: &[Step],
    ) -> Result<(), SyncError> {
        self.hold_against_use(found, &lower(pod, found, steps)).await
    }

    /// Before the limit of a pod as a whole changes from what is known to be enforced.
    pub(super) async fn may_shrink_pod(
        &self,
        found: &Found,
        from: &ResourceRequirements,
        to: Option<&ResourceRequirements>,
    ) -> Result<(), SyncError> {
        let limit = |one: Option<&ResourceRequirements>| {
            let limits = one.and_then(|one| one.limits.as_ref());
            admission::amounts(limits).get("memory").copied().filter(|limit| *limit > 0)
        };
        let lower = match (limit(Some(from)), limit(to)) {
            (from, Some(to)) if from.is_none_or(|from| to < from) => {
                vec![Lower { container: None, to }]
            }
            _ => Vec::new(),
        };
        self.hold_against_use(found, &lower).await
    }

    async fn hold_against_use(&self, found: &Found, lower: &[Lower]) -> Result<(), SyncError> {
        if lower.is_empty() {
            return Ok(());
        }
        match self.used(found).await {
            // A runtime that measures no pods is trusted to mind what it is asked for.
            Err(SyncError::Runtime(error)) if error.code == "Unimplemented" => Ok(()),
            used => verdict(lower, &used?).map_err(SyncError::Other),
        }
    }

    async fn used(&self, found: &Found) -> Result<Used, SyncError> {
        let id = found.sandbox().map(|sandbox| sandbox.id.clone()).unwrap_or_default();
        let filter = cri::PodSandboxStatsFilter { id: id.clone(), ..Default::default() };
        let request = cri::ListPodSandboxStatsRequest { filter: Some(filter) };
        let stats = self.runtime.list_pod_sandbox_stats(request).await?.stats;
        let own =
            stats.into_iter().find(|one| one.attributes.as_ref().is_some_and(|one| one.id == id));
        let linux = own.and_then(|one| one.linux).unwrap_or_default();
        let bytes =
            |memory: Option<&cri::MemoryUsage>| memory.and_then(|one| value(&one.usage_bytes));
        let container = |one: &cri::ContainerStats| {
            let name = one.attributes.as_ref()?.labels.get(CONTAINER_NAME)?.clone();
            Some((name, bytes(one.memory.as_ref())?))
        };
        let containers = linux.containers.iter().filter_map(container).collect();
        Ok(Used { whole: bytes(linux.memory.as_ref()), containers })
    }
}

fn lower(pod: &Pod, found: &Found, steps: &[Step]) -> Vec<Lower> {
    let mut all = Vec::new();
    let mut change = 0;
    for step in steps {
        let Step::Resize { id, limits } = step else { continue };
        let Some(one) = found.containers.iter().find(|one| one.id == *id) else { continue };
        let has = one.limits.as_ref().map_or(0, |limits| limits.memory_limit_in_bytes.max(0));
        let to = limits.memory_limit_in_bytes.max(0);
        change += to - has;
        if to > 0 && (has == 0 || to < has) {
            all.push(Lower { container: Some(one.name.clone()), to });
        }
    }
    let whole = admission::limits(pod).get("memory").copied().filter(|limit| *limit > 0);
    if let Some(to) = whole.filter(|_| change < 0) {
        all.insert(0, Lower { container: None, to });
    }
    all
}

fn verdict(lower: &[Lower], used: &Used) -> Result<(), String> {
    let wrong: Vec<String> = lower
        .iter()
        .filter_map(|one| {
            let (what, used) = match &one.container {
                None => ("pod".to_owned(), used.whole),
                Some(name) => (format!("container {name:?}"), used.containers.get(name).copied()),
            };
            let Some(used) = used else { return Some(format!("missing {what} memory usage")) };
            (used >= one.to.unsigned_abs()).then(|| {
                format!(
                    "attempting to set {what} memory limit ({}) below current usage ({used})",
                    one.to
                )
            })
        })
        .collect();
    match &wrong[..] {
        [] => Ok(()),
        [one] => Err(format!("cannot decrease memory limits: {one}")),
        several => Err(format!("cannot decrease memory limits: [{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_not_taken_away() {
        let of =
            |container: Option<&str>, to| Lower { container: container.map(str::to_owned), to };
        let used = Used { whole: Some(60), containers: [("c".to_owned(), 50)].into() };
        let check = |lower: &[Lower], expected: Result<(), &str>| {
            let expected = expected.map_err(|why| format!("cannot decrease memory limits: {why}"));
            assert_eq!(verdict(lower, &used), expected);
        };
        check(&[], Ok(()));
        check(&[of(Some("c"), 51), of(None, 61)], Ok(()));
        let container =
            r#"attempting to set container "c" memory limit (50) below current usage (50)"#;
        check(&[of(Some("c"), 50)], Err(container));
        let both = format!(
            "[attempting to set pod memory limit (55) below current usage (60), {container}]"
        );
        check(&[of(None, 55), of(Some("c"), 50)], Err(&both));
        check(&[of(Some("d"), 50)], Err(r#"missing container "d" memory usage"#));
    }
}
