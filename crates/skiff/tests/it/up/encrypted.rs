//! `--encrypt`: on a kernel that cannot, and on one that can.
use super::machines::{Agent, READY, SPREAD, nodes_of_pods, until};
use crate::cluster::{Cluster, places};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::FromRawFd;
use tempfile::TempDir;
use testkit::network::{Held, Machines, machine, machines, within};

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

/// Everything that goes over the switch between machines, from now on.
struct Wire(std::fs::File);

impl Wire {
    fn tap(switch: &Held) -> Wire {
        let open = || {
            let all = libc::c_int::from((libc::ETH_P_ALL as u16).to_be());
            let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: a new descriptor, or -1; nothing is passed by address.
            let socket = unsafe { libc::socket(libc::AF_PACKET, flags, all) };
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: the descriptor was made above, and nobody else has it.
            Wire(unsafe { std::fs::File::from_raw_fd(socket) })
        };
        netlink::namespace::within(&switch.path, open).expect("entered")
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let (mut frames, mut buffer) = (Vec::new(), vec![0; 65_536]);
        while let Ok(length) = self.0.read(&mut buffer) {
            frames.push(buffer[..length].to_vec());
        }
        frames
    }
}

/// What an IPv4 frame says of itself: from, to, and the port of a UDP packet.
fn head(frame: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, Option<u16>)> {
    let packet = frame.strip_prefix(frame.get(..12)?)?.strip_prefix(&[8, 0])?;
    let address = |at: usize| -> Option<Ipv4Addr> {
        Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
    };
    let length = usize::from(packet[0] & 15) * 4;
    let port =
        packet.get(length + 2..length + 4).map(|port| u16::from_be_bytes([port[0], port[1]]));
    Some((address(12)?, address(16)?, port.filter(|_| packet[9] == 17)))
}

/// Two machines and pods on both, and what a machine between them could read.
#[test]
fn what_pods_of_different_machines_say_cannot_be_read_between_them() {
    if let Err(error) = ::network::encryption() {
        assert!(error.is_unsupported(), "{error}");
        return eprintln!("skipped: the kernel has no WireGuard");
    }
    let Machines { mut all, switch } = machines(2);
    let other = all.pop().expect("two machines");
    let cluster = Cluster::whole_on(all.remove(0), &["--encrypt"]);
    let mut agent = Agent::join_with(&cluster, other, 0, &["--encrypt"]);
    let mut wire = Wire::tap(&switch);
    cluster.kubectl_with("apply -f -", SPREAD);
    until("a pod on each", || nodes_of_pods(&cluster) == ["node", "other"]);
    cluster.until(READY, "2");
    cluster.kubectl("wait --for=condition=Ready pod/client --timeout=60s");
    let there = cluster.kubectl(
        "get pods -l app=web --field-selector spec.nodeName=other -o jsonpath={.items[0].metadata.name}",
    );
    let fetch = || cluster.kubectl("exec client -- /skiff demo --get http://web/hostname");
    let (mut sealed, mut other_frames) = (0, 0);
    let mut look = |wire: &mut Wire| {
        for frame in wire.frames() {
            let Some((from, to, port)) = head(&frame) else { continue };
            let is_of_pods = |address: Ipv4Addr| address.octets()[..2] == [10, 244];
            assert!(!is_of_pods(from) && !is_of_pods(to), "in the clear: {from} to {to}");
            match port {
                Some(51820) => sealed += 1,
                port => {
                    assert!(port != Some(8472) && port != Some(4789), "a tunnel without a lock");
                    other_frames += 1;
                }
            }
            let is_told = frame.windows(there.len()).any(|part| part == there.as_bytes());
            assert!(!is_told, "the answer of {there} can be read: {from} to {to}, {port:?}");
        }
    };
    until("the pod on the other machine answers", || {
        look(&mut wire);
        fetch() == there
    });

    // One that has lost its key, as by a start of the machine, has another: it is heard of, and the same
    // pods are found again.
    agent.kill();
    let key = agent.folder.path().join("run/network/wireguard-key");
    std::fs::remove_file(&key).unwrap_or_else(|error| panic!("{}: {error}", key.display()));
    agent.start_again(0, &["--encrypt"]);
    until("the pod on the other machine answers again", || {
        look(&mut wire);
        fetch() == there
    });
    look(&mut wire);
    assert!(sealed > 0 && other_frames > 0, "{sealed} sealed, {other_frames} others");
}
