//! A cluster of somebody who is not root.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::network::{self, Held, within};

struct User {
    /// A number that nobody of this machine has, and no other test.
    uid: u32,
    home: TempDir,
    /// The machine that they are on.
    machine: Held,
}

/// Makes what every machine has and this one may not: a device that users may open, and what the machine
/// knows of this user, where it knows anything.
const PREPARE: &str = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && \
                       for name in passwd subuid subgid; do \
                         if [ -e $HOME/$name ]; then mount --bind $HOME/$name /etc/$name; fi; \
                       done && exec setpriv --reuid \"$0\" --regid \"$0\" --clear-groups \"$@\"";

impl User {
    fn new() -> User {
        static USERS: AtomicU32 = AtomicU32::new(0);
        // Numbers of processes have six digits and a half.
        let uid = 100_000 + std::process::id() + USERS.fetch_add(1, Relaxed) * 5_000_000;
        let home = TempDir::with_prefix("rootless").expect("a folder");
        std::os::unix::fs::chown(home.path(), Some(uid), Some(uid)).expect("theirs");
        User { uid, home, machine: network::machine() }
    }

    /// One for whom the machine sets numbers aside.
    fn with_numbers() -> (User, u32) {
        testkit::tools::program("newuidmap", "uidmap");
        let user = User::new();
        let first = user.uid + 100_000_000;
        let write = |name: &str, text: String| {
            std::fs::write(user.home.path().join(name), text).expect("a file is written");
        };
        let known = std::fs::read_to_string("/etc/passwd").expect("users");
        write("passwd", format!("{known}rootless:x:{0}:{0}::/:/bin/sh\n", user.uid));
        for name in ["subuid", "subgid"] {
            write(name, format!("rootless:{first}:65536\n"));
        }
        (user, first)
    }

    fn command(&self, program: &Path) -> Command {
        let unshare = testkit::tools::program("unshare", "util-linux");
        let mut command = within(Some(&self.machine), &unshare);
        command.args(["--mount", "sh", "-c", PREPARE]).arg(self.uid.to_string()).arg(program);
        command.current_dir("/").env("HOME", self.home.path());
        command.env("XDG_RUNTIME_DIR", self.home.path().join("run")).env_remove("XDG_DATA_HOME");
        command
    }

    fn skiff(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_skiff").as_ref())
    }

