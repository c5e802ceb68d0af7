//! Containers, images and execs that try to get out, to hold up the others, or to be more than they
//! say. Each runs with the machine's control groups and on v2 alone. What gets out reads a secret of
//! the host, or leaves a mark there.
use std::path::Path;
use std::time::{Duration, Instant};

use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::containers::security;
use crate::machine::{Machine, Setup, cgroup_root, until};

const SETUPS: [Setup; 2] = [
    Setup { handler: "", copied: false, unified: false },
    Setup { handler: "", copied: false, unified: true },
];
const SECRET: &str = "the-host-s-secret";

/// A secret of the host, and a place for marks.
struct Host {
    machine: Machine,
}

impl Host {
    async fn new(setup: Setup) -> Self {
        let machine = Machine::with(setup).await;
        std::fs::write(machine.path("secret"), SECRET).unwrap();
        Host { machine }
    }

    /// Reads the secret and leaves the mark, if there is a way up from where it is run.
    fn attack(&self) -> String {
        let (secret, mark) = (self.machine.path("secret"), self.machine.path("mark"));
        let (secret, mark) = (secret.display(), mark.display());
        let up = "../".repeat(12);
        format!(
            "for at in '' {up} /proc/1/root /proc/1/cwd /proc/self/cwd/{up}; do \
             cat $at{secret}; echo x > $at{mark}; done 2>/dev/null; true"
        )
    }

    fn check(&self, name: &str, output: &str) {
        assert!(!output.contains(SECRET), "{name}: the host was read: {output}");
        assert!(!self.machine.path("mark").exists(), "{name}: the host was written to");
    }
}

type Change = fn(&mut ContainerConfig);

/// Working directories that lead to whatever the process that becomes the container has open.
#[tokio::test(flavor = "multi_thread")]
async fn no_working_directory_is_outside() {
    for setup in SETUPS {
        let host = Host::new(setup).await;
        let machine = &host.machine;
        let sandbox = machine.sandbox().await;
        let confined: Change = |config| {
            let security = security(config);
            security.no_new_privs = true;
            security.readonly_rootfs = true;
            security.seccomp = Some(SecurityProfile::default());
            let drop_capabilities = vec!["ALL".to_owned()];
            security.capabilities = Some(Capability { drop_capabilities, ..Default::default() });
        };
        let mut paths: Vec<String> = (0..40).map(|fd| format!("/proc/self/fd/{fd}")).collect();
        paths.extend(["/proc/self/cwd", "/proc/1/cwd", "/proc/self/root"].map(str::to_owned));
        for path in paths {
            let change = |config: &mut ContainerConfig| {
                confined(config);
                config.working_dir = path.clone();
            };
            let id = machine.create(&sandbox, &host.attack(), change).await.unwrap();
            let error = machine.start(&id).await.unwrap_err();
            assert!(error.message().contains("directory"), "{path}: {error}");
            host.check(&path, &machine.log(&machine.status(&id).await));
            machine.remove(&id).await;
        }
        // Changed under a running container, for those who come later.
        let moving = "cd / && rmdir /w; while :; do for n in $(seq 3 40); do \
                      ln -sfn /proc/self/fd/$n /w; done; done";
        let id = machine.run(&sandbox, moving, |config| config.working_dir = "/w".to_owned()).await;
        for _ in 0..40 {
            let request = ExecSyncRequest {
                container_id: id.clone(),
                cmd: vec!["sh".to_owned(), "-c".to_owned(), host.attack()],
                timeout: 10,
            };
            let outcome = machine.service.exec_sync(request).await;
            let output = outcome.map(|outcome| outcome.stdout).unwrap_or_default();
            host.check("exec", &String::from_utf8_lossy(&output));
        }
        host.machine.finish().await;
    }
}

/// Who stops every process that comes into the container, and looks at what it has. What it has before
/// it is another program counts, so its name is read once more after that.
const STOPPER: &str = "while :; do kill -STOP -1; for p in /proc/[0-9]*; do \
    if read name < $p/comm && test \"$name\" = skiff-shim; then \
    has=$(readlink $p/fd/[0-9]* $p/root $p/ns/mnt; cat $p/environ); read name < $p/comm; \
    test \"$name\" = skiff-shim && test -n \"$has\" && echo \"$has\" >> /v/seen; \
    fi; done; done 2>/dev/null";

