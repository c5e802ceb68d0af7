//! A server that is asked over HTTPS: by its URL, or as a service of the cluster.
//!
//! ```text
//!  place    what a configuration says: URL or service, path, CA      (pure)
//!  resolve  a service ─► addresses of its ready endpoints
//!  tls      whom we believe
//!  credentials  as whom we ask, where that is said
//!  pool     connections that are kept, by the address they lead to
//!  failure  what went wrong, in the words that upstream's client has for it
//! ```
//! HTTP/1.1 as upstream: over one HTTP/2 connection all questions would go to one endpoint.
pub mod address;
mod credentials;
mod failure;
mod place;
pub mod pool;
mod resolve;
mod slices;
mod tls;

pub use credentials::{Clients, Credentials};
pub use failure::Failure;
pub use place::Place;
pub use pool::Pool;
pub use resolve::{Allowed, resolve};
pub use slices::slices_of;
pub use tls::client_config;

use crate::answer::{self, Body};
use crate::server::ApiServer;
use api::status::{Outcome, ServerResponse, Status};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How much of what a server says instead of an answer is quoted: upstream's client's limit.
const QUOTED: usize = 2048;
/// What may be read of it.
const MAX_REFUSAL: usize = 64 << 10;

/// One server, and the connections to it.
pub struct Backend {
    pub place: Place,
    tls: Arc<ClientConfig>,
    asked_as: Option<Arc<Credentials>>,
    pool: Arc<Pool>,
}

/// One question.
pub struct Question {
    pub body: Bytes,
    /// How long the answer may take; the server is told so.
    pub timeout: Duration,
    /// What the answer may weigh.
    pub limit: usize,
}

impl Backend {
    /// One that is asked as nobody, unless it is said as whom.
    pub fn new(place: Place, asked_as: Option<Arc<Credentials>>) -> Result<Backend, String> {
        let certificate = asked_as.as_ref().and_then(|credentials| credentials.certificate());
        let tls = Arc::new(client_config(&place.ca, false, certificate)?);
        Ok(Backend { place, tls, asked_as, pool: Arc::default() })
    }

    /// Posts JSON; the body of the answer, which is a success and not empty.
    pub async fn post(&self, api: &ApiServer, question: Question) -> Result<Bytes, Failure> {
        let deadline = Instant::now() + question.timeout;
        // Rounded up, as upstream does.
        let seconds = question.timeout.as_secs_f64().ceil();
        let query = format!("timeout={seconds}s");
        let url = self.place.url(&query);
        let failed = |cause: String| Failure::Unreached { url: url.clone(), cause };
        let asking = self.ask(api, &query, question.body);
        let answer = match tokio::time::timeout_at(deadline, asking).await {
            Ok(answer) => answer.map_err(failed)?,
            Err(_) => return Err(failed(failure::DEADLINE.into())),
        };
        let (head, body) = answer.into_parts();
        let is_good = (200..=206).contains(&head.status.as_u16());
        let limit = if is_good { question.limit } else { MAX_REFUSAL };
        let reading = Limited::new(body, limit).collect();
        let body = match tokio::time::timeout_at(deadline, reading).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) if !is_good => Bytes::new(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(Failure::TooLarge { url, limit });
            }
            Ok(Err(error)) => return Err(Failure::Broken(error.to_string())),
            Err(_) => return Err(Failure::Broken(failure::DEADLINE.into())),
        };
        match is_good {
            true if body.is_empty() => Err(empty(head.status, &head.headers)),
            true => Ok(body),
            false => Err(refusal(head.status, &head.headers, &body)),
        }
    }

    async fn ask(
        &self,
        api: &ApiServer,
        query: &str,
        body: Bytes,
    ) -> Result<Response<Body>, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}?{query}", self.place.path))
            .header(header::HOST, self.place.authority())
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(answer::full(body))
            .map_err(|error| error.to_string())?;
        if let Some(credentials) = &self.asked_as {
            request.headers_mut().extend(credentials.headers().await?);
        }
        let addresses = self.addresses(api).await?;
        let name = self.place.server_name();
        let dial = pool::Dial { host: &self.place.host, port: self.place.port, addresses };
        self.pool.send(request, dial, name, self.tls.clone()).await
    }

    /// Where to connect to; nothing if that is for a name to say.
    async fn addresses(&self, api: &ApiServer) -> Result<Vec<SocketAddr>, String> {
        let Some(service) = &self.place.service else { return Ok(Vec::new()) };
        let found = resolve(api, &service.namespace, &service.name, self.place.port).await;
        found.map_err(|status| status.message)
    }
}

/// Who says nothing of what it is that he does not say is taken to speak JSON.
fn empty(code: StatusCode, headers: &http::HeaderMap) -> Failure {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let media = media.filter(|media| !media.is_empty()).unwrap_or("application/json");
    Failure::Empty { code: code.as_u16(), media: media.to_owned() }
}

/// What is no answer, as upstream's client reads it: a redirect is one of those, and not followed. Who
/// answers with a `Status` says himself what is the matter.
fn refusal(code: StatusCode, headers: &http::HeaderMap, body: &[u8]) -> Failure {
    let said = serde_json::from_slice::<serde_json::Value>(body).ok();
    let is_status =
        |said: &serde_json::Value| said["kind"] == "Status" && said["apiVersion"] == "v1";
    if let Some(said) = said.filter(is_status)
        && let Ok(status) = serde_json::from_value::<Status>(said)
        && status.status == Outcome::Failure
    {
        return Failure::Refused(status);
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let is_text = media.is_none_or(|media| media.starts_with("text/"));
    let text = String::from_utf8_lossy(&body[..body.len().min(QUOTED)]);
    let body = if is_text { text.trim() } else { "unknown" };
    let code = i32::from(code.as_u16());
    Failure::Refused(ServerResponse { code, verb: "POST", body, ..Default::default() }.into())
}

/// The servers that are asked now. Configurations that name the same one share its connections, and
/// one that is changed keeps those that it still has use for.
#[derive(Default)]
pub struct Backends {
    /// By where they are and by as whom they are asked.
    known: Mutex<HashMap<(Place, String), Weak<Backend>>>,
    pub allowed: Allowed,
}

impl Backends {
    pub fn get(&self, place: Place) -> Result<Arc<Backend>, String> {
        self.get_as(None, place)
    }

    pub fn get_as(
        &self,
        asked_as: Option<Arc<Credentials>>,
        place: Place,
    ) -> Result<Arc<Backend>, String> {
        let id = asked_as.as_ref().map_or("", |credentials| credentials.id()).to_owned();
        let key = (place, id);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(backend);
        }
        known.retain(|_, backend| backend.strong_count() > 0);
        let backend = Arc::new(Backend::new(key.0.clone(), asked_as)?);
        known.insert(key, Arc::downgrade(&backend));
        Ok(backend)
    }
}
