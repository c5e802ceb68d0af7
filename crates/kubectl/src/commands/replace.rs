//! `kubectl replace`.
use super::delete::{self, How, OPTIONS as DELETE_OPTIONS};
use super::{Command, Group};
use crate::builder::{self, FILES, Request};
use crate::cluster::propagation;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, PARTS, switch, text};
use crate::last_applied;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use client::source::{Delete, Raw};
use std::time::Duration;

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-replace", "Who manages the fields that are written."),
    text("raw", "", "Path on the server to put to."),
    switch("save-config", "Keep the object in its annotation, for apply."),
    text("subresource", "", "Subresource to replace: status, scale, resize.").offers(PARTS),
    switch("wait", "Wait until objects that are deleted on the way are gone."),
];

pub static COMMAND: Command = Command {
    name: "replace",
    group: Group::Advanced,
    about: "Replace a resource by file name or stdin",
    usage: "-f FILENAME",
    flags: &[FLAGS, DELETE_OPTIONS, FILES, DRY_RUN, VALIDATE, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let request = Request::of(&arguments);
    if !request.has_files() {
        return Err("must specify one of -f and -k".into());
    }
    let grace = arguments.number("grace-period");
    let force = arguments.is("force");
    if grace >= 0 && !force {
        return Err("--grace-period must have --force specified".into());
    }
    if !arguments.span("timeout").is_zero() && !force {
        return Err("--timeout must have --force specified".into());
    }
    let cluster = session.cluster(&arguments)?;
    if let Some(path) = arguments.some("raw") {
        let mut raw = Raw { method: http::Method::PUT, ..Raw::get(path) };
        super::raw_body(&mut raw, &arguments)?;
        let bytes = cluster.raw(raw).await?.bytes().await?;
        return Ok(session.out.write_all(&bytes)?);
    }
    let infos = builder::file_infos(&cluster, &request).await?;
    if infos.is_empty() {
        return Err("no objects passed to replace".into());
    }
    let dry_run = DryRun::of(&arguments)?;
    let write = write::options(&arguments, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    if force && dry_run == DryRun::None {
        let patience = match arguments.span("timeout") {
            Duration::ZERO => Duration::from_secs(300),
            some => some,
        };
        let options = Delete {
            // Zero would leave what runs behind; that needs to be said.
            grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
            propagation: Some(propagation(&arguments)?),
            ..Delete::default()
        };
        let by_name = arguments.text("output") == "name";
        let how = How { options, dry_run, wait: true, patience, by_name };
        let mut deleted = Vec::new();
        for info in &infos {
            match delete::delete(session, &cluster, info, &how).await {
                Ok(uid) => deleted.push((info.clone(), uid)),
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => return Err(failure.with_source("deleting", &info.source)),
            }
        }
        delete::gone(&cluster, &deleted, patience).await?;
    }
    let mut failures = Vec::new();
    for info in &infos {
        let object = last_applied::refreshed(info.object.clone(), arguments.is("save-config"))?;
        let place = (&*info.namespace, &*info.name, arguments.text("subresource"));
        let outcome = match dry_run {
            DryRun::Client => Ok(object),
            _ if force => cluster.create(info.api(), &info.namespace, &object, &write).await,
            _ => cluster.update(info.api(), place, &object, &write).await,
        };
        match outcome {
            Ok(object) => telling.tell(&object, "replaced", &mut session.out)?,
            Err(failure) => failures.push(failure.with_source("replacing", &info.source)),
        }
    }
    Failure::of_all(failures)
}