#[tokio::test(flavor = "multi_thread")]
async fn one_who_stops_an_exec_learns_nothing_and_holds_up_nobody() {
    for setup in SETUPS {
        let mut host = Host::new(setup).await;
        let volume = host.machine.path("volume");
        std::fs::create_dir(&volume).unwrap();
        let machine = &host.machine;
        let sandbox = machine.sandbox().await;
        let mount = Mount {
            container_path: "/v".to_owned(),
            host_path: volume.display().to_string(),
            ..Mount::default()
        };
        let id = machine.run(&sandbox, STOPPER, |config| config.mounts = vec![mount]).await;
        let talk = "while :; do echo still; sleep 0.05; done";
        let neighbour = machine.run(&sandbox, talk, |_| {}).await;
        let lines = || async { machine.log(&machine.status(&neighbour).await).lines().count() };
        let exec = |timeout| {
            let cmd = vec!["sleep".to_owned(), "1000".to_owned()];
            let request = ExecSyncRequest { container_id: id.clone(), cmd, timeout };
            machine.service.exec_sync(request)
        };
        let (start, before) = (Instant::now(), lines().await);
        let outcomes = futures_util::future::join_all((0..8).map(|_| exec(1))).await;
        for outcome in outcomes {
            let status = outcome.map(drop).unwrap_err();
            assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status}");
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(lines().await > before + 3, "the neighbour's log stands still");
        assert_eq!(std::fs::read_to_string(volume.join("seen")).ok(), None);
        // A daemon that comes now is there at once, and rid of it all too.
        host.machine.kill_daemon();
        let start = Instant::now();
        host.machine.start_daemon().await;
        host.machine.stop(&id, 0).await;
        host.machine.remove_sandbox(&sandbox).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        host.machine.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_stopped_holds_up_nobody_else() {
    let mut machine = Machine::new().await;
    let (stuck, other) = (machine.sandbox().await, machine.sandbox().await);
    let id = machine.run(&stuck, "sleep 1000", |_| {}).await;
    let well = machine.run(&other, "sleep 1000", |_| {}).await;
    let state = machine.path("state").join(&stuck[..24]).display().to_string();
    let shim = crate::machine::pids_with(&format!("shim\0{state}"));
    let shim = rustix::process::Pid::from_raw(shim[0]).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::STOP).unwrap();
    machine.kill_daemon();
    let start = Instant::now();
    machine.start_daemon().await;
    assert!(start.elapsed() < Duration::from_secs(8), "it serves: {:?}", start.elapsed());
    assert_eq!(machine.exec(&well, &["true"]).await.exit_code, 0);
    let list = ListContainersRequest::default();
    assert_eq!(machine.service.list_containers(list).await.unwrap().containers.len(), 2);
    machine.remove(&id).await;
    machine.remove_sandbox(&stuck).await;
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    machine.finish().await;
}

/// What is refused when it starts, and why.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_it_says_does_not_start() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let rows: [(&str, Change); 4] = [
        ("range 0-2147483647", |config| {
            security(config).run_as_user = Some(Int64Value { value: u32::MAX.into() });
        }),
        ("range 0-2147483647", |config| {
            security(config).run_as_username = u32::MAX.to_string();
        }),
        ("range 0-2147483647", |config| {
            security(config).run_as_user = Some(Int64Value { value: 0 });
            security(config).run_as_group = Some(Int64Value { value: u32::MAX.into() });
        }),
        ("mounts are too many", |config| {
            let mount = |number| Mount {
                container_path: format!("/m/{number}"),
                host_path: "/tmp".to_owned(),
                ..Mount::default()
            };
            config.mounts = (0..20_000).map(mount).collect();
        }),
    ];
    for (reason, change) in rows {
        let refused = match machine.create(&sandbox, "id", change).await {
            Ok(id) => machine.start(&id).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(refused.message().contains(reason), "{refused}");
    }
    // A link where the log should be: the host's file behind it stays as it is.
    std::fs::create_dir_all(machine.path("logs")).unwrap();
    std::os::unix::fs::symlink(machine.path("mark"), machine.path("logs/link.log")).unwrap();
    let change = |config: &mut ContainerConfig| config.log_path = "link.log".to_owned();
    let id = machine.create(&sandbox, "echo x", change).await.unwrap();
    assert!(machine.start(&id).await.unwrap_err().message().contains("a link"));
    assert!(!machine.path("mark").exists());
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_sets_only_what_is_its_own() {
    let machine = Machine::new().await;
    let core_pattern = || std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let before = core_pattern();
    let try_with = |name: &str, value: &str| {
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata { name: name.to_owned(), ..Default::default() }),
            linux: Some(LinuxPodSandboxConfig {
                sysctls: [(name.to_owned(), value.to_owned())].into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        machine.run_sandbox(config)
    };
    for name in ["kernel.core_pattern", "net/../kernel/core_pattern", "vm.overcommit_memory"] {
        let error = try_with(name, before.trim()).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{name}: {error}");
    }
    assert_eq!(core_pattern(), before);
    let sandbox = try_with("net.ipv4.ip_unprivileged_port_start", "80").await.unwrap();
    let read = "cd /proc/sys/net/ipv4 && echo $(cat ip_unprivileged_port_start ping_group_range)";
    let no_log = |_: &mut ContainerConfig| {};
    let id = machine.run(&sandbox, "sleep 1000", no_log).await;
    let seen = machine.exec(&id, &["sh", "-c", read]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "80 0 2147483647");
    let (_, log) = machine.output(&machine.sandbox().await, read, |_| {}).await;
    assert_eq!(log, "0 0 2147483647");
    machine.finish().await;
}

/// The first process of a shared process namespace has nothing, even for one who may trace it.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_a_shared_process_namespace_has_nothing_to_give() {
    for setup in SETUPS {
        let host = Host::new(setup).await;
        let machine = &host.machine;
        let pod = NamespaceOption { pid: NamespaceMode::Pod.into(), ..Default::default() };
        let sandbox = machine
            .sandbox_with(|config| {
                let security_context = Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(pod.clone()),
                    ..Default::default()
                });
                config.linux =
                    Some(LinuxPodSandboxConfig { security_context, ..Default::default() });
            })
            .await;
        let tracing = |config: &mut ContainerConfig| {
            security(config).namespace_options = Some(pod.clone());
            let add_capabilities = vec!["SYS_PTRACE".to_owned()];
            security(config).capabilities =
                Some(Capability { add_capabilities, ..Default::default() });
        };
        let attack = format!("{}; ls -A /proc/1/root /proc/1/fd; echo end", host.attack());
        let (_, log) = machine.output(&sandbox, &attack, tracing).await;
        host.check("shared", &log);
        assert_eq!(log.lines().last(), Some("end"));
        assert!(!log.contains("etc") && !log.contains('3'), "{log}");
        host.machine.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_dev_stays_as_it_is() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let volume = machine.path("volume");
    std::fs::create_dir(&volume).unwrap();
    // What is masked must not be shown as what is called null in there.
    std::fs::write(volume.join("null"), "believed").unwrap();
    for place in ["/dev", "/dev/", "/x/../dev"] {
        let (code, log) = machine
            .output(&sandbox, "cat /proc/keys /proc/timer_list", |config| {
                config.mounts = vec![Mount {
                    container_path: place.to_owned(),
                    host_path: volume.display().to_string(),
                    ..Mount::default()
                }];
            })
            .await;
        assert_eq!((code, log.as_str()), (0, ""), "{place}");
    }
    // A file in the place of the null device alone is not shown for what is masked either.
    let (_, log) = machine
        .output(&sandbox, "cat /proc/keys /proc/timer_list", |config| {
            config.mounts = vec![Mount {
                container_path: "/dev/null".to_owned(),
                host_path: volume.join("null").display().to_string(),
                ..Mount::default()
            }];
        })
        .await;
    assert!(!log.contains("believed"), "{log}");
    use std::os::unix::fs::FileTypeExt;
    for entry in std::fs::read_dir(&volume).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        assert!(!kind.is_char_device() && !kind.is_symlink(), "{:?}", entry.path());
    }
    assert_eq!(std::fs::read_to_string(volume.join("null")).unwrap(), "believed");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_oom_score_is_the_nearest_that_is_allowed() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let (code, log) = machine
        .output(&sandbox, "cat /proc/self/oom_score_adj", |config| {
            let resources = LinuxContainerResources { oom_score_adj: -998, ..Default::default() };
            config.linux.as_mut().unwrap().resources = Some(resources);
        })
        .await;
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(code, 0);
    assert!(log == "-998" || log == own.trim(), "{log}");
    machine.finish().await;
}

