//! The cluster that is judged: one of ours, a network namespace for each node, or somebody's.
use super::containerd::{self, Home};
use super::images::Made;
use super::options::{Options, Runtime};
use super::upstream::{Part, Place};
use super::{registry, shell, stock, upstream};
use netlink::route::Route;
use netlink::{Family, NetlinkError, Socket};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
pub struct Member {
    /// What its cluster is called.
    cluster: &'static str,
    number: u8,
    pub folder: PathBuf,
    network: Held,
    /// In the order in which they were started.
    processes: Vec<Child>,
    /// Where containerd is, if pods run on it.
    containerd: Option<Home>,
}

/// Conditions and taints of nodes, as kubectl prints them.
const NODES_READY: &str = "jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {end}\
                           {.items[*].spec.taints}";
/// How long upstream's kubelet may take to be ready, and a node to be given its share of addresses.
pub const PATIENCE: Duration = Duration::from_secs(180);

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
        let name = options.subject().name;
        let member =
            |(number, network)| Member::new(name, number, folder, network, options.runtime);
        let nodes = (1..).zip(all).map(member).collect();
        let mut ours = Ours { skiff: skiff.to_owned(), nodes, _switch: switch };
        for node in &ours.nodes {
            node.clear(&ours.skiff)?; // what an earlier run, killed, has left
        }
        let address = registry::serve(&ours.nodes[0].network.path, network::ADDRESS, images)?;
        for node in &mut ours.nodes {
            shell::make_folder(&node.folder)?;
            registry::write_configuration(&node.registries(), address)?;
            match options.runtime {
                Runtime::Embedded => node.import(&ours.skiff, images)?,
                Runtime::Containerd => node.run_containerd(&ours.skiff, address, images)?,
            }
        }
        let mut beside = Vec::new();
        let started = match upstream::is_stock(&options.with) {
            true => stock::run(&ours.nodes[0], &ours.skiff, programs, &options.with, &mut beside),
            false => {
                let process = ours.up(&options.with)?;
                ours.nodes[0].processes.push(process);
                ours.nodes[0].run_parts(&ours.skiff, programs, &options.with, &mut beside)
            }
        };
        // They end with the cluster, whatever became of the others.
        ours.nodes[0].processes.extend(beside);
        started?;
        for at in 1..ours.nodes.len() {
            let process = ours.join(&ours.nodes[at])?;
            ours.nodes[at].processes.push(process);
            if options.runtime == Runtime::Containerd {
                ours.connect(at, &programs.join("kubectl"))?;
            }
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

    /// Pods' addresses of one more node, and the ways between them and those of the nodes before it:
    /// what our pod network does by itself where it is not another runtime's plugin.
    fn connect(&self, at: usize, kubectl: &Path) -> Result<(), String> {
        let node = &self.nodes[at];
        let share = self.share_of(node, kubectl)?;
        if let Some(home) = &node.containerd {
            home.give_addresses(&share)?;
        }
        for other in &self.nodes[..at] {
            other.lead(&share, node.address())?;
            node.lead(&self.share_of(other, kubectl)?, other.address())?;
        }
        Ok(())
    }

    /// The pod CIDR that a node was given; waited for.
    fn share_of(&self, node: &Member, kubectl: &Path) -> Result<String, String> {
        let (first, begun) = (&self.nodes[0], Instant::now());
        loop {
            let mut command = first.within(kubectl);
            command.arg("--kubeconfig").arg(first.folder.join("data/kubeconfig"));
            command.args(["get", "node", &format!("node-{}", node.number)]);
            let said = shell::output(command.args(["-o", "jsonpath={.spec.podCIDR}"]));
            match said {
                Ok(share) if !share.is_empty() => return Ok(share),
                _ if begun.elapsed() < PATIENCE => {}
                said => return Err(format!("node-{} has no addresses: {said:?}", node.number)),
            }
        }
    }
}

