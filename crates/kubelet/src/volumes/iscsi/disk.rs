//! A disk of an iSCSI target: what the API says of it, and where it is on this machine. All of it is
//! pure; places, names and the file's words are upstream's (`pkg/volume/iscsi`), so that a kubelet finds
//! what another one left.
use crate::pod;
use k8s_openapi::api::core::v1::{
    ISCSIVolumeSource, PersistentVolume, Pod, Secret, SecretReference,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Where targets listen who do not say it.
const PORT: u16 = 3260;

/// Who a target lets in, as a Secret of type `kubernetes.io/iscsi-chap` says it: when it is asked for its
/// targets, and when somebody logs in.
pub const DISCOVERY_KEYS: [&str; 4] = [
    "discovery.sendtargets.auth.username",
    "discovery.sendtargets.auth.password",
    "discovery.sendtargets.auth.username_in",
    "discovery.sendtargets.auth.password_in",
];
pub const SESSION_KEYS: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disk {
    /// Of the persistent volume, or of the volume in the pod.
    pub name: String,
    /// As the node's status names it.
    pub unique_name: String,
    /// With their ports, each once; the disk's folder is named after the first.
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: u32,
    /// The initiator's interface that is there.
    pub base_interface: String,
    /// The one that is used: the same, or one of the disk's own if it has an initiator's name.
    pub interface: String,
    pub initiator: String,
    pub fs_type: String,
    pub mount_options: Vec<String>,
    pub read_only: bool,
    pub is_block: bool,
    pub chap_discovery: bool,
    pub chap_session: bool,
    /// Who the target lets in; without CHAP nobody has to know.
    pub secret: Option<SecretReference>,
}

impl Disk {
    /// A volume that a pod names itself.
    pub fn inline(pod: &Pod, name: &str, source: &ISCSIVolumeSource) -> Result<Disk, String> {
        let secret = source.secret_ref.as_ref().map(|secret| SecretReference {
            name: Some(secret.name.clone()),
            namespace: Some(pod::namespace(pod).to_owned()),
        });
        Disk::new(name, source, secret)
    }

    /// What a claim of this namespace is bound to, if that is such a disk.
    pub fn of_claim(
        volume: &PersistentVolume,
        namespace: &str,
        read_only: bool,
    ) -> Result<Option<Disk>, String> {
        let Some(spec) = volume.spec.as_ref() else { return Ok(None) };
        let Some(source) = spec.iscsi.clone() else { return Ok(None) };
        let secret = source.secret_ref.map(|secret| SecretReference {
            namespace: secret
                .namespace
                .filter(|own| !own.is_empty())
                .or_else(|| Some(namespace.to_owned())),
            ..secret
        });
        let source = ISCSIVolumeSource {
            chap_auth_discovery: source.chap_auth_discovery,
            chap_auth_session: source.chap_auth_session,
            fs_type: source.fs_type,
            initiator_name: source.initiator_name,
            iqn: source.iqn,
            iscsi_interface: source.iscsi_interface,
            lun: source.lun,
            portals: source.portals,
            read_only: Some(source.read_only == Some(true) || read_only),
            secret_ref: None,
            target_portal: source.target_portal,
        };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        Ok(Some(Disk {
            mount_options: spec.mount_options.clone().unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            ..Disk::new(name, &source, secret)?
        }))
    }

    fn new(
        name: &str,
        source: &ISCSIVolumeSource,
        secret: Option<SecretReference>,
    ) -> Result<Disk, String> {
        let mut portals = vec![portal(&source.target_portal)];
        for one in source.portals.iter().flatten().map(|one| portal(one)) {
            if !portals.contains(&one) {
                portals.push(one);
            }
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let base_interface = match source.iscsi_interface.as_deref() {
            Some(given) if !given.is_empty() => given.to_owned(),
            _ => "default".to_owned(),
        };
        let initiator = text(&source.initiator_name);
        let interface = match initiator.is_empty() {
            true => base_interface.clone(),
            false => format!("{}:{name}", portals[0]),
        };
        let (chap_discovery, chap_session) =
            (source.chap_auth_discovery == Some(true), source.chap_auth_session == Some(true));
        let disk = Disk {
            name: name.to_owned(),
            unique_name: unique_name(&source.target_portal, &source.iqn, source.lun),
            portals,
            iqn: source.iqn.clone(),
            lun: u32::try_from(source.lun).map_err(|_| format!("{} is no LUN", source.lun))?,
            base_interface,
            interface,
            initiator,
            fs_type: Some(text(&source.fs_type))
                .filter(|given| !given.is_empty())
                .unwrap_or_else(|| "ext4".to_owned()),
            read_only: source.read_only == Some(true),
            chap_discovery,
            chap_session,
            secret: secret.filter(|_| chap_discovery || chap_session),
            ..Disk::default()
        };
        disk.check().map(|()| disk)
    }

    fn check(&self) -> Result<(), String> {
        word("iqn", &self.iqn)?;
        word("iscsiInterface", &self.base_interface)?;
        word("iscsiInterface", &self.interface)?;
        self.portals.iter().try_for_each(|portal| word("targetPortal", portal))?;
        if !self.initiator.is_empty() {
            word("initiatorName", &self.initiator)?;
        }
        // A program is named after it: `mkfs.ext4`.
        let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match self.fs_type.starts_with(|c: char| c.is_ascii_alphanumeric())
            && self.fs_type.chars().all(is_sound)
        {
            true => Ok(()),
            false => Err(format!("fsType {:?} is no name of a file system", self.fs_type)),
        }
    }

    /// Where the disk is for all pods of this node: mounted there, or with the devices of each pod.
    pub fn folder(&self, root: &Path) -> PathBuf {
        let kind = if self.is_block { plugin(root).join(BLOCK) } else { plugin(root) };
        kind.join(format!("{INTERFACE}{}", self.interface))
            .join(format!("{}-{}{LUN}{}", self.portals[0], self.iqn, self.lun))
    }

    /// Where one pod has it.
    pub fn target(&self, root: &Path, uid: &str) -> PathBuf {
        match self.is_block {
            true => self.folder(root).join(uid),
            false => pod_volumes(root, uid).join(&self.name),
        }
    }

    /// How udev names the device that a portal leads to, without the bus where it is no network card.
    pub fn link(&self, portal: &str) -> String {
        let address = portal.replace(['[', ']'], "");
        format!("ip-{address}-iscsi-{}{LUN}{}", self.iqn, self.lun)
    }

    pub fn record(&self) -> Record {
        Record {
            vol_name: self.name.clone(),
            portals: self.portals.clone(),
            iqn: self.iqn.clone(),
            lun: self.lun.to_string(),
            init_iface: self.base_interface.clone(),
            iface: self.interface.clone(),
            initiator_name: self.initiator.clone(),
        }
    }
}

const BLOCK: &str = "volumeDevices";
const INTERFACE: &str = "iface-";
const LUN: &str = "-lun-";

fn plugin(root: &Path) -> PathBuf {
    root.join("plugins/kubernetes.io/iscsi")
}

/// Folders with folders of disks in them: of file systems, and of devices.
pub fn plugins(root: &Path) -> [PathBuf; 2] {
    [plugin(root), plugin(root).join(BLOCK)]
}

pub fn pod_volumes(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid).join("volumes/kubernetes.io~iscsi")
}

/// What the control plane calls a disk: with the portal as whoever wrote the volume has it.
fn unique_name(portal: &str, iqn: &str, lun: impl Display) -> String {
    format!("kubernetes.io/iscsi/{portal}:{iqn}:{lun}")
}

/// What becomes a word of a command and a part of a path is no more than that.
fn word(field: &str, text: &str) -> Result<(), String> {
    let is_odd = |c: char| matches!(c, '/' | '\\') || c.is_whitespace() || c.is_control();
    match text.is_empty() || text.starts_with('-') || text.contains(is_odd) {
        true => Err(format!("{field} {text:?} cannot be used")),
        false => Ok(()),
    }
}

fn portal(text: &str) -> String {
    if text.parse::<Ipv6Addr>().is_ok() {
        return format!("[{text}]:{PORT}");
    }
    match text.contains(':') && !text.ends_with(']') {
        true => text.to_owned(),
        false => format!("{text}:{PORT}"),
    }
}

pub const FILE: &str = "iscsi.json";

/// What is written into a disk's folder, for whoever logs out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Record {
    pub vol_name: String,
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: String,
    pub init_iface: String,
    pub iface: String,
    pub initiator_name: String,
}

