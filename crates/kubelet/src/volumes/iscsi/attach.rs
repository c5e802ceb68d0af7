//! A disk comes to this machine: the target is asked for what it has and logged in to, through every
//! portal that answers, and the kernel told to look for the one LUN. Commands, their order and how often
//! they are tried are upstream's (`pkg/volume/iscsi/iscsi_util.go`).
use super::IscsiError;
use super::disk::{Chap, DISCOVERY_KEYS, Disk, FILE, SESSION_KEYS};
use super::host::{Host, name_of};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A disk with several portals is used when it is there through so many of them ...
const ENOUGH_PATHS: usize = 2;
/// ... after so many attempts at the others; after that many with whatever there is.
const FEW_ATTEMPTS: u32 = 2;
const ATTEMPTS: u32 = 5;
/// Looks for a device, and for one of several paths.
const DEVICE_LOOKS: u32 = 30;
const MULTIPATH_LOOKS: u32 = 10;
/// There is a session through the interface.
const SESSION_EXISTS: i32 = 15;

/// The disk's device. Its folder is there from the moment that there is something to log out of.
pub async fn attach(
    host: &Host,
    disk: &Disk,
    chap: &Chap,
    folder: &Path,
) -> Result<PathBuf, IscsiError> {
    let base = disk.base_interface.as_str();
    let shown = host.run("iscsiadm", &["-m", "iface", "-I", base, "-o", "show"]).await?;
    let shown = shown.or_failed(format!("iscsi: could not read iface {base}"))?;
    let settings = settings(&shown);
    let Some(transport) = settings.get("iface.transport_name") else {
        return Err(IscsiError::Failed {
            doing: format!("could not parse iface file for {base}"),
            said: "it has no transport name".to_owned(),
        });
    };
    write_record(disk, folder)?;
    let on = Attaching { host, disk, chap, is_card: !is_software(transport) };
    if !disk.initiator.is_empty() && host.sessions(&disk.iqn, &disk.interface).is_empty() {
        on.make_interface(&settings).await?;
    }
    let paths = on.reach_all().await?;
    Ok(on.device(&paths).await)
}

/// The settings of an interface, those that are none left out.
fn settings(shown: &str) -> BTreeMap<String, String> {
    let lines = shown.lines().filter_map(|line| line.split_once(" = "));
    let lines = lines.filter(|(name, _)| name.starts_with("iface."));
    let mut settings: BTreeMap<String, String> =
        lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    // Without a word it is the kernel's own.
    if settings.get("iface.transport_name").is_some_and(|name| name == "<empty>") {
        settings.insert("iface.transport_name".to_owned(), "tcp".to_owned());
    }
    settings.retain(|_, value| !matches!(value.as_str(), "" | "<empty>"));
    settings
}

/// Whether the kernel speaks with the target itself; else a card does, whose bus is in devices' names.
fn is_software(transport: &str) -> bool {
    transport == "tcp"
}

fn write_record(disk: &Disk, folder: &Path) -> Result<(), IscsiError> {
    let failed = |source| IscsiError::Io {
        operation: "write",
        path: folder.join(FILE).display().to_string(),
        source,
    };
    let text = serde_json::to_vec(&disk.record()).map_err(|error| failed(error.into()))?;
    fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed)?;
    fs::write(folder.join(FILE), text).map_err(failed)
}

struct Attaching<'a> {
    host: &'a Host,
    disk: &'a Disk,
    chap: &'a Chap,
    is_card: bool,
}

