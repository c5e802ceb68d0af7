//! Addresses in the cluster and their families.
use super::super::Field;
use crate::field::{BadValue, Error};
use crate::names::ip;

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const ONCE: &str = "may not change once set";

/// How addresses, families and policy fit together. `before` are the addresses that were there: what
/// was accepted once may stay.
pub fn related(spec: &Field<'_, '_>, before: &[&str]) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (one, list, families) =
        (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    let given: Vec<&str> = list.texts().collect();
    match (one.is_empty(), given.first()) {
        (false, None) => list.required(""),
        (false, Some(first)) if *first != one.text() => {
            list.invalid("first value must match `clusterIP`");
        }
        (true, Some(_)) => list.invalid("must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    let named: Vec<&str> = families.texts().collect();
    for (i, family) in families.items().enumerate() {
        family.one_of(FAMILIES);
        if named[..i].contains(&family.text()) {
            family.duplicate();
        }
    }
    spec.at("ipFamilyPolicy").one_of_if_given(POLICIES);
    let mut sound = true;
    for (i, address) in list.items().enumerate() {
        if i == 0 && address.text() == "None" {
            if given.len() > 1 {
                sound = false;
                list.invalid("'None' must be the first and only value");
            }
            continue;
        }
        let faults = ip::ip_for_legacy_field(address.path(), address.text(), true, before);
        sound &= faults.is_empty();
        address.extend(faults);
    }
    if given.len() > 2 {
        list.invalid("may only hold up to 2 values");
    }
    if !sound {
        return;
    }
    let is_v6 = |text: &str| ip::parse_ip_sloppy(text).is_some_and(|address| address.is_ipv6());
    let sixes = given.iter().filter(|text| is_v6(text)).count();
    if given.len() > 1 && (sixes == 0 || sixes == given.len()) {
        list.invalid("may specify no more than one IP for each IP family");
    }
    if given == ["None"] {
        return;
    }
    for ((i, address), family) in list.items().enumerate().zip(named) {
        let wrong = match family {
            "IPv4" => is_v6(address.text()),
            "IPv6" => !is_v6(address.text()),
            _ => false,
        };
        if wrong {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            address.invalid(detail);
        }
    }
}

/// The addresses and families of a service stay while its type does; a second may come and go.
pub fn kept(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let named = |spec: &Field<'_, '_>| spec.at("type").text() == "ExternalName";
    if named(new) || named(old) {
        return;
    }
    let headless = |spec: &Field<'_, '_>| spec.at("clusterIPs").texts().eq(["None"]);
    if !(headless(new) && headless(old)) {
        stays(
            new,
            old,
            "clusterIPs",
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
    if !headless(new) && !headless(old) {
        stays(
            new,
            old,
            "ipFamilies",
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        );
    }
}

fn stays(new: &Field<'_, '_>, old: &Field<'_, '_>, field: &'static str, released: &'static str) {
    let (list, addresses) = (new.at(field), new.at("clusterIPs"));
    let (now, then): (Vec<&str>, Vec<&str>) =
        (list.texts().collect(), old.at(field).texts().collect());
    let changed = |i: usize, shown: &Field<'_, '_>| {
        let shown = BadValue::json(&shown.texts().collect::<Vec<_>>());
        list.push(Error::invalid(&list.path().index(i), shown, ONCE));
    };
    let first_changed = !then.is_empty() && now.first().is_some_and(|now| *now != then[0]);
    if now.len() == then.len() {
        for (i, _) in now.iter().zip(&then).enumerate().filter(|(_, (now, then))| now != then) {
            changed(if field == "clusterIPs" { i } else { 0 }, &list);
        }
        return;
    }
    if now.len() < then.len() && addresses.is_empty() {
        let what = if field == "clusterIPs" { "clusterIP" } else { "ipFamily" };
        let detail = format!("primary {what} can not be unset");
        let shown = BadValue::json(&now);
        list.push(Error::invalid(&list.path().index(0), shown, detail));
    }
    if first_changed {
        // Of families, upstream shows the addresses.
        changed(0, &addresses);
    }
    let policy = new.at("ipFamilyPolicy");
    if now.len() == 1 && then.len() > 1 && policy.text() != "SingleStack" {
        policy
            .invalid_as(if policy.exists() { policy.shown() } else { BadValue::null() }, released);
    }
}
