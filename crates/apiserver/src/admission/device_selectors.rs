//! Selectors of devices that do not compile or may cost too much, found when their class or claim is
//! written (`pkg/apis/resource/validation`).
use api::field::{Error, ErrorList, Path};
use api::kinds::Resource;
use cel::device::{Refused, Selector};
use serde_json::Value;

/// An expression that is longer is refused for that, and not compiled.
const LONGEST: usize = 10 << 10;

pub fn faults(resource: &Resource, object: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = Path::new("spec");
    let spec = &object["spec"];
    match resource.built_in() {
        // Those that are as they were have been judged.
        ("resource.k8s.io", "DeviceClass")
            if old.is_none_or(|old| old["spec"]["selectors"] != spec["selectors"]) =>
        {
            judge(&spec["selectors"], &root, &mut errors);
        }
        // Its spec cannot be changed.
        ("resource.k8s.io", "ResourceClaim") if old.is_none() => {
            claim(&spec["devices"], &root.child("devices"), &mut errors);
        }
        ("resource.k8s.io", "ResourceClaimTemplate")
            if old.is_none_or(|old| old["spec"]["spec"] != spec["spec"]) =>
        {
            let inner = root.child("spec");
            claim(&spec["spec"]["devices"], &inner.child("devices"), &mut errors);
        }
        _ => {}
    }
    errors
}

fn claim(devices: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let requests = path.child("requests");
    for (at, request) in items(&devices["requests"]).iter().enumerate() {
        let place = requests.index(at);
        // Older versions have the one request in the place of `exactly`.
        let exactly = if request["exactly"].is_object() { &request["exactly"] } else { request };
        judge(&exactly["selectors"], &place.child("exactly"), errors);
        let alternatives = place.child("firstAvailable");
        for (at, alternative) in items(&request["firstAvailable"]).iter().enumerate() {
            judge(&alternative["selectors"], &alternatives.index(at), errors);
        }
    }
}

fn judge(selectors: &Value, holder: &Path<'_>, errors: &mut ErrorList) {
    let path = holder.child("selectors");
    for (at, selector) in items(selectors).iter().enumerate() {
        let Some(text) = selector["cel"]["expression"].as_str() else { continue };
        if text.len() > LONGEST {
            continue;
        }
        let item = path.index(at);
        let cel = item.child("cel");
        let place = cel.child("expression");
        match Selector::judge(text) {
            Ok(()) => {}
            Err(Refused::Invalid(fault)) => errors.push(Error::invalid(&place, text, fault)),
            Err(Refused::TooDear) => {
                errors.push(Error::forbidden(&place, "too complex, exceeds cost limit"));
            }
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: &str, spec: Value, old: Option<Value>) -> Vec<String> {
        let resource = api::kinds::find_kind("resource.k8s.io/v1", kind).expect("a kind");
        let old = old.map(|spec| json!({ "spec": spec }));
        let errors = faults(resource, &json!({ "spec": spec }), old.as_ref());
        errors.iter().map(ToString::to_string).collect()
    }

    fn selectors(expression: &str) -> Value {
        json!([{ "cel": { "expression": expression } }])
    }

    #[test]
    fn selectors_are_compiled_when_they_are_written() {
        let class = |text: &str| json!({ "selectors": selectors(text) });
        assert_eq!(check("DeviceClass", class("device.driver == 'a'"), None), [""; 0]);
        let wrong = check("DeviceClass", class("device.nothing"), None);
        assert!(
            wrong[0].starts_with("spec.selectors[0].cel.expression: Invalid value"),
            "{wrong:?}"
        );
        // What is stored was judged once.
        let wrong = class("device.nothing");
        assert_eq!(check("DeviceClass", wrong.clone(), Some(wrong)), [""; 0]);
        let requests = json!([{ "name": "a", "exactly": { "selectors": selectors("1") } },
            { "name": "b", "firstAvailable": [{ "selectors": selectors("true") },
                { "selectors": selectors("?!") }] }]);
        let claim = json!({ "devices": { "requests": requests } });
        let places = |kind: &str, spec: Value| -> Vec<String> {
            let faults = check(kind, spec, None);
            faults.iter().filter_map(|text| Some(text.split_once(": ")?.0.to_owned())).collect()
        };
        assert_eq!(
            places("ResourceClaim", claim.clone()),
            [
                "spec.devices.requests[0].exactly.selectors[0].cel.expression",
                "spec.devices.requests[1].firstAvailable[1].selectors[0].cel.expression",
            ]
        );
        assert_eq!(
            places("ResourceClaimTemplate", json!({ "spec": claim }))[0],
            "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression"
        );
    }

    #[test]
    fn one_that_may_cost_too_much_is_refused() {
        let all = "device.attributes.all(a, device.attributes.all(b, \
                   device.attributes.all(c, device.attributes.all(d, a != b && c != d))))";
        let refused = check("DeviceClass", json!({ "selectors": selectors(all) }), None);
        assert_eq!(
            refused,
            ["spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"]
        );
    }
}
