//! Which families and addresses a service shall have: what a request leaves open is settled from the
//! old service, the families that the cluster has, and the addresses that are given. Addresses
//! themselves are the server's to allocate, at the [`places`] that are left.
use super::addresses;
use crate::field::{BadValue, Error, ErrorList, Path};
use crate::rules::{check, prepare, type_of};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

const SINGLE: &str = "SingleStack";

/// Settles the families; what is wrong with them ends the write.
pub fn settle(service: &mut Value, old: Option<&Value>, configured: &[&str]) -> ErrorList {
    keep_addresses(&mut service["spec"], old.map(|old| &old["spec"]));
    if is_named(&service["spec"]) || old.is_some_and(|old| stays_preferred(service, old)) {
        return ErrorList::new();
    }
    settle_policy(&mut service["spec"], old.map(|old| &old["spec"]));
    let faults = related(service, old);
    if !faults.is_empty() {
        return faults;
    }
    let (spec, before) = (&mut service["spec"], old.map(|old| &old["spec"]));
    let mut faults = reduced(spec, before);
    faults.extend(infer_families(spec, configured));
    if !faults.is_empty() {
        return faults;
    }
    let anywhere = is_headless(spec) && has_no_selector(spec);
    if !anywhere {
        faults = unconfigured(spec, configured);
        if !faults.is_empty() {
            return faults;
        }
    }
    complete(spec, configured, anywhere);
    ErrorList::new()
}

/// The places in `clusterIPs` that have to be allocated, in the order of the families.
pub fn places(service: &Value, old: Option<&Value>) -> Vec<usize> {
    let (spec, count) = (&service["spec"], words(&service["spec"]["ipFamilies"]).len());
    let before = old.map(|old| &old["spec"]).filter(|before| !is_named(before));
    match before {
        _ if is_named(spec) || is_headless(spec) => Vec::new(),
        None => (0..count).collect(),
        Some(before) if is_headless(before) => Vec::new(),
        Some(before) if words(&before["ipFamilies"]).len() == 1 && count == 2 => vec![1],
        Some(_) => Vec::new(),
    }
}

/// A client that leaves addresses out means to keep them; one that knows only the first means both
/// fields by it.
pub fn keep_addresses(spec: &mut Value, old: Option<&Value>) {
    let Some(old) = old else {
        if !text(spec, "clusterIP").is_empty() && words(&spec["clusterIPs"]).is_empty() {
            spec["clusterIPs"] = json!([text(spec, "clusterIP")]);
        }
        return;
    };
    if !is_named(spec) && !is_named(old) {
        if text(spec, "clusterIP").is_empty() {
            prepare::put(spec, "clusterIP", old.get("clusterIP"));
        }
        if words(&spec["clusterIPs"]).is_empty() {
            prepare::put(spec, "clusterIPs", old.get("clusterIPs"));
        }
    }
    let (one, list) = (text(spec, "clusterIP").to_owned(), words(&spec["clusterIPs"]));
    let before = words(&old["clusterIPs"]);
    if list.is_empty() && !before.is_empty() && one == text(old, "clusterIP") {
        spec["clusterIPs"] = json!(before);
    } else if one != text(old, "clusterIP") && list == before {
        let list = (!one.is_empty() || text(old, "clusterIP").is_empty()).then(|| json!([one]));
        prepare::put(spec, "clusterIPs", list.as_ref());
    }
}

/// A service that prefers both families is not changed when the cluster's families do.
fn stays_preferred(service: &Value, old: &Value) -> bool {
    let (spec, before) = (&service["spec"], &old["spec"]);
    let prefers = |policy: &Value| *policy == "PreferDualStack";
    let same = |field: &str| words(&spec[field]) == words(&before[field]);
    let old_prefers = before["ipFamilyPolicy"].is_null() || prefers(&before["ipFamilyPolicy"]);
    prefers(&spec["ipFamilyPolicy"])
        && old_prefers
        && spec["type"] == before["type"]
        && same("clusterIPs")
        && same("ipFamilies")
}

fn settle_policy(spec: &mut Value, old: Option<&Value>) {
    if !spec["ipFamilyPolicy"].is_null() {
        return;
    }
    let before = old.map(|old| &old["ipFamilyPolicy"]).filter(|policy| !policy.is_null());
    spec["ipFamilyPolicy"] = match before {
        Some(before) => before.clone(),
        None if is_headless(spec) && has_no_selector(spec) => "RequireDualStack".into(),
        None => SINGLE.into(),
    };
}

