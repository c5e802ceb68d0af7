//! Volumes: what they are is a row each; the few that need more have a function.

use serde_json::Value;

use super::common::{int, is_true, items, pairs, quantity, shortened, shown, text, texts};
use super::storage::claim;
use super::writer::{Writer, put};
use api::template::go_print;

/// One kind of source.
struct Source {
    field: &'static str,
    about: &'static str,
    /// Titles and where their values are found.
    rows: &'static [(&'static str, &'static str, Shape)],
}

/// How a value is shown.
#[derive(Clone, Copy)]
enum Shape {
    /// As it is; empty if it is not there.
    Plain,
    /// false and 0 if it is not there.
    Bool,
    Number,
    /// `[a b]`.
    List,
    /// `map[a:b]`.
    Map,
    /// A reference by name, as Go shows a pointer to one.
    Local,
    /// A reference with a namespace.
    Secret,
    /// `<none>` if it is not there.
    None,
    /// `<unset>` if it is not there.
    Unset,
    /// A pointer to a text.
    Pointer,
}

use Shape::{Bool, List, Local, Map, None as OrNone, Number, Plain, Pointer, Secret, Unset};

static SOURCES: &[Source] = &[
    Source {
        field: "hostPath",
        about: "HostPath (bare host directory volume)",
        rows: &[("Path:", "path", Plain), ("HostPathType:", "type", OrNone)],
    },
    Source {
        field: "emptyDir",
        about: "EmptyDir (a temporary directory that shares a pod's lifetime)",
        rows: &[("Medium:", "medium", Plain), ("SizeLimit:", "sizeLimit", Unset)],
    },
    Source {
        field: "gcePersistentDisk",
        about: "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        rows: &[
            ("PDName:", "pdName", Plain),
            ("FSType:", "fsType", Plain),
            ("Partition:", "partition", Number),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "awsElasticBlockStore",
        about: "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        rows: &[
            ("VolumeID:", "volumeID", Plain),
            ("FSType:", "fsType", Plain),
            ("Partition:", "partition", Number),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "gitRepo",
        about: "GitRepo (a volume that is pulled from git when the pod is created)",
        rows: &[("Repository:", "repository", Plain), ("Revision:", "revision", Plain)],
    },
    Source {
        field: "secret",
        about: "Secret (a volume populated by a Secret)",
        rows: &[("SecretName:", "secretName", Plain), ("Optional:", "optional", Bool)],
    },
    Source {
        field: "configMap",
        about: "ConfigMap (a volume populated by a ConfigMap)",
        rows: &[("Name:", "name", Plain), ("Optional:", "optional", Bool)],
    },
    Source {
        field: "nfs",
        about: "NFS (an NFS mount that lasts the lifetime of a pod)",
        rows: &[
            ("Server:", "server", Plain),
            ("Path:", "path", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "iscsi",
        about: "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        rows: &[
            ("TargetPortal:", "targetPortal", Plain),
            ("IQN:", "iqn", Plain),
            ("Lun:", "lun", Number),
            // Without a colon, as upstream has it.
            ("ISCSIInterface", "iscsiInterface", Plain),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
            ("Portals:", "portals", List),
            ("DiscoveryCHAPAuth:", "chapAuthDiscovery", Bool),
            ("SessionCHAPAuth:", "chapAuthSession", Bool),
            ("SecretRef:", "secretRef", Local),
            ("InitiatorName:", "initiatorName", OrNone),
        ],
    },
    Source {
        field: "glusterfs",
        about: "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        rows: &[
            ("EndpointsName:", "endpoints", Plain),
            ("Path:", "path", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "persistentVolumeClaim",
        about: "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        rows: &[("ClaimName:", "claimName", Plain), ("ReadOnly:", "readOnly", Bool)],
    },
    Source {
        field: "ephemeral",
        about: "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
        rows: &[],
    },
    Source {
        field: "rbd",
        about: "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        rows: &[
            ("CephMonitors:", "monitors", List),
            ("RBDImage:", "image", Plain),
            ("FSType:", "fsType", Plain),
            ("RBDPool:", "pool", Plain),
            ("RadosUser:", "user", Plain),
            ("Keyring:", "keyring", Plain),
            ("SecretRef:", "secretRef", Local),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "quobyte",
        about: "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
        rows: &[
            ("Registry:", "registry", Plain),
            ("Volume:", "volume", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "downwardAPI",
        about: "DownwardAPI (a volume populated by information about the pod)",
        rows: &[],
    },
    Source {
        field: "azureDisk",
        about: "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        rows: &[
            ("DiskName:", "diskName", Plain),
            ("DiskURI:", "diskURI", Plain),
            ("Kind: ", "kind", Plain),
            ("FSType:", "fsType", Plain),
            ("CachingMode:", "cachingMode", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "vsphereVolume",
        about: "vSphereVolume (a Persistent Disk resource in vSphere)",
        rows: &[
            ("VolumePath:", "volumePath", Plain),
            ("FSType:", "fsType", Plain),
            ("StoragePolicyName:", "storagePolicyName", Plain),
        ],
    },
    Source {
        field: "cinder",
        about: "Cinder (a Persistent Disk resource in OpenStack)",
        rows: &[
            ("VolumeID:", "volumeID", Plain),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
            ("SecretRef:", "secretRef", Local),
        ],
    },
    Source {
        field: "photonPersistentDisk",
        about: "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
        rows: &[("PdID:", "pdID", Plain), ("FSType:", "fsType", Plain)],
    },
    Source {
        field: "portworxVolume",
        about: "PortworxVolume (a Portworx Volume resource)",
        rows: &[("VolumeID:", "volumeID", Plain)],
    },
    Source {
        field: "scaleIO",
        about: "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        rows: &[
            ("Gateway:", "gateway", Plain),
            ("System:", "system", Plain),
            ("Protection Domain:", "protectionDomain", Plain),
            ("Storage Pool:", "storagePool", Plain),
            ("Storage Mode:", "storageMode", Plain),
            ("VolumeName:", "volumeName", Plain),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "cephfs",
        about: "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        rows: &[
            ("Monitors:", "monitors", List),
            ("Path:", "path", Plain),
            ("User:", "user", Plain),
            ("SecretFile:", "secretFile", Plain),
            ("SecretRef:", "secretRef", Local),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "storageos",
        about: "StorageOS (a StorageOS Persistent Disk resource)",
        rows: &[
            ("VolumeName:", "volumeName", Plain),
            ("VolumeNamespace:", "volumeNamespace", Plain),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "fc",
        about: "FC (a Fibre Channel disk)",
        rows: &[
            ("TargetWWNs:", "targetWWNs", Plain),
            ("LUN:", "lun", OrNone),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "azureFile",
        about: "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        rows: &[
            ("SecretName:", "secretName", Plain),
            ("ShareName:", "shareName", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "flexVolume",
        about: "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        rows: &[
            ("Driver:", "driver", Plain),
            ("FSType:", "fsType", Plain),
            ("SecretRef:", "secretRef", Local),
            ("ReadOnly:", "readOnly", Bool),
            ("Options:", "options", Map),
        ],
    },
    Source {
        field: "flocker",
        about: "Flocker (a Flocker volume mounted by the Flocker agent)",
        rows: &[("DatasetName:", "datasetName", Plain), ("DatasetUUID:", "datasetUUID", Plain)],
    },
    Source {
        field: "projected",
        about: "Projected (a volume that contains injected data from multiple sources)",
        rows: &[],
    },
    Source {
        field: "csi",
        about: "CSI (a Container Storage Interface (CSI) volume source)",
        rows: &[
            ("Driver:", "driver", Plain),
            ("FSType:", "fsType", Pointer),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "image",
        about: "Image (a container image or OCI artifact)",
        rows: &[("Reference:", "reference", Plain), ("PullPolicy:", "pullPolicy", Plain)],
    },
];

/// Sources of persistent volumes that say more than those of pods.
static PERSISTENT: &[Source] = &[
    Source {
        field: "glusterfs",
        about: "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        rows: &[
            ("EndpointsName:", "endpoints", Plain),
            ("EndpointsNamespace:", "endpointsNamespace", Unset),
            ("Path:", "path", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "scaleIO",
        about: "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        rows: &[
            ("Gateway:", "gateway", Plain),
            ("System:", "system", Plain),
            ("Protection Domain:", "protectionDomain", Plain),
            ("Storage Pool:", "storagePool", Plain),
            ("Storage Mode:", "storageMode", Plain),
            ("VolumeName:", "volumeName", Plain),
            ("SecretName:", "secretRef/name", Plain),
            ("SecretNamespace:", "secretRef/namespace", Plain),
            ("FSType:", "fsType", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "local",
        about: "LocalVolume (a persistent volume backed by local storage on a node)",
        rows: &[("Path:", "path", Plain)],
    },
    Source {
        field: "azureFile",
        about: "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        rows: &[
            ("SecretName:", "secretName", Plain),
            ("SecretNamespace:", "secretNamespace", Plain),
            ("ShareName:", "shareName", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
    Source {
        field: "csi",
        about: "CSI (a Container Storage Interface (CSI) volume source)",
        rows: &[
            ("Driver:", "driver", Plain),
            ("FSType:", "fsType", Plain),
            ("VolumeHandle:", "volumeHandle", Plain),
            ("ReadOnly:", "readOnly", Bool),
        ],
    },
];

/// The volumes of a pod.
pub fn describe(w: &mut Writer, volumes: &Value, indent: &str) {
    let volumes = items(volumes);
    if volumes.is_empty() {
        put!(w, 0, "{indent}Volumes:\t<none>\n");
        return;
    }
    put!(w, 0, "{indent}Volumes:\n");
    for volume in volumes {
        put!(w, 1, "{}{}:\n", if indent.is_empty() { "" } else { " " }, text(&volume["name"]));
        match SOURCES.iter().find(|source| volume[source.field].is_object()) {
            Some(source) => source.describe(w, &volume[source.field], false),
            None => w.write(1, "<unknown>\n"),
        }
    }
}

/// The source of a persistent volume, in its `spec`.
pub fn describe_persistent(w: &mut Writer, spec: &Value) {
    let mut sources = PERSISTENT.iter().chain(SOURCES);
    match sources.find(|source| spec[source.field].is_object()) {
        Some(source) => source.describe(w, &spec[source.field], true),
        None => w.write(1, "<unknown>\n"),
    }
}

impl Source {
    fn describe(&self, w: &mut Writer, source: &Value, persistent: bool) {
        put!(w, 2, "Type:\t{}\n", self.about);
        for (title, field, shape) in self.rows {
            let value = field.split('/').fold(source, |value, name| &value[name]);
            let shape = if persistent && matches!(shape, Local) { Secret } else { *shape };
            put!(w, 2, "{title}\t{}\n", shape.show(value));
        }
        match self.field {
            "csi" => attributes(w, &source["volumeAttributes"]),
            "projected" => projected(w, source),
            "downwardAPI" => downward(w, source),
            "ephemeral" if source["volumeClaimTemplate"].is_object() => {
                w.nest(2, |w| claim(w, &source["volumeClaimTemplate"], None));
            }
            _ => {}
        }
    }
}

impl Shape {
    fn show(self, value: &Value) -> String {
        match self {
            Bool => is_true(value).to_string(),
            Number => int(value).to_string(),
            OrNone if value.is_null() => "<none>".to_owned(),
            Unset if value.is_null() || value.is_string() && text(value).is_empty() => {
                "<unset>".to_owned()
            }
            // A size of nothing is none.
            Unset if quantity(value).is_zero() && text(value).starts_with('0') => {
                "<unset>".to_owned()
            }
            List => format!("[{}]", texts(value).join(" ")),
            Map if value.is_null() => "map[]".to_owned(),
            Local | Secret if value.is_null() => "nil".to_owned(),
            Local => format!("&LocalObjectReference{{Name:{},}}", text(&value["name"])),
            Secret => format!(
                "&SecretReference{{Name:{},Namespace:{},}}",
                text(&value["name"]),
                text(&value["namespace"])
            ),
            Map => go_print(value),
            // World-wide names are joined.
            Plain if value.is_array() => texts(value).join(", "),
            Plain | Pointer | OrNone | Unset => shown(value),
        }
    }
}

fn attributes(w: &mut Writer, value: &Value) {
    w.write(2, "VolumeAttributes:\t");
    let all = pairs(value);
    if all.is_empty() {
        w.raw("<none>\n");
        return;
    }
    for (i, (key, value)) in all.into_iter().enumerate() {
        if i > 0 {
            // Upstream indents each of the parts of such a line.
            w.write(2, "");
            w.write(2, "\t");
        }
        put!(w, 2, "{}\n", shortened(&format!("{key}={value}"), 140));
    }
}

fn projected(w: &mut Writer, source: &Value) {
    for part in items(&source["sources"]) {
        if part["secret"].is_object() {
            named(w, "SecretName", &part["secret"]);
        } else if part["downwardAPI"].is_object() {
            w.write(2, "DownwardAPI:\ttrue\n");
        } else if part["configMap"].is_object() {
            named(w, "ConfigMapName", &part["configMap"]);
        } else if part["serviceAccountToken"].is_object() {
            put!(
                w,
                2,
                "TokenExpirationSeconds:\t{}\n",
                int(&part["serviceAccountToken"]["expirationSeconds"])
            );
        }
    }
}

fn named(w: &mut Writer, title: &str, part: &Value) {
    put!(w, 2, "{title}:\t{}\n", text(&part["name"]));
    put!(w, 2, "Optional:\t{}\n", is_true(&part["optional"]));
}

fn downward(w: &mut Writer, source: &Value) {
    w.write(2, "Items:\n");
    for item in items(&source["items"]) {
        let path = text(&item["path"]);
        if item["fieldRef"].is_object() {
            put!(w, 3, "{} -> {path}\n", text(&item["fieldRef"]["fieldPath"]));
        }
        if item["resourceFieldRef"].is_object() {
            put!(w, 3, "{} -> {path}\n", text(&item["resourceFieldRef"]["resource"]));
        }
    }
}
