//! What a container sees of its pod's volumes, and the files that every container gets.
use super::Kubelet;
use crate::container::sandbox;
use crate::pod;
use crate::runtime::cri;
use crate::volumes::{self, Places};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where a container's volumes come from: paths of the host, and images by their ids.
pub struct Sources {
    pub places: Places,
    pub images: BTreeMap<String, String>,
}

impl Kubelet {
    pub(super) fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        restarts: u32,
        sources: Sources,
        ips: &[String],
        environment: &[(String, String)],
    ) -> Result<Vec<cri::Mount>, String> {
        let folder = self.config.pod_folder(pod::uid(pod));
        let mut mounts = Vec::new();
        for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
            if let Some(image) = sources.images.get(&mount.name) {
                mounts.push(cri::Mount {
                    container_path: mount.mount_path.clone(),
                    readonly: true,
                    image: Some(cri::ImageSpec { image: image.clone(), ..Default::default() }),
                    image_sub_path: mount.sub_path.clone().unwrap_or_default(),
                    ..cri::Mount::default()
                });
                continue;
            }
            let volume = sources.places.get(&mount.name);
            let volume = volume.ok_or_else(|| {
                format!(
                    "cannot find volume \"{}\" to mount into container \"{}\"",
                    mount.name, container.name
                )
            })?;
            let known = |name: &str| {
                environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            let part = match (&mount.sub_path, &mount.sub_path_expr) {
                (Some(part), _) if !part.is_empty() => part.clone(),
                (_, Some(text)) => crate::container::expand::expand(text, known),
                _ => String::new(),
            };
            let host_path = match part.is_empty() {
                true => volume.clone(),
                false => {
                    let pinned = folder
                        .join("volume-subpaths")
                        .join(&mount.name)
                        .join(&container.name)
                        .join(i.to_string());
                    volumes::subpath::pin(volume, &part, &pinned)
                        .map_err(|error| format!("failed to prepare subPath for volumeMount \"{}\" of container \"{}\": {}", mount.name, container.name, error.line()))?;
                    pinned
                }
            };
            let propagation = match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer,
                Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional,
                _ => cri::MountPropagation::PropagationPrivate,
            };
            mounts.push(cri::Mount {
                container_path: mount.mount_path.clone(),
                host_path: host_path.display().to_string(),
                readonly: mount.read_only == Some(true),
                recursive_read_only: matches!(
                    mount.recursive_read_only.as_deref(),
                    Some("Enabled" | "IfPossible")
                ),
                propagation: propagation.into(),
                ..cri::Mount::default()
            });
        }
        let taken = |path: &str| mounts.iter().any(|mount| mount.container_path == path);
        let plain = |container_path: &str, host_path: &Path| cri::Mount {
            container_path: container_path.to_owned(),
            host_path: host_path.display().to_string(),
            ..cri::Mount::default()
        };
        let mut own = Vec::new();
        if !taken("/etc/hosts") {
            let path = folder.join("etc-hosts");
            let text = match pod::uses_host_network(pod) {
                true => {
                    sandbox::host_hosts(pod, &fs::read_to_string("/etc/hosts").unwrap_or_default())
                }
                false => sandbox::hosts(pod, ips, &self.config.cluster_domain),
            };
            write(&path, &text, 0o644)?;
            own.push(plain("/etc/hosts", &path));
        }
        let message = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
        if let Some(message) = message.filter(|path| !taken(path)) {
            let path = folder
                .join("containers")
                .join(&container.name)
                .join(format!("termination-{restarts}"));
            write(&path, "", 0o666)?;
            own.push(plain(message, &path));
        }
        mounts.extend(own);
        Ok(mounts)
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let made =
        path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("failed to write {}: {error}", path.display()))
}
