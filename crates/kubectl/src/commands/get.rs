//! `kubectl get`: objects as tables, or in any other form, once or for as long as one looks.
use super::{Command, Group};
use crate::builder::{
    self, ALL_NAMESPACES, FIELD_SELECTOR, FILES, Info, Request, SELECTOR, Target,
};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, PARTS, list, number, switch, switch_on, text};
use crate::mapper::Resource;
use crate::print::table::{Look, Tables};
use crate::print::{self, Printer, sort};
use crate::session::Session;
use api::duration::Duration;
use client::source::{Raw, escaped};
use futures_util::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};

static FLAGS: &[Flag] = &[
    number("chunk-size", "500", "How many objects are asked for at a time; 0: all."),
    switch("ignore-not-found", "What is not there is no error."),
    list("label-columns", "Labels to show as columns.").short('L'),
    switch("no-headers", "Without headers."),
    switch("output-watch-events", "Tell what happened to an object while watching."),
    text("raw", "", "Path on the server to read as it is."),
    switch_on("server-print", "Have the server make the table."),
    switch("show-kind", "Show kinds before names."),
    switch("show-labels", "Show all labels as the last column."),
    text("sort-by", "", "JSONPath of the field to sort by."),
    text("subresource", "", "Subresource to get: status, scale, resize.").offers(PARTS),
    switch("watch", "Go on and show changes.").short('w'),
    switch("watch-only", "Show changes alone."),
];

pub static COMMAND: Command = Command {
    name: "get",
    group: Group::Intermediate,
    about: "Display one or many resources",
    usage: "[(-o|--output=)json|yaml|wide|…] (TYPE[.VERSION][.GROUP] [NAME | -l label] | \
            TYPE[.VERSION][.GROUP]/NAME ...) [flags]",
    flags: &[FLAGS, FILES, SELECTOR, FIELD_SELECTOR, ALL_NAMESPACES, print::FLAGS_OF_GET],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
     application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    if let Some(path) = arguments.some("raw") {
        return raw(session, &cluster, path).await;
    }
    let printer = Printer::of(&arguments)?;
    let request = Request { type_is_all: true, ..Request::of(&arguments) };
    let watches = arguments.is("watch") || arguments.is("watch-only");
    if request.words.is_empty() && !request.has_files() {
        return Err(Failure::Said { text: NO_TYPE.to_owned(), code: 1 });
    }
    let targets = builder::targets(&cluster, &request).await?;
    let get = Get { cluster, arguments, request };
    if watches {
        let Some(patience) = patience(&get.arguments) else {
            return get.watch(session, targets, printer).await;
        };
        // Who says how long a request may take is content with what came until then.
        let watched = tokio::time::timeout(patience, get.watch(session, targets, printer)).await;
        return watched.unwrap_or(Ok(()));
    }
    match printer {
        Some(printer) => get.print_objects(session, targets, printer).await,
        None => get.print_tables(session, targets).await,
    }
}

const NO_TYPE: &str = "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of \
     supported resources.\n\nerror: Required resource not specified.\nUse \"kubectl explain <resource>\" for a \
     detailed description of that resource (e.g. kubectl explain pods).\nSee 'kubectl get -h' for help and examples";

/// How long a watch may take, if that was said.
fn patience(arguments: &Arguments) -> Option<std::time::Duration> {
    let given = arguments.given("request-timeout");
    crate::cluster::timeout(arguments)
        .ok()
        .filter(|_| given && arguments.text("request-timeout") != "0")
}

async fn raw(session: &mut Session, cluster: &Cluster, path: &str) -> Outcome {
    let mut answer = cluster.raw(Raw::get(path)).await?;
    while let Some(piece) = answer.body.next().await {
        session.out.write_all(&piece?)?;
    }
    Ok(())
}

/// Everything that a `get` needs to know.
struct Get {
    cluster: Cluster,
    arguments: Arguments,
    request: Request,
}

/// What is asked of the server for a target: a path and whether it is one object's.
struct Asked {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Get {
    fn asked(&self, target: Target) -> Asked {
        match target {
            Target::File(info) => {
                let Info { resource, namespace, name, .. } = *info;
                Asked { resource, namespace, name }
            }
            Target::Named { resource, namespace, name } => {
                Asked { resource: *resource, namespace, name }
            }
            Target::All { resource, namespace } => {
                Asked { resource: *resource, namespace, name: String::new() }
            }
        }
    }

    fn path(&self, asked: &Asked) -> Raw {
        let part = self.arguments.text("subresource");
        let path = asked.resource.api.path(&escaped(&asked.namespace), &escaped(&asked.name), part);
        let raw = Raw::get(path);
        match asked.name.is_empty() {
            true => raw
                .with("labelSelector", &self.request.selector)
                .with("fieldSelector", &self.request.field_selector),
            false => raw,
        }
    }

