use expect_test::{Expect, expect};

use super::*;
use crate::field::{Error, Path};
use crate::group::{GroupKind, GroupResource};

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
        expect![[r#""message":"too old resource version: 1 (5)","reason":"Expired","code":410}"#]],
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
        expect![[r#""message":"Too many requests: later","reason":"TooManyRequests","code":429}"#]],
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
