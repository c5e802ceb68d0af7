//! Volumes: what a pod's containers share with each other, with the host and with the cluster.
//!
//! A volume is a folder below the pod's own (`pods/UID/volumes/kubernetes.io~KIND/NAME`), or a path
//! of the host. Those that show objects are written by [`atomic`] and written again when the
//! objects change. Others are mounted by programs of the machine ([`nfs`], [`iscsi`]). Whatever is not here
//! is refused by name, and the pod waits with an event.
pub mod atomic;
pub mod in_use;
pub mod iscsi;
pub mod nested;
pub mod nfs;
pub mod ownership;
mod payload;
mod projected;
pub mod subpath;
mod trust;
pub mod usage;

pub use payload::{Contents, Payload};
pub use projected::{
    Credential, Credentials, SourceKey, certificates_wanted, tokens_wanted, wants_bundles,
};

use crate::pod;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {why}")]
    SetUp { volume: String, why: String },
    #[error("volume \"{volume}\" is of kind {kind}, which this kubelet does not support")]
    Unsupported { volume: String, kind: String },
    #[error("failed to {operation} {path}")]
    Io { operation: &'static str, path: String, source: io::Error },
}

impl VolumeError {
    /// With its cause, in one line.
    pub fn line(&self) -> String {
        match self {
            VolumeError::Io { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

pub(crate) fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> VolumeError + 'a {
    move |source| VolumeError::Io { operation, path: path.display().to_string(), source }
}

/// Where the pod's volumes are on the host.
pub type Places = BTreeMap<String, PathBuf>;

/// Whether a volume shows objects. The kubelet writes them again where it has written them, so containers may
/// only read there, whatever they say (`GetAttributes` of upstream's `pkg/volume/configmap` and its like).
pub fn shows_objects(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether a volume says itself that it is only read.
pub fn is_read_only(volume: &Volume) -> bool {
    let said = [
        volume.persistent_volume_claim.as_ref().and_then(|source| source.read_only),
        volume.csi.as_ref().and_then(|source| source.read_only),
        volume.nfs.as_ref().and_then(|source| source.read_only),
        volume.iscsi.as_ref().and_then(|source| source.read_only),
    ];
    shows_objects(volume) || said.contains(&Some(true))
}

/// Makes or brings up to date every volume of a pod; `contents` says what those show that show
/// objects.
pub fn set_up(folder: &Path, pod: &Pod, contents: &Contents<'_>) -> Result<Places, VolumeError> {
    let mut places = Places::new();
    // An image is no folder of the host: the runtime shows it.
    let folders = pod::spec(pod).volumes.iter().flatten().filter(|volume| volume.image.is_none());
    for volume in folders {
        places.insert(volume.name.clone(), set_up_one(folder, pod, volume, contents)?);
    }
    Ok(places)
}

fn set_up_one(
    folder: &Path,
    pod: &Pod,
    volume: &Volume,
    contents: &Contents<'_>,
) -> Result<PathBuf, VolumeError> {
    if let Some(source) = &volume.host_path {
        return host_path(volume, source);
    }
    let fs_group = pod::spec(pod).security_context.as_ref().and_then(|all| all.fs_group);
    let place = |kind: &str| {
        folder.join("volumes").join(format!("kubernetes.io~{kind}")).join(&volume.name)
    };
    if let Some(source) = &volume.empty_dir {
        let path = place("empty-dir");
        let most = contents.place.allocatable.get("memory").copied().unwrap_or(0);
        empty_dir(pod, volume, source, &path, most)?;
        if let Some(group) = fs_group {
            own(&path, group)?;
        }
        return Ok(path);
    }
    let Some((kind, payload)) = contents.of(pod, volume)? else {
        return Err(VolumeError::Unsupported {
            volume: volume.name.clone(),
            kind: kind_of(volume),
        });
    };
    let path = place(kind);
    fs::create_dir_all(&path).map_err(io_error("create", &path))?;
    atomic::write(&path, &payload, fs_group)?;
    Ok(path)
}

fn kind_of(volume: &Volume) -> String {
    let tree = serde_json::json!(volume);
    let fields = tree.as_object().into_iter().flatten().map(|(field, _)| field.clone());
    fields.into_iter().find(|field| field != "name").unwrap_or_else(|| "unknown".to_owned())
}

fn empty_dir(
    pod: &Pod,
    volume: &Volume,
    source: &EmptyDirVolumeSource,
    path: &Path,
    most: i64,
) -> Result<(), VolumeError> {
    let existed = path.exists();
    fs::create_dir_all(path).map_err(io_error("create", path))?;
    match source.medium.as_deref().unwrap_or_default() {
        "" => {}
        _ if is_mounted(path) => return Ok(()),
        "Memory" => {
            let size = memory_size(pod, source, most);
            let options = size.map_or(String::new(), |size| format!("size={size}"));
            let options = std::ffi::CString::new(options).unwrap_or_default();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
                .map_err(|error| io_error("mount memory at", path)(error.into()))?;
        }
        huge if huge.starts_with("HugePages") => {
            let failed = |why: String| VolumeError::SetUp { volume: volume.name.clone(), why };
            let size = page_size(pod, huge).map_err(failed)?;
            let options = std::ffi::CString::new(format!("pagesize={size}")).unwrap_or_default();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("nodev", path, "hugetlbfs", flags, options.as_c_str())
                .map_err(|error| io_error("mount huge pages at", path)(error.into()))?;
        }
        other => {
            let why = format!("medium {other:?} is not supported");
            return Err(VolumeError::SetUp { volume: volume.name.clone(), why });
        }
    }
    if !existed || source.medium.as_deref().is_some_and(|medium| !medium.is_empty()) {
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(path, everybody).map_err(io_error("open up", path))?;
    }
    Ok(())
}

/// What fits into a volume of memory: no more than its pod may use, nor than there is for pods
/// (`calculateEmptyDirMemorySize` in `pkg/volume/emptydir`).
fn memory_size(pod: &Pod, source: &EmptyDirVolumeSource, allocatable: i64) -> Option<i64> {
    let own = source.size_limit.as_ref();
    let own = own.and_then(|size| api::quantity::Quantity::parse(&size.0).ok());
    let pods = crate::admission::limits(pod).get("memory").copied();
    let sizes = [Some(allocatable), pods, own.map(|size| size.value())];
    sizes.into_iter().flatten().filter(|size| *size > 0).min()
}

/// The size of the pages of a medium, in bytes: `HugePages-2Mi` says it, `HugePages` means the one
/// that the pod asks for (`pkg/volume/emptydir`).
fn page_size(pod: &Pod, medium: &str) -> Result<i64, String> {
    let asked = crate::admission::requests(pod);
    let mut sizes = asked.keys().filter_map(|name| name.strip_prefix("hugepages-"));
    let size = match medium.strip_prefix("HugePages-") {
        Some(size) => match sizes.any(|asked| asked == size) {
            true => size,
            false => {
                return Err(format!(
                    "medium {medium} requires the pod to request hugepages-{size}"
                ));
            }
        },
        None => {
            match (sizes.next(), sizes.next()) {
                (Some(size), None) => size,
                (None, _) => {
                    return Err(format!("medium {medium} requires the pod to request huge pages"));
                }
                _ => {
                    return Err("medium HugePages can't be used if container requests multiple huge page sizes".to_owned());
                }
            }
        }
    };
    let bytes = api::quantity::Quantity::parse(size).map(|size| size.value());
    bytes.map_err(|error| format!("{medium}: {error}"))
}

/// Gives a folder to the pod's group: what is made in it belongs to the group too.
fn own(path: &Path, group: i64) -> Result<(), VolumeError> {
    let group = u32::try_from(group).ok();
    std::os::unix::fs::chown(path, None, group).map_err(io_error("give away", path))?;
    let mode = fs::metadata(path).map_err(io_error("read", path))?.permissions().mode();
    let permissions = fs::Permissions::from_mode(mode | 0o2770);
    fs::set_permissions(path, permissions).map_err(io_error("open up", path))
}

fn host_path(volume: &Volume, source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&source.path);
    let failed = |why: String| VolumeError::SetUp { volume: volume.name.clone(), why };
    let wrong =
        |what: &str| failed(format!("hostPath type check failed: {} is not a {what}", source.path));
    let wanted = source.type_.as_deref().unwrap_or_default();
    match wanted {
        "DirectoryOrCreate" if !path.exists() => {
            fs::create_dir_all(&path).map_err(io_error("create", &path))?;
        }
        "FileOrCreate" if !path.exists() => {
            fs::write(&path, "").map_err(io_error("create", &path))?;
        }
        _ => {}
    }
    let kind = fs::metadata(&path).map(|metadata| metadata.file_type()).ok();
    let is = |check: fn(&fs::FileType) -> bool| kind.as_ref().is_some_and(check);
    match wanted {
        "" => Ok(path),
        "Directory" | "DirectoryOrCreate" if is(fs::FileType::is_dir) => Ok(path),
        "File" | "FileOrCreate" if is(fs::FileType::is_file) => Ok(path),
        "Socket" if is(FileTypeExt::is_socket) => Ok(path),
        "CharDevice" if is(FileTypeExt::is_char_device) => Ok(path),
        "BlockDevice" if is(FileTypeExt::is_block_device) => Ok(path),
        "Directory" | "DirectoryOrCreate" => Err(wrong("directory")),
        "File" | "FileOrCreate" => Err(wrong("file")),
        "Socket" => Err(wrong("socket")),
        "CharDevice" => Err(wrong("character device")),
        "BlockDevice" => Err(wrong("block device")),
        other => Err(failed(format!("unknown hostPath type {other:?}"))),
    }
}

fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let mut points = runtime::mount_points();
    points.retain(|point| point.starts_with(path));
    points
}

fn is_mounted(path: &Path) -> bool {
    mounts_below(path).iter().any(|point| point == path)
}

/// Takes away a pod's folder and what was mounted in it. What is still mounted is never entered, and however
/// deep a container has nested folders in its own, they go.
pub fn tear_down(folder: &Path) -> Result<(), VolumeError> {
    for point in mounts_below(folder).iter().rev() {
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| io_error("unmount", point)(error.into()))?;
    }
    runtime::remove_folder(folder).map_err(io_error("remove", folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(volume: Value) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u", "labels": { "a": "b" } },
            "spec": { "containers": [], "volumes": [volume] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let contents = payload::tests::contents();
        let places = set_up(folder.path(), &pod, &contents).map_err(|error| error.line())?;
        let path = places.values().next().unwrap();
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| !name.starts_with(".."));
        names.sort();
        for name in &mut names {
            if let Ok(text) = fs::read_to_string(path.join(&*name)) {
                *name += &format!("={text}");
            }
        }
        Ok(names)
    }

    #[test]
    fn volumes_show_objects() {
        assert_eq!(check(json!({ "name": "v", "emptyDir": {} })).unwrap(), [""; 0]);
        assert_eq!(
            check(json!({ "name": "v", "configMap": { "name": "cm" } })).unwrap(),
            ["color=red"]
        );
        assert_eq!(check(json!({ "name": "v", "secret": { "secretName": "s", "items": [{ "key": "key", "path": "k" }] } })).unwrap(), ["k=secret"]);
        assert_eq!(check(json!({ "name": "v", "downwardAPI": { "items": [{ "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } })).unwrap(), ["l=a=\"b\""]);
        assert_eq!(
            check(json!({ "name": "v", "projected": { "sources": [
                { "configMap": { "name": "cm" } }, { "secret": { "name": "s" } },
                { "serviceAccountToken": { "path": "token" } } ] } }))
            .unwrap(),
            ["color=red", "key=secret", "token=the-token"]
        );
        assert_eq!(
            check(json!({ "name": "v", "projected": { "sources": [{ "podCertificate": {
                "signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "credentialBundlePath": "b" } }] } }))
            .unwrap(),
            ["b=KEY\nCHAIN\n", "k=KEY\n"]
        );
    }

    #[test]
    fn what_shows_objects_is_only_read() {
        for (volume, expected) in [
            (json!({ "configMap": { "name": "a" } }), true),
            (json!({ "secret": { "secretName": "a" } }), true),
            (json!({ "downwardAPI": {} }), true),
            (json!({ "projected": {} }), true),
            (json!({ "persistentVolumeClaim": { "claimName": "a", "readOnly": true } }), true),
            (json!({ "csi": { "driver": "a", "readOnly": true } }), true),
            (json!({ "nfs": { "server": "a", "path": "/", "readOnly": true } }), true),
            (json!({ "persistentVolumeClaim": { "claimName": "a" } }), false),
            (json!({ "csi": { "driver": "a", "readOnly": false } }), false),
            (json!({ "emptyDir": {} }), false),
            (json!({ "hostPath": { "path": "/" } }), false),
        ] {
            let mut volume = volume;
            volume["name"] = "v".into();
            let read: Volume = serde_json::from_value(volume.clone()).unwrap();
            assert_eq!(is_read_only(&read), expected, "{volume}");
        }
    }

    #[test]
    fn huge_pages_have_the_size_that_is_asked_for() {
        let size = |medium: &str, asked: &[&str]| {
            let limits: BTreeMap<String, &str> =
                asked.iter().map(|size| (format!("hugepages-{size}"), "1Gi")).collect();
            let resources = json!({ "requests": limits });
            let pod =
                json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
            page_size(&serde_json::from_value(pod).unwrap(), medium)
        };
        assert_eq!(size("HugePages", &["2Mi"]), Ok(2 << 20));
        assert_eq!(size("HugePages-1Gi", &["2Mi", "1Gi"]), Ok(1 << 30));
        assert!(size("HugePages", &["2Mi", "1Gi"]).is_err());
        assert!(size("HugePages-1Gi", &["2Mi"]).is_err() && size("HugePages", &[]).is_err());
    }

    #[test]
    fn memory_holds_no_more_than_its_pod_may_use() {
        let check = |limit: Option<&str>, size: Option<&str>, expected: Option<i64>| {
            let limits = limit.map_or(json!({}), |limit| json!({ "memory": limit }));
            let container = json!({ "name": "c", "resources": { "limits": limits } });
            let pod = json!({ "spec": { "containers": [container] } });
            let source = json!({ "medium": "Memory", "sizeLimit": size });
            let source = serde_json::from_value(source).unwrap();
            let got = memory_size(&serde_json::from_value(pod).unwrap(), &source, 1 << 30);
            assert_eq!(got, expected.map(|mebibytes| mebibytes << 20), "{limit:?} {size:?}");
        };
        check(None, None, Some(1024));
        check(Some("100Mi"), None, Some(100));
        check(Some("100Mi"), Some("50Mi"), Some(50));
        check(Some("100Mi"), Some("500Mi"), Some(100));
        check(None, Some("2Gi"), Some(1024));
        check(None, Some("0"), Some(1024));
    }

    #[test]
    fn what_is_missing_or_unknown_is_told() {
        assert_eq!(
            check(json!({ "name": "v", "configMap": { "name": "x" } })).unwrap_err(),
            "MountVolume.SetUp failed for volume \"v\" : configmap \"x\" not found"
        );
        assert_eq!(
            check(json!({ "name": "v", "configMap": { "name": "x", "optional": true } })).unwrap(),
            [""; 0]
        );
        assert_eq!(
            check(json!({ "name": "v", "fc": { "targetWWNs": ["w"], "lun": 0 } })).unwrap_err(),
            "volume \"v\" is of kind fc, which this kubelet does not support"
        );
        assert_eq!(
            check(json!({ "name": "v", "hostPath": { "path": "/dev/null", "type": "Directory" } }))
                .unwrap_err(),
            "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: /dev/null is not a directory"
        );
    }
}
