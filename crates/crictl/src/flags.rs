//! Flags: what a command takes, one row each, and how a command line is read, by the rules and in the
//! words of upstream's parser (`urfave/cli` over Go's `flag`): flags come before words, one dash or two,
//! letters may be joined (`-it`), and the first word ends the flags, so that a command for a container
//! keeps its own.
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
}

#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    /// Another name, a letter mostly; empty: none.
    pub alias: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// A variable that says it where the command line does not; empty: none.
    pub environment: &'static str,
    pub about: &'static str,
}

impl Flag {
    const fn new(name: &'static str, kind: Kind, about: &'static str) -> Flag {
        Flag { name, alias: "", kind, default: "", environment: "", about }
    }

    #[must_use]
    pub const fn or(self, alias: &'static str) -> Flag {
        Flag { alias, ..self }
    }

    #[must_use]
    pub const fn default(self, default: &'static str) -> Flag {
        Flag { default, ..self }
    }

    #[must_use]
    pub const fn environment(self, environment: &'static str) -> Flag {
        Flag { environment, ..self }
    }

    fn is_called(&self, name: &str) -> bool {
        !name.is_empty() && (self.name == name || self.alias == name)
    }

    fn check(&self, value: &str) -> Result<(), String> {
        let fits = match self.kind {
            Kind::Switch => is_true(value).is_some(),
            Kind::Number => value.parse::<i64>().is_ok(),
            Kind::Span => Duration::parse(value).is_ok(),
            Kind::Text | Kind::List => true,
        };
        let kind = if self.kind == Kind::Switch { "boolean value" } else { "value" };
        let flag = self.name;
        match (fits, self.kind) {
            (true, _) => Ok(()),
            (_, Kind::Switch) => {
                Err(format!("invalid {kind} {} for -{flag}: parse error", Quoted(value)))
            }
            _ => Err(format!("invalid {kind} {} for flag -{flag}: parse error", Quoted(value))),
        }
    }
}

pub const fn switch(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Switch, about)
}

pub const fn text(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Text, about)
}

pub const fn number(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Number, about)
}

pub const fn span(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::Span, about)
}

pub const fn list(name: &'static str, about: &'static str) -> Flag {
    Flag::new(name, Kind::List, about)
}

/// What comes before a command's name.
pub static GLOBAL: &[Flag] = &[
    text("config", "Location of the client config file")
        .or("c")
        .default("/etc/crictl.yaml")
        .environment("CRI_CONFIG_FILE"),
    text("runtime-endpoint", "Endpoint of the CRI container runtime service")
        .or("r")
        .environment("CONTAINER_RUNTIME_ENDPOINT"),
    text("image-endpoint", "Endpoint of the CRI image service (default: that of the runtime)")
        .or("i")
        .environment("IMAGE_SERVICE_ENDPOINT"),
    span("timeout", "How long to wait for an answer of the server; 0 or less is the default")
        .or("t")
        .default("2s"),
    switch("debug", "Say what is asked and of whom").or("D"),
    number(
        "max-retries",
        "How often to try again to reach an endpoint that was named (negative: for ever)",
    )
    .default("3"),
    switch("version", "Print the version").or("v"),
];

/// Of every command.
static HELP: Flag = switch("help", "Show help").or("h");

/// A command line that has been read.
#[derive(Debug, Default)]
pub struct Arguments {
    values: BTreeMap<&'static str, Vec<String>>,
    rows: BTreeMap<&'static str, &'static Flag>,
    pub words: Vec<String>,
}

impl Arguments {
    /// Reads flags up to the first word.
    pub fn parse(flags: &[&'static [Flag]], words: &[String]) -> Result<Arguments, String> {
        let rows: Vec<&'static Flag> =
            flags.iter().flat_map(|rows| rows.iter()).chain([&HELP]).collect();
        let mut found = Arguments {
            rows: rows.iter().map(|row| (row.name, *row)).collect(),
            ..Arguments::default()
        };
        let mut rest = words.iter();
        while let Some(word) = rest.as_slice().first() {
            if word.len() < 2 || !word.starts_with('-') {
                break;
            }
            rest.next();
            if word == "--" {
                break;
            }
            found.flag(&rows, word, &mut rest)?;
        }
        found.words = rest.cloned().collect();
        Ok(found)
    }

    fn flag(
        &mut self,
        rows: &[&'static Flag],
        word: &str,
        rest: &mut std::slice::Iter<'_, String>,
    ) -> Result<(), String> {
        let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or(word);
        if bare.is_empty() || bare.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {word}"));
        }
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (bare, None),
        };
        if let Some(row) = rows.iter().find(|row| row.is_called(name)) {
            let value = match (value, row.kind) {
                (Some(value), _) => value.to_owned(),
                (None, Kind::Switch) => "true".to_owned(),
                (None, _) => match rest.next() {
                    Some(next) => next.clone(),
                    None => return Err(format!("flag needs an argument: -{name}")),
                },
            };
            return self.set(row, &value);
        }
        // `-it` is `-i -t`; the last of them may take a value.
        let letters: Vec<char> = name.chars().collect();
        let row_of = |letter: &char| {
            rows.iter().find(|row| row.alias.len() == 1 && row.alias.starts_with(*letter))
        };
        let joined: Option<Vec<_>> = letters.iter().map(row_of).collect();
        match joined {
            Some(joined) if !word.starts_with("--") && letters.len() > 1 => {
                let Some((last, before)) = joined.split_last() else { return Ok(()) };
                if let Some(row) = before.iter().find(|row| row.kind != Kind::Switch) {
                    return Err(format!("flag needs an argument: -{}", row.alias));
                }
                before.iter().try_for_each(|row| self.set(row, "true"))?;
                let last = match value {
                    Some(value) => format!("-{}={value}", last.alias),
                    None => format!("-{}", last.alias),
                };
                self.flag(rows, &last, rest)
            }
            _ => Err(format!("flag provided but not defined: -{name}")),
        }
    }

