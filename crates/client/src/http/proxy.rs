//! A proxy on the way to a server: which one there is, as Go's `http.ProxyFromEnvironment` finds it, and how
//! a connection is made through it (`CONNECT`, SOCKS 5).
use api::quote::Quoted;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use std::io::{Error, Result};
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Whether a proxy is asked for connections.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Proxy {
    /// Never, whatever the environment says.
    #[default]
    None,
    /// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say.
    Environment,
    Url(Url),
}

impl Proxy {
    /// The proxy on the way to a server.
    pub fn to(&self, server: &::http::Uri) -> Option<Url> {
        match self {
            Proxy::None => None,
            Proxy::Url(url) => Some(url.clone()),
            Proxy::Environment => {
                environment(server, &|name| std::env::var(name).unwrap_or_default())
            }
        }
    }
}

/// Where a proxy is, and who we are to it.
#[derive(Clone, PartialEq)]
pub struct Url {
    pub kind: Kind,
    pub host: String,
    pub port: u16,
    user: Option<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Http,
    Https,
    Socks,
}

/// Passwords are for nobody's log.
impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}:{}", self.kind, self.host, self.port)
    }
}

impl Url {
    /// `http://user:password@host:port`; a kubeconfig's words for what is none.
    pub fn parse(text: &str) -> std::result::Result<Url, String> {
        let broken = || Err(format!("could not parse: {text}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
            return Err(unsupported(scheme));
        };
        let (kind, port) = match &*scheme.to_ascii_lowercase() {
            "http" => (Kind::Http, 80),
            "https" => (Kind::Https, 443),
            // Names are resolved by the proxy in either case, as Go has it.
            "socks5" | "socks5h" => (Kind::Socks, 1080),
            other => return Err(unsupported(other)),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            (decoded(name), decoded(password))
        });
        let is_six = place.starts_with('[');
        let (host, said) = match place.rsplit_once(':') {
            Some((host, port)) if !is_six || host.ends_with(']') => (host, port),
            _ => (place, ""),
        };
        let port = match said {
            "" => port,
            said => match said.parse() {
                Ok(port) => port,
                Err(_) => return broken(),
            },
        };
        let host = host.trim_matches(['[', ']']);
        if host.is_empty() || host.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return broken();
        }
        Ok(Url { kind, host: host.to_owned(), port, user })
    }

    /// The value of the header that says who we are to it.
    pub fn authorization(&self) -> Option<String> {
        let (name, password) = self.user.as_ref()?;
        Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
    }
}

fn unsupported(scheme: &str) -> String {
    format!("unsupported scheme {}, must be http, https, or socks5", Quoted(scheme))
}

/// What variables say: those in capitals count first.
fn environment(server: &::http::Uri, variable: &dyn Fn(&str) -> String) -> Option<Url> {
    let either = |name: &str| match variable(name) {
        said if said.is_empty() => variable(&name.to_ascii_lowercase()),
        said => said,
    };
    let (said, port) = match server.scheme_str()? {
        "https" => (either("HTTPS_PROXY"), 443),
        // In a CGI program that variable is a header of whoever asks.
        "http" if variable("REQUEST_METHOD").is_empty() => (either("HTTP_PROXY"), 80),
        _ => return None,
    };
    let host = server.host()?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(port);
    if said.is_empty() || !is_wanted(host, port, &either("NO_PROXY")) {
        return None;
    }
    // A place without a scheme is one of HTTP.
    Url::parse(&said).or_else(|_| Url::parse(&format!("http://{said}"))).ok()
}

/// Whether a host is to be reached by way of a proxy: not this machine, nor what `NO_PROXY` names.
fn is_wanted(host: &str, port: u16, exceptions: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok().map(|address: IpAddr| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return false;
    }
    !exceptions.split(',').any(|one| {
        let one = one.trim().to_ascii_lowercase();
        one == "*" || names(&one, &host, address, port)
    })
}

