//! `skiff install`: this machine runs skiff from now on, after every start; `skiff uninstall` takes that
//! back.
//!
//! What is to be done is a list of steps, made of what the machine has; then they are done. Settings go
//! into a file beside the configuration, not into the service, so that an upgrade is a new binary and a
//! restart: installed again, the machine is what it was, with the settings that it had.
mod service;
mod steps;

use anyhow::Context as _;
use serde_json::Value;
use service::Manager;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use steps::Step;
pub use steps::write;

/// Where the binary goes, and links to it.
const BINARY: &str = "/usr/local/bin/skiff";

/// Programs of others that this binary is too, by their names, where nobody has them.
const LINKS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"];

/// The clients that everybody types, linked where a machine has none.
const CLIENTS: [&str; 2] = ["kubectl", "crictl"];

/// Settings that were given when it was installed, beside those that people write.
const SETTINGS: &str = "/etc/skiff/config.yaml.d/install.yaml";

/// Where others may have put theirs.
const PLACES: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/snap/bin"];

#[derive(clap::Args)]
pub struct Install {
    #[command(flatten)]
    place: Place,
    /// Join this API server as a node, in place of a cluster of one's own: `https://HOST:6443`.
    #[arg(long, requires = "token")]
    server: Option<String>,
    /// What `skiff token create` printed there.
    #[arg(long, requires = "server")]
    token: Option<String>,
    /// Links to the binary with the names of upstream's components.
    #[arg(long)]
    links: bool,
    /// Whose ~/.kube/config gets the administrator's kubeconfig, if it has none; by default who called
    /// sudo.
    #[arg(long)]
    user: Option<String>,
    /// A setting, as the configuration file has it, as `NAME=VALUE`; may be repeated. Those of an earlier
    /// installation stay.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Do not start it now.
    #[arg(long)]
    no_start: bool,
}

#[derive(clap::Args)]
pub struct Uninstall {
    #[command(flatten)]
    place: Place,
    /// Do it; without this flag it is only listed.
    #[arg(short, long)]
    yes: bool,
}

#[derive(clap::Args)]
struct Place {
    /// The file system that is worked on; an image that is being made, for example.
    #[arg(long, default_value = "/")]
    root: PathBuf,
}

pub fn install(options: &Install) -> anyhow::Result<()> {
    let root = &options.place.root;
    let manager = Manager::of(root).context(
        "neither systemd nor OpenRC is on this machine: start `skiff up` by whatever starts services here",
    )?;
    let settings = settings(options, root)?;
    // Who has a file that says which server to join wants to join it.
    let file = steps::below(root, Path::new(crate::configuration::DEFAULT));
    let joins = settings.contains_key("server") || crate::configuration::says(&file, "server")?;
    let role = if joins { "agent" } else { "up" };
    for name in settings.keys() {
        anyhow::ensure!(
            crate::configuration::is_setting(role, name),
            "there is no setting {name:?} of {role}: its --help names them"
        );
    }
    let steps = plan(manager, role, &settings, options, root)?;
    for step in &steps {
        println!("{step}");
        step.run(root).with_context(|| format!("failed: {step}"))?;
    }
    if role == "up" && !options.no_start && root == Path::new("/") {
        give_kubeconfig(
            options.user.clone().or_else(|| std::env::var("SUDO_USER").ok()).as_deref(),
        )?;
    }
    println!("\nskiff runs after every start of this machine: `skiff status` says how it is");
    Ok(())
}

pub fn uninstall(options: &Uninstall) -> anyhow::Result<()> {
    let root = &options.place.root;
    let mut steps = Vec::new();
    if let Some(manager) = Manager::of(root) {
        steps.extend(manager.removal(root));
    }
    let own = |path: &Path| {
        // Links of others with these names stay.
        std::fs::read_link(steps::below(root, path)).is_ok_and(|target| target == Path::new(BINARY))
    };
    let links = LINKS.iter().chain(&CLIENTS).map(|name| Path::new(BINARY).with_file_name(name));
    let links = links.filter(|path| own(path));
    steps.extend(links.map(Step::Remove));
    steps.push(Step::Remove(SETTINGS.into()));
    // What people have written there stays, and the folders with it.
    steps.extend(
        Path::new(SETTINGS)
            .ancestors()
            .skip(1)
            .take(2)
            .map(|folder| Step::RemoveEmpty(folder.into())),
    );
    steps.push(Step::Remove(BINARY.into()));
    for step in &steps {
        println!("{step}");
        if options.yes {
            step.run(root).with_context(|| format!("failed: {step}"))?;
        }
    }
    match options.yes {
        true => println!(
            "\nThe cluster's state is still there: `skiff reset --yes` would have removed it, before this."
        ),
        false => println!(
            "\nNothing was removed yet: add --yes. `skiff reset` lists the cluster's own state."
        ),
    }
    Ok(())
}

