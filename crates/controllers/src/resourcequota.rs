//! How much of everything a namespace uses, counted anew.
//!
//! The API server charges a quota together with the object that it admits; what goes is given back
//! here.
use crate::action::{Action, tree};
use crate::definitions::{self, Defined};
use crate::driver::{Controller, Watching};
use crate::garbage::{Kept, collectable};
use crate::world::World;
use api::kinds::Resource;
use api::names::NamespacedName;
use api::quota::{self, ResourceList, Selector, Uses};
use api::rules::Form;
use client::source::Collection;
use client::{ApiResource, Change};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "resourcequota-controller",
    account: "resourcequota-controller",
    workers: 5,
    watch,
    reconcile,
};

/// Whatever happened: upstream's `--resource-quota-sync-period`.
const RESYNC: Duration = Duration::from_secs(300);

/// What there was before a quota, we may hear of after it, for each kind is heard of by itself; and the
/// API server charges nothing to a quota for it. So a new one is counted again for a while.
const YOUNG: SignedDuration = SignedDuration::from_secs(10);
const SOON: Duration = Duration::from_secs(1);

fn watch(on: &Watching) {
    on.each::<ResourceQuota>(|_, change| {
        let hard = |quota: &ResourceQuota| quota.spec.as_ref().and_then(|spec| spec.hard.clone());
        match (&change.old, &change.new) {
            // What the API server charges is right.
            (Some(old), Some(new)) if hard(old) == hard(new) => Vec::new(),
            _ => vec![change.key.clone()],
        }
    });
    on.each::<Pod>(changed);
    on.each::<Service>(changed);
    on.each::<PersistentVolumeClaim>(changed);
    for row in counted() {
        gone(on, row.into());
    }
    let (watching, known) = (on.clone(), Mutex::new(HashSet::new()));
    on.each_of::<Defined>(definitions::collection(), move |_, change| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let resource = |defined: &Option<Arc<Defined>>| defined.as_ref()?.resource.clone();
        let (old, new) = (resource(&change.old), resource(&change.new));
        if old != new
            && let Some(old) = &old
        {
            known.remove(old);
        }
        if let Some(new) = new.filter(|new| new.is_namespaced() && known.insert(new.clone())) {
            gone(&watching, new);
        }
        Vec::new()
    });
}

/// An object that is gone gives back what it was charged for.
fn gone(on: &Watching, resource: ApiResource) {
    on.each_of::<Kept>(Collection::all(resource), |world, change| match change.new {
        None => quotas(world, &change.key.namespace),
        Some(_) => Vec::new(),
    });
}

/// Built-in kinds of which only the number counts.
fn counted() -> impl Iterator<Item = &'static Resource> {
    let is_plain = |row: &&Resource| matches!(Uses::of(row.group, row.plural), Uses::Place(_));
    collectable().filter(|row| row.is_namespaced()).filter(is_plain)
}

/// An object that uses less than it did, or is gone.
fn changed<T: Form>(world: &World, change: &Change<T>) -> Vec<NamespacedName> {
    let Some(old) = &change.old else { return Vec::new() };
    let uses = uses_of::<T>();
    // A pod that has ended uses nothing, whatever the time.
    let usage = |object: &T| uses.usage(&tree(object), Timestamp::UNIX_EPOCH);
    match &change.new {
        Some(new) if usage(old) == usage(new) => Vec::new(),
        _ => quotas(world, &change.key.namespace),
    }
}

fn quotas(world: &World, namespace: &str) -> Vec<NamespacedName> {
    let quotas = world.informer::<ResourceQuota>();
    let read = quotas.read();
    read.in_namespace(namespace).map(|(key, _)| key.clone()).collect()
}

fn uses_of<T: Form>() -> Uses {
    let resource = client::ApiResource::of::<T>();
    let row = resource.row.expect("a kind of our own is in the registry");
    Uses::of(row.group, row.plural)
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(quota) = world.get::<ResourceQuota>(key) else { return Vec::new() };
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let scopes = quota::scopes(&tree(&*quota));
    let mut used = ResourceList::new();
    let mut count = |uses: &Uses, objects: &mut dyn Iterator<Item = Value>| {
        let mine: Vec<_> = hard.keys().filter(|name| uses.has(name)).collect();
        if mine.is_empty() {
            return;
        }
        let mut total = ResourceList::new();
        for object in objects.filter(|object| is_in(&scopes, uses, object)) {
            quota::add(&mut total, &uses.usage(&object, now));
        }
        for name in mine {
            let amount = total.remove(name).unwrap_or_else(|| quota::count(0));
            used.insert(name.clone(), amount);
        }
    };
    count(&uses_of::<Pod>(), &mut trees::<Pod>(world, key));
    count(&uses_of::<Service>(), &mut trees::<Service>(world, key));
    count(&uses_of::<PersistentVolumeClaim>(), &mut trees::<PersistentVolumeClaim>(world, key));
    let custom = definitions::resources(world).into_iter().filter(ApiResource::is_namespaced);
    for resource in counted().map(ApiResource::from).chain(custom) {
        let uses = Uses::of(&resource.group, &resource.plural);
        if hard.keys().any(|name| uses.has(name)) {
            let kept = world.keep::<Kept>(Collection::all(resource));
            if !kept.has_synced() {
                continue;
            }
            let number = kept.read().in_namespace(&key.namespace).count();
            count(&uses, &mut std::iter::repeat_n(Value::Null, number));
        }
    }
    // What nobody here can count stays as it was.
    let status = quota.status.clone().unwrap_or_default();
    let old = status.used.clone().unwrap_or_default();
    let mut new: BTreeMap<String, Written> =
        old.into_iter().filter(|(name, _)| hard.contains_key(name)).collect();
    new.extend(used.into_iter().map(|(name, amount)| (name, Written(amount.to_string()))));
    let mut actions = Vec::new();
    if status.hard.as_ref() != Some(&hard) || status.used.as_ref() != Some(&new) {
        let mut changed = (*quota).clone();
        let status = changed.status.get_or_insert_default();
        (status.hard, status.used) = (Some(hard), Some(new));
        actions.push(Action::update_part("status", &changed));
    }
    let born = quota.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let is_young = born.is_some_and(|born| now.duration_since(born) < YOUNG);
    actions.push(Action::Again(if is_young { SOON } else { RESYNC }));
    actions
}

