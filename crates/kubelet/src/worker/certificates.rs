//! Certificates of pods, and what the cluster trusts (`pkg/kubelet/podcertificate`).
//!
//! For each `podCertificate` source the kubelet makes a key, asks for a certificate with a
//! PodCertificateRequest and waits for whoever signs. When it is time, it does so again, with another
//! key. Requests and bundles are watched from the moment that a pod first wants one.
use super::{Kubelet, Memory, SyncError};
use crate::pod;
use crate::volumes::{self, Credential, Credentials, SourceKey};
use api::object::Keep;
use api::pem;
use api::selector::field::Selector;
use client::source::Collection;
use client::{ApiResource, Informer, NamespacedName};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    ClusterTrustBundle, PodCertificateRequest, PodCertificateRequestSpec,
};
use k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A request that is not seen for so long was deleted by somebody.
const ABANDONED: SignedDuration = SignedDuration::from_mins(10);

const NOT_YET: &str = "credential bundle is not issued yet";

/// Watched from when they are first wanted.
#[derive(Default)]
pub struct Trust {
    bundles: OnceLock<Informer<ClusterTrustBundle>>,
    requests: OnceLock<Informer<PodCertificateRequest>>,
}

/// What is known of a pod's sources.
pub type Issued = BTreeMap<SourceKey, Issue>;

/// How far one source is.
#[derive(Default)]
pub struct Issue {
    good: Option<Good>,
    asked: Option<Asked>,
    /// It was denied, or it failed: for good.
    refused: Option<String>,
}

struct Good {
    credential: Credential,
    refresh: Timestamp,
}

struct Asked {
    name: String,
    key: String,
    at: Timestamp,
}

impl Issue {
    /// Takes what has become of the request that was made; an event that the pod should hear of.
    fn see(&mut self, request: Option<&PodCertificateRequest>, now: Timestamp) -> Option<Refusal> {
        let asked = self.asked.as_ref()?;
        let Some(request) = request else {
            if now.duration_since(asked.at) > ABANDONED {
                self.asked = None;
            }
            return None;
        };
        let status = request.status.clone().unwrap_or_default();
        for condition in status.conditions.iter().flatten() {
            match condition.type_.as_str() {
                "Issued" => {
                    let chain = status.certificate_chain.as_deref().unwrap_or_default();
                    let chain = pem::blocks(chain.as_bytes());
                    let chain = chain.map(|block| pem::encode(&block.kind, &block.bytes)).collect();
                    let refresh = status.begin_refresh_at.as_ref().map_or(now, |time| time.0);
                    let key = asked.key.clone();
                    self.good = Some(Good { credential: Credential { key, chain }, refresh });
                    self.asked = None;
                    return None;
                }
                kind @ ("Denied" | "Failed") => {
                    let (reason, message) = (&condition.reason, &condition.message);
                    let word = kind.to_ascii_lowercase();
                    self.refused = Some(format!(
                        "PodCertificateRequest was permanently {word}: reason={reason:?} message={message:?}"
                    ));
                    let was = if kind == "Denied" { "was denied" } else { "failed" };
                    return Some(Refusal {
                        reason: kind.to_owned(),
                        note: format!(
                            "PodCertificateRequest {}/{} {was}, reason={reason:?}, message={message:?}",
                            request.metadata.namespace.as_deref().unwrap_or_default(),
                            asked.name
                        ),
                    });
                }
                _ => {}
            }
        }
        None
    }

    fn wants_request(&self, now: Timestamp) -> bool {
        self.refused.is_none()
            && self.asked.is_none()
            && self.good.as_ref().is_none_or(|good| good.refresh <= now)
    }

    fn credential(&self) -> Result<Credential, String> {
        match (&self.refused, &self.good) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(good)) => Ok(good.credential.clone()),
            (None, None) => Err(NOT_YET.to_owned()),
        }
    }
}

/// What an event says.
struct Refusal {
    reason: String,
    note: String,
}

