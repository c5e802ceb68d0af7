//! `kubectl config set…`: changes entries of kubeconfig files.
use super::super::Command;
use super::{change, only};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, Offer, each, switch, text};
use crate::kubeconfig::{self, Files};
use crate::session::Session;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

static SET_FLAGS: &[Flag] = &[switch("set-raw-bytes", "The value is no base64, and is made it.")];

pub static SET: Command = Command {
    name: "set",
    about: "Set an individual value in a kubeconfig file",
    usage: "PROPERTY_NAME PROPERTY_VALUE",
    flags: &[SET_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { set(session, &arguments) })),
    ..Command::EMPTY
};

pub static UNSET: Command = Command {
    name: "unset",
    about: "Unset an individual value in a kubeconfig file",
    usage: "PROPERTY_NAME",
    run: Some(|session, arguments| Box::pin(async move { unset(session, &arguments) })),
    ..Command::EMPTY
};

static CLUSTER_FLAGS: &[Flag] = &[
    text("certificate-authority", "", "File with the authority's certificate."),
    switch("embed-certs", "Put the file's content into the kubeconfig."),
    switch("insecure-skip-tls-verify", "Believe any certificate."),
    text("proxy-url", "", "Proxy on the way to the server."),
    text("server", "", "Address of the server."),
    text("tls-server-name", "", "Name that the server's certificate is to have."),
];

pub static SET_CLUSTER: Command = Command {
    name: "set-cluster",
    about: "Set a cluster entry in kubeconfig",
    usage: "NAME [--server=server] [--certificate-authority=path/to/certificate/authority]",
    flags: &[CLUSTER_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { set_cluster(session, &arguments) })),
    ..Command::EMPTY
};

static CONTEXT_FLAGS: &[Flag] = &[
    text("cluster", "", "Cluster of the context."),
    switch("current", "Change the current context."),
    text("namespace", "", "Namespace of the context.")
        .short('n')
        .offers(Offer::Objects("namespaces")),
    text("user", "", "User of the context."),
];

pub static SET_CONTEXT: Command = Command {
    name: "set-context",
    about: "Set a context entry in kubeconfig",
    usage: "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace]",
    flags: &[CONTEXT_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { set_context(session, &arguments) })),
    offers: Offers::Entry("contexts"),
    ..Command::EMPTY
};

static USER_FLAGS: &[Flag] = &[
    text("auth-provider", "", "No longer known to any cluster."),
    each("auth-provider-arg", "No longer known to any cluster."),
    text("client-certificate", "", "File with the client's certificate."),
    text("client-key", "", "File with the client's key."),
    switch("embed-certs", "Put the files' contents into the kubeconfig."),
    text("exec-api-version", "", "Version that the credential program speaks."),
    each("exec-arg", "Argument of the credential program."),
    text("exec-command", "", "Program that says who one is."),
    each("exec-env", "Variable of the credential program: KEY=VALUE."),
    text("exec-interactive-mode", "", "Whether the credential program may ask."),
    switch("exec-provide-cluster-info", "Tell the credential program about the cluster."),
    text("password", "", "Password for basic authentication."),
    text("token", "", "Bearer token."),
    text("username", "", "Name for basic authentication."),
];

pub static SET_CREDENTIALS: Command = Command {
    name: "set-credentials",
    about: "Set a user entry in kubeconfig",
    usage: "NAME [--client-certificate=path] [--client-key=path] [--token=bearer_token]",
    flags: &[USER_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { set_credentials(session, &arguments) })),
    ..Command::EMPTY
};

/// Puts texts that were given into an entry; an empty one takes the field away.
fn put_texts(entry: &mut Value, arguments: &Arguments, names: &[&str]) {
    let Some(fields) = entry.as_object_mut() else { return };
    for name in names.iter().filter(|name| arguments.given(name)) {
        match arguments.text(name) {
            "" => drop(fields.remove(*name)),
            value => drop(fields.insert((*name).to_owned(), value.into())),
        }
    }
}

/// A file by name, or what is in it.
fn put_file(entry: &mut Value, arguments: &Arguments, name: &str) -> Outcome {
    if !arguments.given(name) {
        return Ok(());
    }
    let (path, data) = (arguments.text(name), format!("{name}-data"));
    let embed = arguments.is("embed-certs");
    let content = match embed && !path.is_empty() {
        true => Some(std::fs::read(path).map_err(|error| {
            Failure::Plain(format!(
                "error reading {name} data from {path}: {}",
                crate::print::io_text(path, &error)
            ))
        })?),
        false => None,
    };
    let Some(fields) = entry.as_object_mut() else { return Ok(()) };
    fields.remove(&data);
    fields.remove(name);
    match content {
        Some(content) => drop(fields.insert(data, STANDARD.encode(content).into())),
        None if path.is_empty() => {}
        None => {
            let path = std::path::absolute(path).unwrap_or(path.into());
            fields.insert(name.to_owned(), path.display().to_string().into());
        }
    }
    Ok(())
}

