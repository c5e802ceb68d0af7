//! The two servers, and what they are asked and say.
use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use testkit::client::{Connection, Endpoint};

pub const JSON: &str = "application/json";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A request for both servers.
pub struct Request {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub accept: &'static str,
    /// For ours and for theirs: an update names the version that each gave the object.
    pub bodies: [Bytes; 2],
    pub about: String,
}

impl Request {
    /// The same for both.
    pub fn new(method: Method, path: String, body: &Value, about: String) -> Request {
        Request::each(method, path, [body, body], about)
    }

    /// With a body for each.
    pub fn each(method: Method, path: String, bodies: [&Value; 2], about: String) -> Request {
        let bodies = bodies.map(|body| match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        });
        Request { method, path, content_type: JSON, accept: JSON, bodies, about }
    }

    pub fn get(path: String, accept: &'static str, about: String) -> Request {
        Request { accept, ..Request::new(Method::GET, path, &Value::Null, about) }
    }

    pub fn content_type(self, content_type: &'static str) -> Request {
        Request { content_type, ..self }
    }
}

/// What a server said.
#[derive(Debug, Clone)]
pub struct Said {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Said {
    pub const NOTHING: Said = Said { code: 0, warnings: Vec::new(), body: Value::Null };
}

pub struct Server {
    endpoint: Arc<Endpoint>,
    connection: Connection,
}

impl Server {
    async fn open(kubeconfig: &Path) -> anyhow::Result<Server> {
        let endpoint = Arc::new(Endpoint::read(kubeconfig, false)?);
        let connection = Connection::open(&endpoint).await?;
        Ok(Server { endpoint, connection })
    }

    /// A server may close a connection between two requests: then the request goes on another. One
    /// that breaks off again has nothing to say.
    async fn ask(&mut self, request: &Request, body: &Bytes) -> anyhow::Result<Option<Said>> {
        for _ in 0..2 {
            if let Ok(said) = exchange(&mut self.connection, request, body.clone()).await {
                return Ok(Some(said));
            }
            self.connection = Connection::open(&self.endpoint).await?;
        }
        println!("{} does not answer: {}", self.endpoint.name, request.about);
        Ok(None)
    }
}

async fn exchange(
    connection: &mut Connection,
    request: &Request,
    body: Bytes,
) -> anyhow::Result<Said> {
    let Request { method, path, content_type, accept, .. } = request;
    let (accept, media) =
        (HeaderValue::from_static(accept), HeaderValue::from_static(content_type));
    let answer = connection.exchange(method.clone(), path, accept, media, body).await?;
    let code = answer.status().as_u16();
    let warnings = answer.headers().get_all("warning").into_iter();
    let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into()).collect();
    let body = answer.into_body().collect().await?.to_bytes();
    // What is not JSON (a log, a proxied page) is its text.
    let text = || String::from_utf8_lossy(&body).into_owned().into();
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
    Ok(Said { code, warnings, body })
}

/// Ours and the one that is right.
pub struct Pair {
    ours: Server,
    theirs: Server,
}

impl Pair {
    pub async fn open(ours: &Path, theirs: &Path) -> anyhow::Result<Pair> {
        Ok(Pair { ours: Server::open(ours).await?, theirs: Server::open(theirs).await? })
    }

    /// Both answers; a server of ours that breaks off has said nothing, which is never right.
    pub async fn ask(&mut self, request: &Request) -> anyhow::Result<(Said, Option<Said>)> {
        let [mine, right] = &request.bodies;
        let (ours, theirs) =
            tokio::try_join!(self.ours.ask(request, mine), self.theirs.ask(request, right))?;
        Ok((ours.unwrap_or(Said::NOTHING), theirs))
    }

    /// Once more, of the one that is right.
    pub async fn ask_theirs(&mut self, request: &Request) -> anyhow::Result<Option<Said>> {
        self.theirs.ask(request, &request.bodies[1]).await
    }

    /// Of ours alone.
    pub async fn ask_ours(&mut self, request: &Request) -> anyhow::Result<Option<Said>> {
        self.ours.ask(request, &request.bodies[0]).await
    }
}
