//! Names of hosts: those that rules are about, and the one that a request asks for.
use std::fmt;

/// Which hosts a rule is about. Names are in lower case and have no dot at their end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    Any,
    Exact(String),
    /// `*.` before this name.
    Below {
        name: String,
        depth: Depth,
    },
}

/// What a wildcard stands for: one label in an Ingress, one or more in Gateway API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    One,
    Many,
}

impl Pattern {
    /// As an object writes it; empty: any.
    pub fn parse(text: &str, depth: Depth) -> Pattern {
        let text = plain(text);
        match text.strip_prefix("*.") {
            _ if text.is_empty() || text == "*" => Pattern::Any,
            Some(name) => Pattern::Below { name: name.to_owned(), depth },
            None => Pattern::Exact(text),
        }
    }

    pub fn matches(&self, host: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Exact(name) => name == host,
            Pattern::Below { name, depth } => match below(host, name) {
                Some(labels) => *depth == Depth::Many || !labels.contains('.'),
                None => false,
            },
        }
    }

    /// The hosts that both are about.
    pub fn and(&self, other: &Pattern) -> Option<Pattern> {
        match (self, other) {
            (Pattern::Any, pattern) | (pattern, Pattern::Any) => Some(pattern.clone()),
            (Pattern::Exact(name), pattern) | (pattern, Pattern::Exact(name)) => {
                pattern.matches(name).then(|| Pattern::Exact(name.clone()))
            }
            (Pattern::Below { name: one, .. }, Pattern::Below { name: two, .. }) => {
                if one == two || below(one, two).is_some() {
                    Some(self.clone())
                } else {
                    below(two, one).map(|_| other.clone())
                }
            }
        }
    }

    /// The larger, the more a pattern says.
    pub fn weight(&self) -> (u8, usize) {
        match self {
            Pattern::Any => (0, 0),
            Pattern::Below { name, .. } => (1, name.len()),
            Pattern::Exact(name) => (2, name.len()),
        }
    }
}

/// The labels before `.name`.
fn below<'h>(host: &'h str, name: &str) -> Option<&'h str> {
    let labels = host.strip_suffix(name)?.strip_suffix('.')?;
    (!labels.is_empty()).then_some(labels)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Any => f.write_str("*"),
            Pattern::Exact(name) => f.write_str(name),
            Pattern::Below { name, depth: Depth::One } => write!(f, "*.{name}"),
            Pattern::Below { name, depth: Depth::Many } => write!(f, "**.{name}"),
        }
    }
}

/// The name in a `Host` header: without its port, in lower case.
pub fn of_authority(authority: &str) -> String {
    let name = match authority.rfind(']') {
        // An address of IPv6 has colons of its own.
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or_default(),
    };
    plain(name)
}

fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, depth: Depth, host: &str) -> bool {
        Pattern::parse(pattern, depth).matches(host)
    }

    #[test]
    fn a_wildcard_is_one_label_of_an_ingress_and_more_of_a_gateway() {
        // From the table in the API's reference of IngressRule.
        assert!(matches("*.foo.com", Depth::One, "bar.foo.com"));
        assert!(!matches("*.foo.com", Depth::One, "baz.bar.foo.com"));
        assert!(!matches("*.foo.com", Depth::One, "foo.com"));
        assert!(matches("*.foo.com", Depth::Many, "baz.bar.foo.com"));
        assert!(!matches("*.foo.com", Depth::Many, "foo.com"));
        assert!(!matches("*.foo.com", Depth::Many, ".foo.com"));
        assert!(!matches("*.foo.com", Depth::Many, "barfoo.com"));
        assert!(matches("", Depth::One, "anything"));
        assert!(matches("FOO.com.", Depth::One, "foo.com"));
    }

    #[test]
    fn what_two_patterns_have_in_common() {
        let both = |one: &str, two: &str| {
            let parse = |text| Pattern::parse(text, Depth::Many);
            let found = parse(one).and(&parse(two));
            assert_eq!(found, parse(two).and(&parse(one)), "either way round");
            found.map(|pattern| pattern.to_string())
        };
        assert_eq!(both("", "a.com").as_deref(), Some("a.com"));
        assert_eq!(both("*.com", "a.com").as_deref(), Some("a.com"));
        assert_eq!(both("*.com", "*.a.com").as_deref(), Some("**.a.com"));
        assert_eq!(both("*.a.com", "*.b.com"), None);
        assert_eq!(both("*.a.com", "a.com"), None);
        assert_eq!(both("a.com", "b.com"), None);
    }

    #[test]
    fn ports_and_brackets_are_no_part_of_a_name() {
        assert_eq!(of_authority("Foo.Com:8080"), "foo.com");
        assert_eq!(of_authority("foo.com."), "foo.com");
        assert_eq!(of_authority("[::1]:80"), "[::1]");
        assert_eq!(of_authority(""), "");
    }
}