/// Whether a service of this machine starts it.
pub fn is_installed() -> bool {
    let root = Path::new("/");
    Manager::of(root).is_some_and(|manager| manager.is_installed(root))
}

type Settings = BTreeMap<String, Value>;

/// What was asked for, in place of what an earlier installation said of the same.
fn settings(options: &Install, root: &Path) -> anyhow::Result<Settings> {
    let path = steps::below(root, Path::new(SETTINGS));
    let mut all: Settings = match std::fs::read_to_string(&path) {
        Ok(text) => serde_saphyr::from_str(&text)
            .with_context(|| format!("failed to read {}", path.display()))?,
        Err(_) => Settings::new(),
    };
    for (name, value) in [("server", &options.server), ("token", &options.token)] {
        all.extend(value.as_ref().map(|value| (name.to_owned(), Value::from(value.as_str()))));
    }
    for setting in &options.settings {
        let (name, value) = setting
            .split_once('=')
            .with_context(|| format!("--set {setting:?} is not NAME=VALUE"))?;
        let value = serde_saphyr::from_str(value).unwrap_or_else(|_| Value::from(value));
        all.insert(name.to_owned(), value);
    }
    Ok(all)
}

fn plan(
    manager: Manager,
    role: &str,
    settings: &Settings,
    options: &Install,
    root: &Path,
) -> anyhow::Result<Vec<Step>> {
    let binary = std::env::current_exe().context("failed to find this program")?;
    let mut steps = vec![Step::Copy { from: binary, to: BINARY.into() }];
    if options.links {
        // A link that leads nowhere is somebody's, too.
        let free = |path: &PathBuf| steps::below(root, path).symlink_metadata().is_err();
        let paths = LINKS.iter().map(|name| Path::new(BINARY).with_file_name(name));
        steps.extend(paths.filter(free).map(|path| Step::Link { path, target: BINARY.into() }));
    }
    let is_missing = |client: &&&str| {
        !PLACES.iter().any(|folder| {
            let path = steps::below(root, &Path::new(folder).join(client));
            path.symlink_metadata().is_ok()
        })
    };
    for client in CLIENTS.iter().filter(is_missing) {
        let path = Path::new(BINARY).with_file_name(client);
        steps.push(Step::Link { path, target: BINARY.into() });
    }
    if !settings.is_empty() {
        // A token is in it.
        let lines = settings.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let text = lines.collect();
        steps.push(Step::Write { path: SETTINGS.into(), text, mode: 0o600 });
    }
    steps.extend(manager.installation(BINARY, role, !options.no_start && root == Path::new("/")));
    Ok(steps)
}

/// Waits for the cluster's kubeconfig, and gives it to a user who has none.
fn give_kubeconfig(user: Option<&str>) -> anyhow::Result<()> {
    let source = Path::new("/var/lib/skiff/kubeconfig");
    let Some(user) = user.filter(|user| *user != "root") else {
        println!("\n  export KUBECONFIG={}", source.display());
        return Ok(());
    };
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let Some((uid, gid, home)) = account(&passwd, user) else { return Ok(()) };
    let target = home.join(".kube/config");
    if target.exists() {
        println!(
            "\n{} is there already, and stays: export KUBECONFIG={}",
            target.display(),
            source.display()
        );
        return Ok(());
    }
    if !source.exists() {
        println!(
            "\nwhen it is ready: sudo install -D -o {user} -m 600 {} {}",
            source.display(),
            target.display()
        );
        return Ok(());
    }
    let (bytes, file) = (std::fs::read(source)?, target.clone());
    match as_user(uid, gid, move || steps::write(&file, &bytes, 0o600)) {
        Ok(()) => {
            println!("\n{user} has the administrator's kubeconfig in {}", target.display());
        }
        // All else is done: that it is not there is no reason to fail.
        Err(error) => println!(
            "\n{user} could not write {}: {error}; the kubeconfig is {}",
            target.display(),
            source.display()
        ),
    }
    Ok(())
}

/// Does something with the rights of a user and no others: what is in a user's home may be links that lead
/// anywhere, and root would follow them.
pub fn as_user(
    uid: u32,
    gid: u32,
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> std::io::Result<()> {
    use rustix::process::{Gid, Uid};
    // To the kernel each thread is somebody; this one does not become root again.
    let working = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        work()
    });
    working.join().unwrap_or_else(|_| Err(std::io::Error::other("it broke off")))
}

