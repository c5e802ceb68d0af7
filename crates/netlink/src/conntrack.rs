//! Connections that the kernel remembers (`linux/netfilter/nfnetlink_conntrack.h`).
use crate::message::attribute;
use crate::{Attributes, Message, NetlinkError, Socket};
use std::net::IpAddr;

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const PROTOCOL_SOURCE_PORT: u16 = 2;
const PROTOCOL_DESTINATION_PORT: u16 = 3;

/// Where one direction of a connection comes from and goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub source_port: u16,
    pub destination_port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub original: Tuple,
    /// What the answer looks like: its source is whom the connection was sent to in truth.
    pub reply: Tuple,
    tuple: Vec<u8>,
}

impl Socket {
    pub fn connections(&mut self, ipv6: bool) -> Result<Vec<Connection>, NetlinkError> {
        let message = Message::new(GET, 0, &header(ipv6), Attributes::new());
        let answers = self.dump("list connections", message)?;
        Ok(answers.iter().filter_map(|answer| connection(answer)).collect())
    }

    /// Makes the kernel decide anew where the connections' next packets go.
    pub fn forget(&mut self, connections: &[Connection]) -> Result<(), NetlinkError> {
        let message = |connection: &Connection| {
            let tuple = Attributes::new().raw(&connection.tuple);
            let header = header(connection.original.source.is_ipv6());
            Message::new(DELETE, 0, &header, Attributes::new().nested(ORIGINAL, tuple))
        };
        for some in connections.chunks(AT_ONCE) {
            let all: Vec<Message> = some.iter().map(message).collect();
            match self.requests("forget connections", &all) {
                // It ended by itself meanwhile; the kernel goes on with those behind it.
                Err(error) if error.is_missing() => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// What is refused of so many fits into the socket.
const AT_ONCE: usize = 256;

fn header(ipv6: bool) -> [u8; 4] {
    [if ipv6 { 10 } else { 2 }, 0, 0, 0]
}

fn connection(body: &[u8]) -> Option<Connection> {
    let attributes = body.get(4..)?;
    let original = attribute(attributes, ORIGINAL)?;
    let reply = tuple(attribute(attributes, REPLY)?)?;
    Some(Connection { original: tuple(original)?, reply, tuple: original.to_vec() })
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (ip, protocol) = (attribute(bytes, TUPLE_IP)?, attribute(bytes, TUPLE_PROTOCOL)?);
    let address = |v4: u16, v6: u16| -> Option<IpAddr> {
        match attribute(ip, v4) {
            Some(bytes) => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
            None => Some(<[u8; 16]>::try_from(attribute(ip, v6)?).ok()?.into()),
        }
    };
    // Protocols without ports have none.
    let port = |kind| {
        let bytes = attribute(protocol, kind).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u16::from_be_bytes)
    };
    Some(Tuple {
        source: address(1, 3)?,
        destination: address(2, 4)?,
        protocol: *attribute(protocol, PROTOCOL_NUMBER)?.first()?,
        source_port: port(PROTOCOL_SOURCE_PORT),
        destination_port: port(PROTOCOL_DESTINATION_PORT),
    })
}
