//! Help, derived from the rows of commands and flags.
use crate::commands::{COMMANDS, Command};
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, GLOBAL, Kind};
use crate::session::Session;
use std::fmt::Write as _;

pub fn root(session: &mut Session) -> Outcome {
    let mut out =
        "NAME:\n   crictl - client for CRI\n\nUSAGE:\n   crictl [global options] command [command \
                   options]\n\nCOMMANDS:\n"
            .to_owned();
    let names = |command: &Command| {
        let all = [command.name].into_iter().chain(command.aliases.iter().copied());
        all.collect::<Vec<_>>().join(", ")
    };
    let width = COMMANDS.iter().map(|command| names(command).len()).max().unwrap_or_default();
    for command in COMMANDS {
        let _ = writeln!(out, "   {:width$}  {}", names(command), command.about);
    }
    let _ = write!(out, "\nGLOBAL OPTIONS:\n{}", options(&[GLOBAL]));
    Ok(session.out.write_all(out.as_bytes())?)
}

pub fn of(session: &mut Session, command: &Command) -> Outcome {
    let mut out = format!(
        "NAME:\n   crictl {} - {}\n\nUSAGE:\n   crictl {}{}{}\n",
        command.name,
        command.about,
        command.name,
        if command.flags.is_empty() { "" } else { " [command options]" },
        if command.usage.is_empty() { String::new() } else { format!(" {}", command.usage) },
    );
    if !command.flags.is_empty() {
        let _ = write!(out, "\nOPTIONS:\n{}", options(command.flags));
    }
    Ok(session.out.write_all(out.as_bytes())?)
}

/// A line that means nothing: what is wrong, and the help, as upstream has it.
pub fn misused(session: &mut Session, command: Option<&Command>, fault: &str) -> Outcome {
    writeln!(session.out, "Incorrect Usage: {fault}\n")?;
    match command {
        Some(command) => of(session, command)?,
        None => root(session)?,
    }
    Err(Failure::Said(fault.to_owned()))
}

fn options(flags: &[&[Flag]]) -> String {
    let mut flags: Vec<&Flag> = flags.iter().flat_map(|rows| rows.iter()).collect();
    flags.sort_by_key(|flag| flag.name);
    let shown = |flag: &Flag| {
        let dashes = if flag.alias.len() == 1 { "-" } else { "--" };
        let alias = match flag.alias {
            "" => String::new(),
            alias => format!(", {dashes}{alias}"),
        };
        let value = if flag.kind == Kind::Switch { "" } else { " value" };
        format!("--{}{alias}{value}", flag.name)
    };
    let width = flags.iter().map(|flag| shown(flag).len()).max().unwrap_or_default();
    let mut out = String::new();
    for flag in flags {
        let _ = write!(out, "   {:width$}  {}", shown(flag), flag.about);
        if !flag.default.is_empty() {
            let _ = write!(out, " (default: {})", flag.default);
        }
        if !flag.environment.is_empty() {
            let _ = write!(out, " [${}]", flag.environment);
        }
        out.push('\n');
    }
    out
}
