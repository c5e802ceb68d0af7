//! `kubectl label` and `kubectl annotate`: one field of metadata each.
use super::{Command, Group};
use crate::builder::{self, ALL, ALL_NAMESPACES, FIELD_SELECTOR, FILES, Info, Request, SELECTOR};
use crate::change;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun};
use api::quote::Quoted;
use serde_json::{Value, json};
use std::collections::BTreeMap;

static FLAGS: &[Flag] = &[
    switch("list", "Show what there is."),
    switch("local", "Change what is in files, and print it."),
    switch("overwrite", "Change values that are there already."),
    text("resource-version", "", "Change only this version of the object."),
];

static LABEL_FLAGS: &[Flag] = &[text("field-manager", "kubectl-label", "Who manages the labels.")];
static ANNOTATE_FLAGS: &[Flag] =
    &[text("field-manager", "kubectl-annotate", "Who manages the annotations.")];

pub static LABEL: Command = Command {
    name: "label",
    group: Group::Settings,
    about: "Update the labels on a resource",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    flags: &[
        FLAGS,
        LABEL_FLAGS,
        FILES,
        SELECTOR,
        FIELD_SELECTOR,
        ALL_NAMESPACES,
        ALL,
        DRY_RUN,
        print::FLAGS,
    ],
    run: Some(|session, arguments| Box::pin(run(session, arguments, &LABELS))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

pub static ANNOTATE: Command = Command {
    name: "annotate",
    group: Group::Settings,
    about: "Update the annotations on a resource",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    flags: &[
        FLAGS,
        ANNOTATE_FLAGS,
        FILES,
        SELECTOR,
        FIELD_SELECTOR,
        ALL_NAMESPACES,
        ALL,
        DRY_RUN,
        print::FLAGS,
    ],
    run: Some(|session, arguments| Box::pin(run(session, arguments, &ANNOTATIONS))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

/// What differs between the two.
struct Words {
    one: &'static str,
    field: &'static str,
    done: fn(usize, usize) -> &'static str,
}

static LABELS: Words = Words {
    one: "label",
    field: "labels",
    done: |added, removed| match (added, removed) {
        (0, 0) => "not labeled",
        (_, 0) => "labeled",
        (0, _) => "unlabeled",
        _ => "modified",
    },
};

static ANNOTATIONS: Words =
    Words { one: "annotation", field: "annotations", done: |_, _| "annotated" };

/// What is to be set and what is to go.
#[derive(Debug, Default, PartialEq)]
struct Pairs {
    set: BTreeMap<String, String>,
    remove: Vec<String>,
}

async fn run(session: &mut Session, arguments: Arguments, words: &'static Words) -> Outcome {
    let (named, pairs) = split(&arguments.words, words)?;
    let pairs = parse(&pairs, words)?;
    let (list, local) = (arguments.is("list"), arguments.is("local"));
    if arguments.is("all") && arguments.some("selector").is_some() {
        return Err("cannot set --all and --selector at the same time".into());
    }
    let request = Request::of(&arguments).with_words(&named);
    if named.is_empty() && !request.has_files() {
        return Err(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>"
                .into(),
        );
    }
    if pairs == Pairs::default() && !list {
        return Err(format!("at least one {} update is required", words.one).into());
    }
    let dry_run = DryRun::of(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let infos = match local {
        true => builder::local_infos(&request, &cluster.namespace).await?,
        false => builder::infos(&cluster, &request, true).await?,
    };
    let write = write::options(&arguments, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    for info in &infos {
        if list {
            show(session, info, words, infos.len() == 1)?;
            continue;
        }
        let outcome = changed(info, &pairs, words, arguments.is("overwrite"));
        let (mut wanted, added, removed) = match outcome {
            Ok(changed) => changed,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for key in &pairs.remove {
            if info.object["metadata"][words.field].get(key).is_none() {
                writeln!(session.out, "{} {} not found.", words.one, Quoted(key))?;
            }
        }
        let done = (words.done)(added, removed);
        if added + removed > 0 && !local && dry_run != DryRun::Client {
            let mut patch = change::merge(&info.object, &wanted)?;
            if let (Some(version), client::source::Patch::Merge(patch)) =
                (arguments.some("resource-version"), &mut patch)
            {
                patch["metadata"]["resourceVersion"] = version.into();
            }
            let place = (&*info.namespace, &*info.name, "");
            match cluster.patch(info.api(), place, patch, &write).await {
                Ok(object) => wanted = object,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            }
        }
        telling.tell(&wanted, done, &mut session.out)?;
    }
    Failure::of_all(failures)
}

/// Words before the first `key=value` or `key-` name objects.
fn split(all: &[String], words: &Words) -> Outcome<(Vec<String>, Vec<String>)> {
    let is_pair = |word: &String| {
        (word.contains('=') && !word.starts_with('=')) || (word.ends_with('-') && word.len() > 1)
    };
    let first = all.iter().position(is_pair).unwrap_or(all.len());
    let (named, pairs) = all.split_at(first);
    if let Some(word) = pairs.iter().find(|word| !is_pair(word)) {
        return Err(format!(
            "all resources must be specified before {} changes: {word}",
            words.one
        )
        .into());
    }
    Ok((named.to_vec(), pairs.to_vec()))
}

fn parse(pairs: &[String], words: &Words) -> Outcome<Pairs> {
    let mut found = Pairs::default();
    for pair in pairs {
        match pair.split_once('=') {
            Some((key, value)) => {
                if words.one == "label" && value.contains('=') {
                    return Err(format!("invalid label spec: {pair}").into());
                }
                if words.one == "label"
                    && let Some(why) = api::names::label_value(value).first()
                {
                    return Err(format!("invalid label value: {}: {why}", Quoted(pair)).into());
                }
                found.set.insert(key.to_owned(), value.to_owned());
            }
            None => found.remove.push(pair.trim_end_matches('-').to_owned()),
        }
    }
    if found.remove.iter().any(|key| found.set.contains_key(key)) {
        let article = if words.one == "label" { "a label" } else { "an annotation" };
        return Err(format!("can not both modify and remove {article} in the same command").into());
    }
    Ok(found)
}

/// The object after it, with how many pairs were added and removed.
fn changed(
    info: &Info,
    pairs: &Pairs,
    words: &Words,
    overwrite: bool,
) -> Outcome<(Value, usize, usize)> {
    let mut object = info.object.clone();
    let field = &mut object["metadata"][words.field];
    if !field.is_object() {
        *field = json!({});
    }
    let Some(fields) = field.as_object_mut() else { return Ok((object, 0, 0)) };
    let (mut added, mut removed, mut taken) = (0, 0, Vec::new());
    for (key, value) in &pairs.set {
        match fields.get(key).and_then(Value::as_str) {
            Some(old) if old == value => continue,
            Some(old) if !overwrite => {
                taken.push(match words.one {
                    "label" => Failure::Plain(format!(
                        "'{key}' already has a value ({old}), and --overwrite is false"
                    )),
                    _ => Failure::Plain(format!(
                        "--overwrite is false but found the following declared annotation(s): '{key}' already \
                         has a value ({old})"
                    )),
                });
            }
            _ => {}
        }
        fields.insert(key.clone(), value.as_str().into());
        added += 1;
    }
    for key in &pairs.remove {
        removed += usize::from(fields.remove(key).is_some());
    }
    Failure::of_all(taken)?;
    Ok((object, added, removed))
}

fn show(session: &mut Session, info: &Info, words: &Words, alone: bool) -> Outcome {
    let indent = if alone { "" } else { " " };
    if !alone {
        let (kind, group) = (&info.api().kind, &info.api().group);
        writeln!(session.out, "Listing {} for {kind}.{group}/{}:", words.field, info.name)?;
    }
    for (key, value) in info.object["metadata"][words.field].as_object().into_iter().flatten() {
        writeln!(session.out, "{indent}{key}={}", value.as_str().unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[tokio::test]
    async fn pairs_are_set_changed_and_removed() {
        let world = world();
        let pods =
            client::ApiResource::custom("", "v1", "pods", "Pod", api::kinds::Scope::Namespaced);
        let pod = json!({ "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": "a", "namespace": "default" } });
        world.put_tree(&pods, pod);
        for (line, expected) in [
            ("label po a x=y", "pod/a labeled\n"),
            ("label po a x=y", "pod/a not labeled\n"),
            ("label po a x=z", "error: 'x' already has a value (y), and --overwrite is false\n"),
            ("label po a x=z --overwrite", "pod/a labeled\n"),
            ("label po a --list", "x=z\n"),
            ("label po a x- q-", "label \"q\" not found.\npod/a unlabeled\n"),
            ("label po a", "error: at least one label update is required\n"),
            ("annotate po a t=1=2", "pod/a annotated\n"),
            ("annotate po --all t-", "pod/a annotated\n"),
        ] {
            assert_eq!(told(&world, line).await, expected, "{line}");
        }
    }
}
