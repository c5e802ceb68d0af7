//! delete: at once, or by marking the object and letting its finalizers have their say.
use super::change::is_gone;
use super::object::{metadata, text};
use super::read::{current, page};
use crate::answer::{self, Answer};
use crate::request::Call;
use crate::resources::{ApiServer, status_of};
use crate::selection::Selection;
use crate::serve::{Received, accepted};
use crate::stored;
use api::codec::object::{self as codec, Encoding};
use api::kinds::Resource;
use api::status::{Details, OPTIMISTIC_LOCK, Status};
use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use store::{KeyValue, Outcome, WriteOptions};

/// What the client says about a deletion, in its body or its query.
#[derive(Debug, Default)]
struct Options {
    grace: Option<i64>,
    propagation: String,
    uid: String,
    resource_version: String,
    dry_run: bool,
}

/// A deletion meets other writers so often before it gives up.
const TRIES: usize = 10;

pub async fn delete(api: &ApiServer, call: &Call, received: &Received) -> Result<Answer, Status> {
    let accepted = accepted(received)?;
    let options = options(call, received)?;
    let (object, gone) = remove(api, call.resource, &call.namespace, &call.name, &options).await?;
    if !gone || call.resource.returns_deleted {
        return Ok(answer::object(StatusCode::OK, object, call.resource.ty(), &accepted));
    }
    let status = success(call.resource, &call.name, &object);
    Ok(answer::value(StatusCode::OK, json!(status), answer::meta_type("Status"), accepted.encoding))
}

fn success(resource: &Resource, name: &str, object: &Value) -> Status {
    Status::success(Details {
        name: name.into(),
        group: resource.group.into(),
        kind: resource.plural.into(),
        uid: text(object, "uid").into(),
        ..Details::default()
    })
}

pub async fn delete_collection(
    api: &ApiServer,
    call: &Call,
    received: &Received,
) -> Result<Answer, Status> {
    let accepted = accepted(received)?;
    let options = options(call, received)?;
    let selection = Selection::parse(&call.query, call.resource)?;
    let found = page(api, call, &selection).await?;
    for stored in &found.objects {
        let meta = stored::meta(stored);
        match remove(api, call.resource, &meta.namespace, &meta.name, &options).await {
            Err(status) if !status.is_not_found() => return Err(status),
            _ => {}
        }
    }
    answer::list(&found, call.resource, &accepted)
}

fn options(call: &Call, received: &Received) -> Result<Options, Status> {
    let mut body = Value::Null;
    if !received.body.is_empty() {
        let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
        if let Some(ty) = answer::meta_type("DeleteOptions") {
            let decoded = codec::decode(&received.body, encoding, ty);
            body = decoded.map_err(|e| Status::bad_request(e.to_string()))?.value;
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let propagation = match body["propagationPolicy"].as_str() {
        Some(policy) => policy.to_owned(),
        None if body["orphanDependents"] == true || call.query.flag("orphanDependents") => {
            "Orphan".into()
        }
        None => call.query.get("propagationPolicy").to_owned(),
    };
    Ok(Options {
        grace: body["gracePeriodSeconds"].as_i64().or(call.query.number("gracePeriodSeconds")?),
        propagation,
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        dry_run: call.query.dry_run()?
            || body["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
    })
}

/// Deletes an object, or marks it. Returns its last state, and whether it is gone.
async fn remove(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
    options: &Options,
) -> Result<(Value, bool), Status> {
    for _ in 0..TRIES {
        let old = current(api, resource, namespace, name).await?;
        if let Some(done) = try_remove(api, resource, &old, options).await? {
            return Ok(done);
        }
    }
    Err(Status::conflict(resource.group_resource(), name, OPTIMISTIC_LOCK))
}

/// `None`: somebody else was faster.
async fn try_remove(
    api: &ApiServer,
    resource: &Resource,
    stored_old: &Arc<KeyValue>,
    options: &Options,
) -> Result<Option<(Value, bool)>, Status> {
    let old = stored::decode(stored_old, resource)?;
    check_preconditions(&old, resource, options)?;
    let marked = mark(old.clone(), resource, options, Timestamp::now());
    let gone = is_gone(&marked, resource);
    if options.dry_run || marked == old && !gone {
        return Ok(Some((marked, gone)));
    }
    let key = stored_old.key.clone();
    let revision = stored_old.mod_revision;
    let outcome = if gone {
        api.store().delete(key, revision).await
    } else {
        let bytes = stored::encode(marked.clone(), resource)?;
        api.store().update(key, bytes, revision, WriteOptions::default()).await
    };
    match outcome {
        Ok(Outcome::Applied(event)) => {
            let mut object = if gone { old } else { marked };
            stored::put_resource_version(&mut object, event.revision());
            Ok(Some((object, gone)))
        }
        Ok(Outcome::Conflict(_)) => Ok(None),
        Err(error) => Err(status_of(error, resource)),
    }
}

fn check_preconditions(old: &Value, resource: &Resource, options: &Options) -> Result<(), Status> {
    let failed = |what: &str, wanted: &str, found: &str| {
        let cause = format!(
            "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        );
        Err(Status::conflict(resource.group_resource(), text(old, "name"), cause))
    };
    if !options.uid.is_empty() && options.uid != text(old, "uid") {
        return failed("UID", &options.uid, text(old, "uid"));
    }
    let version = &options.resource_version;
    if !version.is_empty() && version != text(old, "resourceVersion") {
        return failed("ResourceVersion", version, text(old, "resourceVersion"));
    }
    Ok(())
}

/// The object with its deletion in it: when, after how long, and what has to happen first.
fn mark(mut object: Value, resource: &Resource, options: &Options, now: Timestamp) -> Value {
    let first_time = text(&object, "deletionTimestamp").is_empty();
    let grace = grace(&object, resource, options);
    let fields = metadata(&mut object);
    if first_time {
        let at = api::time::format(now.as_second() + grace);
        fields.insert("deletionTimestamp".into(), at.into());
        fields.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let Some(generation) = fields.get("generation").and_then(Value::as_i64) {
            fields.insert("generation".into(), (generation + 1).into());
        }
    } else if options.grace == Some(0) {
        fields.insert("deletionGracePeriodSeconds".into(), 0.into());
    }
    let wanted = match options.propagation.as_str() {
        "Orphan" => Some("orphan"),
        "Foreground" => Some("foregroundDeletion"),
        _ => None,
    };
    if let (Some(wanted), true) = (wanted, first_time) {
        let finalizers = fields.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(all) = finalizers
            && !all.iter().any(|finalizer| finalizer == wanted)
        {
            all.push(wanted.into());
        }
    }
    if resource.kind == "Namespace" {
        object["status"]["phase"] = "Terminating".into();
    }
    object
}

/// Only a pod that is on a node gets time: somebody there has to stop it.
fn grace(object: &Value, resource: &Resource, options: &Options) -> i64 {
    let running = resource.kind == "Pod"
        && object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !running {
        return 0;
    }
    let default = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace.unwrap_or(default).max(0)
}
