use super::*;
use crate::testing::{after, check_row};
use client::testing::World as Server;
use expect_test::{Expect, expect};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use std::fmt::Write;

/// What a look comes to: the size, what the status says, and what was told.
fn check(world: &str, prepare: impl FnOnce(&Server), expect: Expect) {
    let mut out = String::new();
    after(&CONTROLLER, world, prepare, |server| {
        let size = server.get::<Deployment>("default", "web").map(|it| it.spec.replicas);
        let _ = writeln!(out, "size {:?}", size.flatten());
        let hpa = server.get::<HorizontalPodAutoscaler>("default", "h").expect("it is there");
        let status = hpa.status.clone().unwrap_or_default();
        let _ = writeln!(out, "{:?} -> {}", status.current_replicas, status.desired_replicas);
        for metric in status.current_metrics.iter().flatten() {
            let _ = writeln!(out, "metric {}", serde_json::to_string(metric).expect("JSON"));
        }
        for one in status.conditions.iter().flatten() {
            let (reason, text) = (one.reason.as_deref(), one.message.as_deref());
            let (reason, text) = (reason.unwrap_or_default(), text.unwrap_or_default());
            let _ = writeln!(out, "{} {} {reason}: {text}", one.type_, one.status);
        }
        for event in server.all::<Event>() {
            let (reason, text) = (event.reason.as_deref(), event.message.as_deref());
            let _ =
                writeln!(out, "event {} {}", reason.unwrap_or_default(), text.unwrap_or_default());
        }
    });
    expect.assert_eq(&out);
}

const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb";

fn cpu(percent: i32) -> String {
    let metrics = json!([{ "type": "Resource", "resource": { "name": "cpu",
        "target": { "type": "Utilization", "averageUtilization": percent } } }]);
    autoscaler(&metrics)
}

fn autoscaler(metrics: &serde_json::Value) -> String {
    format!(
        "horizontalpodautoscaler h spec.scaleTargetRef={} spec.minReplicas=1 spec.maxReplicas=10 spec.metrics={metrics}",
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" })
    )
}

