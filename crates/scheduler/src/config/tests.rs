use super::*;
use expect_test::{Expect, expect};

fn read(text: &str) -> Result<Configuration, String> {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    Configuration::read(format!("{head}{text}").as_bytes())
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&read(text).expect_err("it is refused"));
}

#[test]
fn an_empty_file_means_the_usual() {
    let found = read("").expect("a configuration");
    assert_eq!(*found.profiles[0], Profile::usual("default-scheduler"));
    assert_eq!((found.pod_initial_backoff.as_secs(), found.pod_max_backoff.as_secs()), (1, 10));
}

#[test]
fn profiles_differ_in_plugins_and_arguments() {
    let found = read(
        "percentageOfNodesToScore: 30
profiles:
- schedulerName: tight
  percentageOfNodesToScore: 80
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [e.com/x]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}, {name: e.com/gpu}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 0}
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
- schedulerName: plain
  plugins: {score: {disabled: [{name: '*'}]}}
",
    )
    .expect("a configuration");
    let [tight, plain] = &found.profiles[..] else { panic!("two profiles") };
    assert_eq!(tight.percentage_of_nodes_to_score, 80);
    assert_eq!(tight.args.fit.resources, [("cpu".into(), 3), ("e.com/gpu".into(), 1)]);
    let Strategy::Ratio(shape) = &tight.args.fit.strategy else { panic!("a ratio") };
    assert_eq!(shape.at(50), 50);
    assert_eq!(tight.args.hard_pod_affinity_weight, 0);
    assert!(matches!(&tight.args.default_spread, DefaultSpread::List(list) if list.len() == 1));
    assert_eq!((plain.percentage_of_nodes_to_score, plain.scores.len()), (30, 0));
}

#[test]
fn what_is_misspelt_is_not_read() {
    refused("profils: []", expect![[r#"strict decoding error: unknown field "profils""#]]);
    refused(
        "profiles: [{schedulerName: a, plugin: {}}]",
        expect![[r#"strict decoding error: unknown field "profiles[0].plugin""#]],
    );
    refused(
        "profiles: [{pluginConfig: [{name: DefaultPreemption, args: {x: 1}}]}]",
        expect![[
            r#"strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin DefaultPreemption: strict decoding error: unknown field "x""#
        ]],
    );
    refused(
        "profiles: [{pluginConfig: [{name: DefaultPreemption, args: {kind: NodeAffinityArgs}}]}]",
        expect![
            "decoding .profiles[0].pluginConfig[0]: args for plugin DefaultPreemption were not of type DefaultPreemptionArgs.kubescheduler.config.k8s.io, got NodeAffinityArgs.kubescheduler.config.k8s.io"
        ],
    );
    let old = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n";
    let said = Configuration::read(old.as_bytes()).expect_err("it is refused");
    assert!(said.starts_with(
        r#"no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3""#
    ));
}

#[test]
fn values_are_judged_in_upstreams_words() {
    refused(
        "parallelism: 0\npodInitialBackoffSeconds: 20",
        expect![
            "[parallelism: Invalid value: 0: should be an integer value greater than zero, podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds]"
        ],
    );
    refused(
        "profiles: [{schedulerName: a}, {}, {schedulerName: a}]",
        expect![[
            r#"[profiles[1].schedulerName: Required value, profiles[2].schedulerName: Duplicate value: "profiles[0].schedulerName"]"#
        ]],
    );
    refused(
        "profiles: [{pluginConfig: [{name: DefaultPreemption, args: {minCandidateNodesPercentage: 101}}]}]",
        expect![
            "profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"
        ],
    );
    refused(
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]}]",
        expect![[
            r#"profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: "Best": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio""#
        ]],
    );
    refused(
        "extenders: [{urlPrefix: 'http://a', prioritizeVerb: p, bindVerb: b}, {urlPrefix: 'http://b', bindVerb: b, managedResources: [{name: cpu}]}]",
        expect![[
            r#"[extenders[0].weight: Invalid value: 0: must have a positive weight applied to it, extenders[1].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name, extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind]"#
        ]],
    );
    refused(
        "leaderElection: {leaseDuration: 5s}",
        expect![[
            r#"leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`"#
        ]],
    );
}
