//! `kubectl delete`.
use super::{Command, Group};
use crate::builder::{
    self, ALL, ALL_NAMESPACES, FIELD_SELECTOR, FILES, Info, Request, SELECTOR, Target,
};
use crate::cluster::{Cluster, propagation};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, switch_on, text};
use crate::session::Session;
use crate::watching::{self, FOREVER};
use crate::write::{DRY_RUN, DryRun};
use client::source::{Delete, Raw};
use serde_json::Value;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::time::Duration;

/// What deletions take, of this command and of others that delete on their way.
pub static OPTIONS: &[Flag] = &[
    text("cascade", "background", "What becomes of dependents: background, foreground or orphan.")
        .bare("background"),
    switch("force", "Do not wait for an end in order."),
    number("grace-period", "-1", "Seconds to end in; negative: the object's own."),
    span("timeout", "0s", "How long to wait; 0 depends on the object."),
];

static FLAGS: &[Flag] = &[
    switch("ignore-not-found", "What is not there is no error."),
    switch("interactive", "Ask before deleting.").short('i'),
    switch("now", "The same as --grace-period=1."),
    text("output", "", "name: names alone.").short('o'),
    text("raw", "", "Path on the server to delete."),
    switch_on("wait", "Wait until the objects are gone."),
];

pub static COMMAND: Command = Command {
    name: "delete",
    group: Group::Intermediate,
    about: "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    usage: "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)])",
    flags: &[FLAGS, OPTIONS, FILES, SELECTOR, FIELD_SELECTOR, ALL_NAMESPACES, ALL, DRY_RUN],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

/// How objects are to go.
#[derive(Debug, Clone)]
pub struct How {
    pub options: Delete,
    pub dry_run: DryRun,
    pub wait: bool,
    pub patience: Duration,
    pub by_name: bool,
}

impl How {
    pub fn of(arguments: &Arguments) -> Outcome<How> {
        let force = arguments.is("force");
        let mut grace = arguments.number("grace-period");
        if arguments.is("now") {
            if grace != -1 {
                return Err("--now and --grace-period cannot be specified together".into());
            }
            grace = 1;
        }
        match (grace, force) {
            // What would lose data needs both words.
            (0, false) => grace = 1,
            (grace, true) if grace > 0 => {
                return Err(
                    "--force and --grace-period greater than 0 cannot be specified together".into(),
                );
            }
            (_, true) => grace = 0,
            _ => {}
        }
        let dry_run = DryRun::of(arguments)?;
        let options = Delete {
            grace_period_seconds: (grace >= 0).then_some(grace),
            propagation: Some(propagation(arguments)?),
            dry_run: dry_run == DryRun::Server,
            ..Delete::default()
        };
        let patience = match arguments.span("timeout") {
            Duration::ZERO => FOREVER,
            some => some,
        };
        let by_name = arguments.text("output") == "name";
        Ok(How { options, dry_run, wait: arguments.is("wait"), patience, by_name })
    }

    /// `deleted from default namespace (dry run)`
    fn told(&self, info: &Info) -> String {
        if self.by_name {
            return info.shown();
        }
        let force = if self.options.grace_period_seconds == Some(0) { "force " } else { "" };
        let place = match info.resource.is_namespaced() {
            true => format!(" from {} namespace", info.namespace),
            false => String::new(),
        };
        let shown = info.shown();
        let kind = shown.split('/').next().unwrap_or_default();
        format!("{kind} \"{}\" {force}deleted{place}{}", info.name, self.dry_run.suffix())
    }
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    if let Some(path) = arguments.some("raw") {
        return raw(session, &cluster, path, &arguments).await;
    }
    check(&arguments)?;
    let how = How::of(&arguments)?;
    if how.options.grace_period_seconds == Some(0) {
        writeln!(
            session.err,
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been \
             terminated. The resource may continue to run on the cluster indefinitely."
        )?;
    }
    let mut request = Request::of(&arguments);
    if !request.field_selector.is_empty() {
        request.type_is_all = true;
    }
    let targets = builder::targets(&cluster, &request).await?;
    let ignores = arguments.is("ignore-not-found")
        || (request.all || !request.selector.is_empty() || !request.field_selector.is_empty());
    let (infos, mut failures) = found(&cluster, &request, targets).await;
    if arguments.is("interactive") && !confirmed(session, &infos)? {
        return Ok(writeln!(session.out, "deletion is cancelled")?);
    }
    let mut deleted = Vec::new();
    for info in &infos {
        match delete(session, &cluster, info, &how).await {
            Ok(uid) => deleted.push((info.clone(), uid)),
            Err(failure) if ignores && failure.is_not_found() => {}
            Err(failure) => failures.push(failure.with_source("deleting", &info.source)),
        }
    }
    failures.retain(|failure| !(ignores && failure.is_not_found()));
    Failure::of_all(failures)?;
    if infos.is_empty() || (deleted.is_empty() && !ignores) {
        return Ok(writeln!(session.out, "No resources found")?);
    }
    if how.wait && how.dry_run == DryRun::None {
        gone(&cluster, &deleted, how.patience).await?;
    }
    Ok(())
}

