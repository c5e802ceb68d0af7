//! `--encrypt`, on a kernel that cannot.
use crate::cluster::places;
use tempfile::TempDir;
use testkit::network::{machine, within};

#[test]
fn encryption_that_cannot_be_had_is_refused_before_anything_is_touched() {
    match ::network::encryption() {
        Ok(()) => return eprintln!("skipped: the kernel has WireGuard"),
        Err(error) => assert!(error.is_unsupported(), "{error}"),
    }
    let (machine, folder) = (machine(), TempDir::new().expect("a temporary folder"));
    let links = || {
        let links = netlink::namespace::within(&machine.path, || {
            netlink::Socket::open(netlink::Family::Route)?.links()
        });
        let links = links.expect("entered").expect("links");
        links.into_iter().map(|link| link.name).collect::<Vec<_>>()
    };
    let before = links();
    for words in [&["up"][..], &["server"], &["agent", "--server=https://127.0.0.1:1"]] {
        let mut command = within(Some(&machine), env!("CARGO_BIN_EXE_skiff").as_ref());
        command.args(words).args(["--encrypt", "--node-name=node"]).args(places(&folder));
        command.arg("--data-dir").arg(folder.path().join("data"));
        let output = command.output().expect("skiff runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = "--encrypt needs WireGuard, which this kernel does not have: load it with \
                    `modprobe wireguard`, or use a kernel with CONFIG_WIREGUARD";
        assert!(!output.status.success() && said.contains(text), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}: {:?}", output.stdout);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    assert_eq!(links(), before);
}
