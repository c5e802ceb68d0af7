//! `kill -9` on a real file system, again and again.
//!
//! The parent starts itself as a child that writes to a store and prints what was acknowledged;
//! after a random number of lines it kills the child and looks at what the store holds. Half of
//! the children have a disk that writes short and fails to sync.
#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::embedded::disk::{Directory, Disk, DiskFile};
use store::embedded::{Embedded, Options};
use store::*;

/// More with `STORE_KILL_ROUNDS`; no more than the time below.
const ROUNDS: u64 = 600;
const TIME: Duration = Duration::from_secs(40);

const WRITERS: u64 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, child, directory, seed, faulty] if child == "--child" => {
            write_for_ever(Path::new(directory), seed.parse().unwrap(), faulty == "true");
        }
        // As the harness would list it.
        _ if arguments.iter().any(|a| a == "--list") => println!("kill: test"),
        _ => parent(),
    }
}

fn options() -> Options {
    let history = Duration::from_millis(20);
    Options { segment_size: 64 << 10, history, ..Options::default() }
}

fn parent() {
    let rounds = std::env::var("STORE_KILL_ROUNDS").ok().and_then(|n| n.parse().ok());
    let mut random = fastrand::Rng::with_seed(7);
    let (mut place, mut highest) = (tempfile::tempdir().unwrap(), 0);
    let begun = Instant::now();
    let (mut played, mut acknowledged) = (0, 0);
    while played < rounds.unwrap_or(ROUNDS) && (rounds.is_some() || begun.elapsed() < TIME) {
        if played % 20 == 0 {
            (place, highest) = (tempfile::tempdir().unwrap(), 0);
        }
        acknowledged += round(place.path(), &mut random, &mut highest);
        played += 1;
    }
    assert!(acknowledged > played * 10, "the children got to write");
    println!("kill: {played} rounds, {acknowledged} acknowledged writes checked ... ok");
}

fn round(directory: &Path, random: &mut fastrand::Rng, highest: &mut u64) -> u64 {
    let faulty = random.bool().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--child", directory.to_str().unwrap(), &random.u64(..).to_string(), &faulty])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The last value each writer was told was written.
    let mut acknowledged: HashMap<u64, u64> = HashMap::new();
    let patience = random.usize(0..200);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    let mut note = |line: String| {
        let numbers: Vec<u64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        // The last line may be torn by the kill; it then was not a promise.
        if let [writer, value, revision, end] = numbers[..]
            && end == writer + value + revision
        {
            acknowledged.insert(writer, value);
            *highest = (*highest).max(revision);
            count += 1;
        }
    };
    for line in lines.by_ref().take(patience) {
        note(line.unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        note(line.unwrap());
    }
    let engine = Embedded::open(directory, options()).unwrap();
    assert!(engine.revision() >= *highest, "the revision went back");
    for (writer, value) in acknowledged {
        let [a, b] = ["a", "b"].map(|name| engine.get(format!("/{writer}/{name}").as_bytes()));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((&a.value, a.mod_revision), (&b.value, b.mod_revision), "half a transaction");
        let found: u64 = String::from_utf8_lossy(&a.value).trim().parse().unwrap();
        // The next writes may have made it without having been acknowledged.
        assert!(found >= value, "writer {writer}: {value} was acknowledged, {found} is there");
    }
    count
}

/// The child: until it is killed.
fn write_for_ever(directory: &Path, seed: u64, faulty: bool) {
    let random = fastrand::Rng::with_seed(seed);
    let disk = Directory::open(directory).unwrap();
    let disk: Arc<dyn Disk> =
        if faulty { Arc::new(Faulty { disk, random }) } else { Arc::new(disk) };
    // An injected failure may hit the very beginning; then this child has nothing to say.
    let Ok(engine) = Embedded::open_disk(disk, options()) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let writers: Vec<_> =
            (0..WRITERS).map(|n| tokio::spawn(write(engine.clone(), n))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn write(engine: Embedded, writer: u64) {
    let key = |name: &str| format!("/{writer}/{name}");
    let now = engine.get(key("a").as_bytes());
    let mut value =
        now.map_or(0, |kv| String::from_utf8_lossy(&kv.value).trim().parse::<u64>().unwrap());
    loop {
        value += 1;
        let text = format!("{value}{}", " ".repeat((value % 700) as usize));
        let puts = ["a", "b"].map(|name| Op::put(key(name), text.clone(), 0));
        // Every third may be coalesced: a killed process loses none of those either.
        let coalescible = value.is_multiple_of(3);
        let durability = if coalescible { Durability::Coalescible } else { Durability::Durable };
        let txn = Txn { success: puts.into(), durability, ..Txn::default() };
        if let Ok(response) = engine.txn(txn).await {
            let revision = response.revision;
            let line = format!("{writer} {value} {revision} {}\n", writer + value + revision);
            if io::stdout().write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// A directory whose files write short and fail to sync now and then.
struct Faulty {
    disk: Directory,
    random: fastrand::Rng,
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    random: fastrand::Rng,
}

impl Disk for Faulty {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Box<dyn DiskFile>> {
        let random = fastrand::Rng::with_seed(self.random.clone().u64(..) ^ name.len() as u64);
        Ok(Box::new(FaultyFile { file: self.disk.create(name, size)?, random }))
    }
    fn read(&self, name: &str, into: &mut Vec<u8>) -> io::Result<()> {
        self.disk.read(name, into)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        self.disk.truncate(name, size)
    }
    fn boot_id(&self) -> u128 {
        self.disk.boot_id()
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let length =
            if self.random.u8(..) < 30 { self.random.usize(1..=bytes.len()) } else { bytes.len() };
        self.file.write_at(&bytes[..length], offset)
    }
    fn sync(&mut self) -> io::Result<()> {
        if self.random.u8(..) < 5 {
            return Err(io::Error::other("injected: sync failed"));
        }
        self.file.sync()
    }
}
