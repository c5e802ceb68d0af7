//! HTTPS for the API server that aggregates us. Whom it lets ask, it has decided: what counts here is
//! that it is the API server that asks, which its proxy's certificate proves.
use crate::answer::{About, Directory, answer};
use crate::scrape::{self, Kubelets};
use crate::world::World;
use api::codec::DecodeError;
use api::status::Status;
use bytes::Bytes;
use client::source::Collection;
use client::strangers::{Stranger, Strangers};
use client::{ApiResource, Context, Informer, Informers, Keep, Object, Source};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// How long a client may take to say who it is, and what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after a connection could not be taken: the process has no files left.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Serving {
    pub listener: TcpListener,
    /// It must demand a certificate of the API server's proxy.
    pub tls: Arc<rustls::ServerConfig>,
}

/// Looks and answers until the context stops.
pub async fn run(context: Context, source: Arc<dyn Source>, kubelets: Kubelets, serving: Serving) {
    let informers = Informers::new(&context, source);
    let known = Arc::new(Known {
        world: Arc::default(),
        nodes: informers.of::<Node>(),
        pods: informers.keep(Collection::all(ApiResource::of::<Pod>())),
    });
    let looking = scrape::run(context.clone(), known.nodes.clone(), kubelets, known.world.clone());
    let looking = tokio::spawn(looking);
    let acceptor = TlsAcceptor::from(serving.tls);
    let strangers = Arc::new(Strangers::default());
    loop {
        let next = async { (strangers.admit().await, serving.listener.accept().await) };
        let (stranger, stream) = tokio::select! {
            (stranger, accepted) = next => match accepted {
                Ok((stream, _)) => (stranger, stream),
                Err(_) if !context.sleep(PAUSE).await => break,
                Err(_) => continue,
            },
            () = context.stopped() => break,
        };
        let (acceptor, known) = (acceptor.clone(), known.clone());
        tokio::spawn(connection(context.clone(), acceptor, stream, stranger, known));
    }
    let _ = looking.await;
}

async fn connection(
    context: Context,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    stranger: Stranger,
    known: Arc<Known>,
) {
    let greeting = tokio::time::timeout(PATIENCE, acceptor.accept(stream));
    let stream = tokio::select! {
        () = stranger.shown_out() => return,
        greeted = greeting => match greeted {
            Ok(Ok(stream)) => stream,
            _ => return,
        },
    };
    // It has shown the API server's certificate.
    stranger.is_known();
    let respond = service_fn(move |request: Request<hyper::body::Incoming>| {
        let known = known.clone();
        async move { Ok::<_, Infallible>(known.respond(&request)) }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    tokio::select! {
        // A client that goes away is no concern of ours.
        _ = http.serve_connection(TokioIo::new(stream), respond) => {}
        () = context.stopped() => {}
    }
}

/// What is kept of a pod.
struct Place {
    about: About,
    runs: bool,
}

impl Keep for Place {
    fn keep(object: &Arc<Object>) -> Result<Arc<Place>, DecodeError> {
        let pod = object.typed::<Pod>()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let about = About {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        };
        Ok(Arc::new(Place { about, runs: phase == Some("Running") }))
    }
}

struct Known {
    world: Arc<World>,
    nodes: Informer<Node>,
    pods: Informer<Place>,
}

impl Directory for Known {
    fn nodes(&self) -> Vec<About> {
        let about = |node: &Node| {
            let name = node.metadata.name.clone().unwrap_or_default();
            let labels = node.metadata.labels.clone().unwrap_or_default();
            About { namespace: String::new(), node: name.clone(), name, labels }
        };
        self.nodes.read().iter().map(|(_, node)| about(node)).collect()
    }

    fn pods(&self, namespace: &str) -> Vec<About> {
        let known = self.pods.read();
        let running = known.iter().filter(|(_, pod)| pod.runs);
        let all = running.map(|(_, pod)| &pod.about);
        all.filter(|pod| namespace.is_empty() || pod.namespace == namespace).cloned().collect()
    }
}

impl Known {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let said = match (request.method(), path) {
            (&Method::GET | &Method::HEAD, "/readyz") if !self.world.is_ready() => {
                Err(Status::service_unavailable("no node has been looked at yet"))
            }
            (&Method::GET | &Method::HEAD, "/healthz" | "/livez" | "/readyz") => {
                return response(StatusCode::OK, "text/plain", "ok");
            }
            (&Method::GET | &Method::HEAD, path) => {
                answer(&self.world, self, path, query, jiff::Timestamp::now())
            }
            (method, _) => {
                let group = api::group::GroupResource::new(crate::answer::GROUP, "");
                Err(Status::method_not_supported(group, method.as_str()))
            }
        };
        let (code, tree): (u16, Value) = match said {
            Ok(tree) => (200, tree),
            Err(status) => (u16::try_from(status.code).unwrap_or(500), json!(status)),
        };
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response(code, "application/json", tree.to_string())
    }
}

fn response(
    code: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
