//! The parts of objects that have a path of their own, each with rules of its own.
use crate::cluster::Cluster;
use serde_json::{Value, json};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},
    "spec":{"containers":[{"name":"web","image":"web:1","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"200m"}}}]}}"#;

fn read(cluster: &Cluster, path: &str) -> Value {
    let text = cluster.kubectl(&format!("get --raw {path}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

fn replace(cluster: &Cluster, path: &str, object: &Value) -> String {
    cluster.kubectl_with(&format!("replace --raw {path} -f -"), &object.to_string())
}

#[test]
fn ephemeral_containers_are_added_and_never_changed() {
    let cluster = Cluster::start().with_default_account();
    cluster.kubectl_with("create -f -", POD);
    let path = "/api/v1/namespaces/default/pods/web/ephemeralcontainers";
    let mut pod = read(&cluster, path);
    let debugger = json!([{ "name": "debugger", "image": "tools:1" }]);

    // The pod itself takes none, however it comes.
    let mut created = pod.clone();
    created["spec"]["ephemeralContainers"] = debugger.clone();
    let refused = replace(&cluster, "/api/v1/namespaces/default/pods/web", &created);
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");

    // Only the containers of that class are taken from what is sent here.
    pod["spec"]["ephemeralContainers"] = debugger;
    pod["spec"]["containers"][0]["image"] = "web:2".into();
    pod["metadata"]["labels"] = json!({ "a": "b" });
    let added: Value = serde_json::from_str(&replace(&cluster, path, &pod)).expect("a pod");
    let container = &added["spec"]["ephemeralContainers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["terminationMessagePolicy"], "File");
    assert_eq!(added["spec"]["containers"][0]["image"], "web:1");
    assert_eq!(added["metadata"]["labels"], Value::Null);

    let mut changed = added.clone();
    changed["spec"]["ephemeralContainers"][0]["image"] = "tools:2".into();
    let refused = replace(&cluster, path, &changed);
    assert!(refused.contains("may not be changed"), "{refused}");
    changed["spec"]["ephemeralContainers"] = json!([]);
    let refused = replace(&cluster, path, &changed);
    assert!(refused.contains("may not be removed"), "{refused}");
}

#[test]
fn a_pod_is_resized_by_its_resources_alone() {
    let cluster = Cluster::start().with_default_account();
    cluster.kubectl_with("create -f -", POD);
    let path = "/api/v1/namespaces/default/pods/web/resize";
    let mut pod = read(&cluster, path);
    let resources = json!({ "requests": { "cpu": "150m" }, "limits": { "cpu": "0.3" } });
    pod["spec"]["containers"][0]["resources"] = resources;

    let refused = replace(&cluster, "/api/v1/namespaces/default/pods/web", &pod);
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");

    let resized: Value = serde_json::from_str(&replace(&cluster, path, &pod)).expect("a pod");
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "300m");
    assert_eq!(resized["metadata"]["generation"], 2);

    // A class of service is for life; whatever else is sent stays as it was.
    let mut guaranteed = resized.clone();
    guaranteed["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi".into();
    guaranteed["spec"]["containers"][0]["resources"]["limits"] =
        json!({ "cpu": "150m", "memory": "1Gi" });
    let refused = replace(&cluster, path, &guaranteed);
    assert!(refused.contains("Pod QOS Class may not change as a result of resizing"), "{refused}");
    let mut other = resized;
    other["spec"]["containers"][0]["image"] = "web:2".into();
    other["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "400m".into();
    let resized: Value = serde_json::from_str(&replace(&cluster, path, &other)).expect("a pod");
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "400m");
    assert_eq!(container["image"], "web:1");
}

/// `system:node:n1` of `system:nodes` asks; who made it signed it with a key that is gone.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIck1JR1NBZ0VBTURBeEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjekVYTUJVR0ExVUVBd3dPYzNsegpkR1Z0T201dlpHVTZiakV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVNQS0VNbHl0ZHcwb21DCm5jaGRYSFd3UHloSmlPZkEzeWN1bG1rZDROdE5CYWZ4MGRzNjhIRjY4Ny9pTm9rUXBjZWpLTndvdkhqWTE3RHIKVnFCQm1xejVvQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUlnTXFkMUVMK3R2TEo0SWtFZTN2dm1qU3owV0pYdQp1TWhhSFlnZjY1MmNGLzhDSVFEN0hTd3ZTTXhqVTYvcG9mQW53Y3A4TlExVis0YStFR3hqWWtJRFBERmVSQT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

#[test]
fn a_certificate_is_approved_where_approval_belongs() {
    let cluster = Cluster::start();
    let request = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": "n1" }, "spec": { "request": REQUEST,
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"] } });
    cluster.kubectl_with("create -f -", &request.to_string());
    let base = "/apis/certificates.k8s.io/v1/certificatesigningrequests/n1";
    let mut object = read(&cluster, base);
    assert_eq!(object["spec"]["username"], "kubernetes-admin");
    let approved =
        json!([{ "type": "Approved", "status": "True", "reason": "Because", "message": "" }]);
    object["status"] = json!({ "conditions": approved });

    // Neither the object nor its status is where approval is given.
    replace(&cluster, base, &object);
    assert_eq!(read(&cluster, base)["status"], json!({}));
    let refused = replace(&cluster, &format!("{base}/status"), &object);
    assert!(refused.contains("updates may not add a condition of type \"Approved\""), "{refused}");

    assert_eq!(
        cluster.kubectl("certificate approve n1"),
        "certificatesigningrequest.certificates.k8s.io/n1 approved"
    );
    let mut object = read(&cluster, base);
    let conditions = object["status"]["conditions"].as_array_mut().expect("conditions");
    assert_eq!(conditions[0]["type"], "Approved");
    conditions.push(json!({ "type": "Denied", "status": "True", "reason": "Or not" }));
    let refused = replace(&cluster, &format!("{base}/approval"), &object);
    assert!(refused.contains("Approved and Denied conditions are mutually exclusive"), "{refused}");
}

#[test]
fn a_namespace_goes_when_its_finalizers_are_gone() {
    let cluster = Cluster::start();
    cluster.kubectl("create namespace going");
    cluster.kubectl("delete namespace going --wait=false");
    let mut namespace = read(&cluster, "/api/v1/namespaces/going");
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let refused = cluster.kubectl("create configmap late -n going");
    assert!(refused.contains("because it is being terminated"), "{refused}");

    // An update of the object does not touch them.
    namespace["spec"]["finalizers"] = json!([]);
    replace(&cluster, "/api/v1/namespaces/going", &namespace);
    let namespace = &mut read(&cluster, "/api/v1/namespaces/going");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    namespace["spec"]["finalizers"] = json!([]);
    replace(&cluster, "/api/v1/namespaces/going/finalize", namespace);
    let gone = cluster.kubectl("get namespace going");
    assert!(gone.contains("NotFound"), "{gone}");
}
