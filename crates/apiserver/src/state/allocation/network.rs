//! A range of addresses that services get theirs from.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The network's own address.
    base: u128,
    /// How many addresses can be given: numbers 1 to this.
    pub size: u128,
    pub is_v6: bool,
    bits: u8,
}

impl Network {
    pub fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let (value, is_v6, width) = match address {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), false, 32),
            IpAddr::V6(ip) => (u128::from(ip), true, 128),
        };
        let free = u32::from(width - bits.min(width));
        let whole = 1u128.checked_shl(free).unwrap_or(u128::MAX);
        let base = value & !(whole - 1);
        // Neither the network's own address nor, in IPv4, its broadcast address.
        let size = if is_v6 { whole - 1 } else { whole.saturating_sub(2) };
        Some(Network { base, size, is_v6, bits })
    }

    /// The address of a number.
    pub fn address(&self, number: u128) -> IpAddr {
        let value = self.base + number;
        match self.is_v6 {
            // It began as 32 bits and the number stays within the range.
            false => IpAddr::V4(Ipv4Addr::from(u32::try_from(value).unwrap_or(u32::MAX))),
            true => IpAddr::V6(Ipv6Addr::from(value)),
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (value, is_v6) = match address {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), false),
            IpAddr::V6(ip) => (u128::from(ip), true),
        };
        is_v6 == self.is_v6 && value > self.base && value - self.base <= self.size
    }

    /// The lower numbers, up to this one, are for those who ask for one by name: upstream's band.
    pub fn reserved(&self) -> u128 {
        match self.size {
            small if small < 16 => 0,
            size => (size / 16).clamp(16, 256),
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(0), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_gives_its_addresses_but_its_own() {
        let network = Network::parse("10.96.0.0/12").expect("a network");
        assert_eq!(network.to_string(), "10.96.0.0/12");
        assert_eq!(network.address(1).to_string(), "10.96.0.1");
        assert_eq!(network.reserved(), 256);
        for (address, inside) in
            [("10.96.0.0", false), ("10.96.0.1", true), ("10.111.255.255", false), ("::1", false)]
        {
            assert_eq!(network.contains(address.parse().expect("an address")), inside, "{address}");
        }
        let six = Network::parse("fd00::/108").expect("a network");
        assert_eq!(six.address(10).to_string(), "fd00::a");
        assert!(Network::parse("10.0.0.0").is_none());
    }
}
