//! What one rule of a role allows.
use super::{Attributes, What};
use k8s_openapi::api::rbac::v1::PolicyRule;

const ALL: &str = "*";

pub fn allows(rule: &PolicyRule, attributes: &Attributes) -> bool {
    let listed = |list: &[String], wanted: &str| list.iter().any(|v| v == ALL || v == wanted);
    if !listed(&rule.verbs, &attributes.verb) {
        return false;
    }
    match &attributes.what {
        What::Path(path) => {
            rule.non_resource_urls.iter().flatten().any(|url| covers_path(url, path))
        }
        What::Resource { group, resource, subresource, name, .. } => {
            listed(rule.api_groups.as_deref().unwrap_or_default(), group)
                && rule.resources.iter().flatten().any(|r| covers(r, resource, subresource))
                && match rule.resource_names.as_deref().unwrap_or_default() {
                    [] => true,
                    names => names.contains(name),
                }
        }
    }
}

/// `pods`, `pods/log`, `*`, `*/log`.
fn covers(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => rule == ALL || subresource.is_empty() && rule == resource,
        Some((ALL, wanted)) => wanted == subresource && !subresource.is_empty(),
        Some((of, wanted)) => of == resource && wanted == subresource && !subresource.is_empty(),
    }
}

/// `/healthz`, `/healthz/*`, `*`.
pub fn covers_path(rule: &str, path: &str) -> bool {
    match rule.strip_suffix(ALL) {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verbs: &str, groups: &str, resources: &str, asked: &str, expected: bool) {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let rule = PolicyRule {
            verbs: list(verbs),
            api_groups: Some(list(groups)),
            resources: Some(list(resources)),
            ..PolicyRule::default()
        };
        let (verb, rest) = asked.split_once(' ').expect("a verb");
        let (group, full) = rest.split_once(' ').expect("a group");
        let (resource, subresource) = full.split_once('/').unwrap_or((full, ""));
        let mut attributes = Attributes::right(verb, group, resource, "", "");
        if let What::Resource { subresource: of, .. } = &mut attributes.what {
            *of = subresource.into();
        }
        assert_eq!(allows(&rule, &attributes), expected, "{verbs} {groups} {resources}: {asked}");
    }

    #[test]
    fn a_rule_names_verbs_groups_and_resources() {
        check("get,list", "apps", "deployments", "get apps deployments", true);
        check("get,list", "apps", "deployments", "delete apps deployments", false);
        check("get", "apps", "deployments", "get batch deployments", false);
        check("*", "*", "*", "get batch jobs/status", true);
        check("get", "apps", "deployments", "get apps deployments/scale", false);
        check("get", "apps", "deployments/scale", "get apps deployments/scale", true);
        check("get", "apps", "*/scale", "get apps replicasets/scale", true);
        check("get", "apps", "*/scale", "get apps replicasets", false);
    }

    #[test]
    fn a_path_may_end_in_a_star() {
        for (rule, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("*", "/metrics", true),
        ] {
            assert_eq!(covers_path(rule, path), expected, "{rule} {path}");
        }
    }
}
