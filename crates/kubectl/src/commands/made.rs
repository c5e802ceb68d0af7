//! Objects that flags make: the children of `create`, and what `run`, `expose` and `autoscale` share with
//! them. The objects themselves are made in [`crate::generate`]; here files are read and the server is asked.
use super::create::COMMON;
use super::{Command, Group};
use crate::builder::{self, Request};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use crate::generate::{
    self, Generator, Rim, Source, access, config, ingress, policy, service, token, workload,
};
use crate::last_applied;
use crate::mapper::Mapper;
use crate::print::{self, Printer, Telling};
use crate::session::Session;
use crate::write::{self, DRY_RUN, DryRun, VALIDATE};
use serde_json::Value;
use std::hash::{BuildHasher, Hasher};
use std::io::IsTerminal;

/// A command for each generator.
macro_rules! children {
    ($($name:ident: $generator:expr;)*) => {
        $(static $name: Command = Command {
            name: $generator.name,
            aliases: $generator.aliases,
            group: Group::Hidden,
            about: $generator.about,
            usage: $generator.usage,
            flags: &[$generator.flags, COMMON, DRY_RUN, VALIDATE, print::FLAGS],
            run: Some(|session, arguments| Box::pin(generated(session, arguments, &$generator))),
            ..Command::EMPTY
        };)*
    };
}

children! {
    CLUSTER_ROLE: access::CLUSTER_ROLE;
    CLUSTER_ROLE_BINDING: access::CLUSTER_ROLE_BINDING;
    CONFIG_MAP: config::CONFIG_MAP;
    CRON_JOB: workload::CRON_JOB;
    DEPLOYMENT: workload::DEPLOYMENT;
    INGRESS: ingress::INGRESS;
    JOB: workload::JOB;
    NAMESPACE: policy::NAMESPACE;
    BUDGET: policy::BUDGET;
    PRIORITY_CLASS: policy::PRIORITY_CLASS;
    QUOTA: policy::QUOTA;
    ROLE: access::ROLE;
    ROLE_BINDING: access::ROLE_BINDING;
    SERVICE_ACCOUNT: access::SERVICE_ACCOUNT;
    SECRET_DOCKER: config::SECRET_DOCKER;
    SECRET_GENERIC: config::SECRET_GENERIC;
    SECRET_TLS: config::SECRET_TLS;
    CLUSTER_IP: service::CLUSTER_IP;
    EXTERNAL_NAME: service::EXTERNAL_NAME;
    LOAD_BALANCER: service::LOAD_BALANCER;
    NODE_PORT: service::NODE_PORT;
}

static SECRET: Command = Command {
    name: "secret",
    group: Group::Hidden,
    about: "Create a secret using a specified subcommand",
    usage: "(docker-registry | generic | tls)",
    children: &[&SECRET_DOCKER, &SECRET_GENERIC, &SECRET_TLS],
    ..Command::EMPTY
};

static SERVICE: Command = Command {
    name: "service",
    aliases: &["svc"],
    group: Group::Hidden,
    about: "Create a service using a specified subcommand",
    usage: "(clusterip | externalname | loadbalancer | nodeport)",
    children: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],
    ..Command::EMPTY
};

static TOKEN: Command = Command {
    name: "token",
    group: Group::Hidden,
    about: "Request a service account token",
    usage: "SERVICE_ACCOUNT_NAME",
    flags: &[token::FLAGS, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run_token(session, arguments))),
    offers: Offers::Name("serviceaccounts"),
    ..Command::EMPTY
};

pub static CHILDREN: &[&Command] = &[
    &CLUSTER_ROLE,
    &CLUSTER_ROLE_BINDING,
    &CONFIG_MAP,
    &CRON_JOB,
    &DEPLOYMENT,
    &INGRESS,
    &JOB,
    &NAMESPACE,
    &BUDGET,
    &PRIORITY_CLASS,
    &QUOTA,
    &ROLE,
    &ROLE_BINDING,
    &SECRET,
    &SERVICE,
    &SERVICE_ACCOUNT,
    &TOKEN,
];

async fn generated(session: &mut Session, arguments: Arguments, generator: &Generator) -> Outcome {
    let cluster = session.cluster(&without_own_user(&arguments, generator))?;
    let by_resource = generator.flags.iter().any(|flag| flag.name == "resource");
    let mapper = if by_resource { Some(cluster.mapper().await?) } else { None };
    let from = if arguments.knows("from") { arguments.some("from") } else { None };
    let cron_job = match from {
        Some(from) => {
            workload::check_job(&arguments)?;
            let request = Request::of(&arguments).with_words(&[from.to_owned()]);
            let infos = builder::infos(&cluster, &request, true).await?;
            let [info] = &infos[..] else { return Err("from must be an existing cronjob".into()) };
            Some(info.object.clone())
        }
        None => None,
    };
    let rim = Rim {
        read: &read,
        variable: &|name| std::env::var(name).unwrap_or_default(),
        random: &random,
        resource: &|resource, group| mapper.and_then(|mapper| resolved(mapper, resource, group)),
        cron_job: cron_job.as_ref(),
    };
    let made = generator.make(&arguments, &rim)?;
    for warning in &made.warnings {
        writeln!(session.err, "{warning}")?;
    }
    match made_object(session, &arguments, made.object, "created").await {
        Err(Failure::Server(status)) if !generator.refused.is_empty() => {
            Err(Failure::Plain(format!("{}{}", generator.refused, status.message)))
        }
        outcome => outcome.map(drop),
    }
}