impl Member {
    fn new(
        cluster: &'static str,
        number: u8,
        folder: &Path,
        network: Held,
        runtime: Runtime,
    ) -> Member {
        let folder = folder.join(format!("node-{number}"));
        let (processes, containerd) = (Vec::new(), None);
        let mut member = Member { cluster, number, folder, network, processes, containerd };
        if runtime == Runtime::Containerd {
            let state = PathBuf::from(member.state());
            member.containerd = Some(Home {
                folder: member.folder.join("containerd"),
                state: state.join("c"),
                addresses: state.join("network"),
                cgroup_root: member.cgroup_root(),
                network: format!("skiff-{cluster}-{number}"),
            });
        }
        member
    }

    fn address(&self) -> Ipv4Addr {
        network::address_of(self.number - 1)
    }

    /// Paths of sockets are bounded by the kernel, so this one is short.
    fn state(&self) -> String {
        format!("/run/skiff-{}-{}", self.cluster, self.number)
    }

    pub fn registries(&self) -> PathBuf {
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

    /// Starts the containerd that pods run on, with the images in it.
    fn run_containerd(
        &mut self,
        skiff: &Path,
        registry: SocketAddr,
        images: &[Made],
    ) -> Result<(), String> {
        let Some(home) = &self.containerd else { return Ok(()) };
        let program = Home::install();
        home.furnish(skiff, registry, images)?;
        if self.number == 1 {
            // The others' are known when they have joined.
            home.give_addresses(containerd::FIRST_SHARE)?;
        }
        let mut process = self.spawn(&program, &home.arguments(), "containerd")?;
        let filled = home.fill(&mut process, images);
        // It ends with the cluster, whatever became of the images.
        self.processes.push(process);
        filled
    }

    /// The way to another node's pods.
    fn lead(&self, share: &str, by: Ipv4Addr) -> Result<(), String> {
        let wrong = || format!("{share} is no network");
        let (address, prefix) = share.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let destination = (address, prefix);
        let set = || -> Result<(), NetlinkError> {
            let mut socket = Socket::open(Family::Route)?;
            let link = socket.link("card0")?.expect("every machine has one").index;
            socket.set_route(&Route { destination, link, gateway: Some(by.into()) })
        };
        netlink::namespace::within(&self.network.path, set)
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("failed to lead to {share}: {error}"))
    }

    /// Starts a program and waits for the line that says that it runs.
    pub fn start(&self, command: Command, ready: &str) -> Result<Child, String> {
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
        let place = self.place(parts);
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

    /// Where parts that run by themselves find what they need.
    pub fn place(&self, parts: &[&Part]) -> Place {
        Place {
            folder: self.folder.clone(),
            node: format!("node-{}", self.number),
            address: self.address(),
            state: self.state(),
            cgroup_root: self.cgroup_root(),
            by_socket: parts.iter().any(|part| part.ours == "kubelet"),
        }
    }

    /// Waits for the node of upstream's kubelet to take pods: nobody says so by himself.
    pub fn until_ready(&self, programs: &Path) -> Result<(), String> {
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

    pub fn spawn(&self, program: &Path, arguments: &[String], name: &str) -> Result<Child, String> {
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

    pub fn places(&self) -> Vec<String> {
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

    pub fn machine(&self) -> Vec<String> {
        let mut all = vec![
            format!("--node-name=node-{}", self.number),
            format!("--node-ip={}", self.address()),
            format!("--registries={}", self.registries().display()),
        ];
        if let Some(home) = &self.containerd {
            all.push(format!("--container-runtime-endpoint={}", home.endpoint()));
        }
        all
    }

    pub fn within(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network.path.display())).arg(program);
        command
    }

    /// Removes what was made on the machine: by containerd first, whose mounts are among ours.
    fn clear(&self, skiff: &Path) -> Result<(), String> {
        if let Some(home) = &self.containerd {
            home.clear()?;
        }
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
            if let Err(problem) = node.clear(&self.skiff) {
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
