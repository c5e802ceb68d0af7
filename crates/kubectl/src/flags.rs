//! Flags: what a command takes, one row each, and how a command line is read, by the rules and in
//! the words of upstream's parser (`spf13/pflag`).
use crate::failure::{Failure, Outcome};
use api::duration::Duration;
use api::quote::Quoted;
use std::collections::BTreeMap;

/// What a flag's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// True when it is there; `--flag=false` takes it back.
    Switch,
    Text,
    Number,
    Span,
    /// `a,b`, and may be repeated.
    List,
    /// May be repeated; a comma is part of the value.
    Each,
}

/// What a shell offers where a flag's value is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Files, as where nothing is known.
    Anything,
    /// Files whose names end so.
    Files(&'static [&'static str]),
    Words(&'static [&'static str]),
    /// Objects of a resource.
    Objects(&'static str),
    /// Entries of the kubeconfig: contexts, clusters, users.
    Entries(&'static str),
    /// Those of the pod that is named.
    Containers,
}

/// What upstream only has where a variable says so, or unless one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// `KUBECTL_APPLYSET=true`
    ApplySet,
    /// Not `KUBECTL_KUBERC=false`
    Kuberc,
}

impl Gate {
    pub fn is_open(self) -> bool {
        let says = |name: &str, word: &str| {
            std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(word))
        };
        match self {
            Gate::Open => true,
            Gate::ApplySet => says("KUBECTL_APPLYSET", "true"),
            Gate::Kuberc => !says("KUBECTL_KUBERC", "false"),
        }
    }
}

#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    /// `'\0'`: none.
    pub short: char,
    pub kind: Kind,
    pub default: &'static str,
    /// What it means without a value.
    pub bare: Option<&'static str>,
    pub about: &'static str,
    pub offer: Offer,
    pub gate: Gate,
    /// Shells offer it before all others.
    pub required: bool,
    /// Taken, and neither shown nor offered: upstream is about to give it up.
    pub hidden: bool,
}

impl Flag {
    const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        about: &'static str,
    ) -> Flag {
        Flag {
            name,
            short: '\0',
            kind,
            default,
            bare: None,
            about,
            offer: Offer::Anything,
            gate: Gate::Open,
            required: false,
            hidden: false,
        }
    }

    #[must_use]
    pub const fn short(self, short: char) -> Flag {
        Flag { short, ..self }
    }

    #[must_use]
    pub const fn bare(self, value: &'static str) -> Flag {
        Flag { bare: Some(value), ..self }
    }

    #[must_use]
    pub const fn offers(self, offer: Offer) -> Flag {
        Flag { offer, ..self }
    }

    #[must_use]
    pub const fn behind(self, gate: Gate) -> Flag {
        Flag { gate, ..self }
    }

    #[must_use]
    pub const fn required(self) -> Flag {
        Flag { required: true, ..self }
    }

    #[must_use]
    pub const fn hidden(self) -> Flag {
        Flag { hidden: true, ..self }
    }

    /// Whether the next word is its value.
    pub fn takes_value(&self) -> bool {
        self.kind != Kind::Switch && self.bare.is_none()
    }

    /// `-o, --output`, as messages name it.
    fn shown(&self) -> String {
        match self.short {
            '\0' => format!("--{}", self.name),
            short => format!("-{short}, --{}", self.name),
        }
    }

    /// The default as the help shows it.
    pub fn default_shown(&self) -> String {
        match self.kind {
            Kind::Text => format!("'{}'", self.default),
            Kind::List | Kind::Each => format!("[{}]", self.default),
            _ => self.default.to_owned(),
        }
    }

    /// Whether a value can be one of the flag's.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let wrong = |why: String| {
            format!("invalid argument {} for {} flag: {why}", Quoted(value), Quoted(&self.shown()))
        };
        match self.kind {
            Kind::Switch => match is_true(value) {
                Some(_) => Ok(()),
                None => Err(wrong(format!(
                    "strconv.ParseBool: parsing {}: invalid syntax",
                    Quoted(value)
                ))),
            },
            Kind::Number => value.parse::<i64>().map(drop).map_err(|_| {
                wrong(format!("strconv.ParseInt: parsing {}: invalid syntax", Quoted(value)))
            }),
            Kind::Span => {
                Duration::parse(value).map(drop).map_err(|error| wrong(error.to_string()))
            }
            Kind::Text | Kind::List | Kind::Each => Ok(()),
        }
    }
}

