//! Health and metrics on upstream's port, over TLS. Health is for everybody; for the rest the API
//! server is asked who somebody is, and whether they may.
use super::Strong;
use ::apiserver::tls::{self, Pair, Trust};
use anyhow::Context as _;
use api::group::GroupResource;
use api::quote::Quoted;
use client::pages::{self, Asked, Guard, JSON, METRICS, Page};
use client::zpages::Zpages;
use client::{ApiResource, Client, Context, Registry, Source, Status};
use futures_util::FutureExt;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Paths that everybody may read.
const OPEN: &str = "/healthz,/readyz,/livez";

/// Strangers who are asked about at once: the API server has others to serve, too.
const ASKED: usize = 8;

/// What is served, as `/statusz` lists it.
const PATHS: &[&str] = &["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/version"];

/// A component that serves pages: its name, and the port that upstream's has.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub name: &'static str,
    pub port: u16,
}

#[derive(clap::Args)]
pub struct Serving {
    /// The address of health and metrics.
    #[arg(long, default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Their port, if not the component's usual one; 0 for none.
    #[arg(long)]
    secure_port: Option<u16>,
    /// The certificate; without one a new one is signed at every start.
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Paths that everybody may read.
    #[arg(long, value_delimiter = ',', default_value = OPEN)]
    authorization_always_allow_paths: Vec<String>,
    /// Whose certificates say who somebody is; all others show tokens.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    strong: Strong,
}

impl Serving {
    /// At an address of a machine that runs other components too, with all else as usual.
    pub fn at(bind_address: IpAddr, client_ca: &Path) -> Serving {
        Serving {
            bind_address,
            secure_port: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            authorization_always_allow_paths: OPEN.split(',').map(str::to_owned).collect(),
            client_ca_file: Some(client_ca.to_owned()),
            strong: Strong::default(),
        }
    }

    pub async fn start(
        &self,
        context: &Context,
        source: &Arc<dyn Source>,
        registry: Arc<Registry>,
        served: Served,
    ) -> anyhow::Result<()> {
        self.start_with(context, source, registry, served, |_| None).await
    }

    /// The same with pages that others do not have.
    pub async fn start_with(
        &self,
        context: &Context,
        source: &Arc<dyn Source>,
        registry: Arc<Registry>,
        served: Served,
        more: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let port = self.secure_port.unwrap_or(served.port);
        if port == 0 {
            return Ok(());
        }
        let address = SocketAddr::from((self.bind_address, port));
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        let trust = self.client_ca_file.as_deref().map(Trust::read).transpose()?;
        let tls = self.tls(trust.as_ref())?;
        let open = &self.authorization_always_allow_paths;
        let guard = guard(Client::new(source.clone()), open, trust);
        let zpages = Zpages::new(served.name, PATHS, super::flags::given(), context.now());
        let clock = context.clone();
        let page = move |asked: Asked<'_>| {
            let said = zpages.page(asked.path, asked.accept, clock.now());
            said.or_else(|| more(asked.path)).unwrap_or_else(|| page(asked.path, &registry))
        };
        tokio::spawn(pages::serve_guarded(context.clone(), listener, tls, guard, page));
        Ok(())
    }

    fn tls(&self, trust: Option<&Trust>) -> anyhow::Result<Arc<ServerConfig>> {
        let trusts: Vec<&Trust> = trust.into_iter().collect();
        let strength = self.strong.strength()?;
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            let pair = Pair { certificate: certificate.clone(), key: key.clone() };
            let mut tls = tls::server_as(&pair, &trusts, &strength)?;
            if let Some(tls) = Arc::get_mut(&mut tls) {
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            }
            return Ok(tls);
        }
        let names = vec![crate::alone::hostname(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let names = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut provider = rustls::crypto::ring::default_provider();
        strength.limit(&mut provider);
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(strength.versions())?;
        let builder = match trusts.is_empty() {
            true => builder.with_no_client_auth(),
            false => builder.with_client_cert_verifier(tls::ask_for(&trusts, provider)),
        };
        let config = builder.with_single_cert(vec![made.cert.der().clone()], key)?;
        Ok(Arc::new(config))
    }
}

