//! Containers from creation to removal, and what they see.
use std::fs;

use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::machine::{Machine, until};

pub fn security(config: &mut ContainerConfig) -> &mut LinuxContainerSecurityContext {
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_logs_and_ends() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine
        .run(&sandbox, "echo out; echo err >&2; echo $FROM_IMAGE $ADDED; hostname; exit 3", |c| {
            c.envs = vec![KeyValue { key: "ADDED".to_owned(), value: b"too".to_vec() }];
        })
        .await;
    let status = machine.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at >= status.created_at && status.finished_at >= status.started_at);
    let log = fs::read_to_string(&status.log_path).unwrap();
    let mut lines: Vec<String> =
        log.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    lines.sort();
    assert_eq!(lines, ["stderr F err", "stdout F boxed", "stdout F out", "stdout F yes too"]);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_asks_first_and_kills_then() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let polite = machine
        .run(
            &sandbox,
            "trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.05; done",
            |_| {},
        )
        .await;
    let status = machine.status(&polite).await;
    until(|| async { machine.log(&status).contains("up").then_some(()) }).await;
    machine.stop(&polite, 10).await;
    let status = machine.status(&polite).await;
    assert_eq!(status.exit_code, 7);
    assert!(machine.log(&status).ends_with("bye"));
    let deaf = machine.run(&sandbox, "trap '' TERM; while true; do sleep 1; done", |_| {}).await;
    machine.stop(&deaf, 1).await;
    assert_eq!(machine.status(&deaf).await.exit_code, 137);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id =
        machine.create(&sandbox, "", |c| c.command = vec!["nothere".to_owned()]).await.unwrap();
    let error = machine.start(&id).await.unwrap_err();
    assert!(error.message().contains("executable file not found in $PATH"), "{error}");
    let status = machine.status(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    let id = machine
        .create(&sandbox, "", |c| security(c).run_as_username = "nobody-here".to_owned())
        .await
        .unwrap();
    let error = machine.start(&id).await.unwrap_err();
    assert!(error.message().contains("no user \"nobody-here\""), "{error}");
    let error = machine
        .create(&sandbox, "true", |c| {
            c.image = Some(ImageSpec { image: "missing".to_owned(), ..ImageSpec::default() });
        })
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    machine.finish().await;
}

