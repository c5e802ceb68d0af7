//! The commands: one row each, in the groups of the help.
mod api_resources;
mod apply;
mod auth;
mod autoscale;
mod certificate;
mod cluster_info;
mod completion;
mod config;
mod cp;
mod create;
mod debug;
mod delete;
mod describe;
mod diff;
mod edit;
mod events;
mod exec;
mod explain;
mod expose;
mod get;
mod kuberc;
mod kustomize;
mod label;
mod logs;
mod made;
mod node;
mod options;
mod patch;
mod plugins;
mod port_forward;
mod proxy;
mod replace;
mod rollout;
mod run;
mod scale;
mod set;
mod top;
mod version;
mod wait;

pub use api_resources::fetchable;

use crate::complete::Offers;
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, Gate};
use crate::session::Session;
use futures_util::future::LocalBoxFuture;

/// What a command does.
pub type Run = for<'s> fn(&'s mut Session, Arguments) -> LocalBoxFuture<'s, Outcome>;

pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub group: Group,
    pub about: &'static str,
    /// What stands behind its name.
    pub usage: &'static str,
    pub flags: &'static [&'static [Flag]],
    pub children: &'static [&'static Command],
    pub run: Option<Run>,
    /// What its words may be.
    pub offers: Offers,
    pub gate: Gate,
    /// It is there and nowhere shown.
    pub hidden: bool,
}

impl Command {
    /// A row to be filled.
    pub const EMPTY: Command = Command {
        name: "",
        aliases: &[],
        group: Group::Other,
        about: "",
        usage: "",
        flags: &[],
        children: &[],
        run: None,
        offers: Offers::Nothing,
        gate: Gate::Open,
        hidden: false,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Beginner,
    Intermediate,
    Deploy,
    Management,
    Troubleshooting,
    Advanced,
    Settings,
    Other,
    Hidden,
}

impl Group {
    pub const ALL: &[Group] = &[
        Group::Beginner,
        Group::Intermediate,
        Group::Deploy,
        Group::Management,
        Group::Troubleshooting,
        Group::Advanced,
        Group::Settings,
        Group::Other,
        Group::Hidden,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Group::Beginner => "Basic Commands (Beginner):",
            Group::Intermediate => "Basic Commands (Intermediate):",
            Group::Deploy => "Deploy Commands:",
            Group::Management => "Cluster Management Commands:",
            Group::Troubleshooting => "Troubleshooting and Debugging Commands:",
            Group::Advanced => "Advanced Commands:",
            Group::Settings => "Settings Commands:",
            Group::Other => "Other Commands:",
            Group::Hidden => "",
        }
    }
}

pub static COMMANDS: &[&Command] = &[
    &create::COMMAND,
    &set::COMMAND,
    &explain::COMMAND,
    &expose::COMMAND,
    &run::COMMAND,
    &get::COMMAND,
    &edit::COMMAND,
    &delete::COMMAND,
    &rollout::COMMAND,
    &scale::COMMAND,
    &certificate::COMMAND,
    &cluster_info::COMMAND,
    &top::COMMAND,
    &node::CORDON,
    &node::UNCORDON,
    &node::DRAIN,
    &node::TAINT,
    &logs::COMMAND,
    &exec::ATTACH,
    &exec::EXEC,
    &port_forward::COMMAND,
    &proxy::COMMAND,
    &cp::COMMAND,
    &auth::COMMAND,
    &debug::COMMAND,
    &events::COMMAND,
    &diff::COMMAND,
    &autoscale::COMMAND,
    &describe::COMMAND,
    &apply::COMMAND,
    &patch::COMMAND,
    &replace::COMMAND,
    &wait::COMMAND,
    &kustomize::COMMAND,
    &label::LABEL,
    &label::ANNOTATE,
    &completion::COMMAND,
    &api_resources::RESOURCES,
    &api_resources::VERSIONS,
    &config::COMMAND,
    &kuberc::COMMAND,
    &plugins::COMMAND,
    &version::COMMAND,
    &options::COMMAND,
    &options::ALPHA,
    &options::HELP,
];

/// What `--raw` sends: the one file that was named, or nothing.
pub fn raw_body(request: &mut client::source::Raw, arguments: &Arguments) -> Outcome {
    let body = match arguments.list("filename") {
        [] => return Ok(()),
        [file] if file == "-" => {
            let mut body = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin(), &mut body)?;
            body
        }
        [file] => std::fs::read(file)
            .map_err(|error| crate::failure::Failure::Plain(crate::print::io_text(file, &error)))?,
        _ => return Err("--raw can only use a single local file or stdin".into()),
    };
    request.content_type = "application/json".to_owned();
    request.body = body.into();
    Ok(())
}
