//! The daemon dies; containers do not.
use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::machine::{Machine, until};

#[tokio::test(flavor = "multi_thread")]
async fn containers_logs_and_exit_codes_survive_the_daemon() {
    let mut machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let go = machine.path("go");
    std::fs::create_dir(&go).unwrap();
    let mount = |c: &mut ContainerConfig| {
        c.mounts = vec![Mount {
            container_path: "/go".to_owned(),
            host_path: go.display().to_string(),
            ..Mount::default()
        }];
    };
    let wait = "while ! test -e /go/FILE; do sleep 0.01; done; echo FILE seen; exit CODE";
    let command = |file: &str, code: &str| wait.replace("FILE", file).replace("CODE", code);
    let during = machine.run(&sandbox, &command("during", "11"), mount).await;
    let after = machine.run(&sandbox, &command("after", "12"), mount).await;
    let never = machine.create(&sandbox, "true", |_| {}).await.unwrap();

    machine.kill_daemon();
    std::fs::write(go.join("during"), "").unwrap();
    let record = machine.path("root/containers").join(&during).join("record");
    let ended = || std::fs::read_to_string(&record).unwrap().contains("Exited");
    until(|| async { ended().then_some(()) }).await;
    machine.start_daemon().await;

    let status = machine.status(&during).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 11));
    assert_eq!(machine.log(&status), "during seen");
    assert_eq!(machine.status(&after).await.state(), ContainerState::ContainerRunning);
    assert_eq!(machine.status(&never).await.state(), ContainerState::ContainerCreated);
    let seen = machine.exec(&after, &["echo", "still", "here"]).await;
    assert_eq!(seen.stdout, b"still here\n");
    machine.start(&never).await.unwrap();
    assert_eq!(machine.wait_exit(&never).await.exit_code, 0);

    std::fs::write(go.join("after"), "").unwrap();
    let status = machine.wait_exit(&after).await;
    assert_eq!((status.exit_code, machine.log(&status).as_str()), (12, "after seen"));
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_were_changed_in_place_are_known_to_the_next_daemon() {
    let mut machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.create(&sandbox, "true", |_| {}).await.unwrap();
    for cpu_shares in [256, 512] {
        let limits = LinuxContainerResources { cpu_shares, ..Default::default() };
        let request = UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(limits),
            ..Default::default()
        };
        machine.service.update_container_resources(request).await.unwrap();
    }
    machine.kill_daemon();
    machine.start_daemon().await;
    let limits = machine.status(&id).await.resources.and_then(|resources| resources.linux);
    assert_eq!(limits.unwrap().cpu_shares, 512);
    machine.start(&id).await.unwrap();
    assert_eq!(machine.wait_exit(&id).await.exit_code, 0);
    machine.finish().await;
}

/// As if the daemon had died while the shim found out that the container cannot start.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_cut_short_can_be_repeated() {
    let mut machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let command = "test -e /go/ahead/file && echo went";
    let go = machine.path("go");
    std::fs::create_dir(&go).unwrap();
    let id = machine
        .create(&sandbox, command, |c| {
            c.mounts = vec![Mount {
                container_path: "/go".to_owned(),
                host_path: go.display().to_string(),
                ..Mount::default()
            }];
            c.working_dir = "/go/ahead".to_owned();
        })
        .await
        .unwrap();
    // A file is no working directory: it fails after its root was mounted.
    std::fs::write(go.join("ahead"), "").unwrap();
    machine.start(&id).await.unwrap_err();
    machine.kill_daemon();
    let record = machine.path("root/containers").join(&id).join("record");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, &text[..text.find("{\"Exited").unwrap()]).unwrap();
    std::fs::remove_file(go.join("ahead")).unwrap();
    std::fs::create_dir(go.join("ahead")).unwrap();
    std::fs::write(go.join("ahead/file"), "").unwrap();
    machine.start_daemon().await;
    machine.start(&id).await.unwrap();
    let status = machine.wait_exit(&id).await;
    assert_eq!((status.exit_code, machine.log(&status).as_str()), (0, "went"));
    machine.finish().await;
}

/// As after a reboot: nothing runs, nothing is mounted, the state is gone.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_what_there_was_is_known_and_can_be_removed() {
    let mut machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let ended = machine.run(&sandbox, "exit 7", |_| {}).await;
    machine.wait_exit(&ended).await;
    let running = machine.run(&sandbox, "touch /written; sleep 1000", |_| {}).await;
    let created = machine.create(&sandbox, "true", |_| {}).await.unwrap();
    machine.reboot();
    // One that was being removed, and one that was being made.
    let left = machine.path("root/trash/left");
    std::fs::create_dir_all(left.join("upper")).unwrap();
    std::fs::create_dir_all(machine.path("root/containers/half/upper")).unwrap();
    std::fs::write(machine.path("root/sandboxes/half"), "\n{\"record").unwrap();
    machine.start_daemon().await;

    for (id, state, code) in [
        (&ended, ContainerState::ContainerExited, 7),
        (&running, ContainerState::ContainerExited, 255),
        (&created, ContainerState::ContainerCreated, 0),
    ] {
        let status = machine.status(id).await;
        assert_eq!((status.state(), status.exit_code), (state, code));
    }
    let list = machine.service.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await;
    let list: Vec<_> = list.unwrap().items.into_iter().map(|s| (s.id.clone(), s.state())).collect();
    assert_eq!(list, [(sandbox, PodSandboxState::SandboxNotready)]);
    machine.start(&created).await.unwrap_err();
    assert_eq!(std::fs::read_dir(machine.path("root/containers")).unwrap().count(), 3);
    machine.remove(&running).await;
    let trash = machine.path("root/trash");
    let emptied = || std::fs::read_dir(&trash).unwrap().count() == 0;
    until(|| async { emptied().then_some(()) }).await;
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_shim_is_noticed() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let request = ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let info = machine.service.container_status(request).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", info["pid"])).unwrap();
    let shim: i32 =
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let shim = rustix::process::Pid::from_raw(shim).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    let status = machine.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox, verbose: false };
    let status = machine.service.pod_sandbox_status(request).await.unwrap().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxNotready);
    machine.finish().await;
}
