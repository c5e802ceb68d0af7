//! The policies of one moment, kept true by following the store.
use super::compiled::{Mutating, Validating};
use crate::admission::manifests::{MUTATING_POLICIES, Said, Sort};
use crate::server::ApiServer;
use crate::state::following::{self, Kept};
use api::kinds::Resource;
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use store::Key;

/// A policy, its compiled form, and its bindings, all by name.
pub struct Bound<P, C, B> {
    /// It is of a manifest beside the server.
    pub is_manifest: bool,
    pub policy: P,
    pub compiled: Arc<C>,
    pub bindings: Vec<B>,
}

pub type BoundValidating =
    Bound<ValidatingAdmissionPolicy, Validating, ValidatingAdmissionPolicyBinding>;
pub type BoundMutating = Bound<MutatingAdmissionPolicy, Mutating, MutatingAdmissionPolicyBinding>;

/// Only policies with bindings: others say nothing.
#[derive(Clone, Default)]
pub struct Index {
    pub validating: Vec<Arc<BoundValidating>>,
    pub mutating: Vec<Arc<BoundMutating>>,
}

/// The index that counts now: policies of manifests, and then those that are stored.
#[derive(Default)]
pub struct Policies {
    current: RwLock<Arc<Index>>,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    manifests: Index,
    stored: Index,
}

impl Policies {
    pub fn current(&self) -> Arc<Index> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let Parts { manifests, stored } = &*parts;
        let index = Index {
            validating: [manifests.validating.clone(), stored.validating.clone()].concat(),
            mutating: [manifests.mutating.clone(), stored.mutating.clone()].concat(),
        };
        // While the parts are held, so that nobody puts back what they were before.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(index);
    }
}

/// Puts the policies of manifests in force, in place of those that there were.
pub fn take_manifests(api: &ApiServer, sort: &'static Sort, said: &Said) {
    api.policies().change(|Parts { manifests, .. }| match *sort == MUTATING_POLICIES {
        true => {
            let (policies, bindings) = (kept(&said.objects), kept(&said.bindings));
            manifests.mutating = bound(true, &policies, &bindings, &manifests.mutating);
        }
        false => {
            let (policies, bindings) = (kept(&said.objects), kept(&said.bindings));
            manifests.validating = bound(true, &policies, &bindings, &manifests.validating);
        }
    });
}

fn kept<T: DeserializeOwned>(objects: &[Value]) -> Kept<T> {
    let mut kept = Kept::default();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        kept.take(&Key::from(name), Some(object.clone()));
    }
    kept
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
        api.policies().change(|Parts { stored, .. }| {
            stored.validating =
                bound(false, &self.validating, &self.validating_bindings, &stored.validating);
            stored.mutating =
                bound(false, &self.mutating, &self.mutating_bindings, &stored.mutating);
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

type BoundTo<P> = Arc<Bound<P, <P as Policy>::Compiled, <P as Policy>::Binding>>;

/// Each policy with its bindings; what was compiled before is not compiled again.
fn bound<P: Policy>(
    is_manifest: bool,
    policies: &Kept<P>,
    bindings: &Kept<P::Binding>,
    before: &[BoundTo<P>],
) -> Vec<BoundTo<P>> {
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
        all.push(Arc::new(Bound { is_manifest, policy: policy.clone(), compiled, bindings }));
    }
    all
}
