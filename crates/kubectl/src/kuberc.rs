//! Preferences (`kuberc`): commands by other names, other defaults of flags, and which credential programs
//! may run. Read, checked and put before what was typed as `kubectl/pkg/kuberc` does it.
mod file;

pub use file::{Setting, load};

use crate::failure::{Failure, Outcome};
use crate::flags::{self, Flag, GLOBAL, Gate};
use crate::{COMPLETE, Found, completes, find, without};
use api::quote::Quoted;
use client::https::Policy;
use std::io::Write;
use std::path::PathBuf;

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preference {
    pub defaults: Option<Vec<Defaults>>,
    pub aliases: Option<Vec<Alias>>,
    pub policy: String,
    pub allowlist: Option<Vec<String>>,
}

/// Other defaults of a command's flags.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    pub command: String,
    pub options: Option<Vec<Setting>>,
}

/// A command by another name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Alias {
    pub name: String,
    pub command: String,
    pub prepended: Option<Vec<String>>,
    pub appended: Option<Vec<String>>,
    pub options: Option<Vec<Setting>>,
}

/// A command line as preferences make it.
#[derive(Debug, Default, Clone)]
pub struct Preferred {
    pub words: Vec<String>,
    /// The word that stands for a command, and the command's own words.
    pub alias: Option<(String, Vec<String>)>,
    pub values: Vec<(&'static Flag, String)>,
    pub policy: Policy,
}

impl Preferred {
    /// A command line with nothing added.
    pub fn nothing(words: &[String]) -> Preferred {
        Preferred { words: words.to_vec(), ..Preferred::default() }
    }

    /// A command line as the file makes it that flag, environment or the user's folder name.
    pub fn of(words: &[String], err: &mut dyn Write) -> Outcome<Preferred> {
        if words.is_empty() || !Gate::Kuberc.is_open() {
            return Ok(Preferred::nothing(words));
        }
        let preferred = named(words).and_then(|named| {
            let found = preference(&named, &environment, err);
            match found.map_err(|text| format!("kuberc error {text}"))? {
                Some(preference) => preference.apply(words, err),
                None => Ok(Preferred::nothing(words)),
            }
        });
        preferred.map_err(|text| Failure::Said {
            text: format!("error occurred while applying preferences {text}"),
            code: 1,
        })
    }
}

pub fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The file that a command line names, before anybody has read its flags.
fn named(words: &[String]) -> Result<String, String> {
    let nowhere = || Err("kuberc file is not found".to_owned());
    for (at, word) in words.iter().enumerate() {
        if word == "--" {
            break;
        }
        if word == "--kuberc" {
            return words.get(at + 1).cloned().map_or_else(nowhere, Ok);
        }
        if word.contains("--kuberc=") {
            let value = word.split('=').nth(1).unwrap_or_default();
            return if value.is_empty() { nowhere() } else { Ok(value.to_owned()) };
        }
    }
    Ok(String::new())
}

/// A file, and whether somebody said that it is to be read.
#[derive(Debug, PartialEq)]
pub struct Place {
    pub path: PathBuf,
    pub is_explicit: bool,
}

/// Where preferences are: the flag counts before the variable, and that before the user's own folder. None if
/// they are switched off.
pub fn place(flag: &str, variable: &dyn Fn(&str) -> String) -> Result<Option<Place>, String> {
    let said = variable("KUBERC");
    match (flag, &*said) {
        ("", "off") => Ok(None),
        (_, "off") => Err("disabling kuberc via KUBERC=off and passing kuberc flag are mutually \
                           exclusive"
            .to_owned()),
        ("", "") => {
            let path = PathBuf::from(variable("HOME")).join(".kube/kuberc");
            Ok(Some(Place { path, is_explicit: false }))
        }
        ("", path) | (path, _) => Ok(Some(Place { path: path.into(), is_explicit: true })),
    }
}

fn preference(
    flag: &str,
    variable: &dyn Fn(&str) -> String,
    err: &mut dyn Write,
) -> Result<Option<Preference>, String> {
    let Some(Place { path, is_explicit }) = place(flag, variable)? else { return Ok(None) };
    let shown = path.display();
    match load(&path) {
        Ok(loaded) => {
            if let Some((_, problems)) = loaded.as_ref().filter(|(_, text)| !text.is_empty()) {
                // Without an end of the line, as upstream's.
                let text = format!("kuberc: ignoring strict decoding error in {shown}: {problems}");
                let _ = err.write_all(text.as_bytes());
            }
            Ok(loaded.map(|(preference, _)| preference))
        }
        Err(error) if is_explicit => Err(format!("kuberc: {error}")),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => {
            let text = format!("kuberc: no preferences loaded from {shown}: {error}");
            let _ = err.write_all(text.as_bytes());
            Ok(None)
        }
    }
}

impl Preference {
    /// Checks what the file says, and makes of a command line what it means.
    pub fn apply(&self, words: &[String], err: &mut dyn Write) -> Result<Preferred, String> {
        let policy = self.check()?;
        let (mut preferred, aliases) = self.apply_alias(words, err)?;
        preferred.policy = policy;
        self.apply_defaults(&mut preferred, &aliases, err)?;
        Ok(preferred)
    }

