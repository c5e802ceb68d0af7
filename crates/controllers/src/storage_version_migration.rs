//! Every object of a resource is written once more, so that it is stored in the version that is the
//! storage's today.
//!
//! One migration of a resource runs at a time. A write that changes nothing is enough: the API
//! server stores what it would store anew.
use crate::action::{self, Action, Target};
use crate::definitions;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::kinds::Verb;
use api::names::NamespacedName;
use api::object::Object;
use api::status::{Reason, Status};
use bytes::Bytes;
use client::ApiResource;
use client::source::{Ask, Call, Collection, Patch, Raw, Write};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "storage-version-migrator-controller",
    account: "storage-version-migrator-controller",
    workers: 5,
    watch,
    reconcile,
};

/// A custom resource may be so young that we have not heard of it.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

fn watch(on: &Watching) {
    on.each::<StorageVersionMigration>(|world, change| {
        let of = |it: &StorageVersionMigration| it.spec.clone().map(|spec| spec.resource);
        let resources: Vec<_> = change.old.iter().chain(&change.new).map(|it| of(it)).collect();
        let all = world.informer::<StorageVersionMigration>();
        let read = all.read();
        // Others of the same resource may have waited for it.
        let same = read.iter().filter(|(_, it)| resources.contains(&of(it)));
        same.map(|(key, _)| key.clone()).collect()
    });
    on.each_of::<definitions::Defined>(definitions::collection(), |_, _| Vec::new());
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(migration) = world.get::<StorageVersionMigration>(key) else { return Vec::new() };
    match (is(&migration, "Running"), is_over(&migration)) {
        (true, true) => conclude(&migration, now),
        (false, true) => Vec::new(),
        (false, false) if is_next(&migration, world) => begin(&migration, now),
        (false, false) => Vec::new(),
        (true, false) => run(&migration, world, now),
    }
}

fn is(migration: &StorageVersionMigration, type_: &str) -> bool {
    let conditions = migration.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == type_ && one.status == "True")
}

fn is_over(migration: &StorageVersionMigration) -> bool {
    is(migration, "Succeeded") || is(migration, "Failed")
}

/// The oldest that waits, if none of its resource runs.
fn is_next(migration: &StorageVersionMigration, world: &World) -> bool {
    let resource = |it: &StorageVersionMigration| it.spec.clone().map(|spec| spec.resource);
    let order = |it: &StorageVersionMigration| {
        let made = it.metadata.creation_timestamp.as_ref().map(|at| at.0);
        (made, it.metadata.name.clone())
    };
    let mine = resource(migration);
    let all = world.all::<StorageVersionMigration>();
    let mut others = all.iter().filter(|it| resource(it) == mine);
    !others.any(|it| is(it, "Running") || (!is_over(it) && order(it) < order(migration)))
}

/// The status with one condition set.
fn with(
    migration: &StorageVersionMigration,
    (type_, status, reason): (&str, &str, &str),
    message: &str,
    now: Timestamp,
) -> StorageVersionMigration {
    let mut new = migration.clone();
    let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
    let at = conditions.iter().position(|one| one.type_ == type_).unwrap_or_else(|| {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: String::new(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: Time(now),
            observed_generation: None,
        });
        conditions.len() - 1
    });
    let one = &mut conditions[at];
    if one.status != status {
        one.last_transition_time = Time(now);
    }
    one.status = status.to_owned();
    one.reason = reason.to_owned();
    one.message = message.to_owned();
    new
}

const RUNNING: (&str, &str, &str) = ("Running", "True", "StorageVersionMigrationInProgress");

fn begin(migration: &StorageVersionMigration, now: Timestamp) -> Vec<Action> {
    let running = with(migration, RUNNING, "The migration is running", now);
    let write = Action::update_part("status", &running);
    let name = migration.metadata.name.clone().unwrap_or_default();
    let then = move |definition: Option<Arc<Object>>| {
        let text = format!("Migration {name} is running");
        let noted = definition.and_then(|it| note(&it, ("True", "MigrationRunning", &text), now));
        noted.into_iter().chain([write]).collect()
    };
    vec![Action::Look { object: definition_of(migration), then: Box::new(then) }]
}