    async fn fetch(&self, mut raw: Raw, accept: &str) -> Outcome<Value> {
        raw.accept = accept.to_owned();
        let bytes = self.cluster.raw(raw).await?.bytes().await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Plain(format!("unable to decode an answer: {error}")))
    }

    /// All pages of what is asked, as one answer; `rows` or `items` are what they are made of.
    async fn pages(&self, asked: &Asked, accept: &str) -> Outcome<Value> {
        let mut first = self.path(asked);
        if accept == TABLE && (self.arguments.some("sort-by").is_some()) {
            first = first.with("includeObject", "Object");
        }
        if !asked.name.is_empty() {
            return self.fetch(first, accept).await;
        }
        let limit = self.request.chunk;
        let limit = if limit > 0 { limit.to_string() } else { String::new() };
        let mut whole: Option<Value> = None;
        let mut token = String::new();
        loop {
            let raw = first.clone().with("limit", &limit).with("continue", &token);
            let mut page = self.fetch(raw, accept).await.map_err(|failure| {
                let Request { selector, field_selector, .. } = &self.request;
                builder::about_collection(failure, &asked.resource.api, selector, field_selector)
            })?;
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            whole = Some(match whole {
                None => page,
                Some(mut whole) => {
                    for list in ["rows", "items"] {
                        let more = page[list].as_array_mut().map(std::mem::take);
                        if let (Some(all), Some(more)) = (whole[list].as_array_mut(), more) {
                            all.extend(more);
                        }
                    }
                    whole["metadata"]["resourceVersion"] =
                        page["metadata"]["resourceVersion"].clone();
                    whole
                }
            });
            if token.is_empty() {
                return Ok(whole.unwrap_or_default());
            }
        }
    }

    async fn table(&self, asked: &Asked) -> Outcome<Value> {
        let accept = if self.arguments.is("server-print") { TABLE } else { JSON };
        Ok(as_table(self.pages(asked, accept).await?))
    }

    fn look(&self, resource: &Resource, with_kind: bool) -> Look {
        let kind = match (with_kind, &*resource.api.group) {
            (false, _) => String::new(),
            (true, "") => format!("{}/", resource.api.kind.to_lowercase()),
            (true, group) => format!("{}.{group}/", resource.api.kind.to_lowercase()),
        };
        Look {
            wide: self.arguments.text("output") == "wide",
            no_headers: self.arguments.is("no-headers"),
            with_namespace: self.request.all_namespaces && resource.is_namespaced(),
            kind,
            show_labels: self.arguments.is("show-labels"),
            label_columns: self.arguments.list("label-columns").to_vec(),
        }
    }

    /// Failures that count.
    fn is_fault(&self, failure: &Failure) -> bool {
        !(self.arguments.is("ignore-not-found") && failure.is_not_found())
    }

    async fn print_tables(&self, session: &mut Session, targets: Vec<Target>) -> Outcome {
        let asked: Vec<Asked> = targets.into_iter().map(|target| self.asked(target)).collect();
        let first = asked.first().map(|asked| asked.resource.api.clone());
        let is_mixed = asked.iter().any(|asked| Some(&asked.resource.api) != first.as_ref());
        let with_kind = is_mixed || self.arguments.is("show-kind");
        let all_namespaced =
            !self.request.all_namespaces && asked.iter().all(|one| one.resource.is_namespaced());
        let (mut failures, mut written) = (Vec::new(), false);
        let mut group: Option<(Resource, Value)> = None;
        for one in &asked {
            let table = match self.table(one).await {
                Ok(table) => table,
                Err(failure) => {
                    failures.extend(Some(failure).filter(|failure| self.is_fault(failure)));
                    continue;
                }
            };
            match &mut group {
                Some((resource, whole)) if resource.api == one.resource.api => {
                    let rows = table["rows"].as_array().cloned().unwrap_or_default();
                    if let Some(all) = whole["rows"].as_array_mut() {
                        all.extend(rows);
                    }
                }
                _ => {
                    if let Some((resource, whole)) = group.take() {
                        written |=
                            self.print_group(session, &resource, whole, with_kind, written)?;
                    }
                    group = Some((one.resource.clone(), table));
                }
            }
        }
        if let Some((resource, whole)) = group {
            written |= self.print_group(session, &resource, whole, with_kind, written)?;
        }
        if !written && failures.is_empty() && !self.arguments.is("ignore-not-found") {
            match all_namespaced {
                true => writeln!(
                    session.err,
                    "No resources found in {} namespace.",
                    self.cluster.namespace
                )?,
                false => writeln!(session.err, "No resources found")?,
            }
        }
        Failure::of_all(failures)
    }

