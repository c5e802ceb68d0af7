//! A client of the distribution API: manifests and blobs, from a registry or its mirrors.
//!
//! A session is one pull. It tries the endpoints of its registry in order and stays with the first
//! that knows the image. A 401 is answered once: with a token if the registry names a token
//! service, with name and password if it asks for those. Credentials never follow a redirect.
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RANGE, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;

use super::config::{Credentials, RegistriesConfig};
use super::content::{Content, ContentError};
use super::digest::Digest;
use super::http::{Http, HttpError};
use super::manifest::{Descriptor, media};
use super::reference::Reference;

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error("{url}: not found")]
    NotFound { url: String },
    #[error("{url}: not authorized")]
    Unauthorized { url: String },
    #[error("{url}: {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url}: the answer broke off")]
    Body { url: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{url}: the answer is not {digest}")]
    WrongManifest { url: String, digest: Digest },
    #[error("{url}: {reason}")]
    Protocol { url: String, reason: &'static str },
}

/// Manifests are small; a longer one is not one.
const MANIFEST_LIMIT: usize = 4 << 20;
const REDIRECT_LIMIT: usize = 5;
/// A blob whose transfer breaks off is resumed, not begun again.
const ATTEMPTS: u32 = 5;
/// A transfer without a byte for this long has broken off.
const STALL: Duration = Duration::from_secs(60);

pub struct Registry {
    config: RegistriesConfig,
    http: Http,
    /// Blobs being fetched: two pulls of one blob fetch it once.
    claims: Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

impl Registry {
    pub fn new(config: RegistriesConfig) -> Self {
        let http = Http::new(config.configs.clone());
        Registry { config, http, claims: Mutex::default() }
    }

    pub fn session(&self, reference: &Reference, credentials: Option<Credentials>) -> Session<'_> {
        Session {
            registry: self,
            repository: reference.repository.clone(),
            domain: reference.domain.clone(),
            endpoints: self.config.endpoints(&reference.domain),
            credentials,
            chosen: Mutex::new(None),
            authorization: Mutex::default(),
        }
    }
}

pub struct Session<'a> {
    registry: &'a Registry,
    domain: String,
    repository: String,
    endpoints: Vec<String>,
    credentials: Option<Credentials>,
    /// The endpoint that answered.
    chosen: Mutex<Option<String>>,
    /// What to say to each endpoint.
    authorization: Mutex<HashMap<String, String>>,
}

