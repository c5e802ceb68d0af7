//! One certificate, asked for and waited for.
use api::selector::field::Selector;
use client::source::Collection;
use client::{ApiResource, Client, Context, Informer};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long somebody may take to approve and sign; then another is asked for.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("failed to make a key: {0}")]
    Key(#[from] rcgen::Error),
    #[error("{}", .0.message)]
    Api(Box<api::status::Status>),
    #[error("certificate signing request {0} was {1}")]
    Refused(String, String),
    #[error("certificate signing request {0} was not signed in time")]
    Late(String),
    #[error("failed to write {0}")]
    Keep(PathBuf, #[source] std::io::Error),
}

/// What a certificate is for.
#[derive(Debug, Clone, PartialEq)]
pub enum Purpose {
    Client,
    /// Of kube-proxy, which may read what its node may not.
    Proxy,
    /// Of who serves what comes to this node from outside, which may read certificates for that.
    Ingress,
    Server {
        names: BTreeSet<String>,
        addresses: BTreeSet<IpAddr>,
    },
}

/// PEM, both.
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

/// What a server's certificate is for, once the node has an address.
pub fn server_of(node: &Node) -> Option<Purpose> {
    let addresses = node.status.as_ref()?.addresses.as_deref()?;
    let of = |kinds: &[&str]| -> Vec<&String> {
        let named = addresses.iter().filter(|one| kinds.contains(&one.type_.as_str()));
        named.map(|one| &one.address).collect()
    };
    let names = of(&["Hostname", "InternalDNS", "ExternalDNS"]).into_iter().cloned().collect();
    let found = of(&["InternalIP", "ExternalIP"]);
    let addresses: BTreeSet<IpAddr> = found.iter().filter_map(|text| text.parse().ok()).collect();
    (!addresses.is_empty()).then_some(Purpose::Server { names, addresses })
}

/// Makes a key and a request, and waits until it is signed.
pub async fn request(
    context: &Context,
    client: &Client,
    node: &str,
    purpose: &Purpose,
) -> Result<Signed, IdentityError> {
    let key = rcgen::KeyPair::generate()?;
    let made = client.create(&object(node, purpose, &key)?).await;
    let made = made.map_err(|status| IdentityError::Api(Box::new(status)))?;
    let name = made.metadata().name.to_string();
    let part = context.part();
    let of = Collection::all(ApiResource::of::<CertificateSigningRequest>())
        .with_fields(Selector::equals("metadata.name", &name));
    let informer = Informer::<CertificateSigningRequest>::start(&part, client.source().clone(), of);
    let (tell, mut told) = tokio::sync::watch::channel(None);
    informer.on_change(move |change| {
        if let Some(outcome) = change.new.as_deref().and_then(outcome) {
            tell.send_replace(Some(outcome));
        }
    });
    let waited = tokio::select! {
        found = told.wait_for(Option::is_some) => found.ok().and_then(|found| found.clone()),
        _ = context.sleep(PATIENCE) => None,
    };
    part.stop();
    match waited {
        Some(Ok(certificate)) => Ok(Signed { certificate, key: key.serialize_pem() }),
        Some(Err(why)) => Err(IdentityError::Refused(name, why)),
        None => Err(IdentityError::Late(name)),
    }
}

/// What has become of a request, once something has.
fn outcome(request: &CertificateSigningRequest) -> Option<Result<String, String>> {
    let status = request.status.as_ref()?;
    let refused = status.conditions.iter().flatten().find(|one| one.type_ != "Approved");
    if let Some(refused) = refused {
        let message = refused.message.clone().unwrap_or_default();
        return Some(Err(format!("{}: {message}", refused.type_.to_ascii_lowercase())));
    }
    let certificate = status.certificate.as_ref()?;
    Some(Ok(String::from_utf8_lossy(&certificate.0).into_owned()))
}

fn object(
    node: &str,
    purpose: &Purpose,
    key: &rcgen::KeyPair,
) -> Result<CertificateSigningRequest, IdentityError> {
    let mut parameters = rcgen::CertificateParams::default();
    let mut subject = rcgen::DistinguishedName::new();
    match purpose {
        Purpose::Proxy => subject.push(rcgen::DnType::CommonName, "system:kube-proxy"),
        Purpose::Ingress => subject.push(rcgen::DnType::CommonName, "skiff:ingress"),
        Purpose::Client | Purpose::Server { .. } => {
            subject.push(rcgen::DnType::OrganizationName, "system:nodes");
            subject.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
        }
    }
    parameters.distinguished_name = subject;
    let (signer, usage) = match purpose {
        Purpose::Client => ("kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
        Purpose::Proxy | Purpose::Ingress => ("kubernetes.io/kube-apiserver-client", "client auth"),
        Purpose::Server { names, addresses } => {
            let addresses = addresses.iter().copied().map(rcgen::SanType::IpAddress);
            parameters.subject_alt_names.extend(addresses);
            for name in names {
                parameters
                    .subject_alt_names
                    .push(rcgen::SanType::DnsName(name.as_str().try_into()?));
            }
            ("kubernetes.io/kubelet-serving", "server auth")
        }
    };
    let request = parameters.serialize_request(key)?.pem()?;
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_known_by_its_nodes_addresses() {
        let node = |addresses: serde_json::Value| {
            let node = json!({ "metadata": {}, "status": { "addresses": addresses } });
            server_of(&serde_json::from_value(node).unwrap())
        };
        assert_eq!(node(json!([{ "type": "Hostname", "address": "n" }])), None);
        let found = node(json!([{ "type": "Hostname", "address": "n" },
            { "type": "InternalIP", "address": "192.0.2.3" }]));
        let names = BTreeSet::from(["n".to_owned()]);
        let addresses = BTreeSet::from(["192.0.2.3".parse().unwrap()]);
        assert_eq!(found, Some(Purpose::Server { names, addresses }));
    }

    #[test]
    fn a_request_ends_signed_or_refused() {
        let outcome = |status: serde_json::Value| {
            let request = json!({ "metadata": {}, "spec": { "request": "", "signerName": "" },
                "status": status });
            outcome(&serde_json::from_value(request).unwrap())
        };
        let condition = |kind: &str| json!([{ "type": kind, "status": "True", "message": "m" }]);
        assert_eq!(outcome(json!({ "conditions": condition("Approved") })), None);
        assert_eq!(
            outcome(json!({ "conditions": condition("Approved"), "certificate": "YQ==" })),
            Some(Ok("a".to_owned()))
        );
        assert_eq!(
            outcome(json!({ "conditions": condition("Denied") })),
            Some(Err("denied: m".to_owned()))
        );
    }
}
