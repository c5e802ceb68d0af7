//! What other servers serve, among what is served here.
use super::{Remote, Remotes, priorities};
use crate::server::ApiServer;
use api::codec::json;
use api::schema::builtin;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::PoisonError;

/// Discovery of everything at once.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What a server says that it serves in its group and version; nothing if it does not answer.
pub async fn fetch(api: &ApiServer, remote: &Remote) -> Option<Value> {
    let answer = remote.get(api, "/apis", AGGREGATED, "").await.ok()?;
    let code = answer.head.status.as_u16();
    let media = answer.header(http::header::CONTENT_TYPE);
    if code == 200 && media.contains("as=APIGroupDiscoveryList") && media.contains("v=v2;") {
        let list = checked(answer.json()?, "apidiscovery/v2.APIGroupDiscoveryList")?;
        let found = version_in(&list, remote);
        return Some(found.unwrap_or_else(|| json!({ "version": remote.version })));
    }
    if code == 503 {
        return None;
    }
    // An older one, which says it group by group.
    let answer = remote.get(api, &remote.root(), "application/json", "").await.ok()?;
    let list = answer.json().filter(|_| answer.head.status.is_success())?;
    let list = checked(list, "meta/v1.APIResourceList")?;
    Some(json!({ "version": remote.version, "resources": from_list(&list, remote) }))
}

/// What a server says, if it is of the form that it should have. Clients read the merged document as a
/// whole: one number where a name belongs would cost them all of it.
fn checked(said: Value, name: &str) -> Option<Value> {
    let ty = builtin().named(name).expect("discovery is in the facts");
    json::canonicalize(said, ty).ok().map(|decoded| decoded.value)
}

/// A server's own part of all that it serves.
fn version_in(list: &Value, remote: &Remote) -> Option<Value> {
    let mut groups = list["items"].as_array()?.iter();
    let group = groups.find(|group| group["metadata"]["name"] == *remote.group)?;
    let mut versions = group["versions"].as_array()?.iter();
    let mut version = versions.find(|version| version["version"] == *remote.version)?.clone();
    // Some clients cannot do without a kind.
    for resource in version["resources"].as_array_mut().into_iter().flatten() {
        fill_kind(resource);
        for part in resource["subresources"].as_array_mut().into_iter().flatten() {
            fill_kind(part);
        }
    }
    Some(version)
}

fn fill_kind(resource: &mut Value) {
    if !resource["responseKind"].is_object() && resource.is_object() {
        resource["responseKind"] = json!({ "group": "", "version": "", "kind": "" });
    }
}

/// The resources of an `APIResourceList`, each with its subresources.
fn from_list(list: &Value, remote: &Remote) -> Vec<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let or = |value: &Value, default: &str| match value.as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => default.to_owned(),
    };
    let kind = |resource: &Value| {
        json!({ "group": or(&resource["group"], &remote.group),
            "version": or(&resource["version"], &remote.version), "kind": text(&resource["kind"]) })
    };
    let all = || list["resources"].as_array().into_iter().flatten();
    let mut resources: Vec<Value> = Vec::new();
    for resource in all().filter(|resource| !text(&resource["name"]).contains('/')) {
        let scope = if resource["namespaced"] == true { "Namespaced" } else { "Cluster" };
        let mut found = json!({ "resource": resource["name"], "responseKind": kind(resource),
            "scope": scope, "singularResource": text(&resource["singularName"]),
            "verbs": resource["verbs"] });
        for field in ["shortNames", "categories"] {
            if resource[field].is_array() {
                found[field] = resource[field].clone();
            }
        }
        resources.push(found);
    }
    for part in all() {
        let name = text(&part["name"]);
        let Some((of, name)) = name.split_once('/') else { continue };
        let Some(parent) = resources.iter_mut().find(|resource| resource["resource"] == of) else {
            continue;
        };
        let found =
            json!({ "subresource": name, "responseKind": kind(part), "verbs": part["verbs"] });
        match parent["subresources"].as_array_mut() {
            Some(parts) => parts.push(found),
            None => parent["subresources"] = json!([found]),
        }
    }
    resources
}

/// `/apis`: an `APIGroupList` of this server's own with the groups of others in their places.
pub fn groups(api: &ApiServer, list: Value) -> Value {
    let remotes = api.extend().aggregation.current();
    merged_groups(list, &remotes)
}

