//! A write, from the state a client wants to the state that is stored.
//!
//! The wanted state is made from the old one, by whatever verb is running; this does what every
//! write goes through, and begins anew when somebody else was faster.
use super::object::{self, metadata, text};
use super::{Context, managed, moments, privileged};
use crate::admission::{self, Attributes, Operation};
use crate::answer::Written;
use crate::call::Call;
use crate::extend::definitions;
use crate::guard::authz;
use crate::state::allocation::{self, Claims, Committed};
use crate::state::corrupt::Corrupt;
use crate::state::keeping;
use crate::state::keys::status_of;
use crate::state::objects;
use crate::state::peculiar;
use crate::state::stored;
use api::codec::object::TypeMeta;
use api::convert;
use api::field::ErrorList;
use api::group::GroupKind;
use api::kinds::{Resource, Verb};
use api::patch::apply::keep_timestamps_if_unchanged;
use api::rules::{Part, Verdict};
use api::status::{OPTIMISTIC_LOCK, Status};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use store::{Key, KeyValue};

/// Who comes to own what a write changes.
#[derive(Clone, Copy, PartialEq)]
pub enum Owner {
    Client,
    /// An apply has settled it already.
    Settled,
}

/// Stores a new object. Its name may be made up; that of another is a failure.
pub async fn create(
    context: Context<'_>,
    mut object: Value,
    owner: Owner,
) -> Result<Written, Status> {
    let (call, resource) = (context.call, &context.call.resource);
    let now = Timestamp::now();
    let definition = resource.definition.as_ref();
    if definition.is_some_and(|definition| definition.family.terminating) {
        let name = if call.name.is_empty() { text(&object, "name") } else { &call.name };
        return Err(Status::forbidden(
            resource.group_resource(),
            name,
            "create not allowed while custom resource definition is terminating",
        ));
    }
    object::place(&mut object, call)?;
    check_unversioned(call, &object)?;
    object::wipe(&mut object);
    resource.set_defaults(&mut object);
    stored::check_size(&object)?;
    let mut object = through_storage(object, resource)?;
    moments::fill(&mut object, resource, now);
    if owner == Owner::Client {
        object = managed::updated(context, &managed::empty(resource), object, now).await;
    }
    let operation = Operation::Create;
    let admitted =
        admission::admit(Attributes::new(context, operation, Some(&mut object), None)).await?;
    // What may change an object may not move it, nor say that it has been.
    object::place(&mut object, call)?;
    check_unversioned(call, &object)?;
    object::name(&mut object, resource);
    object::begin(&mut object, now);
    loop {
        // What is chosen for it is chosen anew the next time.
        let before = allocation::chooses(resource).then(|| object.clone());
        match try_create(context, object).await? {
            Created::Done(mut written) => {
                written.warnings.splice(..0, admitted.warnings);
                return Ok(written);
            }
            // Somebody else got the address that was chosen, or charged the same quota.
            Created::Taken(tried) => object = before.unwrap_or(tried),
        }
    }
}

