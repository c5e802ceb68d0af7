//! `kubectl options` and `kubectl help`.
use super::{COMMANDS, Command, Group};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use crate::help;
use crate::session::Session;

pub static COMMAND: Command = Command {
    name: "options",
    group: Group::Hidden,
    about: "Print the list of flags inherited by all commands",
    run: Some(|session, _| Box::pin(async { help::global(session) })),
    ..Command::EMPTY
};

/// There are no such commands, and so there is no more to this one, whatever stands behind it.
pub static ALPHA: Command = Command {
    name: "alpha",
    group: Group::Hidden,
    about: "Commands for features in alpha",
    run: Some(|session, _| {
        Box::pin(async {
            let text = "No alpha commands are available in this version of kubectl";
            Ok(writeln!(session.err, "{text}")?)
        })
    }),
    hidden: true,
    ..Command::EMPTY
};

pub static HELP: Command = Command {
    name: "help",
    group: Group::Hidden,
    about: "Help about any command",
    usage: "[command]",
    run: Some(|session, arguments| Box::pin(async move { show(session, &arguments) })),
    offers: Offers::Commands,
    ..Command::EMPTY
};

fn show(session: &mut Session, arguments: &Arguments) -> Outcome {
    let mut among: &[&'static Command] = COMMANDS;
    let (mut name, mut found) = ("kubectl".to_owned(), None);
    for word in &arguments.words {
        let Some(command) = among.iter().find(|one| one.name == word && one.gate.is_open()) else {
            return Err(Failure::Plain(format!(
                "unknown help topic {word:?}\nSee 'kubectl help -h' for help and examples"
            )));
        };
        name = format!("{name} {word}");
        (found, among) = (Some(*command), command.children);
    }
    match found {
        Some(command) => help::of(session, command, &name),
        None => help::root(session),
    }
}
