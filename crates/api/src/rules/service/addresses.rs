//! Addresses in the cluster and their families.
use super::super::Field;
use crate::field::BadValue;
use crate::names::ip;

const FAMILIES: &[&str] = &["IPv4", "IPv6"];

/// Addresses in the cluster and their families. What is missing the server allocates.
pub fn validate(spec: &Field<'_, '_>) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (one, list, families) =
        (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    if !one.is_empty() {
        if list.is_empty() {
            list.required("");
        } else if list.texts().next() != Some(one.text()) {
            list.invalid("first value must match `clusterIP`");
        }
    } else if !list.is_empty() {
        list.invalid("must be empty when `clusterIP` is not specified");
    }
    for family in families.items() {
        family.one_of(FAMILIES);
    }
    families.unique();
    spec.at("ipFamilyPolicy").one_of_if_given(&[
        "PreferDualStack",
        "RequireDualStack",
        "SingleStack",
    ]);
    if spec.at("ipFamilyPolicy").text() == "SingleStack" {
        let policy = spec.at("ipFamilyPolicy");
        if families.len() == 2 {
            policy.invalid("must be RequireDualStack or PreferDualStack when multiple ipFamilies are specified");
        }
        if list.len() == 2 {
            policy.invalid("must be RequireDualStack or PreferDualStack when multiple clusterIPs are specified");
        }
    }
    let given: Vec<&str> = list.texts().collect();
    if given.len() > 1 && given.contains(&"None") {
        let place = list.items().find(|item| item.text() == "None");
        if let Some(place) = place {
            place.invalid("may not be set to 'None' with other IPs");
        }
    }
    let family_of =
        |text: &str| ip::parse_ip_sloppy(text).map(|a| if a.is_ipv4() { "IPv4" } else { "IPv6" });
    for (i, address) in list.items().enumerate().filter(|(_, address)| address.text() != "None") {
        address.extend(ip::ip_for_legacy_field(address.path(), address.text(), true, &[]));
        if let (Some(family), Some(wanted)) = (family_of(address.text()), families.texts().nth(i))
            && family != wanted
        {
            address
                .invalid(format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`"));
        }
    }
    if list.len() > 2 {
        list.invalid("may only hold up to 2 values");
    }
    if families.len() > 2 {
        families.invalid("may only hold up to 2 values");
    }
}

/// The addresses of a service stay while its type does.
pub fn kept(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let named = |spec: &Field<'_, '_>| spec.at("type").text() == "ExternalName";
    if named(new) || named(old) {
        return;
    }
    let (now, then) = (new.at("clusterIPs"), old.at("clusterIPs"));
    let (a, b): (Vec<&str>, Vec<&str>) = (now.texts().collect(), then.texts().collect());
    if !b.is_empty() && a.first() != b.first() {
        let path = now.path().index(0);
        let shown = BadValue::json(now.value());
        now.on_path(path).invalid_as(shown, "may not change once set");
    }
    let (now, then) = (new.at("ipFamilies"), old.at("ipFamilies"));
    if !then.is_empty() && now.texts().next() != then.texts().next() {
        let path = now.path().index(0);
        let shown = BadValue::json(now.value());
        now.on_path(path).invalid_as(shown, "may not change once set");
    }
}
