//! The rows of the registry that a definition makes: one for each version that is served.
use super::{
    Column, Definition, Family, JsonPath, Kept, Scale, Selectable, Version, compare, rules,
};
use crate::kinds::{Foreign, Resource, Scope, Subresource, Typed, Verb, Verbs, intern, intern_all};
use crate::schema::{CrdError, CustomSchema};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a definition makes no rows.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("failed to compile the schema of version {version}")]
    Schema { version: String, source: CrdError },
    #[error("the definition has no {0}")]
    Missing(&'static str),
}

/// What a definition makes.
#[derive(Debug)]
pub struct Defined {
    /// What is served, the best version first.
    pub rows: Vec<Arc<Resource>>,
    /// The version that objects are stored in, served or not.
    pub home: Arc<Resource>,
}

const READ_WRITE: Verbs = Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]);
const STATUS: Subresource = Subresource { name: "status", kind: None, verbs: READ_WRITE };
const SCALE: Subresource = Subresource {
    name: "scale",
    kind: Some(Foreign { group: "autoscaling", version: "v1", kind: "Scale" }),
    verbs: READ_WRITE,
};

/// Compiles a definition whose names are accepted.
pub fn define(definition: &Value) -> Result<Defined, DefinitionError> {
    let (spec, metadata) = (&definition["spec"], &definition["metadata"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = intern(spec["group"].as_str().ok_or(DefinitionError::Missing("group"))?);
    let listed: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let mut versions = Vec::with_capacity(listed.len());
    for version in &listed {
        versions.push(Arc::new(compile(group, spec, version, &listed)?));
    }
    let terminating = metadata["deletionTimestamp"].is_string()
        || super::accept::is_true(definition, "Terminating");
    let family = Arc::new(Family {
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        generation: metadata["generation"].as_i64().unwrap_or(0),
        versions: versions.clone(),
        conversion: spec["conversion"].clone(),
        terminating,
    });
    let stored = listed.iter().position(|version| version["storage"] == true);
    let stored = stored.ok_or(DefinitionError::Missing("storage version"))?;
    let names = &definition["status"]["acceptedNames"];
    let row = |version: &Arc<Version>| {
        let is_stored = Arc::ptr_eq(version, &versions[stored]);
        let stored_as = (!is_stored).then(|| intern(&versions[stored].api_version));
        Arc::new(Resource { stored_as, ..row(group, spec, names, version, &family) })
    };
    let served = versions.iter().zip(&listed).filter(|(_, listed)| listed["served"] == true);
    let mut rows: Vec<Arc<Resource>> = served.map(|(version, _)| row(version)).collect();
    rows.sort_by(|a, b| compare(b.version, a.version));
    Ok(Defined { rows, home: row(&versions[stored]) })
}

fn row(
    group: &'static str,
    spec: &Value,
    names: &Value,
    version: &Arc<Version>,
    family: &Arc<Family>,
) -> Resource {
    let name = |field: &str| intern(names[field].as_str().unwrap_or_default());
    let list = |field: &str| {
        let words = names[field].as_array().into_iter().flatten();
        intern_all(words.filter_map(Value::as_str))
    };
    let plural = name("plural");
    Resource {
        group,
        version: version.name,
        kind: name("kind"),
        list_kind: name("listKind"),
        plural,
        short_names: list("shortNames"),
        categories: list("categories"),
        scope: if spec["scope"] == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        verbs: Verbs::ALL,
        subresources: match (version.has_status, version.scale.is_some()) {
            (false, false) => &[],
            (true, false) => &[STATUS],
            (false, true) => &[SCALE],
            (true, true) => &[STATUS, SCALE],
        },
        storage: intern(&format!("{group}/{plural}")),
        stored_as: None,
        returns_deleted: false,
        typed: Typed::untyped(),
        rules: rules::of(version.has_status),
        definition: Some(Arc::new(Definition {
            kind: name("kind"),
            singular: name("singular"),
            version: version.clone(),
            family: family.clone(),
        })),
    }
}

fn compile(
    group: &str,
    spec: &Value,
    version: &Value,
    all: &[&Value],
) -> Result<Version, DefinitionError> {
    let name = intern(version["name"].as_str().unwrap_or_default());
    let openapi = version["schema"]["openAPIV3Schema"].clone();
    let schema = CustomSchema::compile(&openapi)
        .map_err(|source| DefinitionError::Schema { version: name.to_owned(), source })?;
    let list = |field: &str| version[field].as_array().filter(|list| !list.is_empty());
    let columns = match list("additionalPrinterColumns") {
        Some(columns) => Column::all(columns),
        None => vec![Column::age()],
    };
    let selectable = list("selectableFields").into_iter().flatten().map(|field| {
        let path = field["jsonPath"].as_str().unwrap_or_default();
        let label = path.strip_prefix('.').unwrap_or(path).to_owned();
        Selectable { label, path: JsonPath::parse(path) }
    });
    let selectable = selectable.collect();
    let scale = version["subresources"]["scale"].as_object().map(|scale| {
        let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default();
        Scale {
            spec_replicas: text("specReplicasPath").to_owned(),
            status_replicas: text("statusReplicasPath").to_owned(),
            selector: text("labelSelectorPath").to_owned(),
        }
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Ok(Version {
        id: NEXT.fetch_add(1, Relaxed),
        name,
        api_version: format!("{group}/{name}"),
        has_defaults: mentions(&openapi, "default"),
        has_embedded: mentions(&openapi, "x-kubernetes-embedded-resource"),
        rules: mentions(&openapi, "x-kubernetes-validations").then(Kept::default),
        schema,
        openapi: Arc::new(openapi),
        columns,
        selectable,
        has_status: version["subresources"]["status"].is_object(),
        scale,
        warning: (version["deprecated"] == true).then(|| deprecation(spec, version, all)),
    })
}

/// Whether a schema says something somewhere.
fn mentions(schema: &Value, word: &str) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.get(word).is_some_and(|value| !value.is_null())
                || fields.values().any(|value| mentions(value, word))
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, word)),
        _ => false,
    }
}

