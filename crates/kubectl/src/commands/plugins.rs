//! `kubectl plugin`.
use super::{Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch};
use crate::plugin::is_program;
use crate::session::Session;
use std::collections::BTreeSet;

static FLAGS: &[Flag] = &[switch("name-only", "Show names without their folders.")];

static LIST: Command = Command {
    name: "list",
    about: "List all visible plugin executables on a user's PATH",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(async move { list(session, &arguments) })),
    ..Command::EMPTY
};

pub static COMMAND: Command = Command {
    name: "plugin",
    group: Group::Other,
    about: "Provides utilities for interacting with plugins",
    children: &[&LIST],
    ..Command::EMPTY
};

fn list(session: &mut Session, arguments: &Arguments) -> Outcome {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (mut found, mut seen, mut warnings) = (Vec::new(), BTreeSet::new(), 0);
    let mut folders = BTreeSet::new();
    for folder in std::env::split_paths(&path) {
        if folder.as_os_str().is_empty() || !folders.insert(folder.clone()) {
            continue;
        }
        let mut entries: Vec<_> =
            std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if !name.starts_with("kubectl-") {
                continue;
            }
            let shown = if arguments.is("name-only") {
                name.to_owned()
            } else {
                path.display().to_string()
            };
            found.push(shown);
            if !is_program(&path) {
                found.push(format!(
                    "  - warning: {} identified as a kubectl plugin, but it is not executable",
                    path.display()
                ));
                warnings += 1;
            }
            if !seen.insert(name.to_owned()) {
                found.push(format!(
                    "  - warning: {} is overshadowed by a similarly named plugin",
                    path.display()
                ));
                warnings += 1;
            }
        }
    }
    if found.is_empty() {
        return Err("unable to find any kubectl plugins in your PATH".into());
    }
    writeln!(session.out, "The following compatible plugins are available:\n")?;
    for line in found {
        writeln!(session.out, "{line}")?;
    }
    match warnings {
        0 => Ok(()),
        1 => Err(Failure::Plain("one plugin warning was found".to_owned())),
        many => Err(Failure::Plain(format!("{many} plugin warnings were found"))),
    }
}
