//! The commands about containers on this machine: thin calls into the runtime.
mod image;
pub mod kubelet;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use runtime::image::RegistriesConfig;
use runtime::network::{Cni, Loopback, Network};
use runtime::{Options, Service, Snapshotter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Subcommand)]
pub enum Command {
    /// Run the container runtime alone, for crictl or upstream's kubelet.
    Cri(Cri),
    /// Run the kubelet on the embedded container runtime, with upstream's flags.
    Kubelet(Box<kubelet::Options>),
    /// List, fetch, import, export and remove images.
    Image {
        #[command(flatten)]
        places: Places,
        #[command(subcommand)]
        command: image::Command,
    },
    /// Do nothing until told to end: the program of the built-in image `localhost/skiff/pause`.
    // Run before commands are read, to stay small.
    Pause,
    /// Serve a page that tells where it runs: the program of the built-in image
    /// `localhost/skiff/demo`.
    Demo {
        #[arg(long, default_value_t = 8080)]
        port: u16,
        /// Fetch such a page instead, and print it: `http://web/hostname`.
        #[arg(long, value_name = "URL")]
        get: Option<String>,
    },
    /// Make or remove the folder of a local volume: the program of the built-in image
    /// `localhost/skiff/volume`.
    #[command(hide = true)]
    Volume {
        #[command(subcommand)]
        step: VolumeStep,
    },
}

#[derive(Subcommand)]
pub enum VolumeStep {
    /// Make it, in a folder of its own.
    Make { folder: PathBuf },
    /// Remove it with all that is in it.
    Remove { folder: PathBuf },
}

const DEFAULT_SOCKET: &str = "unix:///run/skiff/cri.sock";

impl Command {
    /// Whether it works on what containers are made of.
    pub fn touches_images(&self) -> bool {
        matches!(self, Command::Image { .. })
    }
}

#[derive(clap::Args)]
pub struct Places {
    /// Where images and containers are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir().join("runtime"))]
    pub root: PathBuf,
    /// Where sockets and mounts are; a short path.
    #[arg(long, default_value_os_t = crate::places::state_dir())]
    state: PathBuf,
    /// The control group below which sandboxes are that were given none.
    #[arg(long, default_value = "/skiff")]
    cgroup_root: String,
    /// Mirrors, credentials and authorities of registries.
    #[arg(long, default_value = "/etc/skiff/registries.yaml")]
    pub registries: PathBuf,
    #[command(flatten)]
    plugins: Plugins,
}

/// Networks that others make (CNI).
#[derive(Debug, Clone, clap::Args)]
pub struct Plugins {
    /// Networks of sandboxes (CNI): without one of these files pods have the built-in network.
    #[arg(long, default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Where CNI plugins are; can be given several times.
    #[arg(long, default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dir: Vec<PathBuf>,
    /// Whether pods wait for plugins where nobody has configured any yet.
    #[arg(skip)]
    pub always: bool,
}

impl Plugins {
    pub fn are_configured(&self) -> bool {
        std::fs::read_dir(&self.cni_conf_dir).is_ok_and(|mut files| files.next().is_some())
    }
}

impl Places {
    /// What the pod network has given to whom.
    pub fn pod_network(&self) -> PathBuf {
        self.state.join("network")
    }
}

#[derive(clap::Args)]
pub struct Cri {
    /// The socket to serve the CRI on.
    #[arg(long, default_value = DEFAULT_SOCKET)]
    listen: String,
    #[command(flatten)]
    embedded: Embedded,
}

/// What the embedded runtime is told.
#[derive(clap::Args)]
pub struct Embedded {
    /// Another OCI runtime for sandboxes whose handler (RuntimeClass) has this name; can be given
    /// several times.
    #[arg(long = "runtime-handler", value_name = "NAME=PATH", value_parser = handler)]
    handlers: Vec<(String, PathBuf)>,
    /// How layers become a root: by overlayfs, or as copies where it does not work.
    #[arg(long, default_value = "auto")]
    snapshotter: Layering,
    #[command(flatten)]
    pub places: Places,
}

/// In containerd's words.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Layering {
    Auto,
    Overlayfs,
    Native,
}

fn handler(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("it must be NAME=PATH")?;
    Ok((name.to_owned(), PathBuf::from(path)))
}

/// Where the sandbox is described, if this process is a shim.
pub fn shim_arguments() -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == "shim").then(|| arguments.next().map(PathBuf::from))?
}

pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Cri(options) => cri(options).await,
        Command::Kubelet(options) => Box::pin(kubelet::run(*options)).await,
        Command::Image { places, command } => image::run(&places, command).await,
        Command::Pause => runtime::builtin::pause(),
        Command::Demo { get: Some(url), .. } => get(&url).await,
        Command::Demo { port, get: None } => demo(port).await,
        Command::Volume { step: VolumeStep::Make { folder } } => {
            let failed = || format!("failed to make {}", folder.display());
            runtime::builtin::volume::make(&folder).with_context(failed)
        }
        Command::Volume { step: VolumeStep::Remove { folder } } => {
            let failed = || format!("failed to remove {}", folder.display());
            runtime::builtin::volume::remove(&folder).with_context(failed)
        }
    }
}

