//! Nobody gives away what he does not have: roles and bindings are written only by those who hold
//! all that is in them, or who were given the right to go beyond (`escalate`, `bind`).
use super::rules::covers_path;
use super::{Attributes, decide, is_superuser};
use crate::guard::authn::User;
use crate::server::ApiServer;
use api::group::GroupResource;
use api::status::Status;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A role that is about to be written, in the place of an old one if there is one.
pub async fn check_role(
    api: &ApiServer,
    user: &User,
    plural: &str,
    role: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (namespace, name) = place(role);
    let may = Attributes::right("escalate", GROUP, plural, namespace, name);
    if decide(api, user, &may).await.allowed {
        return Ok(());
    }
    let rules = rules_of(role).map_err(|cause| refusal(plural, name, &cause))?;
    check(api, user, namespace, &rules, plural, name)?;
    // What gathers can gather anything, and keeps others from tightening it.
    if gathers(role) || old.is_some_and(gathers) {
        let gathered = check(api, user, "", &everything(), plural, name);
        let cause = "must have cluster-admin privileges to use the aggregationRule";
        return gathered.map_err(|_| refusal(plural, name, cause));
    }
    Ok(())
}

/// The rules of a role. Those that cannot be read are not none: nobody knows what they give.
fn rules_of(role: &Value) -> Result<Vec<PolicyRule>, String> {
    match &role["rules"] {
        Value::Null => Ok(Vec::new()),
        rules => serde_json::from_value(rules.clone())
            .map_err(|error| format!("its rules cannot be read: {error}")),
    }
}

