//! Debian's containerd in the place of our own runtime: one for each node, in that node's network.
//!
//! Its sockets and mounts are in the node's state folder, where paths are short; images, snapshots and its
//! configuration are in the run's folder. Pods get their links and addresses by our own CNI plugin. What it leaves
//! when it is killed is known by these places, so that a run clears up after one that was killed itself.
use super::images::Made;
use super::shell::{self, failed};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where one node's containerd has everything.
pub struct Home {
    /// Images, snapshots and configuration.
    pub folder: PathBuf,
    /// Sockets and mounts.
    pub state: PathBuf,
    /// Where what our CNI plugin gives out is written down: `skiff reset` looks there.
    pub addresses: PathBuf,
    pub cgroup_root: String,
    /// What the pods' network is called; CNI keeps results of all networks of the machine in one folder.
    pub network: String,
}

/// The first node's share of pods' addresses.
pub const FIRST_SHARE: &str = "10.244.0.0/24";
const CLUSTER: &str = "10.244.0.0/16";
/// Where CNI's own library writes down what plugins answered.
const RESULTS: &str = "/var/lib/cni/results";
/// Where shims have their sockets, whatever containerd is told.
const SHIMS: [&str; 2] = ["/run/containerd/s", "/run/containerd"];
/// How long it may take to answer, and its processes to end.
const PATIENCE: Duration = Duration::from_secs(60);

impl Home {
    /// The program; with what it needs it is installed.
    pub fn install() -> PathBuf {
        testkit::tools::program("runc", "runc");
        testkit::tools::program("containerd", "containerd")
    }

    pub fn arguments(&self) -> Vec<String> {
        vec![format!("--config={}", self.config())]
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket())
    }

    fn socket(&self) -> String {
        self.state.join("sock").display().to_string()
    }

    fn config(&self) -> String {
        self.folder.join("config.toml").display().to_string()
    }

    /// Writes everything that it reads.
    pub fn furnish(
        &self,
        skiff: &Path,
        registry: SocketAddr,
        images: &[Made],
    ) -> Result<(), String> {
        for folder in
            [self.folder.join("plugins"), self.folder.join("networks"), self.state.clone()]
        {
            shell::make_folder(&folder)?;
        }
        let skiff = skiff.canonicalize().map_err(failed("find", skiff))?;
        // containerd gives each sandbox its loopback by a plugin too, of the same folder.
        let loopback =
            testkit::tools::program("/usr/lib/cni/loopback", "containernetworking-plugins");
        for (name, program) in [("skiff-cni", &skiff), ("loopback", &loopback)] {
            let link = self.folder.join("plugins").join(name);
            symlink(program, &link).map_err(failed("link", &link))?;
        }
        let pause = images.iter().find(|image| image.recipe.title == "pause");
        let pause = pause.map_or("pause", |image| image.recipe.names[0].as_str());
        shell::write(Path::new(&self.config()), self.config_text(pause))?;
        let mirror = self.folder.join("registries").join(super::registry::DOMAIN);
        shell::write(&mirror.join("hosts.toml"), hosts_text(registry))
    }

    fn config_text(&self, pause: &str) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
        // Without the right to do so, nobody can be made less likely to be killed than we are.
        format!(
            "version = 2\nroot = \"{}\"\nstate = \"{state}\"\noom_score = 0\n\
             [grpc]\naddress = \"{}\"\n[ttrpc]\naddress = \"{state}/ttrpc\"\n\
             [{cri}]\nsandbox_image = \"{pause}\"\nrestrict_oom_score_adj = true\n\
             disable_apparmor = true\nnetns_mounts_under_state_dir = true\n\
             [{cri}.cni]\nbin_dir = \"{}\"\nconf_dir = \"{}\"\n\
             [{cri}.registry]\nconfig_path = \"{}\"\n\
             [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
             [{cri}.containerd.runtimes.runc.options]\nRoot = \"{state}/runc\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{}\"\n",
            at("root"),
            self.socket(),
            at("plugins"),
            at("networks"),
            at("registries"),
            at("opt"),
            state = self.state.display(),
        )
    }

    /// Says where pods' addresses are from. Until then the node is not ready.
    pub fn give_addresses(&self, share: &str) -> Result<(), String> {
        let text = format!(
            r#"{{ "cniVersion": "1.0.0", "name": "{}", "plugins": [{{ "type": "skiff-cni",
  "podCIDRs": ["{share}"], "clusterCIDRs": ["{CLUSTER}"], "stateDir": "{}",
  "capabilities": {{ "portMappings": true, "bandwidth": true }} }}] }}
