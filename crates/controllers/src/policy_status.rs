//! What a policy's expressions would do wrong with the kinds it is about, told in its status once per
//! generation.
//!
//! Who reads expressions is no business of control loops: the one who starts them brings it
//! ([`Check`]). Of kinds that are not built in it asks the server, one question after the other. As upstream, a
//! kind that comes later, or that nobody describes at the time, is checked with the policy's next generation.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::status::Status;
use bytes::Bytes;
use client::source::{Ask, Call, Patch, Raw, Write};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "validatingadmissionpolicy-status-controller",
    account: "validatingadmissionpolicy-status-controller",
    workers: 5,
    watch: |on: &Watching| on.objects::<ValidatingAdmissionPolicy>(),
    reconcile,
};

/// Finds the `expressionWarnings` of a policy, or what has to be read before it can.
#[derive(Clone)]
pub struct Check(pub Arc<Warnings>);

pub type Warnings =
    dyn Fn(&ValidatingAdmissionPolicySpec, &Answers) -> Result<Vec<Value>, Vec<Raw>> + Send + Sync;

/// What was read so far, by path; nothing where nobody answered. What is in it is not to be asked for again.
pub type Answers = HashMap<String, Option<Bytes>>;

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(policy) = world.get::<ValidatingAdmissionPolicy>(key) else { return Vec::new() };
    let Some(check) = &world.settings.policy_check else { return Vec::new() };
    let generation = policy.metadata.generation.unwrap_or_default();
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation);
    match generation > observed.unwrap_or_default() && policy.spec.is_some() {
        true => checked(check.clone(), policy, Answers::new()),
        false => Vec::new(),
    }
}

/// What is to be read, or the policy's status.
fn checked(
    check: Check,
    policy: Arc<ValidatingAdmissionPolicy>,
    mut answers: Answers,
) -> Vec<Action> {
    let empty = ValidatingAdmissionPolicySpec::default();
    let requests = match (check.0)(policy.spec.as_ref().unwrap_or(&empty), &answers) {
        Ok(warnings) => return vec![told(&policy, warnings)],
        Err(requests) => requests,
    };
    let paths: Vec<String> = requests.iter().map(|request| request.path.clone()).collect();
    let then = move |read: Vec<Result<Bytes, Status>>| {
        for (path, read) in paths.into_iter().zip(read) {
            // Whoever does not answer leaves kinds unchecked, and no policy without its status.
            let read = read.inspect_err(|status| {
                tracing::debug!(path, failure = status.message, "kinds are not checked");
            });
            answers.insert(path, read.ok());
        }
        checked(check, policy, answers)
    };
    vec![Action::Read { requests, then: Box::new(then) }]
}

fn told(policy: &ValidatingAdmissionPolicy, warnings: Vec<Value>) -> Action {
    let checked = match warnings.is_empty() {
        true => json!({}),
        false => json!({ "expressionWarnings": warnings }),
    };
    let generation = policy.metadata.generation.unwrap_or_default();
    let Target { resource, name, .. } = Target::of(policy);
    let status = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "status": { "observedGeneration": generation, "typeChecking": checked },
    });
    let manager = Write::managed_by("validatingadmissionpolicy-status");
    let ask = Ask::Patch(Patch::Apply(status), Write { force: true, ..manager });
    let call = Call { resource, namespace: String::new(), name, subresource: "status".into(), ask };
    let then = |said: Result<Value, Status>| match said {
        Err(status) if !status.is_not_found() => vec![Action::Fail(status)],
        _ => Vec::new(),
    };
    Action::Try { call, then: Box::new(then) }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// Takes expressions for names of pages, one after the other; what is read there is the warning.
    pub fn check() -> Check {
        Check(Arc::new(|spec, answers| {
            let mut warnings = Vec::new();
            for (at, validation) in spec.validations.iter().flatten().enumerate() {
                let path = &validation.expression;
                let Some(answer) = answers.get(path) else { return Err(vec![Raw::get(path)]) };
                let text = answer.as_deref().map(String::from_utf8_lossy);
                let place = format!("spec.validations[{at}].expression");
                warnings.extend(text.map(|text| json!({ "fieldRef": place, "warning": text })));
            }
            Ok(warnings)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_row};
    use expect_test::{Expect, expect};

    #[test]
    fn a_generation_is_checked_once() {
        check_row(
            &CONTROLLER,
            "validatingadmissionpolicy new spec={}
             validatingadmissionpolicy asks spec={\"validations\":[{\"expression\":\"/a\"}]}
             validatingadmissionpolicy seen spec={} status.observedGeneration=1",
            &["new", "asks", "seen", "gone"],
            expect![[r#"
                try to patch validatingadmissionpolicies.admissionregistration.k8s.io/status new
                read /a
            "#]],
        );
    }

    /// The status of a policy with these expressions.
    fn check(expressions: &[&str], expected: Expect) {
        let validations: Vec<Value> =
            expressions.iter().map(|text| json!({ "expression": text })).collect();
        let spec = json!({ "validations": validations });
        let mut status = String::new();
        after(
            &CONTROLLER,
            &format!("validatingadmissionpolicy p spec={spec}"),
            |server| {
                server.page("/a", json!("A"));
                server.page("/b", json!("B"));
                server.page("/large", json!("x".repeat(40 << 20)));
            },
            |server| {
                let policy = server.all::<ValidatingAdmissionPolicy>().remove(0);
                status = serde_json::to_string(&policy.status).expect("JSON");
            },
        );
        expected.assert_eq(&status);
    }

    #[test]
    fn warnings_are_told() {
        check(&[], expect![[r#"{"observedGeneration":1,"typeChecking":{}}"#]]);
        check(
            &["/a", "/b"],
            expect![[
                r#"{"observedGeneration":1,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec.validations[0].expression","warning":"\"A\""},{"fieldRef":"spec.validations[1].expression","warning":"\"B\""}]}}"#
            ]],
        );
    }

    #[test]
    fn who_does_not_answer_keeps_no_status_back() {
        check(
            &["/nobody", "/large", "/b", "/b"],
            expect![[
                r#"{"observedGeneration":1,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec.validations[2].expression","warning":"\"B\""},{"fieldRef":"spec.validations[3].expression","warning":"\"B\""}]}}"#
            ]],
        );
    }
}
