//! What was told of a container's probes is so until they say something else: a kubelet that was started again
//! takes no pod out of its services (`setReadyStateOnKubeletRestart` in upstream's
//! `pkg/kubelet/prober/prober_manager.go`).
use crate::found::Found;
use crate::plan::Probed;
use k8s_openapi::api::core::v1::PodStatus;

/// Takes up what was told of containers that still run and that have not been asked yet.
pub fn remembered(told: &PodStatus, found: &Found, probed: &mut Probed) {
    let lists = [&told.init_container_statuses, &told.container_statuses];
    for told in lists.into_iter().flatten().flatten() {
        let id = told.container_id.as_deref().and_then(|id| id.split_once("://"));
        let same = found.running().find(|one| id.is_some_and(|(_, id)| one.id == id));
        let Some(same) = same else { continue };
        if told.started == Some(true) {
            probed.started.entry(same.id.clone()).or_insert(true);
        }
        if told.ready {
            probed.ready.entry(same.id.clone()).or_insert(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use serde_json::json;

    /// What is known of `web` before and after.
    fn check(world: &str, told: (&str, bool, bool), expected: &str) {
        let mut world = testing::world(world);
        let (id, started, ready) = told;
        let told = json!({ "containerStatuses": [{ "name": "web", "image": "", "imageID": "",
            "restartCount": 0, "containerID": id, "started": started, "ready": ready }] });
        let told: PodStatus = serde_json::from_value(told).expect("a status");
        remembered(&told, &world.found, &mut world.probed);
        let Probed { started, ready, .. } = world.probed;
        assert_eq!(format!("started {started:?} ready {ready:?}"), expected);
    }

    #[test]
    fn what_was_told_of_the_same_container_is_so() {
        let world = "container web startup readiness\nsandbox s0 ready\nfound web s0 running";
        check(
            world,
            ("skiff://web-0", true, true),
            r#"started {"web-0": true} ready {"web-0": true}"#,
        );
        check(world, ("skiff://web-0", true, false), r#"started {"web-0": true} ready {}"#);
        check(world, ("skiff://web-9", true, true), "started {} ready {}");
        check(world, ("web-0", true, true), "started {} ready {}");
        let ended = "container web\nsandbox s0 ready\nfound web s0 exited=1";
        check(ended, ("skiff://web-0", true, true), "started {} ready {}");
    }
}