pub const fn switch(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Switch, "false", about)
}

/// A switch that is on unless it is switched off.
pub const fn switch_on(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Switch, "true", about)
}

pub const fn text(name: &'static str, default: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Text, default, about)
}

pub const fn number(name: &'static str, default: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Number, default, about)
}

pub const fn span(name: &'static str, default: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Span, default, about)
}

pub const fn list(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::List, "", about)
}

pub const fn each(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Each, "", about)
}

/// Go's `strconv.ParseBool`.
pub fn is_true(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Files with objects.
pub const MANIFESTS: Offer = Offer::Files(&["json", "yaml", "yml"]);
/// What upstream offers wherever a part of an object can be meant.
pub const PARTS: Offer = Offer::Words(&["status", "scale", "resize"]);

/// Flags that every command takes.
pub static GLOBAL: &[Flag] = &[
    text("as", "", "User to act as."),
    each("as-group", "Group to act as; may be repeated."),
    text("as-uid", "", "UID to act as."),
    each("as-user-extra", "Extra fields of the user to act as, KEY=VALUE; may be repeated."),
    text("cache-dir", "", "Taken for compatibility; nothing is cached."),
    text("certificate-authority", "", "File with the certificate of the cluster's authority."),
    text("client-certificate", "", "File with the client's certificate."),
    text("client-key", "", "File with the client's key."),
    text("cluster", "", "Cluster of the kubeconfig to talk to.").offers(Offer::Entries("clusters")),
    text("context", "", "Context of the kubeconfig to use.").offers(Offer::Entries("contexts")),
    switch("disable-compression", "Do not ask for packed answers."),
    switch("insecure-skip-tls-verify", "Believe any certificate of the server."),
    text("kubeconfig", "", "Kubeconfig file to use."),
    text("kuberc", "", "File with preferences; KUBERC=off reads none.").behind(Gate::Kuberc),
    span("log-flush-frequency", "5s", "Taken for compatibility."),
    switch("match-server-version", "Taken for compatibility."),
    text("namespace", "", "Namespace to work in.").short('n').offers(Offer::Objects("namespaces")),
    text("password", "", "Password for basic authentication."),
    text("profile", "none", "Taken for compatibility."),
    text("profile-output", "profile.pprof", "Taken for compatibility."),
    text("proxy-url", "", "Proxy on the way to the API server."),
    text("request-timeout", "0", "How long one request may take: 1s, 2m, 3h; 0 is for ever."),
    text("server", "", "Address of the API server.").short('s'),
    text("tls-server-name", "", "Name that the server's certificate is to have."),
    text("token", "", "Bearer token to show to the API server."),
    text("user", "", "User of the kubeconfig to be.").offers(Offer::Entries("users")),
    text("username", "", "Name for basic authentication."),
    number("v", "0", "How much to say about what is done.").short('v'),
    text("vmodule", "", "Taken for compatibility."),
    switch("warnings-as-errors", "Fail where the server warns."),
];

/// `--help` is every command's.
pub static HELP: Flag = switch("help", "Show this help.").short('h');

/// A command line that was understood.
#[derive(Debug, Default, Clone)]
pub struct Arguments {
    pub words: Vec<String>,
    /// How many words were before `--`, if that was there.
    pub dash: Option<usize>,
    /// The command's name, for messages: `kubectl config view`.
    pub command: String,
    values: BTreeMap<&'static str, Vec<String>>,
    defaults: BTreeMap<&'static str, (Kind, &'static str)>,
}

/// The flags that a command takes: its own count before the global ones.
pub fn of_command<'f>(own: impl IntoIterator<Item = &'f &'static [Flag]>) -> Vec<&'static Flag> {
    let own = own.into_iter().flat_map(|rows| rows.iter());
    own.chain(GLOBAL).chain(std::iter::once(&HELP)).collect()
}