/// Whether a role is the sum of others.
fn gathers(role: &Value) -> bool {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// What `cluster-admin` has.
fn everything() -> [PolicyRule; 2] {
    let all = || Some(vec!["*".to_owned()]);
    let verbs = vec!["*".to_owned()];
    [
        PolicyRule {
            verbs: verbs.clone(),
            api_groups: all(),
            resources: all(),
            ..PolicyRule::default()
        },
        PolicyRule { verbs, non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

fn refusal(plural: &str, name: &str, cause: &str) -> Status {
    Status::forbidden(GroupResource::new(GROUP, plural), name, cause)
}

/// A binding that is about to be written.
pub async fn check_binding(
    api: &ApiServer,
    user: &User,
    plural: &str,
    binding: &Value,
) -> Result<(), Status> {
    let (namespace, name) = place(binding);
    let role: RoleRef = serde_json::from_value(binding["roleRef"].clone())
        .map_err(|error| refusal(plural, name, &format!("its role cannot be read: {error}")))?;
    let roles = if role.kind == "Role" { "roles" } else { "clusterroles" };
    let may = Attributes::right("bind", GROUP, roles, namespace, &role.name);
    if decide(api, user, &may).await.allowed {
        return Ok(());
    }
    let within = Some(namespace).filter(|namespace| !namespace.is_empty());
    let Some(rules) = api.rbac().read().rules_of(&role, within) else {
        let missing = Status::not_found(GroupResource::new(GROUP, roles), &role.name);
        return Err(missing);
    };
    check(api, user, namespace, &rules, plural, name)
}

fn place(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn check(
    api: &ApiServer,
    user: &User,
    namespace: &str,
    wanted: &[PolicyRule],
    plural: &str,
    name: &str,
) -> Result<(), Status> {
    if is_superuser(user) {
        return Ok(());
    }
    let held = api.rbac().read().rules_for(user, namespace);
    let missing: Vec<String> = wanted
        .iter()
        .flat_map(simple)
        .filter(|rule| !held.iter().any(|held| covers(held, rule)))
        .map(|rule| shown(&rule))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        user.groups,
        missing.join("\n")
    );
    Err(refusal(plural, name, &text))
}

/// A rule as rules of one verb on one thing each.
fn simple(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut all = Vec::new();
    let of = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    for verb in &rule.verbs {
        for group in of(&rule.api_groups) {
            for resource in of(&rule.resources) {
                let one = |name: Option<String>| PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: Some(vec![group.clone()]),
                    resources: Some(vec![resource.clone()]),
                    resource_names: name.map(|name| vec![name]),
                    non_resource_urls: None,
                };
                match of(&rule.resource_names) {
                    names if names.is_empty() => all.push(one(None)),
                    names => all.extend(names.into_iter().map(|name| one(Some(name)))),
                }
            }
        }
        for url in of(&rule.non_resource_urls) {
            let non_resource_urls = Some(vec![url]);
            all.push(PolicyRule {
                verbs: vec![verb.clone()],
                non_resource_urls,
                ..PolicyRule::default()
            });
        }
    }
    all
}

/// Whether a rule that is held includes a simple one.
fn covers(held: &PolicyRule, wanted: &PolicyRule) -> bool {
    let all = |held: &[String], wanted: &[String]| {
        held.iter().any(|v| v == "*") || wanted.iter().all(|v| held.contains(v))
    };
    let of = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    if !all(&held.verbs, &wanted.verbs) {
        return false;
    }
    if let Some(urls) = &wanted.non_resource_urls {
        let paths = of(&held.non_resource_urls);
        return urls
            .iter()
            .all(|url| paths.iter().any(|path| path == url || covers_path(path, url)));
    }
    let resources = of(&held.resources);
    let covers_resource = |wanted: &String| {
        resources.iter().any(|held| {
            held == "*"
                || held == wanted
                || match (held.split_once('/'), wanted.split_once('/')) {
                    (Some(("*", held)), Some((_, wanted))) => held == wanted,
                    _ => false,
                }
        })
    };
    let names = of(&held.resource_names);
    all(&of(&held.api_groups), &of(&wanted.api_groups))
        && of(&wanted.resources).iter().all(covers_resource)
        && (names.is_empty()
            || wanted.resource_names.as_ref().is_some_and(|w| w.iter().all(|n| names.contains(n))))
}

/// A rule in Go's words, which is how upstream's message shows it.
fn shown(rule: &PolicyRule) -> String {
    let list = |name: &str, values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("{name}:[{}]", quoted.join(" "))
    };
    let mut parts = Vec::new();
    for (name, values) in [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
    ] {
        if let Some(values) = values {
            parts.push(list(name, values));
        }
    }
    parts.push(list("Verbs", &rule.verbs));
    format!("{{{}}}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(held: Value, wanted: Value, expected: bool) {
        let held: PolicyRule = serde_json::from_value(held).expect("a rule");
        let wanted: PolicyRule = serde_json::from_value(wanted).expect("a rule");
        let all = simple(&wanted).iter().all(|wanted| covers(&held, wanted));
        assert_eq!(all, expected, "{held:?} {wanted:?}");
    }

    #[test]
    fn rules_that_cannot_be_read_are_not_none() {
        assert_eq!(rules_of(&json!({})), Ok(Vec::new()));
        assert!(rules_of(&json!({ "rules": [{ "verbs": "*" }] })).is_err());
        assert!(rules_of(&json!({ "rules": "all" })).is_err());
    }

    #[test]
    fn everything_is_held_only_by_those_who_hold_it_all() {
        let all = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
        let covered = |held: &[Value]| {
            let held =
                held.iter().map(|rule| serde_json::from_value(rule.clone()).expect("a rule"));
            let held: Vec<PolicyRule> = held.collect();
            everything().iter().flat_map(simple).all(|w| held.iter().any(|held| covers(held, &w)))
        };
        let paths = json!({ "verbs": ["*"], "nonResourceURLs": ["*"] });
        assert!(covered(&[all.clone(), paths.clone()]));
        assert!(!covered(&[all]));
        let named = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"] });
        assert!(!covered(&[named, paths.clone()]));
        let some = json!({ "verbs": ["get", "create"], "apiGroups": ["*"], "resources": ["*"] });
        assert!(!covered(&[some, paths]));
    }

    #[test]
    fn a_right_is_covered_by_a_wider_one_only() {
        let rule = |verbs: &str, resource: &str| json!({"verbs": verbs.split(',').collect::<Vec<_>>(), "apiGroups": [""], "resources": [resource]});
        check(rule("*", "*"), rule("get,list", "pods"), true);
        check(rule("get", "pods"), rule("get,list", "pods"), false);
        check(rule("get", "pods"), rule("get", "pods/log"), false);
        check(rule("get", "*/log"), rule("get", "pods/log"), true);
        let mut named = rule("get", "secrets");
        named["resourceNames"] = json!(["a"]);
        check(named.clone(), rule("get", "secrets"), false);
        check(rule("get", "secrets"), named, true);
        let path = |path: &str| json!({"verbs": ["get"], "nonResourceURLs": [path]});
        check(path("/healthz/*"), path("/healthz/etcd"), true);
        check(path("/healthz"), path("/metrics"), false);
    }
}
