//! Requests for certificates, bundles of trust.
mod issued;
mod pod_request;

use super::table::{AGE, Column, NAME, text, text_or, with};
use super::{Anew, Field, Kind, NameRule, Part, Strategy, metadata, prepare};
use crate::duration::Duration;
use crate::field::{BadValue, Error};
use crate::names::{self, Faults};
use crate::pem;
use crate::quote::Quoted;
use crate::x509;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, ClusterTrustBundle};
use serde_json::Value;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const DECIDED: [&str; 2] = ["Approved", "Denied"];

impl Kind for CertificateSigningRequest {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const NAME: NameRule = metadata::path_segment;
    const COLUMNS: &[Column] = &[
        NAME,
        AGE,
        text_or("SignerName", "spec.signerName", "<none>"),
        text("Requestor", "spec.username"),
        with("RequestedDuration", |request, _| {
            let seconds = request.at("spec.expirationSeconds");
            match seconds.exists() {
                true => Duration::from_secs(seconds.int()).human().into(),
                false => "<none>".into(),
            }
        }),
        with("Condition", |request, _| state(request)),
    ];

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        let conditions = new["status"].get("conditions").cloned();
        let keep = |new: &mut Value, field| prepare::put(new, field, old.get(field));
        keep(new, "spec");
        match part {
            Part::Main => keep(new, "status"),
            Part::Sub("approval") => {
                keep(new, "status");
                prepare::put(&mut new["status"], "conditions", conditions.as_ref());
            }
            Part::Sub(_) => {}
        }
    }

    fn validate(request: &Field<'_, '_>) {
        let spec = request.at("spec");
        let der = spec.at("request");
        if let Some(fault) = request_fault(der.text()) {
            let shown = if der.is_empty() { BadValue::null() } else { der.shown() };
            der.invalid_as(shown, fault);
        }
        let usages = spec.at("usages");
        usages.require();
        usages.items().for_each(|usage| {
            usage.one_of(USAGES);
        });
        usages.unique();
        let signer = spec.at("signerName");
        if signer.text() == "kubernetes.io/legacy-unknown" {
            signer.invalid("the legacy signerName is not allowed via this API version");
        } else {
            signer_name(&signer);
        }
        let seconds = spec.at("expirationSeconds");
        if seconds.exists() && seconds.int() < 600 {
            seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
        conditions(&request.at("status.conditions"));
        let certificate = request.at("status.certificate");
        if let Some(fault) =
            certificates_fault(certificate.text()).filter(|_| !certificate.is_empty())
        {
            certificate.invalid_as("<certificate data>", fault);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        Self::validate(new);
        let place = new.at("status.conditions");
        let of = |request: &Field<'_, '_>, kind: &str| -> Vec<Value> {
            let list = request.value()["status"]["conditions"].as_array();
            list.into_iter()
                .flatten()
                .filter(|condition| condition["type"] == kind)
                .cloned()
                .collect()
        };
        for kind in ["Approved", "Denied", "Failed"] {
            let (now, then) = (of(new, kind), of(old, kind));
            if now.len() < then.len() {
                place.forbidden(format!(
                    "updates may not remove a condition of type {}",
                    Quoted(kind)
                ));
            } else if part != Part::Sub("approval") && DECIDED.contains(&kind) && now != then {
                let what = if now.len() > then.len() { "add" } else { "modify" };
                place.forbidden(format!(
                    "updates may not {what} a condition of type {}",
                    Quoted(kind)
                ));
            }
        }
        let (now, then) = (new.at("status.certificate"), old.at("status.certificate"));
        if now.text() != then.text() {
            if part != Part::Sub("status") {
                now.forbidden("updates may not set certificate content");
            } else if !then.is_empty() {
                now.forbidden("updates may not modify existing certificate content");
            }
        }
    }
}

fn state(request: &Field<'_, '_>) -> Value {
    let list = request.at("status.conditions");
    let has = |kind: &str| list.items().any(|condition| condition.at("type").text() == kind);
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !request.at("status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state.into()
}

fn conditions(conditions: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for condition in conditions.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        kind.require();
        let allowed: &[&str] = match kind.text() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.require() {
            status.one_of(allowed);
        }
        let other = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(&other) {
            conditions
                .invalid_as(kind.text(), "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&kind.text()) {
            kind.duplicate();
        }
        seen.push(kind.text());
    }
}

/// What is wrong with a request in PEM.
fn request_fault(base64: &str) -> Option<&'static str> {
    x509::request_in(base64).map_or_else(Some, |request| request.forged)
}

/// What is wrong with certificates in PEM.
fn certificates_fault(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let mut blocks = pem::blocks(&bytes).peekable();
    if blocks.peek().is_none() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks.find_map(|block| match block {
        block if block.kind != "CERTIFICATE" => {
            Some(format!("only CERTIFICATE PEM blocks are allowed, found {}", Quoted(&block.kind)))
        }
        block if block.has_headers => Some("no PEM block headers are permitted".to_owned()),
        block if block.bytes.is_empty() => {
            Some("found CERTIFICATE PEM block containing 0 certificates".to_owned())
        }
        block => x509::certificates(&block.bytes).err().map(str::to_owned),
    })
}

/// What a pod's author tells a signer.
pub fn user_annotations(annotations: &Field<'_, '_>) {
    for (key, _) in annotations.entries() {
        let key = key.to_lowercase();
        annotations.extend(names::domain_prefixed_key(annotations.path(), &key));
    }
    let size = annotations.entries().map(|(key, value)| key.len() + value.text().len());
    if size.sum::<usize>() > metadata::ANNOTATIONS_MAX {
        annotations.too_long(metadata::ANNOTATIONS_MAX);
    }
}

/// `example.com/signer-name`
pub fn signer_name(field: &Field<'_, '_>) {
    const DOMAIN: usize = 253;
    const WHOLE: usize = 253 + 1 + 253 + 63 + 1;
    if !field.require() {
        return;
    }
    let Some((domain, path)) = field.text().split_once('/').filter(|(_, path)| !path.contains('/'))
    else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return field.invalid(detail);
    };
    if domain.len() > DOMAIN {
        field.push(Error::too_long(field.path(), DOMAIN));
    }
    let check = |text: &str, rule: fn(&str) -> Faults| {
        let wrong = text
            .split('.')
            .map(|label| (label, rule(label)))
            .find(|(_, faults)| !faults.is_empty());
        for (label, fault) in wrong
            .into_iter()
            .flat_map(|(label, faults)| faults.into_iter().map(move |f| (label, f)))
        {
            field.invalid_as(text, format!("validating label {}: {fault}", Quoted(label)));
        }
    };
    check(domain, names::dns1123_label);
    if !domain.contains('.') {
        field.invalid_as(domain, "should be a domain with at least two segments separated by dots");
    }
    check(path, names::dns1123_subdomain);
    if field.text().len() > WHOLE {
        field.push(Error::too_long(field.path(), WHOLE));
    }
}