fn conclude(migration: &StorageVersionMigration, now: Timestamp) -> Vec<Action> {
    let done = ("Running", "False", "MigrationCompleted");
    let mut ended = with(migration, done, "Migration completed", now);
    if let Some(conditions) = ended.status.as_mut().and_then(|it| it.conditions.as_mut()) {
        let running = conditions.iter_mut().filter(|one| one.type_ == "Running");
        running.for_each(|one| one.observed_generation = migration.metadata.generation);
    }
    let write = Action::update_part("status", &ended);
    let is_success = is(migration, "Succeeded");
    let then = move |definition: Option<Arc<Object>>| {
        let noted = definition.and_then(|it| finish(&it, is_success, now));
        noted.into_iter().chain([write]).collect()
    };
    vec![Action::Look { object: definition_of(migration), then: Box::new(then) }]
}

/// The definition of a custom resource; there is none of others.
fn definition_of(migration: &StorageVersionMigration) -> Target {
    let (group, resource) = group_resource(migration);
    Target {
        resource: ApiResource::of::<CustomResourceDefinition>(),
        namespace: String::new(),
        name: format!("{resource}.{group}"),
        uid: String::new(),
    }
}

fn group_resource(migration: &StorageVersionMigration) -> (String, String) {
    let resource = migration.spec.as_ref().map(|spec| spec.resource.clone()).unwrap_or_default();
    (resource.group, resource.resource)
}

/// Notes in a definition's status what becomes of its objects.
fn note(definition: &Object, condition: (&str, &str, &str), now: Timestamp) -> Option<Action> {
    let tree = definition.tree().ok()?;
    Some(patch(definition, &tree, condition, None, now))
}

