//! `kubectl config view`.
use super::super::Command;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, switch_on, text};
use crate::kubeconfig::{self, Files};
use crate::print::Printer;
use crate::session::Session;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

static FLAGS: &[Flag] = &[
    switch_on("allow-missing-template-keys", "What a template names and is not there is no error."),
    switch("flatten", "Put files' contents in the place of their names."),
    switch_on("merge", "Show what all files say together."),
    switch("minify", "Show the current context alone."),
    text("output", "yaml", "How to print.").short('o'),
    switch("raw", "Show certificates and secrets as they are."),
    switch("show-managed-fields", "Taken for compatibility."),
    text("template", "", "Template, or its file."),
];

pub static COMMAND: Command = Command {
    name: "view",
    about: "Display merged kubeconfig settings or a specified kubeconfig file",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(async move { run(session, &arguments) })),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let mut files = Files::find(arguments);
    if !arguments.is("merge") {
        files.paths.truncate(1);
    }
    let mut tree = files.merged()?;
    if let Some(context) = arguments.some("context") {
        tree["current-context"] = context.into();
    }
    if arguments.is("minify") {
        tree = minified(&tree)?;
    }
    if arguments.is("flatten") {
        flatten(&mut tree)?;
    }
    if !arguments.is("raw") {
        hide(&mut tree);
    }
    for list in ["clusters", "contexts", "users"] {
        if let Some(items) = tree[list].as_array_mut() {
            items.sort_by_key(|item| item["name"].as_str().unwrap_or_default().to_owned());
            if items.is_empty() {
                tree[list] = Value::Null;
            }
        }
    }
    if let Some(fields) = tree.as_object_mut()
        && fields.get("preferences").is_some_and(|value| value == &json!({}))
    {
        fields.remove("preferences");
    }
    let mut printer =
        Printer::of(arguments)?.ok_or(Failure::Plain("an output format is needed".to_owned()))?;
    printer.print(&tree, &mut session.out)
}

/// The current context and what it needs.
fn minified(tree: &Value) -> Outcome<Value> {
    let current = tree["current-context"].as_str().unwrap_or_default();
    if current.is_empty() {
        return Err("current-context must exist in order to minify".into());
    }
    let Some(context) = kubeconfig::entry(tree, "contexts", current) else {
        return Err("cannot locate context ".to_owned().into())
            .map_err(|failure: Failure| Failure::Plain(format!("{}{current}", failure.text())));
    };
    let mut small = tree.clone();
    for (list, name) in [
        ("contexts", current),
        ("clusters", context["cluster"].as_str().unwrap_or_default()),
        ("users", context["user"].as_str().unwrap_or_default()),
    ] {
        if let Some(items) = small[list].as_array_mut() {
            items.retain(|item| item["name"] == name);
        }
    }
    Ok(small)
}

fn each(tree: &mut Value, list: &str, inner: &str, mut act: impl FnMut(&mut Map<String, Value>)) {
    for item in tree[list].as_array_mut().into_iter().flatten() {
        if let Some(content) = item[inner].as_object_mut() {
            act(content);
        }
    }
}

fn flatten(tree: &mut Value) -> Outcome {
    let mut failed = None;
    let mut embed = |content: &mut Map<String, Value>, field: &str, data: &str| {
        let Some(path) = content.get(field).and_then(Value::as_str) else { return };
        match std::fs::read(path) {
            Ok(bytes) => {
                content.remove(field);
                content.insert(data.to_owned(), STANDARD.encode(bytes).into());
            }
            Err(error) => failed = Some(Failure::Plain(crate::print::io_text(path, &error))),
        }
    };
    each(tree, "clusters", "cluster", |content| {
        embed(content, "certificate-authority", "certificate-authority-data");
    });
    each(tree, "users", "user", |content| {
        embed(content, "client-certificate", "client-certificate-data");
        embed(content, "client-key", "client-key-data");
    });
    failed.map_or(Ok(()), Err)
}

/// What is for nobody's eyes.
fn hide(tree: &mut Value) {
    let cover = |content: &mut Map<String, Value>, field: &str, cover: &str| {
        if content.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
            content.insert(field.to_owned(), cover.into());
        }
    };
    each(tree, "clusters", "cluster", |content| {
        cover(content, "certificate-authority-data", "DATA+OMITTED");
    });
    each(tree, "users", "user", |content| {
        cover(content, "client-certificate-data", "DATA+OMITTED");
        cover(content, "client-key-data", "DATA+OMITTED");
        cover(content, "token", "REDACTED");
        cover(content, "password", "REDACTED");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_view_has_the_current_context_alone_and_no_secrets() {
        let mut tree = json!({ "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }, { "name": "b" }],
            "clusters": [{ "name": "c", "cluster": { "certificate-authority-data": "x" } }, { "name": "d" }],
            "users": [{ "name": "u", "user": { "token": "t" } }, { "name": "v" }] });
        tree = minified(&tree).unwrap();
        hide(&mut tree);
        assert_eq!(
            tree,
            json!({ "current-context": "a",
                "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }],
                "clusters": [{ "name": "c", "cluster": { "certificate-authority-data": "DATA+OMITTED" } }],
                "users": [{ "name": "u", "user": { "token": "REDACTED" } }] })
        );
    }
}
