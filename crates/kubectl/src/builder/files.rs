//! `-f FILE|FOLDER|-|URL`: the objects that are there, one by one.
use super::Request;
use crate::failure::{Failure, Outcome};
use api::codec::{json, yaml};
use client::http::tls::{Believed, Files};
use client::http::{Pool, Settings};
use http_body_util::BodyExt;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Every object, with the name of the file that it is in; lists are taken apart.
pub async fn documents(request: &Request) -> Outcome<Vec<(Value, String)>> {
    if !request.kustomize.is_empty() {
        if !request.files.is_empty() || request.recursive {
            return Err("only one of -f or -k can be specified".into());
        }
        let built = crate::kustomize::build(Path::new(&request.kustomize))?;
        return Ok(built.into_iter().map(|object| (object, String::new())).collect());
    }
    if request.files.iter().filter(|file| *file == "-").count() > 1 {
        return Err("standard input cannot be used for multiple arguments".into());
    }
    let mut all = Vec::new();
    for file in &request.files {
        if file == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            read(&text, "STDIN", &mut all)?;
        } else if file.starts_with("http://") || file.starts_with("https://") {
            read(&download(file).await?, file, &mut all)?;
        } else {
            for path in paths(file, request.recursive)? {
                let name = path.display().to_string();
                let bytes = std::fs::read(&path)
                    .map_err(|error| Failure::Plain(crate::print::io_text(&name, &error)))?;
                read(&String::from_utf8_lossy(&bytes), &name, &mut all)?;
            }
        }
    }
    if all.is_empty() {
        return Err("no objects passed to command".into());
    }
    Ok(all)
}

/// The files that a name stands for: itself, what is in a folder, what fits a pattern.
fn paths(file: &str, recursive: bool) -> Outcome<Vec<PathBuf>> {
    let path = Path::new(file);
    if path.is_dir() {
        let mut found = Vec::new();
        walk(path, recursive, &mut found)?;
        if found.is_empty() {
            return Err(format!(
                "error reading [{file}]: recognized file extensions are [.json .yaml .yml]"
            )
            .into());
        }
        return Ok(found);
    }
    if path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let matching = glob(file);
    if matching.is_empty() {
        return Err(format!("the path \"{file}\" does not exist").into());
    }
    Ok(matching)
}

fn walk(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Outcome {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if recursive {
                walk(&path, true, found)?;
            }
        } else if path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
    Ok(())
}

/// A pattern in the last part of a path, where a shell did not resolve it.
fn glob(file: &str) -> Vec<PathBuf> {
    let path = Path::new(file);
    let (Some(pattern), folder) = (path.file_name().and_then(|name| name.to_str()), path.parent())
    else {
        return Vec::new();
    };
    if !pattern.contains(['*', '?', '[']) {
        return Vec::new();
    }
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| fits(pattern, name)))
        .map(|entry| folder.join(entry.file_name()))
        .collect();
    found.sort();
    found
}

/// `*` and `?` only.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            name.char_indices().any(|(at, _)| fits(rest, &name[at..])) || fits(rest, "")
        }
        Some(wanted) => name.chars().next().is_some_and(|c| {
            (wanted == '?' || wanted == c)
                && fits(&pattern[wanted.len_utf8()..], &name[c.len_utf8()..])
        }),
    }
}

/// The documents of a text.
pub fn read(text: &str, source: &str, all: &mut Vec<(Value, String)>) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Plain(format!("error parsing {source}: error converting YAML to JSON: {error}"))
    };
    if text.trim_start().starts_with(['{', '[']) {
        let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let values: Result<Vec<Value>, _> = stream.collect();
        if let Ok(values) = values {
            // What is there twice is not for us to say.
            for value in values {
                flatten(value, source, all);
            }
            return Ok(());
        }
        if let Err(error) = json::decode_untyped(text.as_bytes())
            && yaml::decode_untyped(text.as_bytes()).is_err()
        {
            return Err(format!("error parsing {source}: {error}").into());
        }
    }
    for document in yaml::documents(text) {
        let decoded = yaml::decode_untyped(document.as_bytes()).map_err(|error| failed(&error))?;
        if !decoded.value.is_null() {
            flatten(decoded.value, source, all);
        }
    }
    Ok(())
}

/// A list is its items.
fn flatten(value: Value, source: &str, all: &mut Vec<(Value, String)>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value {
        Value::Object(mut fields)
            if is_list && fields.get("items").is_some_and(Value::is_array) =>
        {
            let kind =
                fields["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
            let version = fields.get("apiVersion").cloned().unwrap_or_default();
            if let Some(Value::Array(items)) = fields.remove("items") {
                for mut item in items {
                    // Items of a typed list need not say what they are.
                    if item.get("kind").is_none() && !kind.is_empty() && item.is_object() {
                        item["kind"] = kind.clone().into();
                        item["apiVersion"] = version.clone();
                    }
                    flatten(item, source, all);
                }
            }
        }
        value => all.push((value, source.to_owned())),
    }
}

async fn download(url: &str) -> Outcome<String> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Plain(format!("unable to read URL \"{url}\", {error}"))
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let settings = Settings::new(Arc::new(Files::new(Believed::System, None)));
    let pool =
        Pool::new(&format!("{scheme}://{host}"), settings).map_err(|error| failed(&error))?;
    let request = http::Request::get(format!("/{path}"))
        .body(bytes::Bytes::new())
        .map_err(|error| failed(&error))?;
    let answer = pool.send(request).await.map_err(|error| failed(&error))?;
    if answer.status() != http::StatusCode::OK {
        return Err(failed(&format!(
            "server reported {}, status code={}",
            answer.status(),
            answer.status().as_u16()
        )));
    }
    let body = answer.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_holds_many_documents_and_lists() {
        let mut all = Vec::new();
        let text = "# note\n---\nkind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\n";
        read(text, "f", &mut all).unwrap();
        read(
            "{\"kind\":\"D\"} {\"kind\":\"EList\",\"apiVersion\":\"v1\",\"items\":[{}]}",
            "f",
            &mut all,
        )
        .unwrap();
        let kinds: Vec<&str> = all.iter().filter_map(|(value, _)| value["kind"].as_str()).collect();
        assert_eq!(kinds, ["A", "B", "C", "D", "E"]);
        assert!(read("a: [", "f", &mut all).is_err());
    }

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, is) in
            [("*.yaml", "a.yaml", true), ("a?c", "abc", true), ("a*", "b", false), ("*", "", true)]
        {
            assert_eq!(fits(pattern, name), is, "{pattern} {name}");
        }
    }
}
