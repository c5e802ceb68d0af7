//! The servers of the cluster that this node is of. Their addresses are the endpoints of the service
//! `kubernetes`; a node follows them, and keeps them on disk, so that it finds another one when the one
//! it was told of is gone, even after a start.
use client::http::Others;
use client::source::Collection;
use client::{ApiResource, Context, Informer, Source};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name that the certificates of all servers have.
pub const NAME: &str = "kubernetes";

#[derive(Clone)]
pub struct Servers {
    known: Arc<Mutex<Vec<SocketAddr>>>,
    file: Arc<PathBuf>,
}

impl Servers {
    /// Those that were known when this node last ran.
    pub fn open(file: &Path) -> Servers {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let known = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        Servers { known: Arc::new(Mutex::new(known)), file: Arc::new(file.to_owned()) }
    }

    pub fn others(&self) -> Others {
        let known = self.known.clone();
        Others { addresses: Arc::new(move || known.lock().clone()), server_name: NAME.to_owned() }
    }

    /// Hears of servers that come and go, for as long as the context runs.
    pub fn follow(&self, context: &Context, source: Arc<dyn Source>) {
        let own = api::selector::field::Selector::equals("metadata.name", NAME);
        let of = Collection::all(ApiResource::of::<EndpointSlice>());
        let of = of.in_namespace("default").with_fields(own);
        let slices = Informer::<EndpointSlice>::start(context, source, of);
        let servers = self.clone();
        slices.on_change(move |change| {
            if let Some(slice) = change.latest() {
                servers.learn(addresses(slice));
            }
        });
    }

    /// Nobody is no news: without any server there is nobody to tell.
    fn learn(&self, addresses: Vec<SocketAddr>) {
        let mut known = self.known.lock();
        if addresses.is_empty() || *known == addresses {
            return;
        }
        let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        if let Err(error) = crate::install::write(&self.file, text.as_bytes(), 0o600) {
            tracing::warn!(%error, "the servers of the cluster are not kept");
        }
        *known = addresses;
    }
}

fn addresses(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let port = slice.ports.iter().flatten().find_map(|port| port.port);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(6443);
    let all = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    all.filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, port))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_after_a_start_and_never_forgotten_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("servers");
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "addressType": "IPv4", "ports": [{ "port": 7443 }],
            "endpoints": [{ "addresses": ["192.0.2.1"] }, { "addresses": ["192.0.2.2"] }] }))
        .unwrap();
        let servers = Servers::open(&file);
        assert!((servers.others().addresses)().is_empty());
        servers.learn(addresses(&slice));
        servers.learn(Vec::new());
        let again = Servers::open(&file);
        let known: Vec<String> =
            (again.others().addresses)().iter().map(ToString::to_string).collect();
        assert_eq!(known, ["192.0.2.1:7443", "192.0.2.2:7443"]);
    }
}
