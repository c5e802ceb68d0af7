//! What a manifest says → pods of this node, with the defaults and by the rules of the API server.
use crate::pod;
use api::codec::yaml;
use api::field;
use api::kinds::{self, Resource};
use api::rules::defaults;
use api::schema::builtin;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What pods say of where they are from.
pub const FILE: &str = "file";
pub const HTTP: &str = "http";

/// Whose pods they are, and where they were read.
pub struct Origin<'a> {
    pub node: &'a str,
    pub source: &'static str,
    pub place: &'a str,
}

/// A pod, or a list of them.
pub fn pods(text: &str, origin: &Origin<'_>) -> Result<Vec<Pod>, String> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if !tree["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
        return Ok(vec![pod(text, origin)?]);
    }
    let items = tree["items"].as_array().into_iter().flatten();
    items.map(|item| pod(&item.to_string(), origin)).collect()
}

/// A pod of this node: named after it, with a uid made of what it says.
pub fn pod(text: &str, origin: &Origin<'_>) -> Result<Pod, String> {
    // By way of a tree, with the API's own rules for what fits: a parser of YAML for every type of a pod
    // is megabytes of the binary.
    let ty = builtin().named("core/v1.Pod").expect("a pod is in the facts");
    let mut tree = yaml::decode(text.as_bytes(), ty).map_err(|error| error.to_string())?.value;
    if tree["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        return Err("invalid pod: name is needed for the pod".to_owned());
    }
    defaults::set(&mut tree, ty);
    adopt(&mut tree, origin);
    let resource = kinds::find("", "v1", "pods").expect("pods are a resource");
    if let Some(problem) = problem(resource, &tree)? {
        return Err(format!("invalid pod: {problem}"));
    }
    if let Some(what) = api_reference(&tree["spec"]) {
        return Err(format!("static pods may not reference {what}"));
    }
    let mut pod: Pod = serde_json::from_value(tree).map_err(|error| error.to_string())?;
    if origin.source == FILE {
        let tolerate = Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            ..Toleration::default()
        };
        let tolerations = pod.spec.get_or_insert_default().tolerations.get_or_insert_default();
        if !tolerations.contains(&tolerate) {
            tolerations.push(tolerate);
        }
    }
    pod.status = None;
    Ok(pod)
}

/// Names it, and says where it is from.
fn adopt(tree: &mut Value, origin: &Origin<'_>) {
    let digest = Sha256::digest(format!("{}\n{}\n{tree}", origin.node, origin.place));
    let hash: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let metadata = &mut tree["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    metadata["name"] = format!("{name}-{}", origin.node.to_lowercase()).into();
    for (field, otherwise) in [("namespace", "default"), ("uid", &hash)] {
        if metadata[field].as_str().is_none_or(str::is_empty) {
            metadata[field] = otherwise.into();
        }
    }
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][pod::SOURCE] = origin.source.into();
    metadata["annotations"][pod::HASH] = hash.into();
    tree["spec"]["nodeName"] = origin.node.into();
}

fn problem(resource: &Resource, tree: &Value) -> Result<Option<String>, String> {
    let verdict = (resource.rules.validate_create)(resource, tree);
    Ok(field::aggregate(&verdict.map_err(|error| error.to_string())?.errors))
}

/// What only the API server has, and which fields of a pod ask for it (`HasAPIObjectReference` in
/// upstream's `pkg/api/pod/util.go`).
const REFERENCES: &[(&str, &[&str])] = &[
    (
        "secrets",
        &[
            "imagePullSecrets",
            "secretKeyRef",
            "secretRef",
            "nodePublishSecretRef",
            "secret",
            "azureFile",
        ],
    ),
    ("configmaps", &["configMapKeyRef", "configMapRef", "configMap"]),
    ("resourceclaims", &["resourceClaims"]),
    ("csidrivers (via CSI volumes)", &["csi"]),
    ("endpoints (via glusterFS volumes)", &["glusterfs"]),
    ("persistentvolumeclaims", &["persistentVolumeClaim"]),
    ("persistentvolumeclaims (via ephemeral volumes)", &["ephemeral"]),
    ("serviceaccounts (via projected volumes)", &["serviceAccountToken"]),
    ("clustertrustbundles", &["clusterTrustBundle"]),
    ("podcertificates", &["podCertificate"]),
];

