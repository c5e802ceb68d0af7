//! delete: at once, or by marking the object and letting its finalizers have their say.
use super::Context;
use super::object::{is_gone, metadata, text};
use super::{current, page};
use crate::admission::{self, Attributes, Operation};
use crate::answer::{self, Answer};
use crate::call::{DeleteOptions, UNREAD};
use crate::extend::definitions;
use crate::guard::authz;
use crate::server::ApiServer;
use crate::state::allocation::{self, Claims, Committed};
use crate::state::keys::status_of;
use crate::state::peculiar::{self, Deletion};
use crate::state::stored;
use api::codec::object::{self as codec, Encoding};
use api::field;
use api::kinds::Resource;
use api::status::{Details, Status};
use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use store::{KeyValue, Outcome, WriteOptions};

pub async fn delete(context: Context<'_>) -> Result<Answer, Status> {
    let call = context.call;
    let view = context.view()?;
    let options = options(context)?;
    if options.unread {
        remove_unread(context, &options).await?;
        // Of what nobody could read, upstream knows but the kind and the name.
        let (name, kind) = (call.name.clone(), call.resource.kind.into());
        let done = Status::success(Details { name, kind, ..Details::default() });
        let done = Status { code: 200, ..done };
        return Ok(answer::status(StatusCode::OK, &done, &view));
    }
    let (object, gone) = remove(context, &call.namespace, &call.name, &options).await?;
    if !gone || call.resource.returns_deleted {
        return Ok(answer::object(StatusCode::OK, object, &call.resource, &view));
    }
    let done = success(&call.resource, &call.name, &object);
    context.audit(|record| record.response_status(&done));
    Ok(answer::status(StatusCode::OK, &done, &view))
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

pub async fn delete_collection(context: Context<'_>) -> Result<Answer, Status> {
    let (api, call) = (context.api, context.call);
    let view = context.view()?;
    let options = options(context)?;
    if options.unread {
        let path = field::Path::new(UNREAD);
        let text = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = field::Error::invalid(&path, &Value::Bool(true), text);
        return Err(Status::invalid(DeleteOptions::kind(), "", &[error]));
    }
    let found = page(api, call, &call.list_options()?).await?;
    for stored in &found.objects {
        let meta = stored::meta(stored);
        match remove(context, &meta.namespace, &meta.name, &options).await {
            Err(status) if !status.is_not_found() => return Err(status),
            _ => {}
        }
    }
    answer::list(api, found, &call.resource, &view).await
}

/// What is said of the deletion: in its body, if it has one.
fn options(context: Context<'_>) -> Result<DeleteOptions, Status> {
    let (call, received) = (context.call, context.received);
    let asked = call.delete_options()?;
    let ty = answer::meta_type("DeleteOptions").filter(|_| !received.body.is_empty());
    let Some(ty) = ty else { return Ok(asked) };
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let decoded = codec::decode(&received.body, encoding, ty);
    let body = decoded.map_err(|e| Status::bad_request(e.to_string()))?.value;
    context.audit(|record| record.request_object(&DeleteOptions::recorded(body.clone())));
    let options = DeleteOptions::read(&body)?;
    Ok(DeleteOptions { dry_run: options.dry_run || asked.dry_run, ..options })
}

/// Removes an object that cannot be read, whatever it is and whoever has a say in it: the way out
/// when one that is broken is in the way of others. It takes a right of its own.
async fn remove_unread(context: Context<'_>, options: &DeleteOptions) -> Result<(), Status> {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    let (api, call, resource) = (context.api, context.call, &context.call.resource);
    context.audit(|record| record.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", ""));
    let wanted = authz::Attributes { verb: VERB.into(), ..authz::Attributes::of_call(call) };
    let decision = authz::decide(api, &context.received.user, &wanted).await;
    if !decision.allowed {
        let cause = format!("not permitted to do {VERB:?}, reason: {}", decision.reason);
        return Err(Status::forbidden(resource.group_resource(), &call.name, cause));
    }
    let missing = || Status::not_found(resource.group_resource(), &call.name);
    let key = resource.key(&call.namespace, &call.name);
    match current(api, resource, &call.namespace, &call.name).await {
        Ok(found) if stored::decode(&found, resource).is_ok() => {
            let cause = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage"
            );
            return Err(Status::conflict(resource.group_resource(), &call.name, cause));
        }
        Err(status) if status.is_not_found() => return Err(status),
        _ => {}
    }
    let store = api.store().untransformed();
    loop {
        let found = store.get(key.as_bytes()).await.map_err(|e| status_of(e, resource))?;
        let revision = found.ok_or_else(missing)?.mod_revision;
        if options.dry_run {
            return Ok(());
        }
        match store.delete(key.as_str(), revision).await.map_err(|e| status_of(e, resource))? {
            Outcome::Applied(_) => return Ok(()),
            Outcome::Conflict(_) => {}
        }
    }
}

/// Deletes an object, or marks it. Returns its last state, and whether it is gone.
pub async fn remove(
    context: Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<(Value, bool), Status> {
    remove_object(context, namespace, name, options, true).await
}

/// The same for a request that admission has seen already, as something else than a deletion.
pub async fn remove_admitted(
    context: Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<(Value, bool), Status> {
    remove_object(context, namespace, name, options, false).await
}

async fn remove_object(
    context: Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    ask: bool,
) -> Result<(Value, bool), Status> {
    let resource = &context.call.resource;
    let mut old = current(context.api, resource, namespace, name).await?;
    loop {
        let object = stored::decode(&old, resource)?;
        if ask {
            let attributes = || {
                let attributes = Attributes::new(context, Operation::Delete, None, Some(&object));
                attributes.with_options(options.tree())
            };
            let admitted = admission::admit(attributes()).await?;
            check_preconditions(&object, resource, options)?;
            let judged = admission::validate(attributes()).await?;
            context.received.remark(&admitted.warnings);
            context.received.remark(&judged.warnings);
        } else {
            check_preconditions(&object, resource, options)?;
        }
        match try_remove(context.api, resource, &old, object, options).await? {
            Attempt::Done(object, gone) => return Ok((object, gone)),
            Attempt::Beaten(Some(newer)) => {
                let newer = definitions::converted_one(context.api, resource, newer).await;
                old = newer.map_err(|corrupt| corrupt.written())?;
            }
            Attempt::Beaten(None) => {
                return Err(Status::not_found(resource.group_resource(), name));
            }
        }
    }
}

/// Deletes an object for the server itself: nobody is asked, and its finalizers have their say.
pub async fn remove_unasked(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let mut old = match current(api, resource, namespace, name).await {
        Err(status) if status.is_not_found() => return Ok(()),
        found => found?,
    };
    loop {
        let object = stored::decode(&old, resource)?;
        match try_remove(api, resource, &old, object, &DeleteOptions::default()).await? {
            Attempt::Beaten(Some(newer)) => {
                let newer = definitions::converted_one(api, resource, newer).await;
                old = newer.map_err(|corrupt| corrupt.written())?;
            }
            Attempt::Done(..) | Attempt::Beaten(None) => return Ok(()),
        }
    }
}

enum Attempt {
    /// The last state, and whether it is gone.
    Done(Value, bool),
    /// Somebody else was faster: this is what there is now.
    Beaten(Option<Arc<KeyValue>>),
}

async fn try_remove(
    api: &ApiServer,
    resource: &Resource,
    stored_old: &KeyValue,
    old: Value,
    options: &DeleteOptions,
) -> Result<Attempt, Status> {
    let marked = mark(old.clone(), resource, options, Timestamp::now());
    let gone = is_gone(&marked, resource);
    if options.dry_run || marked == old && !gone {
        return Ok(Attempt::Done(marked, gone));
    }
    let place = (stored_old.key.clone(), stored_old.mod_revision);
    let (value, claims) = match gone {
        true => (None, allocation::released(resource, &old)),
        false => {
            let wanted = definitions::for_storage(api, resource, &marked).await?;
            (Some(stored::encode(&wanted, resource)?), Claims::default())
        }
    };
    let options = WriteOptions::default();
    match allocation::commit(api, resource, place, value, claims, options).await? {
        Committed::Applied(event) if gone => {
            let mut object = old;
            stored::put_resource_version(&mut object, event.revision());
            Ok(Attempt::Done(object, true))
        }
        Committed::Applied(event) => {
            let mut object = marked;
            stored::put_resource_version(&mut object, event.revision());
            let read = definitions::stored_back(api, resource, &event.kv).await?;
            Ok(Attempt::Done(read.unwrap_or(object), false))
        }
        Committed::Conflict(newer) => Ok(Attempt::Beaten(newer)),
        Committed::Taken => Err(Status::internal_error("a deletion claimed something")),
    }
}

pub fn check_preconditions(
    old: &Value,
    resource: &Resource,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let failed = |what: &str, wanted: &str, found: &str, hint: &str| {
        // These two look for themselves.
        let begin = match peculiar::of(resource).deletion {
            Deletion::OfNamespace => Some("Precondition"),
            Deletion::OfDefinition => Some("precondition"),
            Deletion::Plain | Deletion::OfPod => None,
        };
        if let Some(begin) = begin {
            let cause = format!(
                "{begin} failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(resource.group_resource(), text(old, "name"), cause));
        }
        let cause = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {hint}"
        );
        // Upstream names the kind here, where it names the resource elsewhere.
        let kind = api::group::GroupResource::new(resource.group, resource.kind);
        Err(Status::conflict(kind, text(old, "name"), cause))
    };
    if !options.uid.is_empty() && options.uid != text(old, "uid") {
        return failed("UID", &options.uid, text(old, "uid"), "deleted and then recreated");
    }
    let version = &options.resource_version;
    if !version.is_empty() && version != text(old, "resourceVersion") {
        return failed("ResourceVersion", version, text(old, "resourceVersion"), "modified");
    }
    Ok(())
}

/// The object with its deletion in it: when, after how long, and what has to happen first.
fn mark(mut object: Value, resource: &Resource, options: &DeleteOptions, now: Timestamp) -> Value {
    let first_time = text(&object, "deletionTimestamp").is_empty();
    let kind = peculiar::of(resource).deletion;
    if first_time && kind == Deletion::OfDefinition {
        definitions::mark(&mut object, now);
        return object;
    }
    let grace = grace(&object, resource, options);
    let fields = metadata(&mut object);
    if first_time {
        put_deletion(fields, now.as_second().saturating_add(grace).min(LAST_MOMENT), grace);
        if let Some(generation) = fields.get("generation").and_then(Value::as_i64) {
            fields.insert("generation".into(), (generation + 1).into());
        }
    } else if let Some(shorter) = options.grace {
        shorten(fields, shorter, now);
    }
    put_finalizers(fields, &options.propagation);
    if kind == Deletion::OfNamespace {
        object["status"]["phase"] = "Terminating".into();
    }
    object
}

type Fields = serde_json::Map<String, Value>;

/// The end of the year 9999: no time can be written that is later.
const LAST_MOMENT: i64 = 253_402_300_799;

fn put_deletion(fields: &mut Fields, at: i64, grace: i64) {
    fields.insert("deletionTimestamp".into(), api::time::format(at).into());
    fields.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// An object that is already going may only go sooner.
fn shorten(fields: &mut Fields, grace: i64, now: Timestamp) {
    let before = fields.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if grace >= before {
        return;
    }
    let due = fields.get("deletionTimestamp").and_then(Value::as_str).unwrap_or_default();
    let due = api::time::parse(due).map_or(now.as_second(), |(seconds, _)| seconds);
    let sooner = due - before + grace;
    if sooner < now.as_second() {
        // All of its time is over; somebody still has to see that before it goes.
        put_deletion(fields, now.as_second(), grace.min(1));
    } else {
        put_deletion(fields, sooner, grace);
    }
}

/// What the garbage collector has to do first, it does through these two finalizers.
fn put_finalizers(fields: &mut Fields, propagation: &str) {
    let now: Vec<String> = match fields.get("finalizers") {
        Some(Value::Array(all)) => {
            all.iter().filter_map(|f| f.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    let has = |name: &str| now.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match propagation {
        "Orphan" => (true, false),
        "Foreground" => (false, true),
        "Background" => (false, false),
        _ => (has("orphan"), has("foregroundDeletion")),
    };
    let ours = |name: &str| matches!(name, "orphan" | "foregroundDeletion");
    let mut wanted: Vec<&str> =
        now.iter().map(String::as_str).filter(|finalizer| !ours(finalizer)).collect();
    wanted.extend(orphan.then_some("orphan"));
    wanted.extend(foreground.then_some("foregroundDeletion"));
    let same = has("orphan") == orphan && has("foregroundDeletion") == foreground;
    if same {
        return;
    }
    match wanted.is_empty() {
        true => fields.remove("finalizers"),
        false => fields.insert("finalizers".into(), json!(wanted)),
    };
}

/// Only a pod that is on a node gets time: somebody there has to stop it.
fn grace(object: &Value, resource: &Resource, options: &DeleteOptions) -> i64 {
    let running = peculiar::of(resource).deletion == Deletion::OfPod
        && object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !running {
        return 0;
    }
    let default = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    match options.grace.unwrap_or(default) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::kinds::find_kind;

    #[test]
    fn an_object_that_is_another_is_told_as_upstream_tells_of_its_kind() {
        let check = |version: &str, kind: &str, options: DeleteOptions, expected: &str| {
            let resource = find_kind(version, kind).expect("a kind");
            let object = json!({ "metadata": { "name": "a", "uid": "1", "resourceVersion": "2" } });
            let told = check_preconditions(&object, resource, &options);
            assert_eq!(told.expect_err("it is another").message, expected);
        };
        let uid = || DeleteOptions { uid: "x".into(), ..DeleteOptions::default() };
        let version = || DeleteOptions { resource_version: "x".into(), ..DeleteOptions::default() };
        check(
            "v1",
            "ConfigMap",
            uid(),
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match the UID in record (1). The object might have been deleted and then recreated",
        );
        check(
            "v1",
            "Namespace",
            uid(),
            "Operation cannot be fulfilled on namespaces \"a\": Precondition failed: UID in precondition: x, UID in object meta: 1",
        );
        check(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            version(),
            "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \"a\": precondition failed: ResourceVersion in precondition: x, ResourceVersion in object meta: 2",
        );
    }
}
