//! `kubectl set`: one feature of an object each.
mod edits;

use super::{Command, Group};
use crate::builder::{self, ALL, FILES, Info, PLAIN_FILES, Request, SELECTOR};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::editing::Editing;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, each, list, switch, switch_on, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun};
use edits::{Env, Subject};
use serde_json::{Value, json};
use std::io::Read;

pub static COMMAND: Command = Command {
    name: "set",
    group: Group::Beginner,
    about: "Set specific features on objects",
    usage: "SUBCOMMAND",
    children: &[&ENV, &IMAGE, &RESOURCES, &SELECTOR_COMMAND, &SERVICE_ACCOUNT, &SUBJECT],
    ..Command::EMPTY
};

static COMMON: &[Flag] = &[
    text("field-manager", "kubectl-set", "Who manages the fields that change."),
    switch("local", "Change what is in files, and print it."),
];

static IMAGE: Command = Command {
    name: "image",
    about: "Update the image of a pod template",
    usage: "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    flags: &[COMMON, FILES, SELECTOR, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(image(session, arguments))),
    offers: Offers::Resource(&[
        "daemonsets",
        "deployments",
        "pods",
        "cronjobs",
        "replicasets",
        "replicationcontrollers",
        "statefulsets",
    ]),
    ..Command::EMPTY
};

static ENV_FLAGS: &[Flag] = &[
    text("containers", "*", "Containers to change; * stands for anything.").short('c'),
    each("env", "Variable: KEY=VALUE.").short('e'),
    text("from", "", "ConfigMap or Secret to take variables from."),
    list("keys", "Keys of it to take."),
    switch("list", "Show variables."),
    switch_on("overwrite", "Change variables that are there already."),
    text("prefix", "", "What names from --from begin with."),
    switch("resolve", "Show what variables refer to."),
];

static ENV: Command = Command {
    name: "env",
    about: "Update environment variables on a pod template",
    usage: "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    flags: &[ENV_FLAGS, COMMON, FILES, SELECTOR, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(env(session, arguments))),
    ..Command::EMPTY
};

static RESOURCE_FLAGS: &[Flag] = &[
    text("containers", "*", "Containers to change; * stands for anything.").short('c'),
    text("limits", "", "Limits: cpu=100m,memory=256Mi."),
    text("requests", "", "Requests: cpu=100m,memory=256Mi."),
];

static RESOURCES: Command = Command {
    name: "resources",
    about: "Update resource requests/limits on objects with pod templates",
    usage: "(-f FILENAME | TYPE NAME) ([--limits=LIMITS & --requests=REQUESTS]",
    flags: &[RESOURCE_FLAGS, COMMON, FILES, SELECTOR, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(resources(session, arguments))),
    ..Command::EMPTY
};

static SELECTOR_FLAGS: &[Flag] =
    &[text("resource-version", "", "Change only this version of the object.")];

static SELECTOR_COMMAND: Command = Command {
    name: "selector",
    about: "Set the selector on a resource",
    usage: "(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version]",
    flags: &[SELECTOR_FLAGS, COMMON, PLAIN_FILES, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(selector(session, arguments))),
    ..Command::EMPTY
};

static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    about: "Update the service account of a resource",
    usage: "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    flags: &[COMMON, FILES, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(service_account(session, arguments))),
    ..Command::EMPTY
};

static SUBJECT_FLAGS: &[Flag] = &[
    each("group", "Group to bind."),
    each("serviceaccount", "Service account to bind: NAMESPACE:NAME."),
    each("user", "User to bind."),
];

static SUBJECT: Command = Command {
    name: "subject",
    about: "Update the user, group, or service account in a role binding or cluster role binding",
    usage: "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:name]",
    flags: &[SUBJECT_FLAGS, COMMON, FILES, SELECTOR, ALL, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(subject(session, arguments))),
    ..Command::EMPTY
};

/// The objects that the words mean which are no pairs.
async fn infos(cluster: &Cluster, arguments: &Arguments, words: &[String]) -> Outcome<Vec<Info>> {
    let request = Request::of(arguments).with_words(words);
    if words.is_empty() && !request.has_files() {
        return Err(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>"
                .into(),
        );
    }
    match arguments.is("local") {
        true => builder::local_infos(&request, &cluster.namespace).await,
        false => builder::infos(cluster, &request, true).await,
    }
}

async fn apply(
    session: &mut Session,
    arguments: &Arguments,
    words: &[String],
    done: &str,
    edit: impl FnMut(&mut Value) -> Outcome,
) -> Outcome {
    let cluster = session.cluster(arguments)?;
    let infos = infos(&cluster, arguments, words).await?;
    let dry_run = DryRun::of(arguments)?;
    if arguments.is("local") && dry_run == DryRun::Server {
        return Err(
            "cannot specify --local and --dry-run=server - did you mean --dry-run=client?".into()
        );
    }
    let mut editing = Editing {
        cluster: &cluster,
        write: write::options(arguments, dry_run)?,
        dry_run,
        local: arguments.is("local"),
        done,
        unchanged: "",
        telling: Telling::new(arguments, dry_run)?,
    };
    editing.each(session, &infos, edit).await
}

/// Words that name objects, and pairs behind them.
fn split(words: &[String], what: &str) -> Outcome<(Vec<String>, Vec<String>)> {
    let is_pair = |word: &String| word.contains('=') || word.ends_with('-') && word.len() > 1;
    let at = words.iter().position(is_pair).unwrap_or(words.len());
    let (named, pairs) = words.split_at(at);
    if let Some(word) = pairs.iter().find(|word| !is_pair(word)) {
        return Err(format!("all resources must be specified before {what} changes: {word}").into());
    }
    Ok((named.to_vec(), pairs.to_vec()))
}

