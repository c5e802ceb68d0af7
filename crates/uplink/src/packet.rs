//! What a packet says of itself, as far as it must be known to find whose it is.
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket, UdpRepr};
use std::net::SocketAddrV4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// One connection, from the side that began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub protocol: Protocol,
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
}

/// Whose a packet is. Broken ones, and pieces of larger ones, are nobody's.
pub fn key(bytes: &[u8]) -> Option<Key> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    if packet.more_frags() || packet.frag_offset() != 0 {
        return None;
    }
    let (protocol, from, to) = match packet.next_header() {
        IpProtocol::Tcp => {
            let segment = TcpPacket::new_checked(packet.payload()).ok()?;
            (Protocol::Tcp, segment.src_port(), segment.dst_port())
        }
        IpProtocol::Udp => {
            let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
            (Protocol::Udp, datagram.src_port(), datagram.dst_port())
        }
        _ => return None,
    };
    let from = SocketAddrV4::new(packet.src_addr(), from);
    Some(Key { protocol, from, to: SocketAddrV4::new(packet.dst_addr(), to) })
}

/// Whether somebody begins a connection with it.
pub fn begins_connection(bytes: &[u8]) -> bool {
    let Ok(packet) = Ipv4Packet::new_checked(bytes) else { return false };
    let Ok(segment) = TcpPacket::new_checked(packet.payload()) else { return false };
    segment.syn() && !segment.ack()
}

/// What a datagram carries.
pub fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
    let head = usize::from(packet.header_len()) + smoltcp::wire::UDP_HEADER_LEN;
    bytes.get(head..head + datagram.payload().len())
}

/// An answer to what came with this key.
pub fn datagram(key: &Key, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (IpAddress::Ipv4(*key.to.ip()), IpAddress::Ipv4(*key.from.ip()));
    let udp = UdpRepr { src_port: key.to.port(), dst_port: key.from.port() };
    let ip = Ipv4Repr {
        src_addr: *key.to.ip(),
        dst_addr: *key.from.ip(),
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload.len(),
        hop_limit: 64,
    };
    let checks = ChecksumCapabilities::default();
    let mut bytes = vec![0; ip.buffer_len() + ip.payload_len];
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[..]);
    ip.emit(&mut packet, &checks);
    let mut inner = UdpPacket::new_unchecked(packet.payload_mut());
    let fill = |place: &mut [u8]| place.copy_from_slice(payload);
    udp.emit(&mut inner, &from, &to, payload.len(), fill, &checks);
    bytes
}