    /// Runs this in the machine's own network.
    fn there<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        netlink::namespace::within(&self.machine.path, run).expect("entered")
    }

    /// Starts a cluster; the address of its API server.
    fn up(&self) -> (Child, String) {
        let mut up = self.skiff();
        up.args(["up", "--node-name", "node"]);
        let mut child = up.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.find_map(|line| {
            let line = line.expect("a line");
            Some(line.strip_prefix("skiff is ready at ")?.to_owned())
        });
        (child, ready.expect("it becomes ready"))
    }

    fn kubectl(&self, arguments: &str, input: &str) -> String {
        let kubectl = testkit::tools::program("kubectl", "kubernetes-client");
        let mut command = self.command(&kubectl);
        command.env("KUBECONFIG", self.home.path().join(".local/share/skiff/kubeconfig"));
        command.args(arguments.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    fn until(&self, arguments: &str, holds: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let said = self.kubectl(arguments, "");
            if holds(&said) {
                return said;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{arguments}: {said}");
        }
    }
}

/// Whatever a test that failed has left.
impl Drop for User {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn end(mut child: Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a process");
    assert!(child.wait().expect("it ends").success());
}

fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains(" 200 OK").then_some(text)
}

const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: web, image: localhost/skiff/demo, resources: {limits: {memory: 64Mi, cpu: 500m}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec: {containers: [{name: client, image: localhost/skiff/demo}]}
"#;

#[test]
fn a_user_has_a_cluster_of_their_own_and_nothing_is_left_of_it() {
    let user = User::new();
    let (up, server) = user.up();
    assert!(server.starts_with("https://127.0.0.1:6443"), "{server}");
    user.kubectl("apply -f -", WEB);
    user.kubectl("wait --for condition=Ready pod/web pod/client --timeout 60s", "");
    let get = "exec client -- /skiff demo --get http://web/hostname";
    user.until(get, |said| said.contains("web"));
    let node_port = user.kubectl("get service web -o jsonpath={.spec.ports[0].nodePort}", "");
    let node_port: u16 = node_port.parse().expect("a port");
    let begun = Instant::now();
    while !user.there(|| page(node_port)).is_some_and(|page| page.contains("web")) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the node port is the machine's too");
    }

    // The way out.
    let outside = user.there(|| TcpListener::bind((network::ADDRESS, 8000)).expect("a port"));
    std::thread::spawn(move || {
        for stream in outside.incoming().flatten() {
            let _ = (&stream).read(&mut [0; 1024]);
            let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\noutside");
        }
    });
    let out = format!("exec client -- /skiff demo --get http://{}:8000/", network::ADDRESS);
    user.until(&out, |said| said.contains("outside"));

    // Pods outlive it, and the next one finds them.
    let id = "get pod web -o jsonpath={.status.containerStatuses[0].containerID}";
    let before = user.kubectl(id, "");
    end(up);
    let (up, _) = user.up();
    user.until(get, |said| said.contains("web"));
    assert_eq!(user.kubectl(id, ""), before);
    end(up);

    let reset = user.skiff().args(["reset", "--yes"]).output().expect("it runs");
    assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
    assert_eq!(user.processes(), Vec::new());
    let left = user.home.path().join(".local/share/skiff");
    assert!(!left.exists(), "{}", left.display());
}

const SOMEBODY: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: somebody}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000}
  containers:
  - name: main
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "echo mine > /data/file; sleep 1000000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
"#;

#[test]
fn with_numbers_set_aside_containers_have_users() {
    let (user, first) = User::with_numbers();
    let archive = user.home.path().join("busybox.tar");
    testkit::image::write_busybox(&archive, "localhost/busybox:1", &[]).expect("an archive");
    let (up, _) = user.up();
    let import = user.skiff().args(["image", "import"]).arg(&archive).output().expect("it runs");
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    user.kubectl("apply -f -", SOMEBODY);
    let ready = "wait --for condition=Ready pod/somebody --timeout 60s";
    assert!(user.kubectl(ready, "").contains("met"), "{}", user.kubectl("describe pods", ""));
    assert_eq!(user.kubectl("exec somebody -- id -u", ""), "1000");
    assert_eq!(user.kubectl("exec somebody -- id -G", ""), "3000 2000");
    assert_eq!(user.kubectl("exec somebody -- stat -c %u:%g /data/file", ""), "1000:2000");
    assert_eq!(user.kubectl("exec somebody -- stat -c %u /bin/busybox", ""), "0");
    // On the machine they are the numbers that were set aside, and nobody else's.
    let processes = processes_of(first + 999);
    assert!(processes.iter().any(|(_, line)| line.contains("sleep")), "{processes:?}");
    end(up);
    let reset = user.skiff().args(["reset", "--yes"]).output().expect("it runs");
    assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
    assert_eq!([user.processes(), processes_of(first + 999)].concat(), Vec::new());
    assert!(!user.home.path().join(".local/share/skiff").exists(), "files of others go too");
}

impl User {
    /// What this user still runs.
    fn processes(&self) -> Vec<(rustix::process::Pid, String)> {
        processes_of(self.uid)
    }
}

fn processes_of(uid: u32) -> Vec<(rustix::process::Pid, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let is_theirs = |line: &str| {
            line.strip_prefix("Uid:")
                .is_some_and(|ids| ids.split_whitespace().any(|id| id == uid.to_string()))
        };
        let is_dead = status.contains("State:\tZ");
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let pid = number.and_then(rustix::process::Pid::from_raw);
        if let (Some(pid), true, false) = (pid, status.lines().any(is_theirs), is_dead) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
