//! A network and the addresses in it.
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// `10.244.0.0/24`; bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

#[derive(Debug, thiserror::Error)]
#[error("invalid CIDR {0:?}: it is an address and a prefix length, such as 10.244.0.0/24")]
pub struct CidrError(String);

impl Cidr {
    pub fn address(self) -> IpAddr {
        self.address
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    fn bits(self) -> u8 {
        if self.is_ipv4() { 32 } else { 128 }
    }

    fn first(self) -> u128 {
        number(self.address)
    }

    /// The last address.
    fn last(self) -> u128 {
        let host = u32::from(self.bits() - self.prefix);
        self.first() | 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1)
    }

    /// One address alone.
    #[cfg(feature = "live")]
    pub(crate) fn whole(address: IpAddr) -> Cidr {
        Cidr { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The first and the last address, as numbers.
    #[cfg(feature = "live")]
    pub(crate) fn bounds(self) -> (u128, u128) {
        (self.first(), self.last())
    }

    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4()
            && (self.first()..=self.last()).contains(&number(address))
    }

    /// The host's own address in it: the first after the network's.
    pub fn gateway(self) -> IpAddr {
        self.at(1)
    }

    /// The address so many behind the network's.
    pub fn at(self, offset: u32) -> IpAddr {
        self.nth(self.first().saturating_add(offset.into()))
    }

    /// The host's own address at the end of a tunnel, which no pod gets: of IPv4 the network's, as
    /// others have it too, and of IPv6 the last, because the first is every router's.
    pub fn tunnel(self) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => self.address,
            IpAddr::V6(_) => self.nth(self.last()),
        }
    }

    /// An address that nobody has: the next after the one given last, so that an address rests
    /// before it comes back. A peer may still have connections to a pod that is gone.
    pub fn next(self, after: Option<IpAddr>, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let first = self.first().saturating_add(2);
        // That of IPv4 is for broadcasts.
        let last = self.last().saturating_sub(1);
        let begin = after
            .filter(|after| self.contains(*after))
            .map(|after| number(after).saturating_add(1))
            .filter(|begin| (first..=last).contains(begin))
            .unwrap_or(first);
        let is_free = |address: &IpAddr| !taken.contains(address);
        // As many as are taken, and one more, are enough to look at on either side.
        let look = taken.len() + 1;
        let behind = (begin..=last).take(look).map(|number| self.nth(number)).find(is_free);
        behind
            .or_else(|| (first..begin.min(last + 1)).take(look).map(|n| self.nth(n)).find(is_free))
    }

    fn nth(self, number: u128) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let wrong = || CidrError(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let whole = Cidr { address, prefix };
        if prefix > whole.bits() {
            return Err(wrong());
        }
        let host = u32::from(whole.bits() - prefix);
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        Ok(Cidr { address: whole.nth(number(address) & mask), prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cidr: &str, after: &str, taken: &[&str], expected: &str) {
        let taken = taken.iter().map(|address| address.parse().unwrap()).collect();
        let next = cidr.parse::<Cidr>().unwrap().next(after.parse().ok(), &taken);
        let next = next.map(|address| address.to_string()).unwrap_or_default();
        assert_eq!(next, expected, "{cidr} after {after}");
    }

    #[test]
    fn addresses_go_round() {
        check("10.1.0.0/29", "", &[], "10.1.0.2");
        check("10.1.0.0/29", "10.1.0.2", &[], "10.1.0.3");
        check("10.1.0.0/29", "10.1.0.6", &[], "10.1.0.2");
        check("10.1.0.0/29", "10.1.0.5", &["10.1.0.6", "10.1.0.2"], "10.1.0.3");
        check("10.1.0.0/29", "10.9.0.5", &["10.1.0.2"], "10.1.0.3");
        let all = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"];
        check("10.1.0.0/29", "10.1.0.4", &all, "");
        check("10.1.0.0/29", "10.1.0.4", &all[..4], "10.1.0.6");
        check("10.1.0.0/29", "10.1.0.6", &all[1..], "10.1.0.2");
        check("fd00::/64", "", &[], "fd00::2");
        check("fd00::/64", "fd00::ff", &["fd00::100"], "fd00::101");
        check("10.1.0.0/31", "", &[], "");
        check("10.1.0.0/32", "", &[], "");
        check("fd00::/128", "", &[], "");
        check("::/0", "", &[], "::2");
    }

    #[test]
    fn what_is_no_cidr_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/3", "fd00::/129", "10.0.0.0/-1"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!("10.1.2.3/16".parse::<Cidr>().unwrap().to_string(), "10.1.0.0/16");
        assert_eq!("10.1.2.3/16".parse::<Cidr>().unwrap().gateway().to_string(), "10.1.0.1");
    }
}
