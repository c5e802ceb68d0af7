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
        let volumes_of_pod = pod::spec(pod).volumes.as_deref().unwrap_or_default();
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
            let source = volumes_of_pod.iter().find(|source| source.name == mount.name);
            mounts.push(cri::Mount {
                container_path: mount.mount_path.clone(),
                host_path: host_path.display().to_string(),
                readonly: mount.read_only == Some(true)
                    || source.is_some_and(volumes::is_read_only),
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
        let objects = volumes_of_pod.iter().filter(|volume| volumes::shows_objects(volume));
        for volume in objects.filter_map(|volume| sources.places.get(&volume.name)) {
            make_places(&mounts, volume).map_err(|error| error.line())?;
        }
        Ok(mounts)
    }
}

/// Makes room for what is mounted within a volume that nobody may write to.
fn make_places(mounts: &[cri::Mount], volume: &Path) -> Result<(), volumes::VolumeError> {
    for outer in mounts.iter().filter(|outer| Path::new(&outer.host_path) == volume) {
        for inner in mounts {
            let inside = Path::new(&inner.container_path).strip_prefix(&outer.container_path);
            let Ok(inside) = inside else { continue };
            // What is in something that is in it is that one's.
            let is_deeper = mounts.iter().any(|other| {
                let within = Path::new(&other.container_path).strip_prefix(&outer.container_path);
                within.is_ok_and(|within| {
                    within != Path::new("") && within != inside && inside.starts_with(within)
                })
            });
            if inside == Path::new("") || is_deeper {
                continue;
            }
            let is_folder = inner.host_path.is_empty() || Path::new(&inner.host_path).is_dir();
            volumes::nested::make_place(volume, inside, is_folder)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let made =
        path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("failed to write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_within_what_nobody_writes_has_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, other) = (folder.path().join("v"), folder.path().join("other"));
        fs::create_dir(&volume).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let mount = |container_path: &str, host_path: &Path| cri::Mount {
            container_path: container_path.to_owned(),
            host_path: host_path.display().to_string(),
            ..cri::Mount::default()
        };
        let file = folder.path().join("file");
        let mounts = [
            mount("/etc/app", &volume),
            mount("/etc/app/a/b", &other),
            mount("/etc/app/a/b/c", &other),
            mount("/etc/app//hosts", &file),
            mount("/etc/application/no", &other),
        ];
        make_places(&mounts, &volume).unwrap();
        assert!(volume.join("a/b").is_dir() && volume.join("hosts").is_file());
        assert!(!volume.join("a/b/c").exists());
        assert_eq!(fs::read_dir(&volume).unwrap().count(), 2);
        let leads_out = [mount("/etc/app", &volume), mount("/etc/app/../../x", &other)];
        assert!(make_places(&leads_out, &volume).is_err());
        assert!(!folder.path().join("x").exists());
    }
}
