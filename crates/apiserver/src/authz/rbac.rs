//! RBAC's index: who is granted what, by subject, so that a decision looks at the few bindings that
//! concern its user.
use super::rules::allows;
use super::{Attributes, What};
use crate::authn::User;
use crate::following::follow;
use crate::objects;
use crate::resources::ApiServer;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Who a binding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    User(String),
    Group(String),
}

/// A role's rules, given to somebody somewhere.
#[derive(Debug)]
struct Grant {
    /// None: everywhere.
    namespace: Option<String>,
    rules: Arc<Vec<PolicyRule>>,
    /// Why, in upstream's words.
    reason: String,
}

/// The grants of one moment.
#[derive(Debug, Default)]
pub struct Index {
    grants: HashMap<Who, Vec<Grant>>,
    cluster_roles: HashMap<String, Arc<Vec<PolicyRule>>>,
    roles: HashMap<(String, String), Arc<Vec<PolicyRule>>>,
}

/// The index that counts now.
#[derive(Debug, Default)]
pub struct Rbac {
    current: RwLock<Arc<Index>>,
}

impl Rbac {
    pub fn current(&self) -> Arc<Index> {
        self.current.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn replace(&self, index: Index) {
        *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(index);
    }
}

const KINDS: [&str; 4] = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

fn resource(kind: &str) -> &'static Resource {
    find_kind("rbac.authorization.k8s.io/v1", kind).expect("RBAC's kinds are in the registry")
}

/// Builds the index, and keeps it true from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    refresh(api).await?;
    let server = api.clone();
    follow(api, &KINDS.map(resource), move |_| {
        let api = server.clone();
        async move {
            if let Err(error) = refresh(&api).await {
                tracing::warn!(%error, "failed to read roles and bindings");
            }
        }
    })
    .await
}

async fn refresh(api: &ApiServer) -> Result<(), Status> {
    let mut index = Index::default();
    for role in list::<ClusterRole>(api, "ClusterRole").await? {
        let name = role.metadata.name.unwrap_or_default();
        index.add_cluster_role(&name, role.rules.unwrap_or_default());
    }
    for role in list::<Role>(api, "Role").await? {
        let place = role.metadata.namespace.unwrap_or_default();
        let name = role.metadata.name.unwrap_or_default();
        index.roles.insert((place, name), Arc::new(role.rules.unwrap_or_default()));
    }
    for binding in list::<ClusterRoleBinding>(api, "ClusterRoleBinding").await? {
        let name = binding.metadata.name.unwrap_or_default();
        let origin = format!("ClusterRoleBinding {name:?}");
        index.bind(None, &binding.role_ref, binding.subjects.as_deref(), &origin);
    }
    for binding in list::<RoleBinding>(api, "RoleBinding").await? {
        let place = binding.metadata.namespace.unwrap_or_default();
        let name = binding.metadata.name.unwrap_or_default();
        let origin = format!("RoleBinding \"{name}/{place}\"");
        index.bind(Some(&place), &binding.role_ref, binding.subjects.as_deref(), &origin);
    }
    api.rbac().replace(index);
    Ok(())
}

async fn list<T: DeserializeOwned>(api: &ApiServer, kind: &str) -> Result<Vec<T>, Status> {
    let all = objects::readable(api, resource(kind), "").await?;
    // One that cannot be read grants nothing.
    Ok(all.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

impl Index {
    /// Gives a role's rules to subjects, in a namespace or everywhere.
    pub fn bind(
        &mut self,
        namespace: Option<&str>,
        role: &RoleRef,
        subjects: Option<&[Subject]>,
        origin: &str,
    ) {
        let Some(rules) = self.rules_of(role, namespace) else { return };
        for subject in subjects.unwrap_or_default() {
            let Some((who, shown)) = who(subject, namespace) else { continue };
            let reason =
                format!("RBAC: allowed by {origin} of {} {:?} to {shown}", role.kind, role.name);
            let namespace = namespace.map(str::to_owned);
            let grant = Grant { namespace, rules: rules.clone(), reason };
            self.grants.entry(who).or_default().push(grant);
        }
    }

    pub fn add_cluster_role(&mut self, name: &str, rules: Vec<PolicyRule>) {
        self.cluster_roles.insert(name.to_owned(), Arc::new(rules));
    }

    /// The rules of a role; none if there is no such role.
    pub fn rules_of(
        &self,
        role: &RoleRef,
        namespace: Option<&str>,
    ) -> Option<Arc<Vec<PolicyRule>>> {
        match (role.kind.as_str(), namespace) {
            ("ClusterRole", _) => self.cluster_roles.get(&role.name).cloned(),
            ("Role", Some(place)) => {
                self.roles.get(&(place.to_owned(), role.name.clone())).cloned()
            }
            _ => None,
        }
    }

    /// Why the user may, if so.
    pub fn find(&self, user: &User, attributes: &Attributes) -> Option<String> {
        let namespace = match &attributes.what {
            What::Resource { namespace, .. } => namespace.as_str(),
            What::Path(_) => "",
        };
        self.grants_of(user)
            .filter(|grant| applies(grant, namespace))
            .find(|grant| grant.rules.iter().any(|rule| allows(rule, attributes)))
            .map(|grant| grant.reason.clone())
    }

    /// Everything that the user is granted in a namespace, or everywhere.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<PolicyRule> {
        let grants = self.grants_of(user).filter(|grant| applies(grant, namespace));
        grants.flat_map(|grant| grant.rules.iter().cloned()).collect()
    }

    fn grants_of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let subjects = std::iter::once(Who::User(user.name.clone()))
            .chain(user.groups.iter().cloned().map(Who::Group));
        subjects.filter_map(|who| self.grants.get(&who)).flatten()
    }
}

fn applies(grant: &Grant, namespace: &str) -> bool {
    grant.namespace.as_deref().is_none_or(|granted| granted == namespace)
}

fn who(subject: &Subject, namespace: Option<&str>) -> Option<(Who, String)> {
    let name = &subject.name;
    match subject.kind.as_str() {
        "User" => Some((Who::User(name.clone()), format!("User {name:?}"))),
        "Group" => Some((Who::Group(name.clone()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let place = subject.namespace.as_deref().or(namespace).filter(|n| !n.is_empty())?;
            let user = format!("system:serviceaccount:{place}:{name}");
            Some((Who::User(user), format!("ServiceAccount \"{name}/{place}\"")))
        }
        _ => None,
    }
}
