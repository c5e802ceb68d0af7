//! A runtime of a test's own: folders, an image of busybox, calls with few words.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use runtime::cri::v1::*;
use runtime::cri::{Client, Cri};
use runtime::image::{Images, RegistriesConfig};
use tempfile::TempDir;
use testkit::image::write_busybox;

pub const IMAGE: &str = "localhost/busybox:test";
/// Nothing here takes long; what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon in a process of its own, spoken to over its socket.
pub struct Machine {
    pub service: Client,
    daemon: Child,
    /// Holds the mounts that the daemon sees, if they are not the machine's.
    mounts: Option<Child>,
    setup: Setup,
    pub folder: TempDir,
}

/// What is not as usual.
#[derive(Default, Clone, Copy)]
pub struct Setup {
    /// The handler of sandboxes.
    pub handler: &'static str,
    /// Whether layers are copied, as where there is no overlayfs.
    pub copied: bool,
    /// Whether control groups are v2 alone, whatever the machine has.
    pub unified: bool,
}

impl Machine {
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let folder = tempfile::Builder::new().prefix("rt").tempdir().unwrap();
        let archive = folder.path().join("busybox.tar");
        write_busybox(&archive, IMAGE, &[("etc/passwd", PASSWD), ("etc/group", GROUP)]).unwrap();
        let images =
            Images::open(&folder.path().join("root"), RegistriesConfig::default()).unwrap();
        images.import(&archive, None).await.unwrap();
        drop(images);
        let mounts = setup.unified.then(unified_mounts);
        let daemon = start_daemon(setup, mounts.as_ref(), folder.path());
        let service = Client::new(&folder.path().join("cri.sock")).unwrap();
        let machine = Machine { service, daemon, mounts, setup, folder };
        machine.ready().await;
        machine
    }

    async fn ready(&self) {
        let version = VersionRequest::default();
        until(|| async { self.service.version(version.clone()).await.ok() }).await;
    }

    /// `kill -9`, as it comes.
    pub fn kill_daemon(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    /// Takes away everything that would not outlive the machine's power.
    pub fn reboot(&mut self) {
        self.kill_daemon();
        let here = self.folder.path().display().to_string();
        for pid in pids_with(&here) {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        runtime::cgroup::Group::new(&cgroup_root(self.folder.path()), "").remove().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in mounts.filter(|path| path.starts_with(&here)) {
            runtime::shim::sys::unmount(&runtime::shim::sys::c_path(path).unwrap()).unwrap();
        }
        fs::remove_dir_all(self.path("state")).unwrap();
    }

    pub async fn start_daemon(&mut self) {
        self.daemon = start_daemon(self.setup, self.mounts.as_ref(), self.folder.path());
        self.ready().await;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub async fn sandbox(&self) -> String {
        self.sandbox_with(|_| {}).await
    }

    pub async fn sandbox_with(&self, change: impl FnOnce(&mut PodSandboxConfig)) -> String {
        let mut config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("sandbox-{:08x}", fastrand::u32(..)),
                uid: "uid".to_owned(),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            hostname: "boxed".to_owned(),
            log_directory: self.path("logs").display().to_string(),
            ..PodSandboxConfig::default()
        };
        change(&mut config);
        self.run_sandbox(config).await.unwrap()
    }

    pub async fn run_sandbox(&self, config: PodSandboxConfig) -> Result<String, tonic::Status> {
        let runtime_handler = self.setup.handler.to_owned();
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler };
        Ok(Box::pin(self.service.run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    pub async fn create(
        &self,
        sandbox: &str,
        command: &str,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> Result<String, tonic::Status> {
        let name = format!("container-{:08x}", fastrand::u32(..));
        let mut config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.clone(), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.to_owned(), ..ImageSpec::default() }),
            command: ["sh", "-c", command].map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(NamespaceOption {
                        pid: NamespaceMode::Container.into(),
                        ..NamespaceOption::default()
                    }),
                    ..LinuxContainerSecurityContext::default()
                }),
                resources: None,
            }),
            ..ContainerConfig::default()
        };
        change(&mut config);
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(Box::pin(self.service.create_container(request)).await?.container_id)
    }

    pub async fn start(&self, id: &str) -> Result<(), tonic::Status> {
        let request = StartContainerRequest { container_id: id.to_owned() };
        self.service.start_container(request).await.map(drop)
    }

    pub async fn run(
        &self,
        sandbox: &str,
        command: &str,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> String {
        let id = self.create(sandbox, command, change).await.unwrap();
        self.start(&id).await.unwrap();
        id
    }

    /// Runs a command to its end: exit code and log, without times.
    pub async fn output(
        &self,
        sandbox: &str,
        command: &str,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> (i32, String) {
        let id = self.run(sandbox, command, change).await;
        let status = self.wait_exit(&id).await;
        let log = self.log(&status);
        self.remove(&id).await;
        (status.exit_code, log)
    }

    pub fn log(&self, status: &ContainerStatus) -> String {
        let text = fs::read_to_string(&status.log_path).unwrap_or_default();
        text.lines()
            .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub async fn status(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        self.service.container_status(request).await.unwrap().status.unwrap()
    }

    pub async fn wait_exit(&self, id: &str) -> ContainerStatus {
        until(|| async {
            let status = self.status(id).await;
            (status.state() == ContainerState::ContainerExited).then_some(status)
        })
        .await
    }

    pub async fn exec(&self, id: &str, command: &[&str]) -> ExecSyncResponse {
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 10,
        };
        self.service.exec_sync(request).await.unwrap()
    }

    pub async fn stop(&self, id: &str, timeout: i64) {
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        self.service.stop_container(request).await.unwrap();
    }

    pub async fn remove(&self, id: &str) {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        self.service.remove_container(request).await.unwrap();
    }

    pub async fn remove_sandbox(&self, id: &str) {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.service.remove_pod_sandbox(request).await.unwrap();
    }

    /// Removes everything and checks that nothing of it is left on the machine.
    pub async fn finish(mut self) {
        let list = self.service.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await;
        for sandbox in list.unwrap().items {
            self.remove_sandbox(&sandbox.id).await;
        }
        self.kill_daemon();
        let here = self.folder.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&here)).collect();
        assert!(left.is_empty(), "mounts are left: {left:#?}");
        let shims: Vec<String> = processes_with(&here).await;
        assert!(shims.is_empty(), "processes are left: {shims:?}");
        for folder in runtime::cgroup::Group::new(&cgroup_root(self.folder.path()), "").folders() {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let left: Vec<_> = entries.filter(|e| e.file_type().unwrap().is_dir()).collect();
            assert!(left.is_empty(), "control groups are left: {left:?}");
        }
        // What is in the trash, the next daemon clears away if this one did not get to it.
        for folder in ["state", "root/sandboxes", "root/containers"] {
            let left: Vec<_> = fs::read_dir(self.path(folder)).unwrap().flatten().collect();
            assert!(left.is_empty(), "{folder} has {left:?}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        // After a failed test everything is still there.
        let folder = self.folder.path();
        let mut reset = program(self.mounts.as_ref());
        let _ = reset.env("CGROUP_ROOT", cgroup_root(folder)).arg("reset").arg(folder).status();
        if let Some(mounts) = &mut self.mounts {
            let _ = mounts.kill();
            let _ = mounts.wait();
        }
    }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_runtime-alone");

fn start_daemon(setup: Setup, mounts: Option<&Child>, folder: &Path) -> Child {
    let mut program = program(mounts);
    program.env("CGROUP_ROOT", cgroup_root(folder));
    program.env("SNAPSHOTTER", if setup.copied { "native" } else { "auto" });
    if !setup.handler.is_empty() {
        let path = handler(setup.handler, folder);
        program.env("HANDLERS", format!("{}={}", setup.handler, path.display()));
    }
    program.arg("serve").arg(folder).spawn().unwrap()
}

/// Another OCI runtime. Debian's crun wants to lock memory for its filter of devices, although the
/// kernel does not any more: where that cannot be had, it is not told of devices.
fn handler(name: &str, folder: &Path) -> PathBuf {
    let path = testkit::tools::program(name, name);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    let may_lock = u64::from_str_radix(capabilities, 16).unwrap() & 1 << 24 != 0;
    if name != "crun" || may_lock {
        return path;
    }
    let script = format!(
        "#!/bin/sh\nbundle=\nfor word; do test \"$bundle\" = next && bundle=$word; \
         test \"$word\" = --bundle && bundle=next; done\n\
         test -n \"$bundle\" && sed -i 's/\"resources\":{{\"devices\":\\[[^]]*\\]}}/\"resources\":{{}}/' \
         $bundle/config.json\nexec {} \"$@\"\n",
        path.display()
    );
    let wrapper = folder.join("crun");
    fs::write(&wrapper, script).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

/// A test's own, so that what is left in it is the test's.
pub fn cgroup_root(folder: &Path) -> String {
    format!("/skiff-{}", folder.file_name().unwrap().to_string_lossy())
}

/// Ours, with the machine's mounts or those that somebody holds.
fn program(mounts: Option<&Child>) -> Command {
    let Some(holder) = mounts else { return Command::new(PROGRAM) };
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount=/proc/{}/ns/mnt", holder.id())).arg(PROGRAM);
    command
}

/// A process whose mounts have only v2 control groups. They are its own: the machine keeps its.
fn unified_mounts() -> Child {
    use std::io::Read;
    let script = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && \
                  echo ready && exec sleep 10000";
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    holder
}

/// Processes whose command line has the text, once those that are ending have ended.
async fn processes_with(text: &str) -> Vec<String> {
    for _ in 0..200 {
        let found = list_processes(text);
        if found.is_empty() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    list_processes(text)
}

pub fn list_processes(text: &str) -> Vec<String> {
    processes(text).map(|(_, line)| line).collect()
}

pub fn pids_with(text: &str) -> Vec<i32> {
    processes(text).map(|(pid, _)| pid).collect()
}

fn processes(text: &str) -> impl Iterator<Item = (i32, String)> {
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(move |(pid, _)| *pid != own)
        .filter_map(|(pid, path)| Some((pid, fs::read_to_string(path.join("cmdline")).ok()?)))
        .filter(move |(_, line)| line.contains(text))
}

/// Asks until there is an answer.
pub async fn until<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("it takes too long")
}

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n";
const GROUP: &str = "root:x:0:\nweb:x:1000:\nlogs:x:1234:web\n";
