//! The policies of one moment, kept true by following the store.
use super::compiled::{Mutating, Validating};
use crate::server::ApiServer;
use crate::state::following::{self, Kept};
use api::kinds::Resource;
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use serde_json::Value;
use std::sync::{Arc, RwLock};
use store::Key;

/// A policy, its compiled form, and its bindings, all by name.
pub struct Bound<P, C, B> {
    pub policy: P,
    pub compiled: Arc<C>,
    pub bindings: Vec<B>,
}

pub type BoundValidating =
    Bound<ValidatingAdmissionPolicy, Validating, ValidatingAdmissionPolicyBinding>;
pub type BoundMutating = Bound<MutatingAdmissionPolicy, Mutating, MutatingAdmissionPolicyBinding>;

/// Only policies with bindings: others say nothing.
#[derive(Default)]
pub struct Index {
    pub validating: Vec<BoundValidating>,
    pub mutating: Vec<BoundMutating>,
}

/// The index that counts now.
#[derive(Default)]
pub struct Policies {
    current: RwLock<Arc<Index>>,
}

impl Policies {
    pub fn current(&self) -> Arc<Index> {
        self.current.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn replace(&self, index: Index) {
        *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(index);
    }
}

const VERSION: &str = "admissionregistration.k8s.io/v1";

/// Builds the index, and keeps it true from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    following::keep::<Objects>(api).await
}

/// The objects as they are now.
#[derive(Default)]
struct Objects {
    validating: Kept<ValidatingAdmissionPolicy>,
    validating_bindings: Kept<ValidatingAdmissionPolicyBinding>,
    mutating: Kept<MutatingAdmissionPolicy>,
    mutating_bindings: Kept<MutatingAdmissionPolicyBinding>,
}

impl following::Index for Objects {
    const KINDS: &'static [(&'static str, &'static str)] = &[
        (VERSION, "ValidatingAdmissionPolicy"),
        (VERSION, "ValidatingAdmissionPolicyBinding"),
        (VERSION, "MutatingAdmissionPolicy"),
        (VERSION, "MutatingAdmissionPolicyBinding"),
    ];

    fn take(&mut self, kind: &'static Resource, key: &Key, object: Option<Value>) {
        match kind.plural {
            "validatingadmissionpolicies" => self.validating.take(key, object),
            "validatingadmissionpolicybindings" => self.validating_bindings.take(key, object),
            "mutatingadmissionpolicies" => self.mutating.take(key, object),
            _ => self.mutating_bindings.take(key, object),
        }
    }

    async fn settle(&mut self, api: &ApiServer) {
        let before = api.policies().current();
        api.policies().replace(Index {
            validating: bound(&self.validating, &self.validating_bindings, &before.validating),
            mutating: bound(&self.mutating, &self.mutating_bindings, &before.mutating),
        });
    }
}

/// Policies of either sort, as far as they are put together alike.
trait Policy: Clone {
    type Binding: Clone;
    type Compiled;
    fn name(&self) -> Option<&str>;
    fn is_same_as(&self, other: &Self) -> bool;
    fn is_bound_by(binding: &Self::Binding) -> Option<&str>;
    fn compile(&self) -> Self::Compiled;
}

impl Policy for ValidatingAdmissionPolicy {
    type Binding = ValidatingAdmissionPolicyBinding;
    type Compiled = Validating;
    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn is_same_as(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
    fn is_bound_by(binding: &Self::Binding) -> Option<&str> {
        Some(binding.spec.policy_name.as_str())
    }
    fn compile(&self) -> Validating {
        Validating::compile(self)
    }
}

impl Policy for MutatingAdmissionPolicy {
    type Binding = MutatingAdmissionPolicyBinding;
    type Compiled = Mutating;
    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn is_same_as(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
    fn is_bound_by(binding: &Self::Binding) -> Option<&str> {
        binding.spec.as_ref()?.policy_name.as_deref()
    }
    fn compile(&self) -> Mutating {
        Mutating::compile(self)
    }
}

/// Each policy with its bindings; what was compiled before is not compiled again.
fn bound<P: Policy>(
    policies: &Kept<P>,
    bindings: &Kept<P::Binding>,
    before: &[Bound<P, P::Compiled, P::Binding>],
) -> Vec<Bound<P, P::Compiled, P::Binding>> {
    let mut all = Vec::new();
    for policy in policies.iter() {
        let its = bindings.iter().filter(|binding| P::is_bound_by(binding) == policy.name());
        let bindings: Vec<P::Binding> = its.cloned().collect();
        if bindings.is_empty() {
            continue;
        }
        let known = before.iter().find(|bound| bound.policy.is_same_as(policy));
        let compiled = match known {
            Some(bound) => bound.compiled.clone(),
            None => Arc::new(policy.compile()),
        };
        all.push(Bound { policy: policy.clone(), compiled, bindings });
    }
    all
}
