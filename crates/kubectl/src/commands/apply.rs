//! `kubectl apply`: makes the cluster as files say, by a three-way patch of our own or by the server's.
mod last;
mod prune;
mod set;

use super::delete::OPTIONS as DELETE_OPTIONS;
use super::{Command, Group};
use crate::builder::{self, ALL, FILES, Info, Request, SELECTOR};
use crate::change;
use crate::cluster::{Cluster, propagation};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, Gate, PARTS, list, switch, switch_on, text};
use crate::last_applied::{self, ANNOTATION};
use crate::print::{self, Printer, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use api::patch::apply::csa_upgrade;
use api::patch::{merge, merge_diff, strategic};
use client::source::{Delete, Patch, Write};
use serde_json::{Value, json};
use set::ApplySet;
use std::time::Duration;

static FLAGS: &[Flag] = &[
    text("applyset", "", "Set to prune by, [RESOURCE][.GROUP]/NAME; a Secret if only named.")
        .behind(Gate::ApplySet),
    text("field-manager", "kubectl-client-side-apply", "Who manages the fields that are applied."),
    switch("force-conflicts", "Take fields from other managers, with --server-side."),
    switch_on("openapi-patch", "Taken for compatibility: the schema of built-in kinds is known."),
    switch_on("overwrite", "Overwrite what others changed."),
    switch("prune", "Delete what was applied before and is no longer there."),
    list("prune-allowlist", "Kinds to prune: group/version/Kind, with core for the first."),
    switch("server-side", "Have the server merge."),
    text("subresource", "", "Subresource to apply to, with --server-side.").offers(PARTS),
    switch("wait", "Wait until objects that are deleted on the way are gone."),
];

pub static COMMAND: Command = Command {
    name: "apply",
    group: Group::Advanced,
    about: "Apply a configuration to a resource by file name or stdin",
    usage: "(-f FILENAME | -k DIRECTORY)",
    flags: &[FLAGS, DELETE_OPTIONS, FILES, SELECTOR, ALL, DRY_RUN, VALIDATE, print::FLAGS],
    children: &[&last::VIEW, &last::SET, &last::EDIT],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

const SERVER_SIDE: &str = "kubectl";
/// Who has the annotation while fields change from the client's side to the server's.
const LAST_APPLIED_MANAGER: &str = "kubectl-last-applied";
/// How often a patch is made again because somebody was faster: upstream's.
const TRIES: u32 = 5;

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let request = Request::of(&arguments);
    check_words(&arguments, &request)?;
    let cluster = session.cluster(&arguments)?;
    let mut set = match arguments.knows("applyset").then(|| arguments.some("applyset")).flatten() {
        Some(text) => Some(ApplySet::parse(text, &cluster, cluster.mapper().await?)?),
        None => None,
    };
    check(&arguments, &request, set.is_some())?;
    if let Some(set) = &set {
        set.check(&cluster).await?;
    }
    // What is wrong with some objects keeps no others.
    let found = builder::file_infos_and_failures(&cluster, &request).await;
    let (mut infos, mut failures) = found.unwrap_or_else(|failure| (Vec::new(), vec![failure]));
    if infos.is_empty() && failures.is_empty() {
        return Err("no objects passed to apply".into());
    }
    let dry_run = DryRun::of(&arguments)?;
    let mut write = write::options(&arguments, dry_run)?;
    let server_side = arguments.is("server-side");
    if server_side && !arguments.given("field-manager") {
        write.field_manager = SERVER_SIDE.to_owned();
    }
    write.force = arguments.is("force-conflicts");
    let mut apply = Apply { cluster, dry_run, write, applied: Vec::new(), arguments: &arguments };
    if let Some(set) = &mut set {
        if let Err(failure) = set.label(&mut infos) {
            failures.push(failure);
            infos.clear();
        }
        set.begin(session, &apply, &infos).await?;
    }
    let mut telling = Telling::new(&arguments, dry_run)?;
    // All objects are one list in the forms of machines.
    let prints_list = telling.prints_objects() && arguments.text("output") != "name";
    for info in &infos {
        let outcome = match server_side {
            true => apply.on_server(session, info).await,
            false => apply.by_patch(session, info).await,
        };
        match outcome {
            Ok((object, done)) => {
                apply.applied.push(object.clone());
                if !prints_list {
                    telling.tell(&object, done, &mut session.out)?;
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    if prints_list && !apply.applied.is_empty() {
        print_all(session, &arguments, &apply.applied)?;
    }
    Failure::of_all(failures)?;
    match set {
        Some(set) => set.prune(session, &apply, &mut telling).await,
        None if arguments.is("prune") => prune::run(session, &apply, &infos, &mut telling).await,
        None => Ok(()),
    }
}

fn check_words(arguments: &Arguments, request: &Request) -> Outcome {
    if let Some(word) = arguments.words.first() {
        return Err(Failure::usage(&arguments.command, format!("Unexpected args: [{word}]")));
    }
    match request.has_files() {
        true => Ok(()),
        false => Err("must specify one of -f and -k".into()),
    }
}

/// Flags that exclude each other, in upstream's order.
fn check(arguments: &Arguments, request: &Request, has_set: bool) -> Outcome {
    let is = |name: &str| arguments.is(name);
    let (selects, dry_run) = (!request.selector.is_empty(), arguments.text("dry-run"));
    let faults = [
        (
            is("force-conflicts") && !is("server-side"),
            "--force-conflicts only works with --server-side",
        ),
        (
            dry_run == "client" && is("server-side"),
            "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)",
        ),
        (is("server-side") && is("force"), "--force cannot be used with --server-side"),
        (dry_run == "server" && is("force"), "--dry-run=server cannot be used with --force"),
        (is("all") && selects, "cannot set --all and --selector at the same time"),
        (has_set && !is("prune"), "--applyset requires --prune"),
        (is("prune") && is("force"), "--force cannot be used with --prune"),
        (has_set && is("all"), "--all is incompatible with --applyset"),
        (has_set && selects, "--selector is incompatible with --applyset"),
        (
            has_set && !arguments.list("prune-allowlist").is_empty(),
            "--prune-allowlist is incompatible with --applyset",
        ),
        (
            is("prune") && !has_set && !is("all") && !selects,
            "all resources selected for prune without explicitly passing --all. To prune all resources, pass \
             the --all flag. If you did not mean to prune all resources, specify a label selector",
        ),
        (
            is("prune") && !has_set && is("server-side"),
            "--prune is in alpha and doesn't currently work on objects created by server-side apply",
        ),
        (
            !arguments.text("subresource").is_empty() && !is("server-side"),
            "--subresource can only be specified for --server-side",
        ),
    ];
    match faults.iter().find(|(is_so, _)| *is_so) {
        Some((_, text)) => Err((*text).into()),
        None => Ok(()),
    }
}

fn print_all(session: &mut Session, arguments: &Arguments, objects: &[Value]) -> Outcome {
    let Some(mut printer) = Printer::of(arguments)? else { return Ok(()) };
    match objects {
        [one] => printer.print(one, &mut session.out),
        many => printer.print(&super::get::list_of(many.to_vec()), &mut session.out),
    }
}

pub struct Apply<'a> {
    pub cluster: Cluster,
    pub dry_run: DryRun,
    pub write: Write,
    pub applied: Vec<Value>,
    pub arguments: &'a Arguments,
}

impl Apply<'_> {
    async fn on_server(
        &mut self,
        session: &mut Session,
        info: &Info,
    ) -> Outcome<(Value, &'static str)> {
        named(info)?;
        let place = (&*info.namespace, &*info.name, self.arguments.text("subresource"));
        let patch = Patch::Apply(info.object.clone());
        let patched = self.cluster.patch(info.api(), place, patch.clone(), &self.write).await;
        let mut object = patched.map_err(conflicting)?;
        if self.write.field_manager == SERVER_SIDE && self.arguments.text("subresource").is_empty()
        {
            match self.migrate(info, &object, patch).await {
                Ok(Some(migrated)) => object = migrated,
                Ok(None) => {}
                Err(failure) => writeln!(
                    session.err,
                    "Warning: server rejected managed fields migration to Server-Side Apply. This is \
                     non-fatal and will be retried next time you apply. Error: {}",
                    failure.text()
                )?,
            }
        }
        warn_if_deleting(session, &object)?;
        Ok((object, "serverside-applied"))
    }

    /// Fields that were applied from here before become the server's to manage.
    async fn migrate(&self, info: &Info, object: &Value, patch: Patch) -> Outcome<Option<Value>> {
        let Some(text) = object["metadata"]["annotations"][ANNOTATION].as_str() else {
            return Ok(None);
        };
        let owners = annotation_owners(object);
        let updaters: Vec<&str> =
            owners.iter().filter(|(_, how)| *how == "Update").map(|(name, _)| *name).collect();
        let place = (&*info.namespace, &*info.name, "");
        let mut object = object.clone();
        if !owners.iter().any(|(_, how)| *how == "Apply") {
            let alone = json!({ "apiVersion": object["apiVersion"], "kind": object["kind"],
                "metadata": { "name": info.name, "annotations": { ANNOTATION: text } } });
            let write =
                Write { field_manager: LAST_APPLIED_MANAGER.to_owned(), ..self.write.clone() };
            object = self.cluster.patch(info.api(), place, Patch::Apply(alone), &write).await?;
        }
        let upgrade = csa_upgrade::patch(&object, &updaters, &self.write.field_manager, "")
            .map_err(|error| Failure::Plain(error.to_string()))?;
        let Some(upgrade) = upgrade else { return Ok(None) };
        let write = Write { force: false, ..self.write.clone() };
        self.cluster.patch(info.api(), place, Patch::Json(upgrade), &write).await?;
        self.cluster.patch(info.api(), place, patch, &self.write).await.map(Some)
    }

    async fn by_patch(
        &mut self,
        session: &mut Session,
        info: &Info,
    ) -> Outcome<(Value, &'static str)> {
        named(info)?;
        let modified = last_applied::annotated(&info.object)?;
        let current = match self.cluster.get(info.api(), &info.namespace, &info.name).await {
            Ok(current) => current,
            Err(failure) if failure.is_not_found() => return self.create(info, modified).await,
            Err(failure) => {
                let verb = format!(
                    "retrieving current configuration of:\n{}\nfrom server for:",
                    described(info)
                );
                return Err(failure.with_source(&verb, &info.source));
            }
        };
        if !last_applied::has(&current) {
            writeln!(
                session.err,
                "Warning: resource {} is missing the {ANNOTATION} annotation which is required by kubectl \
                 apply. kubectl apply should only be used on resources created declaratively by either kubectl \
                 create --save-config or kubectl apply. The missing annotation will be patched automatically.",
                info.object_name()
            )?;
        }
        let (object, changed) = self.patch(info, current, &modified).await?;
        warn_if_deleting(session, &object)?;
        Ok((object, if changed { "configured" } else { "unchanged" }))
    }

    async fn create(&self, info: &Info, mut object: Value) -> Outcome<(Value, &'static str)> {
        forget_nulls(&mut object);
        if self.dry_run == DryRun::Client {
            return Ok((object, "created"));
        }
        let made = self.cluster.create(info.api(), &info.namespace, &object, &self.write).await;
        let made = made.map_err(|failure| failure.with_source("creating", &info.source))?;
        Ok((made, "created"))
    }

    /// The object after it, and whether there was anything to change.
    async fn patch(
        &self,
        info: &Info,
        mut current: Value,
        modified: &Value,
    ) -> Outcome<(Value, bool)> {
        let place = (&*info.namespace, &*info.name, "");
        let overwrite = self.arguments.is("overwrite");
        for attempt in 1.. {
            let patch = three_way(info, &current, modified, overwrite)?;
            if change::is_empty(&patch) {
                return Ok((current, false));
            }
            if self.dry_run == DryRun::Client {
                return patched_here(info, current, &patch).map(|object| (object, true));
            }
            let outcome = self.cluster.patch(info.api(), place, patch.clone(), &self.write).await;
            let failure = match outcome {
                Ok(object) => return Ok((object, true)),
                Err(failure) => failure,
            };
            let is_invalid =
                matches!(&failure, Failure::Server(s) if s.reason == api::status::Reason::Invalid);
            if failure.is_conflict() && attempt <= TRIES {
                current = self.cluster.get(info.api(), &info.namespace, &info.name).await?;
                continue;
            }
            if (failure.is_conflict() || is_invalid) && self.arguments.is("force") {
                return self.replace(info, modified).await.map(|object| (object, true));
            }
            let text = api::quote::go_json(patch.value()).unwrap_or_default();
            let verb = format!("applying patch:\n{text}\nto:\n{}\nfor:", described(info));
            return Err(failure
                .with_source("patching", &info.source)
                .with_source(&verb, &info.source));
        }
        unreachable!("the last attempt returns")
    }

    /// `--force`: deleted and made again.
    async fn replace(&self, info: &Info, modified: &Value) -> Outcome<Value> {
        let grace = self.arguments.number("grace-period");
        let options = Delete {
            grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
            propagation: Some(propagation(self.arguments)?),
            ..Delete::default()
        };
        let answer = self.cluster.delete(info.api(), &info.namespace, &info.name, options).await?;
        let uid = answer["details"]["uid"].as_str().unwrap_or_default().to_owned();
        let patience = match self.arguments.span("timeout") {
            Duration::ZERO => Duration::from_secs(300),
            some => some,
        };
        super::delete::gone(&self.cluster, &[(info.clone(), uid)], patience).await?;
        let mut object = modified.clone();
        forget_nulls(&mut object);
        self.cluster.create(info.api(), &info.namespace, &object, &self.write).await
    }
}

/// The patch that brings an object to what is wanted, and takes away only what was applied before.
pub fn three_way(
    info: &Info,
    current: &Value,
    modified: &Value,
    overwrite: bool,
) -> Outcome<Patch> {
    let original = last_applied::original(current)?.unwrap_or_else(|| json!({}));
    let failed = |error: String| {
        let text = |value: &Value| api::quote::go_json(value).unwrap_or_default();
        Failure::Plain(format!(
            "creating patch with:\noriginal:\n{}\nmodified:\n{}\ncurrent:\n{}\nfor: {error}",
            text(&original),
            text(modified),
            text(current)
        ))
    };
    match info.api().row {
        Some(row) => strategic::three_way(&original, modified, current, row.ty(), overwrite)
            .map(Patch::Strategic)
            .map_err(|error| failed(error.to_string())),
        None => merge_diff::three_way(&original, modified, current)
            .map(Patch::Merge)
            .map_err(|error| failed(error.to_string())),
    }
}

/// A patch as the server would apply it, as far as that can be known here.
pub fn patched_here(info: &Info, current: Value, patch: &Patch) -> Outcome<Value> {
    let failed = |error: &dyn std::fmt::Display| Failure::Plain(error.to_string());
    match (patch, info.api().row) {
        (Patch::Strategic(patch), Some(row)) => {
            strategic::merge(current, patch.clone(), row.ty()).map_err(|error| failed(&error))
        }
        (patch, _) => {
            let mut object = current;
            merge::apply(&mut object, patch.value()).map_err(|error| failed(&error))?;
            Ok(object)
        }
    }
}

fn named(info: &Info) -> Outcome {
    if info.name.is_empty()
        && let Some(name) = info.object["metadata"]["generateName"].as_str()
    {
        return Err(format!("from {name}: cannot use generate name with apply").into());
    }
    Ok(())
}

fn described(info: &Info) -> String {
    let api = info.api();
    format!(
        "Resource: \"{}, Resource={}\", GroupVersionKind: \"{}, Kind={}\"\nName: \"{}\", Namespace: \"{}\"",
        group_version(info),
        api.plural,
        group_version(info),
        api.kind,
        info.name,
        info.namespace
    )
}

fn group_version(info: &Info) -> String {
    match &*info.api().group {
        "" => format!("/{}", info.api().version),
        group => format!("{group}/{}", info.api().version),
    }
}

fn warn_if_deleting(session: &mut Session, object: &Value) -> Outcome {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        writeln!(
            session.err,
            "Warning: Detected changes to resource {name} which is currently being deleted."
        )?;
    }
    Ok(())
}

fn forget_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(forget_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_nulls),
        _ => {}
    }
}

