//! crictl: the command-line client of container runtimes, in our own words; names, flags, columns and
//! messages are those of cri-tools.
//!
//! It talks to whatever serves CRI v1 on a socket: our own runtime, containerd, CRI-O.
//!
//! **It may not know** anything of a runtime but its interface ([`runtime::cri`]): no sandbox's folder, no
//! shim, no image store; no kubelet and no API server. The one file that it reads for a container is the
//! log whose path the runtime tells.
//!
//! ```text
//!  COMMANDS   one row per command: name, aliases, flags, what it does ──► help, parsing, completion
//!  flags      what a command line says                 failure   what went wrong, in Go's words
//!  settings   which socket, how long: flags, environment, /etc/crictl.yaml
//!  session    where output goes; connections, made when they are first needed
//!  message    CRI's messages ⇄ JSON, by their declaration
//!  print      JSON, YAML, templates, tables             human     sizes and spans as people read them
//!  select     which containers, sandboxes and images are meant
//!  cri_log    the format of containers' logs            commands/ one file per idea
//! ```
#![forbid(unsafe_code)]

mod commands;
mod cri_log;
mod failure;
mod flags;
mod help;
mod human;
mod message;
mod print;
mod select;
mod session;
mod settings;
#[cfg(test)]
mod tests;

use commands::{COMMANDS, Command};
use failure::{Failure, Outcome};
use flags::{Arguments, GLOBAL};
use session::Session;
use settings::Settings;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs a command line, without the program's own name. `endpoint` is where a runtime is looked for if
/// nobody says where.
pub fn main(arguments: Vec<OsString>, endpoint: &str) -> ExitCode {
    let words: Vec<String> =
        arguments.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut session = Session::terminal(endpoint);
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = run(&mut session, &words) => ended,
            () = interrupted() => Err(Failure::Exit(1)),
        }
    });
    let flushed = session.flush();
    // Readers of a terminal that wait for ever end with the process.
    runtime.shutdown_background();
    match ended.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.message() {
                eprintln!("{}", failure::log_line(failure::Level::Error, &text));
            }
            ExitCode::from(failure.code())
        }
    }
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// One command line, from its words to its end.
async fn run(session: &mut Session, words: &[String]) -> Outcome {
    let global = match Arguments::parse(&[GLOBAL], words) {
        Ok(global) => global,
        Err(fault) => return help::misused(session, None, &fault),
    };
    let words = &global.words;
    if global.is("version") {
        return Ok(writeln!(session.out, "crictl version {}", env!("CARGO_PKG_VERSION"))?);
    }
    let Some((name, rest)) = words.split_first() else { return help::root(session) };
    if global.is("help") || matches!(name.as_str(), "help" | "h") {
        let asked = if matches!(name.as_str(), "help" | "h") { rest.first() } else { Some(name) };
        return match asked.map(|name| (name, find(name))) {
            Some((_, Some(command))) => help::of(session, command),
            Some((name, None)) => Err(format!("No help topic for '{name}'").into()),
            None => help::root(session),
        };
    }
    let Some(command) = find(name) else {
        // Upstream's parser has a code of its own for this.
        writeln!(session.err, "No help topic for '{}'", print::tame(name))?;
        return Err(Failure::Exit(3));
    };
    let arguments = match Arguments::parse(command.flags, rest) {
        Ok(arguments) => arguments,
        Err(fault) => return help::misused(session, Some(command), &fault),
    };
    if arguments.is("help") {
        return help::of(session, command);
    }
    // A file that means nothing is for `config` to mend.
    session.settings =
        Settings::read(&global, &session.default_endpoint, command.name == "config")?;
    match (command.run)(session, arguments).await {
        Err(Failure::Help) => help::of(session, command),
        ended => ended,
    }
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().copied().find(|row| row.name == name || row.aliases.contains(&name))
}
