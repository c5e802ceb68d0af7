//! What the server serves, as clients discover it: derived from a registry's rows.
//!
//! Old clients ask group by group ([`versions`], [`groups`], [`group`], [`resources`]); newer ones
//! ask once for everything ([`aggregated`]).
use crate::kinds::{self, Registry, Resource, Subresource, Verb, Verbs};
use crate::meta::discovery::{
    APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery, APISubresourceDiscovery,
    APIVersionDiscovery, Freshness, GroupVersionKind, Scope,
};
use crate::meta::{APIGroup, APIGroupList, APIResource, APIResourceList, APIVersions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    GroupVersionForDiscovery, ObjectMeta, ServerAddressByClientCIDR,
};
use sha2::{Digest, Sha256};

/// `/api`: the versions of the core group, and where clients reach this server.
pub fn versions(server_address: &str) -> APIVersions {
    APIVersions {
        versions: vec!["v1".into()],
        server_address_by_client_cidrs: vec![ServerAddressByClientCIDR {
            client_cidr: "0.0.0.0/0".into(),
            server_address: server_address.into(),
        }],
    }
}

/// `/apis`: every group but the core one.
pub fn groups(registry: &Registry) -> APIGroupList {
    let named = registry.groups().into_iter().filter(|(group, _)| !group.is_empty());
    APIGroupList { groups: named.map(|(group, versions)| group_of(group, &versions)).collect() }
}

/// `/apis/{group}`.
pub fn group(registry: &Registry, name: &str) -> Option<APIGroup> {
    let (group, versions) = registry.groups().into_iter().find(|(group, _)| *group == name)?;
    Some(group_of(group, &versions))
}

fn group_of(group: &str, versions: &[&str]) -> APIGroup {
    let versions: Vec<GroupVersionForDiscovery> = versions
        .iter()
        .map(|version| GroupVersionForDiscovery {
            group_version: format!("{group}/{version}"),
            version: (*version).into(),
        })
        .collect();
    APIGroup {
        name: group.into(),
        preferred_version: versions.first().cloned(),
        versions,
        server_address_by_client_cidrs: None,
    }
}