    fn set(&mut self, flag: &'static Flag, value: &str) -> Result<(), String> {
        flag.check(value)?;
        let values = self.values.entry(flag.name).or_default();
        match flag.kind {
            Kind::List => values.extend(value.split(',').map(str::to_owned)),
            _ => *values = vec![value.to_owned()],
        }
        Ok(())
    }

    /// Whether the command line or the environment says it.
    pub fn given(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.of_environment(name).is_some()
    }

    fn of_environment(&self, name: &str) -> Option<String> {
        let row = self.rows.get(name).filter(|row| !row.environment.is_empty())?;
        let value = std::env::var(row.environment).ok()?;
        Some(value).filter(|value| !value.is_empty() && row.check(value).is_ok())
    }

    pub fn text(&self, name: &str) -> String {
        debug_assert!(self.rows.contains_key(name), "there is no flag --{name}");
        let typed = self.values.get(name).and_then(|values| values.last()).cloned();
        typed
            .or_else(|| self.of_environment(name))
            .or_else(|| self.rows.get(name).map(|row| row.default.to_owned()))
            .unwrap_or_default()
    }

    /// A text that is not empty.
    pub fn some(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn is(&self, name: &str) -> bool {
        is_true(&self.text(name)).unwrap_or_default()
    }

    pub fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// A span of time in nanoseconds, none if it is negative or nothing.
    pub fn span(&self, name: &str) -> Option<std::time::Duration> {
        let span = Duration::parse(&self.text(name)).ok()?;
        let nanos = u64::try_from(span.nanos).ok().filter(|nanos| *nanos > 0)?;
        Some(std::time::Duration::from_nanos(nanos))
    }

    pub fn list(&self, name: &str) -> &[String] {
        debug_assert!(self.rows.contains_key(name), "there is no flag --{name}");
        self.values.get(name).map_or(&[], |values| values)
    }

    /// `key=value` pairs of a flag.
    pub fn pairs(&self, name: &str) -> Result<std::collections::HashMap<String, String>, String> {
        let pair = |text: &String| match text.split_once('=') {
            Some((key, value)) if !value.contains('=') => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("incorrectly specified label: {text}")),
        };
        self.list(name).iter().map(pair).collect()
    }

    /// Whether any flag was typed.
    pub fn any(&self) -> bool {
        !self.values.is_empty()
    }
}

/// Go's truths.
pub fn is_true(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWN: &[Flag] = &[
        switch("interactive", "").or("i"),
        switch("tty", "").or("t"),
        text("output", "").or("o").default("table"),
        list("label", ""),
        number("last", "").or("n"),
        span("pull-timeout", "").or("pt"),
    ];

    fn read(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&[OWN], &words)
    }

    #[test]
    fn flags_end_with_the_first_word() {
        let found = read("-it --label a=b,c=d -label e=f -o=json -n 3 id ls -l --x").unwrap();
        assert_eq!(found.words, ["id", "ls", "-l", "--x"]);
        assert!(found.is("interactive") && found.is("tty") && found.given("output"));
        assert_eq!((&*found.text("output"), found.number("last")), ("json", 3));
        assert_eq!(found.pairs("label").unwrap().len(), 3);
        let found = read("-pt 1m --tty=false -- -id").unwrap();
        assert_eq!(found.words, ["-id"]);
        assert_eq!(found.span("pull-timeout").unwrap().as_secs(), 60);
        assert!(!found.is("tty") && found.text("output") == "table");
        assert_eq!(read("-").unwrap().words, ["-"]);
        assert_eq!(read("-ino=1 x").unwrap_err(), "flag needs an argument: -n");
        assert_eq!(read("-tin 7 x").unwrap().number("last"), 7);
    }

    #[test]
    fn what_is_wrong_is_said_in_upstream_s_words() {
        for (line, fault) in [
            ("--bogus", "flag provided but not defined: -bogus"),
            ("-iX", "flag provided but not defined: -iX"),
            ("--output", "flag needs an argument: -output"),
            ("---x", "bad flag syntax: ---x"),
            ("-=x", "bad flag syntax: -=x"),
            ("-n x", "invalid value \"x\" for flag -last: parse error"),
            ("--tty=x", "invalid boolean value \"x\" for -tty: parse error"),
        ] {
            assert_eq!(read(line).unwrap_err(), fault, "{line}");
        }
        assert!(read("--label x").unwrap().pairs("label").is_err());
    }
}
