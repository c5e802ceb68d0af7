//! create, update and patch: a new state from the old one and a request, stored if nobody was
//! faster.
use super::object::{self, metadata, text};
use super::read::current;
use crate::answer::{self, Answer};
use crate::request::Call;
use crate::resources::{ApiServer, status_of};
use crate::serve::{Received, accepted};
use crate::stored;
use api::codec::json;
use api::codec::object::Encoding;
use api::content::PatchType;
use api::convert;
use api::kinds::Resource;
use api::patch::apply::typed::View;
use api::patch::apply::{ConvertError, FieldManager, Filter, keep_timestamps_if_unchanged};
use api::patch::json_patch::{self, Limits};
use api::patch::{merge, strategic};
use api::schema::builtin;
use api::status::{OPTIMISTIC_LOCK, Status};
use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{KeyValue, Outcome, WriteOptions};

type Outgoing = Result<(Answer, Vec<String>), Status>;

/// Names made up are tried so often before the client is asked to.
const NAME_TRIES: usize = 8;
/// A patch meets other writers so often before it gives up.
const PATCH_TRIES: usize = 5;

pub async fn create(api: &ApiServer, call: &Call, received: &Received) -> Outgoing {
    let accepted = accepted(received)?;
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let (object, warnings) =
        object::decode(&received.body, encoding, call, call.query.field_validation()?)?;
    let made_up = text(&object, "name").is_empty();
    for attempt in 1.. {
        let created = store_new(api, call, received, object.clone()).await;
        match created {
            Err(status) if status.is_already_exists() && made_up && attempt < NAME_TRIES => {}
            Err(status) => return Err(status),
            Ok(object) => {
                let ty = call.resource.ty();
                return Ok((answer::object(StatusCode::CREATED, object, ty, &accepted), warnings));
            }
        }
    }
    unreachable!("the loop ends by returning")
}

