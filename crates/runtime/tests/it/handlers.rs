//! Sandboxes whose handler names another OCI runtime: everything that ours can, through Debian's
//! runc and crun. crun refuses machines with both kinds of control groups, so it gets one with v2
//! alone; there most of Debian's machines have no controllers to limit with, so limits are runc's.
use std::fs;

use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::containers::security;
use crate::machine::{Machine, Setup, until};
use crate::streams;

const RUNC: Setup = Setup { handler: "runc", unified: false, copied: false };
const CRUN: Setup = Setup { handler: "crun", unified: true, copied: false };

async fn lives(setup: Setup) {
    let mut machine = Machine::with(setup).await;
    let sandbox = machine.sandbox().await;
    let command = "echo out; echo err >&2; echo $FROM_IMAGE; hostname; id -u; id -G; exit 3";
    let id =
        machine.run(&sandbox, command, |c| security(c).run_as_username = "web".to_owned()).await;
    let status = machine.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    let log = machine.log(&status);
    for line in ["out", "err", "yes", "boxed", "1000", "1000 1234"] {
        assert!(log.lines().any(|found| found == line), "{line:?} is not in\n{log}");
    }
    let user = status.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (1000, 1000, vec![1000, 1234]));

    let wrong =
        machine.create(&sandbox, "", |c| c.command = vec!["nothere".to_owned()]).await.unwrap();
    let error = machine.start(&wrong).await.unwrap_err();
    assert!(error.message().contains("executable file"), "{error}");
    assert_eq!(machine.status(&wrong).await.reason, "StartError");

    let polite = "trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.05; done";
    let polite = machine.run(&sandbox, polite, |_| {}).await;
    let status = machine.status(&polite).await;
    until(|| async { machine.log(&status).contains("up").then_some(()) }).await;

    // The daemon dies and comes back: what runs, runs; exec and signals work as before.
    machine.kill_daemon();
    machine.start_daemon().await;
    assert_eq!(machine.status(&polite).await.state(), ContainerState::ContainerRunning);
    let seen = machine.exec(&polite, &["sh", "-c", "echo out; echo err >&2; exit 9"]).await;
    assert_eq!((seen.stdout, seen.stderr, seen.exit_code), (b"out\n".into(), b"err\n".into(), 9));
    machine.stop(&polite, 10).await;
    let status = machine.status(&polite).await;
    assert_eq!((status.exit_code, machine.log(&status).ends_with("bye")), (7, true));
    let deaf = machine.run(&sandbox, "trap '' TERM; while true; do sleep 1; done", |_| {}).await;
    machine.stop(&deaf, 1).await;
    assert_eq!(machine.status(&deaf).await.exit_code, 137);
    machine.finish().await;
}

async fn has_terminals(setup: Setup) {
    let machine = Machine::with(setup).await;
    let sandbox = machine.sandbox().await;
    let id = machine
        .run(&sandbox, "tty; while read x; do echo got $x; done", |c| {
            (c.tty, c.stdin) = (true, true);
        })
        .await;
    let status = machine.status(&id).await;
    until(|| async { machine.log(&status).contains("/dev/pts/0").then_some(()) }).await;
    let request = AttachRequest {
        container_id: id.clone(),
        stdin: true,
        tty: true,
        stdout: true,
        stderr: false,
    };
    let url = machine.service.attach(request).await.unwrap().url;
    let mut socket = streams::connect(&url).await;
    streams::send(&mut socket, 0, b"typed\n").await;
    until(|| async { machine.log(&status).contains("got typed").then_some(()) }).await;

    let mut cmd = streams::words("sh -c");
    cmd.push("tty; read x; stty size; echo got $x; exit 4".to_owned());
    let request = ExecRequest {
        container_id: id.clone(),
        cmd,
        tty: true,
        stdin: true,
        stdout: true,
        stderr: false,
    };
    let url = machine.service.exec(request).await.unwrap().url;
    let mut socket = streams::connect(&url).await;
    streams::send(&mut socket, 4, br#"{"Width":123,"Height":45}"#).await;
    streams::send(&mut socket, 0, b"more\n").await;
    let [_, stdout, _, status] = streams::drain(socket).await;
    for part in ["/dev/pts/", "45 123", "got more"] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout:?}");
    }
    assert!(status.contains("\"4\""), "{status}");
    machine.finish().await;
}

