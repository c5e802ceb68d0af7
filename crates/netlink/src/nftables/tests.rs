//! The kernel takes what we build.
use super::*;
use crate::Family;
use crate::testing::isolated;

const TABLE: &str = "skiff-test";

fn key(address: &str, port: u16) -> Data {
    Data::new().address(address.parse().unwrap()).protocol(6).port(port)
}

fn tables(family: AddressFamily) -> Transaction {
    let mut transaction = Transaction::new(family, TABLE).recorded();
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
    let told = [
        Expression::Limit { per_second: 10, burst: 5 },
        Expression::Log { group: 95, prefix: "ingress-1" },
    ];
    transaction.add_rule("forward", &told);
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

/// What somebody else does to a table is seen.
#[test]
fn a_table_is_compared_with_what_it_should_hold() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        for family in AddressFamily::BOTH {
            let (one, other) = match family {
                AddressFamily::Ipv4 => ("10.0.0.1", "10.0.0.2"),
                AddressFamily::Ipv6 => ("fd00::1", "fd00::2"),
            };
            let wanted = || {
                let mut table = tables(family);
                let target = Data::new().address(other.parse().unwrap()).port(8080);
                table.add_range_set("blocks", Field::Address);
                let at = |text: &str| Data::new().address(text.parse().unwrap());
                table.add_ranges("blocks", [(at(one), Some(at(other)))]);
                let led = Mapped::Verdict(Verdict::goto("choose"));
                table.add_elements("services", [Element { key: key(one, 80), value: led }]);
                let value = Mapped::Data(target);
                table.add_elements("endpoints", [Element { key: key(one, 80).number(0), value }]);
                table
            };
            assert!(!wanted().holds(&mut socket).unwrap(), "there is none");
            assert_eq!(socket.table(family, TABLE).unwrap(), None);
            wanted().commit(&mut socket).unwrap();
            assert!(wanted().holds(&mut socket).unwrap(), "{family:?}");
            let first = socket.table(family, TABLE).unwrap();
            let before = socket.generation().unwrap();
            assert_eq!(socket.generation().unwrap(), before);
            let damages: [fn(&mut Transaction, &str); 4] = [
                |table, one| table.remove_elements("services", [key(one, 80)]),
                |table, one| {
                    let led = Mapped::Verdict(Verdict::Accept);
                    table.remove_elements("services", [key(one, 80)]);
                    table.add_elements("services", [Element { key: key(one, 80), value: led }]);
                },
                |table, _| table.add_rule("choose", &[Expression::Verdict(Verdict::Accept)]),
                |table, _| table.add_chain("more"),
            ];
            for damage in damages {
                let mut table = Transaction::new(family, TABLE);
                damage(&mut table, one);
                table.commit(&mut socket).unwrap();
                assert_ne!(socket.generation().unwrap(), before);
                assert!(!wanted().holds(&mut socket).unwrap());
                wanted().commit(&mut socket).unwrap();
                assert!(wanted().holds(&mut socket).unwrap());
            }
            assert_eq!(socket.table(family, TABLE).unwrap(), first, "repaired, not made anew");
            // What cannot be repaired is made anew: another set of the same name.
            let mut table = Transaction::new(family, TABLE);
            table.remove_chain("forward");
            table.remove_set("members");
            let key = [Field::Link];
            let set = Set { name: "members", key: &key, value: Value::Nothing, dynamic: false };
            table.add_set(&set);
            table.commit(&mut socket).unwrap();
            wanted().commit(&mut socket).unwrap();
            assert!(wanted().holds(&mut socket).unwrap());
            assert_ne!(socket.table(family, TABLE).unwrap(), first, "another of the same name");
        }
    });
}