/// Whether an exception names a host: an address, a range, a domain with all below it, or what is below a
/// domain; a port may follow.
fn names(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if let Some((network, bits)) = exception.split_once('/') {
        let range = network.parse::<IpAddr>().ok().zip(bits.parse::<u32>().ok());
        if let Some((network, bits)) = range {
            return address.is_some_and(|address| is_in(address, network, bits));
        }
    }
    let is_bare = exception.parse::<IpAddr>().is_ok();
    let (name, wanted) = match exception.rsplit_once(':') {
        Some((name, port)) if !is_bare => (name.trim_matches(['[', ']']), port),
        _ => (exception, ""),
    };
    if name.is_empty() || !(wanted.is_empty() || wanted == port.to_string()) {
        return false;
    }
    if let Ok(named) = name.parse::<IpAddr>() {
        return address == Some(named.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.ends_with(&format!(".{name}")),
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, length) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits()), u128::from(n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits(), n.to_bits(), 128),
        _ => return false,
    };
    // More bits than there are name nothing.
    let Some(free) = u32::checked_sub(length, bits) else { return false };
    address.checked_shr(free).unwrap_or(0) == network.checked_shr(free).unwrap_or(0)
}

/// The longest head of an answer that a proxy may give.
const LONGEST_HEAD: usize = 16 << 10;

/// Has an HTTP proxy connect its connection with a place.
pub async fn connect<S>(stream: &mut S, proxy: &Url, host: &str, port: u16) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(authorization) = proxy.authorization() {
        head.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    // Byte by byte: what follows the head is the server's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && !answer.ends_with(b"\n\n") {
        if answer.len() == LONGEST_HEAD {
            return Err(Error::other("the proxy's answer does not end"));
        }
        answer.push(stream.read_u8().await?);
    }
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim_end().splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(version), Some("200"), _) if version.starts_with("HTTP/1.") => Ok(()),
        (Some(version), Some(_), Some(text)) if version.starts_with("HTTP/1.") => {
            Err(Error::other(text.to_owned()))
        }
        (Some(version), Some(_), None) if version.starts_with("HTTP/1.") => {
            Err(Error::other("unknown status code"))
        }
        _ => Err(Error::other("malformed HTTP response of the proxy")),
    }
}

/// What a SOCKS proxy may say that does not connect (RFC 1928).
const REFUSALS: [&str; 8] = [
    "general SOCKS server failure",
    "connection not allowed by ruleset",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "TTL expired",
    "command not supported",
    "address type not supported",
];