/// The users of a binding are not whom to be.
fn without_own_user(arguments: &Arguments, generator: &Generator) -> Arguments {
    let mut arguments = arguments.clone();
    if generator.flags.iter().any(|flag| flag.name == "user") {
        arguments.put("user", "");
    }
    arguments
}

/// A file, or the regular files of a folder.
fn read(path: &str) -> std::io::Result<Source> {
    if !std::fs::metadata(path)?.is_dir() {
        return std::fs::read(path).map(Source::File);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push((
                entry.file_name().to_string_lossy().into_owned(),
                std::fs::read(entry.path())?,
            ));
        }
    }
    files.sort();
    Ok(Source::Folder(files))
}

/// Every hasher of the standard library has keys of its own.
fn random(length: usize) -> String {
    let mut text = String::new();
    api::names::push_random(
        &mut text,
        length,
        std::hash::RandomState::new().build_hasher().finish(),
    );
    text
}

fn resolved(mapper: &Mapper, resource: &str, group: &str) -> Option<(String, String)> {
    let typed = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let found = mapper.find(&typed).ok()?;
    Some((found.api.plural.to_string(), found.api.group.to_string()))
}

/// Creates an object that flags made, and tells it.
pub async fn made_object(
    session: &mut Session,
    arguments: &Arguments,
    object: Value,
    done: &str,
) -> Outcome<Value> {
    let dry_run = DryRun::of(arguments)?;
    let mut telling = Telling::new(arguments, dry_run)?;
    let object = store(session, arguments, object, dry_run).await?;
    telling.tell(&object, done, &mut session.out)?;
    Ok(object)
}

/// Creates an object that flags made, unless that is only to be tried.
pub async fn store(
    session: &mut Session,
    arguments: &Arguments,
    mut object: Value,
    dry_run: DryRun,
) -> Outcome<Value> {
    let cluster = session.cluster(arguments)?;
    let save = arguments.knows("save-config") && arguments.is("save-config");
    if dry_run == DryRun::Client {
        // Nobody needs to be there for an object that is only printed; but its namespace is said if it
        // was typed.
        let local = builder::local_info(object.clone(), "", &cluster.namespace);
        if cluster.namespace_given && local.resource.is_namespaced() {
            object["metadata"]["namespace"] = cluster.namespace.clone().into();
        }
        return last_applied::refreshed(object, save);
    }
    let info = builder::info(cluster.mapper().await?, &cluster, object, "")?;
    let write = write::options(arguments, dry_run)?;
    let object = last_applied::refreshed(info.object.clone(), save)?;
    cluster.create(info.api(), &info.namespace, &object, &write).await
}

async fn run_token(session: &mut Session, arguments: Arguments) -> Outcome {
    let name = generate::name(&arguments)?;
    let request = token::request(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let mapper = cluster.mapper().await?;
    let accounts = mapper.find("serviceaccounts")?;
    let place = (&*cluster.namespace, name, "token");
    let answer = cluster
        .create_part(&accounts.api, place, &request, &client::source::Write::default())
        .await;
    let answer = answer
        .map_err(|failure| Failure::Plain(format!("failed to create token: {}", failure.text())))?;
    let Some(token) = answer["status"]["token"].as_str().filter(|token| !token.is_empty()) else {
        return Err("failed to create token: no token in server response".into());
    };
    if let Some(mut printer) = Printer::of(&arguments)? {
        return printer.print(&answer, &mut session.out);
    }
    // Whoever reads it from a pipe wants the token alone.
    let end = if std::io::stdout().is_terminal() { "\n" } else { "" };
    Ok(write!(session.out, "{token}{end}")?)
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};

    #[tokio::test]
    async fn flags_make_objects_that_are_created_or_only_shown() {
        let world = world();
        assert_eq!(
            told(&world, "create configmap a --from-literal=k=v").await,
            "configmap/a created\n"
        );
        assert!(told(&world, "describe cm a").await.contains("k:\n----\nv\n"));
        assert_eq!(
            told(&world, "create cm a --from-literal=k=v").await,
            "error: failed to create configmap: configmaps \"a\" already exists\n"
        );
        assert_eq!(
            told(&world, "create cm b --dry-run=client -o yaml").await,
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n"
        );
        assert_eq!(
            told(&world, "create deployment w --image=i --dry-run=client").await,
            "deployment.apps/w created (dry run)\n"
        );
        assert_eq!(
            told(&world, "create deployment w").await,
            "error: required flag(s) \"image\" not set\n"
        );
        assert_eq!(
            told(&world, "create role r --verb=get,eat --resource=po --dry-run=client -o jsonpath={.rules[*].resources[*]}").await,
            "Warning: 'eat' is not a standard resource verb\npods"
        );
    }
}
