//! What every object's metadata must be, whatever its kind.
use crate::field::{BadValue, Error, ErrorList, Path};
use crate::{names, owner};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub const IMMUTABLE: &str = "field is immutable";
/// What all annotations of an object may weigh, in bytes.
pub const ANNOTATIONS_MAX: usize = 256 * 1024;
const MANAGER_LIMIT: usize = 128;
const SUBRESOURCE_LIMIT: usize = 256;

/// The faults of a name, or (`true`) of a prefix that a name is made from.
pub type NameRule = fn(&str, bool) -> names::Faults;

/// Which rules of metadata a kind has beside those that all have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// Finalizers name their owner.
    Usual,
    /// Finalizers may be anything.
    AnyFinalizer,
    /// What a name is made from may be anything: only the name counts.
    AnyPrefix,
    /// None, and those that all have are asked only of what is fine otherwise.
    Last,
    /// None at all: a question is not an object.
    Unasked,
    /// The usual ones, when the kind itself asks for them.
    ByKind,
}

/// Metadata as messages show it: in the order of Go's struct.
pub fn shown(metadata: &Value) -> BadValue {
    const FIELDS: &[&str] = &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    const ENTRY: &[&str] =
        &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    const OWNER: &[&str] =
        &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    fn is_nothing(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            _ => false,
        }
    }
    fn ordered(value: &Value, names: &[&str]) -> String {
        let part = |name: &&str| {
            let value = value.get(name).filter(|value| !is_nothing(value))?;
            let list = |entries: &[Value], names: &[&str]| {
                let entries: Vec<String> = entries.iter().map(|e| ordered(e, names)).collect();
                format!("[{}]", entries.join(","))
            };
            let text = match (*name, value) {
                ("managedFields", Value::Array(entries)) => list(entries, ENTRY),
                ("ownerReferences", Value::Array(entries)) => list(entries, OWNER),
                _ => crate::quote::go_json(value).unwrap_or_default(),
            };
            Some(format!("\"{name}\":{text}"))
        };
        let parts: Vec<String> = names.iter().filter_map(part).collect();
        format!("{{{}}}", parts.join(","))
    }
    BadValue::verbatim(ordered(metadata, FIELDS))
}

/// The least that every name must be: one segment of a path.
pub fn path_segment(name: &str, prefix: bool) -> names::Faults {
    if prefix { names::path_segment_prefix(name) } else { names::path_segment_name(name) }
}

/// The rule for names as upstream declares it, which counts bytes.
pub fn long_name(name: &str, prefix: bool) -> names::Faults {
    let in_bytes = |fault: String| match fault.strip_prefix("must be no more than ") {
        Some(rest) => format!("must be no more than {}", rest.replace("characters", "bytes")),
        None => fault,
    };
    names::name_is_dns_subdomain(name, prefix).into_iter().map(in_bytes).collect()
}

/// Of a new object.
pub fn validate(
    meta: &ObjectMeta,
    namespaced: bool,
    rule: impl Fn(&str, bool) -> names::Faults,
    path: &Path<'_>,
) -> ErrorList {
    let mut errors = names(meta, rule, path);
    let namespace = meta.namespace.clone().unwrap_or_default();
    let field = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(Error::required(&field, "")),
        (true, false) => {
            errors.extend(invalid(&field, &namespace, names::name_is_dns_label(&namespace, false)));
        }
        (false, true) => {}
        (false, false) => errors.push(Error::forbidden(&field, "not allowed on this type")),
    }
    errors.extend(nonnegative(meta.generation.unwrap_or(0), &path.child("generation")));
    errors.extend(common(meta, path));
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    errors.extend(validate_finalizers(finalizers, &path.child("finalizers")));
    errors.extend(managed_fields(
        meta.managed_fields.as_deref().unwrap_or_default(),
        &path.child("managedFields"),
    ));
    errors
}

/// The name, and what it is made from.
pub fn names(
    meta: &ObjectMeta,
    rule: impl Fn(&str, bool) -> names::Faults,
    path: &Path<'_>,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, prefix) = (given(&meta.name), given(&meta.generate_name));
    if !prefix.is_empty() {
        errors.extend(invalid(&path.child("generateName"), &prefix, rule(&prefix, true)));
    }
    let field = path.child("name");
    if name.is_empty() {
        errors.push(Error::required(&field, "name or generateName is required"));
    } else {
        errors.extend(invalid(&field, &name, rule(&name, false)));
    }
    errors
}

fn invalid(field: &Path<'_>, value: &str, faults: names::Faults) -> ErrorList {
    faults.into_iter().map(|fault| Error::invalid(field, value, fault)).collect()
}

/// Of a changed object: what may never change, and what must be sound in the new one.
pub fn validate_update(new: &ObjectMeta, old: &ObjectMeta, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if old.deletion_timestamp.is_some() {
        errors.extend(no_new_finalizers(new, old, &path.child("finalizers")));
    }
    let version = new.resource_version.as_deref().unwrap_or_default();
    if version.is_empty() {
        let field = path.child("resourceVersion");
        errors.push(Error::invalid(&field, version, "must be specified for an update"));
    }
    let (generation, before) = (new.generation.unwrap_or(0), old.generation.unwrap_or(0));
    errors.extend(nonnegative(generation, &path.child("generation")));
    if generation < before {
        let field = path.child("generation");
        errors.push(Error::invalid(&field, generation, "must not be decremented"));
    }
    for (field, now, then) in [
        ("name", &new.name, &old.name),
        ("namespace", &new.namespace, &old.namespace),
        ("uid", &new.uid, &old.uid),
    ] {
        // What is not there is an empty text.
        let [now, then] = [now, then].map(|text| text.as_deref().unwrap_or_default());
        errors.extend(immutable(&now, &then, &path.child(field)));
    }
    let (now, then) = (&new.creation_timestamp, &old.creation_timestamp);
    errors.extend(immutable(now, then, &path.child("creationTimestamp")));
    let (now, then) = (&new.deletion_timestamp, &old.deletion_timestamp);
    errors.extend(immutable(now, then, &path.child("deletionTimestamp")));
    let (now, then) = (&new.deletion_grace_period_seconds, &old.deletion_grace_period_seconds);
    errors.extend(immutable(now, then, &path.child("deletionGracePeriodSeconds")));
    errors.extend(common(new, path));
    errors.extend(managed_fields(
        new.managed_fields.as_deref().unwrap_or_default(),
        &path.child("managedFields"),
    ));
    errors
}

