//! A machine of scripts: `iscsiadm` makes and removes what the kernel would show of a session, `mount` and
//! `umount` keep the table of mounts, and each writes down how it was called.
use super::*;
use crate::testing::until;
use crate::tests::{Machine, one};
use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

const IQN: &str = "iqn.2001-04.com.example:disk";
const UNIQUE_NAME: &str = "kubernetes.io/iscsi/10.0.0.1:iqn.2001-04.com.example:disk:0";

const ISCSIADM: &str = r#"
while [ $# -gt 0 ]; do
    case $1 in
        -p) portal=$2; shift;;
        -I) iface=$2; shift;;
        -T) iqn=$2; shift;;
        show) printf '# BEGIN RECORD\niface.iscsi_ifacename = %s\niface.net_ifacename = <empty>\niface.transport_name = tcp\niface.mtu = 9000\n' "$iface";;
        --login) do=login;;
        --logout) do=logout;;
    esac
    shift
done
case $do in
login)
    n=$(( $(ls "$D/sys/class/iscsi_host" | wc -l) + 3 ))
    host="$D/sys/class/iscsi_host/host$n/device/session$n"
    connection="$host/connection$n:0/iscsi_connection/connection$n:0"
    mkdir -p "$host/iscsi_session/session$n" "$connection" "$D/sys/class/scsi_host/host$n" "$D/dev/disk/by-path"
    : > "$D/sys/class/scsi_host/host$n/scan"
    echo "$iqn" > "$host/iscsi_session/session$n/targetname"
    echo "$iface" > "$host/iscsi_session/session$n/ifacename"
    for kind in "" persistent_; do
        echo "${portal%:*}" > "$connection/${kind}address"
        echo "${portal##*:}" > "$connection/${kind}port"
    done
    for lun in $(cat "$D/luns"); do
        device="sd$n$lun"
        mkdir -p "$host/target$n:0:0/$n:0:0:$lun/block/$device" "$D/sys/block/$device/device"
        echo "8:$n$lun" > "$D/sys/block/$device/dev"
        : > "$D/sys/block/$device/device/delete"
        head -c 4096 /dev/zero > "$D/dev/$device"
        ln -sf "../../$device" "$D/dev/disk/by-path/ip-$portal-iscsi-$iqn-lun-$lun"
    done;;
