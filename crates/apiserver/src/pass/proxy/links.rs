//! Pages seen through a proxy: their links lead below the path that they are seen at.
//!
//! A page that says `/style.css` means its own server's; a browser would ask us. So absolute paths in
//! the attributes that hold addresses, and in redirects, get the proxy's path before them
//! (`apimachinery/pkg/util/proxy/transport.go`). The page goes through as it comes: what is kept is
//! at most one tag.
use std::mem;

/// Attributes that hold an address, by element.
#[rustfmt::skip]
const ADDRESSES: &[(&str, &[&str])] = &[
    ("a", &["href"]), ("applet", &["codebase"]), ("area", &["href"]), ("audio", &["src"]),
    ("base", &["href"]), ("blockquote", &["cite"]), ("body", &["background"]),
    ("button", &["formaction"]), ("command", &["icon"]), ("del", &["cite"]), ("embed", &["src"]),
    ("form", &["action"]), ("frame", &["longdesc", "src"]), ("head", &["profile"]),
    ("html", &["manifest"]), ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]), ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]), ("link", &["href"]), ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]), ("script", &["src"]), ("source", &["src"]), ("video", &["poster", "src"]),
];

/// Elements whose content is no markup.
const TEXT: &[&str] =
    &["script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "plaintext"];

/// What has a longer tag is no page: it is passed on as it comes from there.
const LONGEST: usize = 64 * 1024;

/// Where a page is seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The path of the proxy, without a slash at its end.
    pub at: String,
    /// What the page's own server is called by us: host and port.
    pub server: String,
    /// What we are called by the client.
    pub host: String,
}

