//! Kustomizations: objects of other files, changed on the way (`-k`, `kubectl kustomize`).
//!
//! In upstream's order: resources, generators, patches, then what is laid over everything (namespace,
//! names, labels, annotations, images, replicas), and references follow what was renamed. Not known are
//! components from the network, plugins, helm, `vars` and OpenAPI files: they are refused, not ignored.
mod generate;
mod names;
mod patches;

use crate::builder::files;
use crate::failure::{Failure, Outcome};
use api::codec::yaml;
use serde_json::{Value, json};
use std::path::Path;

const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// What we do not do.
const UNKNOWN: [&str; 9] = [
    "crds",
    "vars",
    "helmCharts",
    "helmGlobals",
    "helmChartInflationGenerator",
    "generators",
    "transformers",
    "validators",
    "openapi",
];

/// An object on its way, with the name that others know it by.
#[derive(Debug, Clone)]
pub struct Item {
    pub object: Value,
    /// What it was called in its file.
    pub original: String,
    /// Its name has a hash of its content, which references follow.
    pub hashed: bool,
}

/// The objects that a folder's kustomization makes.
pub fn build(folder: &Path) -> Outcome<Vec<Value>> {
    if !folder.exists() {
        let name = folder.display();
        return Err(format!(
            "must build at directory: not a valid directory: evalsymlink failure on '{name}' : lstat {name}: no such \
             file or directory"
        )
        .into());
    }
    let items = built(folder, 0)?;
    let items = names::hashed(items);
    Ok(items.into_iter().map(|item| item.object).collect())
}

fn built(folder: &Path, depth: usize) -> Outcome<Vec<Item>> {
    if depth > 32 {
        return Err(format!("cycle detected: {}", folder.display()).into());
    }
    let file = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let Some(file) = file else {
        return Err(format!(
            "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
            std::path::absolute(folder).unwrap_or(folder.to_owned()).display()
        )
        .into());
    };
    let text = std::fs::read(&file)?;
    let kustomization = yaml::decode_untyped(&text)
        .map_err(|error| Failure::Plain(format!("invalid Kustomization: {error}")))?
        .value;
    if let Some(field) = UNKNOWN.iter().find(|field| !kustomization[**field].is_null()) {
        return Err(format!("{}: {field} is not supported", file.display()).into());
    }
    let mut items = resources(folder, &kustomization, depth)?;
    generate::add(&mut items, folder, &kustomization)?;
    for entry in texts(&kustomization["components"]) {
        let more = component(&folder.join(entry), items, depth)?;
        items = more;
    }
    transform(&mut items, folder, &kustomization)?;
    Ok(items)
}

/// A component works on what is there already.
fn component(folder: &Path, items: Vec<Item>, depth: usize) -> Outcome<Vec<Item>> {
    let mut items = items;
    let file = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let file = file.ok_or_else(|| format!("no kustomization in {}", folder.display()))?;
    let kustomization = yaml::decode_untyped(&std::fs::read(&file)?)
        .map_err(|error| Failure::Plain(format!("invalid Kustomization: {error}")))?
        .value;
    items.extend(resources(folder, &kustomization, depth)?);
    generate::add(&mut items, folder, &kustomization)?;
    transform(&mut items, folder, &kustomization)?;
    Ok(items)
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn resources(folder: &Path, kustomization: &Value, depth: usize) -> Outcome<Vec<Item>> {
    let mut all: Vec<Item> = Vec::new();
    for entry in
        texts(&kustomization["resources"]).into_iter().chain(texts(&kustomization["bases"]))
    {
        let path = folder.join(entry);
        if path.is_dir() {
            all.extend(built(&path, depth + 1)?);
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let name = path.display().to_string();
            Failure::Plain(format!(
                "accumulating resources: {}",
                crate::print::io_text(&name, &error)
            ))
        })?;
        let mut found = Vec::new();
        files::read(&text, &path.display().to_string(), &mut found)?;
        all.extend(found.into_iter().map(|(object, _)| {
            let original = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Item { object, original, hashed: false }
        }));
    }
    Ok(all)
}

