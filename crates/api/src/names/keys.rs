//! Names that are keys or values: of labels, of ConfigMaps, of environment variables, of ports.

use super::Faults;
use super::dns::{DNS1123_SUBDOMAIN_MAX, is_subdomain, subdomain_fault};
use super::shape::{all, alnum, bounded, inclusive_range, max_bytes, max_length, regex_fault};
use crate::field::{Error, ErrorList, Path};

/// The key of a label or an annotation, a finalizer, a resource: `name` or `example.com/name`.
pub fn qualified_name(value: &str) -> Faults {
    let mut faults = Faults::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            let fault = regex_fault(KEY_MESSAGE, KEY, KEY_EXAMPLES);
            return vec![format!(
                "a valid label key {fault} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > DNS1123_SUBDOMAIN_MAX {
                    faults.push(format!("prefix part {}", max_bytes(DNS1123_SUBDOMAIN_MAX)));
                }
                if !is_subdomain(prefix) {
                    faults.push(format!("prefix part {}", subdomain_fault()));
                }
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > KEY_MAX {
        faults.push(format!("name part {}", max_bytes(KEY_MAX)));
    }
    if !is_key(name) {
        faults.push(format!("name part {}", regex_fault(KEY_MESSAGE, KEY, KEY_EXAMPLES)));
    }
    faults
}

/// A qualified name that must have its prefix: `example.com/name`.
pub fn prefixed_label_key(value: &str) -> Faults {
    let faults = qualified_name(value);
    if faults.is_empty() && !value.contains('/') {
        return vec!["must include a prefix (e.g. 'example.com/key')".to_owned()];
    }
    faults
}

/// A label's value: empty, or like the name part of its key.
pub fn label_value(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > KEY_MAX {
        faults.push(max_bytes(KEY_MAX));
    }
    if !value.is_empty() && !is_key(value) {
        let examples = &["MyValue", "my_value", "12345"];
        faults.push(regex_fault(VALUE_MESSAGE, VALUE, examples));
    }
    faults
}

fn is_key(value: &str) -> bool {
    bounded(value.as_bytes(), alnum, |b| alnum(b) || matches!(b, b'-' | b'_' | b'.'), alnum)
}

/// A key of a ConfigMap or Secret, which may become a file's name.
pub fn config_map_key(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX {
        faults.push(max_length(DNS1123_SUBDOMAIN_MAX));
    }
    if !all(value, |b| alnum(b) || matches!(b, b'-' | b'_' | b'.')) {
        let message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        let examples = &["key.name", "KEY_NAME", "key-name"];
        faults.push(regex_fault(message, "[-._a-zA-Z0-9]+", examples));
    }
    faults.extend(leaves_the_directory(value));
    faults
}

/// The name of an environment variable, in the stricter form.
pub fn env_var_name(value: &str) -> Faults {
    let mut faults = Faults::new();
    let first = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_' | b'.');
    let other = |b: u8| first(b) || b.is_ascii_digit();
    if !bounded(value.as_bytes(), first, other, other) {
        let message = "a valid environment variable name must consist of alphabetic characters, \
                       digits, '_', '-', or '.', and must not start with a digit";
        let examples = &["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
        faults.push(regex_fault(message, "[-._a-zA-Z][-._a-zA-Z0-9]*", examples));
    }
    faults.extend(leaves_the_directory(value));
    faults
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn relaxed_env_var_name(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.is_empty() {
        faults.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        let message = "a valid environment variable name must consist only of printable ASCII \
                       characters other than '='";
        faults.push(message.to_owned());
    }
    faults
}

fn leaves_the_directory(value: &str) -> Option<String> {
    let fault = match value {
        "." => "must not be '.'",
        ".." => "must not be '..'",
        _ if value.starts_with("..") => "must not start with '..'",
        _ => return None,
    };
    Some(fault.to_owned())
}

pub fn c_identifier(value: &str) -> Faults {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let other = |b: u8| alnum(b) || b == b'_';
    if bounded(value.as_bytes(), first, other, other) {
        return Faults::new();
    }
    let message = "a valid C identifier must start with alphabetic character or '_', followed by \
                   a string of alphanumeric characters or '_'";
    vec![regex_fault(message, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// The name of a container's or Service's port.
pub fn port_name(value: &str) -> Faults {
    let mut faults = Faults::new();
    if value.len() > 15 {
        faults.push(max_length(15));
    }
    let mut fault = |text: &str| faults.push(text.to_owned());
    if !all(value, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        fault("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        fault("must contain at least one letter (a-z)");
    }
    if value.contains("--") {
        fault("must not contain consecutive hyphens");
    }
    if value.starts_with('-') || value.ends_with('-') {
        fault("must not begin or end with a hyphen");
    }
    faults
}

pub fn port_number(port: i64) -> Faults {
    if (1..=65535).contains(&port) { vec![] } else { vec![inclusive_range(1, 65535)] }
}

/// A user's number.
pub fn user_id(id: i64) -> Faults {
    if (0..=i64::from(i32::MAX)).contains(&id) {
        return Faults::new();
    }
    vec![inclusive_range(0, i32::MAX.into())]
}

/// A group's number.
pub fn group_id(id: i64) -> Faults {
    user_id(id)
}

/// A whole number as its shortest text: no plus, no leading zeros, no `-0`.
pub fn decimal_integer(value: &str) -> Faults {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let canonical =
        value == "0" || (all(digits, |b| b.is_ascii_digit()) && !digits.starts_with('0'));
    match value {
        "" => vec!["must be non-empty".to_owned()],
        _ if canonical => vec![],
        _ => vec!["must be a valid decimal integer in canonical form".to_owned()],
    }
}

pub fn percent(value: &str) -> Faults {
    if value.strip_suffix('%').is_some_and(|digits| all(digits, |b| b.is_ascii_digit())) {
        return Faults::new();
    }
    let message = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_fault(message, "[0-9]+%", &["1%", "93%"])]
}

pub fn http_header_name(value: &str) -> Faults {
    if all(value, |b| alnum(b) || b == b'-') {
        return Faults::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_fault(message, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Any object's name at the very least: it must survive as one segment of a path.
pub fn path_segment_name(name: &str) -> Faults {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    path_segment_prefix(name)
}

/// The beginning of a name, to which something will be added.
pub fn path_segment_prefix(name: &str) -> Faults {
    let illegal = ["/", "%"].into_iter().filter(|text| name.contains(text));
    illegal.map(|text| format!("may not contain '{text}'")).collect()
}

/// `example.com/path`: a domain, and whatever may be in the path of a URL.
pub fn domain_prefixed_path(path: &Path<'_>, value: &str) -> ErrorList {
    if value.is_empty() {
        return vec![Error::required(path, "")];
    }
    let Some((host, rest)) =
        value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![Error::invalid(path, value, detail)];
    };
    let mut errors: ErrorList = super::dns1123_subdomain(host)
        .into_iter()
        .map(|fault| Error::invalid(path, host, fault))
        .collect();
    if !all(rest, |b| alnum(b) || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let expression = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
        errors.push(Error::invalid(path, rest, regex_fault("Invalid path", expression, &[])));
    }
    errors
}

/// `example.com/key`: a qualified name whose prefix may not be missing.
pub fn domain_prefixed_key(path: &Path<'_>, key: &str) -> ErrorList {
    if key.is_empty() {
        return vec![Error::required(path, "")];
    }
    let faults = qualified_name(key);
    if faults.is_empty() && !key.contains('/') {
        let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
        return vec![Error::invalid(path, key, detail)];
    }
    faults.into_iter().map(|fault| Error::invalid(path, key, fault)).collect()
}

const KEY_MAX: usize = 63;
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
const KEY_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character";

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(faults: Faults, want: Expect) {
        want.assert_eq(&faults.join("\n"));
    }

    #[test]
    fn qualified_names_have_an_optional_prefix() {
        for good in ["simple", "now-with-dashes", "1-num.2-num", "a/b", "1.2.3.4/5678", "Up_Case"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        check(qualified_name("/a"), expect!["prefix part must be non-empty"]);
        check(
            qualified_name("a/"),
            expect![[r#"
                name part must be non-empty
                name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
        );
        check(
            qualified_name("a/b/c"),
            expect![
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
        );
    }

    #[test]
    fn label_values_may_be_empty() {
        for good in ["", "a", "A.b-C_9"] {
            assert!(label_value(good).is_empty(), "{good}");
        }
        check(
            label_value("-"),
            expect![
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ],
        );
        check(label_value(&"x".repeat(64)), expect!["must be no more than 63 bytes"]);
    }

    #[test]
    fn port_names_have_a_letter_and_single_inner_hyphens() {
        for good in ["telnet", "re-mail-ck", "h323hostcallsc", "a"] {
            assert!(port_name(good).is_empty(), "{good}");
        }
        check(
            port_name("-1--2"),
            expect![[r#"
                must contain at least one letter (a-z)
                must not contain consecutive hyphens
                must not begin or end with a hyphen"#]],
        );
    }

    #[test]
    fn keys_never_leave_their_directory() {
        check(config_map_key(".."), expect!["must not be '..'"]);
        check(env_var_name("..a"), expect!["must not start with '..'"]);
        check(path_segment_name("."), expect!["may not be '.'"]);
        check(
            path_segment_name("a/%"),
            expect![[r#"
                may not contain '/'
                may not contain '%'"#]],
        );
    }
}