async fn confines(setup: Setup) {
    let machine = Machine::with(setup).await;
    let sandbox = machine.sandbox().await;
    let volume = machine.path("volume");
    fs::create_dir_all(volume.join("inner")).unwrap();
    fs::write(volume.join("file"), "from the host").unwrap();
    let inner = volume.join("inner");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(&inner)
        .status()
        .unwrap();
    assert!(mounted.success());
    let command = "cat /v/file; echo; touch /v/new && echo wrote; touch /r/new || echo frozen; \
                   touch /r/inner/new || echo deeply; cat /i/etc/group | head -n 1; \
                   grep Seccomp: /proc/self/status | tr -d '\\t'; unshare -U true || echo filtered; \
                   cat /proc/kcore | head -c 1 | wc -c; touch /proc/sys/x || echo masked; \
                   grep CapEff /proc/self/status | tr -d '\\t'; ps | grep -c 'sleep 100[1]'";
    let other = machine.run(&sandbox, "sleep 1001", shared_pids).await;
    let (_, log) = machine
        .output(&sandbox, command, |c| {
            shared_pids(c);
            let security = security(c);
            security.seccomp = Some(SecurityProfile::default());
            security.capabilities = Some(Capability {
                add_capabilities: vec!["NET_ADMIN".to_owned()],
                drop_capabilities: vec!["ALL".to_owned()],
                add_ambient_capabilities: Vec::new(),
            });
            let mount = |to: &str, readonly| Mount {
                container_path: to.to_owned(),
                host_path: volume.display().to_string(),
                readonly,
                recursive_read_only: readonly,
                ..Mount::default()
            };
            let image = Mount {
                container_path: "/i".to_owned(),
                image: Some(ImageSpec {
                    image: crate::machine::IMAGE.to_owned(),
                    ..ImageSpec::default()
                }),
                readonly: true,
                ..Mount::default()
            };
            c.mounts = vec![mount("/v", false), mount("/r", true), image];
        })
        .await;
    let unmounted = std::process::Command::new("umount").arg(&inner).status().unwrap();
    assert!(unmounted.success());
    for line in [
        "from the host",
        "wrote",
        "frozen",
        "deeply",
        "root:x:0:",
        "Seccomp:2",
        "filtered",
        "0",
        "masked",
        "CapEff:0000000000001000",
        "1",
    ] {
        assert!(log.lines().any(|found| found == line), "{line:?} is not in\n{log}");
    }
    machine.stop(&other, 0).await;
    machine.finish().await;
}

fn shared_pids(config: &mut ContainerConfig) {
    security(config).namespace_options = Some(NamespaceOption::default());
}

macro_rules! with_both {
    ($($test:ident)*) => {
        mod runc { $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(super::RUNC).await })* }
        mod crun { $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(super::CRUN).await })* }
    };
}
with_both! { lives has_terminals confines }

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_changed_counted_and_enforced() {
    let machine = Machine::with(RUNC).await;
    let sandbox = machine.sandbox().await;
    let limits = |shares, memory| LinuxContainerResources {
        cpu_shares: shares,
        memory_limit_in_bytes: memory,
        ..LinuxContainerResources::default()
    };
    let id = machine
        .run(&sandbox, "sleep 1000", |c| {
            c.linux.as_mut().unwrap().resources = Some(limits(512, 64 << 20));
        })
        .await;
    let shares = || async {
        let seen = machine.exec(&id, &["cat", "/sys/fs/cgroup/cpu/cpu.shares"]).await;
        String::from_utf8_lossy(&seen.stdout).trim().to_owned()
    };
    assert_eq!(shares().await, "512");
    let request = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(limits(256, 0)),
        ..UpdateContainerResourcesRequest::default()
    };
    machine.service.update_container_resources(request).await.unwrap();
    assert_eq!(shares().await, "256");
    let request = ContainerStatsRequest { container_id: id.clone() };
    let stats = machine.service.container_stats(request).await.unwrap().stats.unwrap();
    assert!(stats.memory.unwrap().usage_bytes.unwrap().value > 0);
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    let hungry = machine
        .run(&sandbox, "dd if=/dev/zero of=/dev/null bs=64M", |c| {
            c.linux.as_mut().unwrap().resources = Some(limits(0, 16 << 20));
        })
        .await;
    let status = machine.wait_exit(&hungry).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_advertised_and_unknown_ones_refused() {
    let machine = Machine::with(RUNC).await;
    let status = machine.service.status(StatusRequest { verbose: false }).await.unwrap();
    let names: Vec<String> = status.runtime_handlers.into_iter().map(|h| h.name).collect();
    assert!(names.contains(&String::new()) && names.contains(&"runc".to_owned()), "{names:?}");
    let request = RunPodSandboxRequest {
        config: Some(PodSandboxConfig {
            metadata: Some(PodSandboxMetadata { name: "x".to_owned(), ..Default::default() }),
            ..PodSandboxConfig::default()
        }),
        runtime_handler: "other".to_owned(),
    };
    let error = Box::pin(machine.service.run_pod_sandbox(request)).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    machine.finish().await;
}