fn page(path: &str, registry: &Registry) -> Page {
    match path {
        "/healthz" | "/livez" | "/readyz" => Page::ok("ok"),
        "/metrics" => Page::new(200, METRICS, registry.text()),
        "/version" => Page::new(200, JSON, json!({ "major": "1", "minor": "37" }).to_string()),
        _ => Page::not_found(),
    }
}

fn guard(client: Client, open: &[String], trust: Option<Trust>) -> Guard {
    let open = open.to_vec();
    let turns = Arc::new(Semaphore::new(ASKED));
    Arc::new(move |path, shown| {
        // `/healthz/*` too, as upstream has it for names that end so.
        let is_open = open.iter().any(|one| match one.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => one == path,
        });
        if is_open {
            return std::future::ready(Ok(())).boxed();
        }
        let (client, path) = (client.clone(), path.to_owned());
        let proof = proof(shown, trust.as_ref());
        let turns = turns.clone();
        async move {
            // Nobody closes it.
            let _turn = turns.acquire().await;
            check(&client, &path, proof).await
        }
        .boxed()
    })
}

/// By what it is known who somebody is.
#[derive(Debug, PartialEq)]
enum Proof {
    Certificate {
        name: String,
        groups: Vec<String>,
    },
    Token(String),
    /// A certificate of somebody who is not believed.
    Wrong,
    None,
}

/// A certificate counts before a token, as it does at the API server.
fn proof(shown: pages::Shown<'_>, trust: Option<&Trust>) -> Proof {
    let own = shown.certificates.split_first();
    let believed =
        own.filter(|(own, others)| trust.is_some_and(|trust| trust.verify(own, others).is_ok()));
    let subject =
        believed.and_then(|(own, _)| api::x509::certificate(own).ok()).map(|it| it.subject);
    let token = shown.token.filter(|token| !token.trim().is_empty());
    match (subject.filter(|subject| !subject.common_name.is_empty()), token) {
        (Some(subject), _) => {
            let mut groups = subject.organizations;
            groups.push("system:authenticated".to_owned());
            Proof::Certificate { name: subject.common_name, groups }
        }
        (None, Some(token)) => Proof::Token(token.to_owned()),
        (None, None) if own.is_some() => Proof::Wrong,
        (None, None) => Proof::None,
    }
}

async fn check(client: &Client, path: &str, proof: Proof) -> Result<(), Page> {
    let ask = |resource: ApiResource, spec: Value| async move {
        let body =
            json!({ "apiVersion": resource.api_version(), "kind": resource.kind, "spec": spec });
        let answer = client.create_in(resource, "", body).await;
        let answer = answer.and_then(|it| it.tree().map_err(client::Status::internal_error));
        let unknown = |status: Status| Page::new(500, pages::TEXT, format!("{}\n", status.message));
        answer.map_err(unknown).map(|tree| tree["status"].clone())
    };
    let user = match proof {
        Proof::Certificate { name, groups } => json!({ "username": name, "groups": groups }),
        Proof::Wrong => return Err(refusal(&Status::unauthorized("Unauthorized"))),
        // Nobody has rights too, if somebody gave them.
        Proof::None => {
            json!({ "username": "system:anonymous", "groups": ["system:unauthenticated"] })
        }
        Proof::Token(token) => {
            let known = ask(ApiResource::of::<TokenReview>(), json!({ "token": token })).await?;
            if known["authenticated"] != true {
                return Err(refusal(&Status::unauthorized("Unauthorized")));
            }
            known["user"].clone()
        }
    };
    let spec = json!({ "user": user["username"], "groups": user["groups"], "uid": user["uid"],
        "extra": user["extra"], "nonResourceAttributes": { "path": path, "verb": "get" } });
    let decision = ask(ApiResource::of::<SubjectAccessReview>(), spec).await?;
    match decision["allowed"] == true {
        true => Ok(()),
        false => Err(forbidden(&user, path, decision["reason"].as_str().unwrap_or_default())),
    }
}

