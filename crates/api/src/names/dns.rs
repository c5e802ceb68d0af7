//! Names that must be good for DNS.

use super::Faults;
use super::shape::{alnum, bounded, lower, max_bytes, max_length, regex_fault};
use crate::field::{Error, ErrorList, Path};

pub const DNS1123_LABEL_MAX: usize = 63;
pub const DNS1123_SUBDOMAIN_MAX: usize = 253;
/// Leaves room in a label for what the CronJob controller adds to a Job's name.
pub const CRON_JOB_NAME_MAX: usize = DNS1123_LABEL_MAX - 11;

/// `web-0`: lower-case letters, digits and inner dashes, at most 63.
pub fn dns1123_label(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_LABEL_MAX {
        faults.push(max_length(DNS1123_LABEL_MAX));
    }
    if !is_label(value) {
        faults.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_fault(LABEL_MESSAGE, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

/// `web.example.com`: labels joined by dots, at most 253 in all.
pub fn dns1123_subdomain(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX {
        faults.push(max_length(DNS1123_SUBDOMAIN_MAX));
    }
    if !is_subdomain(value) {
        faults.push(subdomain_fault());
    }
    faults
}

/// A subdomain whose labels may hold underscores and begin with one.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX {
        faults.push(max_length(DNS1123_SUBDOMAIN_MAX));
    }
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        bounded(label.as_bytes(), lower, |b| lower(b) || b == b'-' || b == b'_', lower)
    };
    if !value.split('.').all(is_label) {
        faults.push(regex_fault(UNDERSCORE_MESSAGE, UNDERSCORE, &["example.com"]));
    }
    faults
}

/// A subdomain in upper or lower case.
pub fn dns1123_subdomain_caseless(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX {
        faults.push(max_bytes(DNS1123_SUBDOMAIN_MAX));
    }
    let is_label = |label: &str| bounded(label.as_bytes(), alnum, |b| alnum(b) || b == b'-', alnum);
    if !value.split('.').all(is_label) {
        faults.push(regex_fault(CASELESS_MESSAGE, SUBDOMAIN, &["Example.com"]));
    }
    faults
}

/// A label that begins with a letter, as names of Services must.
pub fn dns1035_label(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_LABEL_MAX {
        faults.push(max_length(DNS1123_LABEL_MAX));
    }
    let first = |b: u8| b.is_ascii_lowercase();
    if !bounded(value.as_bytes(), first, |b| lower(b) || b == b'-', lower) {
        faults.push(regex_fault(DNS1035_MESSAGE, DNS1035, &["my-name", "abc-123"]));
    }
    faults
}

/// `*.example.com`.
pub fn wildcard_dns1123_subdomain(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX {
        faults.push(max_length(DNS1123_SUBDOMAIN_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        faults.push(regex_fault(WILDCARD_MESSAGE, WILDCARD, &["*.example.com"]));
    }
    faults
}

/// At least three labels, as names of finalizing domains must have.
pub fn fully_qualified_name(path: &Path<'_>, name: &str) -> ErrorList {
    let faults = dns1123_subdomain(name);
    if name.is_empty() {
        vec![Error::required(path, "")]
    } else if !faults.is_empty() {
        vec![Error::invalid(path, name, faults.join(","))]
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        vec![Error::invalid(path, name, detail)]
    } else {
        vec![]
    }
}

/// At least two labels; a trailing dot is allowed.
pub fn fully_qualified_domain_name(path: &Path<'_>, name: &str) -> ErrorList {
    if name.is_empty() {
        return vec![Error::required(path, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let faults = dns1123_subdomain(name);
    if !faults.is_empty() {
        return vec![Error::invalid(path, name, faults.join(","))];
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return vec![Error::invalid(path, name, detail)];
    }
    let faulty = name.split('.').map(|label| (label, dns1123_label(label)));
    match faulty.into_iter().find(|(_, faults)| !faults.is_empty()) {
        Some((label, faults)) => vec![Error::invalid(path, label, faults.join(","))],
        None => vec![],
    }
}

/// An object's name, or with `prefix` its `generateName`, which may end in a dash.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Faults {
    masked(name, prefix, dns1123_subdomain)
}

/// An object's name, or with `prefix` its `generateName`, which may end in a dash.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Faults {
    masked(name, prefix, dns1123_label)
}

/// An object's name, or with `prefix` its `generateName`, which may end in a dash.
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Faults {
    masked(name, prefix, dns1035_label)
}

/// Random characters will follow the dash; upstream takes off one character more than the dash
/// and so do we, as it decides what `a.-` is.
fn masked(name: &str, prefix: bool, check: fn(&str) -> Faults) -> Faults {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest.push('a');
            check(&rest)
        }
        _ => check(name),
    }
}

pub fn is_label(value: &str) -> bool {
    bounded(value.as_bytes(), lower, |b| lower(b) || b == b'-', lower)
}

pub fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

pub fn subdomain_fault() -> String {
    regex_fault(SUBDOMAIN_MESSAGE, SUBDOMAIN, &["example.com"])
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const CASELESS_MESSAGE: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character";
const UNDERSCORE: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const UNDERSCORE_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric \
    character";
const DNS1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric \
    characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const WILDCARD: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const WILDCARD_MESSAGE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a \
    valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and \
    end with an alphanumeric character";

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(faults: Faults, want: Expect) {
        want.assert_eq(&faults.join("\n"));
    }

    #[test]
    fn labels_are_short_lower_case_and_without_dots() {
        for good in ["a", "a-1", "0", "1--a", &"a".repeat(63)] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        check(dns1123_label("a.b"), expect!["must not contain dots"]);
        check(
            dns1123_label("-A"),
            expect![
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ],
        );
        check(dns1123_label(&"a".repeat(64)), expect!["must be no more than 63 characters"]);
    }

    #[test]
    fn subdomains_are_labels_joined_by_dots() {
        for good in ["a", "a.b", "0.1.a-2"] {
            assert!(dns1123_subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a_b", "é", "a-", "a.-b"] {
            assert!(!dns1123_subdomain(bad).is_empty(), "{bad}");
        }
        for (name, good) in [("*.a", true), ("*", false), ("a.*.b", false), ("*a.b", false)] {
            assert_eq!(wildcard_dns1123_subdomain(name).is_empty(), good, "{name}");
        }
    }

    #[test]
    fn a_generate_name_may_end_in_a_dash() {
        assert!(name_is_dns_subdomain("web-", true).is_empty());
        assert!(!name_is_dns_subdomain("web-", false).is_empty());
        assert!(!name_is_dns_subdomain("-", true).is_empty());
        assert!(!name_is_dns1035_label("0-", false).is_empty());
    }
}
