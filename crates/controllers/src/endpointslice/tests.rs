use super::*;
use crate::testing::{check_row, check_slices};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_slices(&CONTROLLER, world, "default/web", expect);
}

const SERVICE: &str = "service web spec={\"clusterIP\":\"10.0.0.1\",\"selector\":{\"app\":\"web\"},\"ports\":[{\"name\":\"http\",\"port\":80,\"protocol\":\"TCP\",\"targetPort\":8080}]} label:team=a";

#[test]
fn pods_with_an_address_are_endpoints_ready_or_not() {
    check(
        &format!(
            "{SERVICE}
             node n label:topology.kubernetes.io/zone=z
             node m
             pod web-a ip=10.1.0.1 node=n ready
             pod web-b ip=10.1.0.2 node=n
             pod web-c ip=10.1.0.3 node=m ready deleting finalizers=x
             pod web-d node=m
             pod web-e ip=10.1.0.5 phase=Failed
             pod other ip=10.1.0.6 label:app=other"
        ),
        expect![[r#"
            create endpointslices.discovery.k8s.io web-
              "IPv4" {"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","team":"a"}
              [{"name":"http","port":8080,"protocol":"TCP"}]
              {"addresses":["10.1.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n","targetRef":{"kind":"Pod","name":"web-a","namespace":"default","uid":"web-a-uid"},"zone":"z"}
              {"addresses":["10.1.0.2"],"conditions":{"ready":false,"serving":false,"terminating":false},"nodeName":"n","targetRef":{"kind":"Pod","name":"web-b","namespace":"default","uid":"web-b-uid"},"zone":"z"}
              {"addresses":["10.1.0.3"],"conditions":{"ready":false,"serving":true,"terminating":true},"nodeName":"m","targetRef":{"kind":"Pod","name":"web-c","namespace":"default","uid":"web-c-uid"}}
        "#]],
    );
}

#[test]
fn a_service_without_endpoints_has_an_empty_slice() {
    check(
        SERVICE,
        expect![[r#"
        create endpointslices.discovery.k8s.io web-
          "IPv4" {"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","team":"a"}
          []
    "#]],
    );
    check("service web spec.clusterIP=None", expect![""]);
}

#[test]
fn headless_and_published_early() {
    check(
        "service web spec={\"clusterIP\":\"None\",\"publishNotReadyAddresses\":true,\"selector\":{\"app\":\"web\"}}
         pod web-a ip=10.1.0.1 spec.hostname=a spec.subdomain=web",
        expect![[r#"
            create endpointslices.discovery.k8s.io web-
              "IPv4" {"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","service.kubernetes.io/headless":""}
              []
              {"addresses":["10.1.0.1"],"conditions":{"ready":true,"serving":false,"terminating":false},"hostname":"a","targetRef":{"kind":"Pod","name":"web-a","namespace":"default","uid":"web-a-uid"}}
        "#]],
    );
}

#[test]
fn a_hundred_are_in_a_slice() {
    let mut world = SERVICE.to_owned();
    for i in 0..150 {
        world.push_str(&format!("\npod web-{i:03} ip=10.1.0.{i} ready"));
    }
    check_row(
        &CONTROLLER,
        &world,
        &["default/web"],
        expect![[r#"
        create endpointslices.discovery.k8s.io web-
        create endpointslices.discovery.k8s.io web-
    "#]],
    );
}

#[test]
fn what_is_right_is_left_alone_and_strangers_slices_too() {
    let labels = "label:kubernetes.io/service-name=web label:endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io";
    check_row(
        &CONTROLLER,
        &format!(
            "{SERVICE}
             pod web-a ip=10.1.0.1 ready
             endpointslice gone {labels} addressType=IPv6
             endpointslice strange label:kubernetes.io/service-name=web addressType=IPv4
             endpointslice here {labels} label:team=a addressType=IPv4 ports=[{{\"name\":\"http\",\"port\":8080,\"protocol\":\"TCP\"}}] endpoints=[{{\"addresses\":[\"10.1.0.1\"],\"conditions\":{{\"ready\":true,\"serving\":true,\"terminating\":false}},\"targetRef\":{{\"kind\":\"Pod\",\"namespace\":\"default\",\"name\":\"web-a\",\"uid\":\"web-a-uid\"}}}}]"
        ),
        &["default/web"],
        expect![[r#"
            delete endpointslices.discovery.k8s.io default/gone
        "#]],
    );
}

#[test]
fn close_endpoints_are_hinted_at() {
    let world = |distribution: &str| {
        format!(
            "service web spec.selector.app=web spec.clusterIP=10.0.0.1 spec.trafficDistribution={distribution}
             node n label:topology.kubernetes.io/zone=z
             pod a ip=10.0.0.2 node=n ready
             pod b ip=10.0.0.3 node=n"
        )
    };
    for distribution in ["PreferSameZone", "PreferSameNode"] {
        let mut hints = Vec::new();
        crate::testing::after(
            &CONTROLLER,
            &world(distribution),
            |_| {},
            |server| {
                for slice in server.all::<EndpointSlice>() {
                    let of = slice.endpoints.iter().flatten();
                    hints.extend(of.map(|it| serde_json::to_string(&it.hints).expect("JSON")));
                }
            },
        );
        hints.sort();
        let expected = match distribution {
            "PreferSameZone" => r#"{"forZones":[{"name":"z"}]}"#,
            _ => r#"{"forNodes":[{"name":"n"}],"forZones":[{"name":"z"}]}"#,
        };
        // One that is not ready is nobody's to prefer.
        assert_eq!(hints, ["null", expected]);
    }
}

#[test]
fn a_pod_whose_node_is_not_known_waits_for_it() {
    check_row(
        &CONTROLLER,
        &format!("{SERVICE}\n pod web-a ip=10.1.0.1 ready node=unknown"),
        &["default/web"],
        expect![[r#"
            create endpointslices.discovery.k8s.io web-
            fail Internal error occurred: skipping Pod web-a for Service default/web: Node unknown Not Found
        "#]],
    );
}

#[test]
fn zones_are_hinted_at_where_the_service_asks_for_it() {
    let node = |name: &str, zone: &str| {
        format!(
            "node {name} label:topology.kubernetes.io/zone={zone} status={{\"allocatable\":{{\"cpu\":\"4\"}},\"conditions\":[{{\"type\":\"Ready\",\"status\":\"True\"}}]}}\n"
        )
    };
    let mut world = format!(
        "{SERVICE} annotation:service.kubernetes.io/topology-mode=Auto\n{}{}",
        node("n", "a"),
        node("m", "b")
    );
    for (at, node) in ["n", "n", "n", "m"].iter().enumerate() {
        world += &format!("pod web-{at} ip=10.1.0.{at} ready node={node}\n");
    }
    let mut hints = Vec::new();
    crate::testing::after(
        &CONTROLLER,
        &world,
        |_| {},
        |server| {
            for slice in server.all::<EndpointSlice>() {
                let zones = slice.endpoints.iter().flatten().filter_map(|it| {
                    Some(it.hints.as_ref()?.for_zones.as_ref()?.first()?.name.clone())
                });
                hints.extend(zones);
            }
        },
    );
    hints.sort();
    assert_eq!(hints, ["a", "a", "b", "b"]);
}
