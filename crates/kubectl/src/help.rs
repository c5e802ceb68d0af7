//! Help, derived from the rows of commands and flags.
use crate::commands::{COMMANDS, Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, GLOBAL};
use crate::session::Session;
use std::fmt::Write as _;

pub fn root(session: &mut Session) -> Outcome {
    let mut out = "kubectl controls the Kubernetes cluster manager.\n".to_owned();
    for group in Group::ALL {
        let of_group: Vec<&&Command> =
            COMMANDS.iter().filter(|one| one.group == *group && one.gate.is_open()).collect();
        if of_group.is_empty() || *group == Group::Hidden {
            continue;
        }
        let _ = writeln!(out, "\n{}", group.title());
        for command in of_group {
            let _ = writeln!(out, "  {:15} {}", command.name, command.about);
        }
    }
    out.push_str(
        "\nUsage:\n  kubectl [flags] [options]\n\nUse \"kubectl <command> --help\" for more information about a \
         given command.\nUse \"kubectl options\" for a list of global command-line options (applies to all \
         commands).\n",
    );
    Ok(session.out.write_all(out.as_bytes())?)
}

pub fn of(session: &mut Session, command: &Command, name: &str) -> Outcome {
    let mut out = format!("{}.\n", command.about);
    if !command.aliases.is_empty() {
        let _ = writeln!(out, "\nAliases:\n{}, {}", command.name, command.aliases.join(", "));
    }
    if !command.children.is_empty() {
        out.push_str("\nAvailable Commands:\n");
        let width =
            command.children.iter().map(|child| child.name.len()).max().unwrap_or(0).max(13);
        for child in command.children {
            let _ = writeln!(out, "  {:width$} {}", child.name, child.about);
        }
    }
    let flags: Vec<&Flag> = command.flags.iter().flat_map(|rows| rows.iter()).collect();
    out.push_str(&options(&flags));
    let rest = command.usage;
    let space = if rest.is_empty() { "" } else { " " };
    let _ = writeln!(out, "\nUsage:\n  {name}{space}{rest} [options]");
    out.push('\n');
    if !command.children.is_empty() {
        let _ = writeln!(
            out,
            "Use \"{name} <command> --help\" for more information about a given command."
        );
    }
    out.push_str(
        "Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n",
    );
    Ok(session.out.write_all(out.as_bytes())?)
}

/// Commands that need one of their own behind them. Most of those fail without it, and some tell
/// so on standard output.
pub fn of_family(session: &mut Session, command: &Command, name: &str) -> Outcome {
    match name {
        "kubectl certificate" => of(session, command, name),
        "kubectl rollout" => {
            of(session, command, name)?;
            Err(Failure::exit(1))
        }
        _ => {
            std::mem::swap(&mut session.out, &mut session.err);
            let outcome = of(session, command, name);
            std::mem::swap(&mut session.out, &mut session.err);
            outcome?;
            Err(Failure::exit(1))
        }
    }
}

/// What every command takes.
pub fn global(session: &mut Session) -> Outcome {
    let flags: Vec<&Flag> = GLOBAL.iter().collect();
    let text = options(&flags).replacen(
        "\nOptions:",
        "The following options can be passed to any command:\n",
        1,
    );
    Ok(session.out.write_all(text.as_bytes())?)
}

fn options(flags: &[&Flag]) -> String {
    if flags.is_empty() {
        return String::new();
    }
    let mut flags = flags.to_vec();
    flags.sort_by_key(|flag| flag.name);
    let mut out = "\nOptions:\n".to_owned();
    flags.retain(|flag| !flag.hidden && flag.gate.is_open());
    for (at, flag) in flags.iter().enumerate() {
        let short = match flag.short {
            '\0' => String::new(),
            short => format!("-{short}, "),
        };
        let gap = if at > 0 { "\n" } else { "" };
        let _ = writeln!(
            out,
            "{gap}    {short}--{}={}:\n\t{}",
            flag.name,
            flag.default_shown(),
            flag.about
        );
    }
    out
}