/// Processes without end, up to the limit that the sandbox's group has.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_can_be_stopped() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let bomb = "sleep 0.3; b() { b | b & }; b; sleep 1000";
    let id = machine.run(&sandbox, bomb, |_| {}).await;
    let parent = format!("{}/{sandbox}", cgroup_root(machine.folder.path()));
    let Some(group) = runtime::cgroup::Group::new(&parent, "").folder_with("pids") else { return };
    if std::fs::write(group.join("pids.max"), "200").is_err() {
        // Without the controller there is no bound, and no bomb.
        machine.stop(&id, 0).await;
        return machine.finish().await;
    }
    until(|| async {
        let current = std::fs::read_to_string(group.join("pids.current")).unwrap();
        (current.trim().parse::<u32>().unwrap() > 150).then_some(())
    })
    .await;
    let start = Instant::now();
    let request =
        ExecSyncRequest { container_id: id.clone(), cmd: vec!["true".to_owned()], timeout: 3 };
    // It may or may not find room; it does not hang.
    let _ = machine.service.exec_sync(request).await;
    machine.stop(&id, 1).await;
    machine.remove(&id).await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    machine.finish().await;
}

/// A URL is for one use and one purpose.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_s_url_cannot_be_guessed_or_used_again() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let request = ExecRequest {
        container_id: id,
        cmd: vec!["true".to_owned()],
        stdout: true,
        ..Default::default()
    };
    let url = machine.service.exec(request.clone()).await.unwrap().url;
    let other = machine.service.exec(request).await.unwrap().url;
    let token = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    assert_eq!(token(&url).len(), 32);
    assert_ne!(token(&url), token(&other));
    let status = |url: String| async move {
        let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(other.replace("/exec/", "/attach/")).await, "404", "another purpose");
    assert_eq!(status(url.clone()).await, "400", "no upgrade was asked for");
    assert_eq!(status(url).await, "404", "used");
    machine.finish().await;
}

