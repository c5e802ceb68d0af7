//! `kubectl completion`: what a shell runs to complete words.
use super::{Command, Group};
use crate::complete::{Offers, scripts};
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use crate::session::Session;

pub static COMMAND: Command = Command {
    name: "completion",
    group: Group::Settings,
    about: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    usage: "SHELL",
    run: Some(|session, arguments| Box::pin(async move { run(session, &arguments) })),
    offers: Offers::Words(&["bash", "fish", "powershell", "zsh"]),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let text = match arguments.words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            return Err(
                "Shell not specified.\nSee 'kubectl completion -h' for help and examples".into()
            );
        }
        ["bash"] => scripts::BASH,
        ["zsh"] => scripts::ZSH,
        ["fish"] => scripts::FISH,
        ["powershell"] => scripts::POWERSHELL,
        [other] => {
            return Err(Failure::Plain(format!(
                "Unsupported shell type {other:?}.\nSee 'kubectl completion -h' for help and examples"
            )));
        }
        _ => return Err("Too many arguments. Expected only the shell type.".into()),
    };
    Ok(session.out.write_all(text.as_bytes())?)
}
