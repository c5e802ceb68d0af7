//! NetworkPolicy, IPAddress and ServiceCIDR.
use super::table::{AGE, Column, NAME, selector, with};
use super::{Anew, Field, Kind, NameRule, Part, Strategy};
use crate::field::{BadValue, Path};
use crate::names::{self, Faults, ip};
use k8s_openapi::api::networking::v1::{IPAddress, NetworkPolicy, ServiceCIDR};

impl Kind for NetworkPolicy {
    const STRATEGY: Strategy = Strategy::USUAL.without_status().counting_given_empty();
    const COLUMNS: &[Column] =
        &[NAME, with("Pod-Selector", |policy, _| selector(&policy.at("spec.podSelector"))), AGE];

    fn validate(policy: &Field<'_, '_>) {
        whole(&policy.at("spec"), &[]);
    }

    /// Blocks that were accepted once may stay.
    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        let mut known = Vec::new();
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in old.at("spec").at(rules).items() {
                for peer in rule.at(peers).items() {
                    known.extend(peer.at("ipBlock.cidr").value().as_str());
                    known.extend(peer.at("ipBlock.except").texts());
                }
            }
        }
        whole(&new.at("spec"), &known);
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in new.at("spec").at(rules).items() {
                for peer in rule.at(peers).items() {
                    let block = peer.at("ipBlock.cidr");
                    if !block.is_empty() {
                        warnings.extend(ip::cidr_warnings(block.path(), block.text()));
                    }
                    for except in peer.at("ipBlock.except").items() {
                        warnings.extend(ip::cidr_warnings(except.path(), except.text()));
                    }
                }
            }
        }
        warnings
    }
}

fn whole(spec: &Field<'_, '_>, known: &[&str]) {
    spec.at("podSelector").label_selector();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            rule.at("ports").items().for_each(|each| port(&each));
            rule.at(peers).items().for_each(|each| peer(&each, known));
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        return types.invalid("may not specify more than two policyTypes");
    }
    for kind in types.items() {
        kind.one_of(&["Ingress", "Egress"]);
    }
}

fn port(port: &Field<'_, '_>) {
    let (number, end) = (port.at("port"), port.at("endPort"));
    port.at("protocol").one_of_if_given(&["TCP", "UDP", "SCTP"]);
    if !number.exists() {
        if end.exists() {
            end.invalid("may not be specified when `port` is not specified");
        }
        return;
    }
    if number.value().is_string() && end.exists() {
        end.invalid("may not be specified when `port` is non-numeric");
    }
    number.port_or_name();
    if !number.value().is_string() && end.exists() {
        if end.int() < number.int() {
            end.invalid("must be greater than or equal to `port`");
        }
        end.port();
    }
}

fn peer(peer: &Field<'_, '_>, known: &[&str]) {
    let (pods, namespaces, block) =
        (peer.at("podSelector"), peer.at("namespaceSelector"), peer.at("ipBlock"));
    pods.label_selector();
    namespaces.label_selector();
    if block.exists() {
        ip_block(&block, known);
    }
    let selected = pods.exists() || namespaces.exists();
    match (selected, block.exists()) {
        (false, false) => peer.required("must specify a peer"),
        (true, true) => peer.forbidden("may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(block: &Field<'_, '_>, known: &[&str]) {
    let whole = block.at("cidr");
    if !whole.declared().require() {
        return;
    }
    whole.extend(ip::cidr_for_legacy_field(whole.path(), whole.text(), true, known));
    let Some(outer) = parse(whole.text()) else { return };
    for except in block.at("except").items() {
        except.extend(ip::cidr_for_legacy_field(except.path(), except.text(), true, known));
        let Some(inner) = parse(except.text()) else { continue };
        if !contains(outer, inner.0) || outer.1 >= inner.1 {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}

type Block = (std::net::IpAddr, u32);

fn parse(text: &str) -> Option<Block> {
    let (address, length) = text.split_once('/')?;
    let address = ip::parse_ip_sloppy(address)?;
    let length: u32 = length.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

fn contains((network, length): Block, address: std::net::IpAddr) -> bool {
    use std::net::IpAddr::{V4, V6};
    let (a, b, bits) = match (network, address) {
        (V4(a), V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (V6(a), V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    length == 0 || (a ^ b) >> (bits - length) == 0
}

impl Kind for IPAddress {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation();
    const NAME: NameRule = address_name;
    const COLUMNS: &[Column] = &[
        NAME,
        // Upstream puts an age into the cells without a column, so that nobody sees it.
        with("ParentRef", |address, _| {
            let parent = address.at("spec.parentRef");
            if !parent.exists() {
                return "<none>".into();
            }
            let (group, resource) = (parent.at("group").text(), parent.at("resource").text());
            let mut cell = match group {
                "" => resource.to_lowercase(),
                group => format!("{resource}.{group}").to_lowercase(),
            };
            for part in ["namespace", "name"] {
                let part = parent.at(part).text();
                if !part.is_empty() {
                    cell.push('/');
                    cell.push_str(part);
                }
            }
            cell.into()
        }),
    ];

    fn validate(address: &Field<'_, '_>) {
        let parent = address.at("spec.parentRef");
        if !parent.exists() {
            return parent.declared().required("");
        }
        parent.at("group").named_if_given(names::dns1123_subdomain);
        parent.at("resource").declared_named(names::path_segment_name);
        parent.at("name").declared_named(names::path_segment_name);
        parent.at("namespace").named_if_given(names::path_segment_name);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        new.at("spec.parentRef").declared_immutable(&old.at("spec.parentRef"));
    }
}

/// The object of an address is called by it.
fn address_name(name: &str, _prefix: bool) -> Faults {
    let place = Path::new("metadata");
    ip::ip(&place, name).into_iter().map(|error| error.detail.into_owned()).collect()
}

impl Kind for ServiceCIDR {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().status_only();
    const COLUMNS: &[Column] = &[
        NAME,
        with("CIDRs", |cidr, _| cidr.at("spec.cidrs").texts().collect::<Vec<_>>().join(",").into()),
        AGE,
    ];

    fn validate(cidr: &Field<'_, '_>) {
        let blocks = cidr.at("spec.cidrs");
        if !blocks.require_for("at least one CIDR required") {
            return;
        }
        if blocks.len() > 2 {
            let spec = cidr.at("spec");
            return blocks.invalid_as(BadValue::json(spec.value()), "may only hold up to 2 values");
        }
        for block in blocks.items() {
            block.extend(ip::cidr(block.path(), block.text()));
        }
        let families: Vec<bool> =
            blocks.texts().filter_map(parse).map(|(address, _)| address.is_ipv4()).collect();
        if families.len() == 2 && families[0] == families[1] {
            blocks.invalid("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
        }
    }

    /// A second family may be added; nothing else changes.
    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return;
        }
        let (now, then) = (new.at("spec.cidrs"), old.at("spec.cidrs"));
        if now.len() != then.len() && (then.len(), now.len()) != (1, 2) {
            let shown = if now.exists() { BadValue::json(now.value()) } else { BadValue::null() };
            return now.invalid_as(shown, super::metadata::IMMUTABLE);
        }
        for (block, before) in now.items().zip(then.texts()) {
            if block.text() != before {
                block.invalid(super::metadata::IMMUTABLE);
            }
        }
        if now.len() > then.len() {
            Self::validate(new);
        }
    }
}