/// Layers that are more than they say, through the whole of an import.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_a_bomb_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let images =
        runtime::image::Images::open(&root, runtime::image::RegistriesConfig::default()).unwrap();
    let archive = folder.path().join("bomb.tar");
    for (name, bomb) in [("names", bomb_of_names()), ("zeroes", bomb_of_zeroes())] {
        write_image(&archive, &bomb);
        let error = images.import(&archive, Some("localhost/bomb:1")).await.unwrap_err();
        let text = format!("{error:?}");
        assert!(
            text.contains("names and attributes") || text.contains("its size allows"),
            "{text}"
        );
        let left = std::fs::read_dir(root.join("layers")).unwrap().count();
        assert_eq!(left, 0, "{name}");
    }
}

/// An extension record of two gigabytes.
fn bomb_of_names() -> Vec<u8> {
    compress(b'L', 2 << 30, b'a')
}

/// A file of forty gigabytes of zeroes, which zstd makes a few hundred kilobytes of.
fn bomb_of_zeroes() -> Vec<u8> {
    compress(b'0', 40 << 30, 0)
}

/// A layer with one entry of which all bytes are the same, cut short: who reads on has been fooled.
fn compress(kind: u8, size: u64, byte: u8) -> Vec<u8> {
    use std::io::Read;
    let mut header = tar::Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_cksum();
    let content = (&header.as_bytes()[..]).chain(std::io::repeat(byte).take(size.min(3 << 30)));
    zstd::encode_all(content, 1).unwrap()
}

fn write_image(path: &Path, layer: &[u8]) {
    let mut archive = tar::Builder::new(std::fs::File::create(path).unwrap());
    let digest = "0".repeat(64);
    let config = format!(r#"{{"rootfs": {{"type": "layers", "diff_ids": ["sha256:{digest}"]}}}}"#);
    let manifest = r#"[{"Config": "config.json", "Layers": ["layer.tar"]}]"#;
    for (name, bytes) in [
        ("layer.tar", layer),
        ("config.json", config.as_bytes()),
        ("manifest.json", manifest.as_bytes()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, name, bytes).unwrap();
    }
    archive.finish().unwrap();
}

/// Another OCI runtime gets nothing of ours to lose either: what it starts finds no open door of the
/// host's in any descriptor, and its state says nothing to the container.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_runtime_starts_finds_nothing_open() {
    let host = Host::new(Setup { handler: "runc", copied: false, unified: false }).await;
    let machine = &host.machine;
    let sandbox = machine.sandbox().await;
    for fd in 3..24 {
        let path = format!("/proc/self/fd/{fd}");
        let change = |config: &mut ContainerConfig| config.working_dir = path.clone();
        let id = machine.create(&sandbox, &host.attack(), change).await.unwrap();
        // It may start, in whatever that was in the container; it is not to be outside.
        if machine.start(&id).await.is_ok() {
            machine.wait_exit(&id).await;
        }
        host.check(&path, &machine.log(&machine.status(&id).await));
        machine.remove(&id).await;
    }
    host.machine.finish().await;
}
