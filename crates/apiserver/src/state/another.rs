//! What upstream says of an object that is of another kind than it should be.
use api::codec::object::TypeMeta;
use api::schema::builtin;

/// Where upstream registers kinds, as its errors say.
const SCHEME: &str = "in scheme \"pkg/runtime/scheme.go:111\"";

/// That a type is none of the built-in ones.
pub fn unregistered(found: &TypeMeta) -> Option<String> {
    let (group, version) = found.group_version();
    let is_known = builtin().kind(group, version, &found.kind).is_some();
    (!is_known).then(|| not_of_the_scheme(found))
}

/// That whoever reads knows no such type.
pub fn not_of_the_scheme(found: &TypeMeta) -> String {
    let TypeMeta { kind, api_version } = found;
    format!("no kind {kind:?} is registered for version {api_version:?} {SCHEME}")
}

/// That a type cannot become this kind; nothing if it is another version of it.
pub fn unconvertible(found: &TypeMeta, group: &str, kind: &str) -> Option<String> {
    let (found_group, version) = found.group_version();
    // Upstream names the Go package of the form that all versions share.
    let package = match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or(group),
    };
    let is_same = found.kind == kind && found_group == group;
    (!is_same).then(|| {
        format!("converting ({version}.{}) to ({package}.{kind}): unknown conversion", found.kind)
    })
}