impl Session<'_> {
    /// Fetches and checks a manifest or an index, by tag or digest.
    pub async fn manifest(&self, target: &str) -> Result<(Descriptor, Vec<u8>), RegistryError> {
        let chosen = self.chosen.lock().clone();
        let endpoints = chosen.map_or_else(|| self.endpoints.clone(), |chosen| vec![chosen]);
        let mut first_error = None;
        for endpoint in endpoints {
            match self.manifest_from(&endpoint, target).await {
                Ok(found) => {
                    *self.chosen.lock() = Some(endpoint);
                    return Ok(found);
                }
                // The registry itself comes last; its error says more than a mirror's.
                Err(error) => first_error = Some(error),
            }
        }
        Err(first_error.unwrap_or(RegistryError::NotFound { url: self.domain.clone() }))
    }

    async fn manifest_from(
        &self,
        endpoint: &str,
        target: &str,
    ) -> Result<(Descriptor, Vec<u8>), RegistryError> {
        let url = format!("{endpoint}/v2/{}/manifests/{target}", self.repository);
        let response = self.get(endpoint, &url, None).await?;
        let media_type = header(&response, CONTENT_TYPE).unwrap_or_default();
        let body = Limited::new(response.into_body(), MANIFEST_LIMIT).collect();
        let bytes =
            body.await.map_err(|source| RegistryError::Body { url: url.clone(), source })?;
        let bytes = bytes.to_bytes().to_vec();
        let digest = Digest::of(&bytes);
        if let Ok(wanted) = target.parse::<Digest>()
            && wanted != digest
        {
            return Err(RegistryError::WrongManifest { url, digest: wanted });
        }
        let size = bytes.len() as u64;
        let descriptor = Descriptor {
            media_type,
            digest,
            size,
            platform: None,
            annotations: Default::default(),
        };
        Ok((descriptor, bytes))
    }

    /// Only one of those who hold the claim on a digest fetches at a time.
    pub async fn claim(&self, digest: Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut claims = self.registry.claims.lock();
            claims.retain(|_, lock| lock.strong_count() > 0);
            match claims.get(&digest).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(tokio::sync::Mutex::new(()));
                    claims.insert(digest, Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }

    /// Fetches a blob into the content store, going on where an earlier try ended.
    pub async fn blob(
        &self,
        blob: &Descriptor,
        content: &Content,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RegistryError> {
        let mut attempt = 1;
        loop {
            match self.blob_once(blob, content, progress).await {
                Err(RegistryError::Body { url, source }) if attempt < ATTEMPTS => {
                    tracing::info!("{url}: {source}; resuming");
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn blob_once(
        &self,
        blob: &Descriptor,
        content: &Content,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RegistryError> {
        let endpoint = self.chosen.lock().clone();
        let endpoint = endpoint.unwrap_or_else(|| self.endpoints[0].clone());
        let url = format!("{endpoint}/v2/{}/blobs/{}", self.repository, blob.digest);
        let mut incoming = content.receive(blob.digest, blob.size)?;
        if incoming.received() < blob.size || blob.size == 0 {
            let from = incoming.received();
            let response = self.get(&endpoint, &url, (from > 0).then_some(from)).await?;
            if from > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
                incoming.restart()?;
            }
            let mut body = response.into_body();
            loop {
                let broken = |source| RegistryError::Body { url: url.clone(), source };
                let frame = tokio::time::timeout(STALL, body.frame()).await;
                let Some(frame) = frame.map_err(|error| broken(Box::from(error)))? else { break };
                if let Ok(data) = frame.map_err(|error| broken(Box::from(error)))?.into_data() {
                    incoming.write(&data)?;
                    progress(incoming.received());
                }
            }
            if incoming.received() < blob.size {
                let source = "it is shorter than announced".into();
                return Err(RegistryError::Body { url, source });
            }
        }
        incoming.finish()?;
        Ok(())
    }

    /// Asks, answers a challenge once, follows redirects.
    async fn get(
        &self,
        endpoint: &str,
        url: &str,
        from: Option<u64>,
    ) -> Result<Response<Incoming>, RegistryError> {
        let mut at = url.to_owned();
        let mut challenged = false;
        let mut redirects = 0;
        loop {
            let protocol = |reason| RegistryError::Protocol { url: at.clone(), reason };
            let mut request = Request::get(&at).header(ACCEPT, media::MANIFESTS.join(", "));
            if let Some(from) = from {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            if redirects == 0
                && let Some(authorization) = self.authorization.lock().get(endpoint)
            {
                request = request.header(AUTHORIZATION, authorization);
            }
            let request = request.body(Empty::new()).map_err(|_| protocol("not a URL"))?;
            let response = self.registry.http.send(request).await?;
            match response.status() {
                status if status.is_success() => return Ok(response),
                StatusCode::UNAUTHORIZED if !challenged && redirects == 0 => {
                    challenged = true;
                    let challenge = header(&response, WWW_AUTHENTICATE).unwrap_or_default();
                    let authorization = self.answer(endpoint, &challenge).await?;
                    let authorization = authorization
                        .ok_or_else(|| RegistryError::Unauthorized { url: at.clone() })?;
                    self.authorization.lock().insert(endpoint.to_owned(), authorization);
                }
                status if status.is_redirection() => {
                    redirects += 1;
                    if redirects > REDIRECT_LIMIT {
                        return Err(protocol("too many redirects"));
                    }
                    let to = header(&response, LOCATION)
                        .ok_or_else(|| protocol("a redirect to nowhere"))?;
                    at = absolute(&at, &to);
                }
                StatusCode::NOT_FOUND => return Err(RegistryError::NotFound { url: at }),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(RegistryError::Unauthorized { url: at });
                }
                status => return Err(RegistryError::Status { url: at, status }),
            }
        }
    }

    /// What to put into `Authorization`, as the challenge asks; none if we have nothing to show.
    async fn answer(
        &self,
        endpoint: &str,
        challenge: &str,
    ) -> Result<Option<String>, RegistryError> {
        let credentials = self.credentials_for(endpoint);
        if let Some(token) = credentials.as_ref().map(|c| &c.registry_token)
            && !token.is_empty()
        {
            return Ok(Some(format!("Bearer {token}")));
        }
        let pair = credentials.as_ref().and_then(Credentials::pair);
        let basic = pair.map(|(name, password)| {
            format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
        });
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Ok(basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Ok(None);
        }
        let parameters = parse_challenge(parameters);
        let Some(realm) = parameters.get("realm") else { return Ok(None) };
        let scope = format!("repository:{}:pull", self.repository);
        let url =
            token_url(realm, parameters.get("service"), parameters.get("scope").unwrap_or(&scope));
        let mut request = Request::get(&url);
        if let Some(basic) = &basic {
            request = request.header(AUTHORIZATION, basic);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| RegistryError::Protocol {
            url: url.clone(),
            reason: "the token service has no valid address",
        })?;
        let response = self.registry.http.send(request).await?;
        if !response.status().is_success() {
            return Err(RegistryError::Unauthorized { url });
        }
        let body = Limited::new(response.into_body(), MANIFEST_LIMIT).collect().await;
        let body = body.map_err(|source| RegistryError::Body { url: url.clone(), source })?;
        let token: Token = serde_json::from_slice(&body.to_bytes())
            .map_err(|_| RegistryError::Protocol { url, reason: "the token is not one" })?;
        Ok(token.token.or(token.access_token).map(|token| format!("Bearer {token}")))
    }

    /// What the caller brought, else what the configuration has for the host.
    fn credentials_for(&self, endpoint: &str) -> Option<Credentials> {
        let host = endpoint.split("://").nth(1).unwrap_or(endpoint);
        let configured = || self.registry.config.configs.get(host).and_then(|h| h.auth.clone());
        // A pull secret is for the registry named in the image, not for whoever mirrors it.
        let is_mirror = self.endpoints.last().is_some_and(|own| own != endpoint);
        match &self.credentials {
            Some(credentials) if !is_mirror => Some(credentials.clone()),
            _ => configured(),
        }
    }
}

fn token_url(realm: &str, service: Option<&String>, scope: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", scope);
    let separator = if realm.contains('?') { '&' } else { '?' };
    format!("{realm}{separator}{}", query.finish())
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// `realm="https://…",service="…"`.
fn parse_challenge(text: &str) -> HashMap<String, String> {
    let mut parameters = HashMap::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        let key = key.trim_matches([',', ' ']).to_ascii_lowercase();
        parameters.insert(key, value.to_owned());
        rest = after;
    }
    parameters
}

fn absolute(base: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let start = base.find("://").map_or(0, |at| at + 3);
    let origin = base[start..].find('/').map_or(base, |at| &base[..start + at]);
    format!("{origin}{location}")
}

fn header<B>(response: &Response<B>, name: http::HeaderName) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let parameters =
            parse_challenge(r#"realm="https://a/t?x=1",service="s, t", scope="repository:a:pull""#);
        for (key, value) in
            [("realm", "https://a/t?x=1"), ("service", "s, t"), ("scope", "repository:a:pull")]
        {
            assert_eq!(parameters[key], value);
        }
    }

    #[test]
    fn redirects_may_be_relative() {
        assert_eq!(absolute("http://a:1/v2/x", "/y?z"), "http://a:1/y?z");
        assert_eq!(absolute("http://a:1/v2/x", "https://b/y"), "https://b/y");
    }
}
