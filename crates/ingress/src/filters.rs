//! What a rule changes about a request on its way to a pod, and about the answer on its way back.
use crate::table::To;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    RequestHeaders(HeaderChange),
    ResponseHeaders(HeaderChange),
    Redirect(Redirect),
    Rewrite {
        host: Option<HeaderValue>,
        path: Option<PathChange>,
    },
    /// A copy goes to somebody whose answer nobody reads; of so many requests of so many.
    Mirror {
        to: To,
        numerator: u32,
        denominator: u32,
    },
    Cors(Cors),
}

impl Filter {
    pub fn mirrors(&self) -> Option<&To> {
        match self {
            Filter::Mirror { to, .. } => Some(to),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeaderChange {
    pub set: Vec<(HeaderName, HeaderValue)>,
    pub add: Vec<(HeaderName, HeaderValue)>,
    pub remove: Vec<HeaderName>,
}

impl HeaderChange {
    pub fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum PathChange {
    Whole(String),
    Prefix(String),
}

impl PathChange {
    /// The new path; `prefix` is as much of the old one as the rule matched.
    pub fn apply(&self, path: &str, prefix: usize) -> String {
        match self {
            PathChange::Whole(new) if new.is_empty() => "/".to_owned(),
            PathChange::Whole(new) => new.clone(),
            PathChange::Prefix(new) => {
                let rest = path.get(prefix..).unwrap_or_default();
                let whole = format!("{}{rest}", new.trim_end_matches('/'));
                match whole.starts_with('/') {
                    true => whole,
                    false => format!("/{whole}"),
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    pub scheme: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub path: Option<PathChange>,
    pub code: StatusCode,
}

/// Where a request came to.
pub struct Place<'a> {
    pub scheme: &'a str,
    pub host: &'a str,
    /// The listener's.
    pub port: u16,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub prefix: usize,
}

impl Redirect {
    /// What `Location` says. A scheme without a port leads to the scheme's own; without either, the port is
    /// that of the listener (`HTTPRequestRedirectFilter` in Gateway API's `apis/v1`).
    pub fn location(&self, place: &Place<'_>) -> String {
        let scheme = self.scheme.as_deref().unwrap_or(place.scheme);
        let usual = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port = match (self.port, &self.scheme) {
            (Some(port), _) => port,
            (None, Some(_)) => usual.unwrap_or(place.port),
            (None, None) => place.port,
        };
        let host = self.host.as_deref().unwrap_or(place.host);
        let path = match &self.path {
            Some(change) => change.apply(place.path, place.prefix),
            None => place.path.to_owned(),
        };
        let mut location = format!("{scheme}://{host}");
        if usual != Some(port) {
            location.push_str(&format!(":{port}"));
        }
        location.push_str(&path);
        if let Some(query) = place.query {
            location.push('?');
            location.push_str(query);
        }
        location
    }
}

/// Whose pages may read answers (`HTTPCORSFilter`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cors {
    /// `https://*.example.com`, or `*`.
    pub origins: Vec<String>,
    pub credentials: bool,
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub exposed: Vec<String>,
    pub max_age: Option<i64>,
}

impl Cors {
    /// Whether a browser asks if it may ask.
    pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
        *method == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| {
            let allowed = allowed.as_str();
            match allowed.split_once("*.") {
                _ if allowed == "*" => true,
                Some((scheme, name)) => origin
                    .strip_prefix(scheme)
                    .and_then(|host| host.strip_suffix(name)?.strip_suffix('.'))
                    .is_some_and(|labels| !labels.is_empty()),
                None => allowed.eq_ignore_ascii_case(origin),
            }
        })
    }

    /// What an answer to this request says about who may read it.
    pub fn answer(&self, asked: &HeaderMap, is_preflight: bool, answer: &mut HeaderMap) {
        let Some(origin) = asked.get(header::ORIGIN) else { return };
        if !origin.to_str().is_ok_and(|origin| self.allows(origin)) {
            return;
        }
        let is_any = self.origins.iter().any(|one| one == "*") && !self.credentials;
        let shown = if is_any { HeaderValue::from_static("*") } else { origin.clone() };
        answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, shown);
        if !is_any {
            answer.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        if self.credentials {
            let yes = HeaderValue::from_static("true");
            answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
        }
        let mut say = |name: HeaderName, values: &[String]| {
            if let Ok(value) = HeaderValue::try_from(values.join(", "))
                && !values.is_empty()
            {
                answer.insert(name, value);
            }
        };
        // Browsers read it in answers alone; upstream's tests (`httproute-cors.go`) want it before, too.
        say(header::ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed);
        if !is_preflight {
            return;
        }
        // With credentials a browser takes `*` for a name: what it asked for is what it may.
        let echoed = |allowed: &[String], name: HeaderName| -> Vec<String> {
            if !(self.credentials && allowed.iter().any(|one| one == "*")) {
                return allowed.to_vec();
            }
            asked
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
                .into_iter()
                .collect()
        };
        let methods = echoed(&self.methods, header::ACCESS_CONTROL_REQUEST_METHOD);
        let headers = echoed(&self.headers, header::ACCESS_CONTROL_REQUEST_HEADERS);
        say(header::ACCESS_CONTROL_ALLOW_METHODS, &methods);
        say(header::ACCESS_CONTROL_ALLOW_HEADERS, &headers);
        if let Some(seconds) = self.max_age {
            answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_replaced_by_whole_elements() {
        // The table in `HTTPPathModifier`: path, prefix, replacement, result.
        for (path, prefix, new, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
        ] {
            let change = PathChange::Prefix(new.to_owned());
            let prefix = prefix.trim_end_matches('/').len();
            assert_eq!(change.apply(path, prefix), expected, "{path} {prefix} {new}");
        }
        assert_eq!(PathChange::Whole("/one".to_owned()).apply("/a/b", 2), "/one");
    }

    #[test]
    fn a_redirect_keeps_what_it_does_not_change() {
        let to = |scheme: &str, host: &str, port: u16, at: (&str, u16)| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let redirect = Redirect {
                scheme: text(scheme),
                host: text(host),
                port: (port > 0).then_some(port),
                path: None,
                code: StatusCode::FOUND,
            };
            let (scheme, port) = at;
            let host = "example.org";
            let (path, query) = ("/a", Some("b=c"));
            redirect.location(&Place { scheme, host, port, path, query, prefix: 0 })
        };
        let (http, https, odd) = (("http", 80), ("https", 443), ("http", 8080));
        assert_eq!(to("https", "", 0, http), "https://example.org/a?b=c");
        assert_eq!(to("", "other.org", 0, http), "http://other.org/a?b=c");
        assert_eq!(to("", "", 8083, http), "http://example.org:8083/a?b=c");
        assert_eq!(to("", "other.org", 0, odd), "http://other.org:8080/a?b=c");
        assert_eq!(to("https", "", 0, odd), "https://example.org/a?b=c");
        assert_eq!(to("https", "", 8443, odd), "https://example.org:8443/a?b=c");
        assert_eq!(to("", "", 443, https), "https://example.org/a?b=c");
        assert_eq!(to("http", "", 80, https), "http://example.org/a?b=c");
    }

    #[test]
    fn headers_are_set_added_and_removed_in_this_order() {
        let named = |name: &'static str| HeaderName::from_static(name);
        let value = HeaderValue::from_static;
        let mut headers = HeaderMap::new();
        headers.insert(named("x-old"), value("1"));
        headers.insert(named("x-gone"), value("1"));
        let change = HeaderChange {
            set: vec![(named("x-old"), value("2"))],
            add: vec![(named("x-old"), value("3"))],
            remove: vec![named("x-gone")],
        };
        change.apply(&mut headers);
        let all: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        assert_eq!(all, ["x-old=\"2\"", "x-old=\"3\""]);
    }

    #[test]
    fn browsers_are_told_what_they_asked() {
        let cors = Cors {
            origins: vec!["https://*.a.org".to_owned(), "https://b.org".to_owned()],
            credentials: true,
            methods: vec!["*".to_owned()],
            headers: vec!["x-one".to_owned(), "x-two".to_owned()],
            max_age: Some(60),
            ..Cors::default()
        };
        let asked = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            let method = HeaderValue::from_static("PUT");
            headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, method);
            let mut answer = HeaderMap::new();
            cors.answer(&headers, Cors::is_preflight(&Method::OPTIONS, &headers), &mut answer);
            let mut lines: Vec<_> = answer
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
                .collect();
            lines.sort();
            lines.join("\n")
        };
        expect_test::expect![[r#"
            access-control-allow-credentials: true
            access-control-allow-headers: x-one, x-two
            access-control-allow-methods: PUT
            access-control-allow-origin: https://x.y.a.org
            access-control-max-age: 60
            vary: Origin"#]]
        .assert_eq(&asked("https://x.y.a.org"));
        assert_eq!(asked("https://a.org"), "");
        assert_eq!(asked("http://b.org"), "");
        assert!(asked("https://b.org").contains("allow-origin: https://b.org"));
    }
}
