//! Certificates for somebody else, and words in a signer's place.
use super::{JSON, MERGE, Wire, grant};
use crate::cluster::Cluster;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::BmpString;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A request for a certificate of this group and name.
fn request(name: &str, signer: &str, group: DnValue, common_name: DnValue) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": name }, "spec": { "request": STANDARD.encode(pem),
            "signerName": format!("kubernetes.io/{signer}"), "usages": ["digital signature", "client auth"] } })
}

#[test]
fn a_request_is_for_whom_it_says_and_answered_by_its_signer() {
    let cluster = Cluster::start();
    let wire = Wire::new(&cluster);
    let resource = "certificatesigningrequests";
    let asks = json!([{ "verbs": ["create", "get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
        "resources": [resource, format!("{resource}/status"), format!("{resource}/approval")] }]);
    grant(&cluster, &wire, "erin", None, asks);

    let wide = |text: &str| DnValue::BmpString(BmpString::try_from(text).expect("a text"));
    let plain = |text: &str| DnValue::from(text);
    let signer = "kube-apiserver-client";
    for (name, group) in [("plain", plain("system:masters")), ("wide", wide("system:masters"))] {
        let body = request(name, signer, group, plain("erin")).to_string();
        let answer = wire.ask_as("erin", &format!("POST {REQUESTS}"), &[JSON], &body);
        assert_eq!(answer.code, 403, "{name}: {}", answer.body);
        assert!(answer.body.contains("system:masters group is not allowed"), "{}", answer.body);
    }
    let body = request("r", signer, plain("dev"), plain("erin")).to_string();
    assert_eq!(wire.ask_as("erin", &format!("POST {REQUESTS}"), &[JSON], &body).code, 201);
    let failed = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "R" }] } });
    let signed = json!({ "status": { "certificate": STANDARD.encode("x") } });
    let approved = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "R" }] } });
    for (part, body, text) in [
        ("status", &failed, "user not permitted to sign requests with signerName"),
        ("status", &signed, "user not permitted to sign requests with signerName"),
        ("approval", &approved, "user not permitted to approve requests with signerName"),
    ] {
        let what = format!("PATCH {REQUESTS}/r/{part}");
        let answer = wire.ask_as("erin", &what, &[MERGE], &body.to_string());
        // What is no certificate is not valid either; which is said first does not matter.
        assert!(matches!(answer.code, 403 | 422), "{part} {body}: {}", answer.body);
        assert!(
            answer.code == 422 && *body == signed || answer.body.contains(text),
            "{}",
            answer.body
        );
    }
    let kept = cluster.json("get csr r");
    assert_eq!(kept["status"], json!({}), "{kept}");

    // Who may sign says so.
    let signs = json!([{ "verbs": ["sign"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"] }]);
    grant(&cluster, &wire, "sam", None, signs);
    cluster.kubectl("create clusterrolebinding sam-asks --clusterrole=erin --user=sam");
    crate::access::wait_until(|| {
        let what = format!("PATCH {REQUESTS}/r/status");
        wire.ask_as("sam", &what, &[MERGE], &failed.to_string()).code == 200
    });
}
