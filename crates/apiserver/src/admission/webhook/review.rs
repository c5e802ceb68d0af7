//! `AdmissionReview`: the question, and what an answer may say.
use super::matter::{Kind, Matter, Named};
use crate::extend::review;
use api::status::{Outcome, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    kind: GroupVersionKind<'a>,
    resource: GroupVersionResource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: GroupVersionKind<'a>,
    request_resource: GroupVersionResource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'a str,
    user_info: Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    dry_run: bool,
    options: &'a Value,
}

#[derive(Serialize)]
struct GroupVersionKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct GroupVersionResource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

impl<'a> From<&'a Kind> for GroupVersionKind<'a> {
    fn from(kind: &'a Kind) -> Self {
        GroupVersionKind { group: &kind.group, version: &kind.version, kind: &kind.kind }
    }
}

impl<'a> From<&'a Named> for GroupVersionResource<'a> {
    fn from(named: &'a Named) -> Self {
        GroupVersionResource {
            group: &named.group,
            version: &named.version,
            resource: &named.resource,
        }
    }
}

/// The first version that both sides know.
pub fn version(accepted: &[String]) -> Result<&str, String> {
    let known = |version: &&String| matches!(version.as_str(), "v1" | "v1beta1");
    accepted.iter().find(known).map(String::as_str).ok_or_else(|| {
        "could not create admission objects: webhook does not accept known AdmissionReview \
         versions (v1, v1beta1)"
            .to_owned()
    })
}

/// The question about a request, with its objects as they are in the target's version.
pub fn question(
    version: &str,
    uid: &str,
    matter: &Matter<'_>,
    target: &Named,
    object: Option<&Value>,
    old: Option<&Value>,
) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Review {
        kind: "AdmissionReview",
        api_version: format!("admission.k8s.io/{version}"),
        request: Request {
            uid,
            kind: (&target.kind).into(),
            resource: target.into(),
            sub_resource: &matter.subresource,
            request_kind: (&matter.named.kind).into(),
            request_resource: (&matter.named).into(),
            request_sub_resource: &matter.subresource,
            name: &matter.name,
            namespace: &matter.namespace,
            operation: matter.operation.as_str(),
            user_info: matter.user.info(),
            object,
            old_object: old,
            dry_run: matter.dry_run,
            options: &matter.options,
        },
    })
}

/// What a hook said.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why not, if it refuses.
    pub refused: Option<Box<Status>>,
    /// JSON Patch, as text; empty: nothing is to change.
    pub patch: Vec<u8>,
    pub warnings: Vec<String>,
    pub audit_annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    kind: String,
    api_version: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// Reads an answer. Why it is none comes with how upstream names the stage: it could not be decoded
/// (`failed to call webhook`), or it may not say what it says (`received invalid webhook response`).
pub fn verdict(
    answer: &[u8],
    version: &str,
    uid: &str,
    hook: &str,
    is_mutating: bool,
) -> Result<Verdict, String> {
    let undecodable = |cause: String| format!("failed to call webhook: {cause}");
    let (package, group) = ("admission", "admission.k8s.io");
    let review = review::Review { package, group, version, kind: "AdmissionReview" };
    let review = review.read(answer).map_err(undecodable)?;
    let answer: Answer =
        serde_json::from_value(review).map_err(|error| undecodable(error.to_string()))?;
    let invalid = |cause: String| Err(format!("received invalid webhook response: {cause}"));
    let Some(response) = answer.response else {
        return invalid("webhook response was absent".into());
    };
    let patch = match &response.patch {
        None => Vec::new(),
        Some(text) => STANDARD.decode(text).map_err(|error| undecodable(error.to_string()))?,
    };
    if version == "v1" {
        if response.uid != uid {
            return invalid(format!("expected response.uid={uid:?}, got {:?}", response.uid));
        }
        let (kind, api_version) = (&*answer.kind, &*answer.api_version);
        if (kind, api_version) != ("AdmissionReview", "admission.k8s.io/v1") {
            let slash = if api_version.contains('/') { "" } else { "/" };
            return invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, \
                 got {slash}{api_version}, Kind={kind}"
            ));
        }
        check_patch(&patch, response.patch_type.as_deref(), is_mutating)
            .or_else(|cause| invalid(cause).map(|_: Verdict| ()))?;
    }
    let kind = response.patch_type.as_deref().unwrap_or_default();
    if version == "v1" && !patch.is_empty() && kind != "JSONPatch" {
        return Err(format!("unsupported patch type {kind:?}"));
    }
    Ok(Verdict {
        refused: (!response.allowed).then(|| Box::new(refusal(hook, response.status))),
        // The older version let anybody send one.
        patch: if is_mutating { patch } else { Vec::new() },
        warnings: response.warnings.unwrap_or_default(),
        audit_annotations: response.audit_annotations.unwrap_or_default(),
    })
}

fn check_patch(patch: &[u8], kind: Option<&str>, is_mutating: bool) -> Result<(), String> {
    Err(match (is_mutating, patch.is_empty(), kind) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, _, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, _, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    }
    .into())
}