/// Everything that a kustomization does to its objects.
fn transform(items: &mut Vec<Item>, folder: &Path, kustomization: &Value) -> Outcome {
    patches::apply(items, folder, kustomization)?;
    if let Some(namespace) = kustomization["namespace"].as_str().filter(|name| !name.is_empty()) {
        set_namespace(items, namespace);
    }
    let text = |field: &str| kustomization[field].as_str().unwrap_or_default();
    names::rename(items, text("namePrefix"), text("nameSuffix"));
    for entry in kustomization["labels"].as_array().into_iter().flatten() {
        let (selectors, templates) =
            (entry["includeSelectors"] == true, entry["includeTemplates"] == true);
        items.iter_mut().for_each(|item| {
            add_labels(&mut item.object, &entry["pairs"], selectors, selectors || templates);
        });
    }
    for item in items.iter_mut() {
        add_labels(&mut item.object, &kustomization["commonLabels"], true, true);
        add_annotations(&mut item.object, &kustomization["commonAnnotations"]);
    }
    for entry in kustomization["images"].as_array().into_iter().flatten() {
        items.iter_mut().for_each(|item| set_images(&mut item.object, entry));
    }
    for entry in kustomization["replicas"].as_array().into_iter().flatten() {
        for item in items.iter_mut() {
            let is_scaled = matches!(
                item.object["kind"].as_str(),
                Some("Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController")
            );
            if is_scaled && entry["name"] == item.original.as_str() {
                item.object["spec"]["replicas"] = entry["count"].clone();
            }
        }
    }
    patches::replacements(items, folder, kustomization)
}

fn is_namespaced(object: &Value) -> bool {
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    let row = api::kinds::find_kind(
        version.as_str().unwrap_or_default(),
        kind.as_str().unwrap_or_default(),
    );
    row.is_none_or(|row| row.scope == api::kinds::Scope::Namespaced)
}

fn set_namespace(items: &mut [Item], namespace: &str) {
    for item in items {
        let object = &mut item.object;
        if object["kind"] == "Namespace" && object["apiVersion"] == "v1" {
            object["metadata"]["name"] = namespace.into();
        } else if is_namespaced(object) {
            object["metadata"]["namespace"] = namespace.into();
        }
        if matches!(object["kind"].as_str(), Some("RoleBinding" | "ClusterRoleBinding")) {
            for subject in object["subjects"].as_array_mut().into_iter().flatten() {
                if subject["kind"] == "ServiceAccount" {
                    subject["namespace"] = namespace.into();
                }
            }
        }
    }
}

fn put(place: &mut Value, pairs: &Value) {
    if !place.is_object() {
        *place = json!({});
    }
    for (key, value) in pairs.as_object().into_iter().flatten() {
        place[key] = match value {
            Value::String(_) => value.clone(),
            other => other.to_string().into(),
        };
    }
}

/// Where a workload has its pods' metadata.
const TEMPLATES: [&str; 2] =
    ["/spec/template/metadata", "/spec/jobTemplate/spec/template/metadata"];

fn add_labels(object: &mut Value, pairs: &Value, selectors: bool, templates: bool) {
    if !pairs.is_object() {
        return;
    }
    put(&mut object["metadata"]["labels"], pairs);
    if templates {
        add_to_templates(object, "labels", pairs);
    }
    if !selectors {
        return;
    }
    match object["kind"].as_str() {
        Some("Service") if object["spec"]["selector"].is_object() => {
            put(&mut object["spec"]["selector"], pairs);
        }
        Some("ReplicationController") => put(&mut object["spec"]["selector"], pairs),
        Some("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            put(&mut object["spec"]["selector"]["matchLabels"], pairs);
        }
        Some("Job" | "PodDisruptionBudget") if object["spec"]["selector"].is_object() => {
            put(&mut object["spec"]["selector"]["matchLabels"], pairs);
        }
        _ => {}
    }
}

fn add_annotations(object: &mut Value, pairs: &Value) {
    if pairs.is_object() {
        put(&mut object["metadata"]["annotations"], pairs);
        add_to_templates(object, "annotations", pairs);
    }
}

fn add_to_templates(object: &mut Value, field: &str, pairs: &Value) {
    for pointer in TEMPLATES {
        let template = pointer.trim_end_matches("/metadata");
        if let Some(template) = object.pointer_mut(template).filter(|template| template.is_object())
        {
            put(&mut template["metadata"][field], pairs);
        }
    }
}