/// A flag by its name; underscores are dashes, as in every component of upstream's.
pub fn named(all: &[&'static Flag], name: &str) -> Option<&'static Flag> {
    let dashed = name.replace('_', "-");
    all.iter().find(|flag| flag.name == dashed).copied()
}

impl Arguments {
    /// Reads words by the flags of a command.
    pub fn parse<'f>(
        command: &str,
        flags: impl IntoIterator<Item = &'f &'static [Flag]>,
        words: &[String],
    ) -> Outcome<Arguments> {
        Arguments::read(command, &of_command(flags), &[], words)
    }

    /// The same with values that somebody prefers; what is typed counts before them.
    pub fn read(
        command: &str,
        all: &[&'static Flag],
        preferred: &[(&'static Flag, String)],
        words: &[String],
    ) -> Outcome<Arguments> {
        let mut found = Arguments { command: command.to_owned(), ..Arguments::default() };
        for flag in all.iter().rev() {
            found.defaults.insert(flag.name, (flag.kind, flag.default));
        }
        for (flag, value) in preferred {
            found.set(flag, value).map_err(|text| Failure::usage(command, text))?;
        }
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                found.dash = Some(found.words.len());
                found.words.extend(rest.cloned());
                break;
            }
            let usage = |text: String| Failure::usage(command, text);
            if let Some(long) = word.strip_prefix("--") {
                found.long(all, long, &mut rest).map_err(usage)?;
            } else if word.len() > 1 && word.starts_with('-') {
                found.shorts(all, &word[1..], &mut rest).map_err(usage)?;
            } else {
                found.words.push(word.clone());
            }
        }
        Ok(found)
    }

    fn long<'w>(
        &mut self,
        all: &[&'static Flag],
        word: &str,
        rest: &mut impl Iterator<Item = &'w String>,
    ) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("bad flag syntax: --{word}"));
        }
        let flag = named(all, name).ok_or_else(|| format!("unknown flag: --{name}"))?;
        let missing = || format!("flag needs an argument: --{name}");
        let value = match (value, flag.bare, flag.kind) {
            (Some(value), ..) => value,
            (None, Some(bare), _) => bare,
            (None, None, Kind::Switch) => "true",
            (None, None, _) => rest.next().ok_or_else(missing)?,
        };
        self.set(flag, value)
    }

    fn shorts<'w>(
        &mut self,
        all: &[&'static Flag],
        word: &str,
        rest: &mut impl Iterator<Item = &'w String>,
    ) -> Result<(), String> {
        let mut letters = word;
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let flag = all.iter().find(|flag| flag.short == letter);
            let flag =
                flag.ok_or_else(|| format!("unknown shorthand flag: '{letter}' in -{letters}"))?;
            if let Some(value) = after.strip_prefix('=') {
                return self.set(flag, value);
            }
            let value = match (flag.bare, flag.kind) {
                (Some(bare), _) => bare,
                (None, Kind::Switch) => "true",
                // What follows the letter is its value, or the next word is.
                (None, _) => {
                    let missing = || format!("flag needs an argument: '{letter}' in -{letters}");
                    let value = match after {
                        "" => rest.next().ok_or_else(missing)?,
                        after => after,
                    };
                    return self.set(flag, value);
                }
            };
            self.set(flag, value)?;
            letters = after;
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, value: &str) -> Result<(), String> {
        flag.check(value)?;
        let values = self.values.entry(flag.name).or_default();
        match flag.kind {
            Kind::List => values.extend(value.split(',').map(str::to_owned)),
            Kind::Each => values.push(value.to_owned()),
            _ => *values = vec![value.to_owned()],
        }
        Ok(())
    }

    /// Whether the flag was there at all.
    pub fn given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn last(&self, name: &str) -> &str {
        debug_assert!(self.defaults.contains_key(name), "{} has no flag --{name}", self.command);
        match self.values.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.defaults.get(name).map_or("", |(_, default)| default),
        }
    }

    /// A text's value, or its default.
    pub fn text(&self, name: &str) -> &str {
        self.last(name)
    }

    /// A text that was given and is not empty.
    pub fn some(&self, name: &str) -> Option<&str> {
        Some(self.last(name)).filter(|text| !text.is_empty())
    }

    pub fn is(&self, name: &str) -> bool {
        is_true(self.last(name)).unwrap_or_default()
    }

    pub fn number(&self, name: &str) -> i64 {
        self.last(name).parse().unwrap_or_default()
    }

    /// A span of time; what is negative is none.
    pub fn span(&self, name: &str) -> std::time::Duration {
        let span = Duration::parse(self.last(name)).unwrap_or_default();
        std::time::Duration::from_nanos(u64::try_from(span.nanos).unwrap_or_default())
    }

    pub fn list(&self, name: &str) -> &[String] {
        debug_assert!(self.defaults.contains_key(name), "{} has no flag --{name}", self.command);
        self.values.get(name).map_or(&[], |values| values)
    }

    /// Whether the command has such a flag.
    pub fn knows(&self, name: &str) -> bool {
        self.defaults.contains_key(name)
    }

    /// Gives a flag a value, as if it had been typed.
    pub fn put(&mut self, name: &'static str, value: impl Into<String>) {
        self.values.insert(name, vec![value.into()]);
    }
}

