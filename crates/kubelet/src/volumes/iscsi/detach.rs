//! A disk leaves this machine when no pod has it any more. Who has it is asked of the kernel's mounts: a
//! book of our own would be wrong after a kubelet that was killed, or a machine that was.
use super::IscsiError;
use super::disk::{self, FILE, Record};
use super::host::{Host, Mount, Session, entries};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `iscsiadm`: there was no such session, or no such record.
const ALREADY_GONE: [i32; 2] = [2, 21];
/// Looks at a device that somebody still holds after it was unmounted.
const LOOKS: u32 = 10;

/// Every folder of a disk below the kubelet's.
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let interfaces = disk::plugins(root).into_iter().flat_map(|plugin| entries(&plugin));
    let all = interfaces.flat_map(|interface| entries(&interface));
    let mut all: Vec<PathBuf> = all.filter(|path| Record::of_folder(path).is_some()).collect();
    all.sort();
    all
}

/// Takes a disk away, unless somebody has it; with the turn of its target. What fails can be done again.
pub async fn detach(host: &Host, root: &Path, folder: &Path) -> Result<(), IscsiError> {
    let Some(named) = Record::of_folder(folder) else { return Ok(()) };
    if !folder.exists() {
        return Ok(());
    }
    let mounts = host.mounts();
    let sessions = host.sessions(&named.iqn, &named.iface);
    if is_used(host, folder, &named, &mounts, &sessions) {
        return Ok(());
    }
    if mounts.iter().any(|mount| mount.point == folder) {
        let shown = folder.display().to_string();
        host.run("umount", &["--", &shown])
            .await?
            .or_failed(format!("failed to unmount {shown}"))?;
        if host.mounts().iter().any(|mount| mount.point == folder) {
            let said = "something else is mounted below".to_owned();
            return Err(IscsiError::Failed { doing: format!("failed to unmount {shown}"), said });
        }
    }
    // Only now: what was mounted there had files of its own, and pods could write them.
    let record = fs::read(folder.join(FILE)).ok().and_then(|text| Record::read(&text));
    let record = record.filter(|record| record.iqn == named.iqn).unwrap_or(named);
    let others: Vec<Record> = folders(root)
        .iter()
        .filter(|other| *other != folder)
        .filter_map(|other| Record::of_folder(other))
        .collect();
    if !others.iter().any(|other| (&other.iqn, &other.lun) == (&record.iqn, &record.lun)) {
        forget_devices(host, &record).await;
    }
    log_out(host, &record, &others).await?;
    // Besides the record there are at most the places of pods' devices, which are not mounted any more.
    for file in entries(folder) {
        gone(fs::remove_file(&file), &file)?;
    }
    gone(fs::remove_dir(folder), folder)
}

/// Whether a pod, or somebody else whom this process can see, has the disk besides its own folder.
fn is_used(
    host: &Host,
    folder: &Path,
    named: &Record,
    mounts: &[Mount],
    sessions: &[Session],
) -> bool {
    let own = mounts.iter().filter(|mount| mount.point == folder).map(|mount| mount.device.clone());
    // What is mounted for pods counts even if somebody has unmounted the folder.
    let devices = sessions.iter().flat_map(Session::devices);
    let devices = devices.filter(|(lun, _)| *lun == named.number()).flat_map(|(_, name)| {
        let joined = host.multipath_of(&name);
        [Some(host.number_of(&name)), joined.map(|name| host.number_of(&name))]
    });
    let numbers: BTreeSet<String> =
        own.chain(devices.flatten()).filter(|number| !number.is_empty()).collect();
    mounts.iter().filter(|mount| mount.point != folder).any(|mount| {
        // Devices of pods are mounted below the folder.
        numbers.contains(&mount.device) || mount.point.starts_with(folder)
    })
}

/// The kernel forgets the LUN, so that nobody waits for a device which is another's soon.
async fn forget_devices(host: &Host, record: &Record) {
    let sessions = host.sessions(&record.iqn, &record.iface);
    let devices = sessions.iter().flat_map(Session::devices);
    let devices = devices.filter(|(lun, _)| *lun == record.number()).map(|(_, name)| name);
    let devices: Vec<String> = devices.collect();
    let joined: BTreeSet<String> =
        devices.iter().filter_map(|name| host.multipath_of(name)).collect();
    let held = if joined.is_empty() { devices.iter().collect() } else { joined.iter().collect() };
    wait_for_release(host, held).await;
    for name in &joined {
        let path = host.dev.join(name).display().to_string();
        let flushed = host.run("multipath", &["-f", &path]).await;
        let flushed = flushed.and_then(|said| said.or_failed("it failed"));
        if let Err(error) = flushed {
            tracing::warn!("failed to flush multipath device map {path}: {error}");
        }
    }
    for name in &devices {
        if let Err(error) = host.forget(name).await {
            tracing::warn!("failed to delete block device {name}: {error}");
        }
    }
}

/// A file system that is mounted in a namespace of somebody's is not written to its end when it is
/// unmounted here. It gets some time; upstream gives it none.
async fn wait_for_release(host: &Host, devices: Vec<&String>) {
    for name in devices {
        let mut looks = 0;
        while host.is_held(name).await {
            if looks == LOOKS {
                tracing::warn!("{name} is taken away though somebody holds it");
                break;
            }
            looks += 1;
            tokio::time::sleep(host.pause).await;
        }
    }
}

async fn log_out(host: &Host, record: &Record, others: &[Record]) -> Result<(), IscsiError> {
    let mut is_busy = false;
    for portal in &record.portals {
        let is_shared = others.iter().any(|other| {
            other.iqn == record.iqn && other.iface == record.iface && other.portals.contains(portal)
        });
        // Another LUN may be somebody's of whom we know nothing.
        if is_shared || has_held(host, record, portal).await {
            is_busy = true;
            continue;
        }
        let node: &[&str] = &["-m", "node", "-p", portal, "-T", &record.iqn];
        let interface: &[&str] = &["-I", &record.iface];
        let steps: [(&[&str], &str); 2] =
            [(&["--logout"], "log out of"), (&["-o", "delete"], "forget")];
        for (words, doing) in steps {
            let said = host.run("iscsiadm", &[node, words, interface].concat()).await?;
            if !said.code.is_some_and(|code| ALREADY_GONE.contains(&code)) {
                said.or_failed(format!("iscsi: failed to {doing} {} at {portal}", record.iqn))?;
            }
        }
    }
    if record.has_own_interface() && !is_busy {
        let words = ["-m", "iface", "-I", &record.iface, "-o", "delete"];
        let said = host.run("iscsiadm", &words).await?;
        if !said.code.is_some_and(|code| ALREADY_GONE.contains(&code)) {
            said.or_failed(format!("iscsi: failed to delete iface {}", record.iface))?;
        }
    }
    Ok(())
}

/// Whether another LUN of a session is in use.
async fn has_held(host: &Host, record: &Record, portal: &str) -> bool {
    let sessions = host.sessions(&record.iqn, &record.iface).into_iter();
    let sessions = sessions.filter(|session| session.portals.contains(portal));
    let devices: Vec<(u64, String)> = sessions.flat_map(|session| session.devices()).collect();
    for (lun, name) in devices {
        if lun != record.number() && host.is_held(&name).await {
            return true;
        }
    }
    false
}

fn gone(removed: io::Result<()>, path: &Path) -> Result<(), IscsiError> {
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(IscsiError::Io { operation: "remove", path: path.display().to_string(), source })
        }
        _ => Ok(()),
    }
}
