//! URLs as Go's `net/url` reads them, with its errors: which are part of what a client is told.
use crate::quote::Quoted;
use std::fmt;

/// The parts of a URL that rules are about.
#[derive(Debug, Default, PartialEq)]
pub struct Url<'u> {
    pub scheme: String,
    /// What is before an `@`.
    pub user: Option<&'u str>,
    /// With its port.
    pub host: String,
    pub path: &'u str,
    pub query: &'u str,
    pub fragment: &'u str,
}

/// `parse "…": …`
#[derive(Debug, PartialEq)]
pub struct Error(String);

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'u> Url<'u> {
    pub fn parse(text: &'u str) -> Result<Url<'u>, Error> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let wrong = |whole: &str, fault: String| Error(format!("parse {}: {fault}", Quoted(whole)));
        let mut url = read(rest, false).map_err(|fault| wrong(rest, fault))?;
        url.fragment = fragment;
        escapes(fragment, Part::Path).map_err(|fault| wrong(text, fault))?;
        Ok(url)
    }

    /// A URL as a request names it: absolute, or a path; nothing may follow a `#`.
    pub fn parse_request(text: &'u str) -> Result<Url<'u>, Error> {
        read(text, true).map_err(|fault| Error(format!("parse {}: {fault}", Quoted(text))))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Path,
    Host,
    Zone,
}

fn read(text: &str, of_request: bool) -> Result<Url<'_>, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && of_request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        return Ok(Url { path: text, ..Url::default() });
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), query, ..Url::default() };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            // Opaque: `mailto:a@b`.
            return Ok(url);
        }
        if of_request {
            return Err("invalid URI for request".to_owned());
        }
        let first = rest.split('/').next().unwrap_or_default();
        if first.contains(':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let authority = rest
        .strip_prefix("//")
        .filter(|rest| !scheme.is_empty() || !of_request && !rest.starts_with('/'));
    let path = match authority {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (url.user, url.host) = parts_of_authority(authority)?;
            path
        }
        None => rest,
    };
    escapes(path, Part::Path)?;
    url.path = path;
    Ok(url)
}

/// Letters, then also digits and `+-.`, up to a colon.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parts_of_authority(authority: &str) -> Result<(Option<&str>, String), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, host(authority)?));
    };
    let host = self::host(host)?;
    let known = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(known) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    escapes(user, Part::Path)?;
    Ok((Some(user), host))
}

fn host(text: &str) -> Result<String, String> {
    match text.rfind('[') {
        Some(0) => literal(text)?,
        Some(_) => return Err("invalid IP-literal".to_owned()),
        // Only the port has a colon before it.
        None => port(&text[text.find(':').unwrap_or(text.len())..])?,
    }
    escapes(text, Part::Host)?;
    Ok(text.to_owned())
}

/// An address in brackets, maybe with a port.
fn literal(text: &str) -> Result<(), String> {
    let Some(close) = text.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    port(&text[close + 1..])?;
    let inside = &text[1..close];
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    escapes(address, Part::Host)?;
    escapes(zone, Part::Zone)?;
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(());
    }
    Err(match address.parse::<std::net::Ipv4Addr>() {
        Ok(_) => "invalid IP-literal".to_owned(),
        // Go says more of what is wrong with the address; this is the commonest.
        Err(_) => format!("invalid host: ParseAddr({}): unable to parse IP", Quoted(inside)),
    })
}

fn port(text: &str) -> Result<(), String> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    let sound = text.is_empty()
        || text.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if sound { Ok(()) } else { Err(format!("invalid port {} after host", Quoted(text))) }
}

/// Escapes are a percent sign and two digits, and a host has only some characters at all.
fn escapes(text: &str, part: Part) -> Result<(), String> {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '%' {
            let digits = rest.get(1..3).filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
            let shown = || {
                let end = rest.char_indices().nth(3).map_or(rest.len(), |(i, _)| i);
                format!("invalid URL escape {}", Quoted(&rest[..end]))
            };
            let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok()).ok_or_else(shown)?;
            // Only what is not ASCII may be escaped in a host; a zone may hide a little more.
            if part == Part::Host && byte < 0x80 && &rest[..3] != "%25" {
                return Err(shown());
            }
            rest = &rest[3..];
            continue;
        }
        let known =
            c.is_ascii_alphanumeric() || !c.is_ascii() || "-._~!$&'()*+,;=:[]<>\"".contains(c);
        if part != Part::Path && !known {
            let shown = Quoted(&rest[..c.len_utf8()]).to_string();
            return Err(format!("invalid character {shown} in host name"));
        }
        rest = &rest[c.len_utf8()..];
    }
    Ok(())
}