fn finish(definition: &Object, is_success: bool, now: Timestamp) -> Option<Action> {
    let tree = definition.tree().ok()?;
    let mut conditions = tree["status"]["conditions"].as_array().into_iter().flatten();
    let noted = conditions.find(|one| one["type"] == "StorageMigrating");
    // Somebody may have changed the definition meanwhile, and so the version that is stored.
    let is_same = noted.is_some_and(|one| {
        one["observedGeneration"].is_i64()
            && one["observedGeneration"] == tree["metadata"]["generation"]
    });
    let versions = tree["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.filter(|it| it["storage"] == true).map(|it| it["name"].clone()).next();
    let condition = match (is_success, is_same) {
        (true, true) => (
            "False",
            "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated",
        ),
        (true, false) => (
            "False",
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a \
             generation mismatch",
        ),
        (false, _) => ("False", "MigrationFailed", "The migration has failed"),
    };
    // What could not be migrated is still stored as it was.
    Some(patch(definition, &tree, condition, stored.filter(|_| is_same && is_success), now))
}

fn patch(
    definition: &Object,
    tree: &Value,
    (status, reason, message): (&str, &str, &str),
    stored: Option<Value>,
    now: Timestamp,
) -> Action {
    let known = tree["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<_> =
        known.into_iter().filter(|one| one["type"] != "StorageMigrating").collect();
    conditions.push(json!({ "type": "StorageMigrating", "status": status, "reason": reason,
        "message": message, "lastTransitionTime": Time(now),
        "observedGeneration": tree["metadata"]["generation"] }));
    let mut change = json!({ "metadata": { "resourceVersion": definition.resource_version() },
        "status": { "conditions": conditions } });
    if let Some(stored) = stored {
        change["status"]["storedVersions"] = json!([stored]);
    }
    let object = Target {
        resource: ApiResource::of::<CustomResourceDefinition>(),
        namespace: String::new(),
        name: definition.name().to_owned(),
        uid: definition.uid().to_owned(),
    };
    Action::Patch { object, part: "status", patch: Patch::Merge(change) }
}

fn fail(migration: &StorageVersionMigration, message: &str, now: Timestamp) -> Action {
    let failed = ("Failed", "True", "StorageVersionMigrationFailed");
    Action::update_part("status", &with(migration, failed, message, now))
}

fn run(migration: &Arc<StorageVersionMigration>, world: &World, now: Timestamp) -> Vec<Action> {
    let (group, name) = group_resource(migration);
    let built_in = api::kinds::RESOURCES.iter().find(|it| it.group == group && it.plural == name);
    let custom = definitions::resources(world);
    let custom = custom.into_iter().find(|it| it.group == group && it.plural == name);
    let Some(resource) = built_in.map(ApiResource::from).or(custom) else {
        let made = migration.metadata.creation_timestamp.as_ref().map(|at| at.0).unwrap_or(now);
        return match Duration::try_from((made + PATIENCE).duration_since(now)) {
            Ok(left) if !left.is_zero() => vec![Action::Again(left.min(Duration::from_secs(5)))],
            _ => vec![fail(migration, "resource does not exist in discovery", now)],
        };
    };
    let can = |verb| resource.row.is_none_or(|row| row.verbs.contains(verb));
    if !can(Verb::List) || !can(Verb::Patch) {
        let (group, version, plural) = (&resource.group, &resource.version, &resource.plural);
        let text = format!(
            "resource \"{group}/{version}, Resource={plural}\" does not support discovery \
             operations: [get list patch watch]"
        );
        return vec![fail(migration, &text, now)];
    }
    let status = migration.status.as_ref();
    let until = status.and_then(|status| status.resource_version.as_deref()).unwrap_or_default();
    match until.parse::<u64>() {
        Ok(until) => rewrite(migration, &resource, until, now),
        Err(_) => vec![ask_revision(migration, &resource)],
    }
}

/// What was written after this moment is stored as it should be.
fn ask_revision(migration: &Arc<StorageVersionMigration>, resource: &ApiResource) -> Action {
    // A namespace that nobody has: only the revision matters.
    let path = resource.path("fake-svm-namespace", "", "");
    let mut new = (**migration).clone();
    let then = move |mut answers: Vec<Result<Bytes, Status>>| match answers.pop().map(action::json)
    {
        Some(Ok(list)) => {
            let version = list["metadata"]["resourceVersion"].as_str().map(str::to_owned);
            new.status.get_or_insert_default().resource_version = version;
            vec![Action::update_part("status", &new)]
        }
        Some(Err(status)) => vec![Action::Fail(status)],
        None => Vec::new(),
    };
    Action::Read { requests: vec![Raw::get(path).with("limit", "1")], then: Box::new(then) }
}

fn rewrite(
    migration: &Arc<StorageVersionMigration>,
    resource: &ApiResource,
    until: u64,
    now: Timestamp,
) -> Vec<Action> {
    let (migration, resource) = (migration.clone(), resource.clone());
    let of = vec![Collection::all(resource.clone())];
    let then = move |lists: Vec<(Collection, Vec<Arc<Object>>)>| {
        let objects: Vec<_> = lists.into_iter().flat_map(|(_, objects)| objects).collect();
        let total = objects.len();
        let old = objects.iter().filter(|object| object.revision() <= until);
        let writes = old.map(|object| write(object, &resource, &migration, now)).collect();
        let text = match total {
            0 => "The migration is running".to_owned(),
            _ => format!("The migration is running, {total} objects verified migrated"),
        };
        let running = with(&migration, RUNNING, &text, now);
        let done = ("Succeeded", "True", "StorageVersionMigrationSucceeded");
        let done = with(&running, done, "Migration completed", now);
        vec![
            Action::Several { actions: writes, otherwise: None },
            Action::update_part("status", &done),
        ]
    };
    vec![Action::Gather { of, then: Box::new(then) }]
}

fn write(
    object: &Object,
    resource: &ApiResource,
    migration: &Arc<StorageVersionMigration>,
    now: Timestamp,
) -> Action {
    let body = json!({ "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": { "resourceVersion": object.resource_version() } });
    let call = Call {
        resource: resource.clone(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        subresource: "".into(),
        ask: Ask::Patch(
            Patch::Merge(body),
            Write::managed_by("storage-version-migrator-controller"),
        ),
    };
    let migration = migration.clone();
    let then = move |answer: Result<Value, Status>| match answer {
        Ok(_) => Vec::new(),
        // Somebody has written it, or it is gone: nothing is left to do.
        Err(status) if status.is_conflict() || status.is_not_found() => Vec::new(),
        Err(status) if may_pass(&status) => vec![Action::Fail(status)],
        Err(status) => {
            let text = format!("migration encountered unhandled error: {}", status.message);
            vec![fail(&migration, &text, now), Action::Fail(status)]
        }
    };
    Action::Try { call, then: Box::new(then) }
}

fn may_pass(status: &Status) -> bool {
    [
        Reason::ServerTimeout,
        Reason::TooManyRequests,
        Reason::ServiceUnavailable,
        Reason::InternalError,
        Reason::Timeout,
    ]
    .into_iter()
    .any(|reason| status.is(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_row};
    use expect_test::expect;
    use std::fmt::Write as _;

    const SECRETS: &str = "spec.resource={\"group\":\"\",\"resource\":\"secrets\"}";

    #[test]
    fn every_object_is_written_once_more() {
        let mut out = String::new();
        after(
            &CONTROLLER,
            &format!("storageversionmigration m {SECRETS}\n secret a\n secret other/b"),
            |server| {
                let path = "/api/v1/namespaces/fake-svm-namespace/secrets?limit=1";
                server.page(path, json!({ "metadata": { "resourceVersion": "100" } }));
            },
            |server| {
                for line in server.written() {
                    let _ = writeln!(out, "{line}");
                }
                let found = server.get::<StorageVersionMigration>("", "m").expect("it is there");
                for one in found.status.iter().flat_map(|it| it.conditions.iter().flatten()) {
                    let _ = writeln!(out, "{} {} {}", one.type_, one.status, one.message);
                }
            },
        );
        expect![[r#"
            update storageversionmigrations.storagemigration.k8s.io/status m
            update storageversionmigrations.storagemigration.k8s.io/status m
            patch secrets default/a
            patch secrets other/b
            update storageversionmigrations.storagemigration.k8s.io/status m
            update storageversionmigrations.storagemigration.k8s.io/status m
            Running False Migration completed
            Succeeded True Migration completed
        "#]]
        .assert_eq(&out);
    }

    #[test]
    fn one_of_a_resource_at_a_time() {
        check_row(
            &CONTROLLER,
            &format!(
                "storageversionmigration a {SECRETS} age=60
                 storageversionmigration b {SECRETS} age=90
                 storageversionmigration c spec.resource={{\"group\":\"x.io\",\"resource\":\"foos\"}} status.conditions=[{{\"type\":\"Running\",\"status\":\"True\",\"reason\":\"\",\"message\":\"\",\"lastTransitionTime\":\"2026-01-01T11:59:00Z\"}}] age=90"
            ),
            &["a", "b", "c"],
            expect![[r#"
                look at customresourcedefinitions.apiextensions.k8s.io secrets.
                update storageversionmigrations.storagemigration.k8s.io/status c {"conditions":[{"lastTransitionTime":"2026-01-01T11:59:00Z","message":"","reason":"","status":"True","type":"Running"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"resource does not exist in discovery","reason":"StorageVersionMigrationFailed","status":"True","type":"Failed"}]}
            "#]],
        );
    }
}
