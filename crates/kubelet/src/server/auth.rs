//! Who asks and whether it may: certificates of the clients' CA, tokens that the API server knows,
//! and what it says to a `SubjectAccessReview` about the node.
use super::{ServerConfig, answer};
use crate::server::answer::Refused;
use crate::worker::Kubelet;
use client::{ApiResource, Client, Context};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub type Certificates = Vec<CertificateDer<'static>>;
/// Whether a certificate and those it was sent with are good, and to be used by clients.
pub type Believes =
    Arc<dyn Fn(&CertificateDer<'static>, &[CertificateDer<'static>]) -> bool + Send + Sync>;

/// `--authorization-mode`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    AlwaysAllow,
    Webhook,
}

/// How long answers are good for: upstream's `cacheTTL`, `cacheAuthorizedTTL` and
/// `cacheUnauthorizedTTL`.
const KNOWN: Duration = Duration::from_secs(2 * 60);
const ALLOWED: Duration = Duration::from_secs(5 * 60);
const DENIED: Duration = Duration::from_secs(30);
/// Answers that are remembered. Whoever makes up tokens shall not fill the memory with them.
const REMEMBERED: usize = 4096;
/// Strangers whom the API server is asked about at once: the node has more to say to it, as the same user.
const ASKED: usize = 8;

/// As `UserInfo` of the API, whose fields are handed on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Value,
}

pub struct Asking<'a> {
    pub method: &'a Method,
    pub path: &'a str,
}

pub struct Auth {
    client: Client,
    context: Context,
    node: String,
    believes: Option<Believes>,
    anonymous: bool,
    token_webhook: bool,
    authorization: Authorization,
    users: Remembered<Option<User>>,
    decisions: Remembered<bool>,
    turns: Semaphore,
}

impl Auth {
    pub fn new(config: &ServerConfig, kubelet: &Kubelet) -> Auth {
        Auth {
            client: kubelet.client.clone(),
            context: kubelet.context.clone(),
            node: kubelet.config.node_name.clone(),
            believes: config.believes.clone(),
            anonymous: config.anonymous_auth,
            token_webhook: config.token_webhook,
            authorization: config.authorization,
            users: Remembered::default(),
            decisions: Remembered::default(),
            turns: Semaphore::new(ASKED),
        }
    }

    /// `None`: nobody that is known.
    pub async fn identify(&self, shown: &Certificates, headers: &HeaderMap) -> Option<User> {
        if let (Some(believes), Some((own, others))) = (&self.believes, shown.split_first())
            && believes(own, others)
        {
            return by_certificate(own);
        }
        if let Some(token) = bearer(headers).filter(|_| self.token_webhook) {
            return self.by_token(token).await;
        }
        self.anonymous.then(|| User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        })
    }

    async fn by_token(&self, token: &str) -> Option<User> {
        // Tokens are not kept: a number that stands for one is enough to know it again.
        let key = Sha256::digest(token).to_vec();
        let now = self.context.now();
        if let Some(known) = self.users.get(&key, now) {
            return known;
        }
        // Nobody closes it. Whoever asked for the same a moment ago may have the answer.
        let _turn = self.turns.acquire().await;
        if let Some(known) = self.users.get(&key, now) {
            return known;
        }
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
        let made = self.client.create_in(ApiResource::of::<TokenReview>(), "", review).await;
        let review = made.and_then(|made| {
            made.decode::<TokenReview>().map_err(api::status::Status::internal_error)
        });
        let status = match review {
            Ok(review) => review.status.unwrap_or_default(),
            Err(status) => {
                tracing::warn!("failed to ask whose token it is: {}", status.message);
                return None;
            }
        };
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: json!(user.extra),
        });
        self.users.put(key, user.clone(), now, KNOWN);
        user
    }

    /// `Err` with what is answered instead.
    pub async fn check(&self, user: &User, asking: &Asking<'_>) -> Result<(), Refused> {
        if self.authorization == Authorization::AlwaysAllow {
            return Ok(());
        }
        let verb = verb(asking.method);
        let parts = subresources(asking.path);
        for part in &parts {
            match self.may(user, verb, part).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(status) => {
                    tracing::warn!("failed to ask what {} may: {}", user.name, status.message);
                    let text = format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource={part})",
                        user.name
                    );
                    return Err(answer::internal(text));
                }
            }
        }
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            parts.join(" ")
        );
        Err(answer::refuse(StatusCode::FORBIDDEN, text))
    }

    async fn may(&self, user: &User, verb: &str, part: &str) -> Result<bool, api::status::Status> {
        let spec = json!({
            "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            "resourceAttributes": { "verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": self.node },
        });
        let key = spec.to_string().into_bytes();
        let now = self.context.now();
        if let Some(known) = self.decisions.get(&key, now) {
            return Ok(known);
        }
        let _turn = self.turns.acquire().await;
        if let Some(known) = self.decisions.get(&key, now) {
            return Ok(known);
        }
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let of = ApiResource::of::<SubjectAccessReview>();
        let made = self.client.create_in(of, "", review).await?;
        let made = made.decode::<SubjectAccessReview>();
        let made = made.map_err(api::status::Status::internal_error)?;
        let allowed = made.status.is_some_and(|status| status.allowed);
        self.decisions.put(key, allowed, now, if allowed { ALLOWED } else { DENIED });
        Ok(allowed)
    }
}

