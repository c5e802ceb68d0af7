//! Paths, in one form for those who match them and those who get them.
//!
//! Whoever sees another path than the one that was matched can be led past a rule: `/public/../admin`
//! begins like one and is the other. So dots are resolved before anything is compared, and what is sent on
//! has none left. Repeated slashes count as one where rules are looked for, as many servers read them; they
//! are sent as they came, for in some paths they mean something.

/// A request's path.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// What is sent on.
    pub sent: String,
    /// What rules are compared with.
    pub matched: String,
}

/// It reads differently to different servers.
#[derive(Debug, PartialEq, Eq)]
pub struct Ambiguous;

impl Path {
    pub fn read(text: &str) -> Result<Path, Ambiguous> {
        let decoded = unescape(text)?;
        let mut sent: Vec<&str> = Vec::new();
        let parts = decoded.strip_prefix('/').unwrap_or(&decoded);
        let mut ends_in_folder = false;
        for part in parts.split('/') {
            ends_in_folder = matches!(part, "." | "..");
            match part {
                "." => {}
                ".." => drop(sent.pop()),
                part if hides_dots(part) => return Err(Ambiguous),
                part => sent.push(part),
            }
        }
        if ends_in_folder {
            sent.push("");
        }
        let matched: Vec<&str> = {
            let last = sent.len().saturating_sub(1);
            let all = sent.iter().enumerate();
            all.filter(|(i, part)| !part.is_empty() || *i == last).map(|(_, part)| *part).collect()
        };
        let joined = |parts: &[&str]| format!("/{}", parts.join("/"));
        Ok(Path { matched: joined(&matched), sent: joined(&sent) })
    }
}

/// Escapes of what needs none are undone; others are in capitals.
fn unescape(text: &str) -> Result<String, Ambiguous> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        let escape = rest.get(at..at + 3).ok_or(Ambiguous)?;
        let digits = &escape[1..];
        // A sign would be taken for a part of a number.
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Ambiguous);
        }
        let byte = u8::from_str_radix(digits, 16).map_err(|_| Ambiguous)?;
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                plain.push(byte.into());
            }
            // Where a text ends is a question of language.
            0 => return Err(Ambiguous),
            _ => plain.push_str(&escape.to_ascii_uppercase()),
        }
        rest = &rest[at + 3..];
    }
    plain.push_str(rest);
    Ok(plain)
}

/// To a server that takes `%2F` or `\` for a slash, or drops what follows a `;`, there are dots in it that
/// lead elsewhere.
fn hides_dots(part: &str) -> bool {
    if !part.contains("..") {
        return false;
    }
    let plain = part.replace("%2F", "/").replace("%5C", "/");
    plain.split(['/', '\\']).any(|inner| inner.split(';').next() == Some(".."))
}

/// A path that an object has, as requests' are written.
pub fn of_rule(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' => written.push(byte.into()),
            _ => written.push_str(&format!("%{byte:02X}")),
        }
    }
    Path::read(&written).map_or(written, |path| path.matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_leads_past_a_rule() {
        let read = |text: &str| match Path::read(text) {
            Ok(path) => format!("{} {}", path.sent, path.matched),
            Err(Ambiguous) => "refused".to_owned(),
        };
        for (asked, expected) in [
            ("/", "/ /"),
            ("", "/ /"),
            ("*", "/* /*"),
            ("/a/b", "/a/b /a/b"),
            ("/a/b/", "/a/b/ /a/b/"),
            ("/public/../admin", "/admin /admin"),
            ("/public/%2e%2E/admin", "/admin /admin"),
            ("/public/.%2e/admin", "/admin /admin"),
            ("/../../admin", "/admin /admin"),
            ("/a/.", "/a/ /a/"),
            ("/a/b/..", "/a/ /a/"),
            ("//admin", "//admin /admin"),
            ("/a//b///c", "/a//b///c /a/b/c"),
            ("/a//../b", "/a/b /a/b"),
            ("/a//", "/a// /a/"),
            ("/%61dmin", "/admin /admin"),
            ("/a%2fb", "/a%2Fb /a%2Fb"),
            ("/a/..%2fadmin", "refused"),
            ("/a/%2e%2e%2fadmin", "refused"),
            ("/a/..%5cadmin", "refused"),
            ("/a/..\\admin", "refused"),
            ("/a/..;/admin", "refused"),
            ("/a..b/c..", "/a..b/c.. /a..b/c.."),
            ("/a%", "refused"),
            ("/a%zz", "refused"),
            ("/a%+1", "refused"),
            ("/a%00", "refused"),
            ("/%c3%bc", "/%C3%BC /%C3%BC"),
        ] {
            assert_eq!(read(asked), expected, "{asked}");
        }
        assert_eq!(of_rule("/ü b"), "/%C3%BC%20b");
        assert_eq!(of_rule("/a/"), "/a/");
    }
}