/// Rules about frames that a bridge carries.
#[test]
fn a_bridges_table_is_taken_by_the_kernel() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        for family in AddressFamily::BOTH {
            let table = || {
                let mut table = Transaction::of_bridges(family, TABLE).recorded();
                table.renew_table();
                let key = [Field::Link, Field::Mac, Field::Address];
                let value = Value::Nothing;
                table.add_set(&Set { name: "sources", key: &key, value, dynamic: false });
                let any = if family == AddressFamily::Ipv4 { "10.0.0.1" } else { "fd00::1" };
                let key = Data::new().link("eth0").mac([2; 6]).address(any.parse().unwrap());
                table.add_elements("sources", [Element { key, value: Mapped::Nothing }]);
                table.add_base_chain("prerouting", Hook::filter(Hook::PREROUTING, -300));
                let rule = [
                    Expression::carried(0x0800, 0).to_vec(),
                    Expression::link_like(Meta::InputName, "skiff", 0).to_vec(),
                    vec![
                        Expression::Meta { key: Meta::InputName, into: 0 },
                        Expression::Payload { base: Base::Link, offset: 6, length: 6, into: 4 },
                        Expression::Address { which: Direction::Source, into: 6 },
                        Expression::Contains { set: "sources", key: 0 },
                    ],
                ];
                table.add_rule("prerouting", &rule.concat());
                table
            };
            table().commit(&mut socket).unwrap();
            assert!(table().holds(&mut socket).unwrap(), "{family:?}");
        }
    });
}

/// From every content to every other, by what differs; what rules remember stays.
#[test]
fn a_table_becomes_another_by_what_differs() {
    isolated(|| {
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        let family = AddressFamily::Ipv4;
        let contents: [&[(&str, &str)]; 5] = [
            &[],
            &[("10.0.0.1", "one")],
            &[("10.0.0.1", "one"), ("10.0.0.2", "two")],
            &[("10.0.0.1", "two"), ("10.0.0.2", "one")],
            &[("10.0.0.2", "three")],
        ];
        let wanted = |content: &[(&str, &str)]| {
            let mut table = Transaction::new(family, TABLE).recorded();
            let key = [Field::Address];
            table.add_set(&Set { name: "map", key: &key, value: Value::Verdict, dynamic: false });
            let value = Value::Fields(&key);
            table.add_set(&Set { name: "memory", key: &key, value, dynamic: true });
            table.add_base_chain("forward", Hook::filter(Hook::FORWARD, 0));
            let own = Expression::Address { which: Direction::Source, into: 0 };
            let look = [own.clone(), Expression::VerdictMap { map: "map", key: 0 }];
            table.add_rule("forward", &look);
            for (address, chain) in content {
                let (inner, set) = (format!("{chain}-inner"), format!("{chain}-set"));
                table.add_chain(&inner);
                table.add_set(&Set {
                    name: &set,
                    key: &key,
                    value: Value::Nothing,
                    dynamic: false,
                });
                let at = || Data::new().address(address.parse().unwrap());
                table.add_elements(&set, [Element { key: at(), value: Mapped::Nothing }]);
                let within = [own.clone(), Expression::Contains { set: &set, key: 0 }];
                table.add_rule(
                    &inner,
                    &[&within[..], &[Expression::Verdict(Verdict::Drop)]].concat(),
                );
                table.add_chain(chain);
                table.add_rule(chain, &[Expression::Verdict(Verdict::Jump(inner))]);
                let value = Mapped::Verdict(Verdict::goto(*chain));
                table.add_elements("map", [Element { key: at(), value }]);
            }
            table
        };
        wanted(contents[0]).commit(&mut socket).unwrap();
        let first = socket.table(family, TABLE).unwrap();
        for from in contents {
            for to in contents {
                for content in [from, to] {
                    wanted(content).commit(&mut socket).unwrap();
                    assert!(wanted(content).holds(&mut socket).unwrap(), "{from:?} {to:?}");
                }
                let mut written = Written::new(family, TABLE);
                for content in [from, to] {
                    written.make(wanted(content), &mut socket).unwrap();
                    assert!(wanted(content).holds(&mut socket).unwrap(), "{from:?} {to:?}");
                    assert!(!written.is_new());
                }
            }
        }
        assert_eq!(socket.table(family, TABLE).unwrap(), first, "never made anew");
        let before = socket.generation().unwrap();
        wanted(contents[4]).commit(&mut socket).unwrap();
        assert_eq!(socket.generation().unwrap(), before, "what is there is not touched");
    });
}