fn check(arguments: &Arguments) -> Outcome {
    let output = arguments.text("output");
    if !matches!(output, "" | "name") {
        return Err(
            format!("unexpected -o output mode: {output}. We only support '-o name'").into()
        );
    }
    if arguments.is("all") && arguments.some("selector").is_some() {
        return Err("cannot set --all and --selector at the same time".into());
    }
    if arguments.is("all") && arguments.some("field-selector").is_some() {
        return Err("cannot set --all and --field-selector at the same time".into());
    }
    Ok(())
}

/// What is to go: those that are named need not be looked at first.
async fn found(
    cluster: &Cluster,
    request: &Request,
    targets: Vec<Target>,
) -> (Vec<Info>, Vec<Failure>) {
    let (mut infos, mut failures) = (Vec::new(), Vec::new());
    for target in targets {
        match target {
            Target::Named { resource, namespace, name } => infos.push(Info {
                resource: *resource,
                namespace,
                name,
                object: Value::Null,
                source: String::new(),
            }),
            target => match builder::fetch(cluster, request, target, false).await {
                Ok(found) => infos.extend(found),
                Err(failure) => failures.push(failure),
            },
        }
    }
    (infos, failures)
}

fn confirmed(session: &mut Session, infos: &[Info]) -> Outcome<bool> {
    writeln!(session.out, "You are about to delete the following {} resource(s):", infos.len())?;
    for info in infos {
        writeln!(session.out, "{}", info.shown())?;
    }
    write!(session.out, "Do you want to continue? [y/N]: ")?;
    session.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Deletes one object, tells it, and answers its uid.
pub async fn delete(
    session: &mut Session,
    cluster: &Cluster,
    info: &Info,
    how: &How,
) -> Outcome<String> {
    if how.dry_run == DryRun::Client {
        writeln!(session.out, "{}", how.told(info))?;
        return Ok(String::new());
    }
    let answer =
        cluster.delete(info.api(), &info.namespace, &info.name, how.options.clone()).await?;
    writeln!(session.out, "{}", how.told(info))?;
    let uid = answer["details"]["uid"].as_str().or(answer["metadata"]["uid"].as_str());
    Ok(uid.unwrap_or_default().to_owned())
}

/// Waits until objects are gone, or others of their names are there.
pub async fn gone(cluster: &Cluster, deleted: &[(Info, String)], patience: Duration) -> Outcome {
    let began = tokio::time::Instant::now();
    for (info, uid) in deleted {
        let left = patience.saturating_sub(began.elapsed());
        let waited = watching::until(
            cluster,
            info.api(),
            &info.namespace,
            &info.name,
            left,
            &mut |object| {
                let is_there = object
                    .is_some_and(|object| uid.is_empty() || object["metadata"]["uid"] == **uid);
                Ok(if is_there { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            },
        )
        .await;
        match waited {
            Ok(Some(())) => {}
            Ok(None) => {
                let name = info.object_name();
                return Err(format!("timed out waiting for the condition on {name}").into());
            }
            // Who may not look has deleted all the same.
            Err(Failure::Server(status)) if matches!(status.code, 403 | 405) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

async fn raw(
    session: &mut Session,
    cluster: &Cluster,
    path: &str,
    arguments: &Arguments,
) -> Outcome {
    let mut request = Raw { method: http::Method::DELETE, ..Raw::get(path) };
    super::raw_body(&mut request, arguments)?;
    let bytes = cluster.raw(request).await?.bytes().await?;
    Ok(session.out.write_all(&bytes)?)
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use client::ApiResource;
    use serde_json::json;

    fn pods() -> ApiResource {
        ApiResource::custom("", "v1", "pods", "Pod", api::kinds::Scope::Namespaced)
    }

    fn pod(name: &str) -> serde_json::Value {
        json!({ "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": name, "namespace": "default", "labels": { "app": name } } })
    }

    #[tokio::test]
    async fn objects_go_by_name_by_label_and_all() {
        let world = world();
        for name in ["a", "b", "c", "d"] {
            world.put_tree(&pods(), pod(name));
        }
        assert_eq!(told(&world, "delete po a").await, "pod \"a\" deleted from default namespace\n");
        assert_eq!(
            told(&world, "delete pod/a").await,
            "Error from server (NotFound): pods \"a\" not found\n"
        );
        assert_eq!(told(&world, "delete pod/a --ignore-not-found").await, "");
        assert_eq!(
            told(&world, "delete po b --dry-run=client").await,
            "pod \"b\" deleted from default namespace (dry run)\n"
        );
        assert_eq!(told(&world, "delete po -l app=b -o name").await, "pod/b\n");
        assert_eq!(
            told(&world, "delete po --all --force").await,
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been \
             terminated. The resource may continue to run on the cluster indefinitely.\n\
             pod \"c\" force deleted from default namespace\n\
             pod \"d\" force deleted from default namespace\n"
        );
        assert_eq!(told(&world, "delete po --all").await, "No resources found\n");
        assert_eq!(
            told(&world, "delete po").await,
            "error: resource(s) were provided, but no name was specified\n"
        );
    }
}
