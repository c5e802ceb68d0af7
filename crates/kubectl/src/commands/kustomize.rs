//! `kubectl kustomize`.
use super::{Command, Group};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, each, switch, text};
use crate::session::Session;
use api::codec::yaml;
use std::path::Path;

static FLAGS: &[Flag] = &[
    switch("as-current-user", "Taken for compatibility."),
    switch("enable-alpha-plugins", "Taken for compatibility; plugins are refused."),
    switch("enable-helm", "Taken for compatibility; charts are refused."),
    each("env", "Taken for compatibility.").short('e'),
    text(
        "load-restrictor",
        "LoadRestrictionsRootOnly",
        "Taken for compatibility; files may be anywhere.",
    ),
    text("output", "", "File to write to.").short('o'),
];

pub static COMMAND: Command = Command {
    name: "kustomize",
    group: Group::Advanced,
    about: "Build a kustomization target from a directory or URL",
    usage: "DIR",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(async move { run(session, &arguments) })),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let folder = match &arguments.words[..] {
        [] => ".",
        [folder] => folder,
        _ => return Err("specify one path to a kustomization directory".into()),
    };
    let objects = crate::kustomize::build(Path::new(folder))?;
    let texts: Vec<String> = objects.iter().map(yaml::encode).collect();
    let text = texts.join("---\n");
    match arguments.some("output") {
        Some(path) => Ok(std::fs::write(path, text)?),
        None => Ok(session.out.write_all(text.as_bytes())?),
    }
}
