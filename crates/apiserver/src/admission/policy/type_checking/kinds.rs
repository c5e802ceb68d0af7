//! The kinds that a policy is about.
use super::{Answers, Questions};
use api::kinds::{self, Resource};
use client::source::Raw;
use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicySpec,
};
use serde_json::Value;
use std::fmt;

/// So many kinds that one rule names are looked at; the rules behind it are not, then.
const MOST_KINDS: usize = 10;

/// Where a server says what it serves beside the core group, of which no part is anybody else's.
const DISCOVERY: &str = "/apis";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// In the order in which they are told of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Kind {
    fn new(group: &str, version: &str, kind: &str) -> Kind {
        Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// What a policy's parameters are.
    pub fn of_params(spec: &ValidatingAdmissionPolicySpec) -> Option<Kind> {
        let params = spec.param_kind.as_ref()?;
        let version = params.api_version.as_deref().unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Some(Kind::new(group, version, params.kind.as_deref().unwrap_or_default()))
    }

    /// The row of a kind that is built in.
    pub fn row(&self) -> Option<&'static Resource> {
        match &*self.group {
            "" => kinds::find_kind(&self.version, &self.kind),
            group => kinds::find_kind(&format!("{group}/{}", self.version), &self.kind),
        }
    }

    pub fn is_built_in(&self) -> bool {
        is_built_in(&self.group, &self.version)
    }
}

/// As upstream prints it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Nobody else can serve a part of a group's version that is built in.
fn is_built_in(group: &str, version: &str) -> bool {
    group.is_empty() || kinds::built_in().rows_of(group, version).next().is_some()
}

/// The kinds that the rules name, in the order of their names. A rule with a star among its groups or versions
/// names none; resources with a star, and parts of others, are passed over.
///
/// Unlike upstream's, a rule for the core group is about that group only: there the mapper of resources takes
/// no group for any group, and finds kinds of others that the policy is never asked about.
pub fn named(
    spec: &ValidatingAdmissionPolicySpec,
    answers: &Answers,
) -> Result<Vec<Kind>, Questions> {
    let constraints = spec.match_constraints.as_ref();
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref());
    let rules: Vec<Named<'_>> = rules.into_iter().flatten().map(Named::by).collect();
    let is_foreign = |(group, version, _): (&str, &str, &str)| !is_built_in(group, version);
    let served = match rules.iter().flat_map(Named::each).any(is_foreign) {
        true => served(answers)?,
        false => Value::Null,
    };
    let mut kinds: Vec<Kind> = Vec::new();
    for rule in &rules {
        let found = rule.each().filter_map(|(group, version, plural)| {
            let kind = match is_built_in(group, version) {
                true => kinds::find(group, version, plural)?.kind,
                false => kind_of(&served, group, version, plural)?,
            };
            Some(Kind::new(group, version, kind))
        });
        let found: Vec<Kind> = found.take(MOST_KINDS).collect();
        let is_enough = found.len() == MOST_KINDS;
        kinds.extend(found);
        if is_enough {
            break;
        }
    }
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

/// The groups, versions and resources of one rule.
#[derive(Default)]
struct Named<'s> {
    groups: Vec<&'s str>,
    versions: Vec<&'s str>,
    resources: Vec<&'s str>,
}

impl<'s> Named<'s> {
    fn by(rule: &'s NamedRuleWithOperations) -> Named<'s> {
        let sorted = |names: &'s Option<Vec<String>>| {
            let mut names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions) = (sorted(&rule.api_groups), sorted(&rule.api_versions));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            return Named::default();
        }
        let mut resources = sorted(&rule.resources);
        resources.retain(|name| !name.contains(['*', '/']));
        Named { groups, versions, resources }
    }

    fn each(&self) -> impl Iterator<Item = (&'s str, &'s str, &'s str)> {
        let (versions, resources) = (&self.versions, &self.resources);
        self.groups.iter().flat_map(move |group| {
            versions.iter().flat_map(move |version| {
                resources.iter().map(move |resource| (*group, *version, *resource))
            })
        })
    }
}

/// All that is served, by definitions and by other servers; nothing, if nobody says so.
fn served(answers: &Answers) -> Result<Value, Questions> {
    let Some(answer) = answers.get(DISCOVERY) else {
        return Err(vec![Raw { accept: AGGREGATED.to_owned(), ..Raw::get(DISCOVERY) }]);
    };
    let read = answer.as_deref().and_then(|json| serde_json::from_slice(json).ok());
    Ok(read.unwrap_or_default())
}

