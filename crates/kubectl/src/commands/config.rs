//! `kubectl config`: looks at kubeconfig files and changes them.
mod set;
mod view;

use super::{Command, Group};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::kubeconfig::{self, Files};
use crate::print::tabs;
use crate::session::Session;
use serde_json::Value;
use std::path::Path;

pub static COMMAND: Command = Command {
    name: "config",
    group: Group::Other,
    about: "Modify kubeconfig files",
    usage: "SUBCOMMAND",
    children: &[
        &CURRENT_CONTEXT,
        &DELETE_CLUSTER,
        &DELETE_CONTEXT,
        &DELETE_USER,
        &GET_CLUSTERS,
        &GET_CONTEXTS,
        &GET_USERS,
        &RENAME_CONTEXT,
        &set::SET,
        &set::SET_CLUSTER,
        &set::SET_CONTEXT,
        &set::SET_CREDENTIALS,
        &set::UNSET,
        &USE_CONTEXT,
        &view::COMMAND,
    ],
    ..Command::EMPTY
};

static CURRENT_CONTEXT: Command = Command {
    name: "current-context",
    about: "Display the current-context",
    run: Some(|session, arguments| {
        Box::pin(async move {
            let tree = Files::find(&arguments).merged()?;
            match tree["current-context"].as_str().filter(|name| !name.is_empty()) {
                Some(name) => Ok(writeln!(session.out, "{name}")?),
                None => Err("current-context is not set".into()),
            }
        })
    }),
    ..Command::EMPTY
};

static USE_CONTEXT: Command = Command {
    name: "use-context",
    aliases: &["use"],
    about: "Set the current-context in a kubeconfig file",
    usage: "CONTEXT_NAME",
    run: Some(|session, arguments| Box::pin(async move { use_context(session, &arguments) })),
    offers: Offers::Entry("contexts"),
    ..Command::EMPTY
};

static RENAME_CONTEXT: Command = Command {
    name: "rename-context",
    about: "Rename a context from the kubeconfig file",
    usage: "CONTEXT_NAME NEW_NAME",
    run: Some(|session, arguments| Box::pin(async move { rename_context(session, &arguments) })),
    offers: Offers::Entry("contexts"),
    ..Command::EMPTY
};

static DELETE_CLUSTER: Command = Command {
    name: "delete-cluster",
    about: "Delete the specified cluster from the kubeconfig",
    usage: "NAME",
    run: Some(|session, a| Box::pin(async move { delete(session, &a, "clusters", "cluster") })),
    offers: Offers::Entry("clusters"),
    ..Command::EMPTY
};

static DELETE_CONTEXT: Command = Command {
    name: "delete-context",
    about: "Delete the specified context from the kubeconfig",
    usage: "NAME",
    run: Some(|session, a| Box::pin(async move { delete(session, &a, "contexts", "context") })),
    offers: Offers::Entry("contexts"),
    ..Command::EMPTY
};

static DELETE_USER: Command = Command {
    name: "delete-user",
    about: "Delete the specified user from the kubeconfig",
    usage: "NAME",
    run: Some(|session, a| Box::pin(async move { delete(session, &a, "users", "user") })),
    offers: Offers::Entry("users"),
    ..Command::EMPTY
};

static GET_CLUSTERS: Command = Command {
    name: "get-clusters",
    about: "Display clusters defined in the kubeconfig",
    run: Some(|session, a| Box::pin(async move { names(session, &a, "clusters") })),
    ..Command::EMPTY
};

static GET_USERS: Command = Command {
    name: "get-users",
    about: "Display users defined in the kubeconfig",
    run: Some(|session, a| Box::pin(async move { names(session, &a, "users") })),
    ..Command::EMPTY
};

static CONTEXT_FLAGS: &[Flag] = &[
    switch("no-headers", "Without headers."),
    text("output", "", "name: names alone.").short('o'),
];

static GET_CONTEXTS: Command = Command {
    name: "get-contexts",
    about: "Describe one or many contexts",
    usage: "[(-o|--output=)name]",
    flags: &[CONTEXT_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { contexts(session, &arguments) })),
    ..Command::EMPTY
};

/// One file, changed and written again.
fn change(path: &Path, edit: impl FnOnce(&mut Value)) -> Outcome {
    let mut tree = kubeconfig::read(path)?.unwrap_or_else(kubeconfig::empty);
    edit(&mut tree);
    kubeconfig::write(path, &tree)
}