    fn check(&self) -> Result<Policy, String> {
        let check_flags = |options: &Option<Vec<Setting>>| match options
            .iter()
            .flatten()
            .find(|option| option.name.starts_with('-'))
        {
            Some(option) => {
                Err(format!("flag name {} should be in long form without dashes", option.name))
            }
            None => Ok(()),
        };
        let mut seen: Vec<&str> = Vec::new();
        for alias in self.aliases.iter().flatten() {
            if alias.name.is_empty() || !alias.name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                return Err("invalid alias name, can only include alphabetical characters".into());
            }
            check_flags(&alias.options)?;
            if seen.contains(&&*alias.name) {
                return Err(format!("duplicate alias name {}", alias.name));
            }
            seen.push(&alias.name);
        }
        for defaults in self.defaults.iter().flatten() {
            check_flags(&defaults.options)?;
        }
        Policy::parse(&self.policy, self.allowlist.as_deref())
    }

    /// The command line with an alias in its place, and the names of the aliases that were looked at.
    fn apply_alias(
        &self,
        words: &[String],
        err: &mut dyn Write,
    ) -> Result<(Preferred, Vec<&str>), String> {
        let mut preferred = Preferred::nothing(words);
        let mut looked_at = Vec::new();
        if find(words, None).is_known() {
            return Ok((preferred, looked_at));
        }
        let completes = completes(words).is_some();
        // The first word that is no flag, even where that is a flag's value.
        let is_command = |word: &&String| !word.starts_with('-') && !word.starts_with(COMPLETE);
        let Some(at) = words.iter().position(|word| is_command(&word)) else {
            return Ok((preferred, looked_at));
        };
        for alias in self.aliases.iter().flatten() {
            looked_at.push(&*alias.name);
            if alias.name != words[at] {
                continue;
            }
            if find(std::slice::from_ref(&alias.name), None).is_known() {
                let _ = writeln!(
                    err,
                    "Warning: Setting alias {} to a built-in command is not supported",
                    Quoted(&alias.name)
                );
                break;
            }
            let command: Vec<String> =
                alias.command.split_whitespace().map(str::to_owned).collect();
            let found = find(&command, None);
            let (Some(row), true) = (found.command, found.is_known()) else {
                return Err(format!(
                    "command {} not found to set alias {}: [{}]",
                    Quoted(&alias.command),
                    Quoted(&alias.name),
                    found.words.join(" ")
                ));
            };
            let all = flags::of_command(row.flags);
            let typed = [&["kubectl".to_owned()], words].concat();
            let values = settings(&alias.options, &all, &typed, |fault| match fault {
                Fault::Unknown(name) => {
                    format!("invalid alias flag {name} in alias kubectl")
                }
                Fault::Value(value, name, text) => format!(
                    "could not apply value {value} to flag {name} in alias kubectl err: {text}"
                ),
            })?;
            let more = alias.prepended.iter().flatten().cloned();
            preferred.words.splice(at + 1..at + 1, more);
            // Whoever completes a word would complete the appended one instead.
            if !completes {
                preferred.words.extend(alias.appended.iter().flatten().cloned());
            }
            let path = found.name.split(' ').skip(1).map(str::to_owned).collect();
            preferred.alias = Some((alias.name.clone(), path));
            // A family's own flags are not its children's.
            let typed = preferred.find();
            let is_child = typed.name.split(' ').next_back() != Some(&*alias.name);
            let is_global = |flag: &Flag| GLOBAL.iter().any(|global| std::ptr::eq(global, flag));
            preferred.values =
                values.into_iter().filter(|(flag, _)| !is_child || is_global(flag)).collect();
            break;
        }
        Ok((preferred, looked_at))
    }

