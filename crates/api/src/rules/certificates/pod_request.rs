//! Requests for certificates that kubelets make for pods.
use super::issued::issued;
use super::{signer_name, user_annotations};
use crate::field::{BadValue, Error};
use crate::names;
use crate::rules::table::{Column, NAME, labels, text, with};
use crate::rules::{Field, Kind, Part, Strategy, conditions, metadata};
use crate::x509::{self, KeyKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use serde_json::Value;

impl Kind for PodCertificateRequest {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const COLUMNS: &[Column] = &[
        NAME,
        text("PodName", "spec.podName"),
        text("ServiceAccountName", "spec.serviceAccountName"),
        text("NodeName", "spec.nodeName"),
        text("SignerName", "spec.signerName"),
        with("State", |request, _| {
            let list = request.at("status.conditions");
            let last = list.items().map(|condition| condition.at("type").text()).last();
            last.filter(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"))
                .unwrap_or("Pending")
                .into()
        }),
        with("UnverifiedUserAnnotations", |request, _| {
            labels(&request.at("spec.unverifiedUserAnnotations"))
        }),
    ];

    fn validate(request: &Field<'_, '_>) {
        let spec = request.at("spec");
        signer_name(&spec.at("signerName"));
        user_annotations(&spec.at("unverifiedUserAnnotations"));
        for (name, uid) in [
            ("podName", "podUID"),
            ("serviceAccountName", "serviceAccountUID"),
            ("nodeName", "nodeUID"),
        ] {
            let (name, uid) = (spec.at(name), spec.at(uid));
            name.faults(names::name_is_dns_subdomain(name.text(), false));
            if uid.is_empty() {
                uid.invalid("must not be empty");
            }
            if uid.text().len() > 128 {
                uid.too_long(128);
            }
        }
        let seconds = spec.at("maxExpirationSeconds");
        if !seconds.exists() {
            return seconds.required("must be set");
        }
        let domain = spec.at("signerName").text().split('/').next().unwrap_or_default();
        let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        let most = if own { 24 * 3600 } else { 91 * 24 * 3600 };
        if !(3600..=most).contains(&seconds.int()) {
            seconds.invalid(format!("must be in the range [3600, {most}]"));
        }
        let stub = spec.at("stubPKCS10Request");
        if stub.is_empty() {
            // The other two are of older versions.
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            spec.invalid_as(BadValue::OMITTED, detail);
        } else {
            stub_request(&stub);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            let (now, then) = (new.at("spec"), old.at("spec"));
            if now.value() != then.value() {
                now.invalid_as(now.internal(POD_REQUEST), metadata::IMMUTABLE);
            }
            return;
        }
        let before = new.count();
        request_conditions(&new.at("status.conditions"));
        if new.count() != before {
            return;
        }
        let (status, then) = (new.at("status"), old.at("status"));
        let has = |status: &Field<'_, '_>, kinds: &[&str]| {
            let list = status.at("conditions");
            list.items().any(|condition| kinds.contains(&condition.at("type").text()))
        };
        let is = |kinds| has(&status, kinds);
        let detail = match () {
            () if has(&then, ENDS) => {
                "immutable after PodCertificateRequest is issued, denied, or failed"
            }
            () if is(&["Denied", "Failed"]) => {
                if given(&status).any(|(name, _)| name != "conditions") {
                    let detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
                    status.invalid_as(BadValue::OMITTED, detail);
                }
                return;
            }
            () if is(&["Issued"]) => return issued(new, old, Timestamp::now()),
            () => {
                "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\""
            }
        };
        if !given(&status).eq(given(&then)) {
            status.invalid_as(BadValue::OMITTED, detail);
        }
    }
}

/// Fields that are not empty.
fn given<'v>(status: &Field<'v, '_>) -> impl Iterator<Item = (&'v String, &'v Value)> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    status.map().into_iter().flatten().filter(move |(_, value)| !is_empty(value))
}

const ENDS: &[&str] = &["Issued", "Denied", "Failed"];
const POD_REQUEST: &[(&str, &str, &str)] = &[
    ("SignerName", "signerName", "\"\""),
    ("PodName", "podName", "\"\""),
    ("PodUID", "podUID", "\"\""),
    ("ServiceAccountName", "serviceAccountName", "\"\""),
    ("ServiceAccountUID", "serviceAccountUID", "\"\""),
    ("NodeName", "nodeName", "\"\""),
    ("NodeUID", "nodeUID", "\"\""),
    ("MaxExpirationSeconds", "maxExpirationSeconds", "null"),
    ("PKIXPublicKey", "pkixPublicKey", "null"),
    ("ProofOfPossession", "proofOfPossession", "null"),
    ("StubPKCS10Request", "stubPKCS10Request", "null"),
    ("UnverifiedUserAnnotations", "unverifiedUserAnnotations", "null"),
];

/// A request ends in one way. Upstream's paths have a dot too many here.
fn request_conditions(list: &Field<'_, '_>) {
    let mut ends = 0;
    for (i, condition) in list.items().enumerate() {
        let index = format!("[{i}]");
        let place = list.spelled(&index);
        let (kind, status) = (condition.at("type"), condition.at("status"));
        if !ENDS.contains(&kind.text()) {
            place.spelled("type").push(Error::not_supported(
                place.spelled("type").path(),
                kind.text(),
                ENDS,
            ));
            continue;
        }
        ends += 1;
        if ends > 1 {
            place.spelled("type").invalid_as(
                kind.text(),
                "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"",
            );
        }
        if status.text() != "True" {
            let path = place.spelled("status");
            path.push(Error::not_supported(path.path(), status.text(), ["True"]));
        }
    }
    conditions(list);
}

/// What a kubelet sends to show that it has the key.
fn stub_request(stub: &Field<'_, '_>) {
    const LONGEST: usize = 10 * 1024;
    let bytes = STANDARD.decode(stub.text()).unwrap_or_default();
    if bytes.len() > LONGEST {
        return stub.too_long(LONGEST);
    }
    let Ok(request) = x509::request(&bytes) else {
        return stub.invalid_as(BadValue::OMITTED, "must be a valid PKCS#10 CSR");
    };
    match request.key.kind {
        KeyKind::Elliptic(curve @ "P-224") => stub.invalid_as(
            format!("curve {curve}"),
            "elliptic public keys must use curve P256, P384, or P521",
        ),
        KeyKind::Rsa(bits) if !matches!(bits, 3072 | 4096) => stub.invalid_as(
            format!("{bits}-bit modulus"),
            "RSA keys must have modulus size 3072 or 4096",
        ),
        KeyKind::Other => stub.invalid_as(
            BadValue::OMITTED,
            "unknown public key type; supported types are Ed25519, ECDSA, and RSA",
        ),
        _ if request.forged.is_some() => stub.invalid_as(BadValue::OMITTED, "invalid signature"),
        _ => {}
    }
}