    /// True if there was anything to print.
    fn print_group(
        &self,
        session: &mut Session,
        resource: &Resource,
        mut table: Value,
        with_kind: bool,
        follows: bool,
    ) -> Outcome<bool> {
        // As upstream has it: what cannot be sorted is not shown.
        if let (Some(path), Some(rows)) =
            (self.arguments.some("sort-by"), table["rows"].as_array_mut())
            && sort::by(rows, path, |row| &row["object"]).is_err()
        {
            return Ok(false);
        }
        if table["rows"].as_array().is_none_or(Vec::is_empty) {
            return Ok(false);
        }
        if follows && !self.arguments.is("no-headers") {
            writeln!(session.out)?;
        }
        let mut tables = Tables::new(self.look(resource, with_kind));
        session.out.write_all(tables.lines(&table, None).as_bytes())?;
        Ok(true)
    }

    async fn print_objects(
        &self,
        session: &mut Session,
        targets: Vec<Target>,
        mut printer: Printer,
    ) -> Outcome {
        let asked: Vec<Asked> = targets.into_iter().map(|target| self.asked(target)).collect();
        let is_single = matches!(&asked[..], [one] if !one.name.is_empty());
        let (mut objects, mut failures) = (Vec::new(), Vec::new());
        for one in &asked {
            match self.pages(one, JSON).await {
                Ok(answer) if one.name.is_empty() => objects.extend(items(answer, &one.resource)),
                Ok(object) => objects.push(object),
                Err(failure) => {
                    failures.extend(Some(failure).filter(|failure| self.is_fault(failure)));
                }
            }
        }
        if let Some(path) = self.arguments.some("sort-by") {
            sort::by(&mut objects, path, |object| object)?;
        }
        let ignores = self.arguments.is("ignore-not-found");
        match &objects[..] {
            [object] if is_single => printer.print(object, &mut session.out)?,
            [] if is_single || (ignores && asked.iter().all(|one| !one.name.is_empty())) => {}
            [] if !failures.is_empty() => {}
            _ => printer.print(&list_of(objects), &mut session.out)?,
        }
        Failure::of_all(failures)
    }

    async fn watch(
        &self,
        session: &mut Session,
        targets: Vec<Target>,
        printer: Option<Printer>,
    ) -> Outcome {
        let mut asked: Vec<Asked> = targets.into_iter().map(|target| self.asked(target)).collect();
        let Some(one) = asked.pop().filter(|_| asked.is_empty()) else {
            return Err("you may only specify a single resource type".into());
        };
        let accept = if printer.is_some() { JSON } else { TABLE };
        let with_kind = self.arguments.is("show-kind");
        let mut shown =
            Shown { tables: Tables::new(self.look(&one.resource, with_kind)), printer, get: self };
        let answer = self.pages(&one, accept).await?;
        let mut version = revision(&answer);
        if !self.arguments.is("watch-only") {
            shown.initial(session, answer, &one)?;
        }
        let collection = Asked { name: String::new(), ..one };
        let mut raw = self.path(&collection);
        if !one.name.is_empty() {
            raw = raw.with("fieldSelector", &format!("metadata.name={}", one.name));
        }
        loop {
            let request = raw.clone().with("watch", "true").with("resourceVersion", &version);
            let mut request = request.with("allowWatchBookmarks", "true");
            request.accept = accept.to_owned();
            let mut answer = self.cluster.raw(request).await?;
            let mut buffer: Vec<u8> = Vec::new();
            while let Some(piece) = answer.body.next().await {
                buffer.extend_from_slice(&piece?);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line)
                        .map_err(|error| Failure::Plain(error.to_string()))?;
                    if let Some(seen) = shown.event(session, &event)? {
                        version = seen;
                    }
                    session.flush()?;
                }
            }
            // The server ends every watch some time; it goes on where it was.
        }
    }
}

/// What a watch has shown so far.
struct Shown<'g> {
    tables: Tables,
    printer: Option<Printer>,
    get: &'g Get,
}

