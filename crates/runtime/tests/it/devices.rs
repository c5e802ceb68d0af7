//! Devices by name (CDI) in real containers.
use std::fs;
use std::path::{Path, PathBuf};

use runtime::cri::v1::{CdiDevice, ContainerConfig};
use serde_json::json;

use crate::machine::Machine;

/// A specification where the runtime looks for them; it goes when the test does.
struct Described {
    file: PathBuf,
    kind: String,
}

impl Described {
    fn new(mounted: &Path) -> Described {
        let class = format!("test{}", std::process::id());
        let kind = format!("skiff.test/{class}");
        let edits = json!({
            "env": ["FOUND=it"],
            "deviceNodes": [{ "path": "/dev/thing", "hostPath": "/dev/zero", "permissions": "r" }],
            "mounts": [{ "hostPath": mounted, "containerPath": "/driver", "options": ["ro", "bind"] }],
        });
        let specification = json!({
            "cdiVersion": "0.6.0", "kind": kind,
            "containerEdits": { "env": ["ALL=yes"] },
            "devices": [{ "name": "one", "containerEdits": edits }, { "name": "two" }],
        });
        let file = Path::new("/var/run/cdi").join(format!("skiff-{class}.json"));
        fs::create_dir_all("/var/run/cdi").expect("a folder");
        fs::write(&file, specification.to_string()).expect("written");
        Described { file, kind }
    }

    fn named(&self, device: &str) -> impl FnOnce(&mut ContainerConfig) + use<> {
        let name = format!("{}={device}", self.kind);
        move |config| config.cdi_devices = vec![CdiDevice { name }]
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_what_its_devices_need() {
    let machine = Machine::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("library"), "code").expect("written");
    let described = Described::new(folder.path());
    let sandbox = machine.sandbox().await;
    let look = "echo $FOUND $ALL; cat /driver/library; echo; head -c 3 /dev/thing | od -An -tx1; \
                touch /driver/x 2>/dev/null || echo too";
    let (code, said) = machine.output(&sandbox, look, described.named("one")).await;
    let words: Vec<&str> =
        said.split_whitespace().filter(|word| !["stdout", "F"].contains(word)).collect();
    assert_eq!(code, 0, "{said}");
    assert_eq!(words, ["it", "yes", "code", "00", "00", "00", "too"], "{said}");
    // The other device has only what all of its kind have.
    let (_, said) =
        machine.output(&sandbox, "echo [$FOUND] $ALL; ls /dev", described.named("two")).await;
    assert!(said.contains("[] yes") && !said.contains("thing"), "{said}");
    let refused = machine.create(&sandbox, "true", described.named("three")).await.unwrap_err();
    assert!(refused.message().contains("unresolvable CDI devices"), "{refused}");
    machine.finish().await;
}
