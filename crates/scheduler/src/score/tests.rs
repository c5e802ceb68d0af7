use super::{SCORES, normalize};
use crate::config::Profile;
use crate::filter::{Constraints, Cycle};
use crate::testing::{decider, now, pod};
use std::fmt::Write;

/// What a plugin says of each node, in their order: `a=100 b=0`; `-` if it says nothing.
fn check(plugin: &str, cluster: &str, pod_line: &str, expected: &str) {
    let row = SCORES.iter().find(|row| row.name == plugin).expect("a plugin");
    let mut decider = decider(cluster);
    decider.cluster.settle();
    let pod = pod(pod_line);
    let profile = decider.profiles[0].clone();
    let constraints = Constraints::of(&decider.cluster, &profile, &pod);
    let cycle = Cycle::new(&decider.cluster, &profile, &pod, constraints, now());
    let cycle = cycle.expect("a pod that may fit");
    let mut nodes: Vec<_> = decider.cluster.nodes().collect();
    nodes.sort_by_key(|node| node.node.name.clone());
    let mut said = String::new();
    match (row.score)(&cycle, &nodes) {
        None => said.push('-'),
        Some(scores) => {
            for (node, score) in nodes.iter().zip(scores) {
                write!(said, "{}={score} ", node.node.name).expect("a text");
            }
        }
    }
    assert_eq!(said.trim(), expected, "{plugin}: {pod_line} in\n{cluster}");
}

#[test]
fn weights_are_upstreams() {
    let profile = Profile::usual("default-scheduler");
    let scores = profile.scores.iter();
    let weights: Vec<_> =
        scores.map(|(at, weight)| (SCORES[usize::from(*at)].name, *weight)).collect();
    assert_eq!(
        weights,
        [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("VolumeBinding", 1),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ]
    );
}

#[test]
fn the_largest_is_the_best_or_the_worst() {
    for (scores, reverse, expected) in [
        ([1, 2, 4], false, [25, 50, 100]),
        ([1, 2, 4], true, [75, 50, 0]),
        ([0, 0, 0], false, [0, 0, 0]),
        ([0, 0, 0], true, [100, 100, 100]),
    ] {
        let mut scores = scores;
        normalize(&mut scores, reverse);
        assert_eq!(scores, expected);
    }
}

#[test]
fn taints_that_are_not_tolerated_count_against_a_node() {
    let cluster = r#"node a taints=[{"key":"k","effect":"PreferNoSchedule"},{"key":"l","effect":"PreferNoSchedule"}]
        node b taints=[{"key":"k","effect":"PreferNoSchedule"}]
        node c"#;
    check("TaintToleration", cluster, "p", "a=0 b=50 c=100");
    let tolerant = r#"p tolerations=[{"key":"k","operator":"Exists"}]"#;
    check("TaintToleration", cluster, tolerant, "a=0 b=100 c=100");
}

#[test]
fn preferred_nodes_are_preferred_by_weight() {
    let term = |weight: i64, value: &str| {
        format!(
            r#"{{"weight":{weight},"preference":{{"matchExpressions":[{{"key":"k","operator":"In","values":["{value}"]}}]}}}}"#
        )
    };
    let pod = format!(
        r#"p affinity={{"nodeAffinity":{{"preferredDuringSchedulingIgnoredDuringExecution":[{},{}]}}}}"#,
        term(10, "v"),
        term(5, "w")
    );
    let cluster = "node a labels.k=v\nnode b labels.k=w\nnode c";
    check("NodeAffinity", cluster, &pod, "a=100 b=50 c=0");
    check("NodeAffinity", cluster, "p", "-");
}

#[test]
fn nodes_with_more_left_are_better() {
    // Half of the processor and an eighth of the memory, with what a pod is taken to need.
    let cluster = "node a cpu=4 memory=8Gi\nnode b cpu=4 memory=8Gi\npod x node=a cpu=1 memory=0";
    check("NodeResourcesFit", cluster, "p cpu=1 memory=1Gi", "a=68 b=81");
    // Who asks for nothing counts for a little all the same.
    check("NodeResourcesFit", "node a cpu=1 memory=2000Mi", "p", "a=90");
}

#[test]
fn nodes_that_get_more_balanced_are_better() {
    let cluster = "node a cpu=4 memory=4Gi\nnode b cpu=4 memory=4Gi\npod x node=a cpu=2";
    check("NodeResourcesBalancedAllocation", cluster, "p memory=2Gi", "a=87 b=62");
    check("NodeResourcesBalancedAllocation", cluster, "p", "-");
}

#[test]
fn images_that_are_there_need_not_be_fetched() {
    let image = |size: i64| format!(r#"images=[{{"names":["web:latest"],"sizeBytes":{size}}}]"#);
    let cluster = format!("node a {}\nnode b", image(2_000_000_000));
    // Half of the nodes have it.
    check("ImageLocality", &cluster, "p image=web", "a=95 b=0");
    check("ImageLocality", &cluster, "p image=other", "-");
    let small = format!("node a {}\nnode b", image(1_000_000));
    check("ImageLocality", &small, "p image=web:latest", "a=0 b=0");
}

#[test]
fn pods_of_a_service_are_spread_over_nodes_and_zones() {
    let cluster = r#"node a zone=x
        node b zone=x
        node c zone=y
        service s selector={"app":"w"}
        pod 1 node=a labels.app=w"#;
    check("PodTopologySpread", cluster, "p labels.app=w", "a=66 b=88 c=100");
    check("PodTopologySpread", cluster, "p labels.app=v", "-");
}

#[test]
fn own_constraints_leave_nodes_without_the_label_for_last() {
    let pod = r#"p labels.app=w spread=[{"maxSkew":1,"topologyKey":"rack","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"w"}}}]"#;
    let cluster = "node a labels.rack=1\nnode b labels.rack=2\nnode c\npod 1 node=a labels.app=w";
    check("PodTopologySpread", cluster, pod, "a=0 b=100 c=0");
}

#[test]
fn pods_would_rather_be_near_others_or_far_from_them() {
    let term = |kind: &str| {
        format!(
            r#"affinity={{"{kind}":{{"preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":7,"podAffinityTerm":{{"topologyKey":"kubernetes.io/hostname","labelSelector":{{"matchLabels":{{"app":"w"}}}}}}}}]}}}}"#
        )
    };
    let cluster = "node a\nnode b\npod 1 node=a labels.app=w";
    check("InterPodAffinity", cluster, &format!("p {}", term("podAffinity")), "a=100 b=0");
    check("InterPodAffinity", cluster, &format!("p {}", term("podAntiAffinity")), "a=0 b=100");
    check("InterPodAffinity", cluster, "p", "-");
    // The other pod's wish counts as much.
    let wishing = format!("node a\nnode b\npod 1 node=b {}", term("podAffinity"));
    check("InterPodAffinity", &wishing, "p labels.app=w", "a=0 b=100");
}
