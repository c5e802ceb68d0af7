//! What a projected volume shows: the files of its sources, one after the other.
//!
//! What proves who a pod is (tokens, certificates) and what it is proved by belongs to the one user
//! that all containers run as, and only that user reads it; where there is none, or a group shares the
//! volume, the volume's mode counts (`pkg/volume/projected/projected.go`).
use super::payload::{Contents, File, Payload, Wanted};
use super::trust;
use crate::container::security;
use crate::pod;
use k8s_openapi::api::core::v1::{
    Pod, PodCertificateProjection, ProjectedVolumeSource, ServiceAccountTokenProjection,
    VolumeProjection,
};
use std::collections::BTreeMap;

/// Audience and seconds.
pub type TokenKey = (String, i64);

/// A volume's name and the place of a source in it.
pub type SourceKey = (String, usize);

/// Keys and certificates of a pod's sources, or why there are none.
pub type Credentials = BTreeMap<SourceKey, Result<Credential, String>>;

/// A private key and the certificates that were issued for it, both PEM.
#[derive(Clone, PartialEq)]
pub struct Credential {
    pub key: String,
    pub chain: String,
}

pub fn token_key(projection: &ServiceAccountTokenProjection) -> TokenKey {
    let audience = projection.audience.clone().unwrap_or_default();
    (audience, projection.expiration_seconds.unwrap_or(3600))
}

/// Every source of a pod's projected volumes.
pub fn sources(pod: &Pod) -> impl Iterator<Item = (SourceKey, &VolumeProjection)> {
    pod::spec(pod).volumes.iter().flatten().flat_map(|volume| {
        let sources = volume.projected.as_ref().and_then(|projected| projected.sources.as_ref());
        let numbered = sources.into_iter().flatten().enumerate();
        numbered.map(|(at, source)| ((volume.name.clone(), at), source))
    })
}

/// The tokens that a pod's volumes ask for.
pub fn tokens_wanted(pod: &Pod) -> Vec<TokenKey> {
    let tokens = sources(pod).filter_map(|(_, source)| source.service_account_token.as_ref());
    tokens.map(token_key).collect()
}

/// The certificates that a pod's volumes ask for.
pub fn certificates_wanted(pod: &Pod) -> Vec<(SourceKey, &PodCertificateProjection)> {
    sources(pod).filter_map(|(key, source)| Some((key, source.pod_certificate.as_ref()?))).collect()
}

/// Whether a pod shows what the cluster trusts.
pub fn wants_bundles(pod: &Pod) -> bool {
    sources(pod).any(|(_, source)| source.cluster_trust_bundle.is_some())
}

impl Contents<'_> {
    pub(super) fn projected(
        &self,
        pod: &Pod,
        volume: &str,
        projected: &ProjectedVolumeSource,
        payload: &mut Payload,
    ) -> Result<(), String> {
        let mode = projected.default_mode.map_or(0o644, i32::cast_unsigned);
        let grouped =
            pod::spec(pod).security_context.as_ref().is_some_and(|all| all.fs_group.is_some());
        // Who a file belongs to that its source may give to somebody.
        let private = |user: Option<i64>, bytes: Vec<u8>| {
            let owner = user.or(projected.default_user).or_else(|| security::only_user(pod));
            let mode = if owner.is_some() || grouped { 0o600 } else { mode };
            File { bytes, mode, owner: owner.and_then(|owner| u32::try_from(owner).ok()) }
        };
        for (at, source) in projected.sources.iter().flatten().enumerate() {
            if let Some(from) = &source.config_map {
                let (name, items) = (from.name.as_str(), from.items.as_deref());
                let optional = from.optional == Some(true);
                let wanted = Wanted { is_secret: false, name, items, optional, mode };
                self.object(pod, &wanted, payload)?;
            } else if let Some(from) = &source.secret {
                let (name, items) = (from.name.as_str(), from.items.as_deref());
                let optional = from.optional == Some(true);
                let wanted = Wanted { is_secret: true, name, items, optional, mode };
                self.object(pod, &wanted, payload)?;
            } else if let Some(from) = &source.downward_api {
                self.downward(pod, from.items.as_deref().unwrap_or_default(), mode, payload)?;
            } else if let Some(from) = &source.service_account_token {
                let token = self.tokens.get(&token_key(from)).ok_or("failed to fetch token")?;
                payload.insert(from.path.clone(), private(from.user, token.clone().into_bytes()));
            } else if let Some(from) = &source.cluster_trust_bundle {
                let anchors = trust::anchors(self.bundles, from)?;
                payload.insert(from.path.clone(), private(from.user, anchors));
            } else if let Some(from) = &source.pod_certificate {
                let held = self.credentials.get(&(volume.to_owned(), at));
                let Credential { key, chain } =
                    held.cloned().unwrap_or_else(|| Err("no credentials yet".to_owned()))?;
                let both = format!("{key}{chain}");
                let files = [
                    (&from.credential_bundle_path, both),
                    (&from.key_path, key),
                    (&from.certificate_chain_path, chain),
                ];
                for (path, text) in files {
                    let Some(path) = path.as_deref().filter(|path| !path.is_empty()) else {
                        continue;
                    };
                    payload.insert(path.to_owned(), private(from.user, text.into_bytes()));
                }
            }
        }
        Ok(())
    }
}
