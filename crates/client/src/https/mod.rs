//! An API server over the network: [`Source`] as HTTP requests.
//!
//! Objects travel as JSON, which is what an [`Object`](crate::Object) is: what was received is kept, and read
//! once. Protobuf would have to be made JSON first, and our own server stores JSON. A list is taken apart
//! item by item and a watch event by event. A server that says `Retry-After` is asked again when it likes,
//! within bounds.
mod codec;
mod config;
mod identity;
mod policy;
#[cfg(test)]
mod tests;
mod watch;

pub use config::{Config, Error, OnWarning, Proof, Token};
pub use policy::Policy;

use crate::context::Context;
use crate::http::tls::Believed;
use crate::http::{self, Dial, Pool, Settings};
use crate::resource::ApiResource;
use crate::source::{
    self, Answer, Ask, Call, Collection, List, Outcome, Page, Raw, RawAnswer, Source, Watch,
    WatchFrom,
};
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use api::status::{ServerResponse, Status};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use http_body_util::{BodyExt, BodyStream};
use identity::Identity;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a request is repeated that a server asked to repeat: upstream's.
const RETRIES: u32 = 10;
/// However long a server asks us to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Https {
    shared: Arc<Shared>,
}

struct Shared {
    context: Context,
    config: Config,
    pool: Pool,
    identity: Identity,
}

/// A request before it is sent, possibly several times.
struct Wanted<'a> {
    method: Method,
    path: String,
    accept: &'a str,
    content_type: &'a str,
    body: Bytes,
    /// What it is about, for messages.
    resource: Option<&'a ApiResource>,
    name: &'a str,
    compressed: bool,
    /// The answer goes on for as long as it likes; only its head has to come in time.
    streaming: bool,
}

impl Https {
    /// A server in this process: the same requests over a connection that is no socket. Who asks
    /// is whoever the connections were made for.
    pub fn within(context: &Context, component: &str, dial: Dial) -> Result<Https, Error> {
        let server = "http://within.invalid";
        let config = Config::new(server, Believed::System, Proof::default());
        let config = Config { dial: Some(dial), compress: false, ..config };
        Https::new(context, config.for_component(component))
    }

    pub fn new(context: &Context, config: Config) -> Result<Https, Error> {
        let identity = Identity::new(&config);
        let mut settings = Settings::new(Arc::new(identity.tls(&config)));
        settings.server_name = config.server_name.clone();
        settings.address = config.address;
        settings.http2 = config.http2;
        settings.dial = config.dial.clone();
        settings.others = config.others.clone();
        settings.proxy = config.proxy.clone();
        let pool =
            Pool::new(&config.server, settings).map_err(|e| Error::Invalid(e.to_string()))?;
        let context = context.clone();
        Ok(Https { shared: Arc::new(Shared { context, config, pool, identity }) })
    }

    /// Opens a stream that is no longer HTTP: exec, attach, port-forward. `headers` ask for it;
    /// the answer is `101`, with the connection in it for [`hyper::upgrade::on`], or a refusal.
    pub async fn upgrade(
        &self,
        path: &str,
        mut headers: HeaderMap,
    ) -> Result<Response<hyper::body::Incoming>, Status> {
        self.identify(&mut headers).await?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = path.parse().map_err(|_| bad_path(path))?;
        *request.headers_mut() = headers;
        self.shared.pool.upgrade(request).await.map_err(unreachable)
    }

    /// How its requests say who sends them.
    pub fn user_agent(&self) -> &HeaderValue {
        &self.shared.config.user_agent
    }

    async fn identify(&self, headers: &mut HeaderMap) -> Result<(), Status> {
        let config = &self.shared.config;
        headers.insert(header::USER_AGENT, config.user_agent.clone());
        if let Some(authorization) = self.shared.identity.authorization().await? {
            headers.insert(header::AUTHORIZATION, authorization);
        }
        for (name, value) in &config.impersonation {
            headers.append(name.clone(), value.clone());
        }
        Ok(())
    }