/// The only word, or a fault.
fn only<'a>(arguments: &'a Arguments, what: &str) -> Outcome<&'a str> {
    match &arguments.words[..] {
        [name] if !name.is_empty() => Ok(name),
        _ => Err(Failure::Plain(format!(
            "{what}\nSee '{} -h' for help and examples",
            arguments.command
        ))),
    }
}

fn use_context(session: &mut Session, arguments: &Arguments) -> Outcome {
    let files = Files::find(arguments);
    let [name] = &arguments.words[..] else {
        return Err("unexpected args: exactly one context name is expected".into());
    };
    if kubeconfig::entry(&files.merged()?, "contexts", name).is_none() {
        return Err(format!("no context exists with the name: \"{name}\"").into());
    }
    change(&files.file_of_current()?, |tree| tree["current-context"] = name.as_str().into())?;
    Ok(writeln!(session.out, "Switched to context \"{name}\".")?)
}

fn rename_context(session: &mut Session, arguments: &Arguments) -> Outcome {
    let [old, new] = &arguments.words[..] else {
        return Err("exactly two context names are expected".into());
    };
    let files = Files::find(arguments);
    let tree = files.merged()?;
    let Some(file) = files.file_of("contexts", old)? else {
        return Err(format!(
            "cannot rename the context \"{old}\", it's not in {}",
            files.default_file().display()
        )
        .into());
    };
    if kubeconfig::entry(&tree, "contexts", new).is_some() {
        return Err(format!(
            "cannot rename the context \"{old}\", the context \"{new}\" already exists in {}",
            file.display()
        )
        .into());
    }
    change(&file, |tree| {
        for item in tree["contexts"].as_array_mut().into_iter().flatten() {
            if item["name"] == old.as_str() {
                item["name"] = new.as_str().into();
            }
        }
    })?;
    if tree["current-context"] == old.as_str() {
        change(&files.file_of_current()?, |tree| tree["current-context"] = new.as_str().into())?;
    }
    Ok(writeln!(session.out, "Context \"{old}\" renamed to \"{new}\".")?)
}

fn delete(session: &mut Session, arguments: &Arguments, list: &str, what: &str) -> Outcome {
    let name =
        only(arguments, &format!("unexpected number of arguments: a {what}'s name is expected"))?;
    let files = Files::find(arguments);
    let Some(file) = files.file_of(list, name)? else {
        let default = files.default_file();
        return Err(format!("cannot delete {what} {name}, not in {}", default.display()).into());
    };
    let tree = files.merged()?;
    if what == "context" && tree["current-context"] == name {
        writeln!(
            session.err,
            "warning: this removed your active context, use \"kubectl config use-context\" to select a \
             different one"
        )?;
    }
    change(&file, |tree| {
        kubeconfig::remove(tree, list, name);
    })?;
    Ok(writeln!(session.out, "deleted {what} {name} from {}", file.display())?)
}

fn names(session: &mut Session, arguments: &Arguments, list: &str) -> Outcome {
    let tree = Files::find(arguments).merged()?;
    writeln!(session.out, "NAME")?;
    for name in kubeconfig::names(&tree, list) {
        writeln!(session.out, "{name}")?;
    }
    Ok(())
}

fn contexts(session: &mut Session, arguments: &Arguments) -> Outcome {
    let tree = Files::find(arguments).merged()?;
    let wanted = match &arguments.words[..] {
        [] => kubeconfig::names(&tree, "contexts"),
        some => some.to_vec(),
    };
    let by_name = match arguments.text("output") {
        "name" => true,
        "" => false,
        other => return Err(format!("output must be one of '' or 'name': {other}").into()),
    };
    let mut rows = Vec::new();
    if !arguments.is("no-headers") && !by_name {
        let headers = ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"];
        rows.push(headers.iter().map(|header| (*header).to_owned()).collect());
    }
    let mut failures = Vec::new();
    for name in wanted {
        let Some(context) = kubeconfig::entry(&tree, "contexts", &name) else {
            failures.push(Failure::Plain(format!("context {name} not found")));
            continue;
        };
        let text = |field: &str| context[field].as_str().unwrap_or_default().to_owned();
        let mark = if tree["current-context"] == name.as_str() { "*" } else { "" };
        rows.push(match by_name {
            true => vec![name],
            false => {
                vec![mark.to_owned(), name, text("cluster"), text("user"), text("namespace")]
            }
        });
    }
    session.out.write_all(tabs::aligned(&rows).as_bytes())?;
    Failure::of_all(failures)
}