"#,
            self.network,
            self.addresses.display(),
        );
        shell::write(&self.folder.join("networks/10-skiff.conflist"), text)
    }

    /// Waits until it answers, and brings in the images.
    pub fn fill(&self, process: &mut Child, images: &[Made]) -> Result<(), String> {
        let begun = Instant::now();
        while let Err(problem) = self.ctr(&["version"]) {
            let has_ended = matches!(process.try_wait(), Ok(Some(_)));
            if has_ended || begun.elapsed() > PATIENCE {
                return Err(format!("containerd does not answer, see its log: {problem}"));
            }
        }
        for image in images {
            self.ctr(&["images", "import", &image.archive.display().to_string()])?;
        }
        Ok(())
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String, String> {
        let mut ctr = Command::new(testkit::tools::program("ctr", "containerd"));
        ctr.args(["--address", &self.socket(), "--namespace", "k8s.io"]);
        shell::output(ctr.args(arguments))
    }

    /// Ends what it started, and removes what it left.
    pub fn clear(&self) -> Result<(), String> {
        self.end_processes()?;
        self.remove_sockets();
        self.remove_results();
        let mounts = shell::read(Path::new("/proc/self/mountinfo"))?;
        for mount in mounts_below(&mounts, &[&self.state, &self.folder]) {
            shell::output(Command::new("umount").arg("--lazy").arg(mount))?;
        }
        for folder in [&self.state, &self.folder] {
            if folder.exists() {
                fs::remove_dir_all(folder).map_err(failed("remove", folder))?;
            }
        }
        Ok(())
    }

    fn end_processes(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("processes of containerd do not end: {left:?}"));
            }
            // One that has ended meanwhile is no trouble.
            let _ = Command::new("kill").arg("-KILL").args(left).stderr(Stdio::null()).status();
        }
    }

    /// The daemon, its shims, and everything in its pods' control groups.
    fn processes(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if self.started(&String::from_utf8_lossy(&line)) {
                found.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        let root = Path::new("/sys/fs/cgroup");
        let group = self.cgroup_root.trim_start_matches('/');
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
        for hierarchy in hierarchies.map(|entry| entry.path()).chain([root.to_owned()]) {
            members(&hierarchy.join(group), &mut found);
        }
        found
    }

    /// Whether a command line is that of this containerd, or of a shim of it.
    fn started(&self, line: &str) -> bool {
        let mut words = line.split('\0');
        let program = words.next().and_then(|path| path.rsplit('/').next());
        let own = [self.socket(), format!("--config={}", self.config())];
        program.is_some_and(|program| program.starts_with("containerd"))
            && words.any(|word| own.iter().any(|own| own == word))
    }

    fn remove_sockets(&self) {
        let bundles = self.state.join("io.containerd.runtime.v2.task/k8s.io");
        for bundle in fs::read_dir(bundles).into_iter().flatten().flatten() {
            let address = fs::read_to_string(bundle.path().join("address")).unwrap_or_default();
            if let Some(socket) = address.trim().strip_prefix("unix://") {
                let _ = fs::remove_file(socket);
            }
        }
        // Only if nobody else has anything there.
        for folder in SHIMS {
            let _ = fs::remove_dir(folder);
        }
    }

    fn remove_results(&self) {
        let names = fs::read_dir(RESULTS).into_iter().flatten().flatten();
        let names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        for sandbox in names.iter().filter_map(|name| self.sandbox_of(name)) {
            let own = format!("{}-{sandbox}-eth0", self.network);
            for name in [own, format!("cni-loopback-{sandbox}-lo")] {
                let _ = fs::remove_file(Path::new(RESULTS).join(name));
            }
        }
    }

    /// The sandbox that a file of results is about, if it is one of this network's.
    fn sandbox_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(&self.network)?.strip_prefix('-')?.strip_suffix("-eth0")
    }
}

