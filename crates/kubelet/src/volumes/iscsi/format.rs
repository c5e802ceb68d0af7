//! A device becomes a mounted file system: one is made on it only where nothing is
//! (`staging/src/k8s.io/mount-utils/mount_linux.go`).
use super::IscsiError;
use super::disk::Disk;
use super::host::{Host, Said};
use std::fs;
use std::io::Read;
use std::path::Path;

/// `blkid`: there is nothing that it knows.
const NOTHING: i32 = 2;
/// `fsck`: there is damage that is left.
const UNCORRECTED: i32 = 4;
/// What every disk has that can be read at all.
const BEGINNING: usize = 4096;

/// What is on a device.
#[derive(Debug, PartialEq)]
enum Content {
    Nothing,
    FileSystem(String),
    /// Partitions, or something that nobody knows: it is left alone.
    Something(&'static str),
}

pub async fn mount(
    host: &Host,
    disk: &Disk,
    device: &Path,
    target: &Path,
) -> Result<(), IscsiError> {
    let shown = device.display().to_string();
    match content(host, &shown).await? {
        Content::Nothing => make(host, disk, device, &shown).await?,
        found => {
            if found != Content::FileSystem(disk.fs_type.clone()) {
                tracing::warn!(
                    "{shown} is to be mounted as {}, and has {found:?} on it",
                    disk.fs_type
                );
            }
            if !disk.read_only {
                repair(host, &shown).await?;
            }
        }
    }
    let read_only = disk.read_only.then_some("ro");
    let options: Vec<&str> = disk.mount_options.iter().map(String::as_str).collect();
    let options = options.into_iter().chain(read_only).chain(["defaults"]);
    let options = options.collect::<Vec<_>>().join(",");
    let target = target.display().to_string();
    let words = ["-t", &disk.fs_type, "-o", &options, "--", &shown, &target];
    host.run("mount", &words).await?.or_failed("mount failed").map(drop)
}

async fn content(host: &Host, device: &str) -> Result<Content, IscsiError> {
    let words = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device];
    parse(host.run("blkid", &words).await?, device)
}

fn parse(said: Said, device: &str) -> Result<Content, IscsiError> {
    if said.code == Some(NOTHING) {
        return Ok(Content::Nothing);
    }
    let text = said.or_failed(format!("failed to get disk format of disk {device}"))?;
    let value = |name: &str| {
        text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name)
    };
    Ok(match (value("PTTYPE"), value("TYPE")) {
        (Some(_), _) => Content::Something("partitions"),
        (None, Some((_, kind))) if !kind.is_empty() => Content::FileSystem(kind.to_owned()),
        // It knows something of the device that is neither: that is not nothing.
        _ => Content::Something("unknown data"),
    })
}

async fn make(host: &Host, disk: &Disk, device: &Path, shown: &str) -> Result<(), IscsiError> {
    let is_read_only = disk.read_only || disk.mount_options.iter().any(|option| option == "ro");
    if is_read_only {
        return Err(IscsiError::Failed {
            doing: format!("cannot mount unformatted disk {shown}"),
            said: "we are manipulating it in read-only mode".to_owned(),
        });
    }
    // Of a disk that cannot be read nobody knows that it is empty, and `blkid` says that it is.
    readable(device).await?;
    let kind = disk.fs_type.as_str();
    let force: &[&str] = match kind {
        "ext4" | "ext3" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    };
    let words = [force, &[shown]].concat();
    tracing::info!("{shown} has nothing on it: making a file system of type {kind}");
    let made = host.run_to_its_end(&format!("mkfs.{kind}"), &words).await?;
    made.or_failed(format!("format of disk {shown:?} failed: type:({kind:?})")).map(drop)
}

async fn readable(device: &Path) -> Result<(), IscsiError> {
    let path = device.to_owned();
    let read =
        tokio::task::spawn_blocking(move || fs::File::open(path)?.read_exact(&mut [0; BEGINNING]));
    let read = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map_err(|source| IscsiError::Io {
        operation: "read",
        path: device.display().to_string(),
        source,
    })
}

/// What can be repaired without a question is.
async fn repair(host: &Host, device: &str) -> Result<(), IscsiError> {
    let said = match host.run_to_its_end("fsck", &["-a", device]).await {
        Err(error @ IscsiError::NoProgram { .. }) => {
            tracing::warn!("{device} is mounted without a check: {error}");
            return Ok(());
        }
        said => said?,
    };
    match said.code {
        Some(UNCORRECTED) => Err(IscsiError::Failed {
            doing: format!("'fsck' found errors on device {device} but could not correct them"),
            said: said.text.trim().to_owned(),
        }),
        // As upstream: what it could not look at is the kernel's to judge.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_is_nothing() {
        let check = |code: i32, text: &str, expected: Option<Content>| {
            let said = Said { code: Some(code), text: text.to_owned() };
            assert_eq!(parse(said, "/dev/sdb").ok(), expected, "{code} {text}");
        };
        check(2, "", Some(Content::Nothing));
        check(0, "DEVNAME=/dev/sdb\nTYPE=xfs\n", Some(Content::FileSystem("xfs".to_owned())));
        check(0, "PTTYPE=dos\n", Some(Content::Something("partitions")));
        check(0, "TYPE=ext4\nPTTYPE=gpt\n", Some(Content::Something("partitions")));
        check(0, "", Some(Content::Something("unknown data")));
        check(8, "ambivalent result", None);
        check(4, "usage", None);
    }
}
