//! One constructor for each failure the API server reports.

use std::fmt::{Display, Write};

use super::{Cause, Details, Reason, Status};
use crate::field;
use crate::group::{GroupKind, GroupResource};
use crate::quote::Quoted;

/// The cause of a [`Status::conflict`] when the client's resource version is stale.
pub const OPTIMISTIC_LOCK: &str = "the object has been modified; \
    please apply your changes to the latest version and try again";

/// So many faults of one object are told. Upstream tells all, however many: nobody reads them.
const MOST_FAULTS: usize = 1000;

impl Status {
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        about(Reason::NotFound, resource, name, format!("{resource} {} not found", Quoted(name)))
    }

    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", Quoted(name));
        about(Reason::AlreadyExists, resource, name, message)
    }

    /// A generated name met an existing object; trying again picks another.
    pub fn generate_name_conflict(resource: GroupResource<'_>, name: &str, retry: i32) -> Self {
        let message = format!(
            "{resource} {} already exists, \
             the server was not able to generate a unique name for the object",
            Quoted(name)
        );
        about(Reason::AlreadyExists, resource, name, message).with_retry_after(retry)
    }

    pub fn conflict(resource: GroupResource<'_>, name: &str, cause: impl Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {resource} {}: {cause}", Quoted(name));
        about(Reason::Conflict, resource, name, message)
    }

    /// Server-side apply met fields of other managers, one cause for each.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        let details = Details { causes, ..Details::default() };
        Status { details: Some(Box::new(details)), ..plain(Reason::Conflict, message) }
    }

    pub fn invalid(kind: GroupKind<'_>, name: &str, errors: &[field::Error]) -> Self {
        let mut message = format!("{kind} {} is invalid", Quoted(name));
        let (errors, more) = errors.split_at(errors.len().min(MOST_FAULTS));
        if let Some(text) = field::aggregate(errors) {
            let _ = write!(message, ": {text}");
        }
        if !more.is_empty() {
            let _ = write!(message, " (and {} more)", more.len());
        }
        let causes = errors.iter().map(|error| Cause {
            reason: error.error_type.cause().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        let details = Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            causes: causes.collect(),
            ..Details::default()
        };
        Status { details: Some(Box::new(details)), ..plain(Reason::Invalid, message) }
    }

    /// `resource` and `name` may be empty: a request for a plain path has neither.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, cause: impl Display) -> Self {
        let message = if resource.is_empty() {
            format!("forbidden: {cause}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {cause}")
        } else {
            format!("{resource} {} is forbidden: {cause}", Quoted(name))
        };
        about(Reason::Forbidden, resource, name, message)
    }

    pub fn unauthorized(message: &str) -> Self {
        let message = if message.is_empty() { "not authorized" } else { message };
        plain(Reason::Unauthorized, message)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        plain(Reason::BadRequest, message)
    }

    pub fn method_not_supported(resource: GroupResource<'_>, action: &str) -> Self {
        let kind = resource.to_string();
        let message = format!("{action} is not supported on resources of kind {}", Quoted(&kind));
        about(Reason::MethodNotAllowed, resource, "", message)
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        plain(Reason::NotAcceptable, format!("only the following media types are accepted: {list}"))
    }

    /// No encoding the client accepts can carry the asked form, such as `Table.v1.meta.k8s.io`.
    pub fn not_acceptable_conversion(target: &str, accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        let message = format!(
            "only the following media types are accepted when converting to {target}: {list}"
        );
        plain(Reason::NotAcceptable, message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        let message = format!(
            "the body of the request was in an unknown format - \
             accepted media types include: {list}"
        );
        plain(Reason::UnsupportedMediaType, message)
    }

    pub fn request_entity_too_large(message: impl Display) -> Self {
        plain(Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    pub fn gone(message: impl Into<String>) -> Self {
        plain(Reason::Gone, message)
    }

    /// The resource version asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        plain(Reason::Expired, message)
    }

    /// The request ran out of time; it may still take effect.
    pub fn timeout(message: impl Display, retry: i32) -> Self {
        plain(Reason::Timeout, format!("Timeout: {message}")).with_retry_after(retry)
    }

    /// A request for a revision that does not exist yet. Clients know it by the cause.
    pub fn too_large_resource_version(minimum: u64, current: u64, retry: i32) -> Self {
        let message = format!("Too large resource version: {minimum}, current: {current}");
        Status::timeout(message, retry).with_cause(
            "ResourceVersionTooLarge",
            "Too large resource version",
            "",
        )
    }

    /// A passing fault inside the server: try again.
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry: i32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, \
             please try again."
        );
        about(Reason::ServerTimeout, resource, operation, message).with_retry_after(retry)
    }

    pub fn too_many_requests(message: impl Into<String>, retry: i32) -> Self {
        plain(Reason::TooManyRequests, message).with_retry_after(retry)
    }

    /// The server itself is overloaded, in upstream's wording for that case.
    pub fn overloaded(message: impl Display) -> Self {
        plain(Reason::TooManyRequests, format!("Too many requests: {message}"))
    }

    pub fn internal_error(cause: impl Display) -> Self {
        let cause = cause.to_string();
        plain(Reason::InternalError, format!("Internal error occurred: {cause}"))
            .with_cause("", cause, "")
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        plain(Reason::ServiceUnavailable, message)
    }

    /// An object in the store could not be decrypted or decoded.
    pub fn store_read_error(message: impl Into<String>) -> Self {
        plain(Reason::StoreReadError, message)
    }
}

