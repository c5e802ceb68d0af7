//! What a stream's client asks for, as the object that admission is shown.
use crate::call::Call;
use api::schema::builtin;
use serde_json::{Value, json};

/// Parameters that may be given more than once.
const LISTS: &[&str] = &["command", "ports"];
const FLAGS: &[&str] = &["stdin", "stdout", "stderr", "tty"];

/// `PodExecOptions` and the like, read from the query.
pub fn options(call: &Call, query: &str) -> Value {
    let Some(kind) = call.subresource.and_then(|part| part.kind) else { return Value::Null };
    let api_version = match kind.group {
        "" => kind.version.to_owned(),
        group => format!("{group}/{}", kind.version),
    };
    let mut options = json!({ "kind": kind.kind, "apiVersion": api_version });
    let known = builtin().kind(kind.group, kind.version, kind.kind);
    let is_known = |name: &str| known.is_some_and(|ty| ty.field(name).is_some());
    if is_known("stdout") {
        // What is not said is wanted: upstream's defaults.
        (options["stdout"], options["stderr"]) = (true.into(), true.into());
    }
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let name = &*name;
        if !is_known(name) || matches!(name, "kind" | "apiVersion") {
            continue;
        }
        if LISTS.contains(&name) {
            let item = match name {
                "ports" => value.parse::<i64>().map_or(Value::Null, Value::from),
                _ => Value::from(&*value),
            };
            super::push(&mut options[name], item);
        } else if FLAGS.contains(&name) {
            options[name] = (!matches!(&*value, "false" | "0" | "")).into();
        } else {
            options[name] = (&*value).into();
        }
    }
    if !call.rest.is_empty() && is_known("path") {
        options["path"] = call.rest.as_str().into();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::request::{self, Target};

    #[test]
    fn a_query_is_an_object() {
        let read = |path: &str, query: &str| match request::parse(
            api::kinds::built_in(),
            &http::Method::POST,
            path,
            query,
        ) {
            Target::Call(call) => options(&call, query),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            read("/api/v1/namespaces/a/pods/b/attach", "container=c&stdin=true&stderr=false&x=y"),
            json!({ "kind": "PodAttachOptions", "apiVersion": "v1", "container": "c",
                "stdin": true, "stdout": true, "stderr": false })
        );
        assert_eq!(
            read("/api/v1/namespaces/a/pods/b/exec", "command=ls&command=-l&tty=1"),
            json!({ "kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l"],
                "stdout": true, "stderr": true, "tty": true })
        );
        assert_eq!(
            read("/api/v1/namespaces/a/pods/b/portforward", "ports=80"),
            json!({ "kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80] })
        );
        assert_eq!(
            read("/api/v1/namespaces/a/services/b/proxy/c/d", ""),
            json!({ "kind": "ServiceProxyOptions", "apiVersion": "v1", "path": "c/d" })
        );
    }
}
