//! What is known of a sandbox and of a container, in memory and in its record.
//!
//! A record is one file to which lines are added: first what it was made of, then what became of
//! it. One file, because every file is one more to make and to remove; lines, because the daemon
//! and the shim both have something to add, and neither has to know what the other wrote.
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cgroup::Group;
use crate::cri::v1::{
    ContainerConfig, LinuxContainerResources, NamespaceMode, NamespaceOption, PodSandboxConfig,
};
use crate::files::{Others, append, lines, own_folder};
use crate::image::Image;
use crate::shim::spec::{Event, Exit, RECORD, Started};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub id: String,
    pub created_at: i64,
    pub handler: String,
    pub addresses: Vec<std::net::IpAddr>,
    /// Given up: its processes are gone and its network too.
    pub stopped: bool,
}

pub struct Sandbox {
    pub id: String,
    pub config: PodSandboxConfig,
    /// Its record, in the persistent directory.
    pub path: PathBuf,
    /// Its folder in the other, with all that is of no use after a reboot.
    pub state: PathBuf,
    /// Where its group is, unless it was given one.
    pub cgroup_root: String,
    pub record: Mutex<SandboxRecord>,
    /// One lifecycle operation at a time.
    pub changing: tokio::sync::Mutex<()>,
}

impl Sandbox {
    pub fn socket(&self) -> PathBuf {
        self.state.join("shim.sock")
    }

    pub fn shm(&self) -> PathBuf {
        match self.namespaces().ipc() {
            NamespaceMode::Node => PathBuf::from("/dev/shm"),
            _ => self.state.join("shm"),
        }
    }

    pub fn namespaces(&self) -> NamespaceOption {
        let linux = self.config.linux.as_ref();
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
    }

    /// Where its network namespace is pinned; none if it has the host's.
    pub fn network_path(&self) -> Option<PathBuf> {
        (self.namespaces().network() != NamespaceMode::Node).then(|| self.state.join("netns"))
    }

    /// The handler that names another OCI runtime.
    pub fn handler(&self) -> Option<String> {
        Some(self.record.lock().handler.clone()).filter(|handler| !handler.is_empty())
    }

    pub fn is_ready(&self) -> bool {
        !self.record.lock().stopped
    }

    /// The group that its containers' groups are in, and whether we made it.
    pub fn cgroup_parent(&self) -> (String, bool) {
        let parent = self.config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str());
        match parent {
            Some(parent) if !parent.is_empty() => (parent.to_owned(), false),
            _ => (format!("{}/{}", self.cgroup_root, self.id), true),
        }
    }

    /// The group of the process that holds shared namespaces.
    pub fn group(&self) -> Group {
        Group::new(&self.cgroup_parent().0, &format!("pause-{}", self.id))
    }

    /// The whole sandbox's group.
    pub fn parent_group(&self) -> Group {
        Group::new(&self.cgroup_parent().0, "")
    }

    pub fn hostname(&self) -> String {
        if self.config.hostname.is_empty() {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            return name;
        }
        self.config.hostname.clone()
    }

    /// The first line: that it is being made, and of what.
    pub fn begin(&self) -> io::Result<()> {
        let record = self.record.lock().clone();
        append(&self.path, &Made { record, config: self.config.clone() })
    }

    /// Another line: what it is now.
    pub fn save(&self) -> io::Result<()> {
        append(&self.path, &*self.record.lock())
    }

    /// Records that it is stopped; whether that is news. One who hears that it is not may remove
    /// the record: the line is written before the lock is given back, or it would make the file anew.
    pub fn stopped(&self) -> io::Result<bool> {
        let mut record = self.record.lock();
        if record.stopped {
            return Ok(false);
        }
        record.stopped = true;
        append(&self.path, &*record).map(|()| true)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox_id: String,
    pub created_at: i64,
    /// As it was: it may be removed while the container is there.
    pub image: Image,
    /// What CRI calls the image's reference: a digest that leads to it.
    pub image_ref: String,
    pub stop_signal: i32,
}

/// What a container is doing.
#[derive(Debug, Clone, Default)]
pub struct Doing {
    pub started: Option<Started>,
    pub exit: Option<Exit>,
    pub resources: Option<LinuxContainerResources>,
}

/// What listeners have heard: a short life may end before its start is told.
struct Told {
    start: bool,
    end_waits: bool,
}

pub struct Container {
    pub id: String,
    pub record: ContainerRecord,
    pub config: ContainerConfig,
    pub folder: PathBuf,
    pub group: Group,
    doing: Mutex<Doing>,
    /// True once it has ended.
    pub ended: watch::Sender<bool>,
    pub changing: tokio::sync::Mutex<()>,
    told: Mutex<Told>,
    /// The last processor time seen, for rates.
    pub last_cpu: Mutex<Option<(i64, u64)>>,
}

impl Container {
    pub fn new(
        record: ContainerRecord,
        config: ContainerConfig,
        folder: PathBuf,
        parent: &str,
        doing: Doing,
    ) -> Self {
        let group = Group::new(parent, &record.id);
        Container {
            id: record.id.clone(),
            ended: watch::Sender::new(doing.exit.is_some()),
            record,
            config,
            folder,
            group,
            told: Mutex::new(Told { start: doing.started.is_some(), end_waits: false }),
            doing: Mutex::new(doing),
            changing: tokio::sync::Mutex::default(),
            last_cpu: Mutex::default(),
        }
    }

