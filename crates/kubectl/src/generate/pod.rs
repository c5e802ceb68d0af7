//! The pod of `kubectl run`, and the service that may go with it.

use std::collections::BTreeMap;

use api::names;
use serde_json::{Value, json};

use super::{labels, overridden, put, required, strings};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, each, switch, text};

pub static FLAGS: &[Flag] = &[
    each("annotations", "Annotation of the pod, KEY=VALUE; may be repeated."),
    text("image", "", "Image to run.").required(),
    text("image-pull-policy", "", "When to pull the image; the server decides if it is empty."),
    each("env", "Variable of the container's environment, KEY=VALUE; may be repeated."),
    text("port", "", "Port that the container exposes."),
    text("labels", "", "Labels of the pod, KEY=VALUE, divided by commas.").short('l'),
    switch("stdin", "Keep the container's stdin open.").short('i'),
    switch("tty", "Give the container a terminal.").short('t'),
    switch("attach", "Attach to the container once it runs."),
    switch("leave-stdin-open", "Leave stdin open after the first attachment."),
    text("restart", "Always", "Restart policy: Always, OnFailure or Never."),
    switch("command", "What follows -- is the command, not its arguments."),
    switch("expose", "Create a service for the pod, too; needs --port."),
    switch("privileged", "Run the container privileged."),
    text("overrides", "", "JSON that changes the object."),
    text("override-type", "merge", "How --overrides is applied: json, merge or strategic."),
];

/// A pod, and a service if one was asked for.
#[derive(Debug)]
pub struct Run {
    pub pod: Value,
    pub service: Option<Value>,
}

pub fn run(arguments: &Arguments) -> Outcome<Run> {
    required(arguments, &["image"])?;
    let annotations = pairs(arguments.list("annotations"))?;
    let own_labels = labels(arguments.text("labels"))?;
    let env = variables(arguments.list("env"))?;
    let restart = restart_policy(arguments.text("restart"), arguments.is("stdin"))?;
    let pull = match arguments.text("image-pull-policy") {
        known @ ("" | "Always" | "IfNotPresent" | "Never") => known,
        other => {
            return Err(format!(
                "invalid image pull policy: {other}, valid values are: Always, IfNotPresent, Never"
            )
            .into());
        }
    };
    let Some(name) = arguments.words.first().filter(|_| arguments.dash != Some(0)) else {
        return Err("NAME is required for run".into());
    };
    let (image, port) = (arguments.text("image"), port(arguments)?);
    if image.is_empty() {
        return Err("--image is required".into());
    }
    if !is_reference(image) {
        return Err(format!(
            "invalid image name {}: invalid reference format",
            super::quoted(image)
        )
        .into());
    }
    let (stdin, tty) = (arguments.is("stdin"), arguments.is("tty"));
    if tty && !stdin {
        return Err("-i/--stdin is required for containers with -t/--tty=true".into());
    }
    let labels = if own_labels.is_empty() {
        BTreeMap::from([("run".to_owned(), name.clone())])
    } else {
        own_labels.clone()
    };
    let mut container = json!({"name": name, "image": image, "resources": {}});
    put(&mut container, "env", env);
    put(&mut container, "imagePullPolicy", pull);
    for (field, value) in
        [("stdin", stdin), ("stdinOnce", stdin && !arguments.is("leave-stdin-open")), ("tty", tty)]
    {
        if value {
            container[field] = Value::Bool(true);
        }
    }
    if arguments.is("privileged") {
        container["securityContext"] = json!({"privileged": true});
    }
    let words = strings(arguments.words.get(1..).unwrap_or_default());
    put(&mut container, if arguments.is("command") { "command" } else { "args" }, words);
    if let Some(port) = port {
        container["ports"] = json!([{"containerPort": port}]);
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": restart},
        "status": {},
    });
    put(&mut pod["metadata"], "annotations", annotations);
    let service = port
        .filter(|_| arguments.is("expose"))
        .map(|port| service(name, port, &own_labels, &labels));
    Ok(Run { pod: overridden(pod, arguments)?, service })
}

fn service(
    name: &str,
    port: i64,
    own: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": port, "protocol": "TCP", "targetPort": port}]},
        "status": {"loadBalancer": {}},
    });
    put(&mut service["metadata"], "labels", json!(own));
    service
}

fn port(arguments: &Arguments) -> Outcome<Option<i64>> {
    match arguments.text("port") {
        "" if arguments.is("expose") => Err("--port must be set when exposing a service".into()),
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| "--port must be a number".into()),
    }
}

fn pairs(all: &[String]) -> Outcome<Value> {
    let mut out = json!({});
    for pair in all {
        match pair.split_once('=').filter(|(key, _)| !key.is_empty()) {
            Some((key, value)) => out[key] = value.into(),
            None => return Err(format!("invalid annotations format: {pair}").into()),
        }
    }
    Ok(out)
}

fn variables(all: &[String]) -> Outcome<Vec<Value>> {
    let variable = |text: &String| match text.split_once('=') {
        Some((name, value)) if names::env_var_name(name).is_empty() => {
            let mut variable = json!({"name": name});
            put(&mut variable, "value", value);
            Ok(variable)
        }
        _ => Err(format!("invalid env: {text}").into()),
    };
    all.iter().map(variable).collect()
}

fn restart_policy(text: &str, interactive: bool) -> Outcome<&str> {
    match text {
        "" if interactive => Ok("OnFailure"),
        "" => Ok("Always"),
        "Always" | "OnFailure" | "Never" => Ok(text),
        other => Err(format!(
            "invalid restart policy: {other}, valid values are: Always, OnFailure, Never"
        )
        .into()),
    }
}

/// Whether an image's name can be read at all: upstream's grammar, as far as people get it wrong.
fn is_reference(image: &str) -> bool {
    let (rest, digest) =
        image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let is_tag = |tag: &str| {
        let mut chars = tag.chars();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        tag.len() <= 128
            && chars.next().is_some_and(word)
            && chars.all(|c| word(c) || c == '.' || c == '-')
    };
    let is_digest = |digest: &str| {
        digest.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty()
                && hex.len() >= 32
                && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let part = |part: &str| {
        let inner =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        !part.is_empty()
            && part.chars().all(inner)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let host = |host: &str| {
        let (name, port) = host.rsplit_once(':').map_or((host, "0"), |(name, port)| (name, port));
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
        !name.is_empty()
            && name.chars().all(inner)
            && !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
    };
    let mut parts = name.split('/');
    let Some(first) = parts.next() else { return false };
    let rest: Vec<&str> = parts.collect();
    let name_is_good = match rest.is_empty() {
        true => part(first),
        false => (part(first) || host(first)) && rest.iter().all(|name| part(name)),
    };
    name_is_good && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}
