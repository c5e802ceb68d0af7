//! What limits come to, and a real systemd that makes slices.
use super::*;
use crate::testing::until;
use std::process::{Child, Command, Stdio};

fn check(spec: serde_json::Value, expected: (u64, Option<i64>, Option<i64>)) {
    let pod = serde_json::json!({ "metadata": { "uid": "u" }, "spec": spec });
    let enforcement = Enforcement::default();
    let settings = Settings { enforcement: &enforcement, pids: None };
    let made = of_pod(&serde_json::from_value(pod).expect("a pod"), &settings);
    assert_eq!((made.cpu_shares.expect("shares"), made.cpu_quota, made.memory), expected);
}

#[test]
fn a_pod_is_limited_if_all_its_containers_are() {
    let one =
        |resources: serde_json::Value| serde_json::json!({ "name": "c", "resources": resources });
    let limited = one(
        serde_json::json!({ "limits": { "cpu": "500m", "memory": "64Mi" }, "requests": { "cpu": "500m", "memory": "64Mi" } }),
    );
    let free = one(serde_json::json!({}));
    check(serde_json::json!({ "containers": [free] }), (2, None, None));
    check(serde_json::json!({ "containers": [limited, free] }), (512, None, None));
    check(
        serde_json::json!({ "containers": [limited, limited] }),
        (1024, Some(100_000), Some(128 << 20)),
    );
    check(
        serde_json::json!({ "containers": [free], "resources": { "limits": { "memory": "1Mi" } } }),
        (2, None, Some(1 << 20)),
    );
}

#[test]
fn groups_go_from_the_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    let pod = folder.path().join("memory/kubepods/podx");
    fs::create_dir_all(pod.join("a/b")).expect("folders");
    assert_eq!(hierarchies(folder.path()), [folder.path().join("memory")]);
    remove_below(&pod).expect("it goes");
    assert!(!pod.exists() && folder.path().join("memory/kubepods").exists());
    fs::write(folder.path().join("cgroup.controllers"), "").expect("a file");
    assert_eq!(hierarchies(folder.path()), [folder.path()]);
}

/// systemd as the first process of a machine that is no more than namespaces, with control groups of its own.
struct Systemd {
    first: Child,
    name: String,
    group: PathBuf,
}

impl Systemd {
    /// None without root, systemd, or a hierarchy of version 2 to be in.
    fn boot() -> Option<Systemd> {
        let program = "/lib/systemd/systemd";
        let hierarchies = runtime::cgroup::hierarchies();
        let mounted = hierarchies.iter().find(|one| one.is_v2())?;
        if !rustix::process::geteuid().is_root() || !Path::new(program).exists() {
            return None;
        }
        let name = format!("skiff-systemd-{}", std::process::id());
        let group = mounted.root.join(&name);
        fs::create_dir_all(&group).expect("a group");
        let idle = "[Unit]\\nDefaultDependencies=no\\n";
        let inside = format!(
            "mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run && mount -t tmpfs none /tmp && \
             mkdir -p /run/systemd/system && printf '{idle}' > /run/systemd/system/idle.target && \
             exec env -i container=other PATH=\"$PATH\" {program} --system --unit=idle.target --log-target=null"
        );
        let apart =
            "unshare --cgroup --pid --mount --fork --kill-child --mount-proc --propagation private";
        let script =
            format!("echo $$ > {}/cgroup.procs && exec {apart} sh -c \"$0\"", group.display());
        let first = Command::new("sh")
            .args(["-c", &script, &inside])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        Some(Systemd { first, name, group })
    }

    /// The first process, as we see it.
    fn pid(&self) -> Option<String> {
        let children = format!("/proc/{0}/task/{0}/children", self.first.id());
        fs::read_to_string(children).ok()?.split_whitespace().next().map(str::to_owned)
    }

    /// What it listens on, seen from outside.
    fn socket(&self) -> Option<PathBuf> {
        Some(PathBuf::from(format!("/proc/{}/root{}", self.pid()?, systemd::SOCKET)))
    }

    fn has(&self, path: &str) -> bool {
        self.group.join(path).is_dir()
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
        let _ = Group::new("", &self.name).remove();
    }
}

/// Where the systemd is that the test below has booted: as it speaks with nobody whose process it cannot see, that
/// runs this program once more, among its own processes.
const BOOTED: &str = "SKIFF_BOOTED_SYSTEMD";

#[tokio::test]
async fn systemd_makes_slices_and_takes_them_away() {
    if let Some(socket) = std::env::var_os(BOOTED) {
        return ask(Path::new(&socket));
    }
    let Some(machine) = Systemd::boot() else {
        eprintln!("no root, systemd or control groups v2: nothing was tried");
        return;
    };
    until("systemd listens", || machine.socket().is_some_and(|socket| socket.exists())).await;
    let (pid, socket) = (machine.pid().expect("it runs"), machine.socket().expect("it listens"));
    let test = std::env::current_exe().expect("this program");
    let asked = Command::new("nsenter")
        .args(["--target", &pid, "--pid"])
        .arg(test)
        .args(["--exact", "cgroups::tests::systemd_makes_slices_and_takes_them_away"])
        .env(BOOTED, socket)
        .output()
        .expect("nsenter");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned()
        + &String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success() && said.contains("1 passed"), "{said}");
    // Its own hierarchy is part of ours.
    assert!(machine.has("kubepods.slice/kubepods-pod2.slice"));
    assert!(!machine.has("kubepods.slice/kubepods-pod1_a.slice"));
}

fn ask(socket: &Path) {
    let unit = |name: &str| slices::unit(&slices_of(name)).expect("a slice");
    let (slice, parent) = unit("/kubepods/pod1-a");
    let make = |limits: &Resources| {
        systemd::make(socket, &slice, &parent, &slices::properties(limits, true)).expect("made");
    };
    let told = |name: &str| systemd::property(socket, &slice, name).expect("an answer");
    make(&Resources { pids: Some(50), cpu_shares: Some(1024), ..Resources::default() });
    assert_eq!((told("TasksMax"), told("CPUWeight")), (Some(50), Some(100)));
    // It is there: its limits change, and what is not said stays.
    make(&Resources { pids: Some(70), memory: Some(1 << 30), ..Resources::default() });
    assert_eq!((told("TasksMax"), told("CPUWeight")), (Some(70), Some(100)));
    assert_eq!(told("MemoryMax"), Some(1 << 30));
    make(&Resources::default());
    for _ in 0..2 {
        systemd::stop(socket, &slice).expect("stopped, or not there");
    }
    let (slice, parent) = unit("/kubepods/pod2");
    systemd::make(socket, &slice, &parent, &[]).expect("made");
    let refused = systemd::make(socket, "no name", &parent, &[]).unwrap_err();
    assert!(refused.to_string().starts_with("systemd: "), "{refused}");
}