async fn image(session: &mut Session, arguments: Arguments) -> Outcome {
    let (named, pairs) = split(&arguments.words, "image")?;
    let images: Vec<(&str, &str)> = pairs.iter().filter_map(|pair| pair.split_once('=')).collect();
    if images.is_empty() {
        // What is wrong with the objects is told first.
        let cluster = session.cluster(&arguments)?;
        builder::infos(&cluster, &Request::of(&arguments).with_words(&named), true).await?;
        return Err("at least one image update is required".into());
    }
    if images.len() > 1 && images.iter().any(|(name, _)| *name == "*") {
        return Err("all containers are already specified by *, but saw more than one \
                    container_name=container_image pairs"
            .into());
    }
    apply(session, &arguments, &named, "image updated", |object| edits::image(object, &images))
        .await
}

async fn env(session: &mut Session, arguments: Arguments) -> Outcome {
    let (named, mut pairs) = split_env(&arguments.words);
    pairs.extend(arguments.list("env").iter().cloned());
    let cluster = session.cluster(&arguments)?;
    let mut env = Env::parse(&pairs, || {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text)
    })?;
    if !arguments.list("keys").is_empty() && arguments.some("from").is_none() {
        return Err(
            "when specifying --keys, a configmap or secret must be provided with --from".into()
        );
    }
    if let Some(from) = arguments.some("from") {
        let request = Request { words: vec![from.to_owned()], ..Request::default() };
        for info in builder::infos(&cluster, &request, true).await? {
            env.take_from(&info.object, arguments.list("keys"))?;
        }
    }
    env.prefix(arguments.text("prefix"));
    if arguments.is("list") {
        for info in infos(&cluster, &arguments, &named).await? {
            let text = edits::list_env(&info.object, arguments.text("containers"));
            session.out.write_all(text.as_bytes())?;
        }
        return Ok(());
    }
    let (containers, overwrite) = (arguments.text("containers"), arguments.is("overwrite"));
    apply(session, &arguments, &named, "env updated", |object| {
        edits::env(object, &env, containers, overwrite)
    })
    .await
}

/// Variables may also be taken from standard input (`-`).
fn split_env(words: &[String]) -> (Vec<String>, Vec<String>) {
    let is_pair = |word: &String| word.contains('=') || word.ends_with('-');
    words.iter().cloned().partition(|word| !is_pair(word))
}

async fn resources(session: &mut Session, arguments: Arguments) -> Outcome {
    let (limits, requests) = (arguments.text("limits"), arguments.text("requests"));
    if limits.is_empty() && requests.is_empty() {
        return Err(
            "you must specify an update to requests or limits (in the form of --requests/--limits)"
                .into(),
        );
    }
    let (limits, requests) = (edits::quantities(limits)?, edits::quantities(requests)?);
    let containers = arguments.text("containers");
    apply(session, &arguments, &arguments.words, "resource requirements updated", |object| {
        edits::resources(object, &limits, &requests, containers)
    })
    .await
}

async fn selector(session: &mut Session, arguments: Arguments) -> Outcome {
    let Some((expression, named)) =
        arguments.words.split_last().filter(|(word, _)| word.contains('='))
    else {
        return Err(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>"
                .into(),
        );
    };
    let mut labels = serde_json::Map::new();
    for pair in expression.split(',') {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!("unexpected selector: {pair}").into());
        };
        labels.insert(key.trim().to_owned(), value.trim().into());
    }
    let version = arguments.text("resource-version").to_owned();
    apply(session, &arguments, named, "selector updated", |object| {
        if object["kind"] != "Service" {
            return Err("setting a selector is only supported for Services".into());
        }
        object["spec"]["selector"] = labels.clone().into();
        if !version.is_empty() {
            object["metadata"]["resourceVersion"] = version.as_str().into();
        }
        Ok(())
    })
    .await
}

async fn service_account(session: &mut Session, arguments: Arguments) -> Outcome {
    let Some((account, named)) = arguments.words.split_last() else {
        return Err("serviceaccount is required".into());
    };
    apply(session, &arguments, named, "serviceaccount updated", |object| {
        let spec = edits::pod_spec(object)?;
        spec["serviceAccountName"] = account.as_str().into();
        // The old name of the field follows it.
        if spec.get("serviceAccount").is_some() {
            spec["serviceAccount"] = account.as_str().into();
        }
        Ok(())
    })
    .await
}

async fn subject(session: &mut Session, arguments: Arguments) -> Outcome {
    let mut subjects: Vec<Subject> = Vec::new();
    let group = "rbac.authorization.k8s.io";
    for (flag, kind) in [("user", "User"), ("group", "Group")] {
        let named = arguments.list(flag).iter();
        subjects.extend(named.map(|name| json!({ "kind": kind, "apiGroup": group, "name": name })));
    }
    for account in arguments.list("serviceaccount") {
        let Some((namespace, name)) =
            account.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty())
        else {
            return Err(format!("serviceaccount must be <namespace>:<name>: {account}").into());
        };
        subjects.push(json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name }));
    }
    if subjects.is_empty() {
        return Err("you must specify at least one value of user, group or serviceaccount".into());
    }
    apply(session, &arguments, &arguments.words, "subjects updated", |object| {
        if !matches!(object["kind"].as_str(), Some("RoleBinding" | "ClusterRoleBinding")) {
            return Err(Failure::Plain(
                "setting subjects is only supported for RoleBinding/ClusterRoleBinding".to_owned(),
            ));
        }
        edits::subjects(object, &subjects);
        Ok(())
    })
    .await
}
