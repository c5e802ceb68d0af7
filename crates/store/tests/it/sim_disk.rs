//! A disk in memory that can lose power, fill up and fail: what the real one does too rarely.
use std::collections::BTreeMap;
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
    faults: Faults,
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
    dirty: Vec<usize>,
}

/// What goes wrong, and how often (out of a thousand).
#[derive(Default)]
pub struct Faults {
    pub random: Option<fastrand::Rng>,
    pub short_write: u32,
    pub failed_write: u32,
    pub failed_sync: u32,
    /// All files together.
    pub capacity: Option<usize>,
    /// The machine stops after so many writes and syncs.
    pub dies_after: Option<u32>,
}

impl Faults {
    fn strikes(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.as_mut().is_some_and(|r| r.u32(0..1000) < per_mille)
    }

    fn step(&mut self) -> io::Result<()> {
        match &mut self.dies_after {
            Some(0) => Err(io::Error::other("the machine is dead")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl SimDisk {
    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().unwrap().faults = faults;
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

    /// Of what was not synced, any sector may have reached the disk or not.
    pub fn cut_power(&self, random: &mut fastrand::Rng) {
        let mut sim = self.0.lock().unwrap();
        sim.boots += 1;
        sim.faults = Faults::default();
        for file in sim.files.values_mut() {
            for sector in std::mem::take(&mut file.dirty) {
                if random.bool() {
                    let range = sector * SECTOR..((sector + 1) * SECTOR).min(file.cached.len());
                    let end = range.end.max(file.durable.len());
                    file.durable.resize(end, 0);
                    file.durable[range.clone()].copy_from_slice(&file.cached[range]);
                }
            }
            file.cached = file.durable.clone();
        }
    }
}

impl Sim {
    fn used(&self) -> usize {
        self.files.values().map(|file| file.cached.len()).sum()
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.faults.step()?;
        self.syncs += 1;
        let failed = self.faults.failed_sync;
        let strikes = self.faults.strikes(failed);
        let file = self.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        if strikes {
            // As Linux: the pages are marked clean, and never written.
            file.dirty.clear();
            return Err(io::Error::other("injected: sync failed"));
        }
        file.dirty.clear();
        file.durable = file.cached.clone();
        Ok(())
    }
}

struct Handle {
    sim: Arc<Mutex<Sim>>,
    name: String,
}

impl DiskFile for Handle {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut sim = self.sim.lock().unwrap();
        sim.faults.step()?;
        let (short, failed) = (sim.faults.short_write, sim.faults.failed_write);
        let mut length = bytes.len();
        if sim.faults.strikes(short) {
            length = sim.faults.random.as_mut().unwrap().usize(1..=length);
        }
        let fails = sim.faults.strikes(failed);
        if fails {
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
        if fails { Err(io::Error::other("injected: write failed")) } else { Ok(length) }
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
        sim.faults.step()?;
        if sim.faults.capacity.is_some_and(|capacity| sim.used() + size as usize > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let zeros = vec![0; size as usize];
        let file = SimFile { durable: zeros.clone(), cached: zeros, dirty: Vec::new() };
        sim.files.insert(name.into(), file);
        Ok(Box::new(Handle { sim: self.0.clone(), name: name.into() }))
    }

    fn read(&self, name: &str, into: &mut Vec<u8>) -> io::Result<()> {
        let sim = self.0.lock().unwrap();
        into.clone_from(&sim.files.get(name).ok_or(io::ErrorKind::NotFound)?.cached);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut sim = self.0.lock().unwrap();
        sim.faults.step()?;
        sim.files.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        let mut sim = self.0.lock().unwrap();
        sim.faults.step()?;
        let file = sim.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.cached.truncate(size as usize);
        file.durable.truncate(size as usize);
        file.dirty.retain(|sector| sector * SECTOR < size as usize);
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.0.lock().unwrap().sync(name)
    }

    fn boot_id(&self) -> u128 {
        self.0.lock().unwrap().boots + 1
    }
}
