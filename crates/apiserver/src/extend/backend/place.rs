//! Where a configuration says that a server is.
use api::url::Url;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// What `clientConfig` says, read once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The service, if it is one of the cluster.
    pub service: Option<Service>,
    /// The name that its certificate is for.
    pub host: String,
    pub port: u16,
    /// Whether URLs name the port.
    names_port: bool,
    pub path: String,
    /// PEM; empty: whom the machine believes.
    pub ca: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Service {
    pub namespace: String,
    pub name: String,
}

impl Place {
    /// Reads `{ url | service { namespace, name, path, port }, caBundle }`.
    pub fn read(config: &Value) -> Result<Place, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ca = STANDARD.decode(text(&config["caBundle"])).map_err(|error| error.to_string())?;
        let service = &config["service"];
        if service.is_object() {
            let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            return Ok(Place {
                host: format!("{name}.{namespace}.svc"),
                service: Some(Service { namespace, name }),
                port: port.filter(|port| *port > 0).unwrap_or(443),
                names_port: true,
                path: joined(&text(&service["path"])),
                ca,
            });
        }
        let url = text(&config["url"]);
        if url.is_empty() {
            return Err("webhook configuration must have either service or URL".into());
        }
        let url = Url::parse(&url).map_err(|error| format!("Unparsable URL: {error}"))?;
        let (host, port) = split(&url.host);
        Ok(Place {
            service: None,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.unwrap_or(443),
            names_port: port.is_some(),
            path: joined(url.path),
            ca,
        })
    }

    /// A service at a port, whatever is asked there.
    pub fn of_service(namespace: &str, name: &str, port: u16, ca: Vec<u8>) -> Place {
        Place {
            host: format!("{name}.{namespace}.svc"),
            service: Some(Service { namespace: namespace.into(), name: name.into() }),
            port,
            names_port: true,
            path: "/".into(),
            ca,
        }
    }

    /// Host and port, as a URL has them.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        if self.names_port { format!("{host}:{}", self.port) } else { host }
    }

    pub fn url(&self, query: &str) -> String {
        format!("https://{}{}?{query}", self.authority(), self.path)
    }

    /// The name that is asked for in the handshake.
    pub fn server_name(&self) -> String {
        self.host.clone()
    }
}

/// A path as upstream's client joins it: one slash before, none after.
fn joined(path: &str) -> String {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

/// Host and port of a URL's authority.
fn split(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_names_a_url() {
        for (config, url) in [
            (
                json!({ "service": { "name": "a", "namespace": "b" } }),
                "https://a.b.svc:443/?timeout=1s",
            ),
            (
                json!({ "service": { "name": "a", "namespace": "b", "path": "/x/y/", "port": 8443 } }),
                "https://a.b.svc:8443/x/y?timeout=1s",
            ),
            (json!({ "url": "https://example.com/hook" }), "https://example.com/hook?timeout=1s"),
            (json!({ "url": "https://[::1]:9443" }), "https://[::1]:9443/?timeout=1s"),
            (json!({ "url": "https://127.0.0.1:9443/x" }), "https://127.0.0.1:9443/x?timeout=1s"),
        ] {
            assert_eq!(Place::read(&config).expect("a place").url("timeout=1s"), url);
        }
        let place = Place::read(&json!({ "url": "https://[fd00::1]/x" })).expect("a place");
        assert_eq!((&*place.host, place.port, &*place.server_name()), ("fd00::1", 443, "fd00::1"));
        let none = Place::read(&json!({})).expect_err("neither");
        assert_eq!(none, "webhook configuration must have either service or URL");
    }
}
