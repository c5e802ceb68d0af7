//! What expressions of admission may name (`apiserver/pkg/admission/plugin/cel/compile.go`).
use cel::{Declared, Environment, Fields, Type, Types};
use std::sync::{Arc, LazyLock};

/// Which variables there are beside the usual ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Has {
    pub params: bool,
    pub authorizer: bool,
    /// `Object{…}` and `JSONPatch{…}`.
    pub patches: bool,
}

pub fn environment(has: Has) -> Environment {
    static DECLARED: LazyLock<Arc<Declared>> = LazyLock::new(|| Arc::new(Declared(fields)));
    static PATCHES: LazyLock<Arc<Patches>> = LazyLock::new(Arc::default);
    let mut environment = Environment::new()
        .types(DECLARED.clone())
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .variable("request", Type::object("kubernetes.AdmissionRequest"));
    if has.params {
        environment.declare("params", Type::Dyn);
    }
    if has.authorizer {
        let check = "kubernetes.authorization.ResourceCheck";
        environment.declare("authorizer", Type::object("kubernetes.authorization.Authorizer"));
        environment.declare("authorizer.requestResource", Type::object(check));
    }
    if has.patches {
        environment = environment.types(PATCHES.clone());
    }
    environment
}

/// The object types of `request` and `namespaceObject`. Some of a namespace's fields are left out,
/// as upstream does.
#[rustfmt::skip]
fn fields(object: &str) -> Option<Fields> {
    Some(match object {
        "kubernetes.AdmissionRequest" => &[
            ("kind", "kubernetes.GroupVersionKind"), ("resource", "kubernetes.GroupVersionResource"),
            ("subResource", "string"), ("requestKind", "kubernetes.GroupVersionKind"),
            ("requestResource", "kubernetes.GroupVersionResource"), ("requestSubResource", "string"),
            ("name", "string"), ("namespace", "string"), ("operation", "string"),
            ("userInfo", "kubernetes.UserInfo"), ("dryRun", "bool"), ("options", "dyn"),
        ],
        "kubernetes.GroupVersionKind" => &[("group", "string"), ("version", "string"), ("kind", "string")],
        "kubernetes.GroupVersionResource" => &[("group", "string"), ("version", "string"), ("resource", "string")],
        "kubernetes.UserInfo" => &[("username", "string"), ("uid", "string"), ("groups", "list(string)"), ("extra", "map(string, list(string))")],
        "kubernetes.Namespace" => &[
            ("metadata", "kubernetes.NamespaceMetadata"), ("spec", "kubernetes.NamespaceSpec"),
            ("status", "kubernetes.NamespaceStatus"),
        ],
        "kubernetes.NamespaceMetadata" => &[
            ("name", "string"), ("generateName", "string"), ("namespace", "string"), ("labels", "map(string, string)"),
            ("annotations", "map(string, string)"), ("UID", "string"), ("creationTimestamp", "timestamp"),
            ("deletionGracePeriodSeconds", "int"), ("deletionTimestamp", "timestamp"), ("generation", "int"),
            ("resourceVersion", "string"), ("finalizers", "list(string)"),
        ],
        "kubernetes.NamespaceSpec" => &[("finalizers", "list(string)")],
        "kubernetes.NamespaceStatus" => &[("conditions", "list(kubernetes.NamespaceCondition)"), ("phase", "string")],
        "kubernetes.NamespaceCondition" => &[
            ("status", "string"), ("type", "string"), ("lastTransitionTime", "timestamp"),
            ("message", "string"), ("reason", "string"),
        ],
        _ => return None,
    })
}

/// What a mutation is made of: `Object`, whose fields are whatever they are called, and `JSONPatch`.
#[derive(Default)]
struct Patches;

impl Types for Patches {
    fn knows(&self, object: &str) -> bool {
        object == "JSONPatch" || object == "Object" || object.starts_with("Object.")
    }

    fn field(&self, object: &str, field: &str) -> Option<Type> {
        match (object, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            _ => Some(Type::Dyn),
        }
    }
}