fn api_reference(spec: &Value) -> Option<&'static str> {
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    REFERENCES.iter().find(|(_, fields)| has_any(spec, fields)).map(|(what, _)| *what)
}

/// Whether one of the fields is anywhere in it. A label's value is a text, a reference never is.
fn has_any(tree: &Value, fields: &[&str]) -> bool {
    match tree {
        Value::Array(items) => items.iter().any(|item| has_any(item, fields)),
        Value::Object(map) => map.iter().any(|(name, value)| {
            let is_there = match value {
                Value::Object(_) => true,
                Value::Array(items) => !items.is_empty(),
                _ => false,
            };
            is_there && fields.contains(&name.as_str()) || has_any(value, fields)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Origin<'_> = Origin { node: "n1", source: FILE, place: "/m/web.yaml" };

    fn manifest(spec: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers: [{{name: c, image: i}}]\n{spec}"
        )
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let text = manifest("");
        let made = pod(&text, &HERE).unwrap();
        assert_eq!((pod::name(&made), pod::namespace(&made)), ("web-n1", "default"));
        assert_eq!(pod::uid(&made).len(), 32);
        assert!(pod::is_static(&made));
        let spec = made.spec.as_ref().unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("n1"));
        assert_eq!(spec.tolerations.as_ref().unwrap().len(), 1);
        // Defaults are the API server's.
        let container = &spec.containers[0];
        assert_eq!(container.termination_message_path.as_deref(), Some("/dev/termination-log"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        // It is another pod when it says something else, not when it is written in another way.
        let uid = |text: &str| pod::uid(&pod(text, &HERE).unwrap()).to_owned();
        assert_ne!(uid(&text.replace("image: i", "image: j")), pod::uid(&made));
        assert_eq!(uid(&format!("# mine\n{text}")), pod::uid(&made));
        assert_eq!(uid(&manifest("  restartPolicy: Always")), pod::uid(&made));
    }

    #[test]
    fn what_no_api_server_would_take_is_refused() {
        let check = |text: &str, expected: &str| {
            let error = pod(text, &HERE).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        };
        check("apiVersion: v1\nkind: Pod\nspec: {}", "name is needed for the pod");
        check(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}",
            "spec.containers: Required value",
        );
        check(&manifest("  restartPolicy: Now"), "spec.restartPolicy: Unsupported value: \"Now\"");
        check(&manifest("  hostnetwork: [1"), "line");
    }

    #[test]
    fn nothing_of_the_api_may_be_needed() {
        let check = |spec: &str, expected: Option<&str>| {
            let told = pod(&manifest(spec), &HERE).err();
            let expected = expected.map(|what| format!("static pods may not reference {what}"));
            assert_eq!(told, expected, "{spec}");
        };
        check("  nodeSelector: {secret: x}\n  volumes: [{name: v, hostPath: {path: /x}}]", None);
        check("  serviceAccountName: me", Some("serviceaccounts"));
        check("  imagePullSecrets: [{name: s}]", Some("secrets"));
        check("  volumes: [{name: v, configMap: {name: m}}]", Some("configmaps"));
        check(
            "  volumes: [{name: v, persistentVolumeClaim: {claimName: m}}]",
            Some("persistentvolumeclaims"),
        );
        let bundle = "  volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}}]";
        check(bundle, Some("clustertrustbundles"));
        check("  volumes: [{name: v, projected: {sources: [{downwardAPI: {}}]}}]", None);
    }
}