    /// Sends a request until there is an answer that counts, and makes a failure a `Status`.
    async fn send(&self, wanted: Wanted<'_>) -> Result<Response<http::Body>, Status> {
        let mut refreshed = false;
        for attempt in 0.. {
            let answer = self.send_once(&wanted).await?;
            self.tell_warnings(answer.headers());
            let code = answer.status();
            if code.is_success() || code.is_redirection() {
                return Ok(answer);
            }
            // A token may have ended since it was read.
            if code.as_u16() == 401 && !refreshed && self.shared.identity.refresh() {
                refreshed = true;
                continue;
            }
            if let Some(wait) = retry_after(&answer).filter(|_| attempt < RETRIES) {
                let code = code.as_u16().to_string();
                let labels =
                    [("code", &*code), ("verb", wanted.method.as_str()), ("host", self.host())];
                self.shared.context.metrics().count("rest_client_request_retries_total", &labels);
                drop(answer);
                if self.shared.context.sleep(wait).await {
                    continue;
                }
                return Err(Status::service_unavailable("this client is stopping"));
            }
            return Err(self.refusal(&wanted, answer).await);
        }
        unreachable!("the loop ends with an answer")
    }

    async fn send_once(&self, wanted: &Wanted<'_>) -> Result<Response<http::Body>, Status> {
        let mut request = Request::new(wanted.body.clone());
        *request.method_mut() = wanted.method.clone();
        *request.uri_mut() = wanted.path.parse().map_err(|_| bad_path(&wanted.path))?;
        let headers = request.headers_mut();
        let value = |text: &str| HeaderValue::try_from(text).map_err(|_| bad_path(text));
        headers.insert(header::ACCEPT, value(wanted.accept)?);
        if !wanted.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, value(wanted.content_type)?);
        }
        if wanted.compressed && self.shared.config.compress {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        self.identify(headers).await?;
        let began = Instant::now();
        let sent = tokio::time::timeout(self.shared.config.timeout, self.shared.pool.send(request));
        let answer = match sent.await {
            Ok(answer) => answer.map_err(unreachable),
            Err(_) => Err(Status::timeout(format!("{} does not answer", self.host()), 0)),
        };
        let code = match &answer {
            Ok(answer) => answer.status().as_u16().to_string(),
            Err(_) => "<error>".to_owned(),
        };
        let (host, method, metrics) =
            (self.host(), wanted.method.as_str(), self.shared.context.metrics());
        let labels = [("code", &*code), ("method", method), ("host", host)];
        metrics.count("rest_client_requests_total", &labels);
        if !wanted.streaming {
            let took = began.elapsed().as_secs_f64();
            let labels = [("verb", method), ("host", host)];
            metrics.observe("rest_client_request_duration_seconds", &labels, took);
        }
        answer
    }

    fn tell_warnings(&self, headers: &HeaderMap) {
        if let Some(hear) = &self.shared.config.on_warning {
            warnings(headers).iter().for_each(|text| hear(text));
        }
    }

    fn host(&self) -> &str {
        self.shared.pool.authority()
    }

    /// What a failure says: a `Status`, or something that was never near an API server.
    async fn refusal(&self, wanted: &Wanted<'_>, answer: Response<http::Body>) -> Status {
        let code = i32::from(answer.status().as_u16());
        let wait = retry_after(&answer).map_or(0, |wait| wait.as_secs() as i32);
        let body = match self.read(answer).await {
            Ok(body) => body,
            Err(status) => return status,
        };
        if let Some(status) = codec::status(&body) {
            return status;
        }
        let text = String::from_utf8_lossy(&body);
        ServerResponse {
            code,
            verb: wanted.method.as_str(),
            resource: wanted.resource.map(ApiResource::group_resource).unwrap_or_default(),
            name: wanted.name,
            body: text.trim(),
            retry_after_seconds: wait,
            unexpected: true,
        }
        .into()
    }

    /// The whole body, unpacked.
    async fn read(&self, answer: Response<http::Body>) -> Result<Bytes, Status> {
        let packed =
            answer.headers().get(header::CONTENT_ENCODING).is_some_and(|how| how == "gzip");
        let whole = answer.into_body().collect();
        let body = match tokio::time::timeout(self.shared.config.timeout, whole).await {
            Ok(body) => body.map_err(broken)?.to_bytes(),
            Err(_) => {
                let text = format!("{} does not finish its answer", self.host());
                return Err(Status::timeout(text, 0));
            }
        };
        if packed { codec::unpack(&body) } else { Ok(body) }
    }

    async fn do_call(&self, call: Call) -> Result<Outcome, Status> {
        let Call { resource, name, ask, .. } = &call;
        let source::Request { method, path, content_type, body } = (&call).into();
        let answer = self
            .send(Wanted {
                method,
                path,
                accept: codec::JSON,
                content_type,
                body,
                resource: Some(resource),
                name,
                compressed: false,
                streaming: false,
            })
            .await?;
        let warnings = warnings(answer.headers());
        let is_collection = matches!(ask, Ask::DeleteCollection(..));
        let body = self.read(answer).await?;
        let object = codec::said(&body, is_collection)?;
        Ok(Outcome { object, warnings })
    }

    async fn do_list(&self, of: Collection, page: Page) -> Result<List, Status> {
        let path = source::Request::list(&of, &page).path;
        let answer = self
            .send(Wanted {
                method: Method::GET,
                path,
                accept: codec::JSON,
                content_type: "",
                body: Bytes::new(),
                resource: Some(&of.resource),
                name: "",
                compressed: true,
                streaming: false,
            })
            .await?;
        let body = self.read(answer).await?;
        codec::list(&body, &of.resource)
    }

    async fn do_watch(&self, of: Collection, from: WatchFrom) -> Result<Watch, Status> {
        let path = source::Request::watch(&of, &from).path;
        let answer = self
            .send(Wanted {
                method: Method::GET,
                path,
                accept: codec::JSON_STREAM,
                content_type: "",
                body: Bytes::new(),
                resource: Some(&of.resource),
                name: "",
                compressed: false,
                streaming: true,
            })
            .await?;
        Ok(watch::events(answer.into_body()))
    }

    async fn do_raw(&self, request: Raw) -> Result<RawAnswer, Status> {
        let Raw { method, path, accept, content_type, body } = request;
        let (accept, content_type) = (&*accept, &*content_type);
        let answer = self
            .send(Wanted {
                method,
                path,
                accept,
                content_type,
                body,
                resource: None,
                name: "",
                compressed: false,
                streaming: true,
            })
            .await?;
        let code = answer.status().as_u16();
        let content_type = answer.headers().get(header::CONTENT_TYPE);
        let content_type =
            content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let frames = BodyStream::new(answer.into_body());
        let body = frames.filter_map(|frame| async {
            match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(broken(error))),
            }
        });
        Ok(RawAnswer { code, content_type, body: body.boxed() })
    }
}