async fn store_new(
    api: &ApiServer,
    call: &Call,
    received: &Received,
    mut object: Value,
) -> Result<Value, Status> {
    let resource = call.resource;
    let now = Timestamp::now();
    object::place(&mut object, call)?;
    let name = object::name(&mut object, resource)?;
    if !text(&object, "resourceVersion").is_empty() {
        return Err(Status::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    object::begin(&mut object, resource, now);
    let object =
        json::canonicalize(object, resource.ty()).map_err(|e| object::unfit(resource, &e))?.value;
    let object = managed(call, received, &Value::Null, object, now);
    let mut answer = object.clone();
    if call.query.dry_run()? {
        return Ok(answer);
    }
    let key = resource.key(&call.namespace, &name);
    let bytes = stored::encode(object, resource)?;
    match api.store().create(key.as_str(), bytes, WriteOptions::default()).await {
        Ok(Outcome::Applied(event)) => {
            stored::put_resource_version(&mut answer, event.revision());
            Ok(answer)
        }
        Ok(Outcome::Conflict(_)) => Err(Status::already_exists(resource.group_resource(), &name)),
        Err(error) => Err(status_of(error, resource)),
    }
}

pub async fn update(api: &ApiServer, call: &Call, received: &Received) -> Outgoing {
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let (new, warnings) =
        object::decode(&received.body, encoding, call, call.query.field_validation()?)?;
    let old = current(api, call.resource, &call.namespace, &call.name).await?;
    let answer = replace(api, call, received, &old, new, Owner::Update).await?;
    Ok((answer, warnings))
}

/// Who is to own what changes.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Update,
    /// An apply has settled it already.
    Applied,
}

/// Puts a new state in an old one's place, and answers with it.
async fn replace(
    api: &ApiServer,
    call: &Call,
    received: &Received,
    old: &Arc<KeyValue>,
    new: Value,
    owner: Owner,
) -> Result<Answer, Status> {
    let accepted = accepted(received)?;
    let result = store_next(api, call, received, old, new, owner).await?;
    Ok(answer::object(StatusCode::OK, result, call.resource.ty(), &accepted))
}

/// The same for a subresource, which has an answer of its own.
pub async fn replace_from(
    api: &ApiServer,
    call: &Call,
    received: &Received,
    old: &Arc<KeyValue>,
    new: Value,
) -> Result<Value, Status> {
    store_next(api, call, received, old, new, Owner::Update).await
}

async fn store_next(
    api: &ApiServer,
    call: &Call,
    received: &Received,
    stored_old: &Arc<KeyValue>,
    new: Value,
    owner: Owner,
) -> Result<Value, Status> {
    let resource = call.resource;
    let old = stored::decode(stored_old, resource)?;
    let now = Timestamp::now();
    let new = next_state(call, &old, new)?;
    let mut new =
        json::canonicalize(new, resource.ty()).map_err(|e| object::unfit(resource, &e))?.value;
    match owner {
        Owner::Update => new = managed(call, received, &old, new, now),
        Owner::Applied => keep_timestamps_if_unchanged(&old, &mut new),
    }
    let mut result = new.clone();
    stored::put_resource_version(&mut result, stored_old.mod_revision);
    if result == old || call.query.dry_run()? {
        return Ok(result);
    }
    let key = stored_old.key.clone();
    let outcome = if is_gone(&new, resource) {
        api.store().delete(key, stored_old.mod_revision).await
    } else {
        let bytes = stored::encode(new, resource)?;
        api.store().update(key, bytes, stored_old.mod_revision, WriteOptions::default()).await
    };
    match outcome {
        Ok(Outcome::Applied(event)) => {
            stored::put_resource_version(&mut result, event.revision());
            Ok(result)
        }
        Ok(Outcome::Conflict(_)) => {
            Err(Status::conflict(resource.group_resource(), &call.name, OPTIMISTIC_LOCK))
        }
        Err(error) => Err(status_of(error, resource)),
    }
}

/// An object being deleted goes with its last finalizer.
pub fn is_gone(object: &Value, resource: &Resource) -> bool {
    let deleting = !text(object, "deletionTimestamp").is_empty();
    let held = object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
        || resource.kind == "Namespace"
            && object["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let waiting = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    deleting && !held && !waiting
}

/// The state after an update: what the client may not change is the old one's.
fn next_state(call: &Call, old: &Value, mut new: Value) -> Result<Value, Status> {
    let resource = call.resource;
    object::place(&mut new, call)?;
    let name = text(&new, "name").to_owned();
    if name.is_empty() {
        metadata(&mut new).insert("name".into(), call.name.clone().into());
    } else if name != call.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let conflict = |cause: String| Status::conflict(resource.group_resource(), &call.name, cause);
    let version = text(&new, "resourceVersion");
    if !version.is_empty() && version != text(old, "resourceVersion") {
        return Err(conflict(OPTIMISTIC_LOCK.into()));
    }
    let uid = text(&new, "uid");
    if !uid.is_empty() && uid != text(old, "uid") {
        return Err(conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            text(old, "uid")
        )));
    }
    let mut next = match call.subresource.map(|s| s.name) {
        Some("status" | "approval") => {
            let mut next = old.clone();
            object::reset_status(&mut next, new.get("status"));
            next["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
            next
        }
        Some("finalize") => {
            let mut next = old.clone();
            next["spec"] = new["spec"].clone();
            next
        }
        _ => {
            if object::has_status(resource) {
                object::reset_status(&mut new, old.get("status"));
            }
            if resource.kind == "Namespace" {
                new["spec"] = old["spec"].clone();
            }
            new
        }
    };
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ] {
        match old["metadata"].get(field) {
            Some(value) => metadata(&mut next).insert(field.into(), value.clone()),
            None => metadata(&mut next).remove(field),
        };
    }
    if let (Some(generation), true) =
        (old["metadata"]["generation"].as_i64(), next.get("spec") != old.get("spec"))
    {
        metadata(&mut next).insert("generation".into(), (generation + 1).into());
    }
    Ok(next)
}

pub async fn patch(api: &ApiServer, call: &Call, received: &Received) -> Outgoing {
    let patch_type = PatchType::of_request(received.header(header::CONTENT_TYPE), PatchType::ALL)?;
    let mut attempt = 1;
    loop {
        let result = match current(api, call.resource, &call.namespace, &call.name).await {
            Ok(old) => {
                let patched =
                    patched(call, received, patch_type, &stored::decode(&old, call.resource)?)?;
                let owner =
                    if patch_type == PatchType::Apply { Owner::Applied } else { Owner::Update };
                replace(api, call, received, &old, patched.0, owner)
                    .await
                    .map(|answer| (answer, patched.1))
            }
            Err(status) if status.is_not_found() && patch_type == PatchType::Apply => {
                return apply_new(api, call, received).await;
            }
            Err(status) => return Err(status),
        };
        match result {
            Err(status)
                if status.is_conflict() && attempt < PATCH_TRIES && !names_version(received) =>
            {
                attempt += 1
            }
            result => return result,
        }
    }
}

/// A patch that names a resource version means that one.
fn names_version(received: &Received) -> bool {
    received.body.windows(15).any(|window| window == b"resourceVersion")
}