impl Record {
    /// What the name of a disk's folder says: enough to log out of its first portal.
    pub fn of_folder(folder: &Path) -> Option<Record> {
        let name = folder.file_name()?.to_str()?;
        let iface = folder.parent()?.file_name()?.to_str()?.strip_prefix(INTERFACE)?;
        let (target, lun) = name.rsplit_once(LUN)?;
        let begins = ["-iqn.", "-eui.", "-naa."].iter().filter_map(|kind| target.find(kind));
        let (portal, iqn) = target.split_at(begins.min()?);
        let record = Record {
            portals: vec![portal.to_owned()],
            iqn: iqn.trim_start_matches('-').to_owned(),
            lun: lun.to_owned(),
            iface: iface.to_owned(),
            ..Record::default()
        };
        record.is_sound().then_some(record)
    }

    pub fn read(text: &[u8]) -> Option<Record> {
        let record: Record = serde_json::from_slice(text).ok()?;
        record.is_sound().then_some(record)
    }

    fn is_sound(&self) -> bool {
        let mut all = [&self.iqn, &self.iface].into_iter().chain(&self.portals);
        let are_words = all.all(|text| word("", text).is_ok());
        are_words && !self.portals.is_empty() && self.lun.parse::<u32>().is_ok()
    }

    /// How the node's status may name it. The name has the portal as the API has it, the folder has it
    /// with a port, and what lies in the folder is hidden by what is mounted there.
    pub fn unique_names(&self) -> Vec<String> {
        let portal = self.portals.first().map(String::as_str).unwrap_or_default();
        let mut spellings = vec![portal];
        if let Some(address) = portal.strip_suffix(format!(":{PORT}").as_str()) {
            spellings.push(address);
            spellings.extend(address.strip_prefix('[').and_then(|it| it.strip_suffix(']')));
        }
        spellings.iter().map(|portal| unique_name(portal, &self.iqn, &self.lun)).collect()
    }

