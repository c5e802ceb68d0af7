//! `kubectl create`: objects of files; those of flags are its children.
use super::{Command, Group};
use crate::builder::{self, FILES, Info, Request, SELECTOR};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::last_applied;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use client::source::{Raw, Write};
use serde_json::Value;

static FLAGS: &[Flag] = &[
    switch("edit", "Edit the objects before they are created."),
    text("raw", "", "Path on the server to post to."),
    switch("windows-line-endings", "Use the line ends of Windows with --edit."),
];

/// What every creating command takes.
pub static COMMON: &[Flag] = &[
    text("field-manager", "kubectl-create", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
];

pub static COMMAND: Command = Command {
    name: "create",
    group: Group::Beginner,
    about: "Create a resource from a file or from stdin",
    usage: "-f FILENAME",
    children: super::made::CHILDREN,
    flags: &[FLAGS, COMMON, FILES, SELECTOR, DRY_RUN, VALIDATE, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let request = Request::of(&arguments);
    if !request.has_files() {
        return Err(match arguments.words.first() {
            Some(_) => Failure::Plain(format!(
                "Unexpected args: [{}]\nSee 'kubectl create -h' for help and examples",
                arguments.words.join(" ")
            )),
            None => Failure::Plain("must specify one of -f and -k".to_owned()),
        });
    }
    let cluster = session.cluster(&arguments)?;
    if let Some(path) = arguments.some("raw") {
        let mut raw = Raw { method: http::Method::POST, ..Raw::get(path) };
        super::raw_body(&mut raw, &arguments)?;
        let bytes = cluster.raw(raw).await?.bytes().await?;
        return Ok(session.out.write_all(&bytes)?);
    }
    let infos = builder::file_infos(&cluster, &request).await?;
    if infos.is_empty() {
        return Err("no objects passed to create".into());
    }
    let mut failures = Vec::new();
    let mut creating = Creating::new(&arguments, cluster)?;
    for mut info in infos {
        if arguments.is("edit") {
            match super::edit::edited(session, &info.object, "").await? {
                Some(object) => info.object = object,
                None => {
                    writeln!(session.err, "Edit cancelled, no changes made.")?;
                    continue;
                }
            }
        }
        if let Err(failure) = creating.create(session, &info).await {
            failures.push(failure.with_source("creating", &info.source));
        }
    }
    Failure::of_all(failures)
}

/// Creates objects as the flags say, and tells it.
pub struct Creating {
    cluster: Cluster,
    dry_run: DryRun,
    write: Write,
    save_config: bool,
    telling: Telling,
}

impl Creating {
    pub fn new(arguments: &Arguments, cluster: Cluster) -> Outcome<Creating> {
        let dry_run = DryRun::of(arguments)?;
        Ok(Creating {
            cluster,
            dry_run,
            write: write::options(arguments, dry_run)?,
            save_config: arguments.is("save-config"),
            telling: Telling::new(arguments, dry_run)?,
        })
    }

    pub async fn create(&mut self, session: &mut Session, info: &Info) -> Outcome<Value> {
        let object = last_applied::refreshed(info.object.clone(), self.save_config)?;
        let object = match self.dry_run {
            DryRun::Client => object,
            _ => self.cluster.create(info.api(), &info.namespace, &object, &self.write).await?,
        };
        self.telling.tell(&object, "created", &mut session.out)?;
        Ok(object)
    }
}
