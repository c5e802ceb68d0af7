//! URLs.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::{Entries, Value};
use crate::work::{Error, Work};
use std::collections::BTreeMap;
use std::sync::Arc;

pub static ROWS: &[Row] = &[
    row("url", &["(string) -> URL"], url, cost::traversal),
    row("isURL", &["(string) -> bool"], is_url, cost::one),
    row(
        "getScheme",
        &["URL.() -> string"],
        |_, args| part(args, |url| url.scheme.clone()),
        cost::one,
    ),
    row("getHost", &["URL.() -> string"], |_, args| part(args, |url| url.host.clone()), cost::one),
    row(
        "getHostname",
        &["URL.() -> string"],
        |_, args| part(args, |url| url.hostname().to_owned()),
        cost::one,
    ),
    row(
        "getPort",
        &["URL.() -> string"],
        |_, args| part(args, |url| url.port().to_owned()),
        cost::one,
    ),
    row(
        "getEscapedPath",
        &["URL.() -> string"],
        |_, args| part(args, Url::escaped_path),
        cost::one,
    ),
    row("getQuery", &["URL.() -> map(string, list(string))"], query, cost::one),
];

#[derive(Debug, PartialEq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    whole: String,
}

impl Url {
    fn parse(text: &str) -> Result<Url, api::url::Error> {
        // The stricter grammar of the two decides; the other tells the fragment apart.
        api::url::Url::parse_request(text)?;
        let url = api::url::Url::parse(text)?;
        Ok(Url {
            scheme: url.scheme,
            host: url.host,
            path: url.path.to_owned(),
            query: url.query.to_owned(),
            whole: text.to_owned(),
        })
    }

    fn hostname(&self) -> &str {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.host,
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => "",
        }
    }

    /// As it was written if that is a valid escaping, as Go has it.
    fn escaped_path(&self) -> String {
        let valid = self
            .path
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&byte));
        if valid {
            return self.path.clone();
        }
        let mut escaped = String::new();
        for byte in self.path.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte) {
                escaped.push(byte.into());
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }
}

fn url<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [text] = args else { return Err(Error::NoOverload) };
    let text = text.as_str().ok_or(Error::NoOverload)?;
    match Url::parse(text) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(error) => {
            Err(Error::Said(format!("URL parse error during conversion from string: {error}")))
        }
    }
}

fn is_url<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [text] = args else { return Err(Error::NoOverload) };
    let text = text.as_str().ok_or(Error::NoOverload)?;
    Ok(Value::Bool(api::url::Url::parse_request(text).is_ok()))
}

fn part<'a>(args: &[Value<'a>], of: fn(&Url) -> String) -> Outcome<'a> {
    match args {
        [Value::Url(url)] => Ok(Value::text(of(url))),
        _ => Err(Error::NoOverload),
    }
}

fn query<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = args else { return Err(Error::NoOverload) };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        for (key, value) in form_urlencoded::parse(pair.as_bytes()) {
            found.entry(key.into_owned()).or_default().push(value.into_owned());
        }
    }
    let mut entries = Entries::default();
    for (key, values) in found {
        entries.insert(Value::text(key), Value::texts(values));
    }
    Ok(Value::map(entries))
}
