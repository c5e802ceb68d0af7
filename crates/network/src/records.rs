//! What was given to whom: one file for each sandbox.
use crate::{Cidr, PodNetworkError, PortMapping};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What one sandbox has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub sandbox_id: String,
    /// Namespace and name of its pod; empty where an earlier version wrote it.
    #[serde(default)]
    pub owner: String,
    pub addresses: Vec<IpAddr>,
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// Of its link, once it has one.
    #[serde(default)]
    pub mac: Option<[u8; 6]>,
}

/// Held by one process at a time.
pub struct Records {
    folder: PathBuf,
    all: BTreeMap<String, Record>,
    /// The addresses given last, one of each family.
    last: Vec<IpAddr>,
    _lock: File,
}

const LOCK: &str = "lock";
const LAST: &str = "last";
const EXTENSION: &str = "json";

impl Records {
    pub fn open(folder: &Path) -> Result<Records, PodNetworkError> {
        Records::open_with(folder, FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits for whoever holds it.
    pub fn open_in_turn(folder: &Path) -> Result<Records, PodNetworkError> {
        Records::open_with(folder, FlockOperation::LockExclusive)
    }

    fn open_with(folder: &Path, lock_how: FlockOperation) -> Result<Records, PodNetworkError> {
        fs::create_dir_all(folder).map_err(|error| failed("create", folder, error))?;
        let path = folder.join(LOCK);
        let lock = File::create(&path).map_err(|error| failed("create", &path, error))?;
        flock(&lock, lock_how).map_err(|_| PodNetworkError::Held(path))?;
        let mut all = BTreeMap::new();
        let entries = fs::read_dir(folder).map_err(|error| failed("read", folder, error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let bytes = fs::read(&path).map_err(|error| failed("read", &path, error))?;
            match serde_json::from_slice::<Record>(&bytes) {
                Ok(record) => drop(all.insert(record.sandbox_id.clone(), record)),
                // Files are renamed into place, so this is no work of ours. Its sandbox gets new
                // addresses when it is attached again.
                Err(error) => tracing::warn!(%error, ?path, "not a sandbox's addresses"),
            }
        }
        let last = fs::read_to_string(folder.join(LAST)).unwrap_or_default();
        let last = last.split_whitespace().filter_map(|address| address.parse().ok()).collect();
        Ok(Records { folder: folder.to_owned(), all, last, _lock: lock })
    }

    pub fn all(&self) -> impl Iterator<Item = &Record> + Clone {
        self.all.values()
    }

    /// What the sandbox has, or new addresses: one from each CIDR.
    pub fn give(
        &mut self,
        sandbox_id: &str,
        owner: &str,
        ports: &[PortMapping],
        cidrs: &[Cidr],
    ) -> Result<Record, PodNetworkError> {
        let valid = |record: &&Record| {
            let fits = |cidr: &Cidr| record.addresses.iter().any(|one| cidr.contains(*one));
            record.addresses.len() == cidrs.len() && cidrs.iter().all(fits)
        };
        if let Some(record) = self.all.get(sandbox_id).filter(valid) {
            return Ok(record.clone());
        }
        let others = self.all.values().filter(|record| record.sandbox_id != sandbox_id);
        let taken: BTreeSet<IpAddr> =
            others.flat_map(|record| record.addresses.iter().copied()).collect();
        let next = |cidr: &Cidr| {
            let after = self.last.iter().copied().find(|last| cidr.contains(*last));
            cidr.next(after, &taken).ok_or(PodNetworkError::Exhausted(*cidr))
        };
        let addresses = cidrs.iter().map(next).collect::<Result<Vec<_>, _>>()?;
        let sandbox_id = sandbox_id.to_owned();
        let owner = owner.to_owned();
        let record = Record { sandbox_id, owner, addresses, ports: ports.to_vec(), mac: None };
        self.save(&record)?;
        self.last.clone_from(&record.addresses);
        let last: Vec<String> = self.last.iter().map(ToString::to_string).collect();
        self.write(&self.folder.join(LAST), last.join(" ").as_bytes())?;
        self.all.insert(record.sandbox_id.clone(), record.clone());
        Ok(record)
    }

    /// The sandbox's link has this MAC.
    pub fn set_mac(&mut self, sandbox_id: &str, mac: [u8; 6]) -> Result<(), PodNetworkError> {
        let Some(record) = self.all.get_mut(sandbox_id) else { return Ok(()) };
        record.mac = Some(mac);
        let record = record.clone();
        self.save(&record)
    }

    pub fn get(&self, sandbox_id: &str) -> Option<&Record> {
        self.all.get(sandbox_id)
    }

    fn save(&self, record: &Record) -> Result<(), PodNetworkError> {
        let bytes = serde_json::to_vec(record).expect("strings and numbers are JSON");
        self.write(&self.path(&record.sandbox_id), &bytes)
    }

    /// What it had, if anything.
    pub fn take_back(&mut self, sandbox_id: &str) -> Result<Option<Record>, PodNetworkError> {
        let path = self.path(sandbox_id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("remove", &path, error))
            }
            _ => Ok(self.all.remove(sandbox_id)),
        }
    }

    /// A sandbox's id is what its creator made of it: no more of it than is a file's name.
    fn path(&self, sandbox_id: &str) -> PathBuf {
        let name: String = sandbox_id
            .bytes()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() || byte == b'-' => {
                    char::from(byte).to_string()
                }
                byte => format!("_{byte:02x}"),
            })
            .collect();
        self.folder.join(name).with_extension(EXTENSION)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), PodNetworkError> {
        let draft = self.folder.join("draft");
        fs::write(&draft, bytes).map_err(|error| failed("write", &draft, error))?;
        fs::rename(&draft, path).map_err(|error| failed("write", path, error))
    }
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> PodNetworkError {
    PodNetworkError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_outlives_a_restart_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let cidrs = ["10.1.0.0/29".parse().unwrap(), "fd00::/64".parse().unwrap()];
        let give = |records: &mut Records, id: &str| {
            let given = records.give(id, "default/a", &[], &cidrs).map(|record| record.addresses);
            given.map_or_else(|error| error.to_string(), |given| format!("{given:?}"))
        };
        let mut records = Records::open(folder.path()).unwrap();
        assert_eq!(give(&mut records, "a"), "[10.1.0.2, fd00::2]");
        assert_eq!(give(&mut records, "../b"), "[10.1.0.3, fd00::3]");
        assert_eq!(give(&mut records, "a"), "[10.1.0.2, fd00::2]", "twice is once");
        assert!(matches!(Records::open(folder.path()), Err(PodNetworkError::Held(_))));
        records.take_back("../b").unwrap().unwrap();
        drop(records);
        fs::write(folder.path().join("x.json"), "{").unwrap();
        let mut records = Records::open(folder.path()).unwrap();
        assert_eq!(give(&mut records, "c"), "[10.1.0.4, fd00::4]", "not the one just left");
        assert_eq!(give(&mut records, "a"), "[10.1.0.2, fd00::2]");
        for id in ["d", "e", "f"] {
            give(&mut records, id);
        }
        assert!(
            give(&mut records, "g").starts_with("no address is free in the pod CIDR 10.1.0.0/29")
        );
        assert!(records.take_back("nobody").unwrap().is_none());
        records.take_back("c").unwrap();
        assert_eq!(give(&mut records, "g"), "[10.1.0.4, fd00::8]");
    }
}
