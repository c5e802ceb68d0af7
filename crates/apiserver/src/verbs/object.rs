//! What the server itself writes into an object: identity, times, generation.
pub use crate::state::identity::{begin, metadata, text};

use super::Context;
use crate::asked::Received;
use crate::call::Call;
use crate::ground::uuid;
use crate::state::peculiar::{self, Deletion, Naming};
use api::codec::json::{self, Decoded};
use api::codec::object::{self, Encoding, TypeMeta};
use api::codec::{DecodeError, FieldValidation};
use api::kinds::Resource;
use api::names;
use api::schema::TypeRef;
use api::status::Status;
use http::header;
use serde_json::Value;

/// Decodes a request's body as the resource's kind, with the warnings that strictness leaves.
pub fn decode(
    received: &Received,
    call: &Call,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let resource = &call.resource;
    if let Some(given) = &received.given {
        check_type(&TypeMeta::of(given), resource)?;
        let decoded = resource.settle_given(Value::clone(given));
        return settle(decoded.map_err(|e| unfit(resource, &e))?, resource, validation);
    }
    let body = &received.body;
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let found = object::type_meta(body, encoding).map_err(|error| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error}",
            resource.kind
        ))
    })?;
    check_type(&found, resource)?;
    if resource.definition.is_some() && found.kind.is_empty() {
        // Nothing but the object itself says what it is.
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{}'",
            resource.kind,
            String::from_utf8_lossy(body)
        )));
    }
    let decoded = resource.decode_given(body, encoding);
    let decoded = decoded.map_err(|e| unfit(resource, &e))?;
    settle(decoded, resource, validation)
}

/// Decodes a request's body as a kind that is not the resource's own.
pub fn decode_as(
    context: Context<'_>,
    ty: TypeRef<'_>,
    api_version: &str,
    kind: &str,
) -> Result<(Value, Vec<String>), Status> {
    let received = context.received;
    let unfit = |error: &DecodeError| {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
        ))
    };
    let decoded = match &received.given {
        Some(given) => json::canonicalize(Value::clone(given), ty),
        None => {
            let content_type = received.header(header::CONTENT_TYPE);
            let encoding = Encoding::of_request(content_type, Encoding::ALL)?;
            object::decode(&received.body, encoding, ty)
        }
    };
    let decoded = decoded.map_err(|e| unfit(&e))?;
    let validation = context.call.write_options().check("CreateOptions", false)?.validation();
    let (mut value, warnings) = decoded.validate(validation).map_err(|e| unfit(&e))?;
    TypeMeta { api_version: api_version.into(), kind: kind.into() }.write_into(&mut value);
    context.audit(|record| record.request_object(&value));
    check_namespace(&value, context.call)?;
    Ok((value, warnings))
}

/// Applies `fieldValidation` and names the object's type.
pub fn settle(
    decoded: Decoded,
    resource: &Resource,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let (value, warnings) = decoded.validate(validation).map_err(|e| unfit(resource, &e))?;
    let value = typed(value, resource);
    match resource.unreadable(&value) {
        Some(fault) => Err(unfit(resource, &DecodeError::Type(fault))),
        None => Ok((value, warnings)),
    }
}

/// The object with the name of its type.
pub fn typed(mut object: Value, resource: &Resource) -> Value {
    TypeMeta { api_version: resource.api_version(), kind: resource.kind.into() }
        .write_into(&mut object);
    object
}

pub fn unfit(resource: &Resource, error: &DecodeError) -> Status {
    let (kind, version) = (resource.kind, resource.version);
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
    ))
}

/// An object may leave its type to the path, but may not be of another.
fn check_type(found: &TypeMeta, resource: &Resource) -> Result<(), Status> {
    let expected = resource.api_version();
    if !found.api_version.is_empty() && found.api_version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({expected})",
            found.api_version
        )));
    }
    if !found.kind.is_empty() && found.kind != resource.kind {
        let (group, version) = found.group_version();
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): no kind {:?} is registered for version {:?}",
            resource.kind,
            found.kind,
            if group.is_empty() { version } else { &found.api_version }
        )));
    }
    Ok(())
}

/// The namespace of an object is its path's.
pub fn place(object: &mut Value, call: &Call) -> Result<(), Status> {
    let namespace = text(object, "namespace");
    if !call.resource.is_namespaced() {
        metadata(object).remove("namespace");
    } else if namespace.is_empty() {
        metadata(object).insert("namespace".into(), call.namespace.clone().into());
    } else {
        check_namespace(object, call)?;
    }
    Ok(())
}

/// What names a namespace names that of the path.
fn check_namespace(object: &Value, call: &Call) -> Result<(), Status> {
    let namespace = text(object, "namespace");
    if namespace.is_empty() || namespace == call.namespace {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// A write names its object as the path does.
pub fn check_name(object: &Value, call: &Call) -> Result<(), Status> {
    let (name, expected) = (text(object, "name"), &call.name);
    if name == expected {
        return Ok(());
    }
    Err(Status::bad_request(match name {
        "" => format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        ),
        name => {
            format!(
                "the name of the object ({name}) does not match the name on the URL ({expected})"
            )
        }
    }))
}

/// What a client may not say of a new object is forgotten before anyone comes to own it.
pub fn wipe(object: &mut Value) {
    for field in
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
    {
        metadata(object).remove(field);
    }
}

/// The name of a new object, if it is to be made up.
pub fn name(object: &mut Value, resource: &Resource) {
    if !text(object, "name").is_empty() {
        return;
    }
    let name = match (text(object, "generateName"), peculiar::of(resource).naming) {
        ("", Naming::NotNeeded) => uuid(),
        ("", _) => return,
        (base, Naming::AsGiven) => base.to_owned(),
        (base, _) => names::generate_name(base, fastrand::u64(..)),
    };
    metadata(object).insert("name".into(), name.into());
}

/// An object being deleted goes with its last finalizer.
pub fn is_gone(object: &Value, resource: &Resource) -> bool {
    let some = |list: &Value| list.as_array().is_some_and(|all| !all.is_empty());
    let held = some(&object["metadata"]["finalizers"])
        || peculiar::of(resource).deletion == Deletion::OfNamespace
            && some(&object["spec"]["finalizers"]);
    let waiting = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    !text(object, "deletionTimestamp").is_empty() && !held && !waiting
}
