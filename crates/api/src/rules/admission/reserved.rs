//! Names that only manifests of the API server itself may have, for configurations that no client is to
//! touch (`pkg/apis/admissionregistration/validation/static_suffix.go`).
use crate::rules::Field;

/// How they end.
pub const SUFFIX: &str = ".static.k8s.io";

fn text() -> String {
    format!(
        "names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be \
         managed via the API"
    )
}

/// Of a new object.
pub fn name(object: &Field<'_, '_>) {
    let name = object.at("metadata.name");
    if name.text().ends_with(SUFFIX) {
        name.invalid(text());
    }
}

/// Of one that has such a name already.
pub fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
    let is_kept = old.is_some() && new.at("metadata.name").text().ends_with(SUFFIX);
    is_kept.then(|| format!("metadata.name: {}", text())).into_iter().collect()
}
