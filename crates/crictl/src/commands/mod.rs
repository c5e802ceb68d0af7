//! The commands: one row each, in the order of the help.
mod completion;
mod config;
mod events;
mod exec;
mod images;
mod inspect;
mod lifecycle;
mod lists;
mod logs;
mod make;
mod metrics;
mod port_forward;
mod pull;
mod runtime;
mod stats;

use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, text};
use crate::session::Session;
use futures_util::future::LocalBoxFuture;

/// What a command does.
pub type Run = for<'s> fn(&'s mut Session, Arguments) -> LocalBoxFuture<'s, Outcome>;

pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub about: &'static str,
    /// What stands behind its name and flags.
    pub usage: &'static str,
    pub flags: &'static [&'static [Flag]],
    pub run: Run,
}

impl Command {
    /// A row to be filled.
    const EMPTY: Command = Command {
        name: "",
        aliases: &[],
        about: "",
        usage: "",
        flags: &[],
        run: |_, _| Box::pin(async { Ok(()) }),
    };
}

pub static COMMANDS: &[&Command] = &[
    &exec::ATTACH,
    &lifecycle::CHECKPOINT,
    &completion::COMMAND,
    &config::COMMAND,
    &make::CREATE,
    &events::COMMAND,
    &exec::EXEC,
    &images::FILE_SYSTEMS,
    &images::IMAGES,
    &runtime::INFO,
    &inspect::CONTAINERS,
    &inspect::IMAGES,
    &inspect::PODS,
    &logs::COMMAND,
    &metrics::DESCRIPTORS,
    &metrics::METRICS,
    &lists::PODS,
    &port_forward::COMMAND,
    &lists::CONTAINERS,
    &pull::COMMAND,
    &lifecycle::REMOVE,
    &images::REMOVE,
    &lifecycle::REMOVE_POD,
    &make::RUN,
    &make::RUN_POD,
    &runtime::CONFIG,
    &lifecycle::START,
    &stats::CONTAINERS,
    &stats::PODS,
    &lifecycle::STOP,
    &lifecycle::STOP_POD,
    &lifecycle::UPDATE,
    &runtime::UPDATE_CONFIG,
    &runtime::VERSION,
];

/// `-o` of commands that print JSON unless told otherwise.
static STATUS_OUTPUT: &[Flag] = &[
    text("output", "Output format, One of: json|yaml|go-template|table").or("o"),
    text("template", "The template, in Go's words, for the output go-template"),
];

const NO_ID: &str = "ID cannot be empty";