/// What would be wrong later as well is said at once.
fn related(service: &Value, old: Option<&Value>) -> ErrorList {
    let ty = type_of::<Service>();
    let before: Vec<String> = old.map(|old| words(&old["spec"]["clusterIPs"])).unwrap_or_default();
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    check::collect(service, ty, |service| addresses::related(&service.at("spec"), &before))
}

/// Fewer addresses or families than before need a policy that says so.
fn reduced(spec: &mut Value, old: Option<&Value>) -> ErrorList {
    let mut faults = ErrorList::new();
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    let place = Path::new("spec");
    let mut refuse = |detail: &'static str| {
        let path = place.child("ipFamilyPolicy");
        faults.push(Error::invalid(&path, policy.as_str(), detail));
    };
    let fields = ["clusterIPs", "ipFamilies"];
    if policy == SINGLE {
        for field in fields {
            let list = words(&spec[field]);
            if old.is_some_and(|old| words(&old[field]) == list) && list.len() > 1 {
                spec[field] = json!([list[0]]);
            }
        }
        if words(&spec["clusterIPs"]).len() == 2 {
            refuse(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified",
            );
        }
        if words(&spec["ipFamilies"]).len() == 2 {
            refuse(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            );
        }
        return faults;
    }
    let fewer = |field: &str| {
        let (now, then) = (words(&spec[field]), old.map(|old| words(&old[field])));
        !now.is_empty() && then.is_some_and(|then| now.len() < then.len())
    };
    if fewer("clusterIPs") {
        refuse("must be 'SingleStack' to release the secondary cluster IP");
    }
    if fewer("ipFamilies") {
        refuse("must be 'SingleStack' to release the secondary IP family");
    }
    faults
}

/// An address says what family it is of.
fn infer_families(spec: &mut Value, configured: &[&str]) -> ErrorList {
    let mut faults = ErrorList::new();
    let (ips, mut families) = (words(&spec["clusterIPs"]), words(&spec["ipFamilies"]));
    for (i, ip) in ips.iter().enumerate().take_while(|(_, ip)| *ip != "None") {
        let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
        if i < families.len() {
            continue;
        }
        if configured.contains(&family) {
            families.push(family.to_owned());
            continue;
        }
        let (place, detail) = (Path::new("spec"), "is not configured on this cluster");
        let list = place.child("clusterIPs");
        let detail = format!("{family} {detail}");
        faults.push(Error::invalid(&list.index(i), BadValue::json(&ips), detail));
    }
    if !families.is_empty() {
        spec["ipFamilies"] = json!(families);
    }
    faults
}

/// What the cluster does not have cannot be asked for.
fn unconfigured(spec: &Value, configured: &[&str]) -> ErrorList {
    let (place, mut faults) = (Path::new("spec"), ErrorList::new());
    let policy = text(spec, "ipFamilyPolicy");
    if policy == "RequireDualStack" && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        faults.push(Error::invalid(&place.child("ipFamilyPolicy"), policy, detail));
    }
    let list = place.child("ipFamilies");
    for (i, family) in words(&spec["ipFamilies"]).iter().enumerate() {
        if !configured.contains(&family.as_str()) {
            let detail = "not configured on this cluster";
            faults.push(Error::invalid(&list.index(i), family.as_str(), detail));
        }
    }
    faults
}

/// Adds the families that are meant. Without addresses or selector both are, whatever there is.
fn complete(spec: &mut Value, configured: &[&str], anywhere: bool) {
    let mut families = words(&spec["ipFamilies"]);
    if families.is_empty() {
        families.extend(configured.first().map(|family| (*family).to_owned()));
    }
    let both = text(spec, "ipFamilyPolicy") != SINGLE && (anywhere || configured.len() == 2);
    if both && families.len() == 1 {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    spec["ipFamilies"] = json!(families);
}

fn is_named(spec: &Value) -> bool {
    spec["type"] == "ExternalName"
}

fn is_headless(spec: &Value) -> bool {
    text(spec, "clusterIP") == "None"
}

fn has_no_selector(spec: &Value) -> bool {
    spec["selector"].as_object().is_none_or(serde_json::Map::is_empty)
}

fn text<'v>(spec: &'v Value, field: &str) -> &'v str {
    spec[field].as_str().unwrap_or_default()
}

