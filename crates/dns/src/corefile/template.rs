//! The plugin `template`: answers made of the question, for whole domains at once.
use super::tokens::{Line, Token};
use super::{CorefileError, is_below, plain};
use crate::answer::{Answer, Code};
use crate::wire::{Data, Kind, Record};
use regex_automata::meta;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// `None`: whatever is asked for.
    kind: Option<Kind>,
    /// Empty: all names of the block.
    zones: Vec<String>,
    /// Empty: every name.
    patterns: Vec<Pattern>,
    answers: Vec<Vec<Piece>>,
    code: Code,
    /// Whom no pattern fits is somebody else's; else there is no such name.
    falls_through: bool,
}

/// A pattern of RE2's, told from others by its text.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Arc<meta::Regex>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    pub fn read(token: &Token) -> Result<Pattern, CorefileError> {
        // Names are ASCII, and Go's classes of letters are, too.
        let ascii = syntax::Config::new().unicode(false).utf8(false);
        let built = meta::Regex::builder()
            .configure(meta::Config::new().nfa_size_limit(Some(1 << 20)).utf8_empty(false))
            .syntax(ascii)
            .build(&token.text);
        let regex = built.map_err(|_| token.wrong("it is no regular expression"))?;
        Ok(Pattern { text: token.text.clone(), regex: Arc::new(regex) })
    }

    /// The groups of a name, which ends with a dot as CoreDNS has it.
    pub fn groups(&self, name: &str) -> Option<Captures> {
        let mut groups = self.regex.create_captures();
        self.regex.captures(name, &mut groups);
        groups.is_match().then_some(groups)
    }

    fn number(&self, name: &str) -> Option<usize> {
        let first = regex_automata::PatternID::ZERO;
        self.regex.group_info().to_index(first, name)
    }

    /// The text of a group; empty where it took no part.
    pub fn group<'n>(groups: &Captures, number: usize, name: &'n str) -> &'n str {
        groups.get_group(number).and_then(|span| name.get(span.range())).unwrap_or_default()
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name,
    Zone,
    Class,
    Type,
    Match(usize),
    Group(String),
}

impl Template {
    pub fn read(
        name: &Token,
        arguments: &[Token],
        lines: &[Line],
    ) -> Result<Template, CorefileError> {
        let [class, kind, zones @ ..] = arguments else {
            return Err(name.wrong("template CLASS TYPE [ZONE…]"));
        };
        if !["IN", "ANY"].contains(&class.text.as_str()) {
            return Err(class.wrong("the class is IN or ANY"));
        }
        let mut template = Template {
            kind: match kind.text.as_str() {
                "ANY" => None,
                text => Some(Kind::named(text).ok_or_else(|| kind.wrong("it is no type here"))?),
            },
            zones: zones.iter().map(|zone| plain(&zone.text)).collect(),
            patterns: Vec::new(),
            answers: Vec::new(),
            code: Code::NoError,
            falls_through: false,
        };
        for line in lines {
            let (first, rest) = (&line[0], &line[1..]);
            match (first.text.as_str(), rest) {
                ("match", [_, ..]) => {
                    for one in rest {
                        template.patterns.push(Pattern::read(one)?);
                    }
                }
                ("answer", [_, ..]) => {
                    for one in rest {
                        template.answers.push(pieces(one)?);
                    }
                }
                ("rcode", [code]) => {
                    let known = CODES.iter().find(|(text, _)| *text == code.text);
                    let known = known.ok_or_else(|| code.wrong("it is no code here"))?;
                    template.code = known.1;
                }
                ("fallthrough", _) => template.falls_through = true,
                ("upstream" | "ederror" | "authority" | "additional", _) => {}
                (other, _) => return Err(first.wrong(&format!("template has no {other} here"))),
            }
        }
        Ok(template)
    }