/// A user's ids and home.
fn account(passwd: &str, user: &str) -> Option<(u32, u32, PathBuf)> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
    let fields: Vec<&str> = line.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?, fields.get(5)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn parsed(arguments: &[&str]) -> crate::Command {
        let words = ["skiff"].iter().chain(arguments);
        crate::Cli::try_parse_from(words).unwrap().command
    }

    #[test]
    fn a_machine_is_installed_and_as_it_was_afterwards() {
        for (mark, unit) in [
            ("run/systemd/system", "etc/systemd/system/skiff.service"),
            ("etc/init.d", "etc/init.d/skiff"),
        ] {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join(mark)).unwrap();
            std::fs::create_dir_all(root.path().join("usr/local/bin")).unwrap();
            // Somebody's own kubelet stays.
            std::fs::write(root.path().join("usr/local/bin/kubelet"), "theirs").unwrap();
            let at = root.path().to_str().unwrap();
            let crate::Command::Install(options) = parsed(&[
                "install",
                "--root",
                at,
                "--links",
                "--server",
                "https://a:6443",
                "--token",
                "x.y",
                "--set",
                "node-name=b",
            ]) else {
                panic!()
            };
            install(&options).unwrap();
            let text = std::fs::read_to_string(root.path().join(unit)).unwrap();
            assert!(text.contains("/usr/local/bin/skiff") && text.contains("agent"), "{text}");
            let config = root.path().join("etc/skiff/config.yaml.d/install.yaml");
            assert_eq!(
                std::fs::read_to_string(&config).unwrap(),
                "node-name: \"b\"\nserver: \"https://a:6443\"\ntoken: \"x.y\"\n"
            );
            // Installed again it is the same, with one setting more; a misspelt one changes nothing.
            let before = std::fs::read_to_string(root.path().join(unit)).unwrap();
            let again = |set: &str| {
                let words = ["install", "--root", at, "--links", "--set", set];
                let crate::Command::Install(options) = parsed(&words) else { panic!() };
                install(&options)
            };
            let refused = again("prot=1").unwrap_err().to_string();
            assert_eq!(refused, "there is no setting \"prot\" of agent: its --help names them");
            again("tunnel=false").unwrap();
            assert_eq!(std::fs::read_to_string(root.path().join(unit)).unwrap(), before);
            assert_eq!(
                std::fs::read_to_string(&config).unwrap(),
                "node-name: \"b\"\nserver: \"https://a:6443\"\ntoken: \"x.y\"\ntunnel: false\n"
            );
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert!(root.path().join("usr/local/bin/kube-proxy").is_symlink());
            for client in CLIENTS {
                assert!(root.path().join("usr/local/bin").join(client).is_symlink());
            }
            assert_eq!(
                std::fs::read_to_string(root.path().join("usr/local/bin/kubelet")).unwrap(),
                "theirs"
            );

            let crate::Command::Uninstall(options) = parsed(&["uninstall", "--root", at]) else {
                panic!()
            };
            uninstall(&options).unwrap();
            assert!(root.path().join(unit).exists());
            let theirs = root.path().join("etc/skiff/registries.yaml");
            std::fs::write(&theirs, "").unwrap();
            uninstall(&Uninstall { yes: true, ..options }).unwrap();
            assert!(theirs.exists() && !root.path().join("etc/skiff/config.yaml.d").exists());
            let left: Vec<_> = std::fs::read_dir(root.path().join("usr/local/bin"))
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            assert_eq!(left, ["kubelet"]);
            assert!(!root.path().join(unit).exists() && !config.exists());
        }
    }

    #[test]
    fn who_has_a_file_with_a_server_joins_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("run/systemd/system/.keep", "");
        let at = root.path().to_str().unwrap();
        let role = || {
            let crate::Command::Install(options) = parsed(&["install", "--root", at]) else {
                panic!()
            };
            install(&options).unwrap();
            let unit = root.path().join("etc/systemd/system/skiff.service");
            let text = std::fs::read_to_string(unit).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(role(), "up");
        write("etc/skiff/config.yaml", "server: https://a:6443\ntoken: x\n");
        assert_eq!(role(), "agent");
        let theirs = std::fs::read_to_string(root.path().join("etc/skiff/config.yaml")).unwrap();
        assert_eq!(theirs, "server: https://a:6443\ntoken: x\n", "it is left alone");
    }

    /// Whoever has the home may have put links there.
    #[test]
    fn what_is_done_for_a_user_is_done_with_his_rights() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (home, etc) = (place.path().join("home"), place.path().join("etc"));
        for folder in [&home, &etc] {
            std::fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::chown(&home, Some(12345), Some(12345)).unwrap();
        let give = |folder: &str| {
            let file = home.join(folder).join("config");
            as_user(12345, 12345, move || steps::write(&file, b"keys", 0o600))
        };
        symlink(&etc, home.join("link")).unwrap();
        assert!(give("link").is_err());
        assert_eq!(etc.metadata().unwrap().uid(), 0);
        assert_eq!(std::fs::read_dir(&etc).unwrap().count(), 0);
        give(".kube").unwrap();
        let made = home.join(".kube/config").metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (12345, 12345, 0o600));
        assert!(rustix::process::geteuid().is_root(), "the others are who they were");
    }

    #[test]
    fn users_are_found_by_their_names() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\n";
        assert_eq!(account(passwd, "ann"), Some((1000, 1001, "/home/ann".into())));
        assert_eq!(account(passwd, "an"), None);
    }
}
