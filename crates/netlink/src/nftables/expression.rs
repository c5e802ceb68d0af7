//! What a rule is made of: each expression reads or writes registers, or ends the rule.
use super::{AddressFamily, Data, Verdict, value};
use crate::Attributes;

/// One of sixteen registers of 32 bits; longer values go on in those that follow.
pub type Register = u8;

const FIRST_REGISTER: u32 = 8;
const VERDICT_REGISTER: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The frame's own header.
    Link,
    Network,
    Transport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// What the frame carries (an EtherType).
    Carried = 1,
    Mark = 3,
    InputName = 6,
    OutputName = 7,
    Protocol = 16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Equal = 0,
    Other = 1,
    /// By bytes: numbers are compared as the network writes them.
    AtMost = 3,
    AtLeast = 5,
}

/// Which of a packet's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Source,
    Destination,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    State = 0,
    Status = 2,
}

#[derive(Debug, Clone)]
pub enum Expression<'a> {
    Payload {
        base: Base,
        offset: u32,
        length: u32,
        into: Register,
    },
    /// An address of the packet.
    Address {
        which: Direction,
        into: Register,
    },
    Meta {
        key: Meta,
        into: Register,
    },
    SetMark {
        from: Register,
    },
    /// Goes on if the register is (or is not) this.
    Compare {
        register: Register,
        how: Compare,
        with: Vec<u8>,
    },
    /// `register = register & mask ^ xor`.
    Bitwise {
        register: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Goes on if the key is in the set.
    Contains {
        set: &'a str,
        key: Register,
    },
    /// Goes on with the value in registers if the key is in the map.
    Map {
        map: &'a str,
        key: Register,
        into: Register,
    },
    /// Does what the map says of the key, if it says anything.
    VerdictMap {
        map: &'a str,
        key: Register,
    },
    /// Puts a value into registers.
    Immediate {
        into: Register,
        value: Data,
    },
    Verdict(Verdict),
    /// `offset` and up to `modulus - 1` more, at random.
    Random {
        into: Register,
        modulus: u32,
        offset: u32,
    },
    /// What kind of address this is to the host's routes.
    AddressType {
        which: Direction,
        into: Register,
    },
    /// What is known of the packet's connection.
    Connection {
        key: Connection,
        into: Register,
    },
    DestinationNat {
        address: Register,
        port: Register,
    },
    /// Goes on so often in a second, and once more for each of a burst.
    Limit {
        per_second: u64,
        burst: u32,
    },
    /// Tells whoever listens to the group of the packet (`netlink::log`).
    Log {
        group: u16,
        prefix: &'a str,
    },
    Masquerade,
    Reject,
    RejectTcp,
    /// Puts an element into a dynamic map, or prolongs its life.
    Remember {
        map: &'a str,
        key: Register,
        value: Register,
        seconds: u32,
    },
}