/// A hook's refusal as its client hears it: never a success, always with the hook's name.
fn refusal(hook: &str, status: Option<Status>) -> Status {
    let mut status = status.unwrap_or_default();
    status.status = Outcome::Failure;
    status.code = if status.code < 400 { 400 } else { status.code };
    let denied = format!("admission webhook {hook:?} denied the request");
    let reason = status.reason.as_str();
    status.message = match (&*status.message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Operation;
    use serde_json::json;

    #[test]
    fn a_question_names_the_request_and_what_is_asked_about() {
        let resource = api::kinds::find_kind("v1", "ConfigMap").expect("a kind");
        let matter = Matter::for_test(resource, Operation::Update, "ns", "name");
        let object = json!({ "kind": "ConfigMap" });
        let body = question("v1", "1-2", &matter, &matter.named, Some(&object), None);
        let review: Value = serde_json::from_slice(&body.expect("JSON")).expect("JSON");
        let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
        let named = json!({ "group": "", "version": "v1", "resource": "configmaps" });
        assert_eq!(
            review,
            json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
                "uid": "1-2", "kind": kind, "resource": named, "requestKind": kind,
                "requestResource": named, "name": "name", "namespace": "ns",
                "operation": "UPDATE", "userInfo": matter.user.info(),
                "object": object, "oldObject": null, "dryRun": false, "options": null } })
        );
    }

    fn check(answer: Value, is_mutating: bool, expected: &str) {
        let mut answer = answer;
        if answer.get("kind").is_none() {
            answer["kind"] = "AdmissionReview".into();
            answer["apiVersion"] = "admission.k8s.io/v1".into();
        }
        let bytes = answer.to_string().into_bytes();
        let found = match verdict(&bytes, "v1", "1", "x", is_mutating) {
            Err(cause) => cause,
            Ok(verdict) => match verdict.refused {
                Some(status) => format!("{} {}", status.code, status.message),
                None => String::from_utf8_lossy(&verdict.patch).into_owned(),
            },
        };
        assert_eq!(found, expected, "{answer}");
    }

    #[test]
    fn an_answer_is_checked_before_it_is_believed() {
        let invalid = |cause: &str| format!("received invalid webhook response: {cause}");
        check(json!({}), false, &invalid("webhook response was absent"));
        check(
            json!({ "response": { "uid": "2" } }),
            false,
            &invalid("expected response.uid=\"1\", got \"2\""),
        );
        check(
            json!({ "kind": "X", "apiVersion": "v1", "response": { "uid": "1" } }),
            false,
            "failed to call webhook: no kind \"X\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        );
        let with = |more: Value| {
            let mut response = json!({ "uid": "1", "allowed": true });
            for (field, value) in more.as_object().expect("fields") {
                response[field] = value.clone();
            }
            json!({ "response": response })
        };
        check(with(json!({})), true, "");
        check(with(json!({ "patch": "W10=", "patchType": "JSONPatch" })), true, "[]");
        check(
            with(json!({ "patch": "W10=" })),
            true,
            &invalid("webhook returned response.patch but not response.patchType"),
        );
        check(
            with(json!({ "patchType": "JSONPatch" })),
            true,
            &invalid("webhook returned response.patchType but not response.patch"),
        );
        check(
            with(json!({ "patch": "W10=", "patchType": "JSONPatch" })),
            false,
            &invalid("validating webhook may not return response.patch"),
        );
        check(
            with(json!({ "patch": "W10=", "patchType": "Merge" })),
            true,
            "unsupported patch type \"Merge\"",
        );
    }

    #[test]
    fn a_refusal_is_never_a_success() {
        let refused = |status: Value| json!({ "response": { "uid": "1", "status": status } });
        let denied = "admission webhook \"x\" denied the request";
        check(refused(json!(null)), false, &format!("400 {denied} without explanation"));
        check(refused(json!({ "message": "no" })), false, &format!("400 {denied}: no"));
        check(
            refused(json!({ "reason": "Why", "code": 200 })),
            false,
            &format!("400 {denied}: Why"),
        );
        check(
            refused(json!({ "code": 403, "message": "no", "status": "Success" })),
            false,
            &format!("403 {denied}: no"),
        );
    }

    #[test]
    fn what_the_older_version_says_is_not_checked() {
        let answer = json!({ "response": { "allowed": true, "patch": "W10=" } });
        let bytes = answer.to_string().into_bytes();
        let said = verdict(&bytes, "v1beta1", "1", "x", true).expect("a verdict");
        assert_eq!((said.patch, said.refused), (b"[]".to_vec(), None));
        let other = br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#;
        assert_eq!(
            verdict(other, "v1beta1", "1", "x", true).expect_err("another version"),
            "failed to call webhook: converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown conversion"
        );
    }

    #[test]
    fn garbage_is_no_answer() {
        for (answer, expected) in [
            (
                &b"hello"[..],
                "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string",
            ),
            (
                b"{\"response\":{\"allowed\":\"yes\"}}",
                "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            (
                b"{\"response\":{\"patch\":\"%%%\"}}",
                "failed to call webhook: illegal base64 data at input byte 0",
            ),
            (
                b"[1]",
                "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal array",
            ),
            (b"null", "received invalid webhook response: webhook response was absent"),
            (
                br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}"#,
                "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown",
            ),
        ] {
            let cause = verdict(answer, "v1", "1", "x", true).expect_err("garbage");
            assert!(cause.starts_with(expected), "{cause}");
        }
        let deep = "[".repeat(100_000);
        assert!(verdict(deep.as_bytes(), "v1", "1", "x", true).is_err());
    }

    #[test]
    fn the_first_known_version_is_spoken() {
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(version(&words(&["v9", "v1beta1", "v1"])), Ok("v1beta1"));
        assert!(version(&words(&["v9"])).is_err());
    }
}
