//! `bench -- runtime`: containers from creation to removal, beside `runc` and `crun` on the same
//! machine in the same run. Needs root.
//!
//! Ours is the whole runtime (image store, sandbox, log, records on disk), called in process;
//! theirs is the low-level runtime alone, `run` of a prepared bundle, which is one process per
//! container: nothing of what containerd would add.
//!
//! Things are where an installation has them: images, layers, bundles and logs on the disk, below the
//! temporary directory; what does not outlive a boot below `/run`, which is memory on most machines,
//! for all three alike. Which file systems these are is told.
//!
//! crun refuses machines with both kinds of control groups. On those everything is measured twice:
//! as the machine is, without crun; and by another process whose mounts have v2 alone, with it.
//!
//! Options: `--count N` in sequence (100), `--parallel N` at once (20), `--many N` containers for
//! the daemon's growth (1000), `--state DIR` instead of `/run`.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::runtime::cri::Cri;
use ::runtime::cri::v1::*;
use ::runtime::image::RegistriesConfig;
use ::runtime::network::Loopback;
use ::runtime::shim::sys;
use ::runtime::{Options, Service, Snapshotter, reset};

use crate::report::Report;

const CGROUP_ROOT: &str = "/skiff-bench";
const IMAGE: &str = "localhost/busybox:bench";

pub fn run(arguments: &[String], report: &mut Report) {
    let given = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)
    };
    let option = |name: &str, default: usize| {
        given(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (count, parallel) = (option("--count", 100), option("--parallel", 20));
    let alone = arguments.iter().any(|argument| argument == UNIFIED);
    if alone {
        leave_v1().expect("control groups can be mounted");
    }
    let hybrid = Path::new("/sys/fs/cgroup/unified").is_dir();
    let name = format!("skb{}", std::process::id());
    let disk = std::env::temp_dir();
    let state = PathBuf::from(given("--state").map_or("/run", String::as_str));
    eprintln!("disk: {}, state: {}", file_system(&disk), file_system(&state));
    let place = Place { disk: disk.join(&name), state: state.join(&name) };
    for folder in [&place.disk, &place.state] {
        fs::create_dir_all(folder).expect("it can be written");
    }
    let tasks = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let tasks = tasks.expect("a runtime can be started");
    tasks.block_on(ours(&place, count, parallel, option("--many", 1000), report));
    for program in if hybrid { &["runc"][..] } else { &["runc", "crun"] } {
        match theirs(&place, program, count, parallel) {
            Some((sequence, at_once)) => {
                let figures = summary(sequence, at_once, parallel);
                report.row(format!("true, {program} run"), &figures);
            }
            None => eprintln!("{program} does not run here: its row is left out"),
        }
    }
    for thing in reset::plan(&place.root(), &place.state, CGROUP_ROOT, &[]) {
        let _ = thing.remove();
    }
    for folder in [&place.disk, &place.state] {
        let _ = fs::remove_dir_all(folder);
    }
    if hybrid && !alone {
        println!("With v2 control groups alone:");
        let program = std::env::current_exe().expect("we run from a file");
        let again = Command::new(program).arg("runtime").args(arguments).arg(UNIFIED).status();
        assert!(again.is_ok_and(|status| status.success()), "the second measurement failed");
    }
}

const UNIFIED: &str = "--unified";

/// Where everything is.
#[derive(Clone)]
struct Place {
    disk: PathBuf,
    state: PathBuf,
}

impl Place {
    fn root(&self) -> PathBuf {
        self.disk.join("root")
    }
}

/// The kind and the path of what is mounted where a folder is.
fn file_system(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        Some((mount.split(' ').nth(4)?, source.split(' ').next()?))
    });
    // Of several on one path the last is seen.
    let above = mounts.filter(|(path, _)| folder.starts_with(path));
    let found = above.max_by_key(|(path, _)| path.len());
    found.map_or_else(String::new, |(path, kind)| format!("{kind} at {path}"))
}

/// Gives this process, which has one thread yet, mounts of its own with v2 control groups alone.
fn leave_v1() -> std::io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount("", c"/", "", libc::MS_PRIVATE | libc::MS_REC, "")?;
    sys::unmount(c"/sys/fs/cgroup")?;
    sys::mount("cgroup2", c"/sys/fs/cgroup", "cgroup2", 0, "")
}

