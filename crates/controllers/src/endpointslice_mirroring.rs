//! Endpoints that somebody wrote by hand, for a service without a selector: the same as slices.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods::controller_ref;
use crate::world::World;
use api::names::NamespacedName;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub const CONTROLLER: Controller = Controller {
    name: "endpointslice-mirroring-controller",
    account: "endpointslicemirroring-controller",
    workers: 5,
    watch,
    reconcile,
};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Not mirrored: whose lock it is, and what is about the Endpoints object alone.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const OWN: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// Addresses of one subset: upstream's.
const MOST: usize = 1000;

fn watch(on: &Watching) {
    on.objects::<Endpoints>();
    on.objects::<Service>();
    on.each::<EndpointSlice>(|_, change| {
        let slices = change.old.iter().chain(&change.new);
        let mut keys: Vec<_> = slices.filter_map(|slice| endpoints_of(slice)).collect();
        keys.dedup();
        keys
    });
}

fn endpoints_of(slice: &EndpointSlice) -> Option<NamespacedName> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_ours = labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER);
    let name = labels.get(SERVICE_NAME).filter(|_| is_ours)?;
    Some(NamespacedName::new(slice.metadata.namespace.as_deref()?, name))
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let mut slices = world.in_namespace::<EndpointSlice>(&key.namespace);
    slices.retain(|slice| endpoints_of(slice).as_ref() == Some(key));
    slices.sort_by_key(|slice| slice.metadata.name.clone());
    let service = world.get::<Service>(key);
    let is_by_hand = service
        .is_some_and(|service| service.spec.as_ref().is_none_or(|spec| spec.selector.is_none()));
    let endpoints = world.get::<Endpoints>(key).filter(|it| is_by_hand && is_mirrored(it));
    let Some(endpoints) = endpoints else {
        return slices.iter().map(|slice| Action::delete(&**slice)).collect();
    };
    let (mut wanted, mut actions) = mirror(&endpoints);
    let mut gone = Vec::new();
    for old in slices {
        let at = wanted.iter().position(|new| is_same_group(new, &old));
        let Some(at) = at else {
            gone.push(Action::delete(&*old));
            continue;
        };
        let new = wanted.remove(at);
        let metadata = ObjectMeta {
            labels: new.metadata.labels,
            annotations: new.metadata.annotations,
            owner_references: new.metadata.owner_references,
            ..old.metadata.clone()
        };
        let new = EndpointSlice { metadata, ..new };
        if new != *old {
            actions.push(Action::update(&new));
        }
    }
    actions.extend(wanted.iter().map(Action::create));
    actions.extend(gone);
    actions
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let annotations = endpoints.metadata.annotations.as_ref();
    labels.and_then(|labels| labels.get(SKIP)).is_none_or(|skip| skip != "true")
        && annotations.is_none_or(|annotations| !annotations.contains_key(LEADER))
}

fn is_same_group(one: &EndpointSlice, other: &EndpointSlice) -> bool {
    let ports = |slice: &EndpointSlice| slice.ports.clone().unwrap_or_default();
    one.address_type == other.address_type && ports(one) == ports(other)
}

/// One slice for each subset and family, and what had to be left out.
fn mirror(endpoints: &Endpoints) -> (Vec<EndpointSlice>, Vec<Action>) {
    let mut slices: Vec<EndpointSlice> = Vec::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in endpoints.subsets.iter().flatten() {
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let mut mirrored = 0;
        for (address, is_ready) in ready.chain(unready) {
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                invalid += 1;
                continue;
            };
            if mirrored == MOST {
                skipped += 1;
                continue;
            }
            mirrored += 1;
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let new = empty(endpoints, subset, family);
            let at = slices.iter().position(|slice| is_same_group(slice, &new));
            let at = at.unwrap_or_else(|| {
                slices.push(new);
                slices.len() - 1
            });
            slices[at].endpoints.get_or_insert_default().push(endpoint(address, ip, is_ready));
        }
    }
    let mut told = Vec::new();
    let mut tell = |reason: &str, note: String| {
        told.push(Action::Record(Happening::warning(reference(endpoints), reason, note)));
    };
    if invalid > 0 {
        let note =
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        tell("InvalidIPAddress", note);
    }
    if skipped > 0 {
        let note = format!(
            "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {} \
             addresses were skipped",
            skipped + invalid
        );
        tell("TooManyAddressesToMirror", note);
    }
    (slices, told)
}

fn endpoint(address: &EndpointAddress, ip: IpAddr, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn empty(endpoints: &Endpoints, subset: &EndpointSubset, family: &str) -> EndpointSlice {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let annotations: BTreeMap<_, _> = endpoints.metadata.annotations.clone().unwrap_or_default();
    let annotations: BTreeMap<_, _> =
        annotations.into_iter().filter(|(key, _)| !OWN.contains(&&**key)).collect();
    EndpointSlice {
        address_type: family.to_owned(),
        endpoints: None,
        ports: Some(ports.collect()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![controller_ref(endpoints)]),
            ..ObjectMeta::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_run, check_slices};
    use expect_test::{Expect, expect};

    fn check(world: &str, expect: Expect) {
        check_slices(&CONTROLLER, world, "default/web", expect);
    }

    const ENDPOINTS: &str = "endpoints web subsets=[{\"addresses\":[{\"ip\":\"10.0.0.1\"},{\"ip\":\"fd00::1\"},{\"ip\":\"x\"}],\"notReadyAddresses\":[{\"ip\":\"10.0.0.2\"}],\"ports\":[{\"port\":80}]}]";

    #[test]
    fn what_was_written_by_hand_is_mirrored() {
        check(
            &format!("service web spec.clusterIP=None\n {ENDPOINTS}"),
            expect![[r#"
            event InvalidIPAddress Skipped 1 invalid IP addresses when mirroring to EndpointSlices
            create endpointslices.discovery.k8s.io web-
              "IPv4" {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"web"}
              [{"name":"","port":80,"protocol":"TCP"}]
              {"addresses":["10.0.0.1"],"conditions":{"ready":true}}
              {"addresses":["10.0.0.2"],"conditions":{"ready":false}}
            create endpointslices.discovery.k8s.io web-
              "IPv6" {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"web"}
              [{"name":"","port":80,"protocol":"TCP"}]
              {"addresses":["fd00::1"],"conditions":{"ready":true}}
        "#]],
        );
        check_run(
            &CONTROLLER,
            &format!("service web spec.clusterIP=None\n {ENDPOINTS}")
                .replace(",{\"ip\":\"x\"}", ""),
            expect![[r#"
                create endpointslices.discovery.k8s.io default/web-
                create endpointslices.discovery.k8s.io default/web-
            "#]],
        );
    }

    #[test]
    fn what_others_see_to_is_not() {
        let slice = "endpointslice web-1 addressType=IPv4 label:kubernetes.io/service-name=web label:endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io";
        for (service, endpoints) in [
            ("service web spec.selector.app=web", ENDPOINTS.to_owned()),
            ("service other", ENDPOINTS.to_owned()),
            ("service web", "service x".to_owned()),
            (
                "service web",
                format!("{ENDPOINTS} label:endpointslice.kubernetes.io/skip-mirror=\"true\""),
            ),
        ] {
            check(
                &format!("{service}\n {endpoints}\n {slice}"),
                expect![[r#"
                    delete endpointslices.discovery.k8s.io default/web-1
                "#]],
            );
        }
    }
}
