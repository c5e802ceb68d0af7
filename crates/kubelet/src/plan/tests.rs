use super::*;
use crate::testing;
use expect_test::{Expect, expect};

/// The world as text (see [`testing::world`]); the plan as lines.
fn check(world: &str, expected: Expect) {
    check_world(&testing::world(world), expected);
}

fn check_world(world: &testing::World, expected: Expect) {
    let look = Look {
        pod: &world.pod,
        found: &world.found,
        probed: &world.probed,
        backoff: &world.backoff,
        ending: pod::is_deleting(&world.pod),
        enforcement: &resources::Enforcement { memory: 1 << 30, ..Default::default() },
        with_cpus: &BTreeSet::new(),
        now: testing::at(world.now),
    };
    let plan = plan(&look);
    let mut lines: Vec<String> = plan.steps.iter().map(line).collect();
    for Wait { container, until, delay, .. } in &plan.waits {
        let left = until.duration_since(look.now).as_secs();
        lines.push(format!("wait {container} {left}s of {}s", delay.as_secs()));
    }
    lines.extend(plan.is_over.then(|| "over".to_owned()));
    expected.assert_eq(&lines.join("\n"));
}

fn line(step: &Step) -> String {
    match step {
        Step::Kill { id, why, .. } => format!("kill {id} {why:?}"),
        Step::Resize { id, limits } => format!("resize {id} quota={}", limits.cpu_quota),
        Step::Remove { id, .. } => format!("remove {id}"),
        Step::StopSandbox { id } => format!("stop sandbox {id}"),
        Step::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
        Step::Start { container, restarts, .. } => format!("start {} {restarts}", container.name),
    }
}

#[test]
fn a_new_pod_gets_a_sandbox_first() {
    check("container web", expect!["create sandbox 0"]);
}

