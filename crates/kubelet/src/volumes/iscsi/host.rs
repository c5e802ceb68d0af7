//! What disks need of the machine: its programs, what the kernel shows of sessions, devices and mounts.
//! Everything is reached by paths that tests have of their own.
use super::IscsiError;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

#[derive(Debug, Clone)]
pub struct Host {
    /// Where programs are; without it wherever `PATH` says.
    pub programs: Option<PathBuf>,
    pub sys: PathBuf,
    pub dev: PathBuf,
    /// The mounts of this process, in the kernel's words.
    pub mount_table: PathBuf,
    /// A target that does not answer must not keep a pod for ever.
    pub patience: Duration,
    /// Between two looks for a device.
    pub pause: Duration,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            programs: None,
            sys: PathBuf::from("/sys"),
            dev: PathBuf::from("/dev"),
            mount_table: PathBuf::from("/proc/self/mountinfo"),
            patience: Duration::from_secs(120),
            pause: Duration::from_secs(1),
        }
    }
}

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct Said {
    /// None if it was killed.
    pub code: Option<i32>,
    pub text: String,
}

impl Said {
    pub fn is_well(&self) -> bool {
        self.code == Some(0)
    }

    /// What it wrote, or that it failed at what it was to do.
    pub fn or_failed(self, doing: impl Into<String>) -> Result<String, IscsiError> {
        match self.is_well() {
            true => Ok(self.text),
            false => {
                let code = self.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
                let said = format!("{} (exit status {code})", self.text.trim());
                Err(IscsiError::Failed { doing: doing.into(), said })
            }
        }
    }
}

impl Host {
    pub async fn run<W: AsRef<OsStr>>(
        &self,
        program: &str,
        words: &[W],
    ) -> Result<Said, IscsiError> {
        self.run_for(program, words, self.patience, true).await
    }

    /// Runs what must not be interrupted half-way: it goes on even if nobody waits for it any more.
    pub async fn run_to_its_end<W: AsRef<OsStr>>(
        &self,
        program: &str,
        words: &[W],
    ) -> Result<Said, IscsiError> {
        // A large disk takes its time.
        self.run_for(program, words, self.patience.saturating_mul(15), false).await
    }

    async fn run_for<W: AsRef<OsStr>>(
        &self,
        program: &str,
        words: &[W],
        patience: Duration,
        is_killed: bool,
    ) -> Result<Said, IscsiError> {
        let path = match &self.programs {
            Some(folder) => folder.join(program),
            None => PathBuf::from(program),
        };
        let mut command = Command::new(path);
        command.args(words).stdin(Stdio::null()).kill_on_drop(is_killed);
        let output = match tokio::time::timeout(patience, command.output()).await {
            Err(_) => {
                return Err(IscsiError::TimedOut {
                    program: program.to_owned(),
                    seconds: patience.as_secs(),
                });
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(match program {
                    "iscsiadm" => IscsiError::NoInitiator,
                    other => IscsiError::NoProgram { program: other.to_owned() },
                });
            }
            Ok(Err(source)) => {
                return Err(IscsiError::Run { program: program.to_owned(), source });
            }
            Ok(Ok(output)) => output,
        };
        let text = [output.stdout, output.stderr].concat();
        Ok(Said { code: output.status.code(), text: String::from_utf8_lossy(&text).into_owned() })
    }

    pub fn mounts(&self) -> Vec<Mount> {
        let text = fs::read_to_string(&self.mount_table).unwrap_or_default();
        text.lines().filter_map(Mount::parse).collect()
    }

    /// Sessions with a target through one of the initiator's interfaces.
    pub fn sessions(&self, iqn: &str, interface: &str) -> Vec<Session> {
        let mut found = Vec::new();
        for host in entries(&self.sys.join("class/iscsi_host")) {
            let number = name_of(&host).strip_prefix("host").and_then(|text| text.parse().ok());
            let Some(number) = number else { continue };
            for path in entries(&host.join("device")) {
                let name = name_of(&path);
                let about = path.join("iscsi_session").join(&name);
                if !name.starts_with("session") || read(&about.join("targetname")) != iqn {
                    continue;
                }
                // Kernels that do not say it have one for all.
                let through = read(&about.join("ifacename"));
                if through.is_empty() || through == interface {
                    found.push(Session { host: number, portals: portals(&path), path });
                }
            }
        }
        found
    }

    /// Has the kernel look for one LUN, and for no other: what nobody asked for could go away without
    /// anybody being told.
    pub async fn scan(&self, host: u32, lun: u32) -> Result<(), IscsiError> {
        let path = self.sys.join(format!("class/scsi_host/host{host}/scan"));
        tell(path, format!("0 0 {lun}")).await
    }

    /// Takes a device away from the kernel.
    pub async fn forget(&self, device: &str) -> Result<(), IscsiError> {
        let path = self.sys.join("block").join(device).join("device/delete");
        match path.exists() {
            true => tell(path, "1".to_owned()).await,
            false => Ok(()),
        }
    }

