//! Known ways out, each tried from inside.
use runtime::cri::v1::*;

use crate::machine::{Machine, until};

fn security(config: &mut ContainerConfig) -> &mut LinuxContainerSecurityContext {
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_descriptor_of_ours_is_left_open() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    // The listing's own descriptor is the fourth.
    let (_, log) = machine.output(&sandbox, "ls /proc/self/fd | tr '\\n' ' '", |_| {}).await;
    assert_eq!(log.trim(), "0 1 2 3");
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let seen = machine.exec(&id, &["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "0 1 2 3");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_program_cannot_be_overwritten_through_proc() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let host = machine.path("volume");
    std::fs::create_dir(&host).unwrap();
    // The container is our own program for a moment: its /proc/PID/exe is the host's file. A watcher
    // in the same process namespace opens it for writing as soon as it can be seen.
    let privileged = |c: &mut ContainerConfig| {
        security(c).privileged = true;
        c.mounts = vec![Mount {
            container_path: "/v".to_owned(),
            host_path: host.display().to_string(),
            ..Mount::default()
        }];
    };
    // Held open first, for the process goes on to become another program.
    let watcher = "while ! test -e /v/stop; do for p in /proc/[0-9]*; do \
                   test -e $p/exe && exec 9<$p/exe && own=/proc/$$/fd/9 && \
                   if test \"$(readlink $own)\" != /bin/busybox; then \
                   (echo overwritten >> $own) && echo x > /v/broken; \
                   chmod 777 $own 2>/v/error && readlink $own > /v/broken; \
                   readlink $own > /v/seen; fi; done; done";
    let id = machine.run(&sandbox, watcher, privileged).await;
    let program = env!("CARGO_BIN_EXE_runtime-alone");
    let before = std::fs::metadata(program).unwrap().len();
    until(|| async {
        machine.exec(&id, &["true"]).await;
        host.join("seen").exists().then_some(())
    })
    .await;
    std::fs::write(host.join("stop"), "").unwrap();
    machine.wait_exit(&id).await;
    let broken = std::fs::read_to_string(host.join("broken")).ok();
    assert_eq!(broken, None, "our program was changed");
    // While it runs a program is busy anyway; that it cannot be changed shows in its mode.
    let refused = std::fs::read_to_string(host.join("error")).unwrap();
    assert!(refused.contains("Read-only file system"), "{refused}");
    assert_eq!(std::fs::metadata(program).unwrap().len(), before);
    // As the container's own program it finds nothing of the host to run with.
    let own = |c: &mut ContainerConfig| c.command = vec!["/proc/self/exe".to_owned()];
    let id = machine.create(&sandbox, "", own).await.unwrap();
    let error = machine.start(&id).await.unwrap_err();
    assert!(error.message().contains("No such file or directory"), "{error}");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_image_leads_no_mount_outside() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let host = machine.path("volume");
    let outside = machine.path("outside");
    std::fs::create_dir(&host).unwrap();
    std::fs::create_dir(&outside).unwrap();
    // A volume that a container controls, with a link to the host, is mounted into again.
    std::os::unix::fs::symlink(&outside, host.join("link")).unwrap();
    let (code, _) = machine
        .output(&sandbox, "echo x > /v/link/deep/file && ls /v/link/deep", |c| {
            let mount = |to: &str| Mount {
                container_path: to.to_owned(),
                host_path: host.display().to_string(),
                ..Mount::default()
            };
            c.mounts = vec![mount("/v"), mount("/v/link/deep")];
        })
        .await;
    assert_eq!(code, 0);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "nothing reached the host");
    // /proc itself is nobody's to cover.
    let id = machine
        .create(&sandbox, "true", |c| {
            c.mounts = vec![Mount {
                container_path: "/proc/self".to_owned(),
                host_path: host.display().to_string(),
                ..Mount::default()
            }];
        })
        .await
        .unwrap();
    let error = machine.start(&id).await.unwrap_err();
    assert!(error.message().contains("it is in /proc"), "{error}");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_s_levers_are_out_of_reach() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let tries = [
        // The kernel runs what is written there.
        "echo '|/x' > /proc/sys/kernel/core_pattern",
        "echo /x > /sys/fs/cgroup/memory/release_agent",
        "echo b > /proc/sysrq-trigger",
        "mount -t cgroup -o memory x /tmp",
        "mount -t proc x /tmp",
        "mount -o remount,rw /proc/sys",
        "unshare -r true",
        "umount /proc/sys",
        "head -c 1 /proc/kcore | wc -c | grep 1",
        "dmesg",
        // A device of the host, made by oneself.
        "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk",
        "mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem",
        "mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg",
    ];
    let script: Vec<String> = tries
        .iter()
        .map(|t| format!("({t}) >/dev/null 2>&1 && echo '{}'", t.replace('\'', "")))
        .collect();
    let confined = |c: &mut ContainerConfig| {
        security(c).seccomp = Some(SecurityProfile::default());
    };
    let (_, log) =
        machine.output(&sandbox, &format!("{}; true", script.join("; ")), confined).await;
    assert_eq!(log, "", "these succeeded");
    let command = "grep Seccomp: /proc/self/status | tr -d '\\t'";
    let (_, filter) = machine.output(&sandbox, command, confined).await;
    assert_eq!(filter, "Seccomp:2", "a filter is in force");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_from_a_file_is_in_force() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let path = machine.path("profile.json");
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls":
        [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}"#;
    std::fs::write(&path, profile).unwrap();
    for (uid, no_new_privs) in [(0, false), (0, true), (1000, false), (1000, true)] {
        let (_, log) = machine
            .output(&sandbox, "mkdir /tmp/x 2>&1 | grep -c 'No space left'", |c| {
                let security = security(c);
                security.run_as_user = Some(Int64Value { value: uid });
                security.no_new_privs = no_new_privs;
                security.seccomp = Some(SecurityProfile {
                    profile_type: security_profile::ProfileType::Localhost.into(),
                    localhost_ref: path.display().to_string(),
                });
            })
            .await;
        assert_eq!(log, "1", "user {uid}, no_new_privs {no_new_privs}");
    }
    machine.finish().await;
}
