//! What headers say about who is asking. One that is there and cannot be read is a failure, never
//! the same as one that is not there: else whoever is to act as another would act as himself.
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Why a header says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value of the header {0} is not UTF-8")]
pub struct Unreadable(pub HeaderName);

/// The text of a value. Names of people are not all ASCII.
pub fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, Unreadable> {
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Unreadable(name.clone()))?;
    Ok(text.to_owned())
}

/// Every value of these headers, in order.
pub fn all<'n>(
    headers: &HeaderMap,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Vec<String>, Unreadable> {
    let mut values = Vec::new();
    for name in names.into_iter().filter_map(|name| name.parse::<HeaderName>().ok()) {
        for value in headers.get_all(&name) {
            values.push(text(&name, value)?);
        }
    }
    Ok(values)
}

/// The values of all headers whose names begin so, with the key that the rest of the name spells.
pub fn below(headers: &HeaderMap, prefix: &str) -> Result<Vec<(String, String)>, Unreadable> {
    let mut found = Vec::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(prefix) {
            found.push((unescaped(key), text(name, value)?));
        }
    }
    Ok(found)
}

/// The key that the name of a header spells: it is percent-encoded, as a name takes no slash. What
/// is not encoded well stands for itself.
fn unescaped(key: &str) -> String {
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        let is_hex = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        if byte == b'%' && !(is_hex(bytes.next()) && is_hex(bytes.next())) {
            return key.to_owned();
        }
    }
    let decoded = percent_encoding::percent_decode_str(key).decode_utf8();
    decoded.map_or_else(|_| key.to_owned(), |decoded| decoded.into_owned())
}

/// What a protocol of a WebSocket begins with that is a token: browsers can send no header.
const TOKEN_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// The protocols that a WebSocket's client names: those that are tokens, and the others.
pub fn protocols(headers: &HeaderMap) -> (Vec<&[u8]>, Vec<&[u8]>) {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .partition(|protocol| protocol.starts_with(TOKEN_PROTOCOL))
}

/// What follows the marker of a token among protocols.
pub fn token_of(protocol: &[u8]) -> &[u8] {
    protocol.strip_prefix(TOKEN_PROTOCOL).unwrap_or_default()
}

/// Takes off what gives somebody a right here, before others see the request.
pub fn remove_credentials(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    let (tokens, others) = protocols(headers);
    if !tokens.is_empty() {
        let others = HeaderValue::from_bytes(&others.join(&b","[..]));
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        if let Some(others) = others.ok().filter(|others| !others.is_empty()) {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
        }
    }
    let acting = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
    let acting: Vec<HeaderName> = headers.keys().filter(acting).cloned().collect();
    for name in acting {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = name.parse::<HeaderName>().expect("a name");
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn what_cannot_be_read_is_not_left_out() {
        let given = headers(&[("a", b"1"), ("a", "jürgen".as_bytes()), ("x-k%2Fl", b"\xff")]);
        assert_eq!(all(&given, ["b", "a"]), Ok(vec!["1".to_owned(), "jürgen".to_owned()]));
        let name = HeaderName::from_static("x-k%2fl");
        assert_eq!(below(&given, "x-"), Err(Unreadable(name)));
    }

    #[test]
    fn a_name_spells_a_key() {
        for (name, key) in [
            ("scopes", "scopes"),
            ("example.com%2fscopes", "example.com/scopes"),
            ("%41", "A"),
            ("100%", "100%"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(unescaped(name), key, "{name}");
        }
    }

    #[test]
    fn nobody_else_sees_what_gives_a_right_here() {
        let mut given = headers(&[
            ("authorization", b"Bearer x"),
            ("impersonate-user", b"jane"),
            ("impersonate-extra-scopes", b"all"),
            ("sec-websocket-protocol", b"base64url.bearer.authorization.k8s.io.eA, one"),
            ("sec-websocket-protocol", b"two,base64url.bearer.authorization.k8s.io.eQ"),
            ("cookie", b"theirs"),
        ]);
        remove_credentials(&mut given);
        let expected = headers(&[("cookie", b"theirs"), ("sec-websocket-protocol", b"one,two")]);
        assert_eq!(given, expected);
        let mut given =
            headers(&[("sec-websocket-protocol", b"base64url.bearer.authorization.k8s.io.eA")]);
        remove_credentials(&mut given);
        assert!(given.is_empty());
    }
}
