//! What the server itself writes into an object: identity, times, generation.
pub use crate::state::identity::{begin, metadata, text};

use super::Context;
use crate::asked::Received;
use crate::call::Call;
use crate::ground::uuid;
use crate::state::another;
use crate::state::peculiar::{self, Deletion, Naming};
use api::codec::json::{self, Decoded};
use api::codec::object::{self, Encoding, TypeMeta};
use api::codec::{DecodeError, FieldValidation, yaml};
use api::custom;
use api::kinds::Resource;
use api::names;
use api::schema::{TypeRef, builtin};
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
        check_type(&TypeMeta::of(given), resource, |_| None)?;
        let decoded = resource.settle_given(Value::clone(given));
        return settle(decoded.map_err(|e| unfit(resource, &e))?, resource, validation);
    }
    let body = &received.body;
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let unrecognized = |error: &dyn std::fmt::Display| {
        let (kind, shown) = (resource.kind, summary(body));
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {error} ({shown})"
        ))
    };
    let found = object::type_meta(body, encoding).map_err(|error| unrecognized(&error))?;
    match &resource.definition {
        // Nothing but the object itself says what it is.
        Some(_) if found.kind.is_empty() => {
            return Err(unrecognized(&custom::without_kind(&String::from_utf8_lossy(body))));
        }
        Some(_) if found.api_version.is_empty() && says_null(body, encoding) => {
            let kind = resource.kind;
            return Err(Status::bad_request(format!(
                "{kind} in version \"\" cannot be handled as a {kind}: .apiVersion accessor error: <nil> is of the type <nil>, expected string"
            )));
        }
        Some(definition) if found.api_version != definition.version.api_version => {
            return Err(of_another_version(body, encoding, &found, resource, validation));
        }
        Some(_) => {}
        None => check_type(&found, resource, |ty| object::decode(body, encoding, ty).err())?,
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

/// The object with the name of its type. A definition's object that names another keeps it until its
/// rules have seen it.
pub fn typed(mut object: Value, resource: &Resource) -> Value {
    let mut own = TypeMeta { api_version: resource.api_version(), kind: resource.kind.into() };
    if resource.definition.is_some() {
        let said = TypeMeta::of(&object);
        let or = |said: String, own: String| if said.is_empty() { own } else { said };
        own = TypeMeta {
            api_version: or(said.api_version, own.api_version),
            kind: or(said.kind, own.kind),
        };
    }
    own.write_into(&mut object);
    object
}

pub fn unfit(resource: &Resource, error: &DecodeError) -> Status {
    let (kind, version) = (resource.kind, resource.version);
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
    ))
}

/// Whether an object says that its version is nothing, rather than not to say what it is.
fn says_null(body: &[u8], encoding: Encoding) -> bool {
    let read = match encoding {
        Encoding::Yaml => yaml::decode_untyped(body),
        Encoding::Json | Encoding::Protobuf => json::decode_untyped(body),
    };
    read.is_ok_and(|decoded| decoded.value.get("apiVersion").is_some_and(Value::is_null))
}

/// An object may leave its type to the path, but may not be of another.
fn check_type(
    found: &TypeMeta,
    resource: &Resource,
    read: impl FnOnce(TypeRef<'_>) -> Option<DecodeError>,
) -> Result<(), Status> {
    let expected = TypeMeta { api_version: resource.api_version(), kind: resource.kind.into() };
    let or = |said: &String, own: &String| if said.is_empty() { own } else { said }.clone();
    let found = TypeMeta {
        api_version: or(&found.api_version, &expected.api_version),
        kind: or(&found.kind, &expected.kind),
    };
    if found == expected {
        return Ok(());
    }
    match another_type(&found, resource, read) {
        Some(fault) => {
            let (kind, (_, version)) = (&found.kind, found.group_version());
            Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {}: {fault}",
                resource.kind
            )))
        }
        None => Err(unexpected_version(&found, resource)),
    }
}

/// Why an object of a type cannot become one of the resource's kind; none if it is of another version of
/// it. What says that it is something is read as that first: `read` says what is wrong with it then.
pub fn another_type(
    found: &TypeMeta,
    resource: &Resource,
    read: impl FnOnce(TypeRef<'_>) -> Option<DecodeError>,
) -> Option<String> {
    if let Some(fault) = another::unregistered(found) {
        return Some(fault);
    }
    let unread = found.type_in(builtin()).and_then(read);
    unread
        .map(|error| error.to_string())
        .or_else(|| another::unconvertible(found, resource.group, resource.kind))
}

fn unexpected_version(found: &TypeMeta, resource: &Resource) -> Status {
    let (found, expected) = (&found.api_version, resource.api_version());
    Status::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}

/// What is said of a definition's object in another version than the path's: what is wrong with it there
/// comes first.
fn of_another_version(
    body: &[u8],
    encoding: Encoding,
    found: &TypeMeta,
    resource: &Resource,
    validation: FieldValidation,
) -> Status {
    let (group, version) = found.group_version();
    let own = resource.definition.as_ref();
    if let Some(definition) = own.filter(|_| group == resource.group && found.kind == resource.kind)
        && let Err(error) = custom::decode_version(body, encoding, definition, &found.api_version)
            .and_then(|decoded| decoded.validate(validation))
    {
        let kind = resource.kind;
        return Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
        ));
    }
    unexpected_version(found, resource)
}

/// The beginning of what was sent: what looks like JSON as it is, all else in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (begins, more) = match body.split_at_checked(SHOWN) {
        Some((begins, rest)) if !rest.is_empty() => (begins, " ..."),
        _ => (body, ""),
    };
    let shown = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(begins).into_owned(),
        Some(_) => begins.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    format!("{shown}{more}")
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
