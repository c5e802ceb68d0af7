//! Semantic versions.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};
use std::cmp::Ordering;
use std::sync::Arc;

pub static ROWS: &[Row] = &[
    row("semver", &["(string) -> Semver", "(string, bool) -> Semver"], semver, cost::traversal),
    row("isSemver", &["(string) -> bool", "(string, bool) -> bool"], is_semver, cost::traversal),
    row(
        "isGreaterThan",
        &["Semver.(Semver) -> bool"],
        |_, args| with(args, |o| Value::Bool(o.is_gt())),
        cost::one,
    ),
    row(
        "isLessThan",
        &["Semver.(Semver) -> bool"],
        |_, args| with(args, |o| Value::Bool(o.is_lt())),
        cost::one,
    ),
    row(
        "compareTo",
        &["Semver.(Semver) -> int"],
        |_, args| with(args, |o| Value::Int(o as i64)),
        cost::one,
    ),
    row("major", &["Semver.() -> int"], |_, args| number(args, 0), cost::one),
    row("minor", &["Semver.() -> int"], |_, args| number(args, 1), cost::one),
    row("patch", &["Semver.() -> int"], |_, args| number(args, 2), cost::one),
];

#[derive(Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Pre>,
}

/// A part of what is before the release; numbers are less than words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    Number(u64),
    Word(String),
}

impl Semver {
    pub fn compare(&self, other: &Semver) -> Ordering {
        let released = match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        };
        self.numbers.cmp(&other.numbers).then(released)
    }

    pub fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let numbers = [decimal("major", major)?, decimal("minor", minor)?];
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = decimal("patch", patch)?;
        let pre = pre.map(|pre| pre.split('.').map(prerelease).collect::<Result<Vec<Pre>, _>>());
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in build meta data \"{part}\""));
            }
        }
        Ok(Semver {
            numbers: [numbers[0], numbers[1], patch],
            pre: pre.transpose()?.unwrap_or_default(),
        })
    }

    /// Without a leading `v`, with zeros for what is missing and none in front.
    fn normalized(text: &str) -> Result<Semver, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
                *part = if digit { trimmed.to_owned() } else { format!("0{trimmed}") };
            }
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("Short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Semver::parse(&parts.join("."))
    }
}

fn decimal(name: &str, text: &str) -> Result<u64, String> {
    let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number \"{text}\""));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{title} number must not contain leading zeroes \"{text}\""));
    }
    let range = |_| format!("strconv.ParseUint: parsing \"{text}\": value out of range");
    text.parse().map_err(range)
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn prerelease(text: &str) -> Result<Pre, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes \"{text}\""
            ));
        }
        let range = |_| format!("strconv.ParseUint: parsing \"{text}\": value out of range");
        return text.parse().map(Pre::Number).map_err(range);
    }
    if is_word(text) {
        return Ok(Pre::Word(text.to_owned()));
    }
    Err(format!("Invalid character(s) found in prerelease \"{text}\""))
}

fn parsed(args: &[Value<'_>]) -> Result<Result<Semver, String>, Error> {
    let (text, normalize) = match args {
        [text] => (text, false),
        [text, Value::Bool(normalize)] => (text, *normalize),
        _ => return Err(Error::NoOverload),
    };
    let text = text.as_str().ok_or(Error::NoOverload)?;
    Ok(if normalize { Semver::normalized(text) } else { Semver::parse(text) })
}

fn semver<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    parsed(args)?.map(|semver| Value::Semver(Arc::new(semver))).map_err(Error::Said)
}

fn is_semver<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parsed(args)?.is_ok()))
}

fn with<'a>(args: &[Value<'a>], what: fn(Ordering) -> Value<'static>) -> Outcome<'a> {
    match args {
        [Value::Semver(a), Value::Semver(b)] => Ok(what(a.compare(b))),
        _ => Err(Error::NoOverload),
    }
}

fn number<'a>(args: &[Value<'a>], place: usize) -> Outcome<'a> {
    match args {
        [Value::Semver(semver)] => Ok(Value::Int(semver.numbers[place] as i64)),
        _ => Err(Error::NoOverload),
    }
}
