//! kubectl: the command-line client of Kubernetes v1.37, in our own words.
//!
//! **It may not know** any server crate: it knows the API (`api`) and how to reach one (`client`).
//!
//! ```text
//!  COMMANDS     one row per command: name, group, flags, what it does
//!  flags        what a command line says                 failure    what went wrong, in upstream's words
//!  kuberc       what its writer prefers to say           complete/  what may come next, for shells
//!  kubeconfig   files and what they say together         cluster    the connection: server, user, namespace
//!  mapper       what the server serves, by any name      builder/   words and files → objects
//!  print/       -o, tables, templates, columns           write      dry runs, field managers, validation
//!  describe/    what is said of an object                generate/  objects that flags make
//!  commands/    one file per command                     kustomize  -k
//! ```
//!
//! A command is a function of a [`Session`] (where its output goes, which cluster is meant) and the
//! [`Arguments`] that were typed. What it decides is pure and tested as data; it asks the server and
//! writes at its rim.
#![forbid(unsafe_code)]

mod builder;
mod change;
mod cluster;
mod commands;
mod complete;
mod describe;
mod editing;
mod failure;
mod flags;
mod generate;
mod help;
mod kubeconfig;
mod kuberc;
mod kustomize;
mod last_applied;
mod mapper;
mod plugin;
mod pods;
mod print;
mod session;
mod streams;
mod watching;
mod write;

use commands::{COMMANDS, Command};
use failure::{Failure, Outcome};
use flags::{Arguments, Flag, GLOBAL, HELP};
use kuberc::Preferred;
use session::Session;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs a command line, without the program's own name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let words: Vec<String> =
        arguments.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut session = Session::terminal();
    let outcome = runtime.block_on(async {
        let preferred = Preferred::of(&words, &mut session.err)?;
        run(&mut session, &preferred).await
    });
    let flushed = session.flush();
    // Readers of a terminal that wait for ever end with the process.
    runtime.shutdown_background();
    match outcome.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.message();
            if !text.is_empty() {
                eprintln!("{}", text.strip_suffix('\n').unwrap_or(&text));
            }
            ExitCode::from(failure.code())
        }
    }
}

/// What shells ask by; the answer to the second one has no descriptions.
const COMPLETE: &str = "__complete";
const COMPLETE_BARE: &str = "__completeNoDesc";

/// One command line, from its words to its end.
async fn run(session: &mut Session, preferred: &Preferred) -> Outcome {
    session.policy = preferred.policy.clone();
    let words = &preferred.words;
    if let Some(at) = completes(words) {
        let described = words[at] == COMPLETE && complete::wants_descriptions();
        return complete::run(session, preferred, &without(words, at), described).await;
    }
    let found = find(words, preferred.alias.as_ref());
    let Some(command) = found.command else {
        if let Some(plugin) = plugin::find(words) {
            return plugin.exec();
        }
        let known: Vec<&'static Flag> = GLOBAL.iter().collect();
        return match flags::next_word(&known, &found.words, 0) {
            Some(0) => Err(unknown_command(&found.words[0])),
            Some(_) => Err(Failure::Said {
                text: format!(
                    "Error: flags cannot be placed before plugin name: {}",
                    found.words[0]
                ),
                code: 1,
            }),
            None => help::root(session),
        };
    };
    let mut all = flags::of_command(command.flags);
    all.retain(|flag| flag.gate.is_open());
    let arguments = Arguments::read(&found.name, &all, &preferred.values, &found.words)?;
    if arguments.is("help") && !command.hidden {
        return help::of(session, command, &found.name);
    }
    let Some(run) = command.run else {
        return match arguments.words.first() {
            Some(word) => Err(Failure::Plain(format!(
                "unknown command \"{word}\"\nSee '{} -h' for help and examples",
                found.name
            ))),
            None => help::of_family(session, command, &found.name),
        };
    };
    let strict = arguments.is("warnings-as-errors");
    run(session, arguments).await?;
    match session.warnings() {
        0 => Ok(()),
        _ if !strict => Ok(()),
        1 => Err("1 warning received".into()),
        many => Err(format!("{many} warnings received").into()),
    }
}

/// Where a shell's question stands; flags may stand before it.
fn completes(words: &[String]) -> Option<usize> {
    let known: Vec<&'static Flag> = GLOBAL.iter().chain([&HELP]).collect();
    let at = flags::next_word(&known, words, 0)?;
    matches!(words[at].as_str(), COMPLETE | COMPLETE_BARE).then_some(at)
}

fn without(words: &[String], at: usize) -> Vec<String> {
    [&words[..at], &words[at + 1..]].concat()
}

struct Found {
    /// None is kubectl itself.
    command: Option<&'static Command>,
    /// `kubectl config view`
    name: String,
    /// Without the command's own words.
    words: Vec<String>,
}

impl Found {
    /// Whether no word is left that should have been a command.
    fn is_known(&self) -> bool {
        let known: Vec<&'static Flag> = GLOBAL.iter().chain([&HELP]).collect();
        self.command.is_some() || flags::next_word(&known, &self.words, 0).is_none()
    }
}

