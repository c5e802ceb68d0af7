//! A file that means the same as flags: each setting is a flag's name without its dashes.
//!
//! ```yaml
//! # /etc/skiff/config.yaml
//! node-name: web-1
//! disable: [servicelb, metrics-server]
//! ```
//! Files in the folder `config.yaml.d` beside it are read after it, in the order of their names; a
//! setting in a later one takes the place of an earlier one, and a flag that of them all; but flags that may be
//! repeated are more of the same. They become flags before anything is parsed, so that there is one parser and
//! one set of rules.
use anyhow::{Context as _, bail};
use clap::Command;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where it is looked for if nobody says.
pub const DEFAULT: &str = "/etc/skiff/config.yaml";

/// Commands that run for long read it; others are told what to do.
const COMMANDS: [&str; 2] = ["up", "agent"];

/// What was typed, with the file's settings before the flags that were typed.
pub fn with_file(cli: &Command, typed: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let is_one = |word: &OsString, command: &Command| {
        let names = std::iter::once(command.get_name()).chain(command.get_all_aliases());
        names.into_iter().any(|name| word == OsStr::new(name))
    };
    let rows: Vec<&Command> =
        COMMANDS.iter().filter_map(|name| cli.find_subcommand(name)).collect();
    // Before the command there are at most flags of all commands.
    let found = typed.iter().enumerate().skip(1).find_map(|(at, word)| {
        let row = rows.iter().find(|row| is_one(word, row))?;
        Some((at, *row))
    });
    let Some((at, command)) = found else { return Ok(typed) };
    let settings = match named(&typed[at..]) {
        Some(file) => read(&file, true)?,
        None => read(Path::new(DEFAULT), false)?,
    };
    let mut all = typed[..=at].to_vec();
    for (name, (value, from)) in settings {
        let flag = known(cli, command, &name).with_context(|| {
            format!(
                "{}: there is no setting {name:?}: --help of the command names them",
                from.display()
            )
        })?;
        let made = flags(flag, &name, &value);
        all.extend(made.with_context(|| format!("{}: {name}", from.display()))?);
    }
    all.extend_from_slice(&typed[at + 1..]);
    Ok(all)
}

/// The file that was named.
fn named(typed: &[OsString]) -> Option<PathBuf> {
    for (at, word) in typed.iter().enumerate() {
        let Some(text) = word.to_str() else { continue };
        if text == "--config" {
            return typed.get(at + 1).map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

fn drop_ins(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".d");
    name.into()
}

/// Every setting, and the file that says it. A file that somebody named has to be there, or others beside it.
fn read(file: &Path, is_named: bool) -> anyhow::Result<BTreeMap<String, (Value, PathBuf)>> {
    let folder = drop_ins(file);
    let mut files: Vec<PathBuf> = match std::fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => Vec::new(),
    };
    files.retain(|path| matches!(path.extension().and_then(OsStr::to_str), Some("yaml" | "yml")));
    files.sort();
    if file.exists() || (is_named && files.is_empty()) {
        files.insert(0, file.to_owned());
    }
    let mut settings = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let tree: Value = match text.trim().is_empty() {
            true => Value::Null,
            false => serde_saphyr::from_str(&text)
                .with_context(|| format!("failed to read {}", path.display()))?,
        };
        match tree {
            Value::Null => {}
            Value::Object(all) => {
                settings.extend(all.into_iter().map(|(name, value)| (name, (value, path.clone()))));
            }
            _ => bail!("{}: it must be a list of `name: value`", path.display()),
        }
    }
    Ok(settings)
}

/// Whether a file, or one of those beside it, has a setting of this name.
pub fn says(file: &Path, name: &str) -> anyhow::Result<bool> {
    Ok(read(file, false)?.contains_key(name))
}

/// Whether a command has a setting of this name.
pub fn is_setting(command: &str, name: &str) -> bool {
    let cli = <crate::Cli as clap::CommandFactory>::command();
    cli.find_subcommand(command).is_some_and(|command| known(&cli, command, name).is_some())
}

fn known<'a>(cli: &'a Command, command: &'a Command, name: &str) -> Option<&'a clap::Arg> {
    let mut all =
        command.get_arguments().chain(cli.get_arguments().filter(|flag| flag.is_global_set()));
    let is = |flag: &clap::Arg| {
        flag.get_long() == Some(name)
            || flag.get_all_aliases().is_some_and(|names| names.contains(&name))
    };
    all.find(|flag| is(flag)).filter(|_| name != "config")
}

