//! `skiff reset`: everything that `skiff up` made on this machine goes, after it has been listed.
use crate::up::{NodePlaces, given};
use anyhow::Context as _;
use proxy::Proxy;
use runtime::reset::Thing;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
    /// Where images and containers are kept, if not in the data directory.
    #[arg(long)]
    root: Option<PathBuf>,
    #[command(flatten)]
    places: NodePlaces,
    /// Do it; without this flag it is only listed.
    #[arg(short, long)]
    yes: bool,
}

impl Options {
    /// Whether anything goes, or it is only listed.
    pub fn removes(&self) -> bool {
        self.yes
    }
}

/// A file in folders that were not there before us: they go with us.
const MARK: &str = ".made-by-skiff";

/// Makes a folder ours if nobody had it before.
pub fn claim(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(MARK), "")
}

pub fn run(options: &Options, tasks: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    let places = &options.places;
    let root = options.root.clone().unwrap_or_else(|| options.data_dir.join("runtime"));
    let mut others = Vec::new();
    for folder in [&places.kubelet_dir, &places.pod_logs_dir] {
        match folder.join(MARK).exists() {
            true => others.push(folder.clone()),
            false if folder.exists() => {
                println!("{} was there before skiff, and stays", folder.display());
            }
            false => {}
        }
    }
    others.push(options.data_dir.clone());
    let network = places.state_dir.join("network");
    if network.exists() {
        println!("network    the pod network and the rules of services");
        if options.yes {
            network::PodNetwork::teardown(&network).context("failed to remove the pod network")?;
            let proxy = Proxy::open(proxy::Config::default());
            let removed = proxy.and_then(|proxy| proxy.teardown());
            removed.context("failed to remove the rules of services")?;
            proxy::balancer::announce::clear()
                .context("failed to remove the addresses of load balancers")?;
        }
    }
    let mut things = runtime::reset::plan(&root, &places.state_dir, &places.cgroup_root, &others);
    // `skiff cri` has its sandboxes there; by now they have ended.
    if places.cgroup_root == NodePlaces::CGROUP_ROOT {
        things.push(Thing::EmptyCgroup("/skiff".to_owned()));
    }
    if let Some((path, ..)) = given::given(&options.data_dir) {
        println!("file       {}", path.display());
        if options.yes {
            given::take(&options.data_dir)
                .with_context(|| format!("failed to remove {}", path.display()))?;
        }
    }
    // Folders say what to log out of, and by then nothing of them is mounted any more.
    let (folders, before): (Vec<Thing>, Vec<Thing>) =
        things.into_iter().partition(|thing| matches!(thing, Thing::Folder(_)));
    remove(&before, options.yes)?;
    if others.contains(&places.kubelet_dir) {
        tasks.block_on(log_out(&places.kubelet_dir, options.yes))?;
    }
    remove(&folders, options.yes)?;
    if options.yes {
        // Links to logs that are gone now; others' stay, and their folder with them.
        kubelet::log_links::sweep(&places.pod_logs_dir);
        let _ = std::fs::remove_dir(kubelet::log_links::folder(&places.pod_logs_dir));
    }
    let is_clean = before.is_empty() && folders.is_empty();
    if !options.yes && !is_clean {
        println!("\nNothing was removed yet: add --yes.");
    }
    Ok(())
}

fn remove(things: &[Thing], yes: bool) -> anyhow::Result<()> {
    for thing in things {
        println!("{thing}");
        if yes {
            thing.remove().with_context(|| format!("failed to remove {thing}"))?;
        }
    }
    Ok(())
}

/// The disks of iSCSI targets that pods had.
async fn log_out(root: &Path, yes: bool) -> anyhow::Result<()> {
    for disk in kubelet::iscsi::attached(root) {
        println!("disk       {}", disk.display());
        if yes {
            let gone = kubelet::iscsi::log_out(root, &disk).await;
            if !gone.with_context(|| format!("failed to log out of {}", disk.display()))? {
                println!("{} is used by somebody else, and stays", disk.display());
            }
        }
    }
    Ok(())
}
