//! `cargo xtask discovery PATH`: compares what our server would say it serves with published
//! documents (Kubernetes' `api/discovery`). Those list alpha and beta versions too, which are off
//! by default; only the versions in our registry are compared. The hashes of storage versions do not
//! count: upstream still stores some kinds in a beta version that we do not serve; nor does the
//! `apiVersion` of the list itself, which upstream leaves out for the core group.
use crate::roundtrip::difference;
use api::{discovery, kinds};
use serde_json::{Value, json};
use std::path::Path;

pub fn run(folder: &Path) -> Result<(), String> {
    let read = |name: &str| -> Result<Value, String> {
        let text = std::fs::read(folder.join(name)).map_err(|e| format!("{name}: {e}"))?;
        serde_json::from_slice(&text).map_err(|e| format!("{name}: {e}"))
    };
    let (mut equal, mut different) = (0, 0);
    let mut compare = |what: &str, ours: Value, published: Value| match difference(
        &ours,
        &published,
        String::new(),
    ) {
        None => equal += 1,
        Some(found) => {
            different += 1;
            println!("{what}{found}");
        }
    };
    let aggregated = read("aggregated_v2.json")?;
    let everything = json!(discovery::aggregated(api::kinds::built_in(), false));
    for (group, versions) in kinds::groups() {
        for version in versions {
            let name = match group {
                "" => format!("api__{version}.json"),
                group => format!("apis__{group}__{version}.json"),
            };
            let ours =
                comparable(json!(discovery::resources(api::kinds::built_in(), group, version)));
            compare(&name, ours, comparable(read(&name)?));
            if !group.is_empty() {
                let pick = |list: &Value| version_of(list, group, version);
                compare(
                    &format!("aggregated {group}/{version}"),
                    pick(&everything),
                    pick(&aggregated),
                );
            }
        }
    }
    println!("{equal} equal, {different} different");
    if different > 0 { Err("some documents differ".into()) } else { Ok(()) }
}

fn comparable(mut list: Value) -> Value {
    list["apiVersion"] = Value::Null;
    for resource in list["resources"].as_array_mut().into_iter().flatten() {
        if let Value::Object(resource) = resource {
            resource.remove("storageVersionHash");
        }
    }
    list
}

fn version_of(list: &Value, group: &str, version: &str) -> Value {
    let find = |list: &Value, matches: &dyn Fn(&Value) -> bool| {
        list.as_array()
            .into_iter()
            .flatten()
            .find(|item| matches(item))
            .cloned()
            .unwrap_or_default()
    };
    let group = find(&list["items"], &|item| item["metadata"]["name"] == group);
    find(&group["versions"], &|item| item["version"] == version)
}