/// The name of a bundle says which signer it is for: `example.com:signer:name`.
pub fn bundle_name(name: &str) -> Faults {
    let signer =
        name.rsplit_once(':').map_or(String::new(), |(signer, _)| signer.replace(':', "/"));
    bundle_name_for(name, &signer, false)
}

fn bundle_name_for(name: &str, signer: &str, prefix: bool) -> Faults {
    if signer.is_empty() {
        if name.contains(':') {
            return vec![
                "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
            ];
        }
        return names::name_is_dns_subdomain(name, prefix);
    }
    let wanted = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&wanted) {
        Some(rest) => names::name_is_dns_subdomain(rest, prefix),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {wanted}"
        )],
    }
}

impl Kind for ClusterTrustBundle {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation().conditional();
    const COLUMNS: &[Column] = &[NAME, text_or("SignerName", "spec.signerName", "<none>")];

    fn name_faults(bundle: &Value, name: &str, prefix: bool) -> Faults {
        let signer = bundle["spec"]["signerName"].as_str().unwrap_or_default();
        bundle_name_for(name, signer, prefix)
    }

    fn validate(bundle: &Field<'_, '_>) {
        let signer = bundle.at("spec.signerName");
        if !signer.is_empty() {
            signer_name(&signer);
        }
        trust_bundle(&bundle.at("spec.trustBundle"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        let signer = new.at("spec.signerName");
        if !signer.is_empty() {
            signer_name(&signer);
        }
        let (now, then) = (new.at("spec.trustBundle"), old.at("spec.trustBundle"));
        if now.value() != then.value() {
            trust_bundle(&now);
        }
        new.at("spec.signerName").immutable(&old.at("spec.signerName"));
    }
}

/// Every block is the certificate of an authority, and none is there twice.
fn trust_bundle(bundle: &Field<'_, '_>) {
    const LONGEST: usize = 1024 * 1024;
    if bundle.text().len() > LONGEST {
        return bundle.too_long(LONGEST);
    }
    let invalid = |fault: String| bundle.invalid_as("<value omitted>", fault);
    let (before, mut anchors) = (bundle.count(), Vec::<(Vec<u8>, Vec<usize>)>::new());
    for (i, block) in pem::blocks(bundle.text().as_bytes()).enumerate() {
        let authority = x509::certificate(&block.bytes).map(|read| read.is_authority);
        match authority {
            _ if block.kind != "CERTIFICATE" => {
                invalid(format!("entry {i} has bad block type: {}", block.kind));
            }
            _ if block.has_headers => invalid(format!("entry {i} has PEM block headers")),
            Err(_) => invalid(format!("entry {i} does not parse as X.509")),
            Ok(false) => invalid(format!("entry {i} does not have the CA bit set")),
            Ok(true) => match anchors.iter_mut().find(|(known, _)| *known == block.bytes) {
                Some((_, places)) => places.push(i),
                None => anchors.push((block.bytes, vec![i])),
            },
        }
    }
    if bundle.count() != before {
        return;
    }
    if anchors.is_empty() {
        invalid("at least one trust anchor must be provided".to_owned());
    }
    for (_, places) in anchors.iter().filter(|(_, places)| places.len() > 1) {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        invalid(format!("duplicate trust anchor (indices [{}])", places.join(" ")));
    }
}
