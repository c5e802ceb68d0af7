//! Formats of texts that are checked; a schema may name others, which say nothing.
use crate::duration::Duration;
use crate::names::ip;
use crate::regexp::Regexp;
use crate::{names, url};
use std::sync::LazyLock;

type Check = fn(&str) -> bool;

/// Under their names without dashes.
const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && is_hex(text)),
    ("uri", |text| url::Url::parse_request(text).is_ok()),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && ip::parse_ip_sloppy(text).is_some()),
    ("ipv6", |text| text.contains(':') && is_strict_ip(text)),
    ("cidr", ip::is_cidr_sloppy),
    ("mac", is_mac),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some('3'))),
    ("uuid4", |text| is_uuid(text, Some('4'))),
    ("uuid5", |text| is_uuid(text, Some('5'))),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| text.len() == 11 && matches(&SSN, text)),
    ("hexcolor", is_hex_color),
    ("rgbcolor", |text| matches(&RGB, text)),
    ("byte", is_base64),
    ("password", |_| true),
    ("date", is_date),
    ("duration", |text| duration(text).is_some()),
    ("datetime", is_date_time),
    ("k8sshortname", |text| names::dns1123_label(text).is_empty()),
    ("k8slongname", |text| names::dns1123_subdomain(text).is_empty()),
];

pub fn is_known(format: &str) -> bool {
    find(format).is_some()
}

pub fn conforms(format: &str, text: &str) -> bool {
    find(format).is_none_or(|check| check(text))
}

fn find(format: &str) -> Option<Check> {
    let name = format.replace('-', "");
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
}

type Pattern = LazyLock<Regexp>;

static HOSTNAME: Pattern = LazyLock::new(|| {
    // One label, or several with a top-level domain of letters.
    const CHARACTER: &str = r"[a-zA-Z0-9\p{S}\p{L}]";
    const INNER: &str = r"[a-zA-Z0-9-\p{S}\p{L}]";
    compiled(&format!(
        r"^({CHARACTER}((-?{CHARACTER}{{0,62}})?)|({CHARACTER}(({INNER}{{0,61}}{CHARACTER})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
});
static SSN: Pattern = LazyLock::new(|| compiled(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static RGB: Pattern = LazyLock::new(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    compiled(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static CARD: Pattern = LazyLock::new(|| {
    compiled(
        "^(4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});
static TIME: Pattern = LazyLock::new(|| {
    compiled("^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$")
});

fn compiled(pattern: &str) -> Regexp {
    Regexp::compile(pattern).expect("a pattern of ours compiles")
}

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.is_match(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

/// Dashes may be left out, each by itself.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(length).filter(|(part, _)| is_hex(part))
        else {
            return false;
        };
        let marked = match (i, version) {
            (2, Some(version)) => part.starts_with(version),
            (3, Some('4' | '5')) => part.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        };
        if !marked {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_hostname(text: &str) -> bool {
    matches(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// Without zeros in front.
fn is_strict_ip(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

/// Six, eight or twenty bytes, in pairs of digits or in fours.
fn is_mac(text: &str) -> bool {
    let sound = |separator, digits| {
        let parts: Vec<&str> = text.split(separator).collect();
        let bytes = parts.len() * digits / 2;
        matches!(bytes, 6 | 8 | 20) && parts.iter().all(|part| part.len() == digits && is_hex(part))
    };
    sound(':', 2) || sound('-', 2) || sound('.', 4)
}

/// Without spaces and dashes.
fn digits_of(text: &str) -> Vec<u32> {
    let kept = text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ' | '-'));
    kept.map(|c| c.to_digit(10).unwrap_or(if c == 'X' { 10 } else { 11 })).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let sum: u32 = digits.iter().zip(1..).map(|(digit, place)| digit * place).sum();
    digits.len() == 10
        && digits[..9].iter().all(|digit| *digit < 10)
        && digits[9] <= 10
        && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let sum: u32 = digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, x)| digit * x).sum();
    digits.len() == 13 && digits.iter().all(|digit| *digit < 10) && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(i, digit): (usize, u32)| match (i % 2, digit * 2) {
        (0, _) => digit,
        (_, twice) => twice % 10 + twice / 10,
    };
    let backwards = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    matches(&CARD, &digits) && backwards.map(doubled).sum::<u32>().is_multiple_of(10)
}

/// With padding, and not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(known)
}

/// `2006-01-02`
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes.iter().enumerate().all(|(i, byte)| match i {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shaped && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (date, time) = (parts.next().unwrap_or_default(), parts.next());
    is_date(date) && time.is_some_and(|time| matches(&TIME, time))
}

/// Units in words, each with what all longer words for it begin with, in nanoseconds.
const UNITS: &[(&[&str], &str, i64)] = &[
    (&["ns"], "nano", 1),
    (&["us", "µs"], "micro", 1_000),
    (&["ms"], "milli", 1_000_000),
    (&["s"], "sec", 1_000_000_000),
    (&["m"], "min", 60_000_000_000),
    (&["h", "hr"], "hour", 3_600_000_000_000),
    (&["d"], "day", 86_400_000_000_000),
    (&["w", "wk"], "week", 604_800_000_000_000),
];

/// A span in nanoseconds, as Go writes them, or in numbers with units in words.
pub fn duration(text: &str) -> Option<i64> {
    if let Ok(duration) = Duration::parse(text) {
        return Some(duration.nanos);
    }
    let (mut rest, mut total) = (text, None::<i64>);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let after = rest[start..].trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &rest[start..rest.len() - after.len()];
        let blank = |c: char| matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ');
        let unit = after.trim_start_matches(blank);
        let end = unit.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(unit.len());
        if end > 0 {
            let number: i64 = number.parse().ok()?;
            let word = unit[..end].to_lowercase();
            let known = UNITS
                .iter()
                .find(|(short, long, _)| short.contains(&word.as_str()) || word.starts_with(long));
            if let Some((_, _, nanos)) = known {
                total = Some(total.unwrap_or(0).wrapping_add(number.wrapping_mul(*nanos)));
            }
        }
        rest = if end > 0 { &unit[end..] } else { after };
    }
    total
}

/// `name@domain`, or that in angle brackets after a name. Comments, groups and quoted names, which the
/// format of mails knows too, are refused.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let atom = |text: &str| {
        let known = |c: char| {
            c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
        };
        text.split('.').all(|part| !part.is_empty() && part.chars().all(known))
    };
    address.rsplit_once('@').is_some_and(|(name, domain)| atom(name) && atom(domain))
}
