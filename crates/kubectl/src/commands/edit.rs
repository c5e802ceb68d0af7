//! `kubectl edit`: an object in the user's editor.
use super::{Command, Group};
use crate::builder::{self, FILES, Request};
use crate::change;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, PARTS, switch, text};
use crate::last_applied;
use crate::print::{self, Telling, forget_managed_fields};
use crate::session::Session;
use crate::write::{self, DryRun, VALIDATE};
use api::codec::yaml;
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-edit", "Who manages the fields that are written."),
    switch("output-patch", "Print the patch where an object changed."),
    switch("save-config", "Keep the object in its annotation, for apply."),
    text("subresource", "", "Subresource to edit: status.").offers(PARTS),
    switch("windows-line-endings", "Use the line ends of Windows in the file."),
];

pub static COMMAND: Command = Command {
    name: "edit",
    group: Group::Intermediate,
    about: "Edit a resource on the server",
    usage: "(RESOURCE/NAME | -f FILENAME)",
    flags: &[FLAGS, FILES, VALIDATE, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
                      # and an empty file will abort the edit. If an error occurs while saving this file will be\n\
                      # reopened with the relevant failures.\n#\n";

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let infos = builder::infos(&cluster, &Request::of(&arguments), true).await?;
    if infos.is_empty() {
        return Err("edit cancelled, no objects found".into());
    }
    let write = write::options(&arguments, DryRun::None)?;
    // The form for machines is that of the file; what was done is a line all the same.
    let mut told = arguments.clone();
    told.put("output", if arguments.text("output") == "name" { "name" } else { "" });
    let mut telling = Telling::new(&told, DryRun::None)?;
    for info in &infos {
        let mut shown = info.object.clone();
        forget_managed_fields(&mut shown);
        let mut fault = String::new();
        loop {
            let Some(edited) = edited(session, &shown, &fault).await? else {
                writeln!(session.err, "Edit cancelled, no changes made.")?;
                break;
            };
            let mut original = info.object.clone();
            forget_managed_fields(&mut original);
            let wanted = last_applied::refreshed(edited.clone(), arguments.is("save-config"))?;
            let patch = change::patch(info.api(), &original, &wanted)?;
            if change::is_empty(&patch) {
                writeln!(session.err, "Edit cancelled, no changes made.")?;
                break;
            }
            if arguments.is("output-patch") {
                writeln!(session.out, "Patch: {}", patch.value())?;
            }
            let place = (&*info.namespace, &*info.name, arguments.text("subresource"));
            match cluster.patch(info.api(), place, patch, &write).await {
                Ok(object) => {
                    telling.tell(&object, "edited", &mut session.out)?;
                    break;
                }
                Err(failure) if fault.is_empty() => {
                    writeln!(session.err, "{}", failure.message())?;
                    (shown, fault) = (edited, failure.message());
                }
                Err(failure) => return Err(kept(&edited, failure)?),
            }
        }
    }
    Ok(())
}

/// What could not be written is left in a file.
fn kept(edited: &Value, failure: Failure) -> Outcome<Failure> {
    let (mut file, path) = tempfile::Builder::new()
        .prefix("kubectl-edit-")
        .suffix(".yaml")
        .tempfile()?
        .keep()
        .map_err(|error| Failure::Plain(error.to_string()))?;
    file.write_all(yaml::encode(edited).as_bytes())?;
    let text = format!(
        "{}\nYou can run `kubectl replace -f {}` to try this update again.",
        failure.message(),
        path.display()
    );
    Ok(Failure::Said { text, code: 1 })
}

/// An object after the user's editor; none if it was left as it is, or emptied.
pub async fn edited(session: &mut Session, object: &Value, fault: &str) -> Outcome<Option<Value>> {
    session.flush()?;
    let mut text = HEADER.to_owned();
    for line in fault.lines() {
        text.push_str(&format!("# {line}\n"));
    }
    if !fault.is_empty() {
        text.push_str("#\n");
    }
    let body = yaml::encode(object);
    text.push_str(&body);
    let mut file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(".yaml").tempfile()?;
    file.write_all(text.as_bytes())?;
    let path = file.path().to_owned();
    let editor = ["KUBE_EDITOR", "EDITOR"].iter().find_map(|name| std::env::var(name).ok());
    let editor = editor.filter(|editor| !editor.trim().is_empty()).unwrap_or("vi".to_owned());
    // An editor may come with arguments, which a shell understands.
    let status = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$0\""))
        .arg(&path)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .status()
        .await?;
    if !status.success() {
        return Err(format!("there was a problem with the editor {editor:?}").into());
    }
    let text = std::fs::read_to_string(&path)?;
    let rest: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    if rest.trim().is_empty() || rest == body {
        return Ok(None);
    }
    let edited = yaml::decode_untyped(rest.as_bytes())
        .map_err(|error| Failure::Plain(format!("The edited file had a syntax error: {error}")))?;
    Ok(Some(edited.value))
}