fn kind_of<'d>(served: &'d Value, group: &str, version: &str, plural: &str) -> Option<&'d str> {
    let among = |list: &'d Value, is_it: &dyn Fn(&Value) -> bool| {
        list.as_array()?.iter().find(|one| is_it(one))
    };
    let group = among(&served["items"], &|it| it["metadata"]["name"] == group)?;
    let version = among(&group["versions"], &|it| it["version"] == version)?;
    let resource = among(&version["resources"], &|it| it["resource"] == plural)?;
    resource["responseKind"]["kind"].as_str().filter(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(groups: Value, versions: Value, resources: Value) -> Value {
        json!({ "apiGroups": groups, "apiVersions": versions, "resources": resources })
    }

    fn named_by(rules: &Value, answers: &Answers) -> Result<Vec<String>, Vec<String>> {
        let spec = json!({ "matchConstraints": { "resourceRules": rules } });
        let spec = serde_json::from_value(spec).expect("a spec");
        let kinds = named(&spec, answers);
        kinds
            .map(|kinds| kinds.iter().map(Kind::to_string).collect())
            .map_err(|questions| questions.into_iter().map(|question| question.path).collect())
    }

    #[test]
    fn kinds_are_those_that_rules_name() {
        let check = |rules: Value, expected: &[&str]| {
            let expected = Ok(expected.iter().map(|kind| (*kind).to_owned()).collect());
            assert_eq!(named_by(&rules, &Answers::new()), expected, "{rules}");
        };
        let pods = rule(json!([""]), json!(["v1"]), json!(["pods", "pods/status", "*/scale"]));
        let apps = rule(json!(["apps"]), json!(["v1"]), json!(["statefulsets", "daemonsets"]));
        check(
            json!([apps, pods, pods]),
            &["/v1, Kind=Pod", "apps/v1, Kind=DaemonSet", "apps/v1, Kind=StatefulSet"],
        );
        check(
            json!([rule(json!(["apps", "*"]), json!(["v1"]), json!(["daemonsets"])), pods]),
            &["/v1, Kind=Pod"],
        );
        check(json!([rule(json!(["apps"]), json!(["v1", "*"]), json!(["daemonsets"]))]), &[]);
        // Every pair of them, whether there is such a thing or not.
        check(
            json!([rule(json!(["", "apps"]), json!(["v1"]), json!(["pods", "deployments"]))]),
            &["/v1, Kind=Pod", "apps/v1, Kind=Deployment"],
        );
    }

    #[test]
    fn others_are_asked_for_by_what_is_served() {
        let resource = |plural: &str, kind: &str| json!({ "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind } });
        let served = json!({ "items": [{ "metadata": { "name": "example.com" }, "versions": [
            { "version": "v1", "resources": [resource("widgets", "Widget"), resource("odd", "")] },
            { "version": "v2", "resources": [resource("widgets", "Gadget")] }, 7 ] }] });
        let said =
            |text: Option<String>| Answers::from([("/apis".to_owned(), text.map(Into::into))]);
        let rules = json!([rule(
            json!(["example.com"]),
            json!(["v1", "v2", "v3"]),
            json!(["widgets", "odd", "gadgets"])
        )]);
        assert_eq!(named_by(&rules, &Answers::new()), Err(vec!["/apis".to_owned()]));
        let found = named_by(&rules, &said(Some(served.to_string()))).expect("all is known");
        assert_eq!(found, ["example.com/v1, Kind=Widget", "example.com/v2, Kind=Gadget"]);
        for answer in [None, Some("not JSON"), Some("[]"), Some(r#"{"items":{"a":1}}"#)] {
            assert_eq!(named_by(&rules, &said(answer.map(str::to_owned))), Ok(Vec::new()));
        }
        // A star is nobody's name.
        let star = json!([rule(json!(["example.com"]), json!(["*"]), json!(["widgets"]))]);
        assert_eq!(named_by(&star, &Answers::new()), Ok(Vec::new()));
    }

    #[test]
    fn ten_kinds_of_a_rule_are_enough() {
        let many: Vec<String> = (10..40).map(|at| format!("w{at}")).collect();
        let resources: Vec<Value> = many
            .iter()
            .map(|name| json!({ "resource": name, "responseKind": { "kind": name } }))
            .collect();
        let served = json!({ "items": [{ "metadata": { "name": "g" }, "versions": [
            { "version": "v1", "resources": resources } ] }] });
        let answers = Answers::from([("/apis".to_owned(), Some(served.to_string().into()))]);
        let rules = json!([
            rule(json!(["g"]), json!(["v1"]), json!(many)),
            rule(json!([""]), json!(["v1"]), json!(["pods"])),
        ]);
        let found = named_by(&rules, &answers).expect("all is known");
        assert_eq!((found.len(), &*found[9]), (10, "g/v1, Kind=w19"));
    }
}
