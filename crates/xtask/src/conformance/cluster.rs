//! The cluster that is judged: one of ours in a network of its own, or somebody's.
use super::images::Made;
use super::shell;
use netlink::route::Route;
use netlink::testing::Held;
use netlink::{Family, NetlinkError, Socket};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub enum Cluster {
    Ours(Box<Ours>),
    Named(PathBuf),
}

/// A running `skiff up`; ended, and everything it made removed, when this goes.
pub struct Ours {
    skiff: PathBuf,
    folder: PathBuf,
    network: Held,
    process: Option<Child>,
}

/// The node's address; nothing leaves the namespace.
const NODE_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Paths of sockets are bounded by the kernel, so this one is short.
const STATE: &str = "/run/skiff-conformance";

impl Cluster {
    pub fn kubeconfig(&self) -> PathBuf {
        match self {
            Cluster::Ours(ours) => ours.folder.join("kubeconfig"),
            Cluster::Named(path) => path.clone(),
        }
    }

    /// A program that reaches the cluster.
    pub fn within(&self, program: &Path) -> Command {
        match self {
            Cluster::Ours(ours) => ours.within(program),
            Cluster::Named(_) => Command::new(program),
        }
    }
}

impl Ours {
    /// Starts a cluster that knows these images, with its places in the folder.
    pub fn start(skiff: &Path, folder: &Path, images: &[Made]) -> Result<Ours, String> {
        let network = Held::new();
        netlink::namespace::within(&network.path, furnish)
            .and_then(|furnished| furnished)
            .map_err(|error| format!("a network for the cluster: {error}"))?;
        let (skiff, folder) = (skiff.to_owned(), folder.to_owned());
        let mut ours = Ours { skiff, folder, network, process: None };
        ours.reset()?; // what an earlier run, killed, has left
        shell::make_folder(&ours.folder)?;
        for image in images {
            let mut import = Command::new(&ours.skiff);
            import.args(["image", "--state", STATE, "--root"]);
            import.arg(ours.folder.join("data/runtime")).arg("import").arg(&image.archive);
            shell::output(&mut import)?;
        }
        ours.process = Some(ours.up()?);
        Ok(ours)
    }

    fn up(&self) -> Result<Child, String> {
        let log = self.folder.join("skiff.log");
        let log = File::create(&log).map_err(shell::failed("create", &log))?;
        let mut command = self.within(&self.skiff);
        command.args(["up", "--v=2", "--node-name=node"]).args(self.places());
        command.arg("--kubeconfig").arg(self.folder.join("kubeconfig"));
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(shell::failed("start", &self.skiff))?;
        let mut line = String::new();
        let output = child.stdout.take().expect("asked for a pipe");
        let _ = BufReader::new(output).read_line(&mut line);
        match line.starts_with("skiff is ready") {
            true => Ok(child),
            false => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("skiff up said {line:?}; see skiff.log in {}", self.folder.display()))
            }
        }
    }

    fn places(&self) -> Vec<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        [
            format!("--data-dir={}", at("data")),
            format!("--kubelet-dir={}", at("kubelet")),
            format!("--pod-logs-dir={}", at("logs")),
            format!("--state-dir={STATE}"),
            "--cgroup-root=/skiff/conformance".to_owned(),
        ]
        .to_vec()
    }

    fn within(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network.path.display())).arg(program);
        command
    }

    fn reset(&self) -> Result<(), String> {
        let mut reset = self.within(&self.skiff);
        shell::output(reset.args(["reset", "--yes"]).args(self.places())).map(drop)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Err(problem) = self.reset() {
            eprintln!("the cluster's remains are still there: {problem}");
        }
    }
}

/// A bridge without ports stands for the machine's network card.
fn furnish() -> Result<(), NetlinkError> {
    let mut socket = Socket::open(Family::Route)?;
    if let Some(own) = socket.link("lo")? {
        socket.set_link_up(own.index)?;
    }
    let card = socket.ensure_bridge("card0", 1500)?;
    socket.add_address(card, NODE_IP.into(), 24)?;
    socket.set_link_up(card)?;
    let gateway = Ipv4Addr::from(u32::from(NODE_IP) - 1).into();
    let destination = (Ipv4Addr::UNSPECIFIED.into(), 0);
    socket.set_route(&Route { destination, link: card, gateway: Some(gateway) })
}
