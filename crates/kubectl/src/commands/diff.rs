//! `kubectl diff`: what applying would change.
//!
//! Exit codes are diff's: 0 nothing, 1 something, more than 1 a fault. `KUBECTL_EXTERNAL_DIFF` names a
//! program; without it we compare ourselves, so that nothing has to be installed.
mod unified;

use super::{Command, Group};
use crate::builder::{self, FILES, Info, Request, SELECTOR};
use crate::change;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, list, number, switch, text};
use crate::print::forget_managed_fields;
use crate::session::Session;
use api::codec::yaml;
use client::source::{Patch, Write};
use serde_json::Value;
use std::path::Path;

static FLAGS: &[Flag] = &[
    number("concurrency", "1", "How many objects are compared at once."),
    text("field-manager", "kubectl-client-side-apply", "Who would manage the fields."),
    switch("force-conflicts", "Take fields from other managers, with --server-side."),
    switch("prune", "Show what --prune of apply would delete."),
    list("prune-allowlist", "Kinds to prune: group/version/Kind."),
    switch("server-side", "Compare with what the server would merge."),
    switch("show-managed-fields", "Show managedFields, too."),
    switch("show-secrets", "Show the values of secrets."),
];

pub static COMMAND: Command = Command {
    name: "diff",
    group: Group::Advanced,
    about: "Diff the live version against a would-be applied version",
    usage: "-f FILENAME",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|session, arguments| {
        Box::pin(async {
            run(session, arguments).await.map_err(|failure| match failure {
                Failure::Said { .. } => failure,
                // One would mean that something differs.
                other => Failure::Said { text: other.message(), code: 2 },
            })
        })
    }),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    if let Some(word) = arguments.words.first() {
        return Err(Failure::usage(&arguments.command, format!("Unexpected args: [{word}]")));
    }
    let request = Request::of(&arguments);
    if !request.has_files() {
        return Err("must specify one of -f and -k".into());
    }
    let cluster = session.cluster(&arguments)?;
    let infos = builder::file_infos(&cluster, &request).await?;
    let folder = |prefix: &str| tempfile::Builder::new().prefix(prefix).tempdir();
    let (before, after) = (folder("LIVE-")?, folder("MERGED-")?);
    for info in &infos {
        let (live, merged) = versions(&cluster, info, &arguments).await?;
        let (live, merged) = shown(live, merged, &arguments);
        for (folder, object) in [(&before, live), (&after, merged)] {
            let text = object.map_or(String::new(), |object| yaml::encode(&object));
            std::fs::write(folder.path().join(file_name(info)), text)?;
        }
    }
    compare(session, before.path(), after.path()).await
}

/// What there is, and what there would be.
async fn versions(
    cluster: &Cluster,
    info: &Info,
    arguments: &Arguments,
) -> Outcome<(Option<Value>, Option<Value>)> {
    let live = match cluster.get(info.api(), &info.namespace, &info.name).await {
        Ok(live) => Some(live),
        Err(failure) if failure.is_not_found() => None,
        Err(failure) => return Err(failure),
    };
    let manager = arguments.text("field-manager").to_owned();
    let mut write = Write { dry_run: true, field_manager: manager, ..Write::default() };
    let place = (&*info.namespace, &*info.name, "");
    if arguments.is("server-side") {
        if !arguments.given("field-manager") {
            write.field_manager = "kubectl".to_owned();
        }
        write.force = arguments.is("force-conflicts");
        let patch = Patch::Apply(info.object.clone());
        let merged = cluster.patch(info.api(), place, patch, &write).await?;
        return Ok((live, Some(merged)));
    }
    // The annotation would differ whenever anything does: it is left as it is.
    let modified = &serde_json::from_str(&crate::last_applied::configuration(&info.object)?)
        .unwrap_or_else(|_| info.object.clone());
    let merged = match &live {
        None => cluster.create(info.api(), &info.namespace, modified, &write).await?,
        Some(live) => {
            let patch = super::apply::three_way(info, live, modified, true)?;
            match change::is_empty(&patch) {
                true => live.clone(),
                false => cluster.patch(info.api(), place, patch, &write).await?,
            }
        }
    };
    Ok((live, Some(merged)))
}

