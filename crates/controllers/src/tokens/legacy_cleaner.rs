//! Tokens of old that were made for accounts by themselves, and that nobody has used for a year, are
//! marked as invalid; after another year they go.
use super::{annotation, is_of, legacy};
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::source::{Delete, Patch};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil::Date};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// All secrets are one key: once a day they are looked through.
pub const CONTROLLER: Controller = Controller {
    name: "legacy-serviceaccount-token-cleaner-controller",
    account: "legacy-service-account-token-cleaner",
    workers: 1,
    watch,
    reconcile,
};

const EVERY: Duration = Duration::from_secs(24 * 60 * 60);
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Since when uses are noted: the API server writes it.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

fn watch(on: &Watching) {
    on.each::<ConfigMap>(|_, change| {
        let is_it = *change.key.namespace == *"kube-system" && *change.key.name == *TRACKING;
        if is_it { vec![change.key.clone()] } else { Vec::new() }
    });
    on.reads::<Secret>();
    on.reads::<ServiceAccount>();
    on.reads::<Pod>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let patience = world.settings.legacy_token_clean_up_period;
    let tracking = world.get::<ConfigMap>(key);
    let since = tracking.as_ref().and_then(|it| it.data.as_ref()?.get("since"));
    let Some(since) = since.and_then(|text| date(text)) else { return Vec::new() };
    let day = |at: Timestamp| at.to_zoned(TimeZone::UTC).date();
    let limit = now - patience;
    let mut actions = Vec::new();
    // From the first whole day on.
    if since.tomorrow().is_ok_and(|from| from <= day(limit)) {
        for secret in world.all::<Secret>() {
            actions.extend(judge(&secret, world, limit, day(limit), day(now)));
        }
    }
    actions.push(Action::Again(EVERY));
    actions
}

fn date(text: &str) -> Option<Date> {
    text.parse().ok()
}

fn judge(
    secret: &Secret,
    world: &World,
    limit: Timestamp,
    limit_day: Date,
    today: Date,
) -> Option<Action> {
    let label = |key: &str| secret.metadata.labels.as_ref().and_then(|all| all.get(key));
    let is_young = secret.metadata.creation_timestamp.as_ref().is_none_or(|at| at.0 >= limit);
    if !is_of(secret, legacy::TYPE) || is_young || secret.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if let Some(used) = label(LAST_USED) {
        // One that nobody can read says nothing.
        date(used).filter(|used| *used < limit_day)?;
    }
    let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    let account = annotation(secret, legacy::NAME);
    let account = world.find::<ServiceAccount>(namespace, account)?;
    let uid = annotation(secret, legacy::UID);
    let is_its = uid.is_empty() || account.metadata.uid.as_deref() == Some(uid);
    let mut named = account.secrets.iter().flatten().filter_map(|it| it.name.as_deref());
    // Only those that were made by themselves are in the account's list.
    if !is_its || !named.any(|named| named == name) {
        return None;
    }
    let pods = world.in_namespace::<Pod>(namespace);
    if pods.iter().any(|pod| mounts(pod, name)) {
        return None;
    }
    match label(INVALID_SINCE).and_then(|text| date(text)) {
        None => {
            let patch = json!({ "metadata": { "uid": secret.metadata.uid,
                "labels": { INVALID_SINCE: today.to_string() } } });
            let object = Target::of(secret);
            Some(Action::Patch { object, part: "", patch: Patch::Merge(patch) })
        }
        Some(since) if since >= limit_day => None,
        Some(_) => {
            let mut options = Delete::default();
            options.preconditions.resource_version = secret.metadata.resource_version.clone();
            Some(Action::Delete { object: Target::of(secret), options, tell: None })
        }
    }
}

/// Whether a pod names a secret, anywhere.
fn mounts(pod: &Arc<Pod>, name: &str) -> bool {
    let tree = serde_json::to_value(&pod.spec).unwrap_or_default();
    names(&tree, name)
}

fn names(value: &serde_json::Value, name: &str) -> bool {
    match value {
        serde_json::Value::Object(fields) => fields.iter().any(|(field, value)| match &**field {
            "secretName" => value == name,
            "secret"
            | "secretRef"
            | "secretKeyRef"
            | "nodePublishSecretRef"
            | "imagePullSecrets" => {
                value["name"] == name || has_named(value, name) || names(value, name)
            }
            _ => names(value, name),
        }),
        serde_json::Value::Array(items) => items.iter().any(|item| names(item, name)),
        _ => false,
    }
}

fn has_named(value: &serde_json::Value, name: &str) -> bool {
    value.as_array().is_some_and(|items| items.iter().any(|item| item["name"] == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn what_nobody_has_used_for_a_year_is_marked_and_after_another_goes() {
        let secret = |name: &str, more: &str| {
            format!(
                "secret {name} type=kubernetes.io/service-account-token annotation:kubernetes.io/service-account.name=a metadata.creationTimestamp=2020-01-01T00:00:00Z {more}\n"
            )
        };
        let label = |key: &str, day: &str| format!("label:kubernetes.io/legacy-token-{key}={day}");
        let names =
            ["never", "lately", "long-ago", "invalid", "invalid-long", "mounted", "by-hand"];
        let listed: Vec<_> = names[..6].iter().map(|name| json!({ "name": name })).collect();
        let world = [
            format!("configmap kube-system/{TRACKING} data.since=2021-01-01"),
            format!("serviceaccount a secrets={}", json!(listed)),
            secret("never", ""),
            secret("lately", &label("last-used", "2025-06-01")),
            secret("long-ago", &label("last-used", "2024-06-01")),
            secret("invalid", &label("invalid-since", "2025-06-01")),
            secret("invalid-long", &label("invalid-since", "2024-06-01")),
            secret("mounted", ""),
            secret("by-hand", ""),
            "pod p spec.volumes=[{\"name\":\"v\",\"secret\":{\"secretName\":\"mounted\"}}]"
                .to_owned(),
        ];
        let key = format!("kube-system/{TRACKING}");
        check_row(
            &CONTROLLER,
            &world.join("\n"),
            &[&key],
            expect![[r#"
            delete secrets default/invalid-long
            patch secrets long-ago {"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"},"uid":"long-ago-uid"}}
            patch secrets never {"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"},"uid":"never-uid"}}
            again after 86400s
        "#]],
        );
        // Nobody has noted uses for so long.
        check_row(
            &CONTROLLER,
            &world.join("\n").replace("since=2021-01-01", "since=2025-01-01"),
            &[&key],
            expect![[r#"
                again after 86400s
            "#]],
        );
    }
}
