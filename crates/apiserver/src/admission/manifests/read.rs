//! What the documents of a folder say: objects with their defaults, by the rules of the API and by those of
//! manifests (`plugin/{policy,webhook}/manifest/loader`).
use super::Sort;
use super::files::Document;
use crate::admission::{policy, text};
use api::codec::{json, yaml};
use api::field;
use api::kinds::{Resource, find_kind};
use api::rules::RESERVED_NAMES;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const VERSION: &str = "admissionregistration.k8s.io/v1";

/// What is asked, and what says where it counts, each by name.
pub fn objects(
    documents: &[Document],
    sort: &'static Sort,
) -> Result<(Vec<Value>, Vec<Value>), String> {
    let mut reader = Reader { sort, objects: Kept::default(), bindings: Kept::default() };
    for Document { file, text } in documents {
        let taken = decode(text).and_then(|document| reader.take(document, file));
        taken.map_err(|cause| format!("error loading {}: {cause}", file.display()))?;
    }
    let Reader { mut objects, mut bindings, .. } = reader;
    for binding in &bindings.all {
        let policy = text(&binding["spec"]["policyName"]);
        if !objects.files.contains_key(policy) {
            let name = name(binding);
            return Err(format!(
                "binding {name:?} references policy {policy:?} which does not exist in the manifest directory"
            ));
        }
    }
    for kept in [&mut objects.all, &mut bindings.all] {
        kept.sort_by(|one, other| name(one).cmp(name(other)));
    }
    Ok((objects.all, bindings.all))
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// A document as it is written: what is said twice in it is not read.
fn decode(text: &str) -> Result<Value, String> {
    let decoded = yaml::decode_untyped(text.as_bytes()).map_err(|error| error.to_string())?;
    strict(decoded)
}

fn strict(decoded: json::Decoded) -> Result<Value, String> {
    match decoded.problems.first() {
        Some(problem) => Err(format!("strict decoding error: {problem}")),
        None => Ok(decoded.value),
    }
}

/// The objects of one kind so far, and where each is from.
#[derive(Default)]
struct Kept {
    all: Vec<Value>,
    files: HashMap<String, PathBuf>,
}

struct Reader {
    sort: &'static Sort,
    objects: Kept,
    bindings: Kept,
}

impl Reader {
    /// Takes an object, or each of a list.
    fn take(&mut self, mut document: Value, file: &Path) -> Result<(), String> {
        let (version, kind) = (text(&document["apiVersion"]), text(&document["kind"]));
        if kind.is_empty() {
            return Err(format!("Object 'Kind' is missing in '{document}'"));
        }
        if (version, kind) == ("v1", "List") {
            let items = document["items"].take();
            return self.take_all(items, file, |_| ());
        }
        if version != VERSION || find_kind(VERSION, kind.trim_end_matches("List")).is_none() {
            return Err(format!("no kind {kind:?} is registered for version {version:?}"));
        }
        let known = |kind: &str| kind == self.sort.kind || Some(kind) == self.sort.binding;
        match kind.strip_suffix("List") {
            Some(one) if known(one) => {
                let (one, items) = (one.to_owned(), document["items"].take());
                self.take_all(items, file, |item| {
                    item["apiVersion"] = VERSION.into();
                    item["kind"] = one.clone().into();
                })
            }
            _ if known(kind) => self.take_one(&document, file),
            _ => Err(format!("unsupported resource type *v1.{kind}")),
        }
    }

    fn take_all(
        &mut self,
        items: Value,
        file: &Path,
        complete: impl Fn(&mut Value),
    ) -> Result<(), String> {
        let Value::Array(items) = items else { return Ok(()) };
        for mut item in items {
            complete(&mut item);
            self.take(item, file)?;
        }
        Ok(())
    }

    fn take_one(&mut self, document: &Value, file: &Path) -> Result<(), String> {
        let kind = text(&document["kind"]);
        let resource = find_kind(VERSION, kind).ok_or("no such kind")?;
        let object = settled(document, resource)?;
        let is_binding = Some(kind) == self.sort.binding;
        let kept = if is_binding { &mut self.bindings } else { &mut self.objects };
        check_name(name(&object), file, kept)?;
        match (is_binding, self.sort.binding) {
            (true, _) => check_binding(&object)?,
            (false, Some(_)) if object["spec"]["paramKind"].is_object() => {
                let name = name(&object);
                return Err(format!(
                    "{kind} {name:?}: spec.paramKind is not supported for static manifests"
                ));
            }
            (false, Some(_)) => {}
            (false, None) => check_clients(&object, file)?,
        }
        kept.all.push(object);
        Ok(())
    }
}

/// An object as the API would have it; what is wrong with it by the API's rules.
fn settled(document: &Value, resource: &Resource) -> Result<Value, String> {
    let decoded = json::canonicalize(document.clone(), resource.ty());
    let mut object = strict(decoded.map_err(|error| error.to_string())?)?;
    resource.set_defaults(&mut object);
    let verdict = (resource.rules.validate_create)(resource, &object);
    let mut errors = verdict.map_err(|error| error.to_string())?.errors;
    // Names that no client may give are those that manifests have to have.
    errors.retain(|error| !error.detail.contains(RESERVED_NAMES));
    errors.extend(policy::faults(resource, &object));
    match field::aggregate(&errors) {
        Some(wrong) => Err(format!("{} {:?}: {wrong}", resource.kind, name(&object))),
        None => Ok(object),
    }
}

fn check_name(name: &str, file: &Path, kept: &mut Kept) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("resource in file {file:?} must have a name"));
    }
    if !name.ends_with(RESERVED_NAMES) {
        return Err(format!(
            "{name:?} in file {file:?} must have a name ending with {RESERVED_NAMES:?}"
        ));
    }
    match kept.files.insert(name.to_owned(), file.to_owned()) {
        Some(before) => Err(format!(
            "duplicate name {name:?} found in file {file:?} (previously seen in {before:?})"
        )),
        None => Ok(()),
    }
}

/// Neither parameters nor policies that are stored: a manifest depends on nothing that clients can change.
fn check_binding(binding: &Value) -> Result<(), String> {
    let (name, spec) = (name(binding), &binding["spec"]);
    let policy = text(&spec["policyName"]);
    if policy.is_empty() {
        return Err(format!("binding {name:?} must reference a policy (spec.policyName)"));
    }
    if !policy.ends_with(RESERVED_NAMES) {
        return Err(format!(
            "binding {name:?}: spec.policyName {policy:?} must end with {RESERVED_NAMES:?}"
        ));
    }
    match spec["paramRef"].is_object() {
        true => {
            Err(format!("binding {name:?}: spec.paramRef is not supported for static manifests"))
        }
        false => Ok(()),
    }
}

/// Only URLs: a service is something that clients can change.
fn check_clients(configuration: &Value, file: &Path) -> Result<(), String> {
    for hook in configuration["webhooks"].as_array().into_iter().flatten() {
        let (hook_name, client) = (text(&hook["name"]), &hook["clientConfig"]);
        let wrong = |what: &str| {
            let name = name(configuration);
            Err(format!("webhook {hook_name:?} in {name:?} (file {file:?}): {what}"))
        };
        if client["service"].is_object() {
            return wrong(
                "clientConfig.service is not supported for static manifests; use clientConfig.url instead",
            );
        }
        if text(&client["url"]).is_empty() {
            return wrong("clientConfig.url is required for static manifests");
        }
    }
    Ok(())
}
