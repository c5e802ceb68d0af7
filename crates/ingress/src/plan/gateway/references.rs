//! References to objects in other namespaces: those who own them decide who may.
use super::GROUP;
use super::types::{Reference, World};
use api::names::NamespacedName;

/// Whether an object of a kind of Gateway API in this namespace may name another object there.
pub fn may(
    objects: &World,
    kind: &str,
    namespace: &str,
    to_group: &str,
    to_kind: &str,
    to: &NamespacedName,
) -> bool {
    if *namespace == *to.namespace {
        return true;
    }
    let mut grants = objects.grants.iter().filter(|(key, _)| key.namespace == to.namespace);
    grants.any(|(_, grant)| {
        let from =
            grant.spec.from.iter().any(|from| {
                from.group == GROUP && from.kind == kind && from.namespace == namespace
            });
        let to = grant.spec.to.iter().any(|granted| {
            let is_named = granted.name.as_deref().is_none_or(|name| *name == *to.name);
            granted.group == to_group && granted.kind == to_kind && is_named
        });
        from && to
    })
}

impl Reference {
    pub fn is(&self, group: &str, kind: &str, usual_kind: &str) -> bool {
        self.group.as_deref().unwrap_or_default() == group
            && self.kind.as_deref().unwrap_or(usual_kind) == kind
    }

    pub fn key(&self, usual_namespace: &str) -> NamespacedName {
        let namespace = self.namespace.as_deref().unwrap_or(usual_namespace);
        NamespacedName::new(namespace, &self.name)
    }
}