/// Without what differs for no reason, and with secrets covered.
fn shown(
    live: Option<Value>,
    merged: Option<Value>,
    arguments: &Arguments,
) -> (Option<Value>, Option<Value>) {
    let (mut live, mut merged) = (live, merged);
    for object in live.iter_mut().chain(merged.iter_mut()) {
        if !arguments.is("show-managed-fields") {
            forget_managed_fields(object);
        }
    }
    let is_secret = |object: &Option<Value>| object.as_ref().is_some_and(|o| o["kind"] == "Secret");
    if !arguments.is("show-secrets") && (is_secret(&live) || is_secret(&merged)) {
        cover(&mut live, &mut merged);
    }
    (live, merged)
}

fn cover(live: &mut Option<Value>, merged: &mut Option<Value>) {
    for field in ["data", "stringData"] {
        let values = |object: &Option<Value>| {
            object
                .as_ref()
                .and_then(|object| object[field].as_object())
                .cloned()
                .unwrap_or_default()
        };
        let (old, new) = (values(live), values(merged));
        let covered = |mine: &serde_json::Map<String, Value>,
                       other: &serde_json::Map<String, Value>,
                       word: &str| {
            let all = mine.iter().map(|(key, value)| {
                let differs = other.get(key).is_some_and(|other| other != value);
                let text = if differs { format!("*** ({word})") } else { "***".to_owned() };
                (key.clone(), Value::from(text))
            });
            all.collect::<serde_json::Map<String, Value>>()
        };
        if let Some(object) = live.as_mut().filter(|_| !old.is_empty()) {
            object[field] = covered(&old, &new, "before").into();
        }
        if let Some(object) = merged.as_mut().filter(|_| !new.is_empty()) {
            object[field] = covered(&new, &old, "after").into();
        }
    }
}

fn file_name(info: &Info) -> String {
    let api = info.api();
    let group = if api.group.is_empty() { String::new() } else { format!("{}.", api.group) };
    format!("{group}{}.{}.{}.{}", api.version, api.kind, info.namespace, info.name)
}

async fn compare(session: &mut Session, before: &Path, after: &Path) -> Outcome {
    let program = std::env::var("KUBECTL_EXTERNAL_DIFF").unwrap_or_default();
    if program.trim().is_empty() {
        let text = unified::folders(before, after)?;
        session.out.write_all(text.as_bytes())?;
        return if text.is_empty() { Ok(()) } else { Err(Failure::exit(1)) };
    }
    session.flush()?;
    // As upstream does: letters and a few signs, and no shell.
    let mut words = program.split_whitespace();
    let name = words.next().unwrap_or_default();
    let status = tokio::process::Command::new(name)
        .args(words)
        .arg(before)
        .arg(after)
        .status()
        .await
        .map_err(|error| Failure::Said {
            text: format!("error: failed to run {name:?}: {error}"),
            code: 2,
        })?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => {
            let text = if code == 1 { String::new() } else { format!("error: exit status {code}") };
            Err(Failure::Said { text, code: u8::try_from(code).unwrap_or(2) })
        }
        None => Err(Failure::exit(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_covered_and_it_shows_which_differ() {
        let secret = |a: &str| Some(json!({ "kind": "Secret", "data": { "a": a, "b": "same" } }));
        let (mut live, mut merged) = (secret("x"), secret("y"));
        cover(&mut live, &mut merged);
        assert_eq!(live.unwrap()["data"], json!({ "a": "*** (before)", "b": "***" }));
        assert_eq!(merged.unwrap()["data"], json!({ "a": "*** (after)", "b": "***" }));
    }
}
