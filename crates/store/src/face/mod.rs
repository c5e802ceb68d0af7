//! The etcd face: the embedded engine served over etcd's v3 gRPC API.
//!
//! For `etcdctl`, for backups by other tools, and for upstream's API server in place of ours. It
//! is a face and no more: one member, no consensus, no users, and what etcd would do in maintenance
//! (defragmentation, alarms) has nothing to do here. It listens only where nobody else can reach
//! it, a unix socket or a loopback address, and it is off unless asked for.
mod convert;
mod kv;
mod lease;
mod maintenance;
mod save;
mod watch;

pub use save::{SaveError, save};

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::embedded::Embedded;
use crate::error::Error;
use crate::proto::{self, ResponseHeader};

/// What clients are told they speak to: the newest whose API this is.
const VERSION: &str = "3.6.0";

/// There is one member, and these are its names.
const CLUSTER_ID: u64 = 0x736b_6966_6600;
const MEMBER_ID: u64 = 0x736b_6966_6601;

#[derive(Debug, Clone)]
pub enum Listen {
    /// Must be a loopback address; port zero takes a free one.
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// PEM texts. With `client_ca`, clients must show a certificate it signed.
#[derive(Clone)]
pub struct FaceTls {
    pub certificate: String,
    pub key: String,
    pub client_ca: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FaceError {
    #[error("{0} is not a loopback address: the etcd face has no business on a network")]
    NotLoopback(SocketAddr),
    #[error("failed to listen on {address}")]
    Listen { address: String, source: std::io::Error },
    #[error("failed to serve etcd's API")]
    Serve(#[from] tonic::transport::Error),
}

/// A face that listens, but does not serve yet.
pub struct Face {
    listener: Listener,
    tls: Option<ServerTlsConfig>,
    url: String,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Whoever reaches the face has the whole store.
fn owners_only(socket: &std::path::Path) -> std::io::Result<()> {
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

impl Face {
    pub async fn bind(listen: Listen, tls: Option<FaceTls>) -> Result<Self, FaceError> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let failed = |address: String| move |source| FaceError::Listen { address, source };
        let (listener, url) = match listen {
            Listen::Tcp(address) if !address.ip().is_loopback() => {
                return Err(FaceError::NotLoopback(address));
            }
            Listen::Tcp(address) => {
                let listener =
                    TcpListener::bind(address).await.map_err(failed(address.to_string()))?;
                let address = listener.local_addr().map_err(failed(address.to_string()))?;
                (Listener::Tcp(listener), format!("{scheme}://{address}"))
            }
            Listen::Unix(path) => {
                // A socket left by a process that is gone; a live one would be a lock error of
                // the engine's directory long before.
                let _ = std::fs::remove_file(&path);
                let failed = failed(path.display().to_string());
                let listener = UnixListener::bind(&path)
                    .and_then(|listener| owners_only(&path).map(|()| listener))
                    .map_err(failed)?;
                (Listener::Unix(listener), format!("unix://{}", path.display()))
            }
        };
        let tls = tls.map(|tls| {
            let config =
                ServerTlsConfig::new().identity(Identity::from_pem(tls.certificate, tls.key));
            match tls.client_ca {
                Some(ca) => config.client_ca_root(Certificate::from_pem(ca)),
                None => config,
            }
        });
        Ok(Face { listener, tls, url })
    }

    /// Where clients find it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until `shutdown`.
    pub async fn serve(
        self,
        engine: Embedded,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), FaceError> {
        // Whoever waits for etcd to be ready asks for a page by HTTP/1.1.
        let mut server = Server::builder().accept_http1(true);
        if let Some(tls) = self.tls {
            server = server.tls_config(tls)?;
        }
        let member = Member { engine, url: self.url.into() };
        let kv = proto::kv_server::KvServer::new(member.clone())
            // A little above the limit, so that the answer is etcd's and not the frame's.
            .max_decoding_message_size(2 * crate::model::MAX_REQUEST_BYTES);
        let services = Routes::new(kv)
            .add_service(proto::watch_server::WatchServer::new(member.clone()))
            .add_service(proto::lease_server::LeaseServer::new(member.clone()))
            .add_service(proto::cluster_server::ClusterServer::new(member.clone()))
            .add_service(proto::maintenance_server::MaintenanceServer::new(member));
        let router = server.add_routes(pages(services.into_axum_router()).into());
        match self.listener {
            Listener::Tcp(listener) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                router.serve_with_incoming_shutdown(incoming, shutdown).await?;
            }
            Listener::Unix(listener) => {
                let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
                router.serve_with_incoming_shutdown(incoming, shutdown).await?;
            }
        }
        Ok(())
    }
}

/// What etcd says of itself beside its API.
fn pages(router: axum::Router) -> axum::Router {
    let page = |text: String| {
        axum::routing::get(move || async move { ([("content-type", "application/json")], text) })
    };
    let version = format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION}"}}"#);
    let health = r#"{"health":"true","reason":""}"#.to_owned();
    let router = router.layer(axum::middleware::from_fn(no_calls_of_old));
    router.route("/health", page(health)).route("/version", page(version))
}

/// A call comes over HTTP/2. What comes over HTTP/1.1 may be from a page in a browser of this machine, which may
/// send what it likes to any place as long as it does not read the answer.
async fn no_calls_of_old(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    use axum::response::IntoResponse;
    match request.version() {
        axum::http::Version::HTTP_2 => next.run(request).await,
        _ => axum::http::StatusCode::HTTP_VERSION_NOT_SUPPORTED.into_response(),
    }
}

/// The one member there is: every service is implemented on it.
#[derive(Clone)]
struct Member {
    engine: Embedded,
    url: std::sync::Arc<str>,
}

impl Member {
    fn header(&self) -> Option<ResponseHeader> {
        Some(header_at(self.engine.revision()))
    }
}

fn header_at(revision: u64) -> ResponseHeader {
    ResponseHeader {
        cluster_id: CLUSTER_ID,
        member_id: MEMBER_ID,
        revision: revision as i64,
        raft_term: 1,
    }
}

/// Our errors in the codes and texts etcd's clients match.
fn status_of(error: Error) -> tonic::Status {
    use tonic::Status;
    match error {
        Error::Compacted { .. } => {
            Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
        }
        Error::FutureRevision { .. } => {
            Status::out_of_range("etcdserver: mvcc: required revision is a future revision")
        }
        Error::TooLarge { .. } => Status::invalid_argument("etcdserver: request is too large"),
        Error::NoSpace(_) => {
            Status::resource_exhausted("etcdserver: mvcc: database space exceeded")
        }
        Error::LeaseNotFound(_) => Status::not_found("etcdserver: requested lease not found"),
        Error::LeaseExists(_) => Status::failed_precondition("etcdserver: lease already exists"),
        Error::Invalid(text) => Status::invalid_argument(format!("etcdserver: {text}")),
        Error::Unavailable(text) => Status::unavailable(format!("etcdserver: {text}")),
        // The face serves what is kept, and transforms nothing.
        Error::Untransformable(text) => Status::internal(text),
    }
}
