//! `kubectl patch`.
use super::{Command, Group};
use crate::builder::{self, FILES, Info, Request};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, PARTS, switch, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun};
use api::codec::yaml;
use api::patch::json_patch;
use client::source::Patch;
use serde_json::Value;

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-patch", "Who manages the fields that are patched."),
    switch("local", "Patch what is in files, and print it."),
    text("patch", "", "The patch, JSON or YAML.").short('p'),
    text("patch-file", "", "A file with the patch."),
    text("subresource", "", "Subresource to patch: status, scale, resize.").offers(PARTS),
    text("type", "strategic", "json, merge or strategic."),
];

pub static COMMAND: Command = Command {
    name: "patch",
    group: Group::Advanced,
    about: "Update fields of a resource",
    usage: "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE]",
    flags: &[FLAGS, FILES, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let patch = patch(&arguments)?;
    let local = arguments.is("local");
    if local && !arguments.words.is_empty() {
        return Err("cannot specify --local and server resources".into());
    }
    let dry_run = DryRun::of(&arguments)?;
    let request = Request::of(&arguments);
    let cluster = session.cluster(&arguments)?;
    let infos = match local {
        true => builder::local_infos(&request, &cluster.namespace).await?,
        false => builder::infos(&cluster, &request, true).await?,
    };
    if infos.is_empty() {
        return Err("no objects passed to patch".into());
    }
    let write = write::options(&arguments, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    for info in &infos {
        let place = (&*info.namespace, &*info.name, arguments.text("subresource"));
        let outcome = match local || dry_run == DryRun::Client {
            true => patched(info, &patch),
            false => cluster.patch(info.api(), place, patch.clone(), &write).await,
        };
        match outcome {
            Ok(object) => {
                let same = object == info.object;
                let done = if same { "patched (no change)" } else { "patched" };
                telling.tell(&object, done, &mut session.out)?;
            }
            Err(Failure::Server(status)) if status.code == 415 => {
                failures.push(Failure::Plain(format!(
                    "{} is not supported by {}, Kind={}: {}",
                    patch.content_type(),
                    info.api().api_version(),
                    info.api().kind,
                    status.message
                )));
            }
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of_all(failures)
}

fn patch(arguments: &Arguments) -> Outcome<Patch> {
    let text = match (arguments.some("patch"), arguments.some("patch-file")) {
        (Some(_), Some(_)) => return Err("cannot specify --patch and --patch-file together".into()),
        (None, None) => {
            return Err(
                "must specify --patch or --patch-file containing the contents of the patch".into(),
            );
        }
        (Some(text), None) => text.to_owned(),
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
            Failure::Plain(format!("unable to read patch file: {}", print::io_text(path, &error)))
        })?,
    };
    let value = yaml::decode_untyped(text.as_bytes())
        .map_err(|error| Failure::Plain(format!("unable to parse {text:?}: {error}")))?
        .value;
    match &*arguments.text("type").to_lowercase() {
        "json" => Ok(Patch::Json(value)),
        "merge" => Ok(Patch::Merge(value)),
        "strategic" => Ok(Patch::Strategic(value)),
        _ => Err(format!(
            "--type must be one of [json merge strategic], not {:?}",
            arguments.text("type")
        )
        .into()),
    }
}

/// The object after the patch, without a server.
fn patched(info: &Info, patch: &Patch) -> Outcome<Value> {
    match patch {
        Patch::Json(operations) => {
            let failed = |error: json_patch::Error| Failure::Plain(error.to_string());
            let limits = json_patch::Limits::default();
            let operations =
                json_patch::Patch::decode(operations.clone(), &limits).map_err(failed)?;
            operations.apply(info.object.clone(), &limits).map_err(failed)
        }
        Patch::Strategic(_) if info.api().row.is_none() => Err(format!(
            "strategic merge patch is not supported for {}, Kind={} locally, try --type merge",
            info.api().api_version(),
            info.api().kind
        )
        .into()),
        patch => super::apply::patched_here(info, info.object.clone(), patch),
    }
}