/// `/apis/{group}`.
pub fn group(api: &ApiServer, name: &str, own: Option<Value>) -> Option<Value> {
    let remotes = api.extend().aggregation.current();
    if !remotes.keys().any(|(group, _)| group == name) {
        return own;
    }
    let list = json!({ "groups": own.into_iter().collect::<Vec<_>>() });
    let merged = merged_groups(list, &remotes);
    let groups = merged["groups"].as_array()?.iter();
    let mut found = groups.into_iter().find(|group| group["name"] == name)?.clone();
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

fn merged_groups(mut list: Value, remotes: &Remotes) -> Value {
    if remotes.is_empty() {
        return list;
    }
    let Value::Array(mut groups) = list["groups"].take() else { return list };
    for remote in remotes.values() {
        let api_version = format!("{}/{}", remote.group, remote.version);
        let version = json!({ "groupVersion": api_version, "version": remote.version });
        match groups.iter_mut().find(|group| group["name"] == *remote.group) {
            Some(group) => {
                put(group, "versions", version, |known| known["version"] == *remote.version)
            }
            None => groups.push(json!({ "name": remote.group, "versions": [version] })),
        }
    }
    sort(&mut groups, remotes, |group| group["name"].as_str().unwrap_or_default().to_owned());
    for group in &mut groups {
        group["preferredVersion"] = group["versions"][0].clone();
    }
    list["groups"] = groups.into();
    list
}

/// Everything below `/apis` at once: an `APIGroupDiscoveryList` of this server's own with what others
/// were last heard to serve.
pub fn aggregated(api: &ApiServer, list: Value) -> Value {
    let remotes = api.extend().aggregation.current();
    merged(list, &remotes)
}

fn merged(mut list: Value, remotes: &Remotes) -> Value {
    if remotes.is_empty() {
        return list;
    }
    let Value::Array(mut groups) = list["items"].take() else { return list };
    for remote in remotes.values() {
        let known = remote.known.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut version, is_current) =
            known.unwrap_or_else(|| (json!({ "version": remote.version }), false));
        version["freshness"] = if is_current { "Current" } else { "Stale" }.into();
        match groups.iter_mut().find(|group| group["metadata"]["name"] == *remote.group) {
            Some(group) => {
                put(group, "versions", version, |known| known["version"] == *remote.version)
            }
            None => {
                groups.push(json!({ "metadata": { "name": remote.group }, "versions": [version] }))
            }
        }
    }
    let name = |group: &Value| group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    sort(&mut groups, remotes, name);
    list["items"] = groups.into();
    list
}

/// Puts an item into a list, in the place of the one that it is about.
fn put(group: &mut Value, field: &str, item: Value, is_it: impl Fn(&Value) -> bool) {
    let Some(items) = group[field].as_array_mut() else { return };
    match items.iter_mut().find(|known| is_it(known)) {
        Some(known) => *known = item,
        None => items.push(item),
    }
}

/// Groups by their priority, versions by theirs and then by how grown up they are. What has no other's
/// version in it stays in its order.
fn sort(groups: &mut [Value], remotes: &Remotes, name: impl Fn(&Value) -> String) {
    let priority = |group: &str, version: &str| {
        let remote = remotes.get(&(group.to_owned(), version.to_owned()));
        let given = remote.map(|remote| (remote.group_priority, remote.version_priority));
        given.or_else(|| priorities::of(group, version)).unwrap_or(priorities::DEFINED)
    };
    let version = |version: &Value| version["version"].as_str().unwrap_or_default().to_owned();
    for group in groups.iter_mut() {
        let name = name(group);
        if remotes.keys().any(|(known, _)| *known == name)
            && let Some(versions) = group["versions"].as_array_mut()
        {
            versions.sort_by_cached_key(|known| {
                let known = version(known);
                (Reverse(priority(&name, &known).1), Reverse(age(&known)))
            });
        }
    }
    groups.sort_by_cached_key(|group| {
        let name = name(group);
        let versions = group["versions"].as_array().into_iter().flatten();
        let highest = versions.map(|known| priority(&name, &version(known)).0).max();
        let highest = match name == priorities::REGISTRATION.0 {
            true => priorities::REGISTRATION.1,
            false => highest.unwrap_or_default(),
        };
        Reverse(highest)
    });
}

