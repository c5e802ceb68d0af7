//! How fast a link may be (`linux/pkt_sched.h`): what leaves by it waits in a token bucket. What comes
//! in cannot wait, so it is led through a link of its own (`ifb`), by which it leaves.
use crate::message::{CREATE, EXCLUSIVE, REPLACE};
use crate::route::LINK_MTU;
use crate::{Attributes, Message, NetlinkError, Socket};

const NEW_QUEUE: u16 = 36;
const DELETE_QUEUE: u16 = 37;
const NEW_FILTER: u16 = 44;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;

const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_HANDLE: u32 = 0xffff_0000;

/// How long a packet may wait at most before it is dropped.
const LATENCY_MS: u64 = 25;

impl Socket {
    /// What leaves by the link has so many bits a second, and a burst of so many bytes at once.
    pub fn shape(
        &mut self,
        link: u32,
        bits_per_second: u64,
        burst: u32,
    ) -> Result<(), NetlinkError> {
        let attributes =
            Attributes::new().text(KIND, "tbf").nested(OPTIONS, bucket(bits_per_second / 8, burst));
        let header = header(link, 0x0001_0000, ROOT, 0);
        self.request(
            "limit a link's rate",
            Message::new(NEW_QUEUE, CREATE | REPLACE, &header, attributes),
        )
    }

    /// As if nobody had limited it.
    pub fn unshape(&mut self, link: u32) -> Result<(), NetlinkError> {
        let message = Message::new(DELETE_QUEUE, 0, &header(link, 0, ROOT, 0), Attributes::new());
        match self.request("free a link's rate", message) {
            Err(error) if error.is_missing() || error.is_invalid() => Ok(()),
            other => other,
        }
    }

    /// A link for what comes in by another; its index. One that is there is taken.
    pub fn ensure_ifb(&mut self, name: &str, mtu: u32) -> Result<u32, NetlinkError> {
        self.ensure_link(name, "ifb", None, Attributes::new().u32(LINK_MTU, mtu))
    }

    /// What comes in by a link leaves by another before it goes on.
    pub fn redirect(&mut self, from: u32, through: u32) -> Result<(), NetlinkError> {
        let attributes = Attributes::new().text(KIND, "ingress");
        let queue = header(from, INGRESS_HANDLE, INGRESS, 0);
        let message = Message::new(NEW_QUEUE, CREATE | EXCLUSIVE, &queue, attributes);
        match self.request("watch what comes in by a link", message) {
            // Whoever made it has led it somewhere too.
            Err(error) if error.is_existing() => return Ok(()),
            other => other?,
        }
        const PRIORITY: u32 = 1 << 16;
        let everything = u32::from(0x0003_u16.to_be());
        let filter = header(from, 0, INGRESS_HANDLE, PRIORITY | everything);
        let attributes = Attributes::new().text(KIND, "u32").nested(OPTIONS, all_to(through));
        let message = Message::new(NEW_FILTER, CREATE | EXCLUSIVE, &filter, attributes);
        self.request("lead what comes in by a link", message)
    }
}

