//! `kubectl apply view-last-applied`, `set-last-applied` and `edit-last-applied`.
use super::super::{Command, edit};
use crate::builder::{self, ALL, FILE_NAMES, FILES, Request, SELECTOR};
use crate::change;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::last_applied;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use api::codec::yaml;
use client::source::Write;

static VIEW_FLAGS: &[Flag] = &[text("output", "yaml", "yaml or json.").short('o')];

pub static VIEW: Command = Command {
    name: "view-last-applied",
    about: "View the latest last-applied-configuration annotations of a resource/object",
    usage: "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME)",
    flags: &[VIEW_FLAGS, FILES, SELECTOR, ALL],
    run: Some(|session, arguments| Box::pin(view(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

static SET_FLAGS: &[Flag] =
    &[switch("create-annotation", "Make the annotation where there is none.")];

pub static SET: Command = Command {
    name: "set-last-applied",
    about: "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    usage: "-f FILENAME",
    flags: &[SET_FLAGS, FILE_NAMES, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(set(session, arguments))),
    ..Command::EMPTY
};

static EDIT_FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-client-side-apply", "Who manages the fields that are written."),
    switch("windows-line-endings", "Use the line ends of Windows in the file."),
];

pub static EDIT: Command = Command {
    name: "edit-last-applied",
    about: "Edit latest last-applied-configuration annotations of a resource/object",
    usage: "(RESOURCE/NAME | -f FILENAME)",
    flags: &[EDIT_FLAGS, FILES, VALIDATE, print::FLAGS],
    run: Some(|session, arguments| Box::pin(edit_last_applied(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

async fn view(session: &mut Session, arguments: Arguments) -> Outcome {
    let output = arguments.text("output").to_owned();
    if !matches!(&*output, "yaml" | "json") {
        return Err(Failure::usage(
            &arguments.command,
            format!(
                "Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json"
            ),
        ));
    }
    let cluster = session.cluster(&arguments)?;
    let infos = builder::infos(&cluster, &Request::of(&arguments), true).await?;
    for info in &infos {
        let Some(last) = last_applied::original(&info.object)? else {
            return Err(format!(
                "no last-applied-configuration annotation found on resource: {}",
                info.name
            )
            .into());
        };
        match &*output {
            "json" => {
                let text = serde_json::to_string_pretty(&last).unwrap_or_default();
                writeln!(session.out, "{text}")?;
            }
            _ => session.out.write_all(yaml::encode(&last).as_bytes())?,
        }
    }
    Ok(())
}

async fn set(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let infos = builder::file_infos(&cluster, &Request::of(&arguments)).await?;
    let dry_run = DryRun::of(&arguments)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    for info in &infos {
        let current = cluster.get(info.api(), &info.namespace, &info.name).await?;
        if !last_applied::has(&current) && !arguments.is("create-annotation") {
            return Err(format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run \
                 the command with --create-annotation",
                info.name
            )
            .into());
        }
        let mut wanted = current.clone();
        let text = last_applied::configuration(&info.object)?;
        let same = current["metadata"]["annotations"][last_applied::ANNOTATION] == text.as_str();
        wanted["metadata"]["annotations"][last_applied::ANNOTATION] = text.into();
        if same {
            telling.tell(&current, "configured", &mut session.out)?;
            continue;
        }
        let patch = change::merge(&current, &wanted)?;
        let object = match dry_run {
            DryRun::Client => wanted,
            dry_run => {
                let write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
                cluster.patch(info.api(), (&info.namespace, &info.name, ""), patch, &write).await?
            }
        };
        telling.tell(&object, "configured", &mut session.out)?;
    }
    Ok(())
}

async fn edit_last_applied(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let infos = builder::infos(&cluster, &Request::of(&arguments), true).await?;
    let write = write::options(&arguments, DryRun::None)?;
    let mut telling = Telling::new(&arguments, DryRun::None)?;
    for info in &infos {
        let Some(last) = last_applied::original(&info.object)? else {
            return Err(format!(
                "no last-applied-configuration annotation found on resource: {}",
                info.name
            )
            .into());
        };
        let Some(edited) = edit::edited(session, &last, "").await? else {
            writeln!(session.err, "Edit cancelled, no changes made.")?;
            continue;
        };
        let mut wanted = info.object.clone();
        let text = last_applied::configuration(&edited)?;
        wanted["metadata"]["annotations"][last_applied::ANNOTATION] = text.into();
        let patch = change::merge(&info.object, &wanted)?;
        let place = (&*info.namespace, &*info.name, "");
        let object = cluster.patch(info.api(), place, patch, &write).await?;
        telling.tell(&object, "edited", &mut session.out)?;
    }
    Ok(())
}