/// How grown up a version is: `v2` above `v1`, `v1` above `v1beta2`, that above `v1alpha1`, and all of
/// them above what is no such version.
fn age(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        match &rest[end..] {
            "" => Some((3, major, 0)),
            stage => {
                let (rank, minor) = match stage.strip_prefix("beta") {
                    Some(minor) => (2, minor),
                    None => (1, stage.strip_prefix("alpha")?),
                };
                Some((rank, major, minor.parse().ok()?))
            }
        }
    };
    let (rank, major, minor) = parsed().unwrap_or((0, 0, 0));
    (rank, major, minor, Reverse(version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn remotes(all: &[(&str, &str, i64, i64)]) -> Remotes {
        let read = |(group, version, group_priority, version_priority): &(&str, &str, i64, i64)| {
            let service = json!({ "metadata": { "name": format!("{version}.{group}") }, "spec": {
                "group": group, "version": version, "groupPriorityMinimum": group_priority,
                "versionPriority": version_priority, "insecureSkipTLSVerify": true,
                "service": { "name": "a", "namespace": "b" } } });
            let remote = Remote::read(&service, None, &Remotes::new()).expect("a remote");
            (((*group).to_owned(), (*version).to_owned()), Arc::new(remote))
        };
        all.iter().map(read).collect()
    }

    #[test]
    fn groups_of_others_take_their_places() {
        let own = json!(api::discovery::groups(api::kinds::built_in()));
        let names = |list: &Value| -> Vec<String> {
            let groups = list["groups"].as_array().expect("groups").iter();
            groups.map(|group| group["name"].as_str().expect("a name").to_owned()).collect()
        };
        let before = names(&own);
        assert_eq!(merged_groups(own.clone(), &Remotes::new()), own);
        let others = remotes(&[
            ("e.io", "v1", 2000, 15),
            ("e.io", "v2", 2000, 15),
            ("top.io", "v1", 19_000, 1),
        ]);
        let list = merged_groups(own, &others);
        let after = names(&list);
        assert_eq!(after[..2], ["apiregistration.k8s.io".to_owned(), "top.io".into()]);
        assert_eq!(after.last().map(String::as_str), Some("e.io"));
        let kept: Vec<&String> = after.iter().filter(|name| before.contains(name)).collect();
        assert_eq!(kept, before.iter().collect::<Vec<_>>());
        let last = list["groups"].as_array().and_then(|groups| groups.last()).expect("a group");
        assert_eq!(last["preferredVersion"]["groupVersion"], "e.io/v2");
    }

    #[test]
    fn what_does_not_answer_is_stale() {
        let others = remotes(&[("e.io", "v1", 2000, 15)]);
        let own = json!(api::discovery::aggregated(api::kinds::built_in(), false));
        let shown = |others: &Remotes| {
            let list = merged(own.clone(), others);
            let items = list["items"].as_array().expect("items");
            items.last().expect("a group")["versions"][0].clone()
        };
        assert_eq!(shown(&others), json!({ "version": "v1", "freshness": "Stale" }));
        let known = &others.values().next().expect("one").known;
        let found = json!({ "version": "v1", "resources": [{ "resource": "things" }] });
        known.put_discovery(Some(found));
        assert_eq!(shown(&others)["freshness"], "Current");
        known.put_discovery(None);
        assert_eq!(shown(&others)["freshness"], "Stale");
        assert_eq!(shown(&others)["resources"][0]["resource"], "things");
    }

    #[test]
    fn an_older_servers_list_is_read_too() {
        let others = remotes(&[("e.io", "v1", 2000, 15)]);
        let remote = others.values().next().expect("one");
        let list = json!({ "kind": "APIResourceList", "resources": [
            { "name": "things/status", "kind": "Thing", "verbs": ["get"] },
            { "name": "things", "kind": "Thing", "namespaced": true, "singularName": "thing",
                "verbs": ["get", "list"], "shortNames": ["th"] }] });
        let kind = json!({ "group": "e.io", "version": "v1", "kind": "Thing" });
        assert_eq!(
            from_list(&list, remote),
            [json!({ "resource": "things", "responseKind": kind, "scope": "Namespaced",
                "singularResource": "thing", "verbs": ["get", "list"], "shortNames": ["th"],
                "subresources": [{ "subresource": "status", "responseKind": kind,
                    "verbs": ["get"] }] })]
        );
    }

    #[test]
    fn versions_grow_up() {
        let mut versions = ["foo", "v1alpha1", "v10", "v2", "v1beta2", "v1beta1", "bar", "v1"];
        versions.sort_by_key(|version| Reverse(age(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"]);
    }
}
