//! Which requests a FlowSchema is about.
use super::level::Level;
use super::metrics::Counters;
use crate::guard::authn::User;
use crate::guard::authz::{Attributes, What};
use http::HeaderValue;
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchemaSpec, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject,
};
use std::sync::Arc;

pub struct Schema {
    pub name: String,
    pub uid: HeaderValue,
    pub spec: FlowSchemaSpec,
    pub level: Arc<Level>,
    pub counters: Arc<Counters>,
}

impl Schema {
    pub fn matches(&self, user: &User, wanted: &Attributes) -> bool {
        let rules = self.spec.rules.as_deref().unwrap_or_default();
        rules.iter().any(|rule| matches(rule, user, wanted))
    }

    /// What tells the requests of a schema apart.
    pub fn flow(&self, user: &User, wanted: &Attributes) -> String {
        let method = self.spec.distinguisher_method.as_ref().map(|method| method.type_.as_str());
        match (method, &wanted.what) {
            (Some("ByUser"), _) => user.name.clone(),
            (Some("ByNamespace"), What::Resource { namespace, .. }) => namespace.clone(),
            _ => String::new(),
        }
    }
}

fn matches(rule: &PolicyRulesWithSubjects, user: &User, wanted: &Attributes) -> bool {
    if !rule.subjects.iter().any(|subject| is(user, subject)) {
        return false;
    }
    match &wanted.what {
        What::Resource { .. } => {
            let rules = rule.resource_rules.as_deref().unwrap_or_default();
            rules.iter().any(|rule| covers(rule, wanted))
        }
        What::Path(path) => {
            let rules = rule.non_resource_rules.as_deref().unwrap_or_default();
            rules.iter().any(|rule| covers_path(rule, &wanted.verb, path))
        }
    }
}

fn is(user: &User, subject: &Subject) -> bool {
    match subject.kind.as_str() {
        "User" => subject.user.as_ref().is_some_and(|u| u.name == "*" || u.name == user.name),
        "Group" => {
            subject.group.as_ref().is_some_and(|g| g.name == "*" || user.groups.contains(&g.name))
        }
        "ServiceAccount" => subject.service_account.as_ref().is_some_and(|account| {
            let rest = user.name.strip_prefix("system:serviceaccount:");
            let known = rest.and_then(|rest| rest.split_once(':'));
            known.is_some_and(|(namespace, name)| {
                namespace == account.namespace && (account.name == "*" || name == account.name)
            })
        }),
        _ => false,
    }
}

/// A star is the only one in its list.
fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|known| known == word) || matches!(list, [star] if star == "*")
}

fn covers(rule: &ResourcePolicyRule, wanted: &Attributes) -> bool {
    let What::Resource { group, resource, subresource, namespace, .. } = &wanted.what else {
        return false;
    };
    let named = match subresource.as_str() {
        "" => has(&rule.resources, resource),
        subresource => has(&rule.resources, &format!("{resource}/{subresource}")),
    };
    named
        && has(&rule.verbs, &wanted.verb)
        && has(&rule.api_groups, group)
        && match namespace.as_str() {
            "" => rule.cluster_scope == Some(true),
            namespace => has(rule.namespaces.as_deref().unwrap_or_default(), namespace),
        }
}

fn covers_path(rule: &NonResourcePolicyRule, verb: &str, path: &str) -> bool {
    has(&rule.verbs, verb)
        && rule.non_resource_urls.iter().any(|url| {
            // A path stands for what is below it, with or without a star.
            let folder = url.trim_end_matches('*');
            let folder = folder.strip_suffix('/').unwrap_or(folder);
            url == "*"
                || url == path
                || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        })
}