fn by_certificate(certificate: &CertificateDer<'_>) -> Option<User> {
    let subject = api::x509::certificate(certificate).ok()?.subject;
    if subject.common_name.is_empty() {
        return None;
    }
    let mut groups = subject.organizations;
    groups.push("system:authenticated".to_owned());
    Some(User { name: subject.common_name, groups, ..User::default() })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_start().split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// What of a node a path is about: any one of these suffices
/// (`pkg/kubelet/server/auth.go`, with `KubeletFineGrainedAuthz`).
pub fn subresources(path: &str) -> Vec<&'static str> {
    const FINE: &[(&str, &str)] = &[
        ("/allocatedPods", "pods"),
        ("/pods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
        ("/runningpods", "pods"),
    ];
    const COARSE: &[(&str, &str)] = &[
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    let below = |folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let of = |rows: &[(&str, &'static str)]| {
        rows.iter().find(|(folder, _)| below(folder)).map(|(_, part)| *part)
    };
    of(FINE).into_iter().chain([of(COARSE).unwrap_or("proxy")]).collect()
}

/// Answers that are good for a while.
struct Remembered<T>(Mutex<HashMap<Vec<u8>, (Timestamp, T)>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Remembered(Mutex::default())
    }
}

impl<T: Clone> Remembered<T> {
    fn get(&self, key: &[u8], now: Timestamp) -> Option<T> {
        let all = self.0.lock();
        all.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn put(&self, key: Vec<u8>, value: T, now: Timestamp, good_for: Duration) {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, (until, _)| now < *until);
        }
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(key, (now + good_for, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parts_of_the_node() {
        for (path, expected) in [
            ("/pods", "pods proxy"),
            ("/pods/x", "pods proxy"),
            ("/podsx", "proxy"),
            ("/runningpods/", "pods proxy"),
            ("/healthz", "healthz proxy"),
            ("/healthz/ping", "healthz proxy"),
            ("/configz", "configz proxy"),
            ("/flagz", "configz"),
            ("/stats/summary", "stats"),
            ("/metrics/cadvisor", "metrics"),
            ("/logs/", "log"),
            ("/checkpoint/a/b/c", "checkpoint"),
            ("/exec/default/web/c", "proxy"),
            ("/containerLogs/default/web/c", "proxy"),
            ("/", "proxy"),
        ] {
            assert_eq!(subresources(path).join(" "), expected, "{path}");
        }
    }

    #[test]
    fn a_token_is_what_follows_bearer() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc d", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("Bearer ", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer(&headers), expected, "{value}");
        }
    }

    #[test]
    fn answers_are_forgotten() {
        let remembered = Remembered::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        remembered.put(b"a".to_vec(), 1, at(0), Duration::from_secs(30));
        assert_eq!(remembered.get(b"a", at(29)), Some(1));
        assert_eq!(remembered.get(b"a", at(30)), None);
        for i in 0..2 * REMEMBERED {
            remembered.put(i.to_be_bytes().to_vec(), 1, at(0), Duration::from_secs(30));
        }
        assert!(remembered.0.lock().len() <= REMEMBERED);
    }
}