    pub fn number(&self) -> u64 {
        self.lun.parse().unwrap_or(u64::MAX)
    }

    /// The interface was made for this disk, and goes with it.
    pub fn has_own_interface(&self) -> bool {
        let own = self.portals.first().map(|portal| format!("{portal}:{}", self.vol_name));
        !self.initiator_name.is_empty() && own.as_ref() == Some(&self.iface)
    }
}

/// Names and passwords. It is shown nowhere, so it cannot be formatted.
#[derive(Default)]
pub struct Chap(BTreeMap<String, String>);

impl Chap {
    pub fn of(secret: &Secret) -> Result<Chap, String> {
        let mut known = BTreeMap::new();
        for key in DISCOVERY_KEYS.iter().chain(&SESSION_KEYS) {
            let Some(value) = secret.data.as_ref().and_then(|data| data.get(*key)) else {
                continue;
            };
            let value = String::from_utf8(value.0.clone());
            let value = value.map_err(|_| format!("{key} of the secret is no text"))?;
            // Editors leave an end of line, which is no part of a password.
            let value = value.trim_end_matches(['\r', '\n']);
            if value.contains(char::is_control) {
                // The initiator keeps it in a file of lines.
                return Err(format!("{key} of the secret has control characters"));
            }
            if !value.is_empty() {
                known.insert(String::from(*key), value.to_owned());
            }
        }
        Ok(Chap(known))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A text without them.
    pub fn scrub(&self, text: &str) -> String {
        let mut values: Vec<&str> = self.0.values().map(String::as_str).collect();
        // One may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, "***"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn inline(extra: Value) -> Result<Disk, String> {
        let mut source =
            json!({ "targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:d", "lun": 2 });
        source.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let pod = json!({ "metadata": { "namespace": "n" } });
        Disk::inline(
            &serde_json::from_value(pod).unwrap(),
            "v",
            &serde_json::from_value(source).unwrap(),
        )
    }

    #[test]
    fn places_and_names_are_upstreams() {
        let disk = inline(json!({ "portals": ["10.0.0.2:860", "10.0.0.1:3260"] })).unwrap();
        assert_eq!(disk.portals, ["10.0.0.1:3260", "10.0.0.2:860"]);
        assert_eq!((disk.fs_type.as_str(), disk.interface.as_str()), ("ext4", "default"));
        let folder = "/k/plugins/kubernetes.io/iscsi/iface-default/\
                      10.0.0.1:3260-iqn.2001-04.com.example:d-lun-2";
        assert_eq!(disk.folder(Path::new("/k")), Path::new(folder));
        assert_eq!(
            disk.target(Path::new("/k"), "u"),
            Path::new("/k/pods/u/volumes/kubernetes.io~iscsi/v")
        );
        assert_eq!(
            disk.link("10.0.0.2:860"),
            "ip-10.0.0.2:860-iscsi-iqn.2001-04.com.example:d-lun-2"
        );
        assert_eq!(
            disk.link("[fd00::1]:3260"),
            "ip-fd00::1:3260-iscsi-iqn.2001-04.com.example:d-lun-2"
        );
        let named = Record::of_folder(Path::new(folder)).unwrap();
        assert_eq!(disk.unique_name, "kubernetes.io/iscsi/10.0.0.1:iqn.2001-04.com.example:d:2");
        assert_eq!(
            (named.portals[0].as_str(), named.iqn.as_str(), named.number(), named.iface.as_str()),
            ("10.0.0.1:3260", "iqn.2001-04.com.example:d", 2, "default")
        );
        let own = inline(json!({ "initiatorName": "iqn.2001-04.com.example:me" })).unwrap();
        assert_eq!(
            (own.interface.as_str(), own.base_interface.as_str()),
            ("10.0.0.1:3260:v", "default")
        );
        assert!(own.record().has_own_interface() && !disk.record().has_own_interface());
    }

    #[test]
    fn a_folder_knows_what_its_disk_may_be_called() {
        for portal in ["10.0.0.1", "10.0.0.1:3260", "10.0.0.1:860", "fd00::1", "[fd00::1]"] {
            let disk = inline(json!({ "targetPortal": portal })).unwrap();
            let named = Record::of_folder(&disk.folder(Path::new("/k"))).unwrap().unique_names();
            assert!(named.contains(&disk.unique_name), "{portal}: {named:?}");
        }
        let disk = inline(json!({ "targetPortal": "10.0.0.1:860" })).unwrap();
        let named = Record::of_folder(&disk.folder(Path::new("/k"))).unwrap().unique_names();
        assert_eq!(named, ["kubernetes.io/iscsi/10.0.0.1:860:iqn.2001-04.com.example:d:2"]);
    }

    #[test]
    fn portals_have_ports() {
        let check = |given: &str, expected: &str| assert_eq!(portal(given), expected);
        check("10.0.0.1", "10.0.0.1:3260");
        check("10.0.0.1:860", "10.0.0.1:860");
        check("storage.example", "storage.example:3260");
        check("fd00::1", "[fd00::1]:3260");
        check("[fd00::1]", "[fd00::1]:3260");
        check("[fd00::1]:860", "[fd00::1]:860");
    }

    #[test]
    fn the_file_is_upstreams() {
        let disk = inline(json!({})).unwrap();
        let text = serde_json::to_string(&disk.record()).unwrap();
        assert_eq!(
            text,
            r#"{"VolName":"v","Portals":["10.0.0.1:3260"],"Iqn":"iqn.2001-04.com.example:d","Lun":"2","InitIface":"default","Iface":"default","InitiatorName":""}"#
        );
        // As upstream's writes it, with one word more.
        let theirs = text.replace('}', r#","MetricsProvider":null}"#);
        assert_eq!(Record::read(theirs.as_bytes()), Some(disk.record()));
        for wrong in ["", "{}", "null", r#"{"Portals":["-p"],"Iqn":"i","Lun":"0","Iface":"x"}"#] {
            assert_eq!(Record::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_that_is_written_becomes_an_option_or_another_path() {
        for (field, value) in [
            ("iqn", "iqn.2001-04.com.example:../../../etc"),
            ("iqn", "-iqn"),
            ("iqn", ""),
            ("targetPortal", "--logout"),
            ("targetPortal", "../x"),
            ("iscsiInterface", "-I"),
            ("iscsiInterface", "a b"),
            ("initiatorName", "-n"),
            ("fsType", "ext4/../../tmp/x"),
            ("fsType", "-F"),
        ] {
            let said = inline(json!({ field: value })).unwrap_err();
            assert!(said.contains(field), "{said}");
        }
        assert!(inline(json!({ "portals": ["10.0.0.2", "-x"] })).is_err());
        assert!(inline(json!({ "lun": -1 })).is_err());
    }

    #[test]
    fn secrets_are_of_the_pod_or_as_the_volume_says() {
        let place = |secret: Option<SecretReference>| {
            let secret = secret.unwrap_or_default();
            format!("{}/{}", secret.namespace.unwrap_or_default(), secret.name.unwrap_or_default())
        };
        let chap = json!({ "chapAuthSession": true, "secretRef": { "name": "s" } });
        assert_eq!(place(inline(chap).unwrap().secret), "n/s");
        assert_eq!(place(inline(json!({ "secretRef": { "name": "s" } })).unwrap().secret), "/");
        let claimed = |secret: Value, extra: Value| {
            let mut spec = json!({ "iscsi": { "targetPortal": "t", "iqn": "iqn.x", "lun": 0,
                "chapAuthDiscovery": true, "secretRef": secret } });
            spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let volume = json!({ "metadata": { "name": "pv1" }, "spec": spec });
            Disk::of_claim(&serde_json::from_value(volume).unwrap(), "claims", true)
                .unwrap()
                .unwrap()
        };
        let block = json!({ "volumeMode": "Block", "mountOptions": ["noatime"] });
        let disk = claimed(json!({ "name": "s" }), block);
        assert!(disk.is_block && disk.read_only && disk.name == "pv1");
        assert_eq!(
            disk.target(Path::new("/k"), "u"),
            Path::new(
                "/k/plugins/kubernetes.io/iscsi/volumeDevices/iface-default/t:3260-iqn.x-lun-0/u"
            )
        );
        assert_eq!(place(disk.secret), "claims/s");
        let own = claimed(json!({ "name": "s", "namespace": "own" }), json!({}));
        assert_eq!(place(own.secret), "own/s");
    }

    #[test]
    fn passwords_are_kept_and_never_shown() {
        let secret = |value: &str| -> Secret {
            let mut secret = Secret::default();
            let bytes = k8s_openapi::ByteString(value.as_bytes().to_vec());
            let data = secret.data.get_or_insert_default();
            data.insert("node.session.auth.password".to_owned(), bytes.clone());
            data.insert("other".to_owned(), bytes);
            secret
        };
        let chap = Chap::of(&secret("pass word\n")).unwrap();
        assert_eq!(chap.get("node.session.auth.password"), Some("pass word"));
        assert_eq!(chap.get("other"), None);
        assert_eq!(chap.scrub("it said pass word!"), "it said ***!");
        assert!(Chap::of(&secret("a\nnode.startup = automatic")).is_err());
    }
}