fn words(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// What a cluster of these families makes of a spec, and which places are left to allocate.
    fn check(configured: &[&str], old: Option<Value>, spec: Value, expect: Expect) {
        let old = old.map(|spec| json!({ "spec": spec }));
        let mut service = json!({ "spec": spec });
        let faults = settle(&mut service, old.as_ref(), configured);
        let mut said: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
        if said.is_empty() {
            let spec = &service["spec"];
            let (policy, families) = (&spec["ipFamilyPolicy"], &spec["ipFamilies"]);
            let (ips, places) = (&spec["clusterIPs"], places(&service, old.as_ref()));
            said = format!("{policy} {families} {ips} allocate {places:?}\n");
        }
        expect.assert_eq(&said);
    }

    #[test]
    fn a_new_service_gets_what_it_leaves_open() {
        let four: &[&str] = &["IPv4"];
        check(
            four,
            None,
            json!({ "type": "ClusterIP" }),
            expect![[r#"
            "SingleStack" ["IPv4"] null allocate [0]
        "#]],
        );
        check(
            &["IPv6", "IPv4"],
            None,
            json!({ "ipFamilyPolicy": "PreferDualStack" }),
            expect![[r#"
                "PreferDualStack" ["IPv6","IPv4"] null allocate [0, 1]
            "#]],
        );
        check(
            four,
            None,
            json!({ "clusterIP": "None" }),
            expect![[r#"
            "RequireDualStack" ["IPv4","IPv6"] ["None"] allocate []
        "#]],
        );
        check(
            four,
            None,
            json!({ "clusterIP": "None", "selector": { "a": "b" } }),
            expect![[r#"
            "SingleStack" ["IPv4"] ["None"] allocate []
        "#]],
        );
        check(
            four,
            None,
            json!({ "ipFamilyPolicy": "RequireDualStack" }),
            expect![[r#"
            spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services
        "#]],
        );
        check(
            four,
            None,
            json!({ "ipFamilies": ["IPv6"] }),
            expect![[r#"
            spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster
        "#]],
        );
        check(
            four,
            None,
            json!({ "clusterIP": "x" }),
            expect![[r#"
            spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        "#]],
        );
        check(
            four,
            None,
            json!({ "ipFamilies": ["", "IPv4", "IPv4"] }),
            expect![[r#"
            spec.ipFamilies[0]: Unsupported value: "": supported values: "IPv4", "IPv6"
            spec.ipFamilies[2]: Duplicate value: "IPv4"
        "#]],
        );
        check(
            four,
            None,
            json!({ "clusterIP": "::1" }),
            expect![[r#"
            spec.clusterIPs[0]: Invalid value: ["::1"]: IPv6 is not configured on this cluster
        "#]],
        );
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let one = || {
            json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" })
        };
        let two = || {
            json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1", "::1"], "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack" })
        };
        let both: &[&str] = &["IPv4", "IPv6"];
        check(
            both,
            Some(one()),
            json!({ "type": "ClusterIP" }),
            expect![[r#"
            "SingleStack" ["IPv4"] ["10.0.0.1"] allocate []
        "#]],
        );
        check(
            both,
            Some(one()),
            json!({ "ipFamilyPolicy": "PreferDualStack" }),
            expect![[r#"
            "PreferDualStack" ["IPv4","IPv6"] ["10.0.0.1"] allocate [1]
        "#]],
        );
        let mut less = two();
        less["ipFamilyPolicy"] = SINGLE.into();
        check(
            both,
            Some(two()),
            less,
            expect![[r#"
            "SingleStack" ["IPv4"] ["10.0.0.1"] allocate []
        "#]],
        );
        let mut fewer = two();
        fewer["clusterIPs"] = json!(["10.0.0.1"]);
        check(
            both,
            Some(two()),
            fewer,
            expect![[r#"
            spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP
        "#]],
        );
        check(
            both,
            Some(json!({ "type": "ExternalName" })),
            json!({ "type": "ClusterIP" }),
            expect![[r#"
                "SingleStack" ["IPv4"] null allocate [0]
            "#]],
        );
    }
}
