//! IP addresses and CIDR blocks in fields.
//!
//! Old fields accept what upstream's parser once did: leading zeros, which some programs take
//! for octal, and IPv4 addresses in IPv6 clothes, which some programs take for either. Strict
//! validation refuses both; new fields want the canonical form on top
//! (`k8s.io/apimachinery/pkg/util/validation/ip.go`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Error, ErrorList, Path};
use crate::quote::Quoted;

/// A new field that holds an address: it must be written in the canonical form.
pub fn ip(path: &Path<'_>, value: &str) -> ErrorList {
    let mut errors = ip_for_legacy_field(path, value, true, &[]);
    if errors.is_empty()
        && let Some(address) = parse_ip_sloppy(value)
    {
        errors.extend(not_canonical(path, value, &address.to_string()));
    }
    errors
}

/// A field older than strict validation. `old` are the values of the object before an update:
/// what was accepted once may stay.
pub fn ip_for_legacy_field(path: &Path<'_>, value: &str, strict: bool, old: &[&str]) -> ErrorList {
    if old.contains(&value) {
        return vec![];
    }
    let invalid = |detail: &'static str| vec![Error::invalid(path, value, detail)];
    if parse_ip_sloppy(value).is_none() {
        return invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
    match value.parse::<IpAddr>() {
        _ if !strict => vec![],
        Err(_) => invalid("must not have leading 0s"),
        Ok(address) if is_mapped(address) => invalid("must not be an IPv4-mapped IPv6 address"),
        Ok(_) => vec![],
    }
}

/// A new field that holds a block: canonical, and without bits beyond the prefix.
pub fn cidr(path: &Path<'_>, value: &str) -> ErrorList {
    let mut errors = cidr_for_legacy_field(path, value, true, &[]);
    if errors.is_empty()
        && let Some(block) = Cidr::parse_sloppy(value)
    {
        errors.extend(not_canonical(path, value, &block.network()));
    }
    errors
}

/// A field older than strict validation; see [`ip_for_legacy_field`].
pub fn cidr_for_legacy_field(
    path: &Path<'_>,
    value: &str,
    strict: bool,
    old: &[&str],
) -> ErrorList {
    if old.contains(&value) {
        return vec![];
    }
    let invalid = |detail: &'static str| vec![Error::invalid(path, value, detail)];
    if Cidr::parse_sloppy(value).is_none() {
        return invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
    match Cidr::parse_strict(value) {
        _ if !strict => vec![],
        None => invalid("must not have leading 0s in IP or prefix length"),
        Some(block) if is_mapped(block.address) => {
            invalid("must not have an IPv4-mapped IPv6 address")
        }
        Some(block) if block.masked() != block.address => {
            invalid("must not have bits set beyond the prefix length")
        }
        Some(_) => vec![],
    }
}

/// A new field that holds an address and the length of its subnet's prefix: `192.168.1.5/24`.
pub fn interface_address(path: &Path<'_>, value: &str) -> ErrorList {
    let Some(block) = Cidr::parse_sloppy(value) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![Error::invalid(path, value, detail)];
    };
    let address = block.address.to_canonical();
    let mut length = i32::from(block.length);
    if address.is_ipv4() && length > 32 {
        length -= 96;
    }
    not_canonical(path, value, &format!("{address}/{length}")).into_iter().collect()
}

/// Warnings for the client about an address in a legacy field that passed validation.
pub fn ip_warnings(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(canonical) = parse_ip_sloppy(value) else { return vec![] };
    let quoted = Quoted(value);
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            let canonical = address.to_string();
            if canonical == value {
                return vec![];
            }
            vec![format!(
                "{path}: IPv6 address {quoted} should be in RFC 5952 canonical format ({})",
                Quoted(&canonical)
            )]
        }
        Ok(IpAddr::V4(_)) => vec![],
        _ => vec![format!(
            "{path}: non-standard IP address {quoted} is invalid: use {}",
            Quoted(&canonical.to_string())
        )],
    }
}

/// Warnings for the client about a block in a legacy field that passed validation.
pub fn cidr_warnings(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(block) = Cidr::parse_sloppy(value) else { return vec![] };
    let quoted = Quoted(value);
    let network = block.network();
    let mut warnings = Vec::new();
    if block.masked() != block.address {
        let single = format!("{}/{}", block.address.to_canonical(), block.width());
        warnings.push(format!(
            "{path}: CIDR value {quoted} is ambiguous in this context (should be {} or {}?)",
            Quoted(&network),
            Quoted(&single)
        ));
    }
    let strict = Cidr::parse_strict(value);
    if strict.as_ref().is_none_or(|block| is_mapped(block.address)) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {quoted} is invalid: use {}",
            Quoted(&network)
        ));
    }
    if let Some(block) = strict
        && warnings.is_empty()
        && block.address.is_ipv6()
    {
        let canonical = format!("{}/{}", block.address, block.length);
        if canonical != value {
            warnings.push(format!(
                "{path}: IPv6 CIDR value {quoted} should be in RFC 5952 canonical format ({})",
                Quoted(&canonical)
            ));
        }
    }
    warnings
}

/// Whether it is a block in any form that upstream has ever taken.
pub fn is_cidr_sloppy(value: &str) -> bool {
    Cidr::parse_sloppy(value).is_some()
}

/// Reads an address as upstream reads legacy fields. An IPv4 address in IPv6 form comes out as
/// what it is.
pub fn parse_ip_sloppy(value: &str) -> Option<IpAddr> {
    let address = match parse_ipv4_sloppy(value) {
        Some(address) => IpAddr::V4(address),
        None => IpAddr::V6(parse_ipv6_sloppy(value)?),
    };
    Some(address.to_canonical())
}

