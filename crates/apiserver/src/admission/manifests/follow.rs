//! Puts manifests in force, and reads them again when something in their folder changed.
use super::{Folder, Said, Sort, files};
use crate::admission::{policy, webhook};
use crate::server::ApiServer;
use client::Metrics;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a folder is looked at, and how often all of it is read whatever it looks like: upstream's interval.
/// Upstream hears of changes from the kernel; a look at a few names needs no more of a machine than that.
const LOOK: Duration = Duration::from_secs(1);
const READ: Duration = Duration::from_secs(60);

/// Puts in force what the manifests say, and keeps it so.
pub fn start(api: &ApiServer) {
    for Folder { sort, path, said } in api.admission().settings.manifests.all() {
        tracing::info!(plugin = sort.plugin, path = %path.display(), "manifests of admission");
        put_in_force(api, sort, said);
        let counts = Counts { api: api.clone(), sort, server: identity() };
        counts.succeeded(None, &said.hash);
        let last = said.hash.clone();
        tokio::spawn(follow(api.clone(), sort, path.clone(), last, counts));
    }
}

fn put_in_force(api: &ApiServer, sort: &'static Sort, said: &Said) {
    match sort.binding {
        Some(_) => policy::take_manifests(api, sort, said),
        None => webhook::take_manifests(api, sort, said),
    }
}

async fn follow(
    api: ApiServer,
    sort: &'static Sort,
    path: PathBuf,
    mut last: String,
    counts: Counts,
) {
    let (mut traces, mut read) = (None, Instant::now());
    loop {
        tokio::select! {
            () = api.stopping() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let before = traces.take();
        let (path, is_due) = (path.clone(), read.elapsed() >= READ);
        // A file system may hang.
        let look = tokio::task::spawn_blocking(move || {
            let now = files::traces(&path);
            let is_changed = is_due || before.as_ref() != Some(&now);
            (is_changed.then(|| Said::read(&path, sort)), now)
        });
        let Ok((said, now)) = look.await else { continue };
        traces = Some(now);
        let Some(said) = said else { continue };
        read = Instant::now();
        match said {
            Ok(said) if said.hash == last => {}
            Ok(said) => {
                tracing::info!(plugin = sort.plugin, "manifests of admission changed");
                put_in_force(&api, sort, &said);
                counts.succeeded(Some(&last), &said.hash);
                last = said.hash;
            }
            Err(error) => {
                tracing::error!(
                    plugin = sort.plugin,
                    error,
                    "manifests of admission stay what they were"
                );
                counts.count("failure");
            }
        }
    }
}

/// Upstream's (`plugin/manifest/metrics`).
struct Counts {
    api: ApiServer,
    sort: &'static Sort,
    server: String,
}

impl Counts {
    fn count(&self, status: &str) {
        let labels = [
            ("apiserver_id_hash", &*self.server),
            ("plugin", self.sort.plugin),
            ("status", status),
        ];
        let registry = &self.api.extend().counts;
        registry.count(
            "apiserver_manifest_admission_config_controller_automatic_reloads_total",
            &labels,
        );
        registry.set(
            "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
            &labels,
            Timestamp::now().as_duration().as_secs_f64(),
        );
    }

    fn succeeded(&self, before: Option<&str>, now: &str) {
        self.count("success");
        let info = "apiserver_manifest_admission_config_controller_last_config_info";
        let labels = |hash| {
            [("apiserver_id_hash", &*self.server), ("hash", hash), ("plugin", self.sort.plugin)]
        };
        let registry = &self.api.extend().counts;
        if let Some(before) = before {
            registry.forget(info, &labels(before));
        }
        registry.set(info, &labels(now), 1.0);
    }
}

/// What tells this server from others in the counts.
fn identity() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("sha256:{:x}", Sha256::digest(format!("apiserver-{}", name.trim())))
}