logout)
    for host in "$D"/sys/class/iscsi_host/*; do
        grep -qx "${portal%:*}" "$host"/device/session*/connection*/iscsi_connection/*/address && rm -r "$host"
    done
    rm -f "$D/dev/disk/by-path/ip-$portal-"*;;
esac
exit 0
"#;

const MOUNT: &str = r#"
while [ "$1" != -- ]; do
    [ "$1" = -o ] && options=$2
    shift
done
from=$2 to=$3 flag=rw
case ,$options, in *,ro,*) flag=ro;; esac
case ,$options, in
*,remount,*)
    sed -i "s# $to rw # $to ro #" "$D/mounts"
    exit 0;;
*,bind,*)
    number=$(grep -F " $from " "$D/mounts" | cut -d ' ' -f 3)
    number=${number:-0:5};;
*) number=$(cat "$D/sys/block/$(basename "$(readlink -f "$from")")/dev");;
esac
echo "1 1 $number / $to $flag - x x $flag" >> "$D/mounts"
"#;

const UMOUNT: &str = r#"
grep -vF " $2 " "$D/mounts" > "$D/mounts.new"
mv "$D/mounts.new" "$D/mounts"
"#;

/// An empty disk, until it is formatted.
const BLKID: &str = r#"
[ -e "$D/formatted" ] || exit 2
echo "TYPE=$(cat "$D/formatted")"
"#;

const MKFS: &str = r#"
echo ext4 > "$D/formatted"
"#;

struct Scripted {
    folder: tempfile::TempDir,
    iscsi: Iscsi,
}

impl Scripted {
    fn new() -> Scripted {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["bin", "dev", "sys/class/iscsi_host", "root"] {
            fs::create_dir_all(place(name)).unwrap();
        }
        for (name, text) in [("mounts", ""), ("log", ""), ("luns", "0"), ("fails", "")] {
            fs::write(place(name), text).unwrap();
        }
        for (name, script) in [
            ("iscsiadm", ISCSIADM),
            ("mount", MOUNT),
            ("umount", UMOUNT),
            ("blkid", BLKID),
            ("mkfs.ext4", MKFS),
            ("fsck", ""),
            ("multipath", ""),
        ] {
            write_program(folder.path(), name, script);
        }
        let iscsi = Iscsi::new(host(folder.path()));
        Scripted { folder, iscsi }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.place("root")
    }

    /// Calls with this in them end so.
    fn fail(&self, code: i32, call: &str) {
        fs::write(self.place("fails"), format!("{code} {call}\n")).unwrap();
    }

    /// Nothing fails any more.
    fn heal(&self) {
        fs::write(self.place("fails"), "").unwrap();
    }

    /// What was called since the last time.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.place("log")).unwrap();
        fs::write(self.place("log"), "").unwrap();
        let shown = self.folder.path().display().to_string();
        text.replace(&format!("{shown}/root/plugins/kubernetes.io/iscsi"), "PLUGIN")
            .replace(&shown, "~")
            .replace(IQN, "IQN")
            .trim_end()
            .to_owned()
    }

    fn check_log(&self, expected: Expect) {
        expected.assert_eq(&self.log());
    }

    /// Points that are mounted.
    fn mounts(&self) -> Vec<String> {
        let mounts = self.iscsi.host.mounts();
        let root = self.root();
        let show = |path: &Path| path.strip_prefix(&root).unwrap_or(path).display().to_string();
        mounts.iter().map(|mount| show(&mount.point)).collect()
    }

    async fn mount(&self, uid: &str, disk: &Disk) -> Result<PathBuf, String> {
        self.iscsi.mount(&self.root(), uid, disk, &Chap::default(), None).await
    }

    async fn unmount(&self, uid: &str) {
        self.iscsi.unmount(&self.root(), uid).await.unwrap();
    }

    fn has_session(&self) -> bool {
        fs::read_dir(self.place("sys/class/iscsi_host")).unwrap().next().is_some()
    }
}

fn host(folder: &Path) -> Host {
    Host {
        programs: Some(folder.join("bin")),
        sys: folder.join("sys"),
        dev: folder.join("dev"),
        mount_table: folder.join("mounts"),
        patience: Duration::from_secs(60),
        pause: Duration::from_millis(1),
    }
}

/// Another process writes it: a script that some thread's child has open cannot be run.
fn write_program(folder: &Path, name: &str, script: &str) {
    let text = format!(
        "#!/bin/sh\nD='{}'\necho \"{name} $*\" >> \"$D/log\"\n\
         while read -r code call; do case \"{name} $*\" in *\"$call\"*) echo \"said: $*\"; exit $code;; \
         esac; done < \"$D/fails\"\n{script}",
        folder.display()
    );
    let mut child = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(folder.join("bin").join(name))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

fn disk(extra: Value) -> Disk {
    let mut source = json!({ "targetPortal": "10.0.0.1", "iqn": IQN, "lun": 0 });
    source.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let pod = serde_json::from_value(json!({ "metadata": { "namespace": "n" } })).unwrap();
    Disk::inline(&pod, "v", &serde_json::from_value(source).unwrap()).unwrap()
}

#[tokio::test]
async fn a_disk_comes_is_shared_and_leaves_with_its_last_pod() {
    let machine = Scripted::new();
    let disk = disk(json!({}));
    let path = machine.mount("a", &disk).await.unwrap();
    assert_eq!(path, machine.root().join("pods/a/volumes/kubernetes.io~iscsi/v"));
    machine.check_log(expect![[r#"
        iscsiadm -m iface -I default -o show
        iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new
        iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default --discover
        iscsiadm -m node -p 10.0.0.1:3260 -T IQN -I default -o update -n node.session.scan -v manual
        iscsiadm -m node -p 10.0.0.1:3260 -T IQN -I default --login
        iscsiadm -m node -p 10.0.0.1:3260 -T IQN -o update -n node.startup -v manual
        blkid -p -s TYPE -s PTTYPE -o export ~/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-IQN-lun-0
        mkfs.ext4 -F -m0 ~/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-IQN-lun-0
        mount -t ext4 -o defaults -- ~/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-IQN-lun-0 PLUGIN/iface-default/10.0.0.1:3260-IQN-lun-0
        mount -o bind -- PLUGIN/iface-default/10.0.0.1:3260-IQN-lun-0 ~/root/pods/a/volumes/kubernetes.io~iscsi/v"#]]);
    assert_eq!(
        fs::read_to_string(machine.place("sys/class/scsi_host/host3/scan")).unwrap(),
        "0 0 0"
    );
    assert_eq!(machine.iscsi.mounted(&machine.root(), "a", &disk), Some(path));
    // Another pod has the same, though by a kubelet that was started since.
    let machine = Scripted { iscsi: Iscsi::new(host(machine.folder.path())), ..machine };
    assert_eq!(machine.iscsi.mounted(&machine.root(), "b", &disk), None);
    machine.mount("b", &disk).await.unwrap();
    machine.check_log(expect![[r#"
        mount -o bind -- PLUGIN/iface-default/10.0.0.1:3260-IQN-lun-0 ~/root/pods/b/volumes/kubernetes.io~iscsi/v"#]]);
    machine.iscsi.detach_orphans(&machine.root()).await;
    machine.unmount("a").await;
    machine.check_log(expect!["umount -- ~/root/pods/a/volumes/kubernetes.io~iscsi/v"]);
    assert_eq!(
        machine.mounts(),
        [
            format!("plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-{IQN}-lun-0"),
            "pods/b/volumes/kubernetes.io~iscsi/v".to_owned()
        ]
    );
    machine.unmount("b").await;
    machine.check_log(expect![[r#"
        umount -- ~/root/pods/b/volumes/kubernetes.io~iscsi/v
        umount -- PLUGIN/iface-default/10.0.0.1:3260-IQN-lun-0
        iscsiadm -m node -p 10.0.0.1:3260 -T IQN --logout -I default
        iscsiadm -m node -p 10.0.0.1:3260 -T IQN -o delete -I default"#]]);
    assert_eq!(fs::read_to_string(machine.place("sys/block/sd30/device/delete")).unwrap(), "1");
    assert!(attached(&machine.root()).is_empty() && !machine.has_session());
    machine.unmount("b").await;
    machine.check_log(expect![""]);
}

#[tokio::test]
async fn a_file_system_that_is_there_is_checked_and_never_made_again() {
    let machine = Scripted::new();
    fs::write(machine.place("formatted"), "ext4").unwrap();
    machine.mount("a", &disk(json!({}))).await.unwrap();
    let log = machine.log();
    assert!(log.contains("\nfsck -a ~/dev/disk/by-path/ip-") && !log.contains("mkfs"), "{log}");
    machine.unmount("a").await;
    // What is to be read only is not made, not repaired, and mounted so.
    machine.log();
    let read_only = disk(json!({ "readOnly": true }));
    machine.mount("a", &read_only).await.unwrap();
    let log = machine.log();
    assert!(!log.contains("fsck") && log.contains("mount -t ext4 -o ro,defaults -- "), "{log}");
    assert!(log.contains("mount -o bind,remount,ro -- "), "{log}");
    assert!(machine.iscsi.mounted(&machine.root(), "a", &read_only).is_some());
    machine.unmount("a").await;
    fs::remove_file(machine.place("formatted")).unwrap();
    let said = machine.mount("a", &read_only).await.unwrap_err();
    assert!(said.starts_with("MountVolume.MountDevice failed for volume \"v\" : "), "{said}");
    assert!(said.contains("cannot mount unformatted disk"), "{said}");
    // Nor is what cannot be read.
    fs::write(machine.place("dev/sd30"), "").unwrap();
    let said = machine.mount("a", &disk(json!({}))).await.unwrap_err();
    assert!(said.contains("failed to read"), "{said}");
    assert!(!machine.log().contains("mkfs"));
}

#[tokio::test]
async fn passwords_are_set_and_not_told() {
    let machine = Scripted::new();
    let mut secret = Secret::default();
    for key in disk::DISCOVERY_KEYS.iter().chain(&disk::SESSION_KEYS) {
        let value = k8s_openapi::ByteString(format!("secret-{}", key.len()).into_bytes());
        secret.data.get_or_insert_default().insert(String::from(*key), value);
    }
    let chap = Chap::of(&secret).unwrap();
    let disk = disk(json!({ "chapAuthDiscovery": true, "chapAuthSession": true,
        "secretRef": { "name": "s" } }));
    machine.fail(7, "node.session.auth.password_in");
    let said = machine.iscsi.mount(&machine.root(), "a", &disk, &chap, None).await.unwrap_err();
    assert_eq!(
        said.replace(IQN, "IQN"),
        "MountVolume.WaitForAttach failed for volume \"v\" : failed to get any path for iscsi disk, \
         last err seen: iscsi: failed to update node session key \"node.session.auth.password_in\": \
         said: -m node -p 10.0.0.1:3260 -T IQN -I default -o update -n \
         node.session.auth.password_in -v *** (exit status 7)"
    );
    let log = machine.log();
    let set = log.lines().filter_map(|line| line.split_once(" -o update -n ")).map(|(_, set)| set);
    expect![[r#"
        discovery.sendtargets.auth.authmethod -v CHAP
        discovery.sendtargets.auth.username -v secret-35
        discovery.sendtargets.auth.password -v secret-35
        discovery.sendtargets.auth.username_in -v secret-38
        discovery.sendtargets.auth.password_in -v secret-38
        node.session.scan -v manual
        node.session.auth.authmethod -v CHAP
        node.session.auth.username -v secret-26
        node.session.auth.password -v secret-26
        node.session.auth.username_in -v secret-29
        node.session.auth.password_in -v secret-29"#]]
    .assert_eq(&set.collect::<Vec<_>>().join("\n"));
    let records = detach::folders(&machine.root());
    let record = fs::read_to_string(records[0].join(disk::FILE)).unwrap();
    assert!(!record.contains("secret"), "{record}");
}

#[tokio::test]
async fn several_portals_are_several_paths_of_one_device() {
    let machine = Scripted::new();
    let disk = disk(json!({ "portals": ["10.0.0.2", "10.0.0.3"] }));
    // The second does not answer; two are enough, after another try.
    machine.fail(8, "-p 10.0.0.2:3260 -I default --discover");
    fs::create_dir_all(machine.place("sys/block/dm-0/slaves/sd40")).unwrap();
    fs::create_dir_all(machine.place("sys/block/dm-0/dm")).unwrap();
    fs::write(machine.place("sys/block/dm-0/dm/uuid"), "mpath-1\n").unwrap();
    fs::write(machine.place("sys/block/dm-0/dev"), "253:0\n").unwrap();
    fs::write(machine.place("dev/dm-0"), [0u8; 4096]).unwrap();
    // That is no path of it.
    fs::create_dir_all(machine.place("sys/block/dm-1/slaves/sd30")).unwrap();
    fs::create_dir_all(machine.place("sys/block/dm-1/dm")).unwrap();
    fs::write(machine.place("sys/block/dm-1/dm/uuid"), "LVM-1\n").unwrap();
    machine.mount("a", &disk).await.unwrap();
    let log = machine.log();
    assert_eq!(log.matches("--discover").count(), 4, "{log}");
    assert!(log.contains("-p 10.0.0.2:3260 -I default -o delete"), "{log}");
    assert!(log.contains("mount -t ext4 -o defaults -- ~/dev/dm-0 PLUGIN"), "{log}");
    machine.heal();
    machine.unmount("a").await;
    let log = machine.log();
    assert!(log.contains("multipath -f ~/dev/dm-0"), "{log}");
    assert_eq!(log.matches("--logout").count(), 3, "{log}");
}

#[tokio::test]
async fn an_initiator_s_name_has_an_interface_of_its_own() {
    let machine = Scripted::new();
    let disk = disk(json!({ "initiatorName": "iqn.2001-04.com.example:me" }));
    machine.mount("a", &disk).await.unwrap();
    let log = machine.log();
    let begin: Vec<&str> = log.lines().take(6).collect();
    expect![[r#"
        iscsiadm -m iface -I default -o show
        iscsiadm -m iface -I 10.0.0.1:3260:v -o new
        iscsiadm -m iface -I 10.0.0.1:3260:v -o update -n iface.initiatorname -v iqn.2001-04.com.example:me
        iscsiadm -m iface -I 10.0.0.1:3260:v -o update -n iface.mtu -v 9000
        iscsiadm -m iface -I 10.0.0.1:3260:v -o update -n iface.transport_name -v tcp
        iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I 10.0.0.1:3260:v -o new"#]]
    .assert_eq(&begin.join("\n"));
    machine.unmount("a").await;
    let log = machine.log();
    assert!(log.ends_with("iscsiadm -m iface -I 10.0.0.1:3260:v -o delete"), "{log}");
}

#[tokio::test]
async fn other_luns_of_a_target_keep_its_session() {
    let machine = Scripted::new();
    fs::write(machine.place("luns"), "0 1").unwrap();
    let (first, second) = (disk(json!({})), disk(json!({ "lun": 1 })));
    machine.mount("a", &first).await.unwrap();
    machine.log();
    machine.mount("b", &second).await.unwrap();
    let log = machine.log();
    assert!(!log.contains("--login") && !log.contains("--discover"), "the session is there: {log}");
    assert_eq!(
        fs::read_to_string(machine.place("sys/class/scsi_host/host3/scan")).unwrap(),
        "0 0 1"
    );
    machine.unmount("a").await;
    let log = machine.log();
    assert!(!log.contains("--logout") && machine.has_session(), "{log}");
    assert_eq!(fs::read_to_string(machine.place("sys/block/sd30/device/delete")).unwrap(), "1");
    assert_eq!(fs::read_to_string(machine.place("sys/block/sd31/device/delete")).unwrap(), "");
    machine.unmount("b").await;
    assert!(machine.log().contains("--logout") && !machine.has_session());
}

#[tokio::test]
async fn a_device_is_given_to_each_pod() {
    let machine = Scripted::new();
    let disk = Disk { is_block: true, ..disk(json!({})) };
    let path = machine.mount("a", &disk).await.unwrap();
    machine.mount("b", &disk).await.unwrap();
    assert_eq!(path, disk.folder(&machine.root()).join("a"));
    let log = machine.log();
    assert!(!log.contains("blkid") && log.matches("mount -o bind").count() == 2, "{log}");
    assert_eq!(machine.iscsi.mounted(&machine.root(), "a", &disk), Some(path));
    machine.unmount("a").await;
    assert!(machine.has_session());
    machine.unmount("b").await;
    assert!(!machine.has_session() && attached(&machine.root()).is_empty());
}

#[tokio::test]
async fn what_cannot_be_had_is_told_and_left_to_nobody() {
    let machine = Scripted::new();
    let failed = "MountVolume.WaitForAttach failed for volume \"v\" : ";
    machine.fail(24, "--login");
    let said = machine.mount("a", &disk(json!({}))).await.unwrap_err();
    assert!(said.starts_with(failed) && said.contains("(exit status 24)"), "{said}");
    assert!(machine.log().ends_with("-o delete"), "the record of the target goes");
    // A LUN that the target does not have.
    machine.heal();
    let said = machine.mount("a", &disk(json!({ "lun": 9 }))).await.unwrap_err();
    assert!(said.contains("Timed out waiting for device at path "), "{said}");
    assert!(machine.has_session());
    // No pod has it, so nobody keeps it.
    machine.iscsi.detach_orphans(&machine.root()).await;
    assert!(!machine.has_session() && attached(&machine.root()).is_empty());
    // A logout that fails is tried again later.
    machine.mount("a", &disk(json!({}))).await.unwrap();
    machine.fail(9, "--logout");
    machine.unmount("a").await;
    assert_eq!(attached(&machine.root()).len(), 1);
    // There is no such session: that is as good as a logout.
    machine.fail(21, "--logout");
    machine.iscsi.detach_orphans(&machine.root()).await;
    assert!(attached(&machine.root()).is_empty());
}

#[tokio::test]
async fn a_target_that_hangs_keeps_nobody_for_ever() {
    let machine = Scripted::new();
    write_program(machine.folder.path(), "iscsiadm", "exec sleep 60");
    let host = Host { patience: Duration::from_millis(50), ..host(machine.folder.path()) };
    let machine = Scripted { iscsi: Iscsi::new(host), ..machine };
    let said = machine.mount("a", &disk(json!({}))).await.unwrap_err();
    assert!(said.ends_with(" : iscsiadm did not end within 0s"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_an_initiator_says_what_to_install() {
    let machine = Machine::new();
    let empty = machine.folder.path().to_owned();
    machine.run_kubelet_with(machine.context.clone(), |config| config.iscsi_host = host(&empty));
    put_pod(&machine);
    machine.attach(UNIQUE_NAME).await;
    machine.pass(5).await;
    let events = machine.world.all::<Event>();
    let told = events.iter().filter_map(|event| event.message.clone());
    let told = told.filter(|text| text.contains("iscsiadm")).collect::<Vec<_>>();
    assert_eq!(
        told[0],
        "MountVolume.WaitForAttach failed for volume \"v\" : iscsiadm is not installed on this node: \
         install open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Fedora, Red Hat), and \
         have iscsid running"
    );
}

#[tokio::test]
async fn a_pod_has_its_disk_until_it_ends() {
    let scripted = Scripted::new();
    let machine = Machine::new();
    let host = host(scripted.folder.path());
    machine.run_kubelet_with(machine.context.clone(), |config| config.iscsi_host = host);
    put_pod(&machine);
    machine.attach(UNIQUE_NAME).await;
    let phase = || {
        let pod = machine.world.get::<Pod>("default", "web");
        pod.and_then(|pod| pod.status.clone()?.phase).unwrap_or_default()
    };
    until("the pod runs", || phase() == "Running").await;
    assert_eq!(scripted.iscsi.host.mounts().len(), 2);
    machine.world.remove::<Pod>("default", "web");
    until("the target is logged out of", || !scripted.has_session()).await;
    let folder = machine.folder.path().join("kubelet/pods/u1");
    until("the pod is gone", || !folder.exists()).await;
    assert_eq!(scripted.iscsi.host.mounts(), []);
    until("it is not in use", || machine.in_use().is_empty()).await;
}

#[tokio::test]
async fn a_disk_that_is_not_attached_is_left_alone() {
    let scripted = Scripted::new();
    let machine = Machine::new();
    let host = host(scripted.folder.path());
    machine.run_kubelet_with(machine.context.clone(), |config| config.iscsi_host = host);
    put_pod(&machine);
    let said = "Volume not attached according to node status for volume \"v\"";
    let is_told = || {
        let events = machine.world.all::<Event>();
        events.iter().any(|event| event.message.as_deref().is_some_and(|it| it.contains(said)))
    };
    until("the pod waits", is_told).await;
    assert_eq!(machine.in_use(), [UNIQUE_NAME]);
    assert_eq!(scripted.log(), "", "nobody spoke with the target");
    // A pod that waits in vain keeps nothing.
    machine.world.remove::<Pod>("default", "web");
    until("it is not in use", || machine.in_use().is_empty()).await;
    assert_eq!(scripted.log(), "");
}

#[tokio::test]
async fn a_kubelet_that_begins_anew_knows_what_is_in_use() {
    let machine = Scripted::new();
    machine.mount("a", &disk(json!({}))).await.unwrap();
    let in_use = InUse::default();
    take_up(&machine.root(), &in_use);
    // The folder does not tell whether the API has the port.
    let with_port = UNIQUE_NAME.replace("10.0.0.1", "10.0.0.1:3260");
    assert_eq!(in_use.names(), [with_port.as_str(), UNIQUE_NAME]);
    machine.unmount("a").await;
    assert!(in_use.names().is_empty());
}

fn put_pod(machine: &Machine) {
    let mut spec = one(json!({ "volumeMounts": [{ "name": "v", "mountPath": "/data" }] }));
    spec["nodeName"] = "n1".into();
    let source = json!({ "targetPortal": "10.0.0.1", "iqn": IQN, "lun": 0 });
    spec["volumes"] = json!([{ "name": "v", "iscsi": source }]);
    let metadata = json!({ "name": "web", "namespace": "default", "uid": "u1", "generation": 1 });
    let pod = json!({ "metadata": metadata, "spec": spec });
    machine.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
}
