//! What a volume shows that shows objects: files by their paths. Pure, over objects fetched before.
use super::VolumeError;
use super::projected::{Credentials, TokenKey};
use crate::container::env::{Place, References, field_value};
use crate::container::resources;
use crate::pod;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files by their paths in the volume.
pub type Payload = BTreeMap<String, File>;

#[derive(Debug, Clone, PartialEq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// Whose it is, where it is not root's.
    pub owner: Option<u32>,
}

pub struct Contents<'a> {
    pub references: &'a dyn References,
    pub place: Place<'a>,
    /// Tokens that were asked for, by what asks for them.
    pub tokens: &'a BTreeMap<TokenKey, String>,
    /// Trust bundles of the cluster, if the pod shows some.
    pub bundles: &'a [Arc<ClusterTrustBundle>],
    /// Keys and certificates that were made for the pod, or why there are none.
    pub credentials: &'a Credentials,
}

/// What of a ConfigMap or Secret is shown.
pub(super) struct Wanted<'w> {
    pub is_secret: bool,
    pub name: &'w str,
    pub items: Option<&'w [KeyToPath]>,
    pub optional: bool,
    pub mode: u32,
}

impl Contents<'_> {
    /// What kind of volume it is, and what it shows; `None` for kinds that show no objects.
    pub fn of(
        &self,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<Option<(&'static str, Payload)>, VolumeError> {
        let failed = |why| VolumeError::SetUp { volume: volume.name.clone(), why };
        self.read(pod, volume).map_err(failed)
    }

    fn read(&self, pod: &Pod, volume: &Volume) -> Result<Option<(&'static str, Payload)>, String> {
        let mut payload = Payload::new();
        let mode = |mode: Option<i32>| mode.map_or(0o644, i32::cast_unsigned);
        let kind = if let Some(source) = &volume.config_map {
            let wanted = Wanted {
                is_secret: false,
                name: &source.name,
                items: source.items.as_deref(),
                optional: source.optional == Some(true),
                mode: mode(source.default_mode),
            };
            self.object(pod, &wanted, &mut payload)?;
            "configmap"
        } else if let Some(source) = &volume.secret {
            let wanted = Wanted {
                is_secret: true,
                name: source.secret_name.as_deref().unwrap_or_default(),
                items: source.items.as_deref(),
                optional: source.optional == Some(true),
                mode: mode(source.default_mode),
            };
            self.object(pod, &wanted, &mut payload)?;
            "secret"
        } else if let Some(source) = &volume.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            self.downward(pod, items, mode(source.default_mode), &mut payload)?;
            "downward-api"
        } else if let Some(source) = &volume.projected {
            self.projected(pod, &volume.name, source, &mut payload)?;
            "projected"
        } else {
            return Ok(None);
        };
        for path in payload.keys() {
            if path.starts_with('/') || path.split('/').any(|part| part == ".." || part.is_empty())
            {
                return Err(format!("invalid path {path:?}"));
            }
        }
        Ok(Some((kind, payload)))
    }

    /// A ConfigMap or a Secret, or the keys of it that are wanted.
    pub(super) fn object(
        &self,
        pod: &Pod,
        wanted: &Wanted<'_>,
        payload: &mut Payload,
    ) -> Result<(), String> {
        let (namespace, name) = (pod::namespace(pod), wanted.name);
        let (kind, files) = if wanted.is_secret {
            let found = self.references.secret(namespace, name);
            ("secret", found.map(|secret| bytes_of(secret.data.as_ref()).collect()))
        } else {
            let found = self.references.config_map(namespace, name);
            let files = found.map(|map| {
                let texts = map.data.iter().flatten();
                let texts = texts.map(|(key, text)| (key.clone(), text.clone().into_bytes()));
                texts.chain(bytes_of(map.binary_data.as_ref())).collect()
            });
            ("configmap", files)
        };
        match files {
            Some(files) => pick(files, wanted, payload),
            None if wanted.optional => Ok(()),
            None => Err(format!("{kind} \"{name}\" not found")),
        }
    }

    pub(super) fn downward(
        &self,
        pod: &Pod,
        items: &[DownwardAPIVolumeFile],
        mode: u32,
        payload: &mut Payload,
    ) -> Result<(), String> {
        for item in items {
            let text = if let Some(field) = &item.field_ref {
                field_value(pod, field, &self.place)?
            } else if let Some(selector) = &item.resource_field_ref {
                let name = selector.container_name.as_deref().unwrap_or_default();
                let (_, container) = pod::container(pod, name)
                    .ok_or_else(|| format!("container {name} not found"))?;
                resources::field(pod, &container, selector, &self.place)?
            } else {
                continue;
            };
            let mode = item.mode.map_or(mode, i32::cast_unsigned);
            payload.insert(item.path.clone(), File::new(text, mode));
        }
        Ok(())
    }
}

impl File {
    /// A file that is root's.
    pub fn new(bytes: impl Into<Vec<u8>>, mode: u32) -> File {
        File { bytes: bytes.into(), mode, owner: None }
    }
}

fn bytes_of(
    data: Option<&BTreeMap<String, ByteString>>,
) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    data.into_iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()))
}

/// All files, or those that are asked for, where they are asked for.
fn pick(
    files: BTreeMap<String, Vec<u8>>,
    wanted: &Wanted<'_>,
    payload: &mut Payload,
) -> Result<(), String> {
    let Some(items) = wanted.items.filter(|items| !items.is_empty()) else {
        payload.extend(files.into_iter().map(|(key, bytes)| (key, File::new(bytes, wanted.mode))));
        return Ok(());
    };
    for item in items {
        match files.get(&item.key) {
            Some(bytes) => {
                let mode = item.mode.map_or(wanted.mode, i32::cast_unsigned);
                payload.insert(item.path.clone(), File::new(bytes.clone(), mode));
            }
            None if wanted.optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::projected::Credential;
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
    use serde_json::json;
    use std::sync::LazyLock;

    struct Few;

    impl References for Few {
        fn config_map(&self, _: &str, name: &str) -> Option<Arc<ConfigMap>> {
            let map = json!({ "data": { "color": "red" } });
            (name == "cm").then(|| Arc::new(serde_json::from_value(map).unwrap()))
        }

        fn secret(&self, _: &str, name: &str) -> Option<Arc<Secret>> {
            let secret = json!({ "data": { "key": "c2VjcmV0" } });
            (name == "s").then(|| Arc::new(serde_json::from_value(secret).unwrap()))
        }

        fn services(&self, _: &str) -> Vec<Arc<Service>> {
            Vec::new()
        }
    }

    pub fn contents() -> Contents<'static> {
        static TOKENS: LazyLock<BTreeMap<TokenKey, String>> =
            LazyLock::new(|| BTreeMap::from([((String::new(), 3600), "the-token".to_owned())]));
        use std::net::{IpAddr, Ipv4Addr};
        const HOST_IPS: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let place = Place {
            node_name: "n",
            host_ips: HOST_IPS,
            pod_ips: &[],
            allocatable: Default::default(),
        };
        static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
            let credential = Credential { key: "KEY\n".to_owned(), chain: "CHAIN\n".to_owned() };
            let none = Err("credential bundle is not issued yet".to_owned());
            BTreeMap::from([(("v".to_owned(), 0), Ok(credential)), (("v".to_owned(), 1), none)])
        });
        Contents {
            references: &Few,
            place,
            tokens: &TOKENS,
            bundles: &[],
            credentials: &CREDENTIALS,
        }
    }
}
