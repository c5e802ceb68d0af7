//! What is said of a request: metadata and the kind's own rules, in upstream's order.
//!
//! Most kinds leave metadata to this. Some ask for the name again when an object changes, at a moment
//! of their own ([`Anew`]); those that upstream serves apart ask for more, and say it as often.
use super::metadata::{self, Metadata};
use super::{Anew, Field, Kind, Part, check, type_of};
use crate::codec::given;
use crate::field::{Error, ErrorList, ErrorType, Path};
use crate::kinds::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// What validation says of a request.
#[derive(Debug, Default)]
pub struct Verdict {
    pub errors: ErrorList,
    pub warnings: Vec<String>,
}

/// Of a new object.
pub fn validate_create<T: Kind>(
    resource: &Resource,
    object: &Value,
) -> Result<Verdict, serde_json::Error> {
    let mut meta = ObjectMeta::deserialize(&object["metadata"])?;
    let path = Path::new("metadata");
    let mut errors = ErrorList::new();
    if T::METADATA == Metadata::AnyPrefix {
        meta.generate_name = None;
    }
    if !matches!(T::METADATA, Metadata::Last | Metadata::Unasked | Metadata::ByKind) {
        let rule = |name: &str, prefix: bool| T::name_faults(object, name, prefix);
        errors.extend(once(metadata::validate(&meta, resource.is_namespaced(), rule, &path)));
    }
    if matches!(T::METADATA, Metadata::Usual | Metadata::AnyPrefix) {
        errors.extend(metadata::unqualified_finalizers(&meta, &path));
    }
    if T::METADATA == Metadata::AnyPrefix {
        // Where only the name counts, what it must be is declared.
        let name = |error: &&mut Error| error.field == "metadata.name";
        let faults = errors.iter_mut().filter(name);
        faults.for_each(|error| error.declared = error.error_type == ErrorType::Invalid);
    }
    let mut warnings = Vec::new();
    errors.extend(check::collect(object, type_of::<T>(), |object| {
        T::validate(object);
        warnings = T::warnings(object, None);
    }));
    if T::METADATA == Metadata::Last && errors.is_empty() {
        let rule = metadata::path_segment;
        errors.extend(metadata::validate(&meta, resource.is_namespaced(), rule, &path));
    }
    Ok(Verdict { errors: in_order(errors, T::REPEATS), warnings })
}

/// Of the new object and the old.
pub fn validate_update<T: Kind>(
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part<'_>,
) -> Result<Verdict, serde_json::Error> {
    let meta = ObjectMeta::deserialize(&object["metadata"])?;
    let previous = ObjectMeta::deserialize(&old["metadata"])?;
    let path = Path::new("metadata");
    let rule = metadata::path_segment;
    let mut errors = metadata::validate(&meta, resource.is_namespaced(), rule, &path);
    errors.extend(metadata::validate_update(&meta, &previous, &path));
    let unasked = matches!(part, Part::Sub("status" | "finalize"));
    let anew = if unasked { Anew::Never } else { T::NAMED_ANEW };
    let rule = |name: &str, prefix: bool| T::name_faults(object, name, prefix);
    if T::REPEATS {
        errors.extend(once(metadata::validate_update(&meta, &previous, &path)));
        if anew == Anew::First {
            errors.extend(once(metadata::validate(&meta, resource.is_namespaced(), rule, &path)));
        }
    } else if anew == Anew::First {
        errors.extend(metadata::names(&meta, rule, &path));
    }
    if matches!(T::METADATA, Metadata::Usual | Metadata::AnyPrefix) {
        errors.extend(metadata::unqualified_finalizers(&meta, &path));
    }
    if anew == Anew::Last {
        errors.extend(metadata::names(&meta, rule, &path));
    }
    let mut warnings = Vec::new();
    let old = &*given::aligned(old, object, type_of::<T>());
    errors.extend(check::collect(object, type_of::<T>(), |new| {
        // What was wrong before is not reported: the old object only answers questions.
        check::collect(old, type_of::<T>(), |old| {
            T::validate_update(new, old, part);
            if part == Part::Main {
                warnings = T::warnings(new, Some(old));
            }
        });
    }));
    Ok(Verdict { errors: in_order(errors, T::REPEATS), warnings })
}

/// Asks again for the name of a changed object.
pub fn named_anew<T: Kind>(object: &Field<'_, '_>) {
    let rule = |name: &str, prefix: bool| T::name_faults(object.value(), name, prefix);
    if let Some(meta) = object.at("metadata").read() {
        object.extend(metadata::names(&meta, rule, &Path::new("metadata")));
    }
}

/// What a kind asks itself of its objects' metadata.
pub fn asked_by_kind<T: Kind>(object: &Field<'_, '_>, is_new: bool) {
    let (path, rule) = (Path::new("metadata"), |name: &str, prefix: bool| (T::NAME)(name, prefix));
    let Some(meta) = object.at("metadata").read::<ObjectMeta>() else { return };
    if is_new {
        object.extend(metadata::validate(&meta, true, rule, &path));
    }
    object.extend(metadata::unqualified_finalizers(&meta, &path));
}

/// Nothing is said twice, and what declared rules say is said last.
fn in_order(errors: ErrorList, repeats: bool) -> ErrorList {
    let (declared, mut said): (ErrorList, ErrorList) =
        errors.into_iter().partition(|error| error.declared);
    if !repeats {
        said = once(said);
    }
    said.extend(declared);
    said
}

fn once(mut errors: ErrorList) -> ErrorList {
    if errors.len() > 1 {
        let mut seen = std::collections::HashSet::new();
        errors.retain(|error| seen.insert(error.to_string()));
    }
    errors
}
