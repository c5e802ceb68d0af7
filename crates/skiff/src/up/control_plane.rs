//! The store and the API server of `skiff up`.
use super::Options;
use ::apiserver::admission::Chain;
use ::apiserver::audit::{Audit, LogOptions, Policy};
use ::apiserver::authn::{Authentication, FrontProxy, User};
use ::apiserver::encryption::{Encryption, own_configuration};
use ::apiserver::listen::Connections;
use ::apiserver::pki::Pki;
use ::apiserver::service_account::{Issuer, Keys};
use ::apiserver::tls::Trust;
use ::apiserver::{ApiServer, Within, tls};
use anyhow::Context as _;
use client::{Context, Source};
use metrics::WayTo;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use store::Store;
use store::embedded::Embedded;
use store::face::{Face, Listen};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub struct ControlPlane {
    api: ApiServer,
    connections: Connections,
    /// Unless the store is etcd's.
    engine: Option<Embedded>,
    server: JoinHandle<()>,
    face: Option<JoinHandle<()>>,
    /// Where it is found on this machine.
    pub address: SocketAddr,
}

impl ControlPlane {
    /// On an etcd cluster's store, if there is one, else on its own.
    pub async fn start(
        options: &Options,
        pki: &Pki,
        shared: Option<Store>,
    ) -> anyhow::Result<ControlPlane> {
        let folder = &options.machine.data_dir;
        let (store, engine) = match shared {
            Some(store) => (store, None),
            None => {
                let engine = Embedded::open(&folder.join("store"), Default::default())
                    .with_context(|| format!("failed to open the store in {}", folder.display()))?;
                (Store::from(engine.clone()), Some(engine))
            }
        };
        let keys = Keys::read(&pki.service_account_key(), &[])?;
        let name = "https://kubernetes.default.svc".to_owned();
        let (names, audiences) = (vec![name.clone()], vec![name]);
        let issuer = Issuer { keys, names, audiences, lifetimes: Default::default() };
        let client = pki.pair("apiserver-kubelet-client");
        let clients = Trust::read(&pki.ca())?;
        let front_proxy =
            FrontProxy::standard(Trust::read(&pki.front_proxy_ca())?, "front-proxy-client");
        let trusts = [clients.clone(), front_proxy.trust.clone()];
        let encryption = Encryption::open(&own_configuration(folder)?, true).await?;
        let log = LogOptions::unattended(folder.join("audit/audit.log"));
        let audit = Audit::new(Some(Policy::metadata_of_everything()), Some(log), None)?;
        // Kubelets write only what is theirs: upstream's installers switch this on too.
        let admission = Chain::new(&["NodeRestriction".to_owned()], &[], None)?;
        let api = ApiServer::new(::apiserver::Options {
            encryption,
            audit,
            admission,
            kubelet_tls: tls::kubelet(Some(&client), Some(&pki.ca()))?,
            proxy_client: Some(tls::client_certificate(&pki.pair("front-proxy-client"))?),
            // Nobody here resolves the names of machines.
            kubelet_address_types: ["InternalIP", "ExternalIP", "Hostname"]
                .map(str::to_owned)
                .into(),
            authentication: Authentication {
                clients: Some(clients),
                front_proxy: Some(front_proxy),
                bootstrap_tokens: true,
                ..Authentication::default()
            },
            client_ca: std::fs::read_to_string(pki.ca())?,
            service_cidrs: options.machine.service_cidr.split(',').map(str::to_owned).collect(),
            flags: crate::alone::flags::given(),
            ..::apiserver::Options::new(store, issuer)?
        });
        ::apiserver::bootstrap(&api).await?;
        let known_as = match options.bind_address.is_unspecified() {
            true => options.machine.node_ip(),
            false => options.bind_address,
        };
        let bind_address = match options.bind_address.is_unspecified() && known_as.is_ipv6() {
            // Every address of IPv4 too.
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => options.bind_address,
        };
        let listener =
            TcpListener::bind((bind_address, options.port)).await.with_context(|| {
                format!(
                    "failed to listen on port {}: if another cluster runs here, stop it or choose \
                 another --port",
                    options.port
                )
            })?;
        let mut address = listener.local_addr()?;
        ::apiserver::advertise(&api, known_as, address.port()).await?;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let serving = tls::server(&pki.pair("apiserver"), &trusts.each_ref())?;
        let connections = Connections::new(api.clone());
        let server = {
            let connections = connections.clone();
            tokio::spawn(async move { connections.listen(listener, serving).await })
        };
        let face = engine
            .clone()
            .map(|engine| tokio::spawn(face(crate::backup::socket(folder), engine, api.clone())));
        Ok(ControlPlane { api, connections, engine, server, face, address })
    }

    /// The API as one of its components has it: in this process, as whom it is.
    pub fn source(
        &self,
        context: &Context,
        component: &str,
        user: &User,
    ) -> anyhow::Result<Arc<dyn Source>> {
        Ok(Arc::new(Within::new(&self.connections, context, component, user)?))
    }

    /// Nodes that have opened a way to themselves.
    pub fn ways(&self) -> Arc<WayTo> {
        let api = self.api.clone();
        Arc::new(move |node, port| api.tunnels().dial(node, port))
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.api.stop();
        self.server.await?;
        if let Some(face) = self.face {
            face.await?;
        }
        if let Some(engine) = self.engine {
            engine.close().await;
        }
        Ok(())
    }
}

/// The store as etcd's API has it, where only its owner reaches it: for `skiff backup` and etcd's own tools.
/// A cluster runs without it.
async fn face(socket: PathBuf, engine: Embedded, api: ApiServer) {
    let served = async {
        let face = Face::bind(Listen::Unix(socket.clone()), None).await?;
        face.serve(engine, api.stopping()).await
    };
    if let Err(error) = served.await {
        let error = anyhow::Error::from(error);
        tracing::warn!("the running cluster cannot be backed up: {error:#}");
    }
    let _ = std::fs::remove_file(&socket);
}
