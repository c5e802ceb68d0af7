//! Endpoints and EndpointSlices: where a service's traffic goes.
use super::table::{AGE, Column, NAME, first_of, text, with};
use super::{Anew, Field, Kind, Part, Strategy, prepare};
use crate::names::{self, ip};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;
use std::net::IpAddr;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const MAX_PORTS: usize = 20_000;
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;

impl Kind for Endpoints {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().creates_on_update();
    const COLUMNS: &[Column] =
        &[NAME, with("Endpoints", |endpoints, _| addresses_cell(endpoints).into()), AGE];

    fn validate(endpoints: &Field<'_, '_>) {
        for subset in endpoints.at("subsets").items() {
            let (ready, waiting) = (subset.at("addresses"), subset.at("notReadyAddresses"));
            if ready.is_empty() && waiting.is_empty() {
                subset.required("must specify `addresses` or `notReadyAddresses`");
            }
            for address in ready.items().chain(waiting.items()) {
                let place = address.at("ip");
                place.extend(ip::ip_for_legacy_field(place.path(), place.text(), true, &[]));
                address.at("hostname").named_if_given(names::dns1123_label);
                let node = address.at("nodeName");
                if node.exists() {
                    node.faults(names::name_is_dns_subdomain(node.text(), false));
                }
                endpoint_address(&place);
            }
            let ports = subset.at("ports");
            for port in ports.items() {
                let name = port.at("name");
                if ports.len() > 1 && name.is_empty() {
                    name.required("");
                }
                name.named_if_given(names::dns1123_label);
                port.at("port").port();
                port.at("protocol").require_one_of(PROTOCOLS);
                let protocol = port.at("appProtocol");
                if protocol.exists() {
                    protocol.faults(names::qualified_name(protocol.text()));
                }
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        if new.at("subsets").value() != old.at("subsets").value() {
            Self::validate(new);
        }
    }

    fn warnings(endpoints: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = vec![
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                .to_owned(),
        ];
        // Ours are sound.
        let labels = endpoints.at("metadata.labels");
        if labels.key("endpoints.kubernetes.io/managed-by").text() == "endpoint-controller" {
            return warnings;
        }
        for subset in endpoints.at("subsets").items() {
            for list in ["addresses", "notReadyAddresses"] {
                for address in subset.at(list).items() {
                    let ip = address.at("ip");
                    warnings.extend(ip::ip_warnings(ip.path(), ip.text()));
                }
            }
        }
        warnings
    }
}

/// An address that traffic can be sent to from elsewhere.
pub fn endpoint_address(field: &Field<'_, '_>) {
    let Some(address) = ip::parse_ip_sloppy(field.text()) else {
        return field.invalid("must be a valid IP address");
    };
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => {
            (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02)
        }
    };
    if address.is_unspecified() {
        field.invalid(format!("may not be unspecified ({})", field.text()));
    }
    if address.is_loopback() {
        field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if local {
        field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn addresses_cell(endpoints: &Field<'_, '_>) -> String {
    let mut all = Vec::new();
    for subset in endpoints.at("subsets").items() {
        let ports = subset.at("ports");
        let numbers: Vec<Option<i64>> = match ports.is_empty() {
            true => vec![None],
            false => ports.items().map(|port| Some(port.at("port").int())).collect(),
        };
        for number in numbers {
            for address in subset.at("addresses").items() {
                let ip = address.at("ip").text();
                all.push(match number {
                    None => ip.to_owned(),
                    Some(number) if ip.contains(':') => format!("[{ip}]:{number}"),
                    Some(number) => format!("{ip}:{number}"),
                });
            }
        }
    }
    if all.is_empty() && !endpoints.at("subsets").is_empty() {
        return String::new();
    }
    first_of(&all, 3, ",")
}

impl Kind for EndpointSlice {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_status().counting_disabled();
    const COLUMNS: &[Column] = &[
        NAME,
        text("AddressType", "addressType"),
        with("Ports", |slice, _| {
            let cell =
                |port: Field<'_, '_>| match (port.at("port").exists(), port.at("name").exists()) {
                    (true, _) => port.at("port").int().to_string(),
                    (false, true) => port.at("name").text().to_owned(),
                    (false, false) => "*".to_owned(),
                };
            let cells: Vec<String> = slice.at("ports").items().map(cell).collect();
            if cells.is_empty() { "<unset>".into() } else { first_of(&cells, 3, ",").into() }
        }),
        with("Endpoints", |slice, _| {
            let endpoints = slice.at("endpoints");
            let all: Vec<String> = endpoints
                .items()
                .flat_map(|endpoint| {
                    endpoint.at("addresses").texts().map(str::to_owned).collect::<Vec<_>>()
                })
                .collect();
            if all.is_empty() { "<unset>".into() } else { first_of(&all, 3, ",").into() }
        }),
        AGE,
    ];

    /// Labels count as well: they say whose slice it is.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        let (now, then) = (&new["metadata"], &old["metadata"]);
        if now.get("labels") != then.get("labels")
            && now.get("generation") == then.get("generation")
        {
            let generation = then["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn validate(slice: &Field<'_, '_>) {
        slice_type(slice);
        slice_ports(&slice.at("ports"));
        slice_endpoints(&slice.at("endpoints"), slice.at("addressType").text());
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        slice_type(new);
        new.at("addressType").declared_immutable(&old.at("addressType"));
        slice_ports(&new.at("ports"));
        // What was fine once stays fine.
        if new.at("endpoints").value() != old.at("endpoints").value() {
            slice_endpoints(&new.at("endpoints"), new.at("addressType").text());
        }
    }

    fn warnings(slice: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && slice.at("addressType").text() == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let labels = slice.at("metadata.labels");
        let manager = labels.key("endpointslice.kubernetes.io/managed-by").text();
        if OUR_CONTROLLERS.contains(&manager) {
            return warnings;
        }
        for endpoint in slice.at("endpoints").items() {
            for address in endpoint.at("addresses").items() {
                warnings.extend(ip::ip_warnings(address.path(), address.text()));
            }
        }
        warnings
    }
}

/// Whose addresses are sound.
const OUR_CONTROLLERS: &[&str] =
    &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

fn slice_type(slice: &Field<'_, '_>) {
    let kind = slice.at("addressType").declared();
    if kind.require() {
        kind.one_of(&["FQDN", "IPv4", "IPv6"]);
    }
}

fn slice_endpoints(endpoints: &Field<'_, '_>, kind: &str) {
    if endpoints.len() > MAX_ENDPOINTS {
        return endpoints.too_many(MAX_ENDPOINTS);
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            addresses.declared().required("");
        }
        addresses.declared().at_most(MAX_ADDRESSES);
        for address in addresses.items() {
            slice_address(&address, &addresses, kind);
        }
        let node = endpoint.at("nodeName");
        if node.exists() {
            node.faults(names::name_is_dns_subdomain(node.text(), false));
        }
        let name = endpoint.at("hostname");
        if name.exists() {
            name.faults(names::dns1123_label(name.text()));
        }
        hints(&endpoint.at("hints"));
    }
}

/// A wrong family is reported at the list, anything else at the address.
fn slice_address(address: &Field<'_, '_>, addresses: &Field<'_, '_>, kind: &str) {
    let family = |wanted_v4: bool| {
        let faults = match wanted_v4 {
            true => ip::ip_for_legacy_field(address.path(), address.text(), true, &[]),
            false => ip::ip(address.path(), address.text()),
        };
        if !faults.is_empty() {
            return address.extend(faults);
        }
        let v4 = ip::parse_ip_sloppy(address.text()).is_some_and(|address| address.is_ipv4());
        if v4 != wanted_v4 {
            let family = if wanted_v4 { "an IPv4" } else { "an IPv6" };
            addresses.invalid_as(address.text(), format!("must be {family} address"));
        }
        endpoint_address(address);
    };
    match kind {
        "IPv4" => family(true),
        "IPv6" => family(false),
        "FQDN" => {
            address.extend(names::fully_qualified_domain_name(address.path(), address.text()))
        }
        _ => {}
    }
}

fn hints(hints: &Field<'_, '_>) {
    for (list, word) in [("forZones", "zone"), ("forNodes", "node")] {
        let targets = hints.at(list);
        if targets.len() > MAX_HINTS {
            targets.too_many(MAX_HINTS);
            continue;
        }
        let mut seen = Vec::new();
        for target in targets.items() {
            let name = target.at("name");
            let faults = match word {
                "zone" => names::label_value(name.text()),
                _ => names::name_is_dns_subdomain(name.text(), false),
            };
            if seen.contains(&name.text()) {
                name.duplicate();
            }
            seen.push(name.text());
            name.faults(faults);
        }
    }
}

fn slice_ports(ports: &Field<'_, '_>) {
    if ports.len() > MAX_PORTS {
        return ports.too_many(MAX_PORTS);
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let (name, protocol) = (port.at("name"), port.at("protocol"));
        name.named_if_given(names::dns1123_label);
        if seen.contains(&name.text()) {
            name.push(crate::field::Error::duplicate(name.path(), name.text()));
        }
        seen.push(name.text());
        if !protocol.exists() {
            protocol.required("");
        } else {
            protocol.one_of(PROTOCOLS);
        }
        let app = port.at("appProtocol");
        if app.exists() {
            app.faults(names::qualified_name(app.text()));
        }
    }
}