fn plain(reason: Reason, message: impl Into<String>) -> Status {
    let code = reason.code().unwrap_or(500);
    Status { reason, code, message: message.into(), ..Status::default() }
}

fn about(reason: Reason, resource: GroupResource<'_>, name: &str, message: String) -> Status {
    let details = Details {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.resource.to_owned(),
        ..Details::default()
    };
    Status { details: Some(Box::new(details)), ..plain(reason, message) }
}

/// An answer that was not a `Status`: what a client makes of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerResponse<'a> {
    pub code: i32,
    /// The HTTP method.
    pub verb: &'a str,
    pub resource: GroupResource<'a>,
    pub name: &'a str,
    pub body: &'a str,
    pub retry_after_seconds: i32,
    /// The body was not an API object at all.
    pub unexpected: bool,
}

impl From<ServerResponse<'_>> for Status {
    fn from(response: ServerResponse<'_>) -> Self {
        let ServerResponse { code, verb, resource, name, body, .. } = response;
        let (reason, mut message) = explain(code, verb, body);
        let verb = verb.to_lowercase();
        if !resource.is_empty() {
            let _ = match name {
                "" => write!(message, " ({verb} {resource})"),
                name => write!(message, " ({verb} {resource} {name})"),
            };
        }
        let mut status = about(reason, resource, name, message);
        status.code = code;
        if response.unexpected {
            status = status.with_cause("UnexpectedServerResponse", body, "");
        }
        status.with_retry_after(response.retry_after_seconds)
    }
}

fn explain(code: i32, verb: &str, body: &str) -> (Reason, String) {
    let (reason, text) = match code {
        409 if verb == "POST" => (Reason::AlreadyExists, "the server reported a conflict"),
        409 => (Reason::Conflict, "the server reported a conflict"),
        404 => (Reason::NotFound, "the server could not find the requested resource"),
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason"),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials"),
        403 => (Reason::Forbidden, body),
        406 if body.is_empty() || body == "unknown" => (
            Reason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports",
        ),
        406 => (Reason::NotAcceptable, body),
        415 => (Reason::UnsupportedMediaType, body),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        ),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request"),
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request"),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, \
             but may still be processing the request",
        ),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later",
        ),
        500.. => {
            let text = format!(
                "an error on the server ({}) has prevented the request from succeeding",
                Quoted(body)
            );
            return (Reason::InternalError, text);
        }
        _ => {
            let text = format!(
                "the server responded with the status code {code} \
                 but did not return more information"
            );
            return (Reason::Unknown, text);
        }
    };
    (reason, text.to_owned())
}