/// CNI plugins, if somebody has configured any, or will.
pub fn cni(places: &Places) -> Option<Arc<dyn Network>> {
    let Plugins { cni_conf_dir, cni_bin_dir, always } = places.plugins.clone();
    let are_wanted = always || places.plugins.are_configured();
    are_wanted
        .then(|| Arc::new(Cni::new(cni_conf_dir, cni_bin_dir, places.state.join("cni"))) as Arc<_>)
}

pub async fn open(options: &Embedded, network: Arc<dyn Network>) -> anyhow::Result<Service> {
    let places = &options.places;
    let options = Options {
        root: places.root.clone(),
        state: places.state.clone(),
        registries: RegistriesConfig::read(&places.registries)?,
        network,
        snapshotter: match options.snapshotter {
            Layering::Auto => Snapshotter::Auto,
            Layering::Overlayfs => Snapshotter::Overlayfs,
            Layering::Native => Snapshotter::Native,
        },
        cgroup_root: places.cgroup_root.clone(),
        handlers: options.handlers.iter().cloned().collect(),
        executable: std::env::current_exe().context("failed to find this executable")?,
    };
    Ok(Service::open(options).await?)
}

impl Embedded {
    /// The runtime in places of one's own, with everything else as usual.
    pub fn at(
        root: PathBuf,
        state: &Path,
        cgroup_root: &str,
        registries: PathBuf,
        plugins: Plugins,
    ) -> Embedded {
        let places = Places {
            root,
            state: state.to_owned(),
            cgroup_root: cgroup_root.to_owned(),
            registries,
            plugins,
        };
        Embedded { handlers: Vec::new(), snapshotter: Layering::Auto, places }
    }
}

/// The path of a socket that was named as `unix:///PATH`.
pub fn socket(url: &str) -> Result<PathBuf, String> {
    socket_path(url).map(Path::to_owned).map_err(|error| error.to_string())
}

fn socket_path(url: &str) -> anyhow::Result<&Path> {
    Ok(Path::new(url.strip_prefix("unix://").context("the socket must start with unix://")?))
}

/// Serves the CRI for crictl beside a kubelet that calls the runtime itself. The kubelet does without:
/// a socket that cannot be made is only told of.
pub fn listen(
    runtime: &Service,
    places: &Places,
    stopped: impl Future<Output = ()> + Send + 'static,
) {
    let (runtime, socket) = (Arc::new(runtime.clone()), places.state.join("cri.sock"));
    tokio::spawn(async move {
        if let Err(error) = runtime::cri::serve(runtime, &socket, stopped).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "crictl cannot be served");
        }
    });
}

/// Where crictl finds the runtime of this machine, unless it is told otherwise.
pub fn own_socket() -> String {
    format!("unix://{}", crate::places::state_dir().join("cri.sock").display())
}

async fn cri(options: Cri) -> anyhow::Result<()> {
    let socket = socket_path(&options.listen)?;
    let stop = crate::stop_signal()?;
    let network = cni(&options.embedded.places).unwrap_or_else(|| Arc::new(Loopback));
    let service = open(&options.embedded, network).await?;
    service.serve_streams().await?;
    println!("the container runtime listens on {}", options.listen);
    runtime::cri::serve(Arc::new(service), socket, stop).await?;
    Ok(())
}

/// How long the demo waits for another to take its connection.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(5);

/// What the demo serves, as another pod sees it.
async fn get(url: &str) -> anyhow::Result<()> {
    let rest = url.strip_prefix("http://").context("the URL must start with http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    // What a policy drops is never answered.
    let connecting = tokio::net::TcpStream::connect(&address);
    let connected = tokio::time::timeout(CONNECT, connecting).await;
    let mut stream = connected
        .with_context(|| format!("{address} does not answer"))?
        .with_context(|| format!("failed to connect to {address}"))?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("this is no HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    anyhow::ensure!(status.contains(" 200 "), "{status}");
    print!("{body}");
    Ok(())
}

async fn demo(port: u16) -> anyhow::Result<()> {
    let stop = crate::stop_signal()?;
    let any = std::net::Ipv6Addr::UNSPECIFIED;
    let listener = match tokio::net::TcpListener::bind((any, port)).await {
        // A machine without IPv6.
        Err(_) => tokio::net::TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).await,
        listener => listener,
    };
    let listener = listener.with_context(|| format!("failed to listen on port {port}"))?;
    println!("listening on port {port}");
    Ok(runtime::builtin::demo(listener, stop).await?)
}
