//! What API servers that are gone have said of stored versions is forgotten: each server is known by its
//! lease.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::object::Object;
use client::ApiResource;
use client::source::Collection;
use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{
    StorageVersion, StorageVersionCondition, StorageVersionStatus,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "storageversion-garbage-collector-controller",
    account: "storage-version-garbage-collector",
    workers: 1,
    watch,
    reconcile,
};

const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const EQUAL: &str = "AllEncodingVersionsEqual";

fn leases() -> Collection {
    Collection::all(ApiResource::of::<Lease>()).in_namespace("kube-system")
}

fn watch(on: &Watching) {
    on.objects::<StorageVersion>();
    // A server's lease that goes: every version may have something of it.
    on.each_of::<Lease>(leases(), |world, change| {
        let is_servers = change.old.as_ref().is_some_and(|lease| is_server(lease));
        if !is_servers || change.new.is_some() {
            return Vec::new();
        }
        let versions = world.informer::<StorageVersion>();
        versions.read().iter().map(|(key, _)| key.clone()).collect()
    });
}

fn is_server(lease: &Lease) -> bool {
    let labels = lease.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(IDENTITY)).is_some_and(|of| of == "kube-apiserver")
}

/// Nothing is forgotten on the word of a cache that may be behind: leases are asked for.
fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(version) = world.get::<StorageVersion>(key) else { return Vec::new() };
    let known = world.keep::<Lease>(leases());
    let is_known = |id: &str| {
        let lease = known.get(&NamespacedName::new("kube-system", id));
        lease.is_some_and(|lease| is_server(&lease))
    };
    if status(&version).storage_versions.iter().flatten().all(|it| is_known(&it.api_server_id)) {
        return Vec::new();
    }
    let then = move |lists: Vec<(Collection, Vec<Arc<Object>>)>| {
        let found = lists.iter().flat_map(|(_, found)| found);
        let found = found.filter_map(|object| object.typed::<Lease>().ok());
        let servers = found.filter(|lease| is_server(lease));
        let servers: BTreeSet<String> =
            servers.filter_map(|lease| lease.metadata.name.clone()).collect();
        without(&version, &servers, now)
    };
    vec![Action::Gather { of: vec![leases()], then: Box::new(then) }]
}

fn status(version: &StorageVersion) -> StorageVersionStatus {
    version.status.clone().unwrap_or_default()
}

fn without(version: &StorageVersion, servers: &BTreeSet<String>, now: Timestamp) -> Vec<Action> {
    let mut status = status(version);
    let mut said = status.storage_versions.take().unwrap_or_default();
    let before = said.len();
    said.retain(|it| servers.contains(&it.api_server_id));
    if said.len() == before {
        return Vec::new();
    }
    let Some(first) = said.first().map(|it| it.encoding_version.clone()) else {
        return vec![Action::delete(version)];
    };
    let common = said.iter().all(|it| it.encoding_version == first).then_some(first);
    let is_another = status.common_encoding_version.is_some()
        && common.is_some()
        && status.common_encoding_version != common;
    let (state, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let mut conditions = status.conditions.take().unwrap_or_default();
    let old = conditions.iter().position(|it| it.type_ == EQUAL).map(|at| conditions.remove(at));
    let since = old.filter(|old| old.status == state && !is_another);
    conditions.push(StorageVersionCondition {
        type_: EQUAL.to_owned(),
        status: state.to_owned(),
        observed_generation: version.metadata.generation,
        last_transition_time: since.map_or(Some(Time(now)), |old| old.last_transition_time),
        reason: reason.to_owned(),
        message: message.to_owned(),
    });
    let mut new = version.clone();
    new.status = Some(StorageVersionStatus {
        common_encoding_version: common,
        conditions: Some(conditions),
        storage_versions: Some(said),
    });
    vec![Action::update_part("status", &new)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_written};
    use expect_test::expect;

    fn world(said: &[(&str, &str)]) -> String {
        let each = said.iter().map(|(server, encoding)| {
            format!(
                "{{\"apiServerID\":\"{server}\",\"encodingVersion\":\"{encoding}\",\"decodableVersions\":[\"v1\"]}}"
            )
        });
        let each = each.collect::<Vec<_>>().join(",");
        format!(
            "lease kube-system/here label:{IDENTITY}=kube-apiserver
             lease kube-system/stranger
             storageversion apps.deployments status.storageVersions=[{each}]"
        )
    }

    #[test]
    fn what_servers_said_that_are_gone_is_forgotten() {
        check_written(&CONTROLLER, &world(&[("here", "v1")]), expect![[""]]);
        check_written(
            &CONTROLLER,
            &world(&[("gone", "v1"), ("stranger", "v1")]),
            expect![[r#"
                delete storageversions.internal.apiserver.k8s.io apps.deployments
            "#]],
        );
        let mut left = String::new();
        after(
            &CONTROLLER,
            &world(&[("gone", "v2"), ("here", "v1")]),
            |_| {},
            |server| {
                let version = server.all::<StorageVersion>().remove(0);
                left = serde_json::to_string(&version.status).expect("JSON");
            },
        );
        expect![[r#"{"commonEncodingVersion":"v1","conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Common encoding version set","observedGeneration":1,"reason":"CommonEncodingVersionSet","status":"True","type":"AllEncodingVersionsEqual"}],"storageVersions":[{"apiServerID":"here","decodableVersions":["v1"],"encodingVersion":"v1"}]}"#]]
            .assert_eq(&left);
    }
}