/// `struct tcmsg`.
fn header(link: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [link, handle, parent, info] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// `TCA_OPTIONS` of a token bucket.
fn bucket(bytes_per_second: u64, burst: u32) -> Attributes {
    const PARAMETERS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    const ETHERNET: u8 = 1;
    let limit = bytes_per_second * LATENCY_MS / 1000 + u64::from(burst);
    // `struct tc_ratespec`: with a link layer that is known, nobody needs a table.
    let mut rate = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    rate.extend(u32::try_from(bytes_per_second).unwrap_or(u32::MAX).to_ne_bytes());
    let mut parameters = rate;
    parameters.extend([0; 12]);
    parameters.extend(u32::try_from(limit).unwrap_or(u32::MAX).to_ne_bytes());
    parameters.extend([0; 8]);
    let mut options = Attributes::new().bytes(PARAMETERS, &parameters);
    if bytes_per_second > u64::from(u32::MAX) {
        options = options.bytes(RATE64, &bytes_per_second.to_ne_bytes());
    }
    options.u32(BURST, burst)
}

/// `TCA_OPTIONS` of a filter that takes everything, and redirects it.
fn all_to(link: u32) -> Attributes {
    const SELECTOR: u16 = 5;
    const ACTIONS: u16 = 7;
    const FIRST: u16 = 1;
    const ACTION_PARAMETERS: u16 = 2;
    const STOLEN: i32 = 4;
    const REDIRECT: i32 = 1;
    // `struct tc_u32_sel`: terminal, with one key that compares no bit.
    let mut selector = vec![1, 0, 1, 0];
    selector.resize(16, 0);
    selector.extend([0; 16]);
    let mut action = Vec::new();
    for word in [0, 0, STOLEN, 0, 0, REDIRECT] {
        action.extend(word.to_ne_bytes());
    }
    action.extend(link.to_ne_bytes());
    let parameters = Attributes::new().bytes(ACTION_PARAMETERS, &action);
    let redirect = Attributes::new().text(KIND, "mirred").nested(OPTIONS, parameters);
    Attributes::new()
        .bytes(SELECTOR, &selector)
        .nested(ACTIONS, Attributes::new().nested(FIRST, redirect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use crate::namespace::within;
    use crate::route::Veth;
    use crate::testing::{Held, isolated, path};
    use std::io::{Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const BYTES: usize = 400_000;

    /// How long that many bytes take from a namespace to an address in another.
    fn takes(from: &Path, to: &Path, address: IpAddr) -> Duration {
        let listener = within(to, || TcpListener::bind((address, 90))).unwrap().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                all.len()
            });
            let at = SocketAddr::new(address, 90);
            let mut stream = within(from, || TcpStream::connect(at)).unwrap().unwrap();
            let begun = Instant::now();
            stream.write_all(&vec![7; BYTES]).unwrap();
            drop(stream);
            assert_eq!(server.join().unwrap(), BYTES);
            begun.elapsed()
        })
    }

    #[test]
    fn a_link_is_as_fast_as_it_is_told_in_both_directions() {
        isolated(|| {
            let mut here = Socket::open(Family::Route).unwrap();
            let pod = Held::new();
            let file = std::fs::File::open(&pod.path).unwrap();
            let bridge = here.ensure_bridge("br0", 1500).unwrap();
            let (name, peer, namespace) = ("v0", "eth0", file.as_fd());
            here.create_veth(&Veth { name, peer, namespace, master: bridge, mtu: 1500 }).unwrap();
            let (own, far): (IpAddr, IpAddr) =
                ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
            here.add_address(bridge, own, 24).unwrap();
            let mut inside = Socket::open_in(Family::Route, &pod.path).unwrap();
            let eth0 = inside.link("eth0").unwrap().unwrap().index;
            inside.set_link_up(eth0).unwrap();
            inside.add_address(eth0, far, 24).unwrap();
            let port = here.link("v0").unwrap().unwrap().index;
            // A megabyte a second: a load that takes longer without a limit proves nothing, one
            // that takes less with it proves that there is none.
            let least = Duration::from_millis(250);
            here.shape(port, 8_000_000, 20_000).unwrap();
            here.shape(port, 8_000_000, 20_000).unwrap();
            assert!(takes(&path(), &pod.path, far) > least, "into it");
            here.unshape(port).unwrap();
            here.unshape(port).unwrap();
            let ifb = here.ensure_ifb("i0", 1500).unwrap();
            assert_eq!(here.ensure_ifb("i0", 1500).unwrap(), ifb);
            here.redirect(port, ifb).unwrap();
            here.redirect(port, ifb).unwrap();
            here.shape(ifb, 8_000_000, 20_000).unwrap();
            assert!(takes(&pod.path, &path(), own) > least, "out of it");
            here.shape(port, 80_000_000_000, 20_000).unwrap();
        });
    }
}