impl Expression<'_> {
    /// Goes on if an address of the packet is (or is not) in a network.
    pub fn network(
        which: Direction,
        how: Compare,
        network: std::net::IpAddr,
        prefix: u8,
        scratch: Register,
    ) -> Vec<Expression<'static>> {
        let address = crate::octets(network);
        let mask: Vec<u8> = (0..address.len() as u32)
            .map(|at| !0xff_u8.checked_shr(u32::from(prefix).saturating_sub(at * 8)).unwrap_or(0))
            .collect();
        let with = address.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
        vec![
            Expression::Address { which, into: scratch },
            Expression::Bitwise { register: scratch, xor: vec![0; mask.len()], mask },
            Expression::Compare { register: scratch, how, with },
        ]
    }

    /// Goes on if the packet came in by (or leaves by) a link, or does not.
    pub fn link(
        key: Meta,
        how: Compare,
        name: &str,
        scratch: Register,
    ) -> [Expression<'static>; 2] {
        let mut with = name.as_bytes().to_vec();
        with.resize(16, 0);
        let register = scratch;
        [Expression::Meta { key, into: scratch }, Expression::Compare { register, how, with }]
    }

    /// Goes on if an address is one of the host's own, or is not.
    pub fn local(which: Direction, how: Compare, scratch: Register) -> [Expression<'static>; 2] {
        const LOCAL: u32 = 2;
        let with = LOCAL.to_ne_bytes().to_vec();
        [
            Expression::AddressType { which, into: scratch },
            Expression::Compare { register: scratch, how, with },
        ]
    }

    /// Goes on for the first packet of a connection.
    pub fn new_connection(scratch: Register) -> [Expression<'static>; 3] {
        const NEW: u32 = 8;
        Expression::bit(Connection::State, NEW, scratch)
    }

    /// Goes on for packets of connections that were let through before, and for what errors say
    /// about them.
    pub fn known_connection(scratch: Register) -> [Expression<'static>; 3] {
        const ESTABLISHED: u32 = 2;
        const RELATED: u32 = 4;
        Expression::bit(Connection::State, ESTABLISHED | RELATED, scratch)
    }

    /// Goes on for connections whose destination was changed.
    pub fn destination_changed(scratch: Register) -> [Expression<'static>; 3] {
        const DESTINATION_NAT: u32 = 1 << 5;
        Expression::bit(Connection::Status, DESTINATION_NAT, scratch)
    }

    fn bit(key: Connection, bit: u32, scratch: Register) -> [Expression<'static>; 3] {
        let (register, mask) = (scratch, bit.to_ne_bytes().to_vec());
        [
            Expression::Connection { key, into: scratch },
            Expression::Bitwise { register, mask, xor: vec![0; 4] },
            Expression::Compare { register, how: Compare::Other, with: vec![0; 4] },
        ]
    }

    /// Goes on if a bit of the packet's mark is set.
    pub fn marked(bit: u32, scratch: Register) -> [Expression<'static>; 3] {
        let (register, mask) = (scratch, bit.to_ne_bytes().to_vec());
        [
            Expression::Meta { key: Meta::Mark, into: scratch },
            Expression::Bitwise { register, mask, xor: vec![0; 4] },
            Expression::Compare { register, how: Compare::Other, with: vec![0; 4] },
        ]
    }

    /// Goes on for frames that carry this (an EtherType).
    pub fn carried(kind: u16, scratch: Register) -> [Expression<'static>; 2] {
        let with = kind.to_be_bytes().to_vec();
        [
            Expression::Meta { key: Meta::Carried, into: scratch },
            Expression::Compare { register: scratch, how: Compare::Equal, with },
        ]
    }

    /// Goes on if the packet came in by a link whose name begins so.
    pub fn link_like(key: Meta, prefix: &str, scratch: Register) -> [Expression<'static>; 2] {
        let (register, with) = (scratch, prefix.as_bytes().to_vec());
        [
            Expression::Meta { key, into: scratch },
            Expression::Compare { register, how: Compare::Equal, with },
        ]
    }

    /// Goes on for packets of a protocol.
    pub fn protocol(number: u8, scratch: Register) -> [Expression<'static>; 2] {
        let with = vec![number];
        [
            Expression::Meta { key: Meta::Protocol, into: scratch },
            Expression::Compare { register: scratch, how: Compare::Equal, with },
        ]
    }

    /// Sets and clears bits of the packet's mark.
    pub fn mark(set: u32, clear: u32, scratch: Register) -> [Expression<'static>; 3] {
        let mask = (!(set | clear)).to_ne_bytes().to_vec();
        let xor = set.to_ne_bytes().to_vec();
        [
            Expression::Meta { key: Meta::Mark, into: scratch },
            Expression::Bitwise { register: scratch, mask, xor },
            Expression::SetMark { from: scratch },
        ]
    }

    pub(super) fn attributes(&self, family: AddressFamily) -> Attributes {
        let (name, data) = self.parts(family);
        Attributes::new().text(1, name).nested(2, data)
    }

    fn parts(&self, family: AddressFamily) -> (&'static str, Attributes) {
        let new = Attributes::new;
        match self {
            Expression::Payload { base, offset, length, into } => {
                let base = match base {
                    Base::Link => 0,
                    Base::Network => 1,
                    Base::Transport => 2,
                };
                let data = new().be32(1, at(*into)).be32(2, base);
                ("payload", data.be32(3, *offset).be32(4, *length))
            }
            Expression::Address { which, into } => {
                let (source, length) = family.source();
                let offset = match which {
                    Direction::Source => source,
                    Direction::Destination => source + length,
                };
                let data = new().be32(1, at(*into)).be32(2, 1);
                ("payload", data.be32(3, offset).be32(4, length))
            }
            Expression::Meta { key, into } => {
                ("meta", new().be32(1, at(*into)).be32(2, *key as u32))
            }
            Expression::SetMark { from } => {
                ("meta", new().be32(2, Meta::Mark as u32).be32(3, at(*from)))
            }
            Expression::Compare { register, how, with } => {
                let data = new().be32(1, at(*register)).be32(2, *how as u32);
                ("cmp", data.nested(3, value(with)))
            }
            Expression::Bitwise { register, mask, xor } => {
                let data = new().be32(1, at(*register)).be32(2, at(*register));
                let data = data.be32(3, mask.len() as u32);
                ("bitwise", data.nested(4, value(mask)).nested(5, value(xor)))
            }
            Expression::Contains { set, key } => ("lookup", new().text(1, set).be32(2, at(*key))),
            Expression::Map { map, key, into } => {
                ("lookup", new().text(1, map).be32(2, at(*key)).be32(3, at(*into)))
            }
            Expression::VerdictMap { map, key } => {
                ("lookup", new().text(1, map).be32(2, at(*key)).be32(3, VERDICT_REGISTER))
            }
            Expression::Immediate { into, value: data } => {
                ("immediate", new().be32(1, at(*into)).nested(2, value(&data.0)))
            }
            Expression::Verdict(verdict) => {
                ("immediate", new().be32(1, VERDICT_REGISTER).nested(2, verdict.attributes()))
            }
            Expression::Random { into, modulus, offset } => {
                let data = new().be32(1, at(*into)).be32(2, *modulus);
                ("numgen", data.be32(3, 1).be32(4, *offset))
            }
            Expression::AddressType { which, into } => {
                const ADDRESS_TYPE: u32 = 3;
                let flags = match which {
                    Direction::Source => 1,
                    Direction::Destination => 2,
                };
                ("fib", new().be32(1, at(*into)).be32(2, ADDRESS_TYPE).be32(3, flags))
            }
            Expression::Connection { key, into } => {
                ("ct", new().be32(1, at(*into)).be32(2, *key as u32))
            }
            Expression::DestinationNat { address, port } => {
                let data = new().be32(1, 1).be32(2, u32::from(family.number()));
                ("nat", data.be32(3, at(*address)).be32(5, at(*port)))
            }
            Expression::Limit { per_second, burst } => {
                let data = new().be64(1, *per_second).be64(2, 1).be32(3, *burst);
                ("limit", data.be32(4, 0).be32(5, 0))
            }
            Expression::Log { group, prefix } => {
                ("log", new().be16(1, *group).text(2, prefix).be32(3, 128).be16(4, 1))
            }
            Expression::Masquerade => ("masq", new()),
            Expression::Reject => {
                // Port unreachable, as each family says it.
                let code = if family == AddressFamily::Ipv4 { 3 } else { 4 };
                ("reject", new().be32(1, 0).u8(2, code))
            }
            Expression::RejectTcp => ("reject", new().be32(1, 1)),
            Expression::Remember { map, key, value, seconds } => {
                let data = new().text(1, map).be32(3, 1).be32(4, at(*key)).be32(5, at(*value));
                ("dynset", data.be64(6, u64::from(*seconds) * 1000))
            }
        }
    }
}

fn at(register: Register) -> u32 {
    FIRST_REGISTER + u32::from(register)
}