    /// `None`: others may know.
    pub fn answer(&self, name: &str, kind: Kind) -> Option<Answer> {
        if self.kind.is_some_and(|own| own != kind) {
            return None;
        }
        let zone = match self.zones.iter().find(|zone| is_below(name, zone)) {
            Some(zone) => format!("{zone}."),
            None if self.zones.is_empty() => ".".to_owned(),
            None => return None,
        };
        let whole = format!("{name}.");
        let found = self.patterns.iter().find_map(|one| Some((one, one.groups(&whole)?)));
        if found.is_none() && !self.patterns.is_empty() {
            return (!self.falls_through).then(|| Answer::only(Code::NameError));
        }
        let group = |number: usize| {
            found.as_ref().map_or("", |(_, groups)| Pattern::group(groups, number, &whole))
        };
        let written = |pieces: &[Piece]| -> String {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Name => whole.clone(),
                Piece::Zone => zone.clone(),
                Piece::Class => "IN".to_owned(),
                Piece::Type => kind.name().to_owned(),
                Piece::Match(number) => group(*number).to_owned(),
                Piece::Group(name) => {
                    let number = found.as_ref().and_then(|(one, _)| one.number(name));
                    number.map_or_else(String::new, |number| group(number).to_owned())
                }
            };
            pieces.iter().map(piece).collect()
        };
        let records: Option<Vec<Record>> =
            self.answers.iter().map(|pieces| record(&written(pieces), name)).collect();
        Some(match records {
            Some(records) => Answer { records, ..Answer::only(self.code) },
            // What a name made of it is no record.
            None => Answer::only(Code::ServerFailure),
        })
    }
}

const CODES: [(&str, Code); 5] = [
    ("NOERROR", Code::NoError),
    ("FORMERR", Code::FormatError),
    ("SERVFAIL", Code::ServerFailure),
    ("NXDOMAIN", Code::NameError),
    ("REFUSED", Code::Refused),
];

/// Go's templates, as far as answers need them.
fn pieces(token: &Token) -> Result<Vec<Piece>, CorefileError> {
    let (mut all, mut rest) = (Vec::new(), token.text.as_str());
    while let Some((text, more)) = rest.split_once("{{") {
        let (inner, behind) =
            more.split_once("}}").ok_or_else(|| token.wrong("a }} is missing"))?;
        all.push(Piece::Text(text.to_owned()));
        let words: Vec<&str> = inner.split_whitespace().collect();
        all.push(match words[..] {
            [".Name" | ".Question.Name"] => Piece::Name,
            [".Zone"] => Piece::Zone,
            [".Class"] => Piece::Class,
            [".Type"] => Piece::Type,
            ["index", ".Match", number] => {
                let number = number.parse().map_err(|_| token.wrong("index .Match NUMBER"))?;
                Piece::Match(number)
            }
            ["index", ".Group", name] => Piece::Group(name.trim_matches('"').to_owned()),
            [field] if field.starts_with(".Group.") => Piece::Group(field[7..].to_owned()),
            _ => return Err(token.wrong(&format!("{{{{{inner}}}}} is not known here"))),
        });
        rest = behind;
    }
    all.push(Piece::Text(rest.to_owned()));
    Ok(all)
}

/// `web.example.org. 60 IN A 192.0.2.7`.
fn record(text: &str, asked: &str) -> Option<Record> {
    let mut words = text.split_whitespace().peekable();
    let name = plain(words.next()?);
    let mut seconds = 3600;
    while let Some(word) = words.next_if(|word| *word == "IN" || word.parse::<u32>().is_ok()) {
        seconds = word.parse().unwrap_or(seconds);
    }
    let kind = words.next()?;
    let rest: Vec<&str> = words.collect();
    let data = match (kind, &rest[..]) {
        ("A", [address]) => Data::Address(IpAddr::V4(address.parse().ok()?)),
        ("AAAA", [address]) => Data::Address(IpAddr::V6(address.parse().ok()?)),
        ("CNAME", [target]) => Data::Cname(plain(target)),
        ("PTR", [target]) => Data::Ptr(plain(target)),
        ("TXT", [_, ..]) => Data::Txt(rest.join(" ").trim_matches('"').to_owned()),
        ("SRV", [priority, weight, port, target]) => Data::Srv {
            priority: priority.parse().ok()?,
            weight: weight.parse().ok()?,
            port: port.parse().ok()?,
            target: plain(target),
        },
        _ => return None,
    };
    let is_name = |name: &str| name.len() < 254 && name.split('.').all(|one| one.len() < 64);
    let fits = match &data {
        Data::Cname(target) | Data::Ptr(target) | Data::Srv { target, .. } => is_name(target),
        Data::Txt(text) => text.len() < 256,
        Data::Address(_) | Data::Soa { .. } => true,
    };
    (fits && is_name(&name)).then(|| Record {
        name: (name != asked).then_some(name),
        seconds,
        data,
    })
}
