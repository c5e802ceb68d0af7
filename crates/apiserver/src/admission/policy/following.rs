//! The policies of one moment, kept true by following the store.
use super::compiled::{Mutating, Validating};
use super::type_checking;
use crate::following::follow;
use crate::objects;
use crate::resources::ApiServer;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use serde::de::DeserializeOwned;
use std::sync::{Arc, RwLock};

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

const KINDS: [&str; 4] = [
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

fn resource(kind: &str) -> &'static Resource {
    find_kind("admissionregistration.k8s.io/v1", kind).expect("policies are in the registry")
}

/// Builds the index, and keeps it true from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    refresh(api).await?;
    let server = api.clone();
    follow(api, &KINDS.map(resource), move |_| {
        let api = server.clone();
        async move {
            if let Err(error) = refresh(&api).await {
                tracing::warn!(%error, "failed to read admission policies");
            }
        }
    })
    .await
}

async fn refresh(api: &ApiServer) -> Result<(), Status> {
    let before = api.policies().current();
    let bindings: Vec<ValidatingAdmissionPolicyBinding> = list(api, KINDS[1]).await?;
    let mut validating = Vec::new();
    for policy in list::<ValidatingAdmissionPolicy>(api, KINDS[0]).await? {
        type_checking::note(api, resource(KINDS[0]), &policy).await;
        let name = policy.metadata.name.as_deref();
        let bindings: Vec<_> = bindings
            .iter()
            .filter(|binding| Some(binding.spec.policy_name.as_str()) == name)
            .cloned()
            .collect();
        if bindings.is_empty() {
            continue;
        }
        let known = before.validating.iter().find(|bound| bound.policy.spec == policy.spec);
        let compiled = match known {
            Some(bound) => bound.compiled.clone(),
            None => Arc::new(Validating::compile(&policy)),
        };
        validating.push(Bound { policy, compiled, bindings });
    }
    let bindings: Vec<MutatingAdmissionPolicyBinding> = list(api, KINDS[3]).await?;
    let mut mutating = Vec::new();
    for policy in list::<MutatingAdmissionPolicy>(api, KINDS[2]).await? {
        let name = policy.metadata.name.as_deref();
        let bindings: Vec<_> = bindings
            .iter()
            .filter(|binding| binding.spec.as_ref().and_then(|s| s.policy_name.as_deref()) == name)
            .cloned()
            .collect();
        if bindings.is_empty() {
            continue;
        }
        let known = before.mutating.iter().find(|bound| bound.policy.spec == policy.spec);
        let compiled = match known {
            Some(bound) => bound.compiled.clone(),
            None => Arc::new(Mutating::compile(&policy)),
        };
        mutating.push(Bound { policy, compiled, bindings });
    }
    api.policies().replace(Index { validating, mutating });
    Ok(())
}

async fn list<T: DeserializeOwned>(api: &ApiServer, kind: &str) -> Result<Vec<T>, Status> {
    let all = objects::readable(api, resource(kind), "").await?;
    // One that cannot be read is told elsewhere.
    Ok(all.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}