    pub fn doing(&self) -> Doing {
        self.doing.lock().clone()
    }

    pub fn is_running(&self) -> bool {
        let doing = self.doing.lock();
        doing.started.is_some() && doing.exit.is_none()
    }

    pub fn set_started(&self, started: Started) {
        self.doing.lock().started = Some(started);
    }

    /// Its limits are others now, also for the next daemon.
    pub fn set_resources(&self, resources: LinuxContainerResources) -> io::Result<()> {
        self.doing.lock().resources = Some(resources.clone());
        append(&self.folder.join(RECORD), &Limited { limits: resources })
    }

    /// The first end counts.
    pub fn set_exit(&self, exit: Exit) -> bool {
        let mut doing = self.doing.lock();
        let first = doing.exit.is_none();
        if first {
            doing.exit = Some(exit);
        }
        drop(doing);
        self.ended.send_replace(true);
        first
    }

    /// Writes down what it was made of: from now on it exists.
    pub fn save(&self, others: Others) -> io::Result<()> {
        own_folder(&self.folder, others)?;
        let made = Made { record: self.record.clone(), config: self.config.clone() };
        append(&self.folder.join(RECORD), &made)
    }

    /// How it ended, if that was written down; otherwise that is, as `unknown`.
    pub fn settle(&self, unknown: Exit) -> Exit {
        let known = read_container(&self.folder).and_then(|(_, _, doing)| doing.exit);
        known.unwrap_or_else(|| {
            // If it cannot be written, the next daemon knows no more than this one.
            let _ = append(&self.folder.join(RECORD), &Event::Exited(unknown.clone()));
            unknown
        })
    }

    /// Its start is told now; whether its end has waited for that.
    pub fn start_told(&self) -> bool {
        let mut told = self.told.lock();
        told.start = true;
        std::mem::take(&mut told.end_waits)
    }

    /// Whether its end can be told: not before its start.
    pub fn may_tell_end(&self) -> bool {
        let mut told = self.told.lock();
        told.end_waits = !told.start;
        told.start
    }

    pub async fn wait_ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as we do.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// A record's first line.
#[derive(Serialize, Deserialize)]
#[serde(bound(
    serialize = "R: Serialize, C: Message",
    deserialize = "R: DeserializeOwned, C: Message + Default"
))]
pub struct Made<R, C> {
    pub record: R,
    /// As CRI sent it.
    #[serde(with = "message")]
    pub config: C,
}

/// A line of a container's record: limits that were changed in place.
#[derive(Serialize, Deserialize)]
struct Limited {
    #[serde(with = "message")]
    limits: LinuxContainerResources,
}

/// A sandbox's record: how it began, and what it was last if it was ever finished.
pub fn read_sandbox(path: &Path) -> (Option<PodSandboxConfig>, Option<SandboxRecord>) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let made: Option<Made<SandboxRecord, PodSandboxConfig>> = lines(&text).next();
    (made.map(|made| made.config), lines(&text).last())
}

/// A container's record: what it was made of, and what it is doing.
pub fn read_container(folder: &Path) -> Option<(ContainerRecord, ContainerConfig, Doing)> {
    let text = std::fs::read_to_string(folder.join(RECORD)).ok()?;
    let made: Made<ContainerRecord, ContainerConfig> = lines(&text).next()?;
    let mut doing = Doing {
        resources: made.config.linux.as_ref().and_then(|linux| linux.resources.clone()),
        ..Doing::default()
    };
    if let Some(Limited { limits }) = lines(&text).last() {
        doing.resources = Some(limits);
    }
    for event in lines(&text) {
        match event {
            Event::Started(started) => doing.started = Some(started),
            // The first end counts.
            Event::Exited(exit) => drop(doing.exit.get_or_insert(exit)),
        }
    }
    Some((made.record, made.config, doing))
}

/// CRI's messages in JSON: as they are on the wire, in base64.
mod message {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use prost::Message;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<M: Message, S: Serializer>(message: &M, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(message.encode_to_vec()))
    }

    pub fn deserialize<'de, M, D>(from: D) -> Result<M, D::Error>
    where
        M: Message + Default,
        D: Deserializer<'de>,
    {
        let bytes = STANDARD.decode(String::deserialize(from)?).map_err(de::Error::custom)?;
        M::decode(&bytes[..]).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_removed_stays_removed() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..500 {
            let record = SandboxRecord {
                id: round.to_string(),
                created_at: 0,
                handler: String::new(),
                addresses: Vec::new(),
                stopped: false,
            };
            let sandbox = Sandbox {
                id: record.id.clone(),
                config: PodSandboxConfig::default(),
                path: folder.path().join(&record.id),
                state: PathBuf::new(),
                cgroup_root: String::new(),
                record: Mutex::new(record),
                changing: tokio::sync::Mutex::default(),
            };
            sandbox.begin().unwrap();
            // The shim's end is seen by one, the wish to remove comes to another.
            std::thread::scope(|scope| {
                scope.spawn(|| sandbox.stopped().unwrap());
                sandbox.stopped().unwrap();
                std::fs::remove_file(&sandbox.path).unwrap();
            });
            assert!(!sandbox.path.exists(), "round {round}");
        }
    }
}
