//! Addresses to be given: to load balancers, to Gateways.
use std::net::IpAddr;
use std::str::FromStr;

/// Ranges of addresses: `192.0.2.100-192.0.2.120,2001:db8::/120`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool(Vec<(IpAddr, IpAddr)>);

#[derive(Debug, thiserror::Error)]
#[error(
    "invalid range of addresses {0:?}: it is an address, two with a dash between, or a CIDR, such as \
     192.0.2.100-192.0.2.120"
)]
pub struct PoolError(String);

impl Pool {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(first, last)| {
            first.is_ipv4() == address.is_ipv4() && (*first..=*last).contains(&address)
        })
    }

    /// The first address of a family that nobody has.
    pub fn free(&self, is_ipv4: bool, is_taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let ranges = self.0.iter().filter(|(first, _)| first.is_ipv4() == is_ipv4);
        ranges
            .flat_map(|(first, last)| {
                (number(*first)..=number(*last)).map(move |number| address(is_ipv4, number))
            })
            .find(|address| !is_taken(*address))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(is_ipv4: bool, number: u128) -> IpAddr {
    match is_ipv4 {
        true => std::net::Ipv4Addr::from_bits(number as u32).into(),
        false => std::net::Ipv6Addr::from_bits(number).into(),
    }
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranges: Vec<String> =
            self.0.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        f.write_str(&ranges.join(","))
    }
}

impl FromStr for Pool {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Pool, PoolError> {
        text.split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(range)
            .collect::<Result<_, _>>()
            .map(Pool)
    }
}

fn range(text: &str) -> Result<(IpAddr, IpAddr), PoolError> {
    let wrong = || PoolError(text.to_owned());
    let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (parse(first)?, parse(last)?)
    } else if let Some((first, prefix)) = text.split_once('/') {
        let first = parse(first)?;
        let bits: u32 = if first.is_ipv4() { 32 } else { 128 };
        let prefix: u32 = prefix.parse().map_err(|_| wrong())?;
        let host = bits.checked_sub(prefix).ok_or_else(wrong)?;
        let mask = 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        let low = number(first) & !mask;
        (address(first.is_ipv4(), low), address(first.is_ipv4(), low | mask))
    } else {
        (parse(text)?, parse(text)?)
    };
    match first.is_ipv4() == last.is_ipv4() && first <= last {
        true => Ok((first, last)),
        false => Err(wrong()),
    }
}
