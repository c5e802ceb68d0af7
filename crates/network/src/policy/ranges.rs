//! Addresses of an `ipBlock`, as ranges that neither overlap nor touch each other.
use crate::Cidr;
use netlink::nftables::AddressFamily;
use std::net::IpAddr;

/// First and last address of each, as numbers, in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranges {
    ranges: Vec<(u128, u128)>,
    is_ipv4: bool,
}

impl Ranges {
    /// Blocks with exceptions, of one address family. What one excepts another may include.
    pub fn of<'a>(
        blocks: impl Iterator<Item = (&'a Cidr, &'a [Cidr])>,
        family: AddressFamily,
    ) -> Ranges {
        let is_ipv4 = family == AddressFamily::Ipv4;
        let mut ranges = Vec::new();
        for (cidr, except) in blocks.filter(|(cidr, _)| cidr.is_ipv4() == is_ipv4) {
            let mut left = vec![cidr.bounds()];
            for (first, last) in except.iter().filter(|one| one.is_ipv4() == is_ipv4).map(bounds) {
                left = left.into_iter().flat_map(|range| without(range, first, last)).collect();
            }
            ranges.extend(left);
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if before.1.checked_add(1).is_none_or(|next| first <= next) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        Ranges { ranges: joined, is_ipv4 }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Each with the address behind its last; `None`: there is none.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Option<IpAddr>)> {
        let (is_ipv4, most) =
            (self.is_ipv4, if self.is_ipv4 { u128::from(u32::MAX) } else { u128::MAX });
        let address = move |number: u128| -> IpAddr {
            match is_ipv4 {
                true => std::net::Ipv4Addr::from_bits(number as u32).into(),
                false => std::net::Ipv6Addr::from_bits(number).into(),
            }
        };
        self.ranges
            .iter()
            .map(move |(first, last)| (address(*first), (*last < most).then(|| address(last + 1))))
    }
}

fn bounds(cidr: &Cidr) -> (u128, u128) {
    cidr.bounds()
}

/// What of a range is before, and behind, another.
fn without((from, to): (u128, u128), first: u128, last: u128) -> Vec<(u128, u128)> {
    if last < from || first > to {
        return vec![(from, to)];
    }
    let before = (first > from).then(|| (from, first - 1));
    let behind = (last < to).then(|| (last + 1, to));
    before.into_iter().chain(behind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks as `cidr-exception-exception`.
    fn check(blocks: &str, family: AddressFamily, expected: &str) {
        let blocks: Vec<(Cidr, Vec<Cidr>)> = blocks
            .split_whitespace()
            .map(|block| {
                let mut cidrs = block.split('-').map(|cidr| cidr.parse().unwrap());
                (cidrs.next().unwrap(), cidrs.collect())
            })
            .collect();
        let ranges =
            Ranges::of(blocks.iter().map(|(cidr, except)| (cidr, except.as_slice())), family);
        let text: Vec<String> = ranges
            .iter()
            .map(|(from, to)| {
                format!("{from}..{}", to.map_or_else(String::new, |to| to.to_string()))
            })
            .collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn exceptions_are_cut_out_and_neighbours_joined() {
        let v4 = AddressFamily::Ipv4;
        check("10.0.0.0/8", v4, "10.0.0.0..11.0.0.0");
        check("10.0.0.0/24-10.0.0.0/25", v4, "10.0.0.128..10.0.1.0");
        check("10.0.0.0/24-10.0.0.4/30-10.0.0.8/32", v4, "10.0.0.0..10.0.0.4 10.0.0.9..10.0.1.0");
        check("10.0.0.0/24-10.0.0.0/24", v4, "");
        check("10.0.0.0/25 10.0.0.128/25 10.0.0.7/32", v4, "10.0.0.0..10.0.1.0");
        check(
            "10.0.0.0/24-10.0.0.0/25 10.0.0.0/26",
            v4,
            "10.0.0.0..10.0.0.64 10.0.0.128..10.0.1.0",
        );
        check("0.0.0.0/0-10.0.0.0/8", v4, "0.0.0.0..10.0.0.0 11.0.0.0..");
        check("fd00::/8 10.0.0.0/8", v4, "10.0.0.0..11.0.0.0");
        let v6 = AddressFamily::Ipv6;
        check("::/0", v6, "::..");
        check("fd00::/8-fdff::/16 10.0.0.0/8", v6, "fd00::..fdff::");
    }
}