    /// The device of several ways to a disk that this is one of, by its name.
    pub fn multipath_of(&self, device: &str) -> Option<String> {
        let all = entries(&self.sys.join("block"));
        let mut maps = all.iter().filter(|path| {
            let kind = read(&path.join("dm/uuid"));
            // Logical volumes and encryption are maps, too.
            name_of(path).starts_with("dm-")
                && (kind.is_empty() || kind.starts_with("mpath-"))
                && path.join("slaves").join(device).exists()
        });
        maps.next().map(|path| name_of(path))
    }

    /// `8:16`, as mounts name it.
    pub fn number_of(&self, device: &str) -> String {
        read(&self.sys.join("block").join(device).join("dev"))
    }

    /// Whether somebody has claimed a device: a file system, wherever it is mounted, or a map.
    pub async fn is_held(&self, device: &str) -> bool {
        let path = self.dev.join(device);
        let opened = tokio::task::spawn_blocking(move || {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, Mode::empty()).map(drop)
        });
        matches!(opened.await, Ok(Err(rustix::io::Errno::BUSY)))
    }

    /// The device that udev has this link for, and for cards that are initiators themselves a link
    /// with their bus before it.
    pub fn device(&self, link: &str, is_card: bool) -> Option<PathBuf> {
        let folder = self.dev.join("disk/by-path");
        if !is_card {
            return Some(folder.join(link)).filter(|path| path.exists());
        }
        let end = format!("-{link}");
        let mut all: Vec<PathBuf> = entries(&folder);
        all.retain(|path| name_of(path).starts_with("pci-") && name_of(path).ends_with(&end));
        all.sort();
        all.into_iter().next()
    }
}

/// A session, of which there is one for each portal.
#[derive(Debug, Clone)]
pub struct Session {
    pub host: u32,
    /// What it was asked for, and where it was led.
    pub portals: BTreeSet<String>,
    path: PathBuf,
}

impl Session {
    /// LUNs and the names of their devices.
    pub fn devices(&self) -> Vec<(u64, String)> {
        let targets = entries(&self.path).into_iter();
        let targets = targets.filter(|path| name_of(path).starts_with("target"));
        let mut found = Vec::new();
        for unit in targets.flat_map(|target| entries(&target)) {
            // host:channel:target:LUN
            let lun = name_of(&unit).rsplit(':').next().and_then(|text| text.parse().ok());
            let Some(lun) = lun else { continue };
            found.extend(entries(&unit.join("block")).iter().map(|path| (lun, name_of(path))));
        }
        found
    }
}

fn portals(session: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in entries(session) {
        let name = name_of(&path);
        if !name.starts_with("connection") {
            continue;
        }
        let about = path.join("iscsi_connection").join(&name);
        for (address, port) in [("address", "port"), ("persistent_address", "persistent_port")] {
            let (address, port) = (read(&about.join(address)), read(&about.join(port)));
            match address.contains(':') {
                _ if address.is_empty() || port.is_empty() => false,
                true => found.insert(format!("[{address}]:{port}")),
                false => found.insert(format!("{address}:{port}")),
            };
        }
    }
    found
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mount {
    pub device: String,
    pub point: PathBuf,
    pub is_read_only: bool,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let mut words = line.split(' ');
        let device = words.nth(2)?.to_owned();
        let point = PathBuf::from(unescaped(words.nth(1)?));
        let is_read_only = words.next()?.split(',').any(|option| option == "ro");
        Some(Mount { device, point, is_read_only })
    }
}

/// The kernel writes spaces and the like as `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                whole.push(char::from(code));
                whole.push_str(&part[3..]);
            }
            _ => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
    }
    whole
}

/// Writes to a file of the kernel's, which may take its time to do what it is told.
async fn tell(path: PathBuf, text: String) -> Result<(), IscsiError> {
    let shown = path.display().to_string();
    let written = tokio::task::spawn_blocking(move || -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    });
    let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map_err(|source| IscsiError::Io { operation: "write", path: shown, source })
}

pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_odd_names() {
        let mount =
            Mount::parse(r"36 35 8:16 / /mnt\0401\134x rw,noatime shared:1 - ext4 /dev/sdb rw");
        let expected =
            Mount { device: "8:16".into(), point: r"/mnt 1\x".into(), is_read_only: false };
        assert_eq!(mount, Some(expected));
        let mount = Mount::parse("36 35 8:16 / /m ro,relatime - ext4 /dev/sdb ro").unwrap();
        assert!(mount.is_read_only);
        assert_eq!(Mount::parse("nonsense"), None);
    }

    #[tokio::test]
    async fn programs_that_are_missing_hang_or_fail_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { programs: Some(folder.path().to_owned()), ..Host::default() };
        let said = host.run::<&str>("iscsiadm", &[]).await.unwrap_err().to_string();
        assert!(said.contains("install open-iscsi"), "{said}");
        let said = host.run::<&str>("mkfs.xfs", &[]).await.unwrap_err().to_string();
        assert_eq!(said, "mkfs.xfs is not installed on this node");
        let host = Host { patience: Duration::from_millis(20), ..Host::default() };
        let said = host.run("sleep", &["60"]).await.unwrap_err().to_string();
        assert!(said.starts_with("sleep did not end"), "{said}");
        let host = Host::default();
        let said = host.run("sh", &["-c", "echo no >&2; exit 3"]).await.unwrap();
        let said = said.or_failed("trying").unwrap_err().to_string();
        assert_eq!(said, "trying: no (exit status 3)");
    }
}