/// Which managers own the annotation, and how.
fn annotation_owners(object: &Value) -> Vec<(&str, &str)> {
    let field = format!("f:{ANNOTATION}");
    let all = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owners = all.filter(|entry| {
        entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&field).is_some()
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    });
    let named = owners.map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        (text("manager"), text("operation"))
    });
    named.collect()
}

fn conflicting(failure: Failure) -> Failure {
    if !failure.is_conflict() {
        return failure;
    }
    Failure::Plain(format!(
        "{}\nPlease review the fields above--they currently have other managers. Here\nare the ways you can \
         resolve this warning:\n* If you intend to manage all of these fields, please re-run the apply\n  \
         command with the `--force-conflicts` flag.\n* If you do not intend to manage all of the fields, please \
         edit your\n  manifest to remove references to the fields that should keep their\n  current managers.\n\
         * You may co-own fields by updating your manifest to match the existing\n  value; in this case, you'll \
         become the manager if the other manager(s)\n  stop managing the field (remove it from their \
         configuration).\nSee https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts",
        failure.text()
    ))
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        file
    }

    #[tokio::test]
    async fn what_is_applied_is_made_changed_and_left_alone() {
        let world = world();
        let map = |data: &str| {
            file(&format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, labels: {{x: 'y'}}}}\ndata: {{{data}}}\n"
            ))
        };
        let (first, second) = (map("k: v, l: w"), map("k: z"));
        let apply = |file: &tempfile::NamedTempFile| format!("apply -f {}", file.path().display());
        assert_eq!(
            told(&world, &format!("{} --dry-run=client", apply(&first))).await,
            "configmap/a created (dry run)\n"
        );
        assert_eq!(told(&world, &apply(&first)).await, "configmap/a created\n");
        assert_eq!(told(&world, &apply(&first)).await, "configmap/a unchanged\n");
        assert_eq!(told(&world, &apply(&second)).await, "configmap/a configured\n");
        world.written();
        assert_eq!(
            told(&world, &format!("{} --dry-run=client", apply(&first))).await,
            "configmap/a configured (dry run)\n"
        );
        assert_eq!(world.written(), Vec::<String>::new());
        let maps = client::ApiResource::custom(
            "",
            "v1",
            "configmaps",
            "ConfigMap",
            api::kinds::Scope::Namespaced,
        );
        // One that is wrong keeps no other.
        let both = file(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: other}\n---\napiVersion: v1\nkind: \
             ConfigMap\nmetadata: {name: c}\n",
        );
        assert_eq!(
            told(&world, &format!("{} -n default", apply(&both))).await,
            "configmap/c created\nerror: the namespace from the provided object \"other\" does not match the \
             namespace \"default\". You must pass '--namespace=other' to perform this operation.\n"
        );
        let map = world.get_tree(&maps, "default", "a").unwrap();
        assert_eq!(map["data"], serde_json::json!({ "k": "z" }));
        assert_eq!(told(&world, "apply").await, "error: must specify one of -f and -k\n");
    }
}
