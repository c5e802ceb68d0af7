//! The cluster that is judged: one of ours, a network namespace for each node, or somebody's.
use super::images::Made;
use super::options::Options;
use super::upstream::{Part, Place};
use super::{registry, shell, upstream};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{self, Held, Machines};

pub enum Cluster {
    Ours(Box<Ours>),
    Named(PathBuf),
}

/// A running `skiff up`, and a `skiff agent` for each further node; ended, and everything they made
/// removed, when this goes.
pub struct Ours {
    skiff: PathBuf,
    nodes: Vec<Member>,
    /// The network that all nodes' cards are in.
    _switch: Held,
}

/// One machine.
struct Member {
    /// What its cluster is called.
    cluster: &'static str,
    number: u8,
    folder: PathBuf,
    network: Held,
    /// The cluster itself first.
    processes: Vec<Child>,
}

/// Conditions and taints of nodes, as kubectl prints them.
const NODES_READY: &str = "jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {end}\
                           {.items[*].spec.taints}";
/// How long upstream's kubelet may take to be ready.
const PATIENCE: Duration = Duration::from_secs(180);

impl Cluster {
    pub fn kubeconfig(&self) -> PathBuf {
        match self {
            Cluster::Ours(ours) => ours.nodes[0].folder.join("data/kubeconfig"),
            Cluster::Named(path) => path.clone(),
        }
    }

    /// A program that reaches the cluster.
    pub fn within(&self, program: &Path) -> Command {
        match self {
            Cluster::Ours(ours) => ours.nodes[0].within(program),
            Cluster::Named(_) => Command::new(program),
        }
    }
}

impl Ours {
    /// Starts a cluster of so many nodes that knows these images, with its places in the folder.
    pub fn start(
        skiff: &Path,
        folder: &Path,
        images: &[Made],
        options: &Options,
        programs: &Path,
    ) -> Result<Ours, String> {
        let Machines { all, switch } = network::machines(options.nodes.max(1));
        let member = |(number, network)| Member::new(options.name(), number, folder, network);
        let nodes = (1..).zip(all).map(member).collect();
        let mut ours = Ours { skiff: skiff.to_owned(), nodes, _switch: switch };
        for node in &ours.nodes {
            node.reset(&ours.skiff)?; // what an earlier run, killed, has left
        }
        let address = registry::serve(&ours.nodes[0].network.path, network::ADDRESS, images)?;
        for node in &ours.nodes {
            shell::make_folder(&node.folder)?;
            registry::write_configuration(&node.registries(), address)?;
            node.import(&ours.skiff, images)?;
        }
        let process = ours.up(&options.with)?;
        ours.nodes[0].processes.push(process);
        let mut beside = Vec::new();
        let started = ours.nodes[0].run_parts(&ours.skiff, programs, &options.with, &mut beside);
        // They end with the cluster, whatever became of the others.
        ours.nodes[0].processes.extend(beside);
        started?;
        for at in 1..ours.nodes.len() {
            let process = ours.join(&ours.nodes[at])?;
            ours.nodes[at].processes.push(process);
        }
        Ok(ours)
    }

    fn up(&self, without: &[&Part]) -> Result<Child, String> {
        let node = &self.nodes[0];
        let mut command = node.within(&self.skiff);
        command.args(["up", "--v=2"]).args(node.places()).args(node.machine());
        for part in without {
            command.args(["--disable", part.ours]);
        }
        node.start(command, "skiff is ready")
    }

    /// Another machine, as its owner would make it a node.
    fn join(&self, node: &Member) -> Result<Child, String> {
        let mut token = self.nodes[0].within(&self.skiff);
        token.args(["token", "create", "--data-dir"]).arg(self.nodes[0].folder.join("data"));
        let token = shell::output(&mut token)?;
        let mut command = node.within(&self.skiff);
        command.args(["agent", "--v=2", "--token", token.trim(), "--server"]);
        command.arg(format!("https://{}:6443", network::ADDRESS));
        command.args(node.places()).args(node.machine());
        node.start(command, "this machine is node")
    }
}

impl Member {
    fn new(cluster: &'static str, number: u8, folder: &Path, network: Held) -> Member {
        let folder = folder.join(format!("node-{number}"));
        Member { cluster, number, folder, network, processes: Vec::new() }
    }

    fn address(&self) -> Ipv4Addr {
        network::address_of(self.number - 1)
    }

    /// Paths of sockets are bounded by the kernel, so this one is short.
    fn state(&self) -> String {
        format!("/run/skiff-{}-{}", self.cluster, self.number)
    }

    fn registries(&self) -> PathBuf {
        self.folder.join("registries.yaml")
    }

    fn import(&self, skiff: &Path, images: &[Made]) -> Result<(), String> {
        for image in images {
            let mut import = Command::new(skiff);
            import.args(["image", "--state", &self.state(), "--root"]);
            import.arg(self.folder.join("data/runtime")).arg("import").arg(&image.archive);
            shell::output(&mut import)?;
        }
        Ok(())
    }