fn trees<T: Form>(world: &World, key: &NamespacedName) -> impl Iterator<Item = Value> + use<T> {
    world.in_namespace::<T>(&key.namespace).into_iter().map(|object| tree(&*object))
}

/// A scope that cannot be understood takes nothing.
fn is_in(scopes: &[Selector], uses: &Uses, object: &Value) -> bool {
    scopes.iter().all(|scope| uses.is_in_scope(scope, object).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::{Expect, expect};

    fn check(world: &str, expect: Expect) {
        check_row(&CONTROLLER, world, &["default/all"], expect);
    }

    const WORLD: &str = "pod a spec.containers=[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"300m\"},\"limits\":{\"memory\":\"1Gi\"}}}]
        pod b spec.containers=[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"1\"}}}]
        pod ended phase=Succeeded spec.containers=[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"1\"}}}]
        pod best-effort
        pod other/a
        service web spec.type=NodePort spec.ports=[{\"port\":80}]
        persistentvolumeclaim data spec.storageClassName=fast spec.resources.requests.storage=\"2Gi\"
        configmap one
        configmap two
        deployment web";

    #[test]
    fn a_new_quota_is_counted_again_soon() {
        let quota = |born: &str| {
            format!(
                "resourcequota all spec.hard={{\"configmaps\":\"9\"}} metadata.creationTimestamp={born}\n configmap one"
            )
        };
        check(
            &quota("2026-01-01T11:59:55Z"),
            expect![[r#"
            update resourcequotas/status all {"hard":{"configmaps":"9"},"used":{"configmaps":"1"}}
            again after 1s
        "#]],
        );
        check(
            &quota("2026-01-01T11:59:00Z"),
            expect![[r#"
            update resourcequotas/status all {"hard":{"configmaps":"9"},"used":{"configmaps":"1"}}
            again after 300s
        "#]],
        );
    }

    #[test]
    fn everything_is_counted() {
        let hard = "spec.hard={\"pods\":\"9\",\"count/pods\":\"9\",\"requests.cpu\":\"9\",\"limits.memory\":\"9Gi\",\"services.nodeports\":\"9\",\"requests.storage\":\"9Gi\",\"fast.storageclass.storage.k8s.io/persistentvolumeclaims\":\"9\",\"configmaps\":\"9\",\"count/deployments.apps\":\"9\",\"secrets\":\"9\",\"count/of.nobody\":\"9\"}";
        check(
            &format!("resourcequota all {hard}\n {WORLD}"),
            expect![[r#"
            update resourcequotas/status all {"hard":{"configmaps":"9","count/deployments.apps":"9","count/of.nobody":"9","count/pods":"9","fast.storageclass.storage.k8s.io/persistentvolumeclaims":"9","limits.memory":"9Gi","pods":"9","requests.cpu":"9","requests.storage":"9Gi","secrets":"9","services.nodeports":"9"},"used":{"configmaps":"2","count/deployments.apps":"1","count/pods":"4","fast.storageclass.storage.k8s.io/persistentvolumeclaims":"1","limits.memory":"1Gi","pods":"3","requests.cpu":"1300m","requests.storage":"2Gi","secrets":"0","services.nodeports":"1"}}
            again after 300s
        "#]],
        );
    }

    #[test]
    fn scopes_leave_out_what_is_not_in_them() {
        for scope in ["BestEffort", "NotBestEffort"] {
            let quota = format!(
                "resourcequota all spec.hard.pods=\"9\" spec.scopes=[\"{scope}\"]\n {WORLD}"
            );
            check(
                &quota,
                if scope == "BestEffort" {
                    expect![[r#"
                update resourcequotas/status all {"hard":{"pods":"9"},"used":{"pods":"1"}}
                again after 300s
            "#]]
                } else {
                    expect![[r#"
                update resourcequotas/status all {"hard":{"pods":"9"},"used":{"pods":"2"}}
                again after 300s
            "#]]
                },
            );
        }
    }

    #[test]
    fn a_quota_comes_to_rest() {
        check_run(
            &CONTROLLER,
            "resourcequota all spec.hard.pods=\"9\"\n pod a",
            expect![[r#"
            update resourcequotas/status default/all
        "#]],
        );
    }
}