fn not_canonical(path: &Path<'_>, value: &str, canonical: &str) -> Option<Error> {
    let detail = || format!("must be in canonical form ({})", Quoted(canonical));
    (value != canonical).then(|| Error::invalid(path, value, detail()))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Any number of leading zeros.
fn decimal(text: &str, max: u16) -> Option<u8> {
    let digits = text.trim_start_matches('0');
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 3 {
        return None;
    }
    let value: u16 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    if value > max { None } else { u8::try_from(value).ok() }
}

fn parse_ipv4_sloppy(value: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        *octet = decimal(parts.next()?, 255)?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// The standard parser knows everything but leading zeros, so they are taken off first.
fn parse_ipv6_sloppy(value: &str) -> Option<Ipv6Addr> {
    if value.contains('%') || !value.contains(':') {
        return None;
    }
    let (groups, tail) = match value.rsplit_once(':') {
        Some((groups, tail)) if tail.contains('.') => (groups, Some(parse_ipv4_sloppy(tail)?)),
        _ => (value, None),
    };
    let shorten = |group: &str| match group.trim_start_matches('0') {
        "" if !group.is_empty() => "0".to_owned(),
        short => short.to_owned(),
    };
    let groups: Vec<_> = groups.split(':').map(shorten).collect();
    let mut text = groups.join(":");
    if let Some(tail) = tail {
        text.push(':');
        text.push_str(&tail.to_string());
    }
    text.parse().ok()
}

struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    fn parse_sloppy(value: &str) -> Option<Self> {
        let (address, length) = value.split_once('/')?;
        let address = match parse_ipv4_sloppy(address) {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(parse_ipv6_sloppy(address)?),
        };
        let width = if address.is_ipv4() { 32 } else { 128 };
        Some(Cidr { address, length: decimal(length, width)? })
    }

    fn parse_strict(value: &str) -> Option<Self> {
        let (address, length) = value.split_once('/')?;
        if length.len() > 1 && length.starts_with('0') {
            return None;
        }
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        Some(Cidr { address, length: decimal(length, width)? })
    }

    fn width(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    fn masked(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                Ipv4Addr::from(u32::from(address) & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                Ipv6Addr::from(u128::from(address) & mask).into()
            }
        }
    }

    /// The block as Go prints it: an IPv4 block in IPv6 form becomes an IPv4 block.
    fn network(&self) -> String {
        let masked = self.masked();
        let canonical = masked.to_canonical();
        let shorter = masked.is_ipv6() && canonical.is_ipv4();
        let length = if shorter { self.length.saturating_sub(96) } else { self.length };
        format!("{canonical}/{length}")
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(faults: ErrorList, want: Expect) {
        let lines: Vec<_> = faults.iter().map(Error::body).collect();
        want.assert_eq(&lines.join("\n"));
    }

    const PATH: Path<'static> = Path::new("ip");

    #[test]
    fn addresses_are_canonical_in_new_fields() {
        check(ip(&PATH, "10.9.8.7"), expect![""]);
        check(ip(&PATH, "2001:db8::1"), expect![""]);
        check(
            ip(&PATH, "2001:DB8::1"),
            expect![[r#"Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")"#]],
        );
        check(
            ip(&PATH, "010.1.2.3"),
            expect![[r#"Invalid value: "010.1.2.3": must not have leading 0s"#]],
        );
        check(
            ip(&PATH, "::ffff:1.2.3.4"),
            expect![[
                r#"Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address"#
            ]],
        );
        check(
            ip(&PATH, "1.2.3"),
            expect![[
                r#"Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#
            ]],
        );
        check(ip_for_legacy_field(&PATH, "010.1.2.3", false, &[]), expect![""]);
        check(ip_for_legacy_field(&PATH, "010.1.2.3", true, &["010.1.2.3"]), expect![""]);
    }

    #[test]
    fn blocks_have_no_bits_beyond_the_prefix() {
        check(cidr(&PATH, "10.0.0.0/8"), expect![""]);
        check(
            cidr(&PATH, "10.0.0.1/8"),
            expect![[
                r#"Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length"#
            ]],
        );
        check(
            cidr(&PATH, "10.0.0.0/08"),
            expect![[
                r#"Invalid value: "10.0.0.0/08": must not have leading 0s in IP or prefix length"#
            ]],
        );
        check(
            cidr(&PATH, "10.0.0.0/33"),
            expect![[
                r#"Invalid value: "10.0.0.0/33": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#
            ]],
        );
        check(
            cidr(&PATH, "2001:DB8::/32"),
            expect![[
                r#"Invalid value: "2001:DB8::/32": must be in canonical form ("2001:db8::/32")"#
            ]],
        );
        check(interface_address(&PATH, "192.168.1.5/24"), expect![""]);
        check(
            interface_address(&PATH, "192.168.1.5/024"),
            expect![[
                r#"Invalid value: "192.168.1.5/024": must be in canonical form ("192.168.1.5/24")"#
            ]],
        );
    }

    #[test]
    fn legacy_forms_draw_warnings() {
        expect![[r#"ip: non-standard IP address "010.1.2.3" is invalid: use "10.1.2.3""#]]
            .assert_eq(&ip_warnings(&PATH, "010.1.2.3").join("\n"));
        expect![[r#"ip: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#]]
            .assert_eq(&cidr_warnings(&PATH, "10.0.0.1/8").join("\n"));
        assert!(ip_warnings(&PATH, "10.1.2.3").is_empty());
        assert!(cidr_warnings(&PATH, "2001:db8::/32").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(value in "\\PC*|[0-9a-f.:/%]*") {
            let _ = (ip(&PATH, &value), cidr(&PATH, &value), interface_address(&PATH, &value));
            let _ = (ip_warnings(&PATH, &value), cidr_warnings(&PATH, &value));
        }
    }
}
