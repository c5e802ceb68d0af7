//! One constructor for each failure the API server reports.

use std::fmt::{Display, Write};

use super::{Cause, Details, Reason, Status};
use crate::field;
use crate::group::{GroupKind, GroupResource};
use crate::quote::Quoted;

/// The cause of a [`Status::conflict`] when the client's resource version is stale.
pub const OPTIMISTIC_LOCK: &str = "the object has been modified; \
    please apply your changes to the latest version and try again";

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
        if let Some(text) = field::aggregate(errors) {
            let _ = write!(message, ": {text}");
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::field::{Error, Path};

    const PODS: GroupResource<'_> = GroupResource::new("", "pods");
    const DEPLOYMENTS: GroupResource<'_> = GroupResource::new("apps", "deployments");

    /// What a client receives, less the fields that are the same in all.
    fn check(status: Status, want: Expect) {
        let json = serde_json::to_string(&status).unwrap();
        let frame = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#;
        want.assert_eq(json.strip_prefix(frame).unwrap());
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }

    #[test]
    fn every_failure_has_upstreams_reason_code_and_text() {
        check(
            Status::not_found(PODS, "web"),
            expect![[
                r#""message":"pods \"web\" not found","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}"#
            ]],
        );
        check(
            Status::already_exists(DEPLOYMENTS, "web"),
            expect![[
                r#""message":"deployments.apps \"web\" already exists","reason":"AlreadyExists","details":{"name":"web","group":"apps","kind":"deployments"},"code":409}"#
            ]],
        );
        check(
            Status::generate_name_conflict(PODS, "web-x", 1),
            expect![[
                r#""message":"pods \"web-x\" already exists, the server was not able to generate a unique name for the object","reason":"AlreadyExists","details":{"name":"web-x","kind":"pods","retryAfterSeconds":1},"code":409}"#
            ]],
        );
        check(
            Status::conflict(PODS, "web", OPTIMISTIC_LOCK),
            expect![[
                r#""message":"Operation cannot be fulfilled on pods \"web\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"web","kind":"pods"},"code":409}"#
            ]],
        );
        check(
            Status::forbidden(PODS, "", "no"),
            expect![[
                r#""message":"pods is forbidden: no","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#
            ]],
        );
        check(
            Status::forbidden(GroupResource::default(), "", "no"),
            expect![[r#""message":"forbidden: no","reason":"Forbidden","details":{},"code":403}"#]],
        );
        check(
            Status::unauthorized(""),
            expect![[r#""message":"not authorized","reason":"Unauthorized","code":401}"#]],
        );
        check(
            Status::method_not_supported(PODS, "patch"),
            expect![[
                r#""message":"patch is not supported on resources of kind \"pods\"","reason":"MethodNotAllowed","details":{"kind":"pods"},"code":405}"#
            ]],
        );
        check(
            Status::internal_error("boom"),
            expect![[
                r#""message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}"#
            ]],
        );
        check(
            Status::timeout("slow", 2),
            expect![[
                r#""message":"Timeout: slow","reason":"Timeout","details":{"retryAfterSeconds":2},"code":504}"#
            ]],
        );
        check(
            Status::too_large_resource_version(9, 5, 1),
            expect![[
                r#""message":"Timeout: Too large resource version: 9, current: 5","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#
            ]],
        );
        check(
            Status::server_timeout(PODS, "list", 0),
            expect![[
                r#""message":"The list operation against pods could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"name":"list","kind":"pods"},"code":500}"#
            ]],
        );
        check(
            Status::expired("too old resource version: 1 (5)"),
            expect![[
                r#""message":"too old resource version: 1 (5)","reason":"Expired","code":410}"#
            ]],
        );
        check(
            Status::not_acceptable(&["application/json", "application/yaml"]),
            expect![[
                r#""message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}"#
            ]],
        );
        check(
            Status::unsupported_media_type(&["application/json"]),
            expect![[
                r#""message":"the body of the request was in an unknown format - accepted media types include: application/json","reason":"UnsupportedMediaType","code":415}"#
            ]],
        );
        check(
            Status::overloaded("later"),
            expect![[
                r#""message":"Too many requests: later","reason":"TooManyRequests","code":429}"#
            ]],
        );
        check(
            Status::request_entity_too_large("limit is 3145728"),
            expect![[
                r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#
            ]],
        );
    }

    #[test]
    fn invalid_lists_every_field_as_a_cause() {
        let path = Path::new("spec");
        let errors = [
            Error::required(&path.child("a"), ""),
            Error::invalid(&path.child("b"), 0, "must be greater than 0"),
        ];
        check(
            Status::invalid(GroupKind::new("apps", "Deployment"), "web", &errors),
            expect![[
                r#""message":"Deployment.apps \"web\" is invalid: [spec.a: Required value, spec.b: Invalid value: 0: must be greater than 0]","reason":"Invalid","details":{"name":"web","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.a"},{"reason":"FieldValueInvalid","message":"Invalid value: 0: must be greater than 0","field":"spec.b"}]},"code":422}"#
            ]],
        );
        check(
            Status::invalid(GroupKind::new("", "Pod"), "web", &[]),
            expect![[
                r#""message":"Pod \"web\" is invalid","reason":"Invalid","details":{"name":"web","kind":"Pod"},"code":422}"#
            ]],
        );
    }

    #[test]
    fn an_answer_that_is_no_status_is_explained_by_its_code() {
        let response = |code, verb| ServerResponse { code, verb, ..ServerResponse::default() };
        check(
            ServerResponse { resource: PODS, name: "web", ..response(404, "GET") }.into(),
            expect![[
                r#""message":"the server could not find the requested resource (get pods web)","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}"#
            ]],
        );
        check(
            ServerResponse { body: "<html>", unexpected: true, ..response(502, "GET") }.into(),
            expect![[
                r#""message":"an error on the server (\"<html>\") has prevented the request from succeeding","reason":"InternalError","details":{"causes":[{"reason":"UnexpectedServerResponse","message":"<html>"}]},"code":502}"#
            ]],
        );
        check(
            response(302, "GET").into(),
            expect![[
                r#""message":"the server responded with the status code 302 but did not return more information","details":{},"code":302}"#
            ]],
        );
    }

    #[test]
    fn a_status_is_recognised_by_reason_or_by_code_alone() {
        let bare = Status { code: 404, ..Status::default() };
        assert!(bare.is_not_found());
        assert!(!Status { reason: Reason::Expired, ..bare }.is_not_found());
        assert!(Status::expired("").is_expired() && Status::gone("").is_expired());
        let foreign: Status =
            serde_json::from_str(r#"{"reason":"Teapot","code":418,"details":null}"#).unwrap();
        assert_eq!(foreign.reason, Reason::Other("Teapot".into()));
        assert_eq!(Status::timeout("", 3).suggests_client_delay(), Some(3));
        assert_eq!(Status::bad_request("").suggests_client_delay(), None);
    }

    #[test]
    fn a_result_stays_small() {
        assert!(size_of::<Result<(), Status>>() <= 96);
    }
}
