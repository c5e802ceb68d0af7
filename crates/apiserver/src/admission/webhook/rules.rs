//! Whether a hook is to be asked, and about which version of the resource.
use super::configuration::Hook;
use super::matter::{Matter, Named};
use crate::admission::Operation;
use serde_json::Value;

/// One of a hook's rules.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// Whom a rule is asked about.
struct Subject<'a> {
    named: &'a Named,
    subresource: &'a str,
    operation: Operation,
    namespace: &'a str,
}

impl Rule {
    pub fn read(rule: &Value) -> Rule {
        let strings = |field: &str| -> Vec<String> {
            let all = rule[field].as_array().into_iter().flatten();
            all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Rule {
            operations: strings("operations"),
            groups: strings("apiGroups"),
            versions: strings("apiVersions"),
            resources: strings("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        let any = |all: &[String], wanted: &str| all.iter().any(|one| one == "*" || one == wanted);
        self.matches_scope(subject)
            && any(&self.operations, subject.operation.as_str())
            && any(&self.groups, &subject.named.group)
            && any(&self.versions, &subject.named.version)
            && self.resources.iter().any(|resource| matches_resource(resource, subject))
    }

    /// A namespace is in none, though a request on it names one: itself.
    fn matches_scope(&self, subject: &Subject<'_>) -> bool {
        let named = subject.named;
        let is_namespace =
            named.group.is_empty() && named.version == "v1" && named.resource == "namespaces";
        let is_in_none = is_namespace || subject.namespace.is_empty();
        match &*self.scope {
            "" | "*" => true,
            "Namespaced" => !is_in_none,
            "Cluster" => is_in_none,
            _ => false,
        }
    }
}

/// `pods`, `pods/status`, `*/scale`, `pods/*`, `*` (no subresource), `*/*`.
fn matches_resource(rule: &str, subject: &Subject<'_>) -> bool {
    let (resource, part) = rule.split_once('/').unwrap_or((rule, ""));
    (resource == "*" || resource == subject.named.resource)
        && (part == "*" || part == subject.subresource)
}

/// The version of the resource that a hook is asked about, if it is asked at all: the request's own
/// if a rule names that, else the first other that one does.
pub fn target<'m>(hook: &Hook, matter: &'m Matter<'_>) -> Option<&'m Named> {
    let matches = |rule: &Rule, named: &Named| {
        rule.matches(&Subject {
            named,
            subresource: &matter.subresource,
            operation: matter.operation,
            namespace: &matter.namespace,
        })
    };
    if hook.rules.iter().any(|rule| matches(rule, &matter.named)) {
        return Some(&matter.named);
    }
    if !hook.matches_equivalents {
        return None;
    }
    let mut rules = hook.rules.iter();
    rules.find_map(|rule| matter.others().iter().find(|other| matches(rule, other)))
}

/// Whether the labels of an object, new or old, are those that a hook is about. A selector that
/// cannot be read is a fault of its configuration.
pub fn selects_object(
    hook: &Hook,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, String> {
    let selector = hook.object_selector.as_ref().map_err(Clone::clone)?;
    if selector.is_everything() {
        return Ok(true);
    }
    let selects = |object: Option<&Value>| {
        object.is_some_and(|object| {
            // Options have no metadata, so nothing selects them.
            object["metadata"].is_object() && selector.matches(&object["metadata"]["labels"])
        })
    };
    Ok(selects(object) || selects(old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extend::backend::{Backends, Clients};
    use serde_json::json;

    fn hook(value: &Value) -> Hook {
        Hook::read("c", "id".into(), value, (&Backends::default(), &Clients::default()))
    }

    /// `OPERATION group/version/resource[/part] namespace` against `operations groups versions
    /// resources scope`, each a list with commas.
    fn check(rule: &str, request: &str, expected: bool) {
        let words: Vec<&str> = rule.split(' ').collect();
        let list = |i: usize| words[i].split(',').map(|w| w.trim_matches('-')).collect::<Vec<_>>();
        let rule = Rule::read(&json!({ "operations": list(0), "apiGroups": list(1),
            "apiVersions": list(2), "resources": list(3), "scope": words[4] }));
        let words: Vec<&str> = request.split(' ').collect();
        let parts: Vec<&str> = words[1].split('/').collect();
        let named = Named {
            group: parts[0].trim_matches('-').into(),
            version: parts[1].into(),
            resource: parts[2].into(),
            kind: super::super::matter::Kind::default(),
            row: None,
        };
        let operation = match words[0] {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => Operation::Connect,
        };
        let subject = Subject {
            named: &named,
            subresource: parts.get(3).copied().unwrap_or_default(),
            operation,
            namespace: words.get(2).copied().unwrap_or_default(),
        };
        assert_eq!(rule.matches(&subject), expected, "{rule:?} {request}");
    }

    #[test]
    fn a_rule_names_what_it_is_about() {
        let pods = "CREATE - v1 pods *";
        check(pods, "CREATE -/v1/pods a", true);
        check(pods, "UPDATE -/v1/pods a", false);
        check(pods, "CREATE -/v1/pods/status a", false);
        check(pods, "CREATE apps/v1/pods a", false);
        check(pods, "CREATE -/v2/pods a", false);
        check("* * * * *", "DELETE apps/v1/deployments a", true);
        check("* * * * *", "UPDATE apps/v1/deployments/status a", false);
        check("* * * */* *", "UPDATE apps/v1/deployments/status a", true);
        check("* * * */* *", "UPDATE apps/v1/deployments a", true);
        check("* * * */scale *", "UPDATE apps/v1/deployments/scale a", true);
        check("* * * */scale *", "UPDATE apps/v1/deployments a", false);
        check("* * * pods/* *", "CONNECT -/v1/pods/exec a", true);
        check("CONNECT - v1 pods/attach *", "CONNECT -/v1/pods/attach a", true);
        check("CONNECT - v1 pods/attach *", "CONNECT -/v1/pods/exec a", false);
        check("CREATE,UPDATE - v1 pods,services *", "UPDATE -/v1/services a", true);
    }

    #[test]
    fn a_namespace_is_in_none() {
        check("* * * * Namespaced", "CREATE -/v1/pods a", true);
        check("* * * * Namespaced", "CREATE -/v1/nodes", false);
        check("* * * * Namespaced", "UPDATE -/v1/namespaces a", false);
        check("* * * * Cluster", "CREATE -/v1/pods a", false);
        check("* * * * Cluster", "CREATE -/v1/nodes", true);
        check("* * * * Cluster", "UPDATE -/v1/namespaces a", true);
        check("* * * * Other", "CREATE -/v1/pods a", false);
    }

    fn matter(version: &str, kind: &str) -> Matter<'static> {
        let resource = api::kinds::find_kind(version, kind).expect("a kind");
        Matter::for_test(resource, Operation::Create, "a", "b")
    }

    #[test]
    fn an_equivalent_version_is_asked_about_where_the_policy_says_so() {
        let rule = |version: &str| {
            json!({ "operations": ["*"], "apiGroups": ["autoscaling"],
                "apiVersions": [version], "resources": ["horizontalpodautoscalers"] })
        };
        let wanted = |policy: &str, rules: &[&str]| -> Option<String> {
            let rules: Vec<Value> = rules.iter().map(|version| rule(version)).collect();
            let hook = hook(&json!({ "matchPolicy": policy, "rules": rules }));
            let matter = matter("autoscaling/v2", "HorizontalPodAutoscaler");
            target(&hook, &matter).map(|named| format!("{}/{}", named.version, named.kind.kind))
        };
        let v2 = Some("v2/HorizontalPodAutoscaler".to_owned());
        let v1 = Some("v1/HorizontalPodAutoscaler".to_owned());
        assert_eq!(wanted("Exact", &["v2"]), v2);
        assert_eq!(wanted("Exact", &["v1"]), None);
        assert_eq!(wanted("Equivalent", &["v1"]), v1);
        assert_eq!(wanted("Equivalent", &["v1", "v2"]), v2);
        assert_eq!(wanted("Equivalent", &["v9"]), None);
    }

    #[test]
    fn an_event_is_the_same_in_both_its_groups() {
        let hook = hook(&json!({ "matchPolicy": "Equivalent", "rules": [{
            "operations": ["CREATE"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"],
            "resources": ["events"] }] }));
        let matter = matter("v1", "Event");
        assert_eq!(target(&hook, &matter).map(|named| &*named.group), Some("events.k8s.io"));
    }

    #[test]
    fn labels_of_the_new_or_the_old_object_count() {
        let hook = hook(&json!({ "objectSelector": { "matchLabels": { "a": "b" } } }));
        let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
        let bare = json!({ "metadata": {} });
        let options = json!({ "kind": "PodExecOptions" });
        let selects = |new: Option<&Value>, old: Option<&Value>| selects_object(&hook, new, old);
        assert_eq!(selects(Some(&labelled), None), Ok(true));
        assert_eq!(selects(Some(&bare), Some(&labelled)), Ok(true));
        assert_eq!(selects(Some(&bare), Some(&bare)), Ok(false));
        assert_eq!(selects(None, None), Ok(false));
        let all = self::hook(&json!({ "objectSelector": {} }));
        assert_eq!(selects_object(&all, None, None), Ok(true));
        let none = self::hook(&json!({ "objectSelector": { "matchExpressions": [
            { "key": "x", "operator": "DoesNotExist" }] } }));
        assert_eq!(selects_object(&none, Some(&options), None), Ok(false));
        let broken = self::hook(&json!({ "objectSelector": { "matchExpressions": [
            { "key": "x", "operator": "Maybe" }] } }));
        assert!(selects_object(&broken, None, None).is_err());
    }
}
