//! Headers on their way: what is for the next machine alone goes no further, and what a client says about
//! where it comes from is ours to say.
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Version};
use std::net::IpAddr;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What is ours to say, or nobody's.
const SAID: [HeaderName; 6] =
    [header::FORWARDED, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PORT, FORWARDED_PROTO, REAL_IP];

/// RFC 9110, 7.6.1; `Proxy-Authorization` is for proxies that ask for it, which we are not.
const OF_ONE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What both sides want to speak from here on, if a client asks for that: `websocket`, and nothing else. With `h2c`
/// a client would have the pod read requests that no rule was looked for.
pub fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    if request.version() != Version::HTTP_11 || !names(request.headers(), "upgrade") {
        return None;
    }
    let wanted = request.headers().get(header::UPGRADE);
    wanted.filter(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket")).cloned()
}

/// Whether `Connection` names this.
fn names(headers: &HeaderMap, name: &str) -> bool {
    let all = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(name))
}

/// Takes away what is about one connection.
pub fn strip(headers: &mut HeaderMap) {
    let takes_trailers = headers.get_all(header::TE).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|one| one.trim() == "trailers"))
    });
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION) {
        headers.remove(name);
    }
    // gRPC has it said from end to end.
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Who asks, and what for, in the words that servers behind proxies read. What a client says there of
/// itself is not believed.
pub fn introduce(headers: &mut HeaderMap, client: IpAddr, host: &str, port: u16, scheme: &str) {
    headers.remove(header::FORWARDED);
    // To many servers `X_Forwarded_For` is the same name: in their environment both are `HTTP_X_FORWARDED_FOR`.
    let is_alike = |name: &&HeaderName| {
        let read = name.as_str().replace('_', "-");
        name.as_str().contains('_') && SAID.iter().any(|said| said.as_str() == read)
    };
    let alike: Vec<HeaderName> = headers.keys().filter(is_alike).cloned().collect();
    for name in alike {
        headers.remove(name);
    }
    let mut say = |name: HeaderName, text: &str| match HeaderValue::try_from(text) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    };
    let client = client.to_string();
    say(FORWARDED_FOR, &client);
    say(REAL_IP, &client);
    say(FORWARDED_HOST, host);
    say(FORWARDED_PORT, &port.to_string());
    say(FORWARDED_PROTO, scheme);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &str) -> HeaderMap {
        let pairs = lines.lines().filter_map(|line| line.trim().split_once(": "));
        let parse = |(name, value): (&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))
        };
        let mut map = HeaderMap::new();
        for (name, value) in pairs.map(parse) {
            map.append(name, value);
        }
        map
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap_or_default())
        };
        headers.iter().map(line).collect()
    }

    #[test]
    fn what_is_for_one_connection_goes_no_further() {
        let mut sent = headers(
            "accept: text/html
             connection: close, x-secret
             connection: Upgrade
             x-secret: 1
             keep-alive: timeout=5
             te: trailers, deflate
             transfer-encoding: chunked
             upgrade: websocket",
        );
        strip(&mut sent);
        assert_eq!(shown(&sent), ["accept: text/html", "te: trailers"]);
    }

    #[test]
    fn only_websockets_leave_http() {
        let asks = |to: &str| {
            let request = Request::builder().header("connection", "Upgrade").header("upgrade", to);
            upgrade(&request.body(()).unwrap()).is_some()
        };
        assert!(asks("websocket") && asks("WebSocket"));
        assert!(!asks("h2c") && !asks("websocket, h2c") && !asks("SPDY/3.1"));
    }

    #[test]
    fn clients_do_not_say_where_they_come_from() {
        let mut sent = headers(
            "x-forwarded-for: 10.0.0.1
             x-forwarded-for: 10.0.0.2
             x-forwarded-proto: https
             x-real-ip: 10.0.0.1
             x_forwarded_for: 10.0.0.1
             x-forwarded_proto: https
             forwarded: for=10.0.0.1
             x_other: kept",
        );
        introduce(&mut sent, "192.0.2.7".parse().unwrap(), "a.com", 80, "http");
        let mut lines = shown(&sent);
        lines.sort();
        assert_eq!(
            lines,
            [
                "x-forwarded-for: 192.0.2.7",
                "x-forwarded-host: a.com",
                "x-forwarded-port: 80",
                "x-forwarded-proto: http",
                "x-real-ip: 192.0.2.7",
                "x_other: kept",
            ]
        );
    }
}