    /// Starts a program and waits for the line that says that it runs.
    fn start(&self, command: Command, ready: &str) -> Result<Child, String> {
        self.start_as("skiff", command, ready)
    }

    fn start_as(&self, name: &str, mut command: Command, ready: &str) -> Result<Child, String> {
        let log = self.folder.join(format!("{name}.log"));
        let log = File::create(&log).map_err(shell::failed("create", &log))?;
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(shell::failed("start", Path::new("skiff")))?;
        let mut line = String::new();
        let output = child.stdout.take().expect("asked for a pipe");
        let _ = BufReader::new(output).read_line(&mut line);
        match line.starts_with(ready) {
            true => Ok(child),
            false => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("skiff said {line:?}; see {name}.log in {}", self.folder.display()))
            }
        }
    }

    /// Starts upstream's parts of this node.
    fn run_parts(
        &self,
        skiff: &Path,
        programs: &Path,
        parts: &[&Part],
        running: &mut Vec<Child>,
    ) -> Result<(), String> {
        let place = Place {
            folder: self.folder.clone(),
            node: format!("node-{}", self.number),
            address: self.address(),
            state: self.state(),
            cgroup_root: self.cgroup_root(),
        };
        for part in parts {
            let arguments = part.arguments(&place)?;
            if part.ours == "kubelet" {
                make_control_group(&place.cgroup_root)?;
                let mut runtime = self.within(skiff);
                runtime.args(upstream::runtime(&place, &self.registries()));
                // A kubelet that finds no runtime gives up.
                running.push(self.start_as("runtime", runtime, "the container runtime listens")?);
            }
            running.push(self.spawn(&programs.join(part.name), &arguments, part.name)?);
        }
        if parts.iter().any(|part| part.ours == "kubelet") {
            self.until_ready(programs)?;
        }
        Ok(())
    }

    /// Waits for the node of upstream's kubelet to take pods: nobody says so by himself.
    fn until_ready(&self, programs: &Path) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let mut kubectl = self.within(&programs.join("kubectl"));
            kubectl.arg("--kubeconfig").arg(self.folder.join("data/kubeconfig"));
            // It is tainted until whoever minds nodes has seen that it is ready.
            kubectl.args(["get", "nodes", "-o", NODES_READY]);
            let said = shell::output(&mut kubectl).unwrap_or_default();
            let is_ready = said.contains("Ready=True") && !said.contains("not-ready");
            if is_ready || begun.elapsed() > PATIENCE {
                return match is_ready {
                    true => Ok(()),
                    false => Err(format!(
                        "no node is ready: see kubelet.log in {}",
                        self.folder.display()
                    )),
                };
            }
        }
    }

    fn spawn(&self, program: &Path, arguments: &[String], name: &str) -> Result<Child, String> {
        let path = self.folder.join(format!("{name}.log"));
        let log = File::create(&path).map_err(shell::failed("create", &path))?;
        let other = log.try_clone().map_err(shell::failed("open", &path))?;
        let mut command = self.within(program);
        command.args(arguments).stdout(other).stderr(log);
        command.spawn().map_err(shell::failed("start", program))
    }

    fn cgroup_root(&self) -> String {
        format!("/skiff/{}-{}", self.cluster, self.number)
    }

    fn places(&self) -> Vec<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        [
            format!("--data-dir={}", at("data")),
            format!("--kubelet-dir={}", at("kubelet")),
            format!("--pod-logs-dir={}", at("logs")),
            format!("--state-dir={}", self.state()),
            format!("--cgroup-root={}", self.cgroup_root()),
        ]
        .to_vec()
    }

    fn machine(&self) -> [String; 3] {
        [
            format!("--node-name=node-{}", self.number),
            format!("--node-ip={}", self.address()),
            format!("--registries={}", self.registries().display()),
        ]
    }

    fn within(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network.path.display())).arg(program);
        command
    }

    fn reset(&self, skiff: &Path) -> Result<(), String> {
        let mut reset = self.within(skiff);
        shell::output(reset.args(["reset", "--yes"]).args(self.places())).map(drop)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            for mut process in node.processes.drain(..).rev() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        for node in &self.nodes {
            if let Err(problem) = node.reset(&self.skiff) {
                eprintln!("the remains of node {} are still there: {problem}", node.number);
            }
        }
    }
}

/// Upstream's kubelet wants its control group to be there, in every hierarchy.
fn make_control_group(group: &str) -> Result<(), String> {
    let root = Path::new("/sys/fs/cgroup");
    let group = group.trim_start_matches('/');
    if root.join("cgroup.controllers").exists() {
        return shell::make_folder(&root.join(group));
    }
    let entries = std::fs::read_dir(root).map_err(shell::failed("read", root))?;
    let mut hierarchies = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    hierarchies.try_for_each(|hierarchy| shell::make_folder(&hierarchy.join(group)))
}
