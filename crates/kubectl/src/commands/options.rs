//! `kubectl options` and `kubectl help`.
use super::{COMMANDS, Command, Group};
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

pub static HELP: Command = Command {
    name: "help",
    group: Group::Hidden,
    about: "Help about any command",
    usage: "[command]",
    run: Some(|session, arguments| Box::pin(async move { show(session, &arguments) })),
    ..Command::EMPTY
};

fn show(session: &mut Session, arguments: &Arguments) -> Outcome {
    let mut among: &[&'static Command] = COMMANDS;
    let (mut name, mut found) = ("kubectl".to_owned(), None);
    for word in &arguments.words {
        let Some(command) = among.iter().find(|command| command.name == word) else {
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