impl Source for Https {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        self.do_call(call).boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        self.do_list(of, page).boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        self.do_watch(of, from).boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        self.do_raw(request).boxed()
    }
}

fn bad_path(path: &str) -> Status {
    Status::bad_request(format!("{path:?} cannot be part of a request"))
}

fn unreachable(error: http::Error) -> Status {
    match error {
        http::Error::Timeout(_) => Status::timeout(error, 0),
        error => Status::service_unavailable(with_causes(&error)),
    }
}

fn broken(error: hyper::Error) -> Status {
    Status::service_unavailable(format!("an answer broke off: {}", with_causes(&error)))
}

/// An error with what it came from, which hyper's texts leave out.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

/// When the server wants to be asked again, if it does.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let code = answer.status();
    if code.as_u16() != 429 && !code.is_server_error() {
        return None;
    }
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// `Warning: 299 - "text"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts =
        headers.get_all(header::WARNING).into_iter().filter_map(|value| value.to_str().ok());
    let quoted = texts.filter_map(|text| {
        let quoted = text.strip_prefix("299 ")?.split_once(" \"")?.1.strip_suffix('"')?;
        Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
    });
    quoted.collect()
}

#[cfg(test)]
mod heads {
    use super::*;

    #[test]
    fn warnings_are_unquoted() {
        let mut headers = HeaderMap::new();
        headers.append(header::WARNING, HeaderValue::from_static(r#"299 - "say \"v2\"""#));
        headers.append(header::WARNING, HeaderValue::from_static("110 - \"stale\""));
        assert_eq!(warnings(&headers), ["say \"v2\""]);
    }

    #[test]
    fn only_who_cannot_answer_now_is_asked_again() {
        let wait = |code: u16, after: &'static str| {
            let answer = Response::builder().status(code).header("retry-after", after);
            retry_after(&answer.body(()).unwrap()).map(|wait| wait.as_secs())
        };
        assert_eq!([wait(429, "1"), wait(503, "7"), wait(404, "1")], [Some(1), Some(7), None]);
        assert_eq!([wait(429, "99999"), wait(429, "soon")], [Some(30), None]);
    }
}
