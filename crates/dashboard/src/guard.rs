//! Which requests are let in, and what they are for.
use crate::files::{FILES, File};
use http::{HeaderMap, HeaderName, Method, header};
use ring::digest::{SHA256, digest};
use std::net::SocketAddr;

/// What the page shows with everything it asks.
pub const KEY: HeaderName = HeaderName::from_static("x-skiff-key");

/// Where the dashboard listens, and what opens it.
pub struct Door {
    pub address: SocketAddr,
    pub key: String,
}

#[derive(Debug)]
pub enum Verdict {
    File(&'static File),
    /// The API server is asked.
    Pass,
    Refused(u16, &'static str),
}

/// The API server's paths that the page has a use for.
const PASSED: [&str; 4] = ["/api", "/apis", "/openapi", "/version"];

impl Door {
    /// The address for a browser.
    pub fn url(&self) -> String {
        format!("http://{}/#key={}", self.address, self.key)
    }

    pub fn judge(&self, method: &Method, path: &str, headers: &HeaderMap) -> Verdict {
        if !self.is_host(headers) {
            return Verdict::Refused(421, "the dashboard is not served by that name");
        }
        let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
        let is_foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
        if let Some(file) = FILES.iter().find(|file| file.path == path) {
            return match *method == Method::GET || *method == Method::HEAD {
                true => Verdict::File(file),
                false => Verdict::Refused(405, "the page can only be read"),
            };
        }
        let is_below = |root: &str| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !PASSED.iter().any(|root| is_below(root)) {
            return Verdict::Refused(404, "there is nothing here");
        }
        if is_foreign {
            return Verdict::Refused(403, "another page may not ask");
        }
        let shown = headers.get(KEY).map(|key| key.as_bytes()).unwrap_or_default();
        // How long comparing digests takes says nothing of the key.
        match digest(&SHA256, shown).as_ref() == digest(&SHA256, self.key.as_bytes()).as_ref() {
            true => Verdict::Pass,
            false => Verdict::Refused(401, "the key is wrong"),
        }
    }

    /// Names can be made to lead anywhere; these cannot.
    fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
            return false;
        };
        let port = self.address.port();
        let is_local = self.address.ip().is_loopback() || self.address.ip().is_unspecified();
        host == self.address.to_string()
            || is_local
                && [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]
                    .iter()
                    .any(|own| own == host)
            // Who listens everywhere is reached by whatever address the machine has, but by no name.
            || self.address.ip().is_unspecified()
                && host.parse::<SocketAddr>().is_ok_and(|host| host.port() == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn judged(address: &str, request: &str, given: &[(&'static str, &str)]) -> String {
        let door = Door { address: address.parse().unwrap(), key: "secret".to_owned() };
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let (method, path) = request.split_once(' ').unwrap();
        match door.judge(&method.parse().unwrap(), path, &headers) {
            Verdict::File(file) => format!("file {}", file.path),
            Verdict::Pass => "pass".to_owned(),
            Verdict::Refused(code, _) => code.to_string(),
        }
    }

    #[test]
    fn only_its_own_page_with_the_key_reaches_the_server() {
        let own = ("host", "127.0.0.1:8001");
        let key = ("x-skiff-key", "secret");
        for (request, headers, expected) in [
            ("GET /", vec![own], "file /"),
            ("GET /app.js", vec![("host", "localhost:8001")], "file /app.js"),
            ("POST /app.js", vec![own, key], "405"),
            ("GET /api/v1/pods", vec![own, key], "pass"),
            ("DELETE /apis/apps/v1/namespaces/a/deployments/b", vec![own, key], "pass"),
            ("GET /version", vec![own, key, ("sec-fetch-site", "same-origin")], "pass"),
            // Without the key, with a wrong one, or from elsewhere.
            ("GET /api/v1/pods", vec![own], "401"),
            ("GET /api/v1/pods", vec![own, ("x-skiff-key", "secre")], "401"),
            ("GET /api/v1/pods", vec![own, ("x-skiff-key", "")], "401"),
            ("GET /api/v1/pods", vec![own, key, ("sec-fetch-site", "cross-site")], "403"),
            ("GET /api/v1/pods", vec![own, key, ("sec-fetch-site", "same-site")], "403"),
            // A name that was made to lead here.
            ("GET /api/v1/pods", vec![("host", "evil.example:8001"), key], "421"),
            ("GET /", vec![("host", "evil.example:8001")], "421"),
            ("GET /", vec![("host", "127.0.0.1:9")], "421"),
            ("GET /", vec![], "421"),
            // What the page has no use for.
            ("GET /metrics", vec![own, key], "404"),
            ("GET /apisnot", vec![own, key], "404"),
            ("GET /debug/pprof", vec![own, key], "404"),
        ] {
            assert_eq!(
                judged("127.0.0.1:8001", request, &headers),
                expected,
                "{request} {headers:?}"
            );
        }
    }

    #[test]
    fn who_listens_elsewhere_is_reached_by_addresses_alone() {
        for (address, host, expected) in [
            ("0.0.0.0:80", "192.0.2.7:80", "file /"),
            ("0.0.0.0:80", "name.example:80", "421"),
            ("192.0.2.7:80", "192.0.2.7:80", "file /"),
            ("192.0.2.7:80", "localhost:80", "421"),
            ("[::1]:80", "[::1]:80", "file /"),
        ] {
            assert_eq!(judged(address, "GET /", &[("host", host)]), expected, "{address} {host}");
        }
    }
}