/// What is no version at all is forgotten, as upstream does. A dry run does not come to upstream's storage,
/// which is the one to mind.
fn check_unversioned(call: &Call, object: &Value) -> Result<(), Status> {
    match text(object, "resourceVersion").parse::<u64>() {
        Ok(1..) if !call.is_dry_run() => {
            Err(Status::bad_request("resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}

enum Created {
    Done(Written),
    /// Something that the object was to have is taken. The object as it was tried.
    Taken(Value),
}

async fn try_create(context: Context<'_>, mut object: Value) -> Result<Created, Status> {
    let (call, resource) = (context.call, &context.call.resource);
    let mut claims = allocation::settle(context.api, resource, &mut object, None).await?;
    (resource.rules.prepare_create)(resource, &mut object);
    let mut object = canonical(object, resource)?;
    let verdict = (resource.rules.validate_create)(resource, &object);
    let first = privileged::faults(context, &object, None).await;
    let warnings = judged(context, first, verdict, &object, None)?;
    if call.verb != Verb::Create {
        // Whoever may change what is there may not make what is not.
        let right = authz::Attributes { verb: "create".into(), ..authz::Attributes::of_call(call) };
        authz::check(context.api, &context.received.user, &right).await?;
    }
    let attributes = Attributes::new(context, Operation::Create, Some(&mut object), None);
    let notes = admission::validate(attributes.after(warnings)).await?;
    let warnings = notes.warnings;
    claims.join(notes.claims);
    as_read(&mut object, resource);
    let name = text(&object, "name").to_owned();
    let key = Key::from(resource.key(&call.namespace, &name));
    if call.is_dry_run() {
        // What is there already is told to those who only ask what would be.
        let there = context.api.store().get(&key).await;
        if there.map_err(|error| status_of(error, resource))?.is_some() {
            return Err(Status::already_exists(resource.group_resource(), &name));
        }
        // What could not be stored is told, too.
        let object = tried(context, object).await?;
        return Ok(Created::Done(Written { object, stored: None, created: true, warnings }));
    }
    let wanted = definitions::for_storage(context.api, resource, &object).await?;
    let bytes = stored::encode(&wanted, resource)?;
    let options = keeping::options(context.api, resource, None, &object).await?;
    match allocation::commit(context.api, resource, (key, 0), Some(bytes), claims, options).await? {
        Committed::Applied(event) => {
            stored::put_resource_version(&mut object, event.revision());
            let object = kept(context, object, &event.kv).await?;
            let stored = Some(event.kv);
            Ok(Created::Done(Written { object, stored, created: true, warnings }))
        }
        Committed::Conflict(_) => Err(Status::already_exists(resource.group_resource(), &name)),
        Committed::Taken => Ok(Created::Taken(object)),
    }
}

/// What is only tried, as it would be read back.
async fn tried(context: Context<'_>, object: Value) -> Result<Value, Status> {
    let (api, resource) = (context.api, &context.call.resource);
    let wanted = definitions::for_storage(api, resource, &object).await?;
    let read = definitions::read_back(api, resource, wanted).await?;
    Ok(read.unwrap_or(object))
}

/// What has been stored, as it is read back.
async fn kept(
    context: Context<'_>,
    object: Value,
    stored: &Arc<KeyValue>,
) -> Result<Value, Status> {
    let read = definitions::stored_back(context.api, &context.call.resource, stored).await?;
    Ok(read.unwrap_or(object))
}

/// The object that a write is about, as it is now.
pub async fn old(context: Context<'_>) -> Result<Arc<KeyValue>, Status> {
    let (api, call) = (context.api, context.call);
    let found = objects::found(api, &call.resource, &call.namespace, &call.name).await?;
    let found = definitions::converted_one(api, &call.resource, found).await;
    found.map_err(|corrupt| unwritable(call, &corrupt))
}

/// What is said of one that cannot be read. A write that is only tried reads it like anybody else: upstream's
/// dry run is a get (`registry/generic/registry/dryrun.go`).
fn unwritable(call: &Call, corrupt: &Corrupt) -> Status {
    if call.is_dry_run() { corrupt.read() } else { corrupt.written() }
}

/// A state that is wanted, and what is worth a word about it.
pub type Wanted = Result<(Value, Vec<String>), Status>;

/// Puts what `wanted` makes of the old object in its place. When somebody else was faster, it is
/// asked again with what they left.
pub async fn update(
    context: Context<'_>,
    mut old: Arc<KeyValue>,
    owner: Owner,
    wanted: impl Fn(&Value) -> Wanted,
) -> Result<Written, Status> {
    let (call, resource) = (context.call, &context.call.resource);
    loop {
        let before = stored::try_decode(&old, resource);
        let before = before.map_err(|corrupt| unwritable(call, &corrupt))?;
        let (new, mut warnings) = wanted(&before)?;
        let (new, mut claims, more) = next_state(context, &before, new, owner).await?;
        warnings.extend(more);
        let mut object = new.clone();
        stored::put_resource_version(&mut object, old.mod_revision);
        let changes = object != before || is_stale(context, &old).await?;
        if call.is_dry_run() || !changes {
            // A webhook that would not have it stored is heard, even if nothing is to be stored.
            let object = tried(context, object).await?;
            return Ok(Written { object, stored: None, created: false, warnings });
        }
        let options = keeping::options(context.api, resource, Some(&before), &new).await?;
        let value = match object::is_gone(&new, resource) {
            true => {
                claims = allocation::released(resource, &before);
                None
            }
            false => {
                let wanted = definitions::for_storage(context.api, resource, &new).await?;
                Some(stored::encode(&wanted, resource)?)
            }
        };
        let place = (old.key.clone(), old.mod_revision);
        match allocation::commit(context.api, resource, place, value, claims, options).await? {
            Committed::Applied(event) => {
                stored::put_resource_version(&mut object, event.revision());
                let stored = (!event.is_delete()).then_some(event.kv);
                if let Some(stored) = &stored {
                    object = kept(context, object, stored).await?;
                }
                return Ok(Written { object, stored, created: false, warnings });
            }
            Committed::Conflict(Some(newer)) => {
                let newer = definitions::converted_one(context.api, resource, newer).await;
                old = newer.map_err(|corrupt| corrupt.written())?;
            }
            Committed::Taken => {}
            Committed::Conflict(None) => {
                return Err(Status::not_found(resource.group_resource(), &call.name));
            }
        }
    }
}

/// What is kept with an old key is written anew, even if nothing else is new.
async fn is_stale(context: Context<'_>, old: &KeyValue) -> Result<bool, Status> {
    let stale = context.api.store().is_stale(&old.key).await;
    stale.map_err(|error| status_of(error, &context.call.resource))
}

/// The state after an update: what the client may not change is the old one's.
async fn next_state(
    context: Context<'_>,
    old: &Value,
    mut new: Value,
    owner: Owner,
) -> Result<(Value, Claims, Vec<String>), Status> {
    let (call, resource) = (context.call, &context.call.resource);
    object::place(&mut new, call)?;
    check_uid(call, &new, old)?;
    check_version(call, &mut new, old)?;
    resource.set_defaults(&mut new);
    stored::check_size(&new)?;
    let mut new = through_storage(new, resource)?;
    if context.part() == Part::Main {
        moments::fill(&mut new, resource, Timestamp::now());
    }
    if owner == Owner::Client {
        new = managed::updated(context, old, new, Timestamp::now()).await;
    }
    let operation = Operation::Update;
    let admitted =
        admission::admit(Attributes::new(context, operation, Some(&mut new), Some(old))).await?;
    object::place(&mut new, call)?;
    // A hook that names a version means that one, too.
    check_version(call, &mut new, old)?;
    keep(&mut new, old, "generation");
    let mut claims = match context.part() {
        Part::Main => allocation::settle(context.api, resource, &mut new, Some(old)).await?,
        Part::Sub(_) => Claims::default(),
    };
    (resource.rules.prepare_update)(resource, &mut new, old, context.part());
    moments::note(&mut new, old, resource, context.part());
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if old["metadata"].get(field).is_some() {
            keep(&mut new, old, field);
        }
    }
    for field in ["uid", "deletionGracePeriodSeconds"] {
        if new["metadata"].get(field).is_none() {
            keep(&mut new, old, field);
        }
    }
    metadata(&mut new).remove("selfLink");
    let mut new = canonical(new, resource)?;
    // Only now is it known whether the write changes anything else.
    let same = resource.aligned(old, &new);
    keep_timestamps_if_unchanged(&same, &mut new);
    let verdict = (resource.rules.validate_update)(resource, &new, old, context.part());
    let first = privileged::faults(context, &new, Some(old)).await;
    let mut warnings = admitted.warnings;
    warnings.extend(judged(context, first, verdict, &new, Some(old))?);
    let attributes = Attributes::new(context, operation, Some(&mut new), Some(old));
    let notes = admission::validate(attributes.after(warnings)).await?;
    claims.join(notes.claims);
    as_read(&mut new, resource);
    Ok((new, claims, notes.warnings))
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    match old["metadata"].get(field) {
        Some(value) => metadata(new).insert(field.into(), value.clone()),
        None => metadata(new).remove(field),
    };
}

/// A client that names a uid means that object.
fn check_uid(call: &Call, new: &Value, old: &Value) -> Result<(), Status> {
    let (resource, uid) = (&call.resource, text(new, "uid"));
    if uid.is_empty() || uid == text(old, "uid") {
        return Ok(());
    }
    let key = resource.key(&call.namespace, &call.name);
    // A dry run does not come to where upstream puts the prefix before a key.
    let key = match call.is_dry_run() {
        true => key.strip_prefix("/registry").unwrap_or(&key),
        false => &key,
    };
    let cause = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        text(old, "uid")
    );
    Err(Status::conflict(resource.group_resource(), &call.name, cause))
}

/// Who names a version means that one; who names none takes the latest.
fn check_version(call: &Call, new: &mut Value, old: &Value) -> Result<(), Status> {
    let resource = &call.resource;
    match text(new, "resourceVersion") {
        "" | "0" if resource.rules.strategy.allow_unconditional_update => {
            keep(new, old, "resourceVersion");
            Ok(())
        }
        "" | "0" => {
            let path = api::field::Path::new("metadata");
            let path = path.child("resourceVersion");
            let error = api::field::Error::invalid(&path, 0, "must be specified for an update");
            // Upstream names the resource here, not the kind.
            let resource = GroupKind::new(resource.group, resource.plural);
            Err(Status::invalid(resource, &call.name, &[error]))
        }
        version if version == text(old, "resourceVersion") => Ok(()),
        version => match version.parse::<u64>() {
            Ok(_) => {
                let of = resource.group_resource();
                Err(Status::conflict(of, &call.name, OPTIMISTIC_LOCK))
            }
            // What is no version at all is a fault of the server to upstream.
            Err(error) => {
                let range = matches!(error.kind(), std::num::IntErrorKind::PosOverflow);
                let fault = if range { "value out of range" } else { "invalid syntax" };
                let message = format!("strconv.ParseUint: parsing {version:?}: {fault}");
                Err(Status { code: 500, message, ..Status::default() })
            }
        },
    }
}

/// What one version of a kind can say in two places says the same in both once it has been through
/// the version that is stored.
fn through_storage(object: Value, resource: &Resource) -> Result<Value, Status> {
    let (version, stored) = (resource.api_version(), resource.storage_version());
    // Versions of a definition differ in nothing that a write could say twice.
    if version == stored || resource.definition.is_some() {
        return Ok(object);
    }
    let there =
        convert::convert(object, &stored).map_err(|e| Status::bad_request(e.to_string()))?;
    convert::convert(there, &version).map_err(Status::internal_error)
}

/// The object as it is read back: without what is empty, with the defaults of what is missing then.
fn as_read(object: &mut Value, resource: &Resource) {
    resource.as_read(object);
    if let Some(as_read) = peculiar::of(resource).as_read {
        as_read(object);
    }
}

fn canonical(object: Value, resource: &Resource) -> Result<Value, Status> {
    Ok(resource.settle_given(object).map_err(|e| object::unfit(resource, &e))?.value)
}

/// Errors refuse the write; warnings go with it.
fn judged(
    context: Context<'_>,
    mut errors: ErrorList,
    verdict: Result<Verdict, serde_json::Error>,
    object: &Value,
    old: Option<&Value>,
) -> Result<Vec<String>, Status> {
    let resource = &context.call.resource;
    let mut verdict = verdict.map_err(|error| {
        let kind = resource.kind;
        Status::bad_request(format!("{kind} cannot be handled as a {kind}: {error}"))
    })?;
    errors.extend(verdict.errors);
    let said = definitions::said(context.api, resource, &errors, object, old);
    errors.extend(said.errors);
    verdict.warnings.extend(said.warnings);
    errors.extend(definitions::faults(context.api, resource, &errors, object, old));
    errors.extend(admission::policy::faults(resource, object));
    // They are the first thing that upstream looks at in a spec.
    let first = errors.iter().position(|error| !error.field.starts_with("metadata"));
    let at = first.unwrap_or(errors.len());
    errors.splice(at..at, admission::device_selectors::faults(resource, object, old));
    if errors.is_empty() {
        return Ok(verdict.warnings);
    }
    let said = TypeMeta::of(object);
    // A definition's object is called what it calls itself, even where that is what is wrong with it.
    let kind = match resource.definition {
        Some(_) => GroupKind::new(said.group_version().0, &said.kind),
        None => resource.stored_group_kind(),
    };
    Err(Status::invalid(kind, text(object, "name"), &errors))
}
