use super::*;
use crate::testing;
use expect_test::{Expect, expect};

fn phase_in(world: &str) -> String {
    status(world, &[]).phase.unwrap()
}

fn status(world: &str, waiting: &[(&str, &str)]) -> PodStatus {
    let world = testing::world(world);
    let waiting = waiting
        .iter()
        .map(|(name, reason)| (String::from(*name), (String::from(*reason), "why".to_owned())));
    let look = Look {
        pod: &world.pod,
        found: &world.found,
        probed: &world.probed,
        waiting: &waiting.collect(),
        failed: None,
        disrupted: None,
        resize_pending: None,
        resizing: None,
        host_ips: &["10.1.1.1".parse().unwrap()],
        runtime_name: "skiff",
        now: testing::at(world.now),
    };
    generate(&look)
}

fn check(world: &str, waiting: &[(&str, &str)], expected: Expect) {
    let status = status(world, waiting);
    let mut text = status.phase.unwrap();
    for condition in status.conditions.unwrap() {
        if condition.status == "True" {
            text += &format!(" {}", condition.type_);
        }
    }
    let all = status.init_container_statuses.into_iter().chain(status.container_statuses);
    for one in all.flatten() {
        let show = |state: Option<ContainerState>| match state.unwrap_or_default() {
            ContainerState { running: Some(_), .. } => "running".to_owned(),
            ContainerState { waiting: Some(waiting), .. } => waiting.reason.unwrap(),
            ContainerState { terminated: Some(end), .. } => {
                format!("{}={}", end.reason.unwrap(), end.exit_code)
            }
            _ => "-".to_owned(),
        };
        text += &format!(
            "\n{} {} last {} restarts {}",
            one.name,
            show(one.state),
            show(one.last_state),
            one.restart_count
        );
        text += if one.ready { " ready" } else { "" };
    }
    expected.assert_eq(&text);
}