/// What those are told who use a version whose time is over: which one is better.
fn deprecation(spec: &Value, version: &Value, all: &[&Value]) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(text) = version["deprecationWarning"].as_str() {
        return text.to_owned();
    }
    let (group, name) = (word(&spec["group"]), word(&version["name"]));
    let kind = word(&spec["names"]["kind"]);
    let text = format!("{group}/{name} {kind} is deprecated");
    let better = all
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| word(&other["name"]))
        .filter(|other| compare(&name, other).is_lt())
        .max_by(|a, b| compare(a, b));
    match better {
        Some(better) => format!("{text}; use {group}/{better} {kind}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn version(name: &str, storage: bool) -> Value {
        json!({ "name": name, "served": true, "storage": storage,
            "schema": { "openAPIV3Schema": { "type": "object" } },
            "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.n" } } })
    }

    fn definition() -> Value {
        let names = json!({ "plural": "foos", "singular": "foo", "kind": "Foo",
            "listKind": "FooList", "shortNames": ["f"] });
        json!({ "metadata": { "name": "foos.a.io", "uid": "u" },
            "spec": { "group": "a.io", "scope": "Namespaced", "names": names,
                "versions": [version("v1beta1", false), version("v1", true)] },
            "status": { "acceptedNames": names } })
    }

    #[test]
    fn every_served_version_is_a_row() {
        let mut definition = definition();
        definition["spec"]["versions"][0]["deprecated"] = true.into();
        let defined = define(&definition).unwrap();
        let shown: Vec<String> = defined
            .rows
            .iter()
            .map(|row| format!("{} {:?} {}", row.api_version(), row.stored_as, row.key("n", "x")))
            .collect();
        assert_eq!(
            shown,
            [
                "a.io/v1 None /registry/a.io/foos/n/x",
                "a.io/v1beta1 Some(\"a.io/v1\") /registry/a.io/foos/n/x",
            ]
        );
        let old = defined.rows[1].definition.as_ref().unwrap();
        let text = "a.io/v1beta1 Foo is deprecated; use a.io/v1 Foo";
        assert_eq!(old.version.warning.as_deref(), Some(text));
        let names: Vec<&str> = defined.rows[0].subresources.iter().map(|sub| sub.name).collect();
        assert_eq!((names, defined.rows[0].short_names), (vec!["status", "scale"], &["f"][..]));
    }
}