/// `images:` changes names, tags and digests wherever containers are.
fn set_images(value: &mut Value, entry: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields.iter_mut() {
                let is_list = matches!(
                    name.as_str(),
                    "containers" | "initContainers" | "ephemeralContainers"
                );
                if let (true, Some(containers)) = (is_list, inner.as_array_mut()) {
                    for container in containers {
                        if let Some(image) = container["image"].as_str() {
                            container["image"] = new_image(image, entry).into();
                        }
                    }
                } else {
                    set_images(inner, entry);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_images(item, entry)),
        _ => {}
    }
}

fn new_image(image: &str, entry: &Value) -> String {
    let (rest, digest) =
        image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let colon = rest.rfind(':').filter(|at| !rest[*at..].contains('/'));
    let (name, tag) = colon.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 1..])));
    if entry["name"] != name {
        return image.to_owned();
    }
    let text = |field: &str| {
        entry[field].as_str().map(str::to_owned).or(entry[field].as_i64().map(|n| n.to_string()))
    };
    let new_name = text("newName").unwrap_or(name.to_owned());
    match (text("newTag"), text("digest")) {
        (_, Some(digest)) => format!("{new_name}@{digest}"),
        (Some(tag), None) => format!("{new_name}:{tag}"),
        (None, None) => match (tag, digest) {
            (_, Some(digest)) => format!("{new_name}@{digest}"),
            (Some(tag), None) => format!("{new_name}:{tag}"),
            (None, None) => new_name,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, text).expect("it is written");
        }
        folder
    }

    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: \
         {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      \
         - {name: c, image: 'nginx:1', envFrom: [{configMapRef: {name: settings}}]}\n";

    #[test]
    fn a_kustomization_lays_itself_over_its_base() {
        let place = folder(&[
            (
                "base/kustomization.yaml",
                "resources: [web.yaml]\nconfigMapGenerator:\n- {name: settings, literals: [a=b]}\n",
            ),
            ("base/web.yaml", DEPLOYMENT),
            (
                "top/kustomization.yaml",
                "resources: [../base]\nnamespace: prod\nnamePrefix: x-\ncommonLabels: {team: t}\nimages:\n- {name: nginx, \
                 newTag: '2'}\nreplicas:\n- {name: web, count: 3}\npatches:\n- patch: |-\n    - {op: add, path: \
                 /spec/paused, value: true}\n  target: {kind: Deployment}\n",
            ),
        ]);
        let built = build(&place.path().join("top")).unwrap();
        let web = built.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let map = built.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        assert_eq!(web["metadata"]["name"], "x-web");
        assert_eq!(web["metadata"]["namespace"], "prod");
        assert_eq!(web["spec"]["replicas"], 3);
        assert_eq!(web["spec"]["paused"], true);
        assert_eq!(web["spec"]["selector"]["matchLabels"], json!({ "app": "web", "team": "t" }));
        let container = &web["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "nginx:2");
        assert_eq!(container["envFrom"][0]["configMapRef"]["name"], map["metadata"]["name"]);
        let name = map["metadata"]["name"].as_str().unwrap();
        assert!(
            name.starts_with("x-settings-") && name.len() == "x-settings-".len() + 10,
            "{name}"
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let place = folder(&[("kustomization.yaml", "helmCharts: [{name: x}]\n")]);
        assert!(
            build(place.path()).unwrap_err().message().ends_with("helmCharts is not supported")
        );
        let empty = tempfile::tempdir().unwrap();
        assert!(
            build(empty.path()).unwrap_err().message().starts_with("error: unable to find one of")
        );
    }

    #[test]
    fn images_change_by_name() {
        let entry = json!({ "name": "a/b", "newName": "c", "newTag": "2" });
        assert_eq!(new_image("a/b:1", &entry), "c:2");
        assert_eq!(new_image("host:5000/a:1", &entry), "host:5000/a:1");
        assert_eq!(
            new_image("a/b", &json!({ "name": "a/b", "digest": "sha256:x" })),
            "a/b@sha256:x"
        );
    }
}