#[test]
fn then_all_its_containers() {
    check(
        "container web
         container log
         sandbox s0 ready",
        expect![[r#"
            start web 0
            start log 0"#]],
    );
}

#[test]
fn what_runs_is_left_alone() {
    check("container web\nsandbox s0 ready\nfound web s0 running", expect![""]);
}

#[test]
fn init_containers_come_one_after_another() {
    check("init a\ninit b\ncontainer web\nsandbox s0 ready", expect!["start a 0"]);
    check("init a\ninit b\ncontainer web\nsandbox s0 ready\nfound a s0 running", expect![""]);
    check(
        "init a\ninit b\ncontainer web\nsandbox s0 ready\nfound a s0 exited=0",
        expect!["start b 0"],
    );
    check(
        "init a\ninit b\ncontainer web\nsandbox s0 ready\nfound a s0 exited=0\nfound b s0 exited=0",
        expect!["start web 0"],
    );
}

#[test]
fn a_failed_init_container_is_tried_again_unless_it_must_not() {
    check("init a\ncontainer web\nsandbox s0 ready\nfound a s0 exited=1", expect!["start a 1"]);
    check(
        "pod restart=Never\ninit a\ncontainer web\nsandbox s0 ready\nfound a s0 exited=1",
        expect!["stop sandbox s0"],
    );
}

#[test]
fn a_sidecar_is_started_before_the_next_and_kept_running() {
    check("sidecar p\ninit a\ncontainer web\nsandbox s0 ready", expect!["start p 0"]);
    check(
        "sidecar p\ninit a\ncontainer web\nsandbox s0 ready\nfound p s0 running",
        expect!["start a 0"],
    );
    check(
        "pod restart=Never\nsidecar p\ncontainer web\nsandbox s0 ready\nfound p s0 exited=0\nfound web s0 running",
        expect!["start p 1"],
    );
}

#[test]
fn a_sidecar_whose_startup_probe_has_not_succeeded_is_waited_for() {
    check("sidecar p startup\ncontainer web\nsandbox s0 ready\nfound p s0 running", expect![""]);
    check(
        "sidecar p startup\ncontainer web\nsandbox s0 ready\nfound p s0 running started",
        expect!["start web 0"],
    );
}

#[test]
fn restart_policies() {
    check("container web\nsandbox s0 ready\nfound web s0 exited=0", expect!["start web 1"]);
    check(
        "pod restart=OnFailure\ncontainer web\nsandbox s0 ready\nfound web s0 exited=3",
        expect!["start web 1"],
    );
    check(
        "pod restart=OnFailure\ncontainer web\nsandbox s0 ready\nfound web s0 exited=0",
        expect!["stop sandbox s0"],
    );
    check(
        "pod restart=Never\ncontainer web\nsandbox s0 not\nfound web s0 exited=3",
        expect!["over"],
    );
    // One of two goes on.
    check(
        "pod restart=Never\ncontainer web\ncontainer log\nsandbox s0 ready\nfound web s0 exited=3\nfound log s0 running",
        expect![""],
    );
}

#[test]
fn what_crashes_waits_longer_each_time() {
    check(
        "container web\nsandbox s0 ready\nfound web s0 exited=1 at=100\ncrashed web at=90\nnow 104",
        expect!["wait web 6s of 10s"],
    );
    check(
        "container web\nsandbox s0 ready\nfound web s0 exited=1 at=100\ncrashed web at=90\nnow 110",
        expect!["start web 1"],
    );
}

#[test]
fn probes_kill() {
    check(
        "container web\nsandbox s0 ready\nfound web s0 running dead",
        expect!["kill web-0 NotLive"],
    );
}

#[test]
fn another_image_replaces_the_container() {
    check(
        "container web\nsandbox s0 ready\nfound web s0 running changed",
        expect![[r#"
            kill web-0 Changed
            start web 1"#]],
    );
}

#[test]
fn a_sandbox_that_died_is_made_again_and_everything_in_it() {
    check(
        "init a\ncontainer web\nsandbox s0 not\nfound a s0 exited=0\nfound web s0 exited=255",
        expect!["create sandbox 1"],
    );
    check(
        "init a\ncontainer web\nsandbox s1 ready\nsandbox s0 not\nfound a s0 exited=0\nfound web s0 exited=255",
        expect!["start a 1"],
    );
}

#[test]
fn a_deleted_pod_ends_sidecars_last_and_in_reverse() {
    let pod = "pod deleting\nsidecar p\nsidecar q\ncontainer web\nsandbox s0 ready";
    check(
        &format!("{pod}\nfound p s0 running\nfound q s0 running\nfound web s0 running"),
        expect!["kill web-0 Ending"],
    );
    check(
        &format!("{pod}\nfound p s0 running\nfound q s0 running\nfound web s0 exited=0"),
        expect!["kill q-0 Ending"],
    );
    check(
        &format!("{pod}\nfound p s0 running\nfound q s0 exited=0\nfound web s0 exited=0"),
        expect!["kill p-0 Ending"],
    );
    check(&format!("{pod}\nfound p s0 exited=0"), expect!["stop sandbox s0"]);
    check("pod deleting\ncontainer web\nsandbox s0 not", expect!["over"]);
}

#[test]
fn other_limits_are_set_or_need_a_restart() {
    let with = |policy: &str, expected: Expect| {
        let mut world = testing::world("container web\nsandbox s0 ready\nfound web s0 running");
        let container = &mut world.pod.spec.as_mut().unwrap().containers[0];
        let limits =
            serde_json::json!({ "limits": { "cpu": "500m" }, "requests": { "cpu": "500m" } });
        container.resources = serde_json::from_value(limits).unwrap();
        let policy = serde_json::json!([{ "resourceName": "cpu", "restartPolicy": policy }]);
        container.resize_policy = serde_json::from_value(policy).unwrap();
        let was = cri::LinuxContainerResources {
            cpu_shares: 1024,
            cpu_quota: 100_000,
            ..Default::default()
        };
        world.found.containers[0].limits = Some(was);
        check_world(&world, expected);
        let now = resources::linux(
            &world.pod,
            &world.pod.spec.as_ref().unwrap().containers[0],
            &Default::default(),
        );
        world.found.containers[0].limits = Some(now);
        check_world(&world, expect![""]);
    };
    with("NotRequired", expect!["resize web-0 quota=50000"]);
    with(
        "RestartContainer",
        expect![[r#"
        kill web-0 Resized
        start web 1"#]],
    );
}

#[test]
fn all_begin_again_after_an_end_that_a_rule_names() {
    let mut world = testing::world(
        "pod restart=Never
         init prepare
         container web
         container log
         sandbox s0 ready
         found prepare s0 exited=0
         found web s0 exited=42
         found log s0 running",
    );
    let rules = serde_json::json!([{ "action": "RestartAllContainers",
        "exitCodes": { "operator": "In", "values": [42] } }]);
    let web = &mut world.pod.spec.as_mut().unwrap().containers[0];
    web.restart_policy_rules = serde_json::from_value(rules).unwrap();
    // The one that caused it goes last.
    check_world(
        &world,
        expect![[r#"
            remove log-0
            remove prepare-0
            remove web-0"#]],
    );
    world.found.containers.clear();
    check_world(&world, expect!["start prepare 0"]);
}

#[test]
fn a_container_of_its_own_processors_is_not_rationed() {
    let world = testing::world("container web\nsandbox s0 ready\nfound web s0 running");
    let mut world = world;
    let all = serde_json::json!({ "cpu": "2", "memory": "1Mi" });
    let web = &mut world.pod.spec.as_mut().unwrap().containers[0];
    web.resources =
        serde_json::from_value(serde_json::json!({ "limits": all, "requests": all })).unwrap();
    world.found.containers[0].limits = Some(cri::LinuxContainerResources {
        cpu_shares: 2048,
        cpu_quota: -1,
        memory_limit_in_bytes: 1 << 20,
        ..Default::default()
    });
    let look = |with_cpus: &BTreeSet<String>| {
        let look = Look {
            pod: &world.pod,
            found: &world.found,
            probed: &world.probed,
            backoff: &world.backoff,
            ending: false,
            enforcement: &resources::Enforcement::default(),
            with_cpus,
            now: testing::at(world.now),
        };
        plan(&look).steps.len()
    };
    assert_eq!(look(&BTreeSet::new()), 1);
    assert_eq!(look(&["web".to_owned()].into()), 0);
}