/// This registry first; what it does not have is asked of the images' own.
fn hosts_text(registry: SocketAddr) -> String {
    let domain = super::registry::DOMAIN;
    format!(
        "server = \"https://{domain}\"\n\n[host.\"http://{registry}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n"
    )
}

/// The processes of a control group and of those below it.
fn members(group: &Path, found: &mut BTreeSet<String>) {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(processes.lines().map(str::to_owned));
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), found);
        }
    }
}

/// What is mounted in these folders; what was mounted last is first.
fn mounts_below(mounts: &str, folders: &[&PathBuf]) -> Vec<PathBuf> {
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<PathBuf> =
        paths.filter(|path| folders.iter().any(|folder| path.starts_with(folder))).collect();
    below.reverse();
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Home {
        Home {
            folder: "/made/node-1/containerd".into(),
            state: "/run/s-1/c".into(),
            addresses: "/run/s-1/network".into(),
            cgroup_root: "/skiff/none-of-these".to_owned(),
            network: "skiff-1".to_owned(),
        }
    }

    #[test]
    fn only_its_own_processes_are_ended() {
        let check = |line: &str, expected: bool| {
            assert_eq!(home().started(&line.replace(' ', "\0")), expected, "{line}");
        };
        check("/usr/bin/containerd --config=/made/node-1/containerd/config.toml ", true);
        check("/usr/bin/containerd-shim-runc-v2 -id a -address /run/s-1/c/sock ", true);
        check("/usr/bin/containerd-shim-runc-v2 -id a -address /run/s-10/c/sock ", false);
        check("/usr/bin/containerd ", false);
        check("skiff up --container-runtime-endpoint=unix:///run/s-1/c/sock ", false);
        check("", false);
    }

    #[test]
    fn results_are_known_by_their_network() {
        assert_eq!(home().sandbox_of("skiff-1-abc-eth0"), Some("abc"));
        assert_eq!(home().sandbox_of("skiff-10-abc-eth0"), None);
        assert_eq!(home().sandbox_of("cni-loopback-abc-lo"), None);
    }

    #[test]
    fn mounts_go_from_the_inside() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /run/s-1/c/a rw - tmpfs t rw\n\
                      3 2 0:6 / /run/s-1/c/a/b rw - tmpfs t rw\n4 1 0:7 / /run/s-10 rw - tmpfs t rw\n";
        let found = mounts_below(mounts, &[&home().state]);
        assert_eq!(found, ["/run/s-1/c/a/b", "/run/s-1/c/a"].map(PathBuf::from));
    }

    #[test]
    fn its_configuration_names_its_own_places() {
        let text = home().config_text("registry.k8s.io/pause:1");
        for line in [
            "root = \"/made/node-1/containerd/root\"",
            "state = \"/run/s-1/c\"",
            "address = \"/run/s-1/c/sock\"",
            "sandbox_image = \"registry.k8s.io/pause:1\"",
            "conf_dir = \"/made/node-1/containerd/networks\"",
            "Root = \"/run/s-1/c/runc\"",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        let mirror = hosts_text(SocketAddr::from(([192, 0, 2, 2], 5000)));
        assert!(mirror.contains("[host.\"http://192.0.2.2:5000\"]"), "{mirror}");
    }
}
