//! What an APIService says about the server behind it.
use super::Remotes;
use crate::answer;
use crate::extend::backend::{Pool, client_config, pool, resolve};
use crate::server::ApiServer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// As whom the server itself asks: it may see everything there.
const AGGREGATOR: (&str, &str) = ("system:kube-aggregator", "system:masters");
/// How long such a question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a description may weigh.
const MAX_ANSWER: usize = 32 << 20;

/// A server that answers for one version of a group.
pub struct Remote {
    /// The APIService's.
    pub name: String,
    uid: String,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub service: String,
    pub port: u16,
    pub tls: Result<Arc<ClientConfig>, String>,
    /// What TLS was made from.
    trusted: (Vec<u8>, bool),
    pub is_available: bool,
    pub group_priority: i64,
    pub version_priority: i64,
    /// What is known of it, whatever its APIService becomes.
    pub known: Arc<Known>,
}

/// What is known of a server.
#[derive(Default)]
pub struct Known {
    /// Connections to it, for what clients ask and for what the API server itself asks.
    pub pool: Arc<Pool>,
    changed: Notify,
    /// Its part of discovery, as it was last heard, and whether that was just now.
    pub discovery: Mutex<Option<(Value, bool)>>,
    /// Where it describes itself in OpenAPI v3.
    pub openapi_v3: Mutex<Option<String>>,
    pub openapi_v2: super::openapi::Reading,
}

/// What a server answered to the API server itself.
pub struct Answered {
    pub head: http::response::Parts,
    pub body: Bytes,
}

impl Remote {
    /// Nothing if it is this server that answers.
    pub fn read(
        service: &Value,
        client: Option<Arc<dyn ResolvesClientCert>>,
        before: &Remotes,
    ) -> Option<Remote> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, reference) = (&service["spec"], &service["spec"]["service"]);
        if !reference.is_object() {
            return None;
        }
        let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let is_available = conditions
            .into_iter()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        let ca = STANDARD.decode(text(&spec["caBundle"])).unwrap_or_default();
        let trusted = (ca, spec["insecureSkipTLSVerify"] == true);
        let port = reference["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let uid = text(&service["metadata"]["uid"]);
        let known = before.values().find(|known| known.uid == uid);
        let same = known.filter(|known| known.trusted == trusted && known.tls.is_ok());
        let tls = match same {
            Some(known) => known.tls.clone(),
            None => client_config(&trusted.0, trusted.1, client).map(Arc::new),
        };
        Some(Remote {
            name: text(&service["metadata"]["name"]),
            group: text(&spec["group"]),
            version: text(&spec["version"]),
            namespace: text(&reference["namespace"]),
            service: text(&reference["name"]),
            port: port.unwrap_or(443),
            group_priority: spec["groupPriorityMinimum"].as_i64().unwrap_or(0),
            version_priority: spec["versionPriority"].as_i64().unwrap_or(0),
            // Connections to one that is believed otherwise are no longer good.
            known: same.map_or_else(Arc::default, |known| known.known.clone()),
            is_available,
            tls,
            trusted,
            uid,
        })
    }

    /// Whether what is known of the two is the same thing, looked after by the same task.
    pub fn is_checked_as(&self, other: &Remote) -> bool {
        Arc::ptr_eq(&self.known, &other.known)
    }

    /// Has it looked at again.
    pub fn nudge(&self) {
        self.known.changed.notify_one();
    }

    pub async fn nudged(&self) {
        self.known.changed.notified().await;
    }

    /// The name that its certificate is for.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Its part of the API.
    pub fn root(&self) -> String {
        match self.group.is_empty() {
            true => format!("/api/{}", self.version),
            false => format!("/apis/{}/{}", self.group, self.version),
        }
    }

    pub async fn addresses(&self, api: &ApiServer) -> Result<Vec<SocketAddr>, String> {
        let found = resolve(api, &self.namespace, &self.service, self.port).await;
        found.map_err(|status| status.message)
    }

    /// Asks it something in the API server's own name.
    pub async fn get(
        &self,
        api: &ApiServer,
        path: &str,
        accept: &str,
        tag: &str,
    ) -> Result<Answered, String> {
        let addresses = self.addresses(api).await?;
        self.get_from(addresses, path, accept, tag).await
    }

    pub async fn get_from(
        &self,
        addresses: Vec<SocketAddr>,
        path: &str,
        accept: &str,
        tag: &str,
    ) -> Result<Answered, String> {
        let asking = self.exchange(addresses, path, accept, tag);
        let late = || "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late().into()))
    }

    async fn exchange(
        &self,
        addresses: Vec<SocketAddr>,
        path: &str,
        accept: &str,
        tag: &str,
    ) -> Result<Answered, String> {
        let tls = self.tls.clone()?;
        let (user, group) = AGGREGATOR;
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(header::HOST, format!("{}:{}", self.host(), self.port))
            .header(header::USER_AGENT, "kube-aggregator")
            .header(header::ACCEPT, accept)
            .header("x-remote-user", user)
            .header("x-remote-group", group);
        if !tag.is_empty() {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let request = request.body(answer::empty()).map_err(|error| error.to_string())?;
        let host = self.host();
        let dial = pool::Dial { host: &host, port: self.port, addresses };
        let answer = self.known.pool.send(request, dial, host.clone(), tls).await?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answered { head, body })
    }
}

impl Answered {
    pub fn header(&self, name: header::HeaderName) -> &str {
        self.head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn json(&self) -> Option<Value> {
        api::depth::read(&self.body).ok()
    }

    pub fn into_answer(self) -> Response<crate::answer::Body> {
        let mut answer = Response::new(crate::answer::full(self.body));
        *answer.status_mut() = self.head.status;
        for name in [header::CONTENT_TYPE, header::ETAG, header::CACHE_CONTROL, header::VARY] {
            if let Some(value) = self.head.headers.get(&name) {
                answer.headers_mut().insert(name, value.clone());
            }
        }
        answer
    }
}

/// Says who a request is from, to a server that believes this one; whatever its client says of that
/// goes first.
pub fn put_identity(headers: &mut HeaderMap, user: &crate::guard::authn::User) {
    let claimed: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    let mut say = |name: String, value: &str| {
        let name = header::HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
        }
    };
    say("x-remote-user".into(), &user.name);
    if !user.uid.is_empty() {
        say("x-remote-uid".into(), &user.uid);
    }
    for group in &user.groups {
        say("x-remote-group".into(), group);
    }
    for (key, values) in &user.extra {
        for value in values {
            say(format!("x-remote-extra-{}", escaped(key)), value);
        }
    }
}

/// A key as the name of a header spells it: what no name takes is percent-encoded.
fn escaped(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        match is_plain {
            true => name.push(byte.into()),
            false => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

impl Known {
    pub fn put_discovery(&self, found: Option<Value>) {
        let mut known = self.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => *known = Some((found, true)),
            // What was heard before is better than nothing.
            None => {
                if let Some((_, is_current)) = &mut *known {
                    *is_current = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::authn::User;

    #[test]
    fn a_client_does_not_say_who_it_is() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-a"] {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let extra = [("example.com/Scopes%".to_owned(), vec!["one".into(), "two".into()])];
        let user = User {
            name: "jane".into(),
            groups: vec!["a".into(), "b".into()],
            extra: extra.into(),
            ..User::default()
        };
        put_identity(&mut headers, &user);
        let mut shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().expect("text")))
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "x-remote-extra-example.com%2fscopes%25=one",
                "x-remote-extra-example.com%2fscopes%25=two",
                "x-remote-group=a",
                "x-remote-group=b",
                "x-remote-user=jane",
            ]
        );
    }
}