impl Kubelet {
    /// What the cluster trusts, for a pod that shows some of it.
    pub(super) async fn bundles(self: &Arc<Self>, pod: &Pod) -> Vec<Arc<ClusterTrustBundle>> {
        if !volumes::wants_bundles(pod) {
            return Vec::new();
        }
        let informer = self.trust.bundles.get_or_init(|| {
            let of = Collection::all(ApiResource::of::<ClusterTrustBundle>());
            self.follow(of, |kubelet, _| {
                let showing =
                    kubelet.all_pods().into_iter().filter(|pod| volumes::wants_bundles(pod));
                showing.for_each(|pod| kubelet.queue.add(pod::uid(&pod).to_owned()));
            })
        });
        informer.synced().await;
        informer.read().iter().map(|(_, bundle)| bundle.clone()).collect()
    }

    /// Keys and certificates of the pod's sources; asks for those that are missing or old.
    pub(super) async fn credentials(
        self: &Arc<Self>,
        pod: &Pod,
        memory: &Memory,
    ) -> Result<Credentials, SyncError> {
        let mut credentials = Credentials::new();
        for (key, source) in volumes::certificates_wanted(pod) {
            let requests = self.trust.requests.get_or_init(|| {
                let fields = Selector::equals("spec.nodeName", &self.config.node_name);
                let of = Collection::all(ApiResource::of::<PodCertificateRequest>());
                self.follow(of.with_fields(fields), |kubelet, request: &PodCertificateRequest| {
                    kubelet.queue.add(request.spec.pod_uid.clone());
                })
            });
            requests.synced().await;
            let now = self.context.now();
            let (refusal, wanted) = {
                let mut notes = memory.notes.lock();
                let issue = notes.issued.entry(key.clone()).or_default();
                let name = issue.asked.as_ref().map(|asked| asked.name.clone()).unwrap_or_default();
                let request = requests.get(&NamespacedName::new(pod::namespace(pod), &name));
                (issue.see(request.as_deref(), now), issue.wants_request(now))
            };
            if let Some(refusal) = refusal {
                self.warn(pod, None, &refusal.reason, &refusal.note);
            }
            if wanted {
                let asked = self.request_certificate(pod, source, now).await?;
                memory.notes.lock().issued.entry(key.clone()).or_default().asked = Some(asked);
            }
            let held = memory.notes.lock().issued.entry(key.clone()).or_default().credential();
            credentials.insert(key, held);
        }
        Ok(credentials)
    }

    async fn request_certificate(
        &self,
        pod: &Pod,
        source: &PodCertificateProjection,
        now: Timestamp,
    ) -> Result<Asked, SyncError> {
        let (key, proof) = key_and_proof(&source.key_type).map_err(SyncError::Other)?;
        let namespace = pod::namespace(pod);
        let account = pod::spec(pod).service_account_name.as_deref().unwrap_or("default");
        let uid = |object: &api::object::Object| object.metadata().uid.to_string();
        let owner = self.client.get::<ServiceAccount>(namespace, account).await?;
        let node = self.client.get::<Node>("", &self.config.node_name).await?;
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                generate_name: Some("req-".to_owned()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: pod::name(pod).to_owned(),
                    uid: pod::uid(pod).to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: source.signer_name.clone(),
                pod_name: pod::name(pod).to_owned(),
                pod_uid: pod::uid(pod).to_owned(),
                service_account_name: account.to_owned(),
                service_account_uid: uid(&owner),
                node_name: self.config.node_name.clone(),
                node_uid: uid(&node),
                max_expiration_seconds: source.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(proof),
                unverified_user_annotations: source.user_annotations.clone(),
            },
            status: None,
        };
        let made = self.client.create(&request).await?;
        Ok(Asked { name: made.metadata().name.to_string(), key, at: now })
    }

    /// An informer whose changes are told to the kubelet while it lives.
    fn follow<K: Keep + Send + Sync + 'static>(
        self: &Arc<Self>,
        of: Collection,
        wake: impl Fn(&Arc<Kubelet>, &K) + Send + Sync + 'static,
    ) -> Informer<K> {
        let informer = Informer::<K>::start(&self.context, self.client.source().clone(), of);
        let kubelet = Arc::downgrade(self);
        informer.on_change(move |change| {
            if let (Some(kubelet), Some(object)) = (kubelet.upgrade(), change.latest()) {
                wake(&kubelet, object);
            }
        });
        informer
    }
}