    fn apply_defaults(
        &self,
        preferred: &mut Preferred,
        aliases: &[&str],
        err: &mut dyn Write,
    ) -> Result<(), String> {
        let typed = find(&preferred.words, preferred.alias.as_ref());
        if !typed.is_known() {
            return Ok(());
        }
        let name = typed.name.split(' ').next_back().unwrap_or_default();
        for defaults in self.defaults.iter().flatten() {
            let command: Vec<String> =
                defaults.command.split_whitespace().map(str::to_owned).collect();
            let meant = find(&command, preferred.alias.as_ref());
            if !meant.is_known() {
                let _ = writeln!(
                    err,
                    "Warning: command {} not found to set kuberc override",
                    Quoted(&defaults.command)
                );
                continue;
            }
            // Upstream compares the last words alone: `config view` is meant where `kuberc view` is typed.
            if meant.name.split(' ').next_back() != Some(name) {
                continue;
            }
            if aliases.contains(&name) {
                return Err(format!("alias {name} can not be overridden"));
            }
            let own = typed.command.map_or(&[][..], |command| command.flags);
            let all = flags::of_command(own);
            let values = settings(
                &defaults.options,
                &all,
                &preferred.words,
                |fault| match fault {
                    Fault::Unknown(name) => {
                        format!("invalid flag {name} for command {}", defaults.command)
                    }
                    Fault::Value(value, name, text) => format!(
                        "could not apply override value {value} to flag {name} in command {} err: {text}",
                        defaults.command
                    ),
                },
            )?;
            preferred.values.extend(values);
        }
        Ok(())
    }
}

impl Preferred {
    /// The command that is meant, or completed.
    fn find(&self) -> Found {
        match completes(&self.words) {
            Some(at) => find(&without(&self.words, at), self.alias.as_ref()),
            None => find(&self.words, self.alias.as_ref()),
        }
    }
}

enum Fault<'f> {
    Unknown(&'f str),
    Value(&'f str, &'f str, String),
}

/// The values of flags that nobody typed.
fn settings(
    options: &Option<Vec<Setting>>,
    all: &[&'static Flag],
    typed: &[String],
    say: impl Fn(Fault<'_>) -> String,
) -> Result<Vec<(&'static Flag, String)>, String> {
    let mut values = Vec::new();
    for Setting { name, value } in options.iter().flatten() {
        let flag =
            flags::named(all, name).filter(|flag| flag.name != "help" && flag.gate.is_open());
        let flag = flag.ok_or_else(|| say(Fault::Unknown(name)))?;
        if is_typed(flag, typed) {
            continue;
        }
        flag.check(value).map_err(|text| say(Fault::Value(value, name, text)))?;
        values.push((flag, value.clone()));
    }
    Ok(values)
}

/// Whether a flag seems to be among words, as upstream sees it: any group of letters with the flag's own is
/// one with it.
fn is_typed(flag: &Flag, words: &[String]) -> bool {
    words.iter().any(|word| {
        let long = word.strip_prefix("--").and_then(|word| word.strip_prefix(flag.name));
        if long.is_some_and(|rest| rest.is_empty() || rest.starts_with('=')) {
            return true;
        }
        let Some(letters) = word.strip_prefix('-').filter(|_| flag.short != '\0') else {
            return false;
        };
        letters.starts_with(flag.short)
            || letters.contains(flag.short) && letters.bytes().all(|b| b.is_ascii_alphabetic())
    })
}

#[cfg(test)]
mod tests;
