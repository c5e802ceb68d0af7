//! A server on a free port, and the real kubectl to drive it.
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;
use testkit::network::{self, Held, within};

/// A running `skiff up`; killed when it goes.
pub struct Cluster {
    pub folder: TempDir,
    pub process: Child,
    kubectl: PathBuf,
    /// A whole cluster has a network of its own: several run beside each other.
    pub network: Option<Held>,
    /// Flags besides the usual ones.
    flags: Vec<String>,
}

impl Cluster {
    /// The API server alone.
    pub fn start() -> Cluster {
        Cluster::with(None, &[])
    }

    /// The API server alone, on what is in this folder.
    pub fn at(folder: TempDir) -> Cluster {
        let process = up(&folder, None, &[]);
        let kubectl = testkit::tools::program("kubectl", "kubernetes-client");
        Cluster { folder, process, kubectl, network: None, flags: Vec::new() }
    }

    /// Everything, as a user has it.
    pub fn whole() -> Cluster {
        Cluster::whole_on(network::machine(), &[])
    }

    /// The same on a machine with this network, and with flags of one's own.
    pub fn whole_on(network: Held, flags: &[&str]) -> Cluster {
        Cluster::with(Some(network), flags)
    }

    fn with(network: Option<Held>, flags: &[&str]) -> Cluster {
        let folder = TempDir::new().expect("a temporary folder");
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let process = up(&folder, network.as_ref(), &flags);
        let kubectl = testkit::tools::program("kubectl", "kubernetes-client");
        Cluster { folder, process, kubectl, network, flags }
    }

    /// The account that pods act as: a controller's work, done by hand.
    pub fn with_default_account(self) -> Cluster {
        self.kubectl("create serviceaccount default -n default");
        self
    }

    /// Brings in an image of busybox, into a whole cluster.
    pub fn import_busybox(&self, name: &str) {
        let archive = self.folder.path().join("busybox.tar");
        testkit::image::write_busybox(&archive, name, &[]).expect("an archive");
        let mut import = Command::new(env!("CARGO_BIN_EXE_skiff"));
        import.arg("image").arg("--root").arg(self.folder.path().join("data/runtime"));
        import.arg("--state").arg(self.folder.path().join("run")).arg("import").arg(&archive);
        let output = import.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Kills the server without warning and starts it on the same data.
    pub fn crash_and_restart(&mut self) {
        self.stop();
        self.start_again();
    }

    pub fn stop(&mut self) {
        self.process.kill().expect("a running process");
        self.process.wait().expect("a killed process");
    }

    /// Asks the server to end, as a machine that goes down does, and waits until it has.
    pub fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        asked.expect("a running process");
        let status = self.process.wait().expect("an ended process");
        assert!(status.success(), "{status}");
    }

    pub fn start_again(&mut self) {
        self.process = up(&self.folder, self.network.as_ref(), &self.flags);
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = within(self.network.as_ref(), &self.kubectl);
        command
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("HOME", self.folder.path());
        command
    }

    /// Runs kubectl with this input; its output, or `error: …` with what it complained about.
    pub fn kubectl_with(&self, arguments: &str, input: &str) -> String {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            text(&output.stdout)
        } else {
            format!("error: {}", text(&output.stderr))
        }
    }

    /// The same, split as given: for arguments with spaces in them.
    pub fn kubectl_args(&self, arguments: &[&str]) -> String {
        let output = self.command("").args(arguments).output().expect("kubectl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => text(&output.stdout),
            false => format!("error: {}", text(&output.stderr)),
        }
    }

    pub fn kubectl(&self, arguments: &str) -> String {
        self.kubectl_with(arguments, "")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Asks again until the answer is this one.
    pub fn until(&self, arguments: &str, expected: &str) {
        let begun = std::time::Instant::now();
        loop {
            let said = self.kubectl(arguments);
            if said == expected {
                return;
            }
            assert!(begun.elapsed().as_secs() < 30, "{arguments}: {said}");
        }
    }

    pub fn json(&self, arguments: &str) -> Value {
        let text = self.kubectl(&format!("{arguments} -o json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments}: {error}: {text}"))
    }

    /// Starts kubectl and hands over its output as it comes.
    pub fn stream(&self, arguments: &str) -> (Child, BufReader<ChildStdout>) {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("kubectl runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        (child, output)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if self.network.is_some() {
            let mut reset = within(self.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
            reset.args(["reset", "--yes"]).args(places(&self.folder));
            let _ = reset.arg("--data-dir").arg(self.folder.path().join("data")).output();
        }
    }
}

/// Where a whole cluster puts what is not in its data folder.
pub fn places(folder: &TempDir) -> Vec<String> {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let name = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    [
        format!("--kubelet-dir={}", at("kubelet")),
        format!("--pod-logs-dir={}", at("logs")),
        format!("--state-dir={}", at("run")),
        format!("--cgroup-root=/skiff/{}", name.trim_start_matches('.')),
    ]
    .to_vec()
}

fn up(folder: &TempDir, network: Option<&Held>, flags: &[String]) -> Child {
    let mut command = within(network, env!("CARGO_BIN_EXE_skiff").as_ref());
    command.arg("up").args(flags);
    match network {
        Some(_) => {
            let is_named = flags.iter().any(|flag| flag.starts_with("--node-name"));
            command.args(places(folder)).args((!is_named).then_some("--node-name=node"))
        }
        None => command.args(["--disable", "*", "--bind-address", "127.0.0.1", "--port", "0"]),
    };
    let kubeconfig = folder.path().join("kubeconfig");
    command.arg("--kubeconfig").arg(kubeconfig).arg("--data-dir");
    command.arg(match network {
        Some(_) => folder.path().join("data"),
        None => folder.path().to_owned(),
    });
    let mut child = command.stdout(Stdio::piped()).spawn().expect("skiff starts");
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("skiff speaks");
    assert!(line.starts_with("skiff is ready at https://127.0.0.1:"), "{line}");
    child
}