async fn ours(place: &Place, count: usize, parallel: usize, many: usize, report: &mut Report) {
    let archive = place.disk.join("busybox.tar");
    testkit::image::write_busybox(&archive, IMAGE, &[]).expect("the image can be made");
    let options = Options {
        root: place.root(),
        state: place.state.clone(),
        registries: RegistriesConfig::default(),
        network: Arc::new(Loopback),
        snapshotter: Snapshotter::Auto,
        cgroup_root: CGROUP_ROOT.to_owned(),
        handlers: BTreeMap::new(),
        executable: std::env::current_exe().expect("we run from a file"),
    };
    let service = Arc::new(Service::open(options).await.expect("the runtime opens"));
    service.images().import(&archive, None).await.expect("the image is imported");

    let sandbox = run_sandbox(&service, place).await;
    let (mut sequence, mut parts) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let times = run_true(&service, &sandbox).await;
        sequence.push(times[3] - times[0]);
        parts.push(times);
    }
    report.row("true, skiff, its parts", &medians(&parts));
    // Each in a sandbox of its own, as containers of different pods are.
    let mut sandboxes = Vec::new();
    for _ in 0..parallel {
        sandboxes.push(run_sandbox(&service, place).await);
    }
    let begun = Instant::now();
    let all = sandboxes.iter().cloned().map(|sandbox| {
        let service = service.clone();
        tokio::spawn(async move { run_true(&service, &sandbox).await })
    });
    for ran in futures_util::future::join_all(all).await {
        ran.expect("a container ran");
    }
    report.row("true, skiff", &summary(sequence, begun.elapsed(), parallel));
    for sandbox in sandboxes {
        remove_sandbox(&service, sandbox).await;
    }

    let before = resident("self", "VmRSS");
    for _ in 0..many {
        run_true(&service, &sandbox).await;
    }
    let after = resident("self", "VmRSS");
    remove_sandbox(&service, sandbox).await;

    let mut sequence = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let sandbox = sleeper(&service, place).await;
        sequence.push(begun.elapsed());
        remove_sandbox(&service, sandbox).await;
    }
    let begun = Instant::now();
    let all = (0..parallel).map(|_| {
        let (service, place) = (service.clone(), place.clone());
        tokio::spawn(async move { sleeper(&service, &place).await })
    });
    let sandboxes = futures_util::future::join_all(all).await;
    let sandboxes: Vec<String> =
        sandboxes.into_iter().map(|made| made.expect("a sandbox was made")).collect();
    let at_once = begun.elapsed();
    report.row("sandbox with one container running, skiff", &summary(sequence, at_once, parallel));
    let (shared, own) = idle_shims().await;
    for sandbox in sandboxes {
        remove_sandbox(&service, sandbox).await;
    }
    report.row("one idle shim's memory", &[("RSS KB", shared), ("of its own KB", own)]);
    report.row(
        format!("this process before and after {many} containers"),
        &[("before KB", before), ("after KB", after)],
    );
}

async fn run_sandbox(service: &Service, place: &Place) -> String {
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: format!("bench-{:016x}", fastrand::u64(..)),
            ..PodSandboxMetadata::default()
        }),
        log_directory: place.disk.join("logs").display().to_string(),
        // No process of its own: containers have their own process namespaces.
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(own_pids()),
                ..LinuxSandboxSecurityContext::default()
            }),
            ..LinuxPodSandboxConfig::default()
        }),
        ..PodSandboxConfig::default()
    };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    let ran = Box::pin(service.run_pod_sandbox(request)).await;
    ran.expect("a sandbox is made").pod_sandbox_id
}

fn own_pids() -> NamespaceOption {
    NamespaceOption { pid: NamespaceMode::Container.into(), ..NamespaceOption::default() }
}

async fn start(service: &Service, sandbox: &str, command: &[&str]) -> String {
    let name = format!("c-{:016x}", fastrand::u64(..));
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.clone(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.to_owned(), ..ImageSpec::default() }),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        log_path: name,
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(own_pids()),
                ..LinuxContainerSecurityContext::default()
            }),
            resources: None,
        }),
        ..ContainerConfig::default()
    };
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: None,
    };
    let created = Box::pin(service.create_container(request)).await;
    let container_id = created.expect("a container is created").container_id;
    let request = StartContainerRequest { container_id: container_id.clone() };
    service.start_container(request).await.expect("a container starts");
    container_id
}

/// Created and started, ended by itself, removed: the moments.
async fn run_true(service: &Service, sandbox: &str) -> [Instant; 4] {
    let begun = Instant::now();
    let container_id = start(service, sandbox, &["true"]).await;
    let started = Instant::now();
    service.wait(&container_id).await.expect("the container is there");
    let ended = Instant::now();
    let request = RemoveContainerRequest { container_id };
    service.remove_container(request).await.expect("a container is removed");
    [begun, started, ended, Instant::now()]
}

