//! Ctrl-C: the suite is told to end, and what was made for it is removed before this program ends.
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Whether somebody wants an end.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Whether there is a cluster to be removed; until then this program just ends.
static CLUSTER: AtomicBool = AtomicBool::new(false);
/// The suite's group of processes while it runs.
static SUITE: AtomicU32 = AtomicU32::new(0);

/// Listens from now on.
pub fn listen() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(mut end) = signal(SignalKind::terminate()) else { return };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = end.recv() => {}
            }
        });
        STOPPED.store(true, Ordering::SeqCst);
        if !CLUSTER.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("interrupted: removing the cluster");
        let suite = SUITE.load(Ordering::SeqCst);
        if suite != 0 {
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{suite}")]).status();
        }
    });
}

/// From here on there is something to be removed.
pub fn cluster_begins() {
    CLUSTER.store(true, Ordering::SeqCst);
}

/// The suite that is to end with an interruption; none when it has ended.
pub fn suite_is(process: Option<u32>) {
    SUITE.store(process.unwrap_or_default(), Ordering::SeqCst);
}

pub fn check() -> Result<(), String> {
    match STOPPED.load(Ordering::SeqCst) {
        true => Err("interrupted".to_owned()),
        false => Ok(()),
    }
}