/// Changes an entry where it is, or makes it in the default file; true if it was there.
fn edit_entry(
    files: &Files,
    list: &str,
    name: &str,
    edit: impl FnOnce(&mut Value) -> Outcome,
) -> Outcome<bool> {
    let place = files.file_of(list, name)?;
    let is_there = place.is_some();
    let mut outcome = Ok(());
    change(&place.unwrap_or(files.default_file()), |tree| {
        outcome = edit(kubeconfig::entry_mut(tree, list, name));
    })?;
    outcome.map(|()| is_there)
}

fn set_cluster(session: &mut Session, arguments: &Arguments) -> Outcome {
    let name = only(arguments, "Unexpected args: exactly one cluster name is expected")?;
    if arguments.is("insecure-skip-tls-verify") && arguments.some("certificate-authority").is_some()
    {
        return Err(
            "you cannot specify a certificate authority and insecure mode at the same time".into(),
        );
    }
    edit_entry(&Files::find(arguments), "clusters", name, |entry| {
        put_texts(entry, arguments, &["server", "tls-server-name", "proxy-url"]);
        if arguments.given("insecure-skip-tls-verify") {
            let insecure = arguments.is("insecure-skip-tls-verify");
            match insecure {
                true => entry["insecure-skip-tls-verify"] = true.into(),
                false => drop(entry.as_object_mut().map(|e| e.remove("insecure-skip-tls-verify"))),
            }
            if insecure && let Some(fields) = entry.as_object_mut() {
                fields.remove("certificate-authority");
                fields.remove("certificate-authority-data");
            }
        }
        put_file(entry, arguments, "certificate-authority")
    })?;
    Ok(writeln!(session.out, "Cluster \"{name}\" set.")?)
}

fn set_context(session: &mut Session, arguments: &Arguments) -> Outcome {
    let files = Files::find(arguments);
    let name = match (&arguments.words[..], arguments.is("current")) {
        ([], true) => {
            let tree = files.merged()?;
            let current = tree["current-context"].as_str().unwrap_or_default().to_owned();
            if current.is_empty() {
                return Err("no current context is set".into());
            }
            current
        }
        ([name], false) => name.clone(),
        ([_, ..], true) => {
            return Err("you cannot specify both a context name and --current".into());
        }
        _ => return Err("you must specify a non-empty context name or --current".into()),
    };
    let was_there = edit_entry(&files, "contexts", &name, |entry| {
        put_texts(entry, arguments, &["cluster", "namespace", "user"]);
        for field in ["cluster", "user"] {
            if entry[field].is_null() {
                entry[field] = "".into();
            }
        }
        Ok(())
    })?;
    let done = if was_there { "modified" } else { "created" };
    Ok(writeln!(session.out, "Context \"{name}\" {done}.")?)
}

fn set_credentials(session: &mut Session, arguments: &Arguments) -> Outcome {
    let name = only(arguments, "Unexpected args: exactly one user name is expected")?;
    let basic = arguments.some("username").is_some() || arguments.some("password").is_some();
    if arguments.some("token").is_some() && basic {
        return Err(
            "you cannot specify more than one authentication method at the same time: --token, \
                    --username/--password"
                .into(),
        );
    }
    edit_entry(&Files::find(arguments), "users", name, |entry| {
        put_file(entry, arguments, "client-certificate")?;
        put_file(entry, arguments, "client-key")?;
        put_texts(entry, arguments, &["token", "username", "password"]);
        put_exec(entry, arguments);
        Ok(())
    })?;
    Ok(writeln!(session.out, "User \"{name}\" set.")?)
}

fn put_exec(entry: &mut Value, arguments: &Arguments) {
    let fields = [
        ("exec-command", "command"),
        ("exec-api-version", "apiVersion"),
        ("exec-interactive-mode", "interactiveMode"),
    ];
    for (flag, field) in fields {
        if arguments.given(flag) {
            entry["exec"][field] = arguments.text(flag).into();
        }
    }
    if arguments.given("exec-arg") {
        entry["exec"]["args"] = json!(arguments.list("exec-arg"));
    }
    if arguments.given("exec-provide-cluster-info") {
        entry["exec"]["provideClusterInfo"] = arguments.is("exec-provide-cluster-info").into();
    }
    if arguments.given("exec-env") {
        let pairs = arguments.list("exec-env").iter().filter_map(|pair| pair.split_once('='));
        let pairs: Vec<Value> =
            pairs.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        entry["exec"]["env"] = pairs.into();
    }
}