fn medians(parts: &[[Instant; 4]]) -> Vec<(&'static str, f64)> {
    let names = ["create and start ms", "end ms", "remove ms"];
    let median = |part: usize| {
        let mut times: Vec<Duration> = parts.iter().map(|t| t[part + 1] - t[part]).collect();
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    names.into_iter().enumerate().map(|(part, name)| (name, median(part))).collect()
}

async fn sleeper(service: &Service, place: &Place) -> String {
    let sandbox = run_sandbox(service, place).await;
    start(service, &sandbox, &["sleep", "1000"]).await;
    sandbox
}

async fn remove_sandbox(service: &Service, pod_sandbox_id: String) {
    let request = RemovePodSandboxRequest { pod_sandbox_id };
    service.remove_pod_sandbox(request).await.expect("a sandbox is removed");
}

/// `run` of the same program from bundles of the same files. Each that runs at once has a bundle of
/// its own, for the sake of its control group: in a common one the first to end kills the others.
fn theirs(
    place: &Place,
    program: &str,
    count: usize,
    parallel: usize,
) -> Option<(Vec<Duration>, Duration)> {
    let bundles = bundles(place, program, parallel)?;
    let run = |number: usize| {
        Command::new(program)
            .arg("--root")
            .arg(place.state.join(program))
            .args(["run", &format!("skiff-bench-{}-{number}", std::process::id())])
            .current_dir(&bundles[number % bundles.len()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it ran before")
    };
    let mut sequence = Vec::new();
    for number in 0..count {
        let begun = Instant::now();
        if !run(number).wait().expect("it is our child").success() {
            return None;
        }
        sequence.push(begun.elapsed());
    }
    let begun = Instant::now();
    let children: Vec<_> = (0..parallel).map(run).collect();
    let ended: Vec<_> = children.into_iter().map(|mut child| child.wait()).collect();
    let at_once = begun.elapsed();
    // Containers that fail are soon done, and no measure.
    let failed = ended.iter().filter(|end| !end.as_ref().is_ok_and(|end| end.success())).count();
    assert_eq!(failed, 0, "of {parallel} containers of {program} at once");
    Some((sequence, at_once))
}

/// Bundles that share a root.
fn bundles(place: &Place, program: &str, count: usize) -> Option<Vec<PathBuf>> {
    let folder = place.disk.join(program);
    let root = folder.join("rootfs");
    fs::create_dir_all(&root).ok()?;
    let layer = fs::read_dir(place.root().join("layers")).ok()?.flatten().next()?.path();
    Command::new("cp").arg("-a").arg(layer.join(".")).arg(&root).status().ok()?;
    let made = Command::new(program).arg("spec").current_dir(&folder).status().ok()?;
    let text = fs::read(folder.join("config.json")).ok()?;
    let mut spec: serde_json::Value = serde_json::from_slice(&text).ok()?;
    spec["process"]["args"] = serde_json::json!(["true"]);
    spec["process"]["terminal"] = serde_json::json!(false);
    spec["root"]["path"] = serde_json::json!(root);
    if !Path::new("/sys/fs/cgroup/memory").is_dir() {
        // A v2 without controllers has nothing to limit with, nor to show.
        spec["linux"]["resources"] = serde_json::json!({});
        spec["mounts"].as_array_mut()?.retain(|mount| mount["type"] != "cgroup");
    }
    let bundle = |number: usize| {
        let bundle = folder.join(number.to_string());
        fs::create_dir_all(&bundle).ok()?;
        let group = format!("{CGROUP_ROOT}/{program}-{number}");
        spec["linux"]["cgroupsPath"] = serde_json::json!(group);
        fs::write(bundle.join("config.json"), spec.to_string()).ok()?;
        Some(bundle)
    };
    let bundles = (0..count.max(1)).map(bundle).collect();
    if made.success() { bundles } else { None }
}

fn summary(mut each: Vec<Duration>, all: Duration, parallel: usize) -> Vec<(&'static str, f64)> {
    each.sort();
    let at = |share: f64| each[((each.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    vec![
        ("median ms", at(0.5)),
        ("p99 ms", at(0.99)),
        ("at once ms", all.as_secs_f64() * 1e3),
        ("at once", parallel as f64),
    ]
}

/// Their memory once they have given back what they do not need, a second after the last request.
async fn idle_shims() -> (f64, f64) {
    let busy = shim_memory();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = shim_memory();
        if now.0 < busy.0 / 2.0 {
            return now;
        }
    }
    shim_memory()
}

/// Resident memory of the shims, in total and what they do not share with anybody, on average.
fn shim_memory() -> (f64, f64) {
    let own = std::process::id();
    let shims: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|pid| {
            let parent = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            parent.contains("Name:\tskiff-shim") && parent.contains(&format!("PPid:\t{own}\n"))
        })
        .collect();
    let mean = |figure: fn(&str) -> f64| {
        shims.iter().map(|pid| figure(pid)).sum::<f64>() / shims.len().max(1) as f64
    };
    (mean(|pid| resident(pid, "VmRSS")), mean(|pid| resident(pid, "RssAnon")))
}

fn resident(pid: &str, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0)
}