/// Labels, annotations, owners: checked alike in new and in changed objects.
fn common(meta: &ObjectMeta, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(labels) = &meta.labels {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = &meta.annotations {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    if let Some(owners) = &meta.owner_references {
        errors.extend(owner::validate(owners, &path.child("ownerReferences")));
    }
    errors
}

pub fn validate_labels(labels: &BTreeMap<String, String>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels {
        errors.extend(
            names::qualified_name(key).into_iter().map(|f| Error::invalid(path, key.as_str(), f)),
        );
        errors.extend(
            names::label_value(value).into_iter().map(|f| Error::invalid(path, value.as_str(), f)),
        );
    }
    errors
}

pub fn validate_annotations(all: &BTreeMap<String, String>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for key in all.keys() {
        let faults = names::qualified_name(&key.to_lowercase());
        errors.extend(faults.into_iter().map(|f| Error::invalid(path, key.as_str(), f)));
    }
    let size: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ANNOTATIONS_MAX {
        errors.push(Error::too_long(path, ANNOTATIONS_MAX));
    }
    errors
}

pub fn validate_finalizers(finalizers: &[String], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for finalizer in finalizers {
        let faults = names::qualified_name(finalizer);
        errors.extend(faults.into_iter().map(|f| Error::invalid(path, finalizer.as_str(), f)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(Error::invalid(path, BadValue::json(&finalizers), detail));
    }
    errors
}

/// The finalizers that do not name their owner.
pub fn unqualified_finalizers(meta: &ObjectMeta, path: &Path<'_>) -> ErrorList {
    let (path, finalizers) = (path.child("finalizers"), meta.finalizers.iter().flatten());
    let odd = |(i, finalizer): (usize, &String)| unqualified_finalizer(finalizer, &path.index(i));
    finalizers.enumerate().filter_map(odd).collect()
}

/// A finalizer of anyone but Kubernetes names its owner.
pub fn unqualified_finalizer(finalizer: &str, path: &Path<'_>) -> Option<Error> {
    const STANDARD: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let odd = !finalizer.contains('/') && !STANDARD.contains(&finalizer);
    odd.then(|| Error::invalid(path, finalizer, detail))
}

fn no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, path: &Path<'_>) -> Option<Error> {
    let set = |meta: &ObjectMeta| -> BTreeSet<String> {
        meta.finalizers.iter().flatten().cloned().collect()
    };
    let old = set(old);
    let extra: Vec<String> =
        set(new).difference(&old).map(|finalizer| format!("{finalizer:?}")).collect();
    (!extra.is_empty()).then(|| {
        let found = format!("[]string{{{}}}", extra.join(", "));
        Error::forbidden(path, format!("no new finalizers can be added if the object is being deleted, found new finalizers {found}"))
    })
}

fn managed_fields(entries: &[ManagedFieldsEntry], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, entry) in entries.iter().enumerate() {
        let path = path.index(i);
        match entry.operation.as_deref().unwrap_or_default() {
            "" => errors.push(Error::required(&path.child("operation"), "must not be empty")),
            "Apply" | "Update" => {}
            other => {
                let field = path.child("operation");
                errors.push(Error::not_supported(&field, other, ["Apply", "Update"]));
            }
        }
        let fields_type = entry.fields_type.as_deref().unwrap_or_default();
        if !matches!(fields_type, "" | "FieldsV1") {
            let field = path.child("fieldsType");
            errors.push(Error::invalid(&field, fields_type, "must be `FieldsV1`"));
        }
        let manager = entry.manager.as_deref().unwrap_or_default();
        errors.extend(field_manager(manager, &path.child("manager")));
        if entry.subresource.as_ref().is_some_and(|name| name.len() > SUBRESOURCE_LIMIT) {
            errors.push(Error::too_long(&path.child("subresource"), SUBRESOURCE_LIMIT));
        }
    }
    errors
}

/// The name of a field manager: short and printable.
pub fn field_manager(manager: &str, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if manager.len() > MANAGER_LIMIT {
        errors.push(Error::too_long(path, MANAGER_LIMIT));
    }
    if manager.chars().any(char::is_control) {
        errors.push(Error::invalid(path, manager, "should only contain printable characters"));
    }
    errors
}

fn nonnegative(value: i64, path: &Path<'_>) -> Option<Error> {
    (value < 0).then(|| Error::invalid(path, value, "must be greater than or equal to 0"))
}

/// A field that may not change.
pub fn immutable<T: PartialEq + Serialize>(new: &T, old: &T, path: &Path<'_>) -> Option<Error> {
    (new != old).then(|| Error::invalid(path, BadValue::json(new), IMMUTABLE))
}