/// A field of the file, or a list of it with an entry's name and fields inside of that.
type Property<'p> = (&'p str, Option<(&'p str, Vec<&'p str>)>);

/// `clusters.my-cluster.server`: a list, a name that may hold dots, and a field.
fn steps<'p>(path: &'p str, tree: &Value) -> Outcome<Property<'p>> {
    let (list, rest) = match path.split_once('.') {
        None => return Ok((path, None)),
        Some(parts) => parts,
    };
    if !matches!(list, "clusters" | "contexts" | "users") {
        return Ok((path, None));
    }
    let known = kubeconfig::names(tree, list);
    let name = known.iter().find(|name| {
        rest == name.as_str()
            || rest.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('.'))
    });
    let (name, fields) = match name {
        Some(name) => (&rest[..name.len()], rest[name.len()..].trim_start_matches('.')),
        None => rest.split_once('.').unwrap_or((rest, "")),
    };
    Ok((list, Some((name, fields.split('.').filter(|field| !field.is_empty()).collect()))))
}

fn set(session: &mut Session, arguments: &Arguments) -> Outcome {
    let [path, value] = &arguments.words[..] else {
        return Err("exactly a property name and a value are expected".into());
    };
    let files = Files::find(arguments);
    let tree = files.merged()?;
    let (list, inner) = steps(path, &tree)?;
    match inner {
        None => change(&files.file_of_current()?, |tree| tree[list] = typed(list, value))?,
        Some((name, fields)) => {
            if fields.is_empty() {
                return Err(format!("{path} needs a property of the entry").into());
            }
            let last = fields.last().copied().unwrap_or_default();
            let value = match last.ends_with("-data") && arguments.is("set-raw-bytes") {
                true => STANDARD.encode(value).into(),
                false if last.ends_with("-data") && STANDARD.decode(value).is_err() => {
                    return Err(format!(
                        "error decoding {last}: illegal base64 data; use --set-raw-bytes"
                    )
                    .into());
                }
                false => typed(last, value),
            };
            edit_entry(&files, list, name, |entry| {
                let mut place = entry;
                for field in &fields {
                    if !place.is_object() {
                        *place = json!({});
                    }
                    place = &mut place[*field];
                }
                *place = value;
                Ok(())
            })?;
        }
    }
    Ok(writeln!(session.out, "Property \"{path}\" set.")?)
}

fn typed(field: &str, value: &str) -> Value {
    match (field, value) {
        ("insecure-skip-tls-verify" | "disable-compression", "true") => true.into(),
        ("insecure-skip-tls-verify" | "disable-compression", "false") => false.into(),
        _ => value.into(),
    }
}

fn unset(session: &mut Session, arguments: &Arguments) -> Outcome {
    let path = only(arguments, "Unexpected args: exactly one property name is expected")?;
    let files = Files::find(arguments);
    let tree = files.merged()?;
    let (list, inner) = steps(path, &tree)?;
    match inner {
        None => change(&files.file_of_current()?, |tree| match list {
            "clusters" | "contexts" | "users" => tree[list] = json!([]),
            "current-context" => tree[list] = "".into(),
            other => drop(tree.as_object_mut().map(|fields| fields.remove(other))),
        })?,
        Some((name, fields)) => {
            let place = files.file_of(list, name)?;
            let Some(place) = place else {
                return Err(format!("current map key `{name}` is invalid").into());
            };
            change(&place, |tree| {
                let Some((last, before)) = fields.split_last() else {
                    kubeconfig::remove(tree, list, name);
                    return;
                };
                let mut inside = kubeconfig::entry_mut(tree, list, name);
                for field in before {
                    inside = &mut inside[*field];
                }
                if let Some(fields) = inside.as_object_mut() {
                    fields.remove(*last);
                }
            })?;
        }
    }
    Ok(writeln!(session.out, "Property \"{path}\" unset.")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_s_path_may_hold_names_with_dots() {
        let tree = json!({ "clusters": [{ "name": "a.b" }] });
        assert_eq!(
            steps("clusters.a.b.server", &tree).unwrap(),
            ("clusters", Some(("a.b", vec!["server"])))
        );
        assert_eq!(
            steps("users.u.exec.command", &tree).unwrap(),
            ("users", Some(("u", vec!["exec", "command"])))
        );
        assert_eq!(steps("current-context", &tree).unwrap(), ("current-context", None));
    }
}