#[test]
fn a_new_pod_is_pending() {
    check(
        "container web",
        &[],
        expect![[r#"
            Pending Initialized PodScheduled
            web ContainerCreating last - restarts 0"#]],
    );
}

#[test]
fn a_pod_that_is_taken_away_ends_whatever_it_was_about_to_do() {
    for (world, phase) in [
        ("pod deleting\ncontainer web", "Failed"),
        ("pod deleting\ncontainer web\nsandbox s0 ready", "Failed"),
        ("pod deleting\ninit a\ncontainer web\nsandbox s0 ready\nfound a s0 exited=0", "Failed"),
        ("pod deleting\ncontainer web\nsandbox s0 ready\nfound web s0 running", "Running"),
        // The policy is to begin again, yet nothing does.
        ("pod deleting\ncontainer web\nsandbox s0 not\nfound web s0 exited=137", "Failed"),
        ("pod deleting\ncontainer web\nsandbox s0 not\nfound web s0 exited=0", "Succeeded"),
        ("container web\nsandbox s0 not\nfound web s0 exited=0", "Running"),
    ] {
        assert_eq!(phase_in(world), phase, "{world}");
    }
}

#[test]
fn init_containers_hold_it_back() {
    check(
        "init a\ncontainer web\nsandbox s0 ready\nfound a s0 running",
        &[],
        expect![[r#"
            Pending PodReadyToStartContainers PodScheduled
            a running last - restarts 0
            web PodInitializing last - restarts 0"#]],
    );
    check(
        "pod restart=Never\ninit a\ncontainer web\nsandbox s0 not\nfound a s0 exited=1",
        &[],
        expect![[r#"
            Failed PodScheduled
            a Error=1 last - restarts 0
            web PodInitializing last - restarts 0"#]],
    );
}

#[test]
fn a_running_pod_is_ready_when_its_probes_say_so() {
    check(
        "container web\nsandbox s0 ready\nfound web s0 running",
        &[],
        expect![[r#"
            Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
            web running last - restarts 0 ready"#]],
    );
    check(
        "container web readiness\nsandbox s0 ready\nfound web s0 running",
        &[],
        expect![[r#"
            Running PodReadyToStartContainers Initialized PodScheduled
            web running last - restarts 0"#]],
    );
    check(
        "container web readiness\nsandbox s0 ready\nfound web s0 running ready",
        &[],
        expect![[r#"
            Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
            web running last - restarts 0 ready"#]],
    );
}

#[test]
fn what_crashes_is_running_and_says_how_it_ended() {
    check(
        "container web\nsandbox s0 ready\nfound web s0 exited=2\nfound web s0 exited=3",
        &[("web", "CrashLoopBackOff")],
        expect![[r#"
            Running PodReadyToStartContainers Initialized PodScheduled
            web CrashLoopBackOff last Error=3 restarts 1"#]],
    );
    check(
        "container web\nsandbox s0 ready\nfound web s0 exited=2\nfound web s0 running",
        &[],
        expect![[r#"
            Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
            web running last Error=2 restarts 1 ready"#]],
    );
}

#[test]
fn what_could_not_be_started_has_failed_unless_it_is_tried_again() {
    let world = |policy: &str| {
        format!("pod restart={policy}\ncontainer web\nsandbox s0 ready\nfound web s0 exited=128")
    };
    check(
        &world("Never"),
        &[("web", "RunContainerError")],
        expect![[r#"
            Failed PodReadyToStartContainers Initialized PodScheduled
            web Error=128 last - restarts 0"#]],
    );
    check(
        &world("OnFailure"),
        &[("web", "RunContainerError")],
        expect![[r#"
            Running PodReadyToStartContainers Initialized PodScheduled
            web RunContainerError last Error=128 restarts 0"#]],
    );
}

#[test]
fn what_has_ended_succeeded_or_failed() {
    check(
        "pod restart=Never\ncontainer a\ncontainer b\nsandbox s0 not\nfound a s0 exited=0\nfound b s0 exited=0",
        &[],
        expect![[r#"
            Succeeded Initialized PodScheduled
            a Completed=0 last - restarts 0
            b Completed=0 last - restarts 0"#]],
    );
    check(
        "pod restart=Never\ncontainer a\ncontainer b\nsandbox s0 not\nfound a s0 exited=0\nfound b s0 exited=9",
        &[],
        expect![[r#"
            Failed Initialized PodScheduled
            a Completed=0 last - restarts 0
            b Error=9 last - restarts 0"#]],
    );
}

#[test]
fn a_patch_holds_what_changed_and_takes_away_what_is_gone() {
    let old =
        PodStatus { pod_ip: Some("1".into()), reason: Some("r".into()), ..PodStatus::default() };
    let new = PodStatus {
        pod_ip: Some("2".into()),
        pod_ips: Some(vec![PodIP { ip: "2".into() }]),
        ..PodStatus::default()
    };
    let patch = patch("u", &old, &new).unwrap();
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "u"}, "status": {
            "podIP": "2", "podIPs": [{"ip": "2"}, {"$patch": "replace"}], "reason": null}})
    );
    assert_eq!(super::patch("u", &new, &new), None);
}

#[test]
fn what_a_condition_no_longer_says_is_unsaid() {
    let status = |reason: Option<&str>| PodStatus {
        conditions: Some(vec![PodCondition {
            type_: "Ready".to_owned(),
            status: if reason.is_some() { "False" } else { "True" }.to_owned(),
            reason: reason.map(str::to_owned),
            ..PodCondition::default()
        }]),
        ..PodStatus::default()
    };
    let patch = patch("u", &status(Some("ContainersNotReady")), &status(None)).unwrap();
    let expected = json!([{ "type": "Ready", "status": "True", "reason": null }]);
    assert_eq!(patch["status"]["conditions"], expected);
}

/// `STATUS REASON: MESSAGE` of a condition.
fn check_condition(world: &str, type_: &str, expected: &str) {
    let conditions = status(world, &[]).conditions.unwrap();
    let one = conditions.iter().find(|one| one.type_ == type_).unwrap();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let said = format!("{} {}: {}", one.status, text(&one.reason), text(&one.message));
    assert_eq!(said, expected, "{world}");
}

#[test]
fn what_others_have_to_say_first_is_waited_for() {
    let world = |more: &str| {
        format!(
            "pod gate=a\npod gate=b\ncontainer web\nsandbox s0 ready\nfound web s0 running\n{more}"
        )
    };
    check_condition(
        &world(""),
        "Ready",
        "False ReadinessGatesNotReady: corresponding condition of pod readiness gate \"a\" does not exist., \
         corresponding condition of pod readiness gate \"b\" does not exist.",
    );
    check_condition(
        &world("condition a=True\ncondition b=False"),
        "Ready",
        "False ReadinessGatesNotReady: the status of pod readiness gate \"b\" is not \"True\", but False",
    );
    check_condition(&world("condition a=True\ncondition b=True"), "Ready", "True : ");
    check_condition(&world(""), "ContainersReady", "True : ");
}

#[test]
fn what_says_the_same_is_not_written_again() {
    let status = |conditions: [&str; 2], allocated: Option<BTreeMap<_, _>>| PodStatus {
        conditions: Some(
            conditions
                .map(|type_| PodCondition { type_: type_.to_owned(), ..PodCondition::default() })
                .into(),
        ),
        allocated_resources: allocated,
        ..PodStatus::default()
    };
    let (one, other) = (status(["a", "b"], None), status(["b", "a"], Some(BTreeMap::new())));
    assert_eq!(patch("u", &one, &other), None);
    assert_eq!(patch("u", &other, &one), None);
}

#[test]
fn what_a_pod_lacks_to_start_containers_is_told() {
    let check = |world: &str, expected: Option<&str>| {
        let conditions = status(world, &[]).conditions.unwrap();
        let mut all = conditions.into_iter();
        let one = all.find(|one| one.type_ == "PodReadyToStartContainers").unwrap();
        assert_eq!(one.status, if expected.is_none() { "True" } else { "False" }, "{world}");
        assert_eq!(one.reason.as_deref(), expected.map(|_| "PodSandboxNotReady"), "{world}");
        assert_eq!(one.message.as_deref(), expected, "{world}");
    };
    check("container web", Some("no pod sandbox exists"));
    check("container web\nsandbox s0 ready", None);
    check("container web\nsandbox s0 not", Some("pod sandbox is not ready"));
    check(
        "container web\nsandbox s1 ready\nsandbox s0 ready",
        Some("multiple pod sandboxes are ready and need to be reconciled"),
    );
}
