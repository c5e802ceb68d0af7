//! `bench -- store`: the embedded engine, the disk's own limit, and real etcd on the same disk.
//!
//! Options: `--seconds N` per measurement (3), `--dir PATH` where the data goes (the temporary
//! directory), `--keys N` for open time and memory (300000). etcd's rows need `etcd` on the PATH.
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::store::cache::{CacheOptions, Item, Selection, WatchCache};
use ::store::embedded::{Embedded, Options};
use ::store::etcd::{Etcd, EtcdOptions};
use ::store::face::{Face, Listen};
use ::store::*;
use tokio::runtime::Runtime;

use crate::measured::{Measured, resident};
use crate::report::Report;

const VALUE: usize = 1536;

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1).cloned()
    };
    let seconds = option("--seconds").and_then(|n| n.parse().ok()).unwrap_or(3.0);
    let keys = option("--keys").and_then(|n| n.parse().ok()).unwrap_or(300_000);
    let dir = option("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    let place = dir.join(format!("skiff-bench-store-{}", std::process::id()));
    let runtime = Runtime::new().expect("a runtime can be started");
    let bench = Bench { time: Duration::from_secs_f64(seconds), place: place.clone(), runtime };
    let etcd = EtcdServer::start(&bench.place("etcd"), &bench.runtime);
    if etcd.is_none() {
        eprintln!("etcd is not on the PATH: its rows are left out");
    }
    bench.writes(etcd.as_ref(), report);
    bench.compaction(report);
    bench.ranges(etcd.as_ref(), report);
    bench.fan_out(report);
    bench.open(keys, report);
    let _ = fs::remove_dir_all(place);
}

struct Bench {
    time: Duration,
    place: PathBuf,
    runtime: Runtime,
}

impl Bench {
    fn place(&self, name: &str) -> PathBuf {
        let path = self.place.join(name);
        fs::create_dir_all(&path).expect("the benchmark's directory can be made");
        path
    }

