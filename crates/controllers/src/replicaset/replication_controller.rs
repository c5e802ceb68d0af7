//! A ReplicationController is a ReplicaSet that was there first.
use super::Replicated;
use crate::world::World;
use k8s_openapi::api::apps::v1::{
    ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus,
};
use k8s_openapi::api::core::v1::{
    Pod, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::borrow::Cow;
use std::sync::Arc;

impl Replicated for ReplicationController {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        let spec = self.spec.clone().unwrap_or_default();
        let selector = LabelSelector { match_labels: spec.selector, match_expressions: None };
        // One that selects nothing in particular would take every pod there is.
        let is_empty = selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty());
        let selector = if is_empty { nothing() } else { selector };
        Cow::Owned(ReplicaSet {
            metadata: self.metadata.clone(),
            spec: ReplicaSetSpec {
                min_ready_seconds: spec.min_ready_seconds,
                replicas: spec.replicas,
                selector,
                template: spec.template,
            },
            status: self.status.clone().map(set_status),
        })
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicationController {
        let condition = |it: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: it.last_transition_time,
            message: it.message,
            reason: it.reason,
            status: it.status.unwrap_or_default(),
            type_: it.type_.unwrap_or_default(),
        };
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        ReplicationController { status: Some(status), ..self.clone() }
    }

    fn related(&self, world: &World) -> Vec<Arc<Pod>> {
        world.controlled::<Pod>(self.metadata.uid.as_deref().unwrap_or_default())
    }
}

/// Two that exclude each other.
fn nothing() -> LabelSelector {
    let expression =
        |operator: &str| k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement {
            key: "nothing".to_owned(),
            operator: operator.to_owned(),
            values: None,
        };
    let both = vec![expression("Exists"), expression("DoesNotExist")];
    LabelSelector { match_labels: None, match_expressions: Some(both) }
}

fn set_status(status: ReplicationControllerStatus) -> ReplicaSetStatus {
    let condition = |it: ReplicationControllerCondition| ReplicaSetCondition {
        last_transition_time: it.last_transition_time,
        message: it.message,
        reason: it.reason,
        status: Some(it.status),
        type_: Some(it.type_),
    };
    ReplicaSetStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
        terminating_replicas: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::replicaset::REPLICATION_CONTROLLER;
    use crate::testing::{check_row, check_run};
    use expect_test::expect;

    const WEB: &str = "replicationcontroller web spec={\"replicas\":2,\"selector\":{\"app\":\"web\"},\"template\":{\"metadata\":{\"labels\":{\"app\":\"web\"}},\"spec\":{\"containers\":[]}}}";

    #[test]
    fn it_has_its_pods_and_comes_to_rest() {
        check_run(
            &REPLICATION_CONTROLLER,
            WEB,
            expect![[r#"
            create pods default/web-
            create pods default/web-
            update replicationcontrollers/status default/web
            create events default/web.1886999c36a18000
            create events default/web.1886999c36a18000
            update replicationcontrollers/status default/web
        "#]],
        );
        check_row(
            &REPLICATION_CONTROLLER,
            &format!(
                "{WEB}
                 pod a owner=replicationcontroller/web node=n ready
                 pod b owner=replicationcontroller/web phase=Pending
                 pod c owner=replicationcontroller/web node=n ready"
            ),
            &["default/web"],
            expect![[r#"
                delete pods default/b
                update replicationcontrollers/status web {"availableReplicas":2,"fullyLabeledReplicas":3,"observedGeneration":1,"readyReplicas":2,"replicas":3}
            "#]],
        );
    }

    #[test]
    fn one_that_selects_nothing_adopts_nothing() {
        check_row(
            &REPLICATION_CONTROLLER,
            "replicationcontroller web spec={\"replicas\":0}\n pod a",
            &["default/web"],
            expect![[r#"
                update replicationcontrollers/status web {"observedGeneration":1,"replicas":0}
            "#]],
        );
    }
}