/// The same of a SOCKS 5 proxy, which resolves names itself.
pub async fn socks<S>(stream: &mut S, proxy: &Url, host: &str, port: u16) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let too_long = |what: &str| Error::other(format!("{what} is too long for a SOCKS proxy"));
    let hello: &[u8] = if proxy.user.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(hello).await?;
    stream.flush().await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match (chosen, &proxy.user) {
        ([5, 0], _) => {}
        ([5, 2], Some((name, password))) => {
            let mut message = vec![1];
            for text in [name, password] {
                message.push(u8::try_from(text.len()).map_err(|_| too_long("a user's name"))?);
                message.extend_from_slice(text.as_bytes());
            }
            stream.write_all(&message).await?;
            stream.flush().await?;
            let mut verdict = [0; 2];
            stream.read_exact(&mut verdict).await?;
            if verdict[1] != 0 {
                return Err(Error::other("username/password authentication failed"));
            }
        }
        ([5, 255], _) => return Err(Error::other("no acceptable authentication methods")),
        ([5, _], _) => return Err(Error::other("unsupported authentication method")),
        ([version, _], _) => {
            return Err(Error::other(format!("unexpected protocol version {version}")));
        }
    }
    let mut message = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            message.push(1);
            message.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            message.push(4);
            message.extend_from_slice(&address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).map_err(|_| too_long("a host's name"))?;
            message.extend([3, length]);
            message.extend_from_slice(host.as_bytes());
        }
    }
    message.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&message).await?;
    stream.flush().await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    let [version, verdict, _, kind] = answer;
    if version != 5 {
        return Err(Error::other(format!("unexpected protocol version {version}")));
    }
    if verdict != 0 {
        let known = REFUSALS.get(usize::from(verdict) - 1).copied();
        let text = known.map_or_else(|| format!("code {verdict}"), str::to_owned);
        return Err(Error::other(format!("unknown error {text}")));
    }
    // From where it connected, which nobody asks.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(Error::other(format!("unknown address type {kind}"))),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_named_by_urls() {
        let read = |text: &str| match Url::parse(text) {
            Ok(url) => format!("{url:?} {:?}", url.user),
            Err(text) => text,
        };
        assert_eq!(read("http://p"), "Http p:80 None");
        assert_eq!(
            read("https://u:p%40x@p.example:8443/"),
            "Https p.example:8443 Some((\"u\", \"p@x\"))"
        );
        assert_eq!(read("socks5://[::1]"), "Socks ::1:1080 None");
        assert_eq!(read("SOCKS5h://[::1]:9"), "Socks ::1:9 None");
        assert_eq!(read("ftp://p"), "unsupported scheme \"ftp\", must be http, https, or socks5");
        assert_eq!(read("p:80"), "unsupported scheme \"p\", must be http, https, or socks5");
        assert_eq!(read(""), "unsupported scheme \"\", must be http, https, or socks5");
        assert_eq!(read("http://p:x"), "could not parse: http://p:x");
        for text in ["http://", "http://:80", "http://a b", "http://a\r\nb", "http://u@"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        assert_eq!(Url::parse("http://u:p@h").unwrap().authorization().unwrap(), "Basic dTpw");
    }

    fn check(server: &str, variables: &[(&str, &str)], expected: &str) {
        let server: ::http::Uri = server.parse().unwrap();
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
        };
        let found = environment(&server, &variable);
        assert_eq!(
            found.map_or("none".to_owned(), |url| format!("{url:?}")),
            expected,
            "{server} {variables:?}"
        );
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme() {
        let both = [("HTTPS_PROXY", "https://s:1"), ("http_proxy", "p:2")];
        check("https://h", &both, "Https s:1");
        check("http://h", &both, "Http p:2");
        check("https://h", &[("HTTP_PROXY", "p")], "none");
        check("https://h", &[("https_proxy", "a"), ("HTTPS_PROXY", "b")], "Http b:80");
        check("http://h", &[("HTTP_PROXY", "p"), ("REQUEST_METHOD", "GET")], "none");
        check("https://h", &[("HTTPS_PROXY", "socks5h://s")], "Socks s:1080");
        check("https://h", &[("HTTPS_PROXY", "ht tp://")], "none");
        check("https://h", &[], "none");
        for here in ["https://localhost:6443", "https://127.0.0.2:6443", "https://[::1]:1"] {
            check(here, &both, "none");
        }
    }

    #[test]
    fn some_hosts_are_reached_directly() {
        let wanted = |host: &str, exceptions: &str| is_wanted(host, 6443, exceptions);
        assert!(wanted("example.com", "") && wanted("example.com", "ample.com, example.co"));
        for (host, exceptions) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com", " x , Example.COM"),
            ("api.example.com", "example.com"),
            ("api.example.com", ".example.com"),
            ("api.example.com", "*.example.com"),
            ("api.example.com", "*"),
            ("example.com", "example.com:6443"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", "10.1.0.0/16"),
            ("10.1.2.3", "0.0.0.0/0"),
            ("10.1.2.3", "10.1.2.3:6443"),
            ("fd00::1", "fd00::1"),
            ("fd00::1", "[fd00::1]:6443"),
            ("fd00::1", "fd00::/8"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
        ] {
            assert!(!wanted(host, exceptions), "{host} {exceptions}");
        }
        for (host, exceptions) in [
            ("example.com", ".example.com"),
            ("example.com", "*.example.com"),
            ("example.com", "example.com:443"),
            ("10.1.2.3", "10.2.0.0/16"),
            ("10.1.2.3", "10.1.2.3:443"),
            ("10.1.2.3", "10.1.0.0/99"),
            ("10.1.2.3", "fd00::/8"),
            ("example.com", ":6443, ,/,10.0.0.0/"),
        ] {
            assert!(wanted(host, exceptions), "{host} {exceptions}");
        }
    }

    /// What we say to a proxy that answers so.
    async fn talk(
        url: &str,
        host: &str,
        answers: &[&[u8]],
        asked: &[usize],
    ) -> (Vec<u8>, std::result::Result<(), String>) {
        let url = Url::parse(url).unwrap();
        let (mut ours, mut theirs) = tokio::io::duplex(64 << 10);
        let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
        let asked = asked.to_vec();
        let proxy = async move {
            let mut heard = Vec::new();
            for (answer, length) in answers.iter().zip(asked) {
                let mut request = vec![0; length];
                theirs.read_exact(&mut request).await.unwrap();
                heard.extend(request);
                theirs.write_all(answer).await.unwrap();
            }
            heard
        };
        let ask = async {
            let outcome = match url.kind {
                Kind::Socks => socks(&mut ours, &url, host, 443).await,
                _ => connect(&mut ours, &url, host, 443).await,
            };
            outcome.map_err(|error| error.to_string())
        };
        tokio::join!(proxy, ask)
    }

    #[tokio::test]
    async fn an_http_proxy_is_asked_to_connect() {
        let plain = "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n";
        let answer = async |text: &str| {
            let (heard, outcome) = talk("http://p", "h", &[text.as_bytes()], &[plain.len()]).await;
            assert_eq!(String::from_utf8_lossy(&heard), plain);
            outcome
        };
        assert_eq!(answer("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await, Ok(()));
        assert_eq!(answer("HTTP/1.0 200\r\n\r\n").await, Ok(()));
        let refused = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 3\r\n\r\nno\n";
        assert_eq!(answer(refused).await, Err("Proxy Authentication Required".to_owned()));
        assert_eq!(answer("HTTP/1.1 502\r\n\r\n").await, Err("unknown status code".to_owned()));
        assert!(answer("SSH-2.0-x\r\n\r\n").await.unwrap_err().starts_with("malformed"));
        assert!(answer("HTTP/1.1 20").await.is_err(), "it broke off");
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LONGEST_HEAD));
        assert_eq!(answer(&endless).await, Err("the proxy's answer does not end".to_owned()));
        let known = "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\
                     Proxy-Authorization: Basic dTpw\r\n\r\n";
        let ok = b"HTTP/1.1 200 OK\r\n\r\n";
        let (heard, outcome) = talk("http://u:p@p", "fd00::1", &[ok], &[known.len()]).await;
        assert_eq!((&*String::from_utf8_lossy(&heard), outcome), (known, Ok(())));
    }

    #[tokio::test]
    async fn a_socks_proxy_is_asked_to_connect() {
        let ok = [5, 0, 0, 1, 1, 2, 3, 4, 0, 80];
        let (heard, outcome) = talk("socks5://p", "host", &[&[5, 0], &ok], &[3, 11]).await;
        assert_eq!(
            (&heard[..], outcome),
            (&b"\x05\x01\x00\x05\x01\x00\x03\x04host\x01\xbb"[..], Ok(()))
        );
        let (heard, outcome) =
            talk("socks5://u:pw@p", "1.2.3.4", &[&[5, 2], &[1, 0], &ok], &[4, 6, 10]).await;
        let expected = b"\x05\x02\x00\x02\x01\x01u\x02pw\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb";
        assert_eq!((&heard[..], outcome), (&expected[..], Ok(())));
        let refuses = async |url: &str, answers: &[&[u8]], asked: &[usize]| {
            talk(url, "host", answers, asked).await.1.unwrap_err()
        };
        assert_eq!(
            refuses("socks5://p", &[&[5, 255]], &[3]).await,
            "no acceptable authentication methods"
        );
        assert_eq!(refuses("socks5://p", &[&[4, 0]], &[3]).await, "unexpected protocol version 4");
        assert_eq!(
            refuses("socks5://u:p@p", &[&[5, 2], &[1, 1]], &[4, 5]).await,
            "username/password authentication failed"
        );
        assert_eq!(
            refuses("socks5://p", &[&[5, 0], &[5, 5, 0, 1]], &[3, 11]).await,
            "unknown error connection refused"
        );
        assert_eq!(
            refuses("socks5://p", &[&[5, 0], &[5, 200, 0, 1]], &[3, 11]).await,
            "unknown error code 200"
        );
        assert_eq!(
            refuses("socks5://p", &[&[5, 0], &[5, 0, 0, 9]], &[3, 11]).await,
            "unknown address type 9"
        );
        assert!(!refuses("socks5://p", &[&[5]], &[3]).await.is_empty(), "it broke off");
        let long = format!("socks5://{}:p@p", "u".repeat(300));
        assert!(refuses(&long, &[&[5, 2]], &[4]).await.contains("too long"));
    }
}