fn flags(flag: &clap::Arg, name: &str, value: &Value) -> anyhow::Result<Vec<OsString>> {
    let one = |value: &Value| {
        Ok(match value {
            Value::String(text) => format!("--{name}={text}"),
            Value::Number(number) => format!("--{name}={number}"),
            Value::Bool(true) => format!("--{name}"),
            _ => bail!("it must be a text, a number, true or false, or a list of those"),
        })
    };
    let all = match value {
        // One that is on unless somebody says otherwise.
        Value::Bool(false) if flag.get_action().takes_values() => vec![format!("--{name}=false")],
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Array(values) => values.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?,
        value => vec![one(value)?],
    };
    Ok(all.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn check(files: &[(&str, &str)], typed: &str, expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::create_dir(folder.path().join("config.yaml.d")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let typed = typed.replace("FILE", &file.display().to_string());
        let words = typed.split_whitespace().map(OsString::from).collect();
        let made = with_file(&crate::Cli::command(), words).map_err(|error| format!("{error:#}"));
        match (made, expected) {
            (Ok(made), Ok(expected)) => {
                let text = made.join(OsStr::new(" ")).into_string().unwrap();
                assert_eq!(text.replace(&file.display().to_string(), "FILE"), expected);
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (made, _) => panic!("{made:?}"),
        }
    }

    #[test]
    fn settings_are_flags_that_come_before_those_typed() {
        let file = ("config.yaml", "node-name: a\nport: 7443\ndisable: [proxy, dns]\n");
        check(
            &[file],
            "skiff up --config FILE --port 1",
            Ok(
                "skiff up --disable=proxy --disable=dns --node-name=a --port=7443 --config FILE --port 1",
            ),
        );
        check(
            &[
                ("config.yaml.d/1.yaml", "port: 1"),
                ("config.yaml.d/2.yaml", "port: 2"),
                ("config.yaml.d/readme", "x"),
                file,
            ],
            "skiff -v 2 up --config=FILE",
            Ok("skiff -v 2 up --disable=proxy --disable=dns --node-name=a --port=2 --config=FILE"),
        );
        check(&[("config.yaml", "")], "skiff up --config FILE", Ok("skiff up --config FILE"));
        check(
            &[("config.yaml", "encrypt: true")],
            "skiff agent --config FILE",
            Ok("skiff agent --encrypt --config FILE"),
        );
        check(
            &[("config.yaml", "tunnel: false\nencrypt: false\ndisable: [network]")],
            "skiff agent --config FILE",
            Ok("skiff agent --disable=network --tunnel=false --config FILE"),
        );
        check(
            &[("config.yaml", "tls-san: [a.example.com, 192.0.2.1]\nv: 2")],
            "skiff server --config FILE",
            Ok("skiff server --tls-san=a.example.com --tls-san=192.0.2.1 --v=2 --config FILE"),
        );
        // Other commands have no file.
        check(&[file], "skiff status --config FILE", Ok("skiff status --config FILE"));
    }

    #[test]
    fn nobody_has_to_have_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        assert!(!says(&file, "server").unwrap());
        std::fs::create_dir(drop_ins(&file)).unwrap();
        assert!(!says(&file, "server").unwrap());
        std::fs::write(drop_ins(&file).join("a.yaml"), "server: x").unwrap();
        assert!(says(&file, "server").unwrap());
    }

    #[test]
    fn what_is_no_setting_is_told() {
        check(
            &[("config.yaml", "prot: 1")],
            "skiff up --config FILE",
            Err("there is no setting \"prot\": --help of the command names them"),
        );
        check(
            &[("config.yaml", "config: x")],
            "skiff up --config FILE",
            Err("there is no setting \"config\""),
        );
        check(
            &[("config.yaml", "server: x")],
            "skiff up --config FILE",
            Err("there is no setting \"server\""),
        );
        check(
            &[("config.yaml", "port: {a: 1}")],
            "skiff up --config FILE",
            Err("port: it must be a text"),
        );
        check(
            &[("config.yaml", "- port")],
            "skiff up --config FILE",
            Err("it must be a list of `name: value`"),
        );
        check(&[], "skiff up --config FILE", Err("failed to read"));
    }

    #[test]
    fn a_flag_takes_the_place_of_a_setting() {
        use clap::Parser as _;
        let words =
            ["skiff", "up", "--port=7443", "--disable=dns", "--port", "1", "--disable", "proxy"];
        let crate::Command::Up(options) = crate::Cli::try_parse_from(words).unwrap().command else {
            panic!()
        };
        assert_eq!(options.port, 1);
        assert_eq!(options.disable, ["dns", "proxy"]);
    }
}
