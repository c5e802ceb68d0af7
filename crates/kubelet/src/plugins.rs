//! Plugins that come by themselves: a socket appears in `plugins_registry`, says who serves it, and
//! is told whether it is welcome (`pkg/kubelet/pluginmanager`).
use crate::folder::Watched;
use crate::worker::Kubelet;
use proto::registration_client::RegistrationClient;
use proto::{InfoRequest, PluginInfo, RegistrationStatus};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("pluginregistration");
}

/// When what failed is tried again: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(120));
/// How long a plugin may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// A channel to a unix socket, which connects when it is used.
pub fn connect(socket: &Path) -> Result<Channel, String> {
    let path = socket.display().to_string();
    let path = path.strip_prefix("unix://").unwrap_or(&path);
    let endpoint = Endpoint::try_from(format!("unix://{path}"));
    Ok(endpoint.map_err(|error| error.to_string())?.connect_lazy())
}

/// Which socket it is: another one may take its name.
type Identity = (u64, u64, i64, i64);

struct Known {
    identity: Identity,
    /// What it registered as; not yet, if nothing.
    plugin: Option<PluginInfo>,
    pause: Duration,
    due: tokio::time::Instant,
}

/// Until the context stops.
pub async fn watch(kubelet: &Arc<Kubelet>) {
    let folder = kubelet.config.root.join("plugins_registry");
    let changes = match prepare(&folder) {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!("failed to watch {}: {error}", folder.display());
            return;
        }
    };
    publish_node(kubelet).await;
    let mut known: BTreeMap<PathBuf, Known> = BTreeMap::new();
    loop {
        let there = sockets(&folder);
        let gone: Vec<PathBuf> = known
            .iter()
            .filter(|(path, one)| there.get(*path) != Some(&one.identity))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            if let Some(plugin) = known.remove(&path).and_then(|one| one.plugin) {
                if plugin.r#type == "DRAPlugin" {
                    kubelet.dra.remove(kubelet, &plugin.name, &plugin.endpoint);
                    continue;
                }
                // Another socket may have come for the same plugin.
                let mut others = known.values().filter_map(|one| one.plugin.as_ref());
                if !others.any(|other| other.name == plugin.name && other.r#type == plugin.r#type) {
                    deregister(kubelet, &plugin).await;
                }
            }
        }
        let now = tokio::time::Instant::now();
        for (path, identity) in there {
            let one = known.entry(path.clone()).or_insert(Known {
                identity,
                plugin: None,
                pause: RETRY.0,
                due: now,
            });
            if one.plugin.is_some() || one.due > now {
                continue;
            }
            match register(kubelet, &path).await {
                Ok(plugin) => one.plugin = Some(plugin),
                Err(error) => {
                    tracing::warn!("failed to register the plugin at {}: {error}", path.display());
                    one.due = tokio::time::Instant::now() + one.pause;
                    one.pause = (one.pause * 2).min(RETRY.1);
                }
            }
        }
        let due = known.values().filter(|one| one.plugin.is_none()).map(|one| one.due).min();
        tokio::select! {
            () = kubelet.context.stopped() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }
}

async fn publish_node(kubelet: &Kubelet) {
    let mut pause = RETRY.0;
    while let Err(error) = crate::csi::publish_node(kubelet).await {
        tracing::debug!("failed to write the CSINode: {error}");
        if !kubelet.context.sleep(pause).await {
            return;
        }
        pause = (pause * 2).min(RETRY.1);
    }
}

async fn register(kubelet: &Arc<Kubelet>, socket: &Path) -> Result<PluginInfo, String> {
    let mut client = RegistrationClient::new(connect(socket)?);
    let mut asked = Request::new(InfoRequest {});
    asked.set_timeout(PATIENCE);
    let info = tokio::time::timeout(PATIENCE, client.get_info(asked)).await;
    let info = info.map_err(|_| "it does not answer".to_owned())?;
    let mut info = info.map_err(|status| status.message().to_owned())?.into_inner();
    if info.endpoint.is_empty() {
        info.endpoint = socket.display().to_string();
    }
    let (name, endpoint, versions) = (&info.name, &info.endpoint, &info.supported_versions);
    let added = match info.r#type.as_str() {
        "CSIPlugin" => kubelet.csi.add(kubelet, name, endpoint, versions).await,
        "DRAPlugin" => kubelet.dra.add(kubelet, name, endpoint, versions),
        "DevicePlugin" => kubelet.devices.add(kubelet, name, Path::new(endpoint), None),
        other => Err(format!(
            "no handler registered for plugin type: {other} at socket {}",
            socket.display()
        )),
    };
    let status = RegistrationStatus {
        plugin_registered: added.is_ok(),
        error: added.as_ref().err().cloned().unwrap_or_default(),
    };
    let told = tokio::time::timeout(PATIENCE, client.notify_registration_status(status)).await;
    added?;
    match told {
        Ok(Ok(_)) => Ok(info),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err("it does not want to know that it is registered".to_owned()),
    }
}

async fn deregister(kubelet: &Arc<Kubelet>, plugin: &PluginInfo) {
    let removed = match plugin.r#type.as_str() {
        "CSIPlugin" => kubelet.csi.remove(kubelet, &plugin.name).await,
        _ => Ok(()),
    };
    if let Err(error) = removed {
        tracing::warn!("failed to deregister {}: {error}", plugin.name);
    }
}

fn prepare(folder: &Path) -> io::Result<Watched> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    Watched::new(folder)
}

fn sockets(folder: &Path) -> BTreeMap<PathBuf, Identity> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let sockets = shown.filter_map(|entry| {
        let file = fs::metadata(entry.path()).ok()?;
        let identity = (file.dev(), file.ino(), file.mtime(), file.mtime_nsec());
        file.file_type().is_socket().then(|| (entry.path(), identity))
    });
    sockets.collect()
}