/// Which command is meant; flags may stand before its name. An alias is one of kubectl's own commands
/// under a name that no other has.
fn find(words: &[String], alias: Option<&(String, Vec<String>)>) -> Found {
    let mut found = Found { command: None, name: "kubectl".to_owned(), words: words.to_vec() };
    let mut among: &[&'static Command] = COMMANDS;
    let mut known: Vec<&'static Flag> = GLOBAL.iter().chain([&HELP]).collect();
    while let Some(at) = flags::next_word(&known, &found.words, 0) {
        let word = &found.words[at];
        let is = |command: &&&'static Command| {
            let names = command.name == word || command.aliases.contains(&word.as_str());
            names && command.gate.is_open()
        };
        let command = match among.iter().find(is) {
            Some(command) => {
                found.name = format!("{} {}", found.name, command.name);
                *command
            }
            None => match alias.filter(|(name, _)| found.command.is_none() && name == word) {
                Some((name, path)) => {
                    let Some(command) = find(path, None).command else { break };
                    found.name = format!("kubectl {name}");
                    command
                }
                None => break,
            },
        };
        found.words.remove(at);
        found.command = Some(command);
        known.extend(command.flags.iter().flat_map(|rows| rows.iter()));
        among = command.children;
        if among.is_empty() {
            break;
        }
    }
    found
}

fn unknown_command(word: &str) -> Failure {
    let mut text = format!("unknown command \"{word}\" for \"kubectl\"");
    let near: Vec<&str> = COMMANDS
        .iter()
        .filter(|one| !one.hidden && one.gate.is_open())
        .map(|one| one.name)
        .filter(|name| is_near(name, word))
        .collect();
    if !near.is_empty() {
        text.push_str("\n\nDid you mean this?\n");
        near.iter().for_each(|name| text.push_str(&format!("\t{name}\n")));
    }
    Failure::Plain(text)
}

/// Whether a name may have been meant: two letters off at most, or its beginning.
fn is_near(name: &str, word: &str) -> bool {
    if name.starts_with(&word.to_lowercase()) {
        return true;
    }
    let (name, word): (Vec<char>, Vec<char>) = (name.chars().collect(), word.chars().collect());
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (i, a) in name.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in word.iter().enumerate() {
            let change = before + usize::from(!a.eq_ignore_ascii_case(b));
            before = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(before + 1);
        }
    }
    row[word.len()] <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, name: &str, rest: &str) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = find(&words, None);
        assert_eq!((&*found.name, &*found.words.join(" ")), (name, rest), "{line}");
    }

    #[test]
    fn flags_may_come_before_a_command() {
        check("get pods", "kubectl get", "pods");
        check("-n x --server=y get pods -w", "kubectl get", "-n x --server=y pods -w");
        check("--kubeconfig f config view", "kubectl config view", "--kubeconfig f");
        check("bogus", "kubectl", "bogus");
        // Kubectl itself does not know -o, so that is taken to have a value.
        check("-o json get pods", "kubectl get", "-o json pods");
    }

    #[test]
    fn an_alias_is_a_command() {
        let alias = ("ctx".to_owned(), vec!["config".to_owned(), "use-context".to_owned()]);
        let words = ["-n", "x", "ctx", "a"].map(str::to_owned);
        let found = find(&words, Some(&alias));
        assert_eq!((&*found.name, &*found.words.join(" ")), ("kubectl ctx", "-n x a"));
        assert_eq!(found.command.map(|command| command.name), Some("use-context"));
        assert!(!find(&words, None).is_known() && find(&words[..2], None).is_known());
    }

    #[test]
    fn a_command_that_nobody_knows_is_told_with_those_that_are_near() {
        assert_eq!(
            unknown_command("gett").message(),
            "error: unknown command \"gett\" for \"kubectl\"\n\nDid you mean this?\n\tset\n\tget\n"
        );
    }

    #[test]
    fn every_command_says_what_it_is_for_and_names_each_flag_once() {
        fn look(command: &Command, path: &str) {
            let path = format!("{path} {}", command.name);
            assert!(!command.about.is_empty(), "{path} has no text");
            assert!(command.run.is_some() || !command.children.is_empty(), "{path} does nothing");
            let mut names: Vec<&str> = Vec::new();
            let mut shorts: Vec<char> = Vec::new();
            for flag in command.flags.iter().flat_map(|rows| rows.iter()) {
                assert!(!names.contains(&flag.name), "{path} has --{} twice", flag.name);
                assert!(
                    flag.short == '\0' || !shorts.contains(&flag.short),
                    "{path} -{}",
                    flag.short
                );
                assert!(!flag.about.is_empty(), "{path} --{} has no text", flag.name);
                names.push(flag.name);
                shorts.push(flag.short);
            }
            command.children.iter().for_each(|child| look(child, &path));
        }
        COMMANDS.iter().for_each(|command| look(command, "kubectl"));
    }
}
