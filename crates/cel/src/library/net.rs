//! IP addresses and CIDRs.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};
use api::quote::Quoted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub static ROWS: &[Row] = &[
    row("ip", &["(string) -> IP"], ip, cost::traversal),
    row("ip", &["CIDR.() -> IP"], cidr_ip, cost::one),
    row("isIP", &["(string) -> bool"], is_ip, cost::traversal),
    row("ip.isCanonical", &["(string) -> bool"], is_canonical, cost::twice),
    row("family", &["IP.() -> int"], family, cost::one),
    row(
        "isUnspecified",
        &["IP.() -> bool"],
        |_, args| test(args, |ip| ip.is_unspecified()),
        cost::one,
    ),
    row("isLoopback", &["IP.() -> bool"], |_, args| test(args, |ip| ip.is_loopback()), cost::one),
    row(
        "isLinkLocalMulticast",
        &["IP.() -> bool"],
        |_, args| test(args, is_link_local_multicast),
        cost::one,
    ),
    row(
        "isLinkLocalUnicast",
        &["IP.() -> bool"],
        |_, args| test(args, is_link_local_unicast),
        cost::one,
    ),
    row("isGlobalUnicast", &["IP.() -> bool"], |_, args| test(args, is_global_unicast), cost::one),
    row("string", &["(IP) -> string", "(CIDR) -> string"], string, cost::one),
    row("cidr", &["(string) -> CIDR"], cidr, cost::traversal),
    row("isCIDR", &["(string) -> bool"], is_cidr, cost::traversal),
    row(
        "containsIP",
        &["CIDR.(string) -> bool", "CIDR.(IP) -> bool"],
        contains_ip,
        cost::contains_ip,
    ),
    row(
        "containsCIDR",
        &["CIDR.(string) -> bool", "CIDR.(CIDR) -> bool"],
        contains_cidr,
        cost::contains_cidr,
    ),
    row("prefixLength", &["CIDR.() -> int"], prefix_length, cost::one),
    row("masked", &["CIDR.() -> CIDR"], masked, cost::one),
];

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// Of an address, in bytes.
pub fn size(address: IpAddr) -> u64 {
    if address.is_ipv4() { 4 } else { 16 }
}

impl Cidr {
    /// In bytes, of the prefix.
    pub fn size(&self) -> u64 {
        u64::from(self.bits).div_ceil(8)
    }

    fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Cidr { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Cidr { address, bits: self.bits }.masked() == self.masked()
    }
}

fn text<'v>(args: &'v [Value<'_>]) -> Result<&'v str, Error> {
    match args {
        [text] => text.as_str().ok_or(Error::NoOverload),
        _ => Err(Error::NoOverload),
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let parsed: Option<IpAddr> = address.parse().ok();
    let quoted = Quoted(text);
    let Some(ip) = parsed.filter(|ip| zone.is_none() || ip.is_ipv6()) else {
        return Err(Error::Said(format!(
            "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): {}",
            fault(text)
        )));
    };
    if zone.is_some() {
        return Err(Error::Said(format!("IP address {quoted} with zone value is not allowed")));
    }
    match ip {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(Error::Said(format!("IPv4-mapped IPv6 address {quoted} is not allowed")))
        }
        ip => Ok(ip),
    }
}

/// What Go's `netip` says of an address that is none: the common cases.
fn fault(text: &str) -> &'static str {
    if text.contains(':') {
        return "unexpected character, want colon";
    }
    if !text.contains('.') {
        return "unable to parse IP";
    }
    let fields: Vec<&str> = text.split('.').collect();
    for field in &fields {
        if field.is_empty() {
            return "IPv4 field must have at least one digit";
        }
        if field.bytes().any(|byte| !byte.is_ascii_digit()) {
            return "unexpected character";
        }
        if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero";
        }
        if field.parse::<u8>().is_err() {
            return "IPv4 field has value >255";
        }
    }
    if fields.len() < 4 { "IPv4 address too short" } else { "IPv4 address too long" }
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let quoted = Quoted(text);
    let wrong = |why: &str| {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({quoted}): {why}"
        )
    };
    let Some((address, bits)) = text.rsplit_once('/') else {
        return Err(wrong("no '/'"));
    };
    let ip: IpAddr = match address.parse() {
        Ok(ip) => ip,
        Err(_) if address.contains('%') => {
            return Err(wrong("IPv6 zones cannot be present in a prefix"));
        }
        Err(_) => {
            return Err(wrong(&format!("ParseAddr({}): {}", Quoted(address), fault(address))));
        }
    };
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let plain = !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits == "0" || !bits.starts_with('0'));
    let length = bits.parse::<u8>().ok().filter(|length| plain && *length <= most);
    let Some(bits) = length else {
        let why = if plain { "prefix length out of range" } else { "bad bits after slash: " };
        let shown = if plain { why.to_owned() } else { format!("{why}{}", Quoted(bits)) };
        return Err(wrong(&shown));
    };
    match ip {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"))
        }
        address => Ok(Cidr { address, bits }),
    }
}

fn ip<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    parse_ip(text(args)?).map(Value::Ip)
}

fn cidr_ip<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
        _ => Err(Error::NoOverload),
    }
}

fn is_ip<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parse_ip(text(args)?).is_ok()))
}

fn is_canonical<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args)?;
    Ok(Value::Bool(parse_ip(text)?.to_string() == text))
}

fn family<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Ip(ip)] => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => Err(Error::NoOverload),
    }
}

fn test<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Outcome<'a> {
    match args {
        [Value::Ip(ip)] => Ok(Value::Bool(holds(ip))),
        _ => Err(Error::NoOverload),
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(broadcast
        || ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || is_link_local_unicast(ip))
}

fn string<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Ip(ip)] => Ok(Value::text(ip.to_string())),
        [Value::Cidr(cidr)] => Ok(Value::text(format!("{}/{}", cidr.address, cidr.bits))),
        _ => Err(Error::NoOverload),
    }
}

fn cidr_of(text: &str) -> Result<Cidr, Error> {
    parse_cidr(text).map_err(|why| {
        Error::Said(format!("network address parse error during conversion from string: {why}"))
    })
}

fn cidr<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    cidr_of(text(args)?).map(Value::Cidr)
}

fn is_cidr<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parse_cidr(text(args)?).is_ok()))
}

fn contains_ip<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (cidr, ip) = match args {
        [Value::Cidr(cidr), Value::Ip(ip)] => (cidr, *ip),
        [Value::Cidr(cidr), text] => (cidr, parse_ip(text.as_str().ok_or(Error::NoOverload)?)?),
        _ => return Err(Error::NoOverload),
    };
    Ok(Value::Bool(cidr.contains(ip)))
}

fn contains_cidr<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (cidr, other) = match args {
        [Value::Cidr(cidr), Value::Cidr(other)] => (cidr, *other),
        [Value::Cidr(cidr), text] => (cidr, cidr_of(text.as_str().ok_or(Error::NoOverload)?)?),
        _ => return Err(Error::NoOverload),
    };
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address)))
}

fn prefix_length<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr)] => Ok(Value::Int(cidr.bits.into())),
        _ => Err(Error::NoOverload),
    }
}

fn masked<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr)] => Ok(Value::Cidr(cidr.masked())),
        _ => Err(Error::NoOverload),
    }
}