impl Attaching<'_> {
    /// Runs `iscsiadm`; what it says is scrubbed, whatever it repeats.
    async fn ask(&self, words: &[&str], doing: &str) -> Result<String, IscsiError> {
        let said = self.host.run("iscsiadm", words).await?.or_failed(doing);
        said.map_err(|error| match error {
            IscsiError::Failed { doing, said } => {
                IscsiError::Failed { doing, said: self.chap.scrub(&said) }
            }
            other => other,
        })
    }

    /// An interface with the initiator's name, otherwise as the one that is there.
    async fn make_interface(&self, settings: &BTreeMap<String, String>) -> Result<(), IscsiError> {
        let own = self.disk.interface.as_str();
        let made = self.host.run("iscsiadm", &["-m", "iface", "-I", own, "-o", "new"]).await?;
        if made.code != Some(SESSION_EXISTS) {
            made.or_failed("iscsi: failed to create new iface")?;
        }
        let mut settings = settings.clone();
        // What it is called was said when it was made.
        settings.remove("iface.iscsi_ifacename");
        settings.insert("iface.initiatorname".to_owned(), self.disk.initiator.clone());
        for (name, value) in &settings {
            let words = ["-m", "iface", "-I", own, "-o", "update", "-n", name, "-v", value];
            let updated = self.ask(&words, "iscsi: failed to update iface records").await;
            if let Err(error) = updated {
                self.remove_interface().await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn remove_interface(&self) {
        let words = ["-m", "iface", "-I", self.disk.interface.as_str(), "-o", "delete"];
        let _ = self.host.run("iscsiadm", &words).await;
    }

    /// Devices by portal, one at least.
    async fn reach_all(&self) -> Result<BTreeMap<&str, PathBuf>, IscsiError> {
        let portals = &self.disk.portals;
        let begun = Instant::now();
        let mut paths = BTreeMap::new();
        let mut last = None;
        for attempt in 1..=ATTEMPTS {
            for portal in portals {
                if paths.contains_key(portal.as_str()) {
                    continue;
                }
                match self.reach(portal).await {
                    Ok(path) => {
                        paths.insert(portal.as_str(), path);
                    }
                    Err(error) => last = Some(error),
                }
            }
            let enough = paths.len() >= ENOUGH_PATHS && attempt >= FEW_ATTEMPTS;
            // With none the pod is tried again soon anyway.
            if paths.is_empty()
                || paths.len() == portals.len()
                || enough
                || begun.elapsed() > self.host.patience
            {
                break;
            }
        }
        if let Some(error) = &last {
            tracing::warn!(iqn = self.disk.iqn, "a path to an iSCSI disk is missing: {error}");
        }
        match (paths.is_empty(), last) {
            (true, last) => {
                if !self.disk.initiator.is_empty() {
                    self.remove_interface().await;
                }
                let said = last.map(|error| error.to_string()).unwrap_or_default();
                Err(IscsiError::Failed {
                    doing: "failed to get any path for iscsi disk, last err seen".to_owned(),
                    said,
                })
            }
            (false, _) => Ok(paths),
        }
    }

    /// Through one portal.
    async fn reach(&self, portal: &str) -> Result<PathBuf, IscsiError> {
        let number = match self.session(portal) {
            Some(number) => number,
            None => {
                self.log_in(portal).await?;
                self.session(portal).ok_or_else(|| IscsiError::Failed {
                    doing: format!("iscsi: failed to attach disk through portal {portal}"),
                    said: "there is no session after the login".to_owned(),
                })?
            }
        };
        self.host.scan(number, self.disk.lun).await?;
        let link = self.disk.link(portal);
        for look in 0..DEVICE_LOOKS {
            if look > 0 {
                tokio::time::sleep(self.host.pause).await;
            }
            if let Some(path) = self.host.device(&link, self.is_card) {
                return Ok(path);
            }
        }
        Err(IscsiError::NoDevice {
            path: self.host.dev.join("disk/by-path").join(link).display().to_string(),
            seconds: self.host.pause.saturating_mul(DEVICE_LOOKS).as_secs(),
        })
    }

    /// The number of the machine's end of a session, if there is one.
    fn session(&self, portal: &str) -> Option<u32> {
        let sessions = self.host.sessions(&self.disk.iqn, &self.disk.interface);
        sessions.into_iter().find(|one| one.portals.contains(portal)).map(|one| one.host)
    }

    async fn log_in(&self, portal: &str) -> Result<(), IscsiError> {
        let (iqn, interface) = (self.disk.iqn.as_str(), self.disk.interface.as_str());
        let targets: &[&str] =
            &["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", interface];
        let node: &[&str] = &["-m", "node", "-p", portal, "-T", iqn, "-I", interface];
        // It may be there already.
        let _ = self.ask(&[targets, &["-o", "new"]].concat(), "").await;
        if self.disk.chap_discovery {
            let doing = "iscsi: failed to update discoverydb with CHAP";
            let method = ["-o", "update", "-n", "discovery.sendtargets.auth.authmethod"];
            self.ask(&[targets, &method, &["-v", "CHAP"]].concat(), doing).await?;
            self.set_all(targets, &DISCOVERY_KEYS, "discoverydb").await?;
        }
        let doing = format!("iscsi: failed to sendtargets to portal {portal}");
        if let Err(error) = self.ask(&[targets, &["--discover"]].concat(), &doing).await {
            let _ = self.ask(&[targets, &["-o", "delete"]].concat(), "").await;
            return Err(error);
        }
        // Without it the kernel looks for every LUN of the target at each login.
        let scan = ["-o", "update", "-n", "node.session.scan", "-v", "manual"];
        if let Err(error) = self.ask(&[node, &scan].concat(), "node.session.scan=manual").await {
            tracing::warn!(iqn, "failed to set {error}");
        }
        if self.disk.chap_session {
            let doing = "iscsi: failed to update node with CHAP";
            let method = ["-o", "update", "-n", "node.session.auth.authmethod", "-v", "CHAP"];
            self.ask(&[node, &method].concat(), doing).await?;
            self.set_all(node, &SESSION_KEYS, "node session").await?;
        }
        let login = [node, &["--login"]].concat();
        if let Err(error) = self.ask(&login, "iscsi: failed to attach disk: Error").await {
            let _ = self.ask(&[node, &["-o", "delete"]].concat(), "").await;
            return Err(error);
        }
        // A machine that starts must not wait for it.
        let manual = ["-o", "update", "-n", "node.startup", "-v", "manual"];
        let record: &[&str] = &["-m", "node", "-p", portal, "-T", iqn];
        if let Err(error) = self.ask(&[record, &manual].concat(), "node.startup=manual").await {
            tracing::warn!(iqn, "failed to set {error}");
        }
        Ok(())
    }

    /// Names and passwords; `iscsiadm` takes them in no other way.
    async fn set_all(&self, record: &[&str], keys: &[&str], kind: &str) -> Result<(), IscsiError> {
        for key in keys {
            let Some(value) = self.chap.get(key) else { continue };
            let words = [record, &["-o", "update", "-n", key, "-v", value]].concat();
            self.ask(&words, &format!("iscsi: failed to update {kind} key {key:?}")).await?;
        }
        Ok(())
    }

    /// The device that joins the paths if there is one, else the first path.
    async fn device(&self, paths: &BTreeMap<&str, PathBuf>) -> PathBuf {
        // With one portal nobody joins anything, as a rule: that is no reason to wait.
        let looks = if self.disk.portals.len() > 1 { MULTIPATH_LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                tokio::time::sleep(self.host.pause).await;
            }
            let names = paths.values().filter_map(|path| fs::canonicalize(path).ok());
            let joined = names.map(|path| name_of(&path)).find_map(|name| {
                // A link may lead to it already.
                match name.starts_with("dm-") {
                    true => Some(name),
                    false => self.host.multipath_of(&name),
                }
            });
            if let Some(name) = joined {
                return self.host.dev.join(name);
            }
        }
        let mut first = self.disk.portals.iter().filter_map(|portal| paths.get(portal.as_str()));
        first.next().cloned().unwrap_or_default()
    }
}