/// The old object with the patch in it, and what strictness has to say.
fn patched(
    call: &Call,
    received: &Received,
    patch_type: PatchType,
    old: &Value,
) -> Result<(Value, Vec<String>), Status> {
    let resource = call.resource;
    let patch = match patch_type {
        PatchType::Apply => api::codec::yaml::decode_untyped(&received.body),
        _ => json::decode_untyped(&received.body),
    }
    .map_err(|e| Status::bad_request(e.to_string()))?
    .value;
    let invalid = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
    let new = match patch_type {
        PatchType::Json => {
            let limits = Limits::default();
            let patch = json_patch::Patch::decode(patch, &limits).map_err(|e| invalid(&e))?;
            patch.apply(old.clone(), &limits).map_err(|e| invalid(&e))?
        }
        PatchType::Merge => {
            let mut new = old.clone();
            merge::apply(&mut new, &patch).map_err(|e| invalid(&e))?;
            new
        }
        PatchType::StrategicMerge => strategic::merge(old.clone(), patch, resource.ty())?,
        PatchType::Apply => apply(call, old, &patch)?,
    };
    let decoded =
        json::canonicalize(new, resource.ty()).map_err(|e| object::unfit(resource, &e))?;
    object::settle(decoded, resource, call.query.field_validation()?)
}

/// Applying to an object that does not exist creates it.
async fn apply_new(api: &ApiServer, call: &Call, received: &Received) -> Outgoing {
    let accepted = accepted(received)?;
    let config = api::codec::yaml::decode_untyped(&received.body)
        .map_err(|e| Status::bad_request(e.to_string()))?
        .value;
    let resource = call.resource;
    let now = Timestamp::now();
    let mut object = apply(call, &empty(resource), &config)?;
    object::place(&mut object, call)?;
    object::name(&mut object, resource)?;
    object::begin(&mut object, resource, now);
    let decoded =
        json::canonicalize(object, resource.ty()).map_err(|e| object::unfit(resource, &e))?;
    let (object, warnings) = object::settle(decoded, resource, call.query.field_validation()?)?;
    let mut answer = object.clone();
    if !call.query.dry_run()? {
        let key = resource.key(&call.namespace, &call.name);
        let bytes = stored::encode(object, resource)?;
        match api.store().create(key.as_str(), bytes, WriteOptions::default()).await {
            Ok(Outcome::Applied(event)) => {
                stored::put_resource_version(&mut answer, event.revision())
            }
            Ok(Outcome::Conflict(_)) => {
                return Err(Status::conflict(
                    resource.group_resource(),
                    &call.name,
                    OPTIMISTIC_LOCK,
                ));
            }
            Err(error) => return Err(status_of(error, resource)),
        }
    }
    Ok((answer::object(StatusCode::CREATED, answer, resource.ty(), &accepted), warnings))
}

fn empty(resource: &Resource) -> Value {
    serde_json::json!({ "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {} })
}

fn apply(call: &Call, live: &Value, config: &Value) -> Result<Value, Status> {
    let manager = call.query.get("fieldManager");
    if manager.is_empty() {
        return Err(Status::bad_request(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ));
    }
    let force = call.query.flag("force");
    with_manager(call, |fields| Ok(fields.apply(live, config, manager, force, Timestamp::now())?))
}

/// The new object with the managed fields that an update gives it.
fn managed(call: &Call, received: &Received, old: &Value, new: Value, now: Timestamp) -> Value {
    let given = call.query.get("fieldManager");
    let manager = if given.is_empty() { agent(received.header(header::USER_AGENT)) } else { given };
    with_manager(call, |fields| fields.update_or_keep(old, new, manager, now))
}

/// A client that does not name itself is named after its program.
fn agent(user_agent: &str) -> &str {
    user_agent.split('/').next().filter(|name| !name.is_empty()).unwrap_or("unknown")
}

fn with_manager<T>(call: &Call, run: impl FnOnce(&FieldManager<'_, '_>) -> T) -> T {
    let resource = call.resource;
    let types = |api_version: &str| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        builtin().kind(group, version, resource.kind)
    };
    let convert = |object: &Value, _: &str, to: &str| {
        convert::convert(object.clone(), to).map_err(|e| ConvertError::Failed(e.to_string()))
    };
    let reset: BTreeMap<String, Filter> = match call.subresource {
        None if object::has_status(resource) => {
            BTreeMap::from([(resource.api_version(), Filter::exclude(&[&["status"]]))])
        }
        _ => BTreeMap::new(),
    };
    run(&FieldManager {
        api_version: &resource.api_version(),
        kind: resource.kind,
        subresource: call.subresource.map_or("", |s| s.name),
        types: &types,
        convert: &convert,
        reset: &reset,
        view: View::Typed,
    })
}
