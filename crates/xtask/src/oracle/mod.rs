//! Two API servers, the same requests, and whether they answer alike.
//!
//! One is ours, the other upstream's, which is right by definition. `objects.jsonl` holds valid
//! objects of every kind; from each come requests that are a little wrong ([`mutate`]): every field
//! of the schema absent, empty, too long, negative, doubled, unknown, alone and some together:
//!
//! ```text
//!  objects.jsonl ─┬─ dry ──► creation   creations, an apply, patches of nothing
//!                 └─ stored ─► stored   updates, patches, status, other parts, tables
//!  tables.jsonl ──── stored ─► stored   tables of objects in interesting states
//!  cases.jsonl ───── both ───► cases    what no schema leads to, written by hand
//!  extension.jsonl ─ both ─► extension  definitions with objects, policies and webhooks at work
//!  hooks.jsonl ───── both ─► extension  webhooks that say what the object tells them to
//! ```
//!
//! Status, causes and their order, warnings and the object in the answer are compared
//! ([`compare`]). What differs for a reason is listed in `known.txt`; anything else is printed and
//! makes the chore fail. Everything is the same in each run: what is random has a fixed seed.
//!
//! Both servers must have the same flags and know us by the same certificate: see CONTRIBUTING.md.
mod cases;
mod compare;
mod creation;
mod extension;
mod hooks;
mod known;
mod mutate;
mod nobody;
mod report;
mod server;
mod stored;

use api::kinds::{Resource, Verb};
use http::Method;
use report::Report;
use serde_json::{Value, json};
use server::{Pair, Request};
use std::path::Path;

const OBJECTS: &str = include_str!("objects.jsonl");
const TABLES: &str = include_str!("tables.jsonl");
/// The namespace that both servers get for it.
const NAMESPACE: &str = "oracle";
const SEED: u64 = 37;
/// So many requests per object have several changes at once.
const SEVERAL: usize = 60;

/// Families of requests, to be asked for one at a time.
const FAMILIES: &[&str] = &["create", "update", "status", "parts", "tables", "cases", "extension"];

pub fn run(ours: &Path, theirs: &Path, kind: &str, family: &str) -> Result<(), String> {
    if !family.is_empty() && !FAMILIES.contains(&family) {
        return Err(format!("the families are {}", FAMILIES.join(", ")));
    }
    let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
    runtime.block_on(compare_all(ours, theirs, kind, family)).map_err(|e| format!("{e:#}"))
}

async fn compare_all(ours: &Path, theirs: &Path, kind: &str, only: &str) -> anyhow::Result<()> {
    let mut pair = Pair::open(ours, theirs).await?;
    prepare(&mut pair).await?;
    let mut report = Report::new(only);
    let objects = |lines: &'static str| {
        let object = |line| found(serde_json::from_str(line)?);
        let wanted = |(resource, _): &(&Resource, Value)| is_wanted(kind, resource.kind);
        let all: anyhow::Result<Vec<_>> = lines.lines().map(object).collect();
        anyhow::Ok(all?.into_iter().filter(wanted).collect::<Vec<_>>())
    };
    let generated = if matches!(only, "cases" | "extension") { "" } else { OBJECTS };
    for (resource, object) in objects(generated)? {
        for request in creation::requests(resource, &object) {
            report.ask("create", resource.kind, &mut pair, &request).await?;
        }
        if only == "create" || !resource.is_stored() {
            continue;
        }
        let Some(stored) = stored::create(&mut pair, resource, &object).await? else {
            report.missing(resource.kind);
            continue;
        };
        let foreign = stored.foreign(&mut pair).await?;
        for (family, requests) in [
            ("tables", stored.tables()),
            ("update", stored.updates()),
            ("status", stored.parts()),
            ("parts", foreign),
        ] {
            for request in requests {
                report.ask(family, resource.kind, &mut pair, &request).await?;
            }
        }
        stored.remove(&mut pair).await?;
    }
    for (resource, object) in objects(TABLES)? {
        if !report.wants("tables") {
            break;
        }
        if resource.verbs.contains(Verb::Create) {
            let Some(stored) = stored::create(&mut pair, resource, &object).await? else {
                report.missing(resource.kind);
                continue;
            };
            for request in stored.tables() {
                report.ask("tables", resource.kind, &mut pair, &request).await?;
            }
            stored.remove(&mut pair).await?;
        }
    }
    hand_written(&mut pair, &mut report, kind).await?;
    if is_wanted(kind, "CustomResourceDefinition") {
        extension::tell(&mut pair, &mut report).await?;
    }
    report.print()
}

/// What is written by hand, asked of the kinds that are wanted.
async fn hand_written(pair: &mut Pair, report: &mut Report, kind: &str) -> anyhow::Result<()> {
    let objects: Result<Vec<Value>, _> = OBJECTS.lines().map(serde_json::from_str).collect();
    for case in cases::read(&objects?)? {
        if !report.wants("cases") || !is_wanted(kind, &case.kind) {
            continue;
        }
        let (resource, object) = found(case.base.clone())?;
        let Some(part) = &case.part else {
            for (about, value) in case.tries() {
                let changed = case.apply(&object, value);
                let changed = changed.ok_or_else(|| anyhow::anyhow!("no place: {about}"))?;
                let request = creation::create(resource, &changed, &about);
                report.ask("cases", resource.kind, pair, &request).await?;
            }
            continue;
        };
        let Some(stored) = stored::create(pair, resource, &object).await? else {
            report.missing(resource.kind);
            continue;
        };
        for (about, value) in case.tries() {
            let changed = |object: &Value| case.apply(object, value);
            let request = stored.update(part, changed, &about);
            let request = request.ok_or_else(|| anyhow::anyhow!("no place: {about}"))?;
            report.ask("cases", resource.kind, pair, &request).await?;
        }
        stored.remove(pair).await?;
    }
    Ok(())
}

fn is_wanted(kinds: &str, kind: &str) -> bool {
    matches!(kinds, "" | "all") || kinds.split(',').any(|wanted| wanted == kind)
}

/// An object with the row of its kind.
fn found(object: Value) -> anyhow::Result<(&'static Resource, Value)> {
    let word = |field: &str| object[field].as_str().unwrap_or_default();
    let found = api::kinds::find_kind(word("apiVersion"), word("kind"));
    Ok((found.ok_or_else(|| anyhow::anyhow!("no such kind: {object}"))?, object))
}

/// A namespace, the account that pods in it act as, and the class that one of them runs with.
async fn prepare(pair: &mut Pair) -> anyhow::Result<()> {
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let mut class = named("rt");
    class["handler"] = "h".into();
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    for (path, object) in [
        ("/api/v1/namespaces", named(NAMESPACE)),
        (accounts.as_str(), named("default")),
        ("/apis/node.k8s.io/v1/runtimeclasses", class),
    ] {
        let about = "a place to work in".to_owned();
        let request = Request::new(Method::POST, path.into(), &object, about);
        let (ours, theirs) = pair.ask(&request).await?;
        for said in [Some(ours), theirs].into_iter().flatten() {
            anyhow::ensure!(matches!(said.code, 201 | 409), "{path}: {said:?}");
        }
    }
    Ok(())
}