/// Every file made for a container is one to be removed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_writes_nothing_has_nothing_written() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "test -s /etc/resolv.conf && test -d /proc/1", |_| {}).await;
    assert_eq!(machine.wait_exit(&id).await.exit_code, 0);
    let folder = machine.path("root/containers").join(&id);
    assert_eq!(std::fs::read_dir(folder.join("upper")).unwrap().count(), 0);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_their_groups_and_no_capabilities() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let command = "id -u; id -g; id -G; echo $HOME; grep CapEff /proc/self/status | tr -d '\\t'";
    let (_, log) = machine
        .output(&sandbox, command, |c| {
            security(c).run_as_username = "web".to_owned();
            security(c).supplemental_groups = vec![77];
        })
        .await;
    assert_eq!(log, "1000\n1000\n1000 77 1234\n/home/web\nCapEff:0000000000000000");
    let (_, log) = machine
        .output(&sandbox, "grep CapEff /proc/self/status | tr -d '\\t'", |c| {
            security(c).capabilities = Some(Capability {
                add_capabilities: vec!["NET_ADMIN".to_owned()],
                drop_capabilities: vec!["ALL".to_owned()],
                add_ambient_capabilities: Vec::new(),
            });
        })
        .await;
    assert_eq!(log, "CapEff:0000000000001000");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_devices_and_read_only_roots() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let host = machine.path("volume");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "from the host").unwrap();
    let command = "cat /data/file; echo; echo x > /data/new && echo wrote; \
                   echo x > /frozen/new || echo frozen; touch /in-root || echo read-only; \
                   cat /dev/zero | head -c 2 | wc -c; ls /dev | tr '\\n' ' '";
    let (_, log) = machine
        .output(&sandbox, command, |c| {
            security(c).readonly_rootfs = true;
            let mount = |to: &str, readonly| Mount {
                container_path: to.to_owned(),
                host_path: host.display().to_string(),
                readonly,
                ..Mount::default()
            };
            c.mounts = vec![mount("/data", false), mount("/frozen", true)];
        })
        .await;
    for line in ["from the host", "wrote", "frozen", "read-only", "2"] {
        assert!(log.lines().any(|found| found == line), "{line:?} is not in\n{log}");
    }
    assert!(log.contains("core fd full mqueue null ptmx pts random shm stderr stdin stdout tty"));
    assert!(host.join("new").exists(), "what was written is on the host");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_in_force_and_change_in_place() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let limit = |bytes: i64| LinuxContainerResources {
        memory_limit_in_bytes: bytes,
        cpu_shares: 512,
        oom_score_adj: 500,
        ..LinuxContainerResources::default()
    };
    let id = machine
        .run(&sandbox, "cat /proc/self/oom_score_adj; sleep 1000", |c| {
            c.linux.as_mut().unwrap().resources = Some(limit(64 << 20));
        })
        .await;
    let file =
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null";
    let read = machine.exec(&id, &["sh", "-c", file]).await;
    assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), (64 << 20).to_string());
    machine
        .service
        .update_container_resources(UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(LinuxContainerResources {
                memory_limit_in_bytes: 32 << 20,
                ..LinuxContainerResources::default()
            }),
            ..UpdateContainerResourcesRequest::default()
        })
        .await
        .unwrap();
    let read = machine.exec(&id, &["sh", "-c", file]).await;
    assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), (32 << 20).to_string());
    let status = machine.status(&id).await;
    let resources = status.resources.clone().unwrap().linux.unwrap();
    assert_eq!((resources.memory_limit_in_bytes, resources.cpu_shares), (32 << 20, 512));
    assert_eq!(machine.log(&status), "500");
    let stats = machine.service.container_stats(ContainerStatsRequest { container_id: id }).await;
    let stats = stats.unwrap().stats.unwrap();
    assert!(stats.memory.unwrap().usage_bytes.unwrap().value > 0);
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_takes_too_much_memory_is_said_to_be_oom_killed() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    // The shell itself grows: it is the container's first process that the kernel picks.
    let command = "x=a; while true; do x=$x$x; done";
    let id = machine
        .run(&sandbox, command, |c| {
            c.linux.as_mut().unwrap().resources = Some(LinuxContainerResources {
                memory_limit_in_bytes: 16 << 20,
                memory_swap_limit_in_bytes: 16 << 20,
                ..LinuxContainerResources::default()
            });
        })
        .await;
    let status = machine.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_share_a_process_namespace_if_asked() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox_with(|_| {}).await;
    let shared = |c: &mut ContainerConfig| {
        security(c).namespace_options = Some(NamespaceOption::default());
    };
    let first = machine.run(&sandbox, "sleep 1234", shared).await;
    let (_, seen) = machine.output(&sandbox, "ps; echo $$", shared).await;
    assert!(seen.contains("sleep 1234") && seen.contains("pause"), "{seen}");
    let target = first.clone();
    let (_, seen) = machine
        .output(&sandbox, "ps", |c| {
            security(c).namespace_options = Some(NamespaceOption {
                pid: NamespaceMode::Target.into(),
                target_id: target,
                ..NamespaceOption::default()
            });
        })
        .await;
    assert!(seen.contains("sleep 1234"), "{seen}");
    let (_, seen) = machine.output(&sandbox, "ps | wc -l", |_| {}).await;
    assert!(seen.trim().parse::<u32>().unwrap() <= 5, "its own namespace is empty: {seen}");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_can_be_rotated() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine
        .run(&sandbox, "i=0; while true; do echo $i; i=$((i+1)); sleep 0.01; done", |_| {})
        .await;
    let status = machine.status(&id).await;
    until(|| async { machine.log(&status).contains('3').then_some(()) }).await;
    let moved = format!("{}.1", status.log_path);
    fs::rename(&status.log_path, &moved).unwrap();
    let request = ReopenContainerLogRequest { container_id: id.clone() };
    machine.service.reopen_container_log(request).await.unwrap();
    until(|| async { (machine.log(&status).lines().count() > 3).then_some(()) }).await;
    machine.stop(&id, 0).await;
    let numbers = |path: &str| -> Vec<u32> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let mut all = numbers(&moved);
    all.extend(numbers(&status.log_path));
    assert_eq!(all, (0..all.len() as u32).collect::<Vec<_>>(), "no line is lost or doubled");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sysctls_dns_and_names_are_the_sandbox_s() {
    let machine = Machine::new().await;
    let sandbox = machine
        .sandbox_with(|config| {
            config.dns_config = Some(DnsConfig {
                servers: vec!["10.0.0.10".to_owned()],
                searches: vec!["a.b".to_owned(), "c".to_owned()],
                options: vec!["ndots:5".to_owned()],
            });
            let sysctls =
                [("net.ipv4.ip_unprivileged_port_start", "80"), ("kernel.shm_rmid_forced", "1")];
            config.linux = Some(LinuxPodSandboxConfig {
                sysctls: sysctls.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                ..LinuxPodSandboxConfig::default()
            });
        })
        .await;
    let command = "cat /etc/resolv.conf /etc/hostname /proc/sys/net/ipv4/ip_unprivileged_port_start \
                   /proc/sys/kernel/shm_rmid_forced; grep -c : /proc/net/dev";
    let (_, log) = machine.output(&sandbox, command, |_| {}).await;
    assert_eq!(log, "search a.b c\nnameserver 10.0.0.10\noptions ndots:5\nboxed\n80\n1\n1");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happens() {
    use futures_util::StreamExt;
    let machine = Machine::new().await;
    let mut events = machine.service.container_events().await.unwrap();
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "exit 5", |_| {}).await;
    machine.wait_exit(&id).await;
    machine.remove(&id).await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let event = events.next().await.unwrap().unwrap();
        if event.container_id == id {
            seen.push(event.container_event_type());
        }
    }
    use ContainerEventType::*;
    assert_eq!(
        seen,
        [
            ContainerCreatedEvent,
            ContainerStartedEvent,
            ContainerStoppedEvent,
            ContainerDeletedEvent
        ]
    );
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_refused_in_words_that_kubelets_know() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let checkpoint = |container_id: String| CheckpointContainerRequest {
        container_id,
        location: machine.path("checkpoint.tar").display().to_string(),
        timeout: 10,
    };
    let error = machine.service.checkpoint_container(checkpoint(id)).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unknown);
    let known = ["criu binary not found in shim path or system PATH", "support not available"];
    assert!(known.iter().any(|text| error.message().contains(text)), "{error}");
    let unknown = checkpoint("nothere".to_owned());
    let error = machine.service.checkpoint_container(unknown).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_can_have_users_of_its_own() {
    let machine = Machine::new().await;
    let volume = machine.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "of the host's root").unwrap();
    let options = |mode: NamespaceMode| NamespaceOption {
        pid: mode.into(),
        userns_options: Some(UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: vec![IdMapping { host_id: 200_000, container_id: 0, length: 65536 }],
            gids: vec![IdMapping { host_id: 200_000, container_id: 0, length: 65536 }],
        }),
        ..NamespaceOption::default()
    };
    for mode in [NamespaceMode::Container, NamespaceMode::Pod] {
        let sandbox = machine
            .sandbox_with(|config| {
                config.linux = Some(LinuxPodSandboxConfig {
                    security_context: Some(LinuxSandboxSecurityContext {
                        namespace_options: Some(options(mode)),
                        ..LinuxSandboxSecurityContext::default()
                    }),
                    ..LinuxPodSandboxConfig::default()
                });
            })
            .await;
        let command = "cat /proc/self/uid_map | tr -s ' '; stat -c %u:%g /bin/busybox /v/file \
                       /etc/hosts; touch /v/new /made; hostname; echo x > /dev/null && echo null; \
                       stat -c %t:%T /dev/null; mount -t tmpfs x /tmp && echo mounted; sleep 1000";
        let mount = |c: &mut ContainerConfig| {
            let security = security(c);
            security.namespace_options = Some(options(mode));
            security.capabilities = Some(Capability {
                add_capabilities: vec!["SYS_ADMIN".to_owned()],
                ..Capability::default()
            });
            let map = vec![IdMapping { host_id: 200_000, container_id: 0, length: 65536 }];
            c.mounts = vec![Mount {
                container_path: "/v".to_owned(),
                host_path: volume.display().to_string(),
                uid_mappings: map.clone(),
                gid_mappings: map,
                ..Mount::default()
            }];
        };
        let id = machine.run(&sandbox, command, mount).await;
        let status = machine.status(&id).await;
        until(|| async { machine.log(&status).contains("mounted").then_some(()) }).await;
        assert_eq!(
            machine.log(&status),
            " 0 200000 65536\n0:0\n0:0\n0:0\nboxed\nnull\n1:3\nmounted",
            "{mode:?}"
        );
        use std::os::unix::fs::MetadataExt;
        let owner = |path: &std::path::Path| fs::metadata(path).unwrap().uid();
        assert_eq!(owner(&volume.join("new")), 0, "a mapped volume belongs to the host's root");
        fs::remove_file(volume.join("new")).unwrap();
        let upper = machine.path("root/containers").join(&id).join("upper/made");
        assert_eq!(owner(&upper), 200_000, "what is written to the root is nobody's of the host");
        let seen =
            machine.exec(&id, &["sh", "-c", "id -u; cat /proc/self/uid_map | tr -s ' '"]).await;
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "0\n 0 200000 65536\n");
        machine.remove_sandbox(&sandbox).await;
    }
    machine.finish().await;
}
