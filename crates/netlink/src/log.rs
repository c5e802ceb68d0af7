//! Packets that rules tell of (`linux/netfilter/nfnetlink_log.h`).
use crate::message::{Message, attribute};
use crate::{Attributes, NetlinkError, Socket};

const SUBSYSTEM: u16 = 4 << 8;
const PACKET: u16 = SUBSYSTEM;
const CONFIGURE: u16 = SUBSYSTEM | 1;
const COMMAND: u16 = 1;
const MODE: u16 = 2;
const PREFIX: u16 = 10;
const PAYLOAD: u16 = 9;

/// One packet that a rule told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// What the rule says of it.
    pub prefix: String,
    /// The packet from its IP header on, cut short.
    pub packet: Vec<u8>,
}

impl Socket {
    /// From now on this socket hears of what rules send to a group. One socket hears of a group.
    pub fn listen(&mut self, group: u16) -> Result<(), NetlinkError> {
        const BIND: u8 = 1;
        const COPY_PACKET: u8 = 2;
        const BYTES: u32 = 128;
        let [high, low] = group.to_be_bytes();
        let header = [0, 0, high, low];
        let bind = Attributes::new().u8(COMMAND, BIND);
        self.request("listen to packets", Message::new(CONFIGURE, 0, &header, bind))?;
        let mut mode = BYTES.to_be_bytes().to_vec();
        mode.extend([COPY_PACKET, 0]);
        let mode = Attributes::new().bytes(MODE, &mode);
        self.request("listen to packets", Message::new(CONFIGURE, 0, &header, mode))
    }

    /// Packets that have come since, after waiting for the first. Those that were lost are not told.
    pub fn logged(&mut self) -> Result<Vec<Logged>, NetlinkError> {
        let mut all = Vec::new();
        self.hear("hear of packets", |kind, body| {
            if kind == PACKET {
                all.extend(body.get(4..).and_then(logged));
            }
        })?;
        Ok(all)
    }
}

fn logged(attributes: &[u8]) -> Option<Logged> {
    let prefix = attribute(attributes, PREFIX).unwrap_or_default();
    let prefix = prefix.strip_suffix(&[0]).unwrap_or(prefix);
    let packet = attribute(attributes, PAYLOAD)?.to_vec();
    Some(Logged { prefix: String::from_utf8_lossy(prefix).into_owned(), packet })
}