/// `/api/v1`, `/apis/{group}/{version}`: resources and subresources, by name; those of definitions by the
/// resource's name.
pub fn resources(registry: &Registry, group: &str, version: &str) -> Option<APIResourceList> {
    let mut rows: Vec<&Resource> = registry.rows_of(group, version).map(|row| &**row).collect();
    let group_version = rows.first()?.api_version();
    rows.sort_by_key(|row| row.plural);
    let mut resources: Vec<APIResource> = Vec::new();
    for row in &rows {
        resources.push(resource(row));
        resources.extend(row.subresources.iter().map(|sub| subresource(row, sub)));
    }
    if rows.iter().all(|row| row.definition.is_none()) {
        resources.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Some(APIResourceList { group_version, resources })
}

fn resource(row: &Resource) -> APIResource {
    APIResource {
        name: row.plural.into(),
        singular_name: row.singular(),
        namespaced: row.is_namespaced(),
        kind: row.kind.into(),
        verbs: verbs_of(row),
        short_names: some(row.short_names),
        categories: some(row.categories),
        storage_version_hash: row.is_stored().then(|| storage_version_hash(row)),
        group: None,
        version: None,
    }
}

fn subresource(row: &Resource, sub: &Subresource) -> APIResource {
    // A kind of the resource's own group goes without saying.
    let foreign = sub.kind.filter(|kind| kind.group != row.group || kind.version != row.version);
    APIResource {
        name: format!("{}/{}", row.plural, sub.name),
        singular_name: String::new(),
        namespaced: row.is_namespaced(),
        kind: sub.kind.map_or(row.kind, |kind| kind.kind).into(),
        verbs: verbs(sub.verbs),
        group: foreign.map(|kind| kind.group.into()),
        version: foreign.map(|kind| kind.version.into()),
        short_names: None,
        categories: None,
        storage_version_hash: None,
    }
}

/// Of a definition's objects in upstream's order (`customresource_discovery_controller.go`). While a
/// definition goes, its objects can only go as well.
fn verbs_of(row: &Resource) -> Vec<String> {
    use Verb::{Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch};
    let named = |verbs: &[Verb]| verbs.iter().map(|verb| verb.as_str().to_owned()).collect();
    match &row.definition {
        None => verbs(row.verbs),
        Some(definition) if definition.family.terminating => {
            named(&[Delete, DeleteCollection, Get, List, Watch])
        }
        Some(_) => named(&[Delete, DeleteCollection, Get, List, Patch, Create, Update, Watch]),
    }
}

fn verbs(verbs: Verbs) -> Vec<String> {
    verbs.iter().map(|verb| verb.as_str().to_owned()).collect()
}

fn some(words: &[&str]) -> Option<Vec<String>> {
    (!words.is_empty()).then(|| strings(words))
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Changes when the version that objects are stored in does; clients only compare it.
fn storage_version_hash(row: &Resource) -> String {
    let api_version = row.storage_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let digest = Sha256::digest(format!("{group}/{version}/{}", row.kind));
    BASE64.encode(&digest[..8])
}

/// Everything below `/api` (the core group) or `/apis` (all others) at once.
pub fn aggregated(registry: &Registry, core: bool) -> APIGroupDiscoveryList {
    let groups = registry.groups().into_iter().filter(|(group, _)| group.is_empty() == core);
    APIGroupDiscoveryList::new(
        groups
            .map(|(group, versions)| APIGroupDiscovery {
                metadata: ObjectMeta {
                    name: (!group.is_empty()).then(|| group.to_owned()),
                    ..ObjectMeta::default()
                },
                versions: versions
                    .into_iter()
                    .map(|version| aggregated_version(registry, group, version))
                    .collect(),
            })
            .collect(),
    )
}

fn aggregated_version(registry: &Registry, group: &str, version: &str) -> APIVersionDiscovery {
    let mut resources: Vec<APIResourceDiscovery> = registry
        .rows_of(group, version)
        .map(|row| APIResourceDiscovery {
            resource: row.plural.into(),
            response_kind: Some(own_kind(row)),
            scope: if row.is_namespaced() { Scope::Namespaced } else { Scope::Cluster },
            singular_resource: row.singular(),
            verbs: verbs_of(row),
            short_names: strings(row.short_names),
            categories: strings(row.categories),
            subresources: row
                .subresources
                .iter()
                .map(|sub| aggregated_subresource(row, sub))
                .collect(),
        })
        .collect();
    resources.sort_by(|a, b| a.resource.cmp(&b.resource));
    APIVersionDiscovery { version: version.into(), resources, freshness: Freshness::Current }
}

/// The group and version of a built-in resource's own kind are left for the reader to fill in.
fn own_kind(row: &Resource) -> GroupVersionKind {
    if row.definition.is_some() {
        let (group, version) = (row.group.to_owned(), row.version.to_owned());
        return GroupVersionKind { group, version, kind: row.kind.into() };
    }
    GroupVersionKind { group: String::new(), version: String::new(), kind: row.kind.into() }
}

fn aggregated_subresource(row: &Resource, sub: &Subresource) -> APISubresourceDiscovery {
    let foreign = |kind: kinds::Foreign| {
        let other = kind.group != row.group || kind.version != row.version;
        GroupVersionKind {
            group: if other { kind.group.into() } else { String::new() },
            version: if other { kind.version.into() } else { String::new() },
            kind: kind.kind.into(),
        }
    };
    APISubresourceDiscovery {
        subresource: sub.name.into(),
        response_kind: Some(sub.kind.map_or_else(|| own_kind(row), foreign)),
        accepted_types: Vec::new(),
        verbs: verbs(sub.verbs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;

    #[test]
    fn a_version_lists_resources_and_subresources_by_name() {
        let list = resources(built_in(), "apps", "v1").unwrap();
        let names: Vec<&str> = list.resources.iter().map(|r| &*r.name).collect();
        assert_eq!(
            names[..4],
            ["controllerrevisions", "daemonsets", "daemonsets/status", "deployments"]
        );
        let scale = list.resources.iter().find(|r| r.name == "deployments/scale").unwrap();
        assert_eq!((scale.group.as_deref(), &*scale.kind), (Some("autoscaling"), "Scale"));
        assert_eq!(resources(built_in(), "apps", "v9"), None);
    }

    #[test]
    fn both_versions_of_a_kind_have_the_hash_of_the_stored_one() {
        let hash = |version| {
            resources(built_in(), "autoscaling", version).unwrap().resources[0]
                .storage_version_hash
                .clone()
        };
        assert!(hash("v2").is_some());
        assert_eq!(hash("v1"), hash("v2"));
    }

    #[test]
    fn groups_come_in_order_of_preference() {
        let groups = groups(built_in()).groups;
        assert_eq!((&*groups[0].name, &*groups[1].name), ("apiregistration.k8s.io", "apps"));
        assert_eq!(
            group(built_in(), "autoscaling").unwrap().preferred_version.unwrap().version,
            "v2"
        );
        assert_eq!(aggregated(built_in(), true).items.len(), 1);
    }
}
