//! A disk in memory that can lose power, fill up and fail: what the real one does too rarely.
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use store::embedded::disk::{Disk, DiskFile};

/// Power cuts tear writes at this granularity.
const SECTOR: usize = 512;

#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<Sim>>);

#[derive(Default)]
struct Sim {
    files: BTreeMap<String, SimFile>,
    /// Removed, but no directory was synced since: a power cut may bring them back.
    removed: BTreeMap<String, SimFile>,
    faults: Faults,
    /// Operations since the faults were set.
    operations: u32,
    boots: u128,
    syncs: u64,
    written: u64,
}

#[derive(Default, Clone)]
struct SimFile {
    /// What a power cut leaves.
    durable: Vec<u8>,
    /// What a reader sees.
    cached: Vec<u8>,
    /// Sectors written since the last sync.
    dirty: BTreeSet<usize>,
}

/// What goes wrong, and how often (out of a thousand).
#[derive(Default)]
pub struct Faults {
    pub random: Option<fastrand::Rng>,
    pub short_write: u32,
    pub failed_write: u32,
    pub failed_sync: u32,
    /// Which operations fail, counted from one.
    pub failing: Vec<u32>,
    /// All files together.
    pub capacity: Option<usize>,
    /// The machine stops after so many operations.
    pub dies_after: Option<u32>,
}

impl Faults {
    fn strikes(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.as_mut().is_some_and(|r| r.u32(0..1000) < per_mille)
    }
}

impl SimDisk {
    pub fn set_faults(&self, faults: Faults) {
        let mut sim = self.0.lock().unwrap();
        (sim.faults, sim.operations) = (faults, 0);
    }

    /// Operations since the faults were set.
    pub fn operations(&self) -> u32 {
        self.0.lock().unwrap().operations
    }

    pub fn is_dead(&self) -> bool {
        self.0.lock().unwrap().is_dead()
    }

    pub fn used(&self) -> usize {
        self.0.lock().unwrap().used()
    }

    pub fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    /// Bytes written since the beginning.
    pub fn written(&self) -> u64 {
        self.0.lock().unwrap().written
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().files.keys().cloned().collect()
    }

    /// Changes a file behind everybody's back.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut sim = self.0.lock().unwrap();
        let file = sim.files.get_mut(name).unwrap();
        change(&mut file.cached);
        file.durable = file.cached.clone();
    }

    pub fn remove_file(&self, name: &str) {
        self.0.lock().unwrap().files.remove(name);
    }

    /// Of what was not synced, anything may have reached the disk or not.
    pub fn cut_power(&self, mut survives: impl FnMut() -> bool) {
        let mut sim = self.0.lock().unwrap();
        sim.boots += 1;
        sim.faults = Faults::default();
        for (name, file) in std::mem::take(&mut sim.removed) {
            if !survives() {
                sim.files.entry(name).or_insert(file);
            }
        }
        for file in sim.files.values_mut() {
            for sector in std::mem::take(&mut file.dirty) {
                if survives() {
                    file.write_back(sector);
                }
            }
            if file.cached.len() < file.durable.len() && survives() {
                file.durable.truncate(file.cached.len());
            }
            file.cached = file.durable.clone();
        }
    }
}

impl SimFile {
    fn write_back(&mut self, sector: usize) {
        let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.cached.len());
        let end = range.end.max(self.durable.len());
        self.durable.resize(end, 0);
        self.durable[range.clone()].copy_from_slice(&self.cached[range]);
    }
}

impl Sim {
    fn used(&self) -> usize {
        self.files.values().map(|file| file.cached.len()).sum()
    }

    fn is_dead(&self) -> bool {
        self.faults.dies_after.is_some_and(|last| self.operations >= last)
    }

    /// Begins an operation; says whether it is one of those that fail.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_dead() {
            return Err(io::Error::other("the machine is dead"));
        }
        self.operations += 1;
        Ok(self.faults.failing.contains(&self.operations))
    }

    /// An operation that is done or not, never in part.
    fn whole_step(&mut self) -> io::Result<()> {
        if self.step()? { Err(injected()) } else { Ok(()) }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let fails = self.step()?;
        self.syncs += 1;
        let failed = self.faults.failed_sync;
        let fails = fails || self.faults.strikes(failed);
        let file = self.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let dirty = std::mem::take(&mut file.dirty);
        if fails {
            // As Linux: the pages are marked clean and stay readable, but no later sync, not even
            // of another process, writes them.
            return Err(injected());
        }
        for sector in dirty {
            file.write_back(sector);
        }
        file.durable.truncate(file.cached.len());
        Ok(())
    }
}

fn injected() -> io::Error {
    io::Error::other("injected")
}

struct Handle {
    sim: Arc<Mutex<Sim>>,
    name: String,
}

impl DiskFile for Handle {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut sim = self.sim.lock().unwrap();
        let fails = sim.step()?;
        let (short, failed) = (sim.faults.short_write, sim.faults.failed_write);
        let mut length = bytes.len();
        if sim.faults.strikes(short) {
            length = sim.faults.random.as_mut().unwrap().usize(1..=length);
        }
        if fails {
            length /= 2;
        }
        let struck = sim.faults.strikes(failed);
        if struck {
            length = sim.faults.random.as_mut().unwrap().usize(0..=length);
        }
        sim.written += length as u64;
        let file = sim.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        let offset = offset as usize;
        let end = (offset + length).max(file.cached.len());
        file.cached.resize(end, 0);
        file.cached[offset..offset + length].copy_from_slice(&bytes[..length]);
        if length > 0 {
            file.dirty.extend(offset / SECTOR..=(offset + length - 1) / SECTOR);
        }
        if fails || struck { Err(injected()) } else { Ok(length) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sim.lock().unwrap().sync(&self.name)
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut sim = self.0.lock().unwrap();
        sim.whole_step()?;
        if sim.faults.capacity.is_some_and(|capacity| sim.used() + size as usize > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let zeros = vec![0; size as usize];
        let file = SimFile { durable: zeros.clone(), cached: zeros, dirty: BTreeSet::new() };
        sim.files.insert(name.into(), file);
        // Its name is synced, and so are all the others.
        sim.removed.clear();
        Ok(Box::new(Handle { sim: self.0.clone(), name: name.into() }))
    }

    fn read(&self, name: &str, into: &mut Vec<u8>) -> io::Result<()> {
        let sim = self.0.lock().unwrap();
        into.clone_from(&sim.files.get(name).ok_or(io::ErrorKind::NotFound)?.cached);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut sim = self.0.lock().unwrap();
        sim.whole_step()?;
        let file = sim.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        sim.removed.insert(name.into(), file);
        Ok(())
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        let mut sim = self.0.lock().unwrap();
        sim.whole_step()?;
        let file = sim.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.cached.truncate(size as usize);
        file.dirty.retain(|sector| sector * SECTOR < size as usize);
        Ok(())
    }

    fn boot_id(&self) -> u128 {
        self.0.lock().unwrap().boots + 1
    }
}
