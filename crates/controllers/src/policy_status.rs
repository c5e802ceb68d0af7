//! What a policy's expressions would do wrong with the kinds it is about, told in its status once per
//! generation.
//!
//! Who reads expressions is no business of control loops: the one who starts them brings it
//! ([`Check`]).
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::source::{Ask, Call, Patch, Write};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "validatingadmissionpolicy-status-controller",
    account: "validatingadmissionpolicy-status-controller",
    workers: 5,
    watch: |on: &Watching| on.objects::<ValidatingAdmissionPolicy>(),
    reconcile,
};

/// Finds the `expressionWarnings` of a policy.
#[derive(Clone)]
pub struct Check(pub Arc<Warnings>);

pub type Warnings = dyn Fn(&ValidatingAdmissionPolicySpec) -> Vec<Value> + Send + Sync;

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
    let Some(spec) = policy.spec.as_ref().filter(|_| generation > observed.unwrap_or_default())
    else {
        return Vec::new();
    };
    let warnings = (check.0)(spec);
    let checked = match warnings.is_empty() {
        true => json!({}),
        false => json!({ "expressionWarnings": warnings }),
    };
    let Target { resource, name, .. } = Target::of(&*policy);
    let status = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "status": { "observedGeneration": generation, "typeChecking": checked },
    });
    let manager = Write::managed_by("validatingadmissionpolicy-status");
    let ask = Ask::Patch(Patch::Apply(status), Write { force: true, ..manager });
    let call = Call { resource, namespace: String::new(), name, subresource: "status".into(), ask };
    let then = |said: Result<Value, api::status::Status>| match said {
        Err(status) if !status.is_not_found() => vec![Action::Fail(status)],
        _ => Vec::new(),
    };
    vec![Action::Try { call, then: Box::new(then) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_row};
    use expect_test::expect;

    #[test]
    fn a_generation_is_checked_once() {
        check_row(
            &CONTROLLER,
            "validatingadmissionpolicy new spec={}
             validatingadmissionpolicy seen spec={} status.observedGeneration=1",
            &["new", "seen"],
            expect![[r#"
                try to patch validatingadmissionpolicies.admissionregistration.k8s.io/status new
            "#]],
        );
    }

    #[test]
    fn warnings_are_told() {
        let mut status = String::new();
        after(
            &CONTROLLER,
            "validatingadmissionpolicy p spec={\"validations\":[{\"expression\":\"bad\"}]}",
            |_| {},
            |server| {
                let policy = server.all::<ValidatingAdmissionPolicy>().remove(0);
                status = serde_json::to_string(&policy.status).expect("JSON");
            },
        );
        expect![[r#"{"observedGeneration":1,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec.validations[0].expression","warning":"bad"}]}}"#]]
            .assert_eq(&status);
    }
}
