//! The kernel takes what we build.
use super::*;
use crate::Family;
use crate::testing::isolated;

const TABLE: &str = "skiff-test";

fn key(address: &str, port: u16) -> Data {
    Data::new().address(address.parse().unwrap()).protocol(6).port(port)
}

fn tables(family: AddressFamily) -> Transaction {
    let mut transaction = Transaction::new(family, TABLE);
    transaction.renew_table();
    transaction.add_base_chain("prerouting", Hook::nat(Hook::PREROUTING, -100));
    transaction.add_base_chain("forward", Hook::filter(Hook::FORWARD, 0));
    transaction.add_base_chain("postrouting", Hook::nat(Hook::POSTROUTING, 100));
    transaction.add_chain("choose");
    let service = [Field::Address, Field::Protocol, Field::Port];
    let numbered = [Field::Address, Field::Protocol, Field::Port, Field::Number];
    let endpoint = [Field::Address, Field::Port];
    let sticky = [Field::Address, Field::Address, Field::Protocol, Field::Port];
    let set = |name, key, value| Set { name, key, value, dynamic: false };
    transaction.add_set(&set("services", &service, Value::Verdict));
    transaction.add_set(&set("endpoints", &numbered, Value::Fields(&endpoint)));
    transaction.add_set(&set("members", &service, Value::Nothing));
    let value = Value::Fields(&endpoint);
    transaction.add_set(&Set { name: "sticky", key: &sticky, value, dynamic: true });
    let address = family.registers();
    let (daddr, rest) = (address, 2 * address);
    let load = [
        Expression::Address { which: Direction::Source, into: 0 },
        Expression::Address { which: Direction::Destination, into: daddr },
        Expression::Meta { key: Meta::Protocol, into: rest },
        Expression::Payload { base: Base::Transport, offset: 2, length: 2, into: rest + 1 },
    ];
    let (endpoint, port) = (rest + 2, rest + 2 + address);
    let choose = [
        Expression::Random { into: endpoint, modulus: 2, offset: 1 << 16 },
        Expression::Map { map: "endpoints", key: daddr, into: endpoint },
        Expression::Remember { map: "sticky", key: 0, value: endpoint, seconds: 9 },
        Expression::DestinationNat { address: endpoint, port },
    ];
    transaction.add_rule(
        "prerouting",
        &[&load[..], &[Expression::VerdictMap { map: "services", key: daddr }]].concat(),
    );
    transaction.add_rule("choose", &[&load[..], &choose[..]].concat());
    let network = |text: &str| text.parse().unwrap();
    let any = if family == AddressFamily::Ipv4 { "10.0.0.0" } else { "fd00::" };
    let checks = [
        Expression::network(Direction::Source, Compare::Equal, network(any), 12, 0),
        Expression::local(Direction::Source, Compare::Other, 0).to_vec(),
        Expression::new_connection(0).to_vec(),
        Expression::marked(4, 0).to_vec(),
        Expression::link(Meta::InputName, Compare::Other, "skiff0", 0).to_vec(),
    ]
    .concat();
    let reject = [Expression::protocol(6, 0).to_vec(), vec![Expression::RejectTcp]].concat();
    transaction.add_rule("forward", &[checks, reject].concat());
    transaction.add_rule("forward", &[Expression::Reject]);
    let masquerade = [
        Expression::destination_changed(0).to_vec(),
        Expression::mark(4, 8, 0).to_vec(),
        vec![Expression::Masquerade],
    ];
    transaction.add_rule("postrouting", &masquerade.concat());
    transaction
}

#[test]
fn every_expression_is_taken_by_the_kernel() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        for family in AddressFamily::BOTH {
            tables(family).commit(&mut socket).unwrap();
            tables(family).commit(&mut socket).unwrap();
            let mut transaction = Transaction::new(family, TABLE);
            transaction.remove_table();
            transaction.remove_table();
            transaction.commit(&mut socket).unwrap();
        }
    });
}

/// Ranges that begin with the first address and end with the last are among them.
#[test]
fn ranges_of_addresses_are_taken_by_the_kernel() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        for (family, ranges) in [
            (AddressFamily::Ipv4, [("0.0.0.0", "10.0.0.0"), ("10.1.0.0", "")]),
            (AddressFamily::Ipv6, [("::", "fd00::"), ("fd00:1::", "")]),
        ] {
            let mut table = Transaction::new(family, TABLE);
            table.renew_table();
            table.add_range_set("blocks", Field::Address);
            let at = |text: &str| text.parse().ok().map(|address| Data::new().address(address));
            table.add_ranges("blocks", ranges.map(|(from, to)| (at(from).unwrap(), at(to))));
            table.add_chain("check");
            let known = Expression::known_connection(0).to_vec();
            let within = vec![
                Expression::Address { which: Direction::Source, into: 0 },
                Expression::Contains { set: "blocks", key: 0 },
                Expression::Payload { base: Base::Transport, offset: 2, length: 2, into: 0 },
                Expression::Compare { register: 0, how: Compare::AtLeast, with: vec![1, 0] },
                Expression::Compare { register: 0, how: Compare::AtMost, with: vec![2, 0] },
            ];
            table.add_rule("check", &[known, within].concat());
            table.commit(&mut socket).unwrap();
            let mut table = Transaction::new(family, TABLE);
            table.remove_chain("check");
            table.remove_set("blocks");
            table.commit(&mut socket).unwrap();
        }
    });
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        tables(AddressFamily::Ipv4).commit(&mut socket).unwrap();
        let element = |port| Element {
            key: key("10.0.0.1", port),
            value: Mapped::Verdict(Verdict::goto("choose")),
        };
        let mut transaction = Transaction::new(AddressFamily::Ipv4, TABLE);
        // More than one attribute can hold.
        transaction.add_elements("services", (1..5000).map(element));
        transaction.remove_elements("members", [key("10.0.0.9", 1)]);
        let error = transaction.commit(&mut socket).unwrap_err();
        assert!(error.is_missing(), "{error}");
        let mut transaction = Transaction::new(AddressFamily::Ipv4, TABLE);
        transaction.add_elements("services", (1..5000).map(element));
        transaction.commit(&mut socket).unwrap();
        let mut transaction = Transaction::new(AddressFamily::Ipv4, TABLE);
        transaction.remove_elements("services", (1..5000).map(|port| element(port).key));
        transaction.remove_chain("choose");
        transaction.commit(&mut socket).unwrap();
    });
}