/// Which word is the next that is no flag; a flag takes the word after it with it, and so does one that
/// nobody knows.
pub fn next_word(flags: &[&'static Flag], words: &[String], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(word) = words.get(at) {
        if word == "--" {
            return None;
        }
        let takes_next = match word.strip_prefix("--") {
            Some(long) => !long.contains('=') && takes_value(named(flags, long)),
            None if word.len() == 2 && word.starts_with('-') => {
                let is = |flag: &&&'static Flag| word[1..].starts_with(flag.short);
                takes_value(flags.iter().find(is).copied())
            }
            None if word.is_empty() || word.starts_with('-') => false,
            None => return Some(at),
        };
        at += if takes_next { 2 } else { 1 };
    }
    None
}

fn takes_value(flag: Option<&Flag>) -> bool {
    flag.is_none_or(Flag::takes_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWN: &[Flag] = &[
        switch("watch", "").short('w'),
        text("output", "", "").short('o'),
        list("label-columns", "").short('L'),
        each("filename", "").short('f'),
        text("dry-run", "none", "").bare("unchanged"),
        number("chunk-size", "500", ""),
        span("timeout", "0s", ""),
    ];

    fn read(line: &str) -> Outcome<Arguments> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse("kubectl get", [&OWN], &words)
    }

    #[test]
    fn flags_and_words_mix() {
        let found =
            read("pods -wo json a --label-columns=x,y -L z --dry-run b -n=k -- -c").unwrap();
        assert_eq!(found.words, ["pods", "a", "b", "-c"]);
        assert_eq!(found.dash, Some(3));
        assert!(found.is("watch") && found.given("watch") && !found.given("chunk-size"));
        assert_eq!((found.text("output"), found.text("dry-run")), ("json", "unchanged"));
        assert_eq!(found.list("label-columns"), ["x", "y", "z"]);
        assert_eq!((found.text("namespace"), found.number("chunk-size")), ("k", 500));
        let found = read("-oyaml -f a,b -f - --timeout 1m --watch=false").unwrap();
        assert_eq!(found.list("filename"), ["a,b", "-"]);
        assert_eq!((found.text("output"), found.span("timeout").as_secs()), ("yaml", 60));
        assert!(!found.is("watch"));
    }

    #[test]
    fn what_is_wrong_is_said_in_upstream_s_words() {
        let fault = |line| match read(line) {
            Err(Failure::Usage { text, .. }) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(fault("--bogus"), "unknown flag: --bogus");
        assert_eq!(fault("-wZ"), "unknown shorthand flag: 'Z' in -Z");
        assert_eq!(fault("--output"), "flag needs an argument: --output");
        assert_eq!(fault("-o"), "flag needs an argument: 'o' in -o");
        assert_eq!(
            fault("--chunk-size=x"),
            "invalid argument \"x\" for \"--chunk-size\" flag: strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        assert_eq!(
            fault("--watch=x"),
            "invalid argument \"x\" for \"-w, --watch\" flag: strconv.ParseBool: parsing \"x\": invalid syntax"
        );
    }
}