/// In the words of upstream's `endpoints/handlers/responsewriters/errors.go`.
fn forbidden(user: &Value, path: &str, reason: &str) -> Page {
    let name = user["username"].as_str().unwrap_or_default();
    let text = format!("User {} cannot get path {}", Quoted(name), Quoted(path));
    // What a stranger wrote into a path is not to look like HTML.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = if reason.is_empty() { text } else { format!("{text}: {reason}") };
    refusal(&Status::forbidden(GroupResource::default(), "", text))
}

/// A refusal is a `Status`, as everywhere in the API.
fn refusal(status: &Status) -> Page {
    let code = u16::try_from(status.code).unwrap_or(500);
    let mut page = Page::new(code, JSON, json!(status).to_string());
    page.headers.push(("x-content-type-options", "nosniff".to_owned()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status_in_upstreams_words() {
        let page = forbidden(&json!({ "username": "system:anonymous" }), "/metrics", "");
        let status: Value = serde_json::from_str(&page.body).expect("JSON");
        assert_eq!((page.code, page.content_type), (403, JSON));
        assert_eq!(
            status,
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
                "reason": "Forbidden", "details": {}, "code": 403 })
        );
        let page = forbidden(&json!({ "username": "a" }), "/<b>", "no");
        assert!(page.body.contains("&lt;b&gt;\\\": no"), "{}", page.body);
    }

    /// The versions of TLS that are served with these flags.
    fn versions(flags: &[&str]) -> anyhow::Result<Vec<rustls::ProtocolVersion>> {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            serving: Serving,
        }
        let strong = Line::try_parse_from(flags)?.serving;
        strong.tls(None)?;
        Ok(strong.strong.strength()?.versions().iter().map(|one| one.version).collect())
    }

    #[test]
    fn a_certificate_counts_that_the_ca_has_signed() {
        use pages::Shown;
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| {
            let path = folder.path().join(name);
            ::apiserver::pki::Pki::open(&path).unwrap();
            path
        });
        let certificate = |folder: &Path| {
            let pem = std::fs::read(folder.join("admin.crt")).unwrap();
            vec![rustls::pki_types::CertificateDer::from(
                api::pem::blocks(&pem).next().unwrap().bytes,
            )]
        };
        let trust = Trust::read(&ours.join("ca.crt")).unwrap();
        let show = |certificates: &[_], token| proof(Shown { token, certificates }, Some(&trust));
        let groups = ["system:masters", "system:authenticated"].map(str::to_owned).to_vec();
        let admin =
            || Proof::Certificate { name: "kubernetes-admin".to_owned(), groups: groups.clone() };
        assert_eq!(show(&certificate(&ours), None), admin());
        assert_eq!(show(&certificate(&ours), Some("t")), admin());
        assert_eq!(show(&certificate(&theirs), None), Proof::Wrong);
        assert_eq!(show(&certificate(&theirs), Some("t")), Proof::Token("t".to_owned()));
        assert_eq!((show(&[], Some(" ")), show(&[], None)), (Proof::None, Proof::None));
        let nobody = proof(Shown { token: None, certificates: &certificate(&ours) }, None);
        assert_eq!(nobody, Proof::Wrong);
    }

    #[test]
    fn tls_is_as_strong_as_somebody_wants_it() {
        use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
        assert!(versions(&[]).unwrap().contains(&TLSv1_2));
        assert_eq!(versions(&["--tls-min-version=VersionTLS13"]).unwrap(), [TLSv1_3]);
        assert!(versions(&["--tls-min-version=VersionTLS9"]).is_err());
        assert!(versions(&["--tls-cipher-suites=TLS_NONSENSE"]).is_err());
    }

    #[test]
    fn pages_are_upstreams() {
        let registry = Registry::default();
        let code = |path: &str| page(path, &registry).code;
        assert_eq!(
            ["/healthz", "/livez", "/readyz", "/metrics", "/"].map(code),
            [200, 200, 200, 200, 404]
        );
    }
}