/// A new private key (PEM), and a request (PKCS#10) that proves that we hold it and says nothing else.
fn key_and_proof(kind: &str) -> Result<(String, Vec<u8>), String> {
    let algorithm = match kind {
        "ECDSAP256" => &rcgen::PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &rcgen::PKCS_ECDSA_P384_SHA384,
        "ED25519" => &rcgen::PKCS_ED25519,
        other => return Err(format!("keys of type {other:?} are not supported by this kubelet")),
    };
    let failed = |error: rcgen::Error| format!("while generating keypair: {error}");
    let key = rcgen::KeyPair::generate_for(algorithm).map_err(failed)?;
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let proof = parameters.serialize_request(&key).map_err(failed)?;
    Ok((key.serialize_pem(), proof.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(condition: &str) -> PodCertificateRequest {
        let chain = pem::encode("CERTIFICATE", b"x");
        let status = json!({ "conditions": [{ "type": condition, "status": "True", "reason": "R",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "certificateChain": format!("words\n{chain}"), "beginRefreshAt": "2026-01-01T12:00:00Z" });
        serde_json::from_value(json!({ "metadata": { "name": "req-1", "namespace": "n" },
            "spec": { "maxExpirationSeconds": 1, "nodeName": "", "nodeUID": "", "podName": "",
                "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "signerName": "",
                "stubPKCS10Request": "" }, "status": status }))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn asked(issue: &mut Issue, now: Timestamp) {
        assert!(issue.wants_request(now));
        issue.asked = Some(Asked { name: "req-1".to_owned(), key: "K".to_owned(), at: now });
        assert!(!issue.wants_request(now));
    }

    #[test]
    fn a_certificate_is_asked_for_kept_and_asked_for_again() {
        let (mut issue, begin) = (Issue::default(), at("2026-01-01T00:00:00Z"));
        asked(&mut issue, begin);
        assert!(issue.see(None, begin).is_none());
        assert_eq!(issue.credential().err().as_deref(), Some(NOT_YET));
        assert!(issue.see(Some(&request("Issued")), begin).is_none());
        let held = issue.credential().expect("issued");
        assert_eq!((held.key.as_str(), held.chain), ("K", pem::encode("CERTIFICATE", b"x")));
        assert!(!issue.wants_request(at("2026-01-01T11:59:59Z")));
        asked(&mut issue, at("2026-01-01T12:00:00Z"));
        assert!(issue.credential().is_ok(), "the old one is good meanwhile");
    }

    #[test]
    fn a_refusal_is_for_good_and_a_lost_request_is_made_again() {
        let (mut issue, begin) = (Issue::default(), at("2026-01-01T00:00:00Z"));
        asked(&mut issue, begin);
        issue.see(None, at("2026-01-01T00:10:01Z"));
        asked(&mut issue, begin);
        let refusal = issue.see(Some(&request("Denied")), begin).expect("an event");
        assert_eq!(
            (refusal.reason.as_str(), refusal.note.as_str()),
            ("Denied", "PodCertificateRequest n/req-1 was denied, reason=\"R\", message=\"m\"")
        );
        assert!(!issue.wants_request(at("2027-01-01T00:00:00Z")));
        assert!(issue.credential().is_err_and(|why| why.contains("permanently denied")));
    }

    #[test]
    fn keys_prove_themselves() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519"] {
            let (key, proof) = key_and_proof(kind).expect(kind);
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----") && !proof.is_empty());
        }
        assert!(key_and_proof("RSA3072").is_err());
    }
}