    /// Writers on keys of their own, each waiting for its write.
    fn writers(&self, store: &Store, writers: usize) -> Measured {
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let latencies = self.runtime.block_on(async {
            let tasks: Vec<_> = (0..writers)
                .map(|writer| {
                    let (store, stop) = (store.clone(), stop.clone());
                    tokio::spawn(async move {
                        let value = bytes::Bytes::from(vec![b'x'; VALUE]);
                        let mut latencies = Vec::new();
                        for i in 0.. {
                            if stop.load(Ordering::Relaxed) {
                                break;
                            }
                            let key = format!("/registry/bench/{writer}/{}", i % 1000);
                            let put = Op::put(key, value.clone(), 0);
                            let started = Instant::now();
                            let txn = Txn { success: vec![put], ..Txn::default() };
                            if let Err(error) = store.txn(txn).await {
                                eprintln!("writer {writer} gives up: {error}");
                                break;
                            }
                            latencies.push(started.elapsed().as_micros() as u32);
                        }
                        latencies
                    })
                })
                .collect();
            tokio::time::sleep(self.time).await;
            stop.store(true, Ordering::Relaxed);
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("a writer ends well"));
            }
            all
        });
        Measured { took: begun.elapsed(), latencies }
    }

    /// Durable writes. What is to be compared is measured one after the other, because a shared
    /// machine is never the same for long.
    fn writes(&self, etcd: Option<&EtcdServer>, report: &mut Report) {
        let open = |name: String| {
            Embedded::open(&self.place(&name), Options::default()).expect("the store opens")
        };
        for writers in [1, 32, 256] {
            self.disk_limit(writers, report);
            let embedded = self.writers(&open(format!("embedded-{writers}")).into(), writers);
            let rate = embedded.rate();
            report.row(format!("embedded, {writers} writers"), &embedded.figures());
            if let Some(etcd) = etcd {
                let measured = self.writers(&etcd.store, writers);
                let times = rate / measured.rate();
                report.row(format!("etcd, {writers} writers"), &measured.figures());
                // Through the same protocol: the engines are compared and not the transport.
                let face = self.face(open(format!("face-{writers}")));
                let measured = self.writers(&face, writers);
                let name = format!("embedded over etcd's API, {writers} writers");
                report.row(name, &measured.figures());
                report.row(format!("embedded / etcd, {writers} writers"), &[("times", times)]);
            }
        }
    }

    fn face(&self, engine: Embedded) -> Store {
        self.runtime.block_on(async {
            let listen = Listen::Tcp(([127, 0, 0, 1], 0).into());
            let face = Face::bind(listen, None).await.expect("the face listens");
            let url = face.url().to_owned();
            tokio::spawn(face.serve(engine, std::future::pending()));
            Etcd::connect(EtcdOptions::new([url])).await.expect("the face answers").into()
        })
    }

    /// What the disk does at best: appends of so many values, each followed by a sync.
    fn disk_limit(&self, batch: usize, report: &mut Report) {
        let path = self.place("raw").join("file");
        let file = File::create(&path).expect("a file can be made");
        file.set_len(256 << 20).expect("it has room");
        let bytes = vec![b'x'; batch * VALUE];
        let (mut offset, mut latencies) = (0, Vec::new());
        let begun = Instant::now();
        while begun.elapsed() < self.time {
            let started = Instant::now();
            file.write_all_at(&bytes, offset).expect("the disk writes");
            file.sync_data().expect("the disk syncs");
            latencies.extend(vec![started.elapsed().as_micros() as u32; batch]);
            offset = (offset + bytes.len() as u64) % (200 << 20);
        }
        let measured = Measured { took: begun.elapsed(), latencies };
        report.row(format!("disk limit, {batch} a sync"), &measured.figures());
    }

    /// The same load without compaction and with one that never rests: history is a tenth of a
    /// second.
    fn compaction(&self, report: &mut Report) {
        for (name, history) in [("no compaction", 300_000), ("always compacting", 100)] {
            let history = Duration::from_millis(history);
            let options = Options { history, history_bytes: u64::MAX, ..Options::default() };
            let engine = Embedded::open(&self.place(name), options).expect("the store opens");
            let measured = self.writers(&engine.into(), 32);
            report.row(format!("embedded, 32 writers, {name}"), &measured.figures());
        }
    }

    fn fill(&self, store: &Store, prefix: &str, keys: usize) {
        self.runtime.block_on(async {
            let value = bytes::Bytes::from(vec![b'x'; 1000]);
            let mut running = tokio::task::JoinSet::new();
            for first in (0..keys).step_by(100) {
                let puts = (first..(first + 100).min(keys))
                    .map(|i| Op::put(format!("{prefix}{i:08}"), value.clone(), 0));
                let txn = Txn { success: puts.collect(), ..Txn::default() };
                let store = store.clone();
                running.spawn(async move { store.txn(txn).await.map(drop) });
                if running.len() > 64 {
                    running.join_next().await.expect("one runs").expect("joins").expect("writes");
                }
            }
            while let Some(done) = running.join_next().await {
                done.expect("joins").expect("writes");
            }
        });
    }

    fn time_range(&self, name: &str, store: &Store, keys: usize, report: &mut Report) {
        let begun = Instant::now();
        let mut rounds = 0;
        while begun.elapsed() < self.time || rounds == 0 {
            let request = RangeRequest::new(KeyRange::prefix("/registry/range/"));
            let found = self.runtime.block_on(store.range(request)).expect("a range is read");
            assert!(found.kvs.len() >= keys);
            rounds += 1;
        }
        let each = begun.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds);
        report.row(name, &[("ms", each), ("keys/s", keys as f64 / each * 1000.0)]);
    }

    fn ranges(&self, etcd: Option<&EtcdServer>, report: &mut Report) {
        for keys in [10_000, 100_000] {
            if let Some(etcd) = etcd {
                self.fill(&etcd.store, "/registry/range/", keys);
                self.time_range(&format!("etcd, range of {keys} keys"), &etcd.store, keys, report);
            }
            let place = self.place(&format!("range-{keys}"));
            let store: Store =
                Embedded::open(&place, Options::default()).expect("the store opens").into();
            self.fill(&store, "/registry/range/", keys);
            self.time_range(&format!("embedded, range of {keys} keys"), &store, keys, report);
        }
    }

    /// One writer, a thousand watchers of the cache.
    fn fan_out(&self, report: &mut Report) {
        const WATCHERS: usize = 1000;
        let engine = Embedded::open(&self.place("watch"), Options::default()).expect("opens");
        let delivered = Arc::new(AtomicU64::new(0));
        let (events, took) = self.runtime.block_on(async {
            let options = CacheOptions::new("/registry/pods/");
            let cache =
                WatchCache::start(engine.clone().into(), options).await.expect("the cache starts");
            for _ in 0..WATCHERS {
                let all = Selection { range: cache.range(), term: None };
                let mut watch = cache.watch(all, 0).expect("the window reaches back");
                let delivered = delivered.clone();
                tokio::spawn(async move {
                    while let Ok(item) = watch.next().await {
                        if let Item::Events(batch) = item {
                            delivered.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
                        }
                    }
                });
            }
            let begun = Instant::now();
            let mut events = 0u64;
            while begun.elapsed() < self.time {
                let key = format!("/registry/pods/{}", events % 500);
                let put = Op::put(key, vec![b'x'; VALUE], 0);
                let txn = Txn { success: vec![put], ..Txn::default() };
                engine.txn(txn).await.expect("a write succeeds");
                events += 1;
            }
            while delivered.load(Ordering::Relaxed) < events * WATCHERS as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (events, begun.elapsed())
        });
        let rate = events as f64 / took.as_secs_f64();
        let figures = [("writes/s", rate), ("events/s", rate * WATCHERS as f64)];
        report.row("watch cache, 1000 watchers", &figures);
    }

    fn open(&self, keys: usize, report: &mut Report) {
        let place = self.place("open");
        let engine = Embedded::open(&place, Options::default()).expect("the store opens");
        self.fill(&engine.clone().into(), "/registry/range/", keys);
        self.runtime.block_on(engine.close());
        drop(engine);
        let before = resident("self");
        let begun = Instant::now();
        let engine = Embedded::open(&place, Options::default()).expect("the store opens");
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        assert_eq!(engine.stats().keys, keys);
        let after = resident("self");
        let each = (after.saturating_sub(before)) as f64 / keys as f64;
        let figures = [("ms", took), ("B/key", each), ("of it value", 1000.0)];
        report.row(format!("open with {keys} keys of 1000 B"), &figures);
        let revision = engine.revision();
        self.runtime.block_on(async {
            engine.compact(revision).await.expect("history can be compacted");
            while engine.stats().history_events > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let before = resident("self");
            let options = CacheOptions::new("/registry/range/");
            let cache = WatchCache::start(engine.clone().into(), options).await.expect("starts");
            assert_eq!(cache.len(), keys);
            let each = resident("self").saturating_sub(before) as f64 / keys as f64;
            report.row("watch cache, per object beyond the engine's", &[("B/object", each)]);
        });
    }
}

struct EtcdServer {
    child: Child,
    store: Store,
}

impl EtcdServer {
    fn start(place: &Path, runtime: &Runtime) -> Option<Self> {
        let url = || {
            let listener = TcpListener::bind("127.0.0.1:0").ok()?;
            Some(format!("http://127.0.0.1:{}", listener.local_addr().ok()?.port()))
        };
        let (client, peer) = (url()?, url()?);
        let child = Command::new("etcd")
            .args(["--data-dir", &place.display().to_string(), "--log-level", "error"])
            .args(["--logger", "zap", "--quota-backend-bytes", "8589934592"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let options =
            EtcdOptions { timeout: Duration::from_secs(30), ..EtcdOptions::new([client]) };
        let store = runtime.block_on(Etcd::connect(options)).ok()?.into();
        Some(EtcdServer { child, store })
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