/// Pods that ask for a whole processor and have long been ready.
fn pods(names: &[&str]) -> String {
    let containers = json!([{ "name": "c", "image": "i",
        "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }]);
    let pod = |name: &&str| {
        format!(
            "pod {name} ready status.startTime=2026-01-01T11:00:00Z spec.containers={containers}\n"
        )
    };
    names.iter().map(pod).collect()
}

fn usage(pods: &[(&str, &str)]) -> serde_json::Value {
    let item = |(name, cpu): &(&str, &str)| {
        json!({ "metadata": { "name": name, "namespace": "default" },
            "timestamp": "2026-01-01T11:59:50Z", "window": "30s",
            "containers": [{ "name": "c", "usage": { "cpu": cpu, "memory": "512Mi" } }] })
    };
    json!({ "kind": "PodMetricsList", "items": pods.iter().map(item).collect::<Vec<_>>() })
}

#[test]
fn busy_pods_get_company() {
    check(
        &format!("deployment web replicas=2 status.replicas=2\n{}\n{}", cpu(50), pods(&["a", "b"])),
        |server| server.page(PODS, usage(&[("a", "700m"), ("b", "900m")])),
        expect![[r#"
            size Some(4)
            Some(2) -> 4
            metric {"resource":{"current":{"averageUtilization":80,"averageValue":"800m"},"name":"cpu"},"type":"Resource"}
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 4
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            event SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target
        "#]],
    );
}

#[test]
fn within_the_tolerance_nothing_changes() {
    check(
        &format!("deployment web replicas=2 status.replicas=2\n{}\n{}", cpu(50), pods(&["a", "b"])),
        |server| server.page(PODS, usage(&[("a", "540m"), ("b", "540m")])),
        expect![[r#"
            size Some(2)
            Some(2) -> 2
            metric {"resource":{"current":{"averageUtilization":54,"averageValue":"540m"},"name":"cpu"},"type":"Resource"}
            AbleToScale True ReadyForNewScale: recommended size matches current size
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
        "#]],
    );
}

/// The first look counts what is there as recommended: nothing goes before five minutes.
#[test]
fn idle_pods_stay_for_the_window() {
    check(
        &format!("deployment web replicas=2 status.replicas=2\n{}\n{}", cpu(50), pods(&["a", "b"])),
        |server| server.page(PODS, usage(&[("a", "10m"), ("b", "10m")])),
        expect![[r#"
            size Some(2)
            Some(2) -> 2
            metric {"resource":{"current":{"averageUtilization":1,"averageValue":"10m"},"name":"cpu"},"type":"Resource"}
            AbleToScale True ScaleDownStabilized: recent recommendations were higher than current one, applying the highest recent recommendation
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
        "#]],
    );
}

#[test]
fn a_behaviour_may_shorten_the_window_and_limits_the_step() {
    let behavior = json!({ "scaleDown": { "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{ "type": "Pods", "value": 1, "periodSeconds": 60 }] } });
    check(
        &format!(
            "deployment web replicas=4 status.replicas=4\n{} spec.behavior={behavior}\n{}",
            cpu(50),
            pods(&["a", "b", "c", "d"])
        ),
        |server| {
            server.page(PODS, usage(&[("a", "10m"), ("b", "10m"), ("c", "10m"), ("d", "10m")]));
        },
        expect![[r#"
            size Some(3)
            Some(4) -> 3
            metric {"resource":{"current":{"averageUtilization":1,"averageValue":"10m"},"name":"cpu"},"type":"Resource"}
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 3
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)
            ScalingLimited True ScaleDownLimit: the desired replica count is decreasing faster than the maximum scale rate
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            event SuccessfulRescale New size: 3; reason: All metrics below target
        "#]],
    );
}

#[test]
fn pods_without_metrics_hold_it_back() {
    check(
        &format!(
            "deployment web replicas=3 status.replicas=3\n{}\n{}",
            cpu(50),
            pods(&["a", "b", "c"])
        ),
        |server| server.page(PODS, usage(&[("a", "900m"), ("b", "900m")])),
        expect![[r#"
            size Some(4)
            Some(3) -> 4
            metric {"resource":{"current":{"averageUtilization":90,"averageValue":"900m"},"name":"cpu"},"type":"Resource"}
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 4
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            event SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target
        "#]],
    );
}

#[test]
fn without_metrics_it_says_so() {
    check(
        &format!("deployment web replicas=2 status.replicas=2\n{}\n{}", cpu(50), pods(&["a", "b"])),
        |_| {},
        expect![[r#"
            size Some(2)
            Some(2) -> 0
            metric {"type":""}
            AbleToScale True SucceededGetScale: the HPA controller was able to get the target's current scale
            ScalingActive False FailedGetResourceMetric: the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: nothing is at /apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb
            event FailedGetResourceMetric failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: nothing is at /apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb
        "#]],
    );
    // A container that asks for nothing has no share.
    check(
        &format!(
            "deployment web replicas=1 status.replicas=1\n{}\npod a ready status.startTime=2026-01-01T11:00:00Z",
            cpu(50)
        ),
        |server| server.page(PODS, usage(&[("a", "10m")])),
        expect![[r#"
            size Some(1)
            Some(1) -> 0
            metric {"type":""}
            AbleToScale True SucceededGetScale: the HPA controller was able to get the target's current scale
            ScalingActive False FailedGetResourceMetric: the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu in container c of Pod a
            event FailedGetResourceMetric failed to get cpu utilization: missing request for cpu in container c of Pod a
        "#]],
    );
}

#[test]
fn metrics_of_every_kind_count() {
    let metrics = json!([
        { "type": "Pods", "pods": { "metric": { "name": "qps" },
            "target": { "type": "AverageValue", "averageValue": "100" } } },
        { "type": "Object", "object": { "metric": { "name": "hits" },
            "describedObject": { "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "i" },
            "target": { "type": "Value", "value": "1k" } } },
        { "type": "External", "external": {
            "metric": { "name": "queue", "selector": { "matchLabels": { "q": "x" } } },
            "target": { "type": "AverageValue", "averageValue": "10" } } },
        { "type": "ContainerResource", "containerResource": { "name": "memory", "container": "c",
            "target": { "type": "AverageValue", "averageValue": "1Gi" } } },
    ]);
    check(
        &format!(
            "deployment web replicas=2 status.replicas=2\n{}\n{}",
            autoscaler(&metrics),
            pods(&["a", "b"])
        ),
        |server| {
            let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
            let of_pod = |name: &str| {
                json!({ "describedObject": { "kind": "Pod", "name": name }, "value": "120",
                    "timestamp": "2026-01-01T11:59:50Z" })
            };
            server.page(
                &format!("{custom}/pods/*/qps?labelSelector=app%3Dweb"),
                json!({ "items": [of_pod("a"), of_pod("b")] }),
            );
            server.page(
                &format!("{custom}/ingresses.networking.k8s.io/i/hits"),
                json!({ "items": [{ "value": "1500" }] }),
            );
            server.page(
                "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue?labelSelector=q%3Dx",
                json!({ "items": [{ "value": "15" }, { "value": "20" }] }),
            );
            server.page(PODS, usage(&[("a", "1m"), ("b", "1m")]));
        },
        expect![[r#"
            size Some(4)
            Some(2) -> 4
            metric {"pods":{"current":{"averageValue":"120"},"metric":{"name":"qps"}},"type":"Pods"}
            metric {"object":{"current":{"value":"1500"},"describedObject":{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","name":"i"},"metric":{"name":"hits"}},"type":"Object"}
            metric {"external":{"current":{"averageValue":"17500m"},"metric":{"name":"queue","selector":{"matchLabels":{"q":"x"}}}},"type":"External"}
            metric {"containerResource":{"container":"c","current":{"averageValue":"512Mi"},"name":"memory"},"type":"ContainerResource"}
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 4
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from external metric queue(&LabelSelector{MatchLabels:map[string]string{q: x,},MatchExpressions:[]LabelSelectorRequirement{},})
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            event SuccessfulRescale New size: 4; reason: external metric queue(&LabelSelector{MatchLabels:map[string]string{q: x,},MatchExpressions:[]LabelSelectorRequirement{},}) above target
        "#]],
    );
}

const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue";

fn queue() -> serde_json::Value {
    json!([{ "type": "External", "external": { "metric": { "name": "queue" },
        "target": { "type": "Value", "value": "10" } } }])
}

#[test]
fn an_empty_queue_needs_nobody_and_a_full_one_wakes_it() {
    let behavior = json!({ "scaleDown": { "stabilizationWindowSeconds": 0 } });
    let world = |size: i32, more: &str| {
        format!(
            "deployment web replicas={size} status.replicas={size}\n{} spec.minReplicas=0 spec.behavior={behavior} {more}\n{}",
            autoscaler(&queue()),
            if size > 0 { pods(&["a"]) } else { String::new() }
        )
    };
    check(
        &world(1, ""),
        |server| server.page(QUEUE, json!({ "items": [{ "value": "0" }] })),
        expect![[r#"
            size Some(0)
            Some(1) -> 0
            metric {"external":{"current":{"value":"0"},"metric":{"name":"queue"}},"type":"External"}
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 0
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from external metric queue(nil)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
            ScaledToZero True ScaledToZero: the HPA controller scaled the workload to zero
            event SuccessfulRescale New size: 0; reason: All metrics below target
        "#]],
    );
    let zero = "status.conditions=[{\"type\":\"ScaledToZero\",\"status\":\"True\"}] status.desiredReplicas=0";
    check(
        &world(0, zero),
        |server| server.page(QUEUE, json!({ "items": [{ "value": "25" }] })),
        expect![[r#"
            size Some(3)
            Some(0) -> 3
            metric {"external":{"current":{"value":"25"},"metric":{"name":"queue"}},"type":"External"}
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 3
            ScalingActive True ValidMetricFound: the HPA was able to successfully calculate a replica count from external metric queue(nil)
            ScalingLimited False DesiredWithinRange: the desired count is within the acceptable range
            event SuccessfulRescale New size: 3; reason: external metric queue(nil) above target
        "#]],
    );
    // Somebody else has put it to rest.
    check(
        &world(0, ""),
        |_| {},
        expect![[r#"
        size Some(0)
        Some(0) -> 0
        AbleToScale True SucceededGetScale: the HPA controller was able to get the target's current scale
        ScalingActive False ScalingDisabled: scaling is disabled since the replica count of the target is zero
    "#]],
    );
}

#[test]
fn a_target_that_is_not_there_is_told() {
    check(
        &cpu(50),
        |_| {},
        expect![[r#"
        size None
        None -> 0
        AbleToScale False FailedGetScale: the HPA controller was unable to get the target's current scale: deployments.apps "web" not found
        event FailedGetScale deployments.apps "web" not found
    "#]],
    );
    check(
        &cpu(50).replace("\"Deployment\"", "\"Nonsense\""),
        |_| {},
        expect![[r#"
        size None
        None -> 0
        AbleToScale False FailedGetScale: the HPA controller was unable to get the target's current scale: no matches for kind "Nonsense" in group "apps"
        event FailedGetScale no matches for kind "Nonsense" in group "apps"
    "#]],
    );
}

#[test]
fn sizes_out_of_bounds_are_mended_first() {
    check(
        &format!("deployment web replicas=20 status.replicas=20\n{}", cpu(50)),
        |_| {},
        expect![[r#"
            size Some(10)
            Some(20) -> 10
            AbleToScale True SucceededRescale: the HPA controller was able to update the target scale to 10
            ScaledToZero False NotScaledToZero: the HPA controller did not scale the workload to zero
            event SuccessfulRescale New size: 10; reason: Current number of replicas above Spec.MaxReplicas
        "#]],
    );
}

#[test]
fn a_look_begins_with_the_scale() {
    check_row(
        &CONTROLLER,
        &format!("deployment web replicas=2\n{}", cpu(50)),
        &["default/h", "default/gone"],
        expect![[r#"
            try to get deployments.apps/scale web
            forget default/gone
            forget default/gone
        "#]],
    );
}