impl Seen {
    /// An address on the page as it leads through the proxy; none if it does already, leads
    /// elsewhere, or is relative.
    pub fn rewritten(&self, address: &str) -> Option<String> {
        let (scheme, rest) = match address.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), Some(rest)),
            _ => (None, address.strip_prefix("//")),
        };
        let Some(rest) = rest else {
            return self.path(address);
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        if host == self.host {
            let scheme = scheme.map_or(String::new(), |scheme| format!("{scheme}:"));
            return Some(format!("{scheme}//{host}{}", self.path(path)?));
        }
        match host == self.server && path.starts_with('/') {
            true => Some(self.path(path).unwrap_or_else(|| path.to_owned())),
            false => None,
        }
    }

    fn path(&self, address: &str) -> Option<String> {
        let end = address.find(['?', '#']).unwrap_or(address.len());
        let (path, rest) = address.split_at(end);
        if !path.starts_with('/') || path.starts_with(&self.at) {
            return None;
        }
        let slash = if path.ends_with('/') { "/" } else { "" };
        let path = cleaned(path);
        let path = path.trim_end_matches('/');
        Some(format!("{}{path}{slash}{rest}", self.at))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// An absolute path without `.`, `..` and empty parts.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A page on its way.
pub struct Page {
    seen: Seen,
    /// What has come and may be half a tag.
    rest: Vec<u8>,
    state: State,
}

#[derive(Clone, PartialEq)]
enum State {
    Markup,
    /// A comment, or an element whose content is no markup: as it is until this comes.
    Until(String),
    /// No page after all.
    GivenUp,
}

impl Page {
    pub fn new(seen: Seen) -> Page {
        Page { seen, rest: Vec::new(), state: State::Markup }
    }

    /// What can be passed on now that this has come too.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut rest = mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(rest.len() + 64);
        let mut at = 0;
        while at < rest.len() {
            let passed = match self.state.clone() {
                State::GivenUp => Some(rest.len() - at),
                State::Until(end) => self.until(&rest[at..], end.as_bytes()),
                State::Markup if rest[at] == b'<' => {
                    match self.markup(&rest[at..], &mut out) {
                        // It is written already.
                        Some(length) => {
                            at += length;
                            continue;
                        }
                        None => None,
                    }
                }
                State::Markup => {
                    let next = rest[at..].iter().position(|byte| *byte == b'<');
                    Some(next.unwrap_or(rest.len() - at))
                }
            };
            let Some(passed) = passed.filter(|passed| *passed > 0) else { break };
            out.extend_from_slice(&rest[at..at + passed]);
            at += passed;
        }
        self.rest = rest.split_off(at);
        if self.rest.len() > LONGEST {
            self.state = State::GivenUp;
            out.append(&mut self.rest);
        }
        out
    }

    /// What is left when the page has ended.
    pub fn end(&mut self) -> Vec<u8> {
        mem::take(&mut self.rest)
    }

    /// How much can be passed on of what goes on until `end`.
    fn until(&mut self, text: &[u8], end: &[u8]) -> Option<usize> {
        match text.windows(end.len()).position(|window| window.eq_ignore_ascii_case(end)) {
            Some(found) => {
                self.state = State::Markup;
                Some(found + end.len())
            }
            // The end may have begun.
            None => Some((text.len() + 1).saturating_sub(end.len())),
        }
    }

    /// Writes what begins at the start of the text, a comment's or tag's bracket. How long it was;
    /// none as long as it does not end.
    fn markup(&mut self, text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        const COMMENT: &[u8] = b"<!--";
        if COMMENT.starts_with(&text[..text.len().min(COMMENT.len())]) {
            if text.len() < COMMENT.len() {
                return None;
            }
            self.state = State::Until("-->".into());
            out.extend_from_slice(COMMENT);
            return Some(COMMENT.len());
        }
        match text.get(1) {
            None => None,
            Some(byte) if byte.is_ascii_alphabetic() => {
                let end = end_of_tag(text)?;
                match self.tag(&text[..end]) {
                    Some(tag) => out.extend(tag),
                    None => out.extend_from_slice(&text[..end]),
                }
                Some(end)
            }
            Some(_) => {
                out.push(b'<');
                Some(1)
            }
        }
    }

    /// A tag with its addresses as they lead through the proxy.
    fn tag(&mut self, tag: &[u8]) -> Option<Vec<u8>> {
        let name_end =
            1 + tag[1..].iter().position(|b| b.is_ascii_whitespace() || b"/>".contains(b))?;
        let name = String::from_utf8_lossy(&tag[1..name_end]).to_ascii_lowercase();
        if TEXT.contains(&&*name) {
            self.state = State::Until(format!("</{name}"));
        }
        let (_, wanted) = ADDRESSES.iter().find(|(element, _)| *element == name)?;
        let mut out = tag[..name_end].to_vec();
        let mut at = name_end;
        while let Some(attribute) = next_attribute(tag, at) {
            let key = String::from_utf8_lossy(&tag[attribute.name.clone()]).to_ascii_lowercase();
            let value = std::str::from_utf8(&tag[attribute.value.clone()]).ok();
            let address = value.filter(|_| wanted.contains(&&*key));
            let rewritten = address.and_then(|address| self.seen.rewritten(address));
            out.extend_from_slice(&tag[at..attribute.value.start]);
            match rewritten {
                Some(address) => out.extend_from_slice(address.as_bytes()),
                None => out.extend_from_slice(&tag[attribute.value.clone()]),
            }
            at = attribute.value.end;
        }
        out.extend_from_slice(&tag[at..]);
        Some(out)
    }
}

/// The length of a tag, quoted brackets being none.
fn end_of_tag(text: &[u8]) -> Option<usize> {
    let mut quote = None;
    let mut before = b' ';
    for (index, byte) in text.iter().enumerate() {
        match (quote, *byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) if before == b'=' => quote = Some(byte),
            (None, b'>') => return Some(index + 1),
            (None, _) => {}
        }
        if !byte.is_ascii_whitespace() {
            before = *byte;
        }
    }
    None
}

struct Attribute {
    name: std::ops::Range<usize>,
    /// Without its quotes.
    value: std::ops::Range<usize>,
}

