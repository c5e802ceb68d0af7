//! The same as slices, in the older form: one object for each service.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::endpointslice::endpoint::{self, Group};
use crate::endpointslice::{HEADLESS, selector, services_of};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

pub const CONTROLLER: Controller = Controller {
    name: "endpoints-controller",
    account: "endpoint-controller",
    workers: 5,
    watch,
    reconcile,
};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
/// Says that there are more addresses than the object has room for.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const CAPACITY: usize = 1000;

fn watch(on: &Watching) {
    on.objects::<Service>();
    on.each::<Pod>(services_of);
    on.each::<Endpoints>(|_, change| match change.latest() {
        Some(endpoints) if is_ours(endpoints) => vec![change.key.clone()],
        _ => Vec::new(),
    });
}

fn is_ours(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|manager| manager == MANAGER)
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let found = world.get::<Endpoints>(key);
    let Some(service) = world.get::<Service>(key) else {
        return found.filter(|it| is_ours(it)).iter().map(|it| Action::delete(&**it)).collect();
    };
    let selector = selector(&service);
    if selector.is_nothing() || service.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let family = endpoint::families(&service).swap_remove(0);
    let mut subsets: BTreeMap<Group, EndpointSubset> = BTreeMap::new();
    let mut all = world.in_namespace::<Pod>(&key.namespace);
    all.retain(|pod| pods::is_active(pod) && selector.matches(&pod.metadata.labels));
    all.sort_by_key(|pod| pod.metadata.name.clone());
    let is_over = all.len() > CAPACITY;
    let has_ports = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.ports.as_ref().is_some_and(|ports| !ports.is_empty()));
    for pod in all.iter().take(CAPACITY) {
        let group = Group::of(&service, pod, &family);
        let Some(address) = address(pod, &service, &family) else { continue };
        // None of the service's ports is one of the pod's.
        if has_ports && group.ports.is_empty() {
            continue;
        }
        let ports = group.ports.iter().map(|(name, number, protocol, app_protocol)| EndpointPort {
            name: Some(name.clone()).filter(|name| !name.is_empty()),
            port: *number,
            protocol: Some(protocol.clone()),
            app_protocol: app_protocol.clone(),
        });
        let ports: Vec<_> = ports.collect();
        let subset = subsets.entry(group).or_insert_with(|| EndpointSubset {
            ports: (!ports.is_empty()).then_some(ports),
            ..EndpointSubset::default()
        });
        let spec = service.spec.as_ref();
        let is_published = spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
        match is_published || pods::is_ready(pod) {
            true => subset.addresses.get_or_insert_default().push(address),
            false => subset.not_ready_addresses.get_or_insert_default().push(address),
        }
    }
    let subsets: Vec<_> = subsets.into_values().collect();
    let subsets = (!subsets.is_empty()).then_some(subsets);
    let labels = Some(labels(&service));
    match found {
        None => {
            let metadata = ObjectMeta {
                name: service.metadata.name.clone(),
                namespace: service.metadata.namespace.clone(),
                labels,
                annotations: annotations(None, is_over),
                ..ObjectMeta::default()
            };
            vec![Action::create(&Endpoints { metadata, subsets })]
        }
        Some(old) => {
            let mut new = Endpoints { subsets, ..(*old).clone() };
            new.metadata.labels = labels;
            new.metadata.annotations = annotations(new.metadata.annotations.take(), is_over);
            if new == *old { Vec::new() } else { vec![Action::update(&new)] }
        }
    }
}

fn address(pod: &Pod, service: &Service, family: &str) -> Option<EndpointAddress> {
    let endpoint = endpoint::of(pod, None, service, family)?;
    Some(EndpointAddress {
        ip: endpoint.addresses.into_iter().next()?,
        hostname: endpoint.hostname,
        node_name: endpoint.node_name,
        target_ref: endpoint.target_ref,
    })
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let cluster_ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    match cluster_ip.unwrap_or_default() {
        "" | "None" => labels.insert(HEADLESS.to_owned(), String::new()),
        _ => labels.remove(HEADLESS),
    };
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotations(
    old: Option<BTreeMap<String, String>>,
    is_over: bool,
) -> Option<BTreeMap<String, String>> {
    let mut annotations = old.unwrap_or_default();
    match is_over {
        true => annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned()),
        false => annotations.remove(OVER_CAPACITY),
    };
    (!annotations.is_empty()).then_some(annotations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_tree;
    use expect_test::expect;

    #[test]
    fn pods_are_addresses_by_whether_they_are_ready() {
        check_tree(
            &CONTROLLER,
            "service web spec.selector={\"app\":\"web\"} spec.clusterIP=10.96.0.7 spec.ports=[{\"port\":80,\"targetPort\":\"http\"}]
             pod a ip=10.0.0.1 node=n ready spec.containers=[{\"name\":\"c\",\"ports\":[{\"name\":\"http\",\"containerPort\":8080}]}]
             pod b ip=10.0.0.2 node=n spec.containers=[{\"name\":\"c\",\"ports\":[{\"name\":\"http\",\"containerPort\":8080}]}]
             pod c ip=10.0.0.3 node=n ready
             pod d ip=10.0.0.4 node=n ready phase=Failed",
            "default/web",
            "subsets",
            expect![[r#"
                create endpoints web
                  [{"addresses":[{"ip":"10.0.0.1","nodeName":"n","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"}}],"notReadyAddresses":[{"ip":"10.0.0.2","nodeName":"n","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"}}],"ports":[{"port":8080,"protocol":"TCP"}]}]
            "#]],
        );
    }

    #[test]
    fn those_of_a_service_that_is_gone_go_unless_they_are_somebody_elses() {
        let ours = "label:endpoints.kubernetes.io/managed-by=endpoint-controller";
        check_tree(
            &CONTROLLER,
            &format!("endpoints web {ours}"),
            "default/web",
            "",
            expect![[r#"
            delete endpoints default/web
        "#]],
        );
        check_tree(&CONTROLLER, "endpoints web", "default/web", "", expect![[""]]);
    }
}