impl Shown<'_> {
    fn initial(&mut self, session: &mut Session, answer: Value, asked: &Asked) -> Outcome {
        let event = self.get.arguments.is("output-watch-events").then_some("ADDED");
        let Some(printer) = &mut self.printer else {
            let table = as_table(answer);
            if table["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
                session.out.write_all(self.tables.lines(&table, event).as_bytes())?;
            }
            return session.flush();
        };
        let objects = match asked.name.is_empty() {
            true => items(answer, &asked.resource),
            false => vec![answer],
        };
        for object in objects {
            let object = event.map_or_else(|| object.clone(), |kind| with_event(kind, &object));
            printer.print(&object, &mut session.out)?;
        }
        session.flush()
    }

    /// The revision that it brings the watch to.
    fn event(&mut self, session: &mut Session, event: &Value) -> Outcome<Option<String>> {
        let kind = event["type"].as_str().unwrap_or_default();
        let object = &event["object"];
        match kind {
            "ERROR" => {
                let status = serde_json::from_value(object.clone()).unwrap_or_default();
                return Err(Failure::Server(Box::new(status)));
            }
            "BOOKMARK" => return Ok(Some(revision(object)).filter(|seen| !seen.is_empty())),
            _ => {}
        }
        let told = self.get.arguments.is("output-watch-events").then_some(kind);
        match &mut self.printer {
            None => {
                let table = as_table(object.clone());
                session.out.write_all(self.tables.lines(&table, told).as_bytes())?;
            }
            Some(printer) => {
                let object = told.map_or_else(|| object.clone(), |kind| with_event(kind, object));
                printer.print(&object, &mut session.out)?;
            }
        }
        let row = &object["rows"][0]["object"];
        let seen = if row.is_object() { revision(row) } else { revision(object) };
        Ok(Some(seen).filter(|seen| !seen.is_empty()))
    }
}

fn with_event(kind: &str, object: &Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn revision(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// The items of a list, each saying what it is.
fn items(mut answer: Value, resource: &Resource) -> Vec<Value> {
    let Some(items) = answer["items"].as_array_mut().map(std::mem::take) else {
        return Vec::new();
    };
    let named = items.into_iter().map(|mut item| {
        if item["kind"].as_str().is_none_or(str::is_empty) && item.is_object() {
            item["kind"] = resource.api.kind.to_string().into();
            item["apiVersion"] = resource.api.api_version().into();
        }
        item
    });
    named.collect()
}

/// Objects of any kinds as one.
pub fn list_of(objects: Vec<Value>) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": objects })
}

/// What the server answered, if it made no table of it: names and ages.
fn as_table(answer: Value) -> Value {
    if answer["kind"] == "Table" {
        return answer;
    }
    let metadata = answer["metadata"].clone();
    let objects = match answer["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![answer],
    };
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| {
            let name = object["metadata"]["name"].clone();
            let age = age(&object["metadata"]["creationTimestamp"]);
            json!({ "cells": [name, age], "object": object })
        })
        .collect();
    json!({ "kind": "Table", "metadata": metadata, "rows": rows, "columnDefinitions": [
        { "name": "Name", "format": "name" }, { "name": "Age" } ] })
}

/// How long ago a moment was, as tables have it.
pub fn age(moment: &Value) -> String {
    let Some(moment) = moment.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let seconds = Timestamp::now().as_second() - moment.as_second();
    Duration::from_secs(seconds).human()
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[tokio::test]
    async fn objects_are_shown_as_tables_or_as_they_are() {
        let world = world();
        let columns = json!([{ "name": "Name", "format": "name" }, { "name": "Ready" }]);
        let metadata = json!({ "namespace": "default" });
        world.page(
            "/api/v1/namespaces/default/pods?limit=500",
            json!({ "kind": "Table", "columnDefinitions": columns, "rows": [
                { "cells": ["b", "1/1"], "object": { "metadata": metadata } },
                { "cells": ["a", "0/1"], "object": { "metadata": metadata } } ] }),
        );
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a",
            "managedFields": [], "labels": { "x": "y" } } });
        world.page("/api/v1/namespaces/default/pods/a", pod);
        world.page(
            "/apis/apps/v1/namespaces/default/deployments?limit=500",
            json!({ "kind": "Table", "columnDefinitions": columns, "rows": [
                { "cells": ["d", "1/1"], "object": { "metadata": metadata } } ] }),
        );
        world.page(
            "/api/v1/namespaces/default/services?limit=500",
            json!({ "kind": "Table", "columnDefinitions": columns, "rows": [] }),
        );
        assert_eq!(told(&world, "get po").await, "NAME   READY\nb      1/1\na      0/1\n");
        assert_eq!(
            told(&world, "get po,svc,deploy").await,
            "NAME    READY\npod/b   1/1\npod/a   0/1\n\nNAME                READY\ndeployment.apps/d   1/1\n"
        );
        assert_eq!(told(&world, "get svc").await, "No resources found in default namespace.\n");
        assert_eq!(
            told(&world, "get pod/a -o yaml").await,
            "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    x: \"y\"\n  name: a\n"
        );
        assert_eq!(told(&world, "get pod a -o jsonpath={.metadata.labels}").await, "{\"x\":\"y\"}");
        assert_eq!(told(&world, "get pod a -o name").await, "pod/a\n");
        assert_eq!(
            told(&world, "get x").await,
            "error: the server doesn't have a resource type \"x\"\n"
        );
        assert!(told(&world, "get po -o x").await.starts_with(
            "error: unable to match a printer suitable for the output format \"x\", allowed formats are: \
             custom-columns,"
        ));
    }
}