fn next_attribute(tag: &[u8], mut at: usize) -> Option<Attribute> {
    let is_space = |at: usize| tag.get(at).is_some_and(u8::is_ascii_whitespace);
    // The quote that ended the last one, too.
    while is_space(at) || tag.get(at).is_some_and(|byte| b"/\"'".contains(byte)) {
        at += 1;
    }
    let start = at;
    while tag.get(at).is_some_and(|b| !b.is_ascii_whitespace() && !b"=/>".contains(b)) {
        at += 1;
    }
    if start == at {
        return None;
    }
    let name = start..at;
    while is_space(at) {
        at += 1;
    }
    if tag.get(at) != Some(&b'=') {
        return Some(Attribute { value: name.end..name.end, name });
    }
    at += 1;
    while is_space(at) {
        at += 1;
    }
    let value = match tag.get(at)? {
        quote @ (b'"' | b'\'') => {
            let length = tag[at + 1..].iter().position(|byte| byte == quote)?;
            at + 1..at + 1 + length
        }
        _ => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'>';
            at..at + tag[at..].iter().position(ends)?
        }
    };
    Some(Attribute { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let at = "/api/v1/namespaces/a/pods/p/proxy".into();
        Seen { at, server: "10.0.0.1:80".into(), host: "api:6443".into() }
    }

    #[test]
    fn an_address_leads_through_the_proxy() {
        let at = seen().at;
        for (address, expected) in [
            ("/x", Some(format!("{at}/x"))),
            ("/x/?a=/b#c", Some(format!("{at}/x/?a=/b#c"))),
            ("/", Some(format!("{at}/"))),
            ("/a/../../b//c", Some(format!("{at}/b/c"))),
            ("http://10.0.0.1:80/x", Some(format!("{at}/x"))),
            ("//10.0.0.1:80/x", Some(format!("{at}/x"))),
            ("https://api:6443/x", Some(format!("https://api:6443{at}/x"))),
            ("x/y", None),
            ("?a=b", None),
            ("#top", None),
            ("", None),
            ("http://elsewhere/x", None),
            ("//elsewhere/x", None),
            ("mailto:x@y", None),
            ("/api/v1/namespaces/a/pods/p/proxy/x", None),
        ] {
            assert_eq!(seen().rewritten(address), expected, "{address}");
        }
    }

    /// However a page is cut, it comes out the same.
    fn check(page: &str, expected: &str) {
        let expected = expected.replace("@", &seen().at);
        for step in 1..=page.len() {
            let mut passing = Page::new(seen());
            let mut out = Vec::new();
            for chunk in page.as_bytes().chunks(step) {
                out.extend(passing.take(chunk));
            }
            out.extend(passing.end());
            assert_eq!(String::from_utf8_lossy(&out), expected, "in steps of {step}");
        }
    }

    #[test]
    fn links_are_rewritten_and_nothing_else() {
        check(
            r#"<!DOCTYPE html><html><a href="/x">y</a> 1 < 2 <IMG SRC='/i.png' alt="a > b" width=1>"#,
            r#"<!DOCTYPE html><html><a href="@/x">y</a> 1 < 2 <IMG SRC='@/i.png' alt="a > b" width=1>"#,
        );
        check(
            "<link href=/a rel=x><a name=/b href = \"/c\">",
            "<link href=@/a rel=x><a name=/b href = \"@/c\">",
        );
        check(
            "<!-- <a href=\"/x\"> --><p title=\"/x\">",
            "<!-- <a href=\"/x\"> --><p title=\"/x\">",
        );
        check(
            "<script src='/s.js'>if (a<b) '<a href=\"/x\">'</script><a href='/x'>",
            "<script src='@/s.js'>if (a<b) '<a href=\"/x\">'</script><a href='@/x'>",
        );
        check(
            "<a href=\"http://elsewhere/x\"><img/><br/><a href=\"",
            "<a href=\"http://elsewhere/x\"><img/><br/><a href=\"",
        );
        check(
            "<form action=\"/go\" method=post><input disabled src=\"/i\"/>",
            "<form action=\"@/go\" method=post><input disabled src=\"@/i\"/>",
        );
    }

    #[test]
    fn a_tag_without_an_end_is_passed_on() {
        let mut page = Page::new(seen());
        let long = format!("<a href=\"/{}", "x".repeat(2 * LONGEST));
        let mut out = page.take(long.as_bytes());
        out.extend(page.end());
        assert_eq!(out, long.as_bytes());
    }
}
