//! The policy: which requests are recorded, and how much of them. The first rule that matches counts.
use super::Error;
use super::event::{Level, Stage};
use crate::guard::authn::User;
use crate::guard::authz::{Attributes, What};
use api::codec::yaml;
use api::field::{self, BadValue, ErrorList, Path};
use api::names;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What the policy says about one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub level: Level,
    pub omit_stages: Vec<Stage>,
    pub omit_managed_fields: bool,
}

/// What a cluster records that nobody gave a policy: everything's metadata, but for its pulse.
const DEFAULT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"]
- level: None
  resources:
  - {group: "", resources: [events]}
  - {group: events.k8s.io, resources: [events]}
- level: None
  verbs: [get, update, patch]
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
- level: Metadata
"#;

impl Policy {
    pub fn read(file: &std::path::Path) -> Result<Policy, Error> {
        let bytes =
            std::fs::read(file).map_err(|source| Error::Read { file: file.to_owned(), source })?;
        Policy::parse(&bytes).map_err(|cause| Error::Policy { file: file.to_owned(), cause })
    }

    /// For a cluster that has none of its own.
    pub fn metadata_of_everything() -> Policy {
        Policy::parse(DEFAULT.as_bytes()).expect("it is tested")
    }

    pub fn parse(bytes: &[u8]) -> Result<Policy, String> {
        let decode = |cause: &dyn std::fmt::Display| format!("failed decoding: {cause}");
        let tree = yaml::decode_untyped(bytes).map_err(|error| decode(&error))?.value;
        let policy: Policy = serde_json::from_value(tree).map_err(|error| decode(&error))?;
        let (version, kind) = (&policy.api_version, &policy.kind);
        if version != "audit.k8s.io/v1" {
            let text = "unknown group version field \"{version}\" in policy";
            return Err(text.replace("{version}", version));
        }
        if kind != "Policy" {
            return Err(decode(&format!("no kind {kind:?} is registered for version {version:?}")));
        }
        match field::aggregate(&policy.validate()) {
            Some(text) => Err(text),
            None if policy.rules.is_empty() => Err("loaded illegal policy with 0 rules".into()),
            None => Ok(policy),
        }
    }

    fn validate(&self) -> ErrorList {
        let mut errors = Vec::new();
        stages(&self.omit_stages, &Path::new("omitStages"), &mut errors);
        let rules = Path::new("rules");
        for (i, rule) in self.rules.iter().enumerate() {
            rule.validate(&rules.index(i), &mut errors);
        }
        errors
    }

    pub fn evaluate(&self, user: Option<&User>, wanted: &Attributes) -> Verdict {
        let found = self.rules.iter().find(|rule| rule.matches(user, wanted));
        let omitted = self.omit_stages.iter().chain(found.iter().flat_map(|r| &r.omit_stages));
        Verdict {
            level: found.and_then(|rule| level(&rule.level)).unwrap_or(Level::None),
            omit_stages: omitted.filter_map(|name| stage(name)).collect(),
            omit_managed_fields: found
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
        }
    }
}

const STAGES: &[(&str, Stage)] = &[
    ("RequestReceived", Stage::RequestReceived),
    ("ResponseStarted", Stage::ResponseStarted),
    ("ResponseComplete", Stage::ResponseComplete),
    ("Panic", Stage::Panic),
];

fn stage(name: &str) -> Option<Stage> {
    STAGES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage)
}

fn level(name: &str) -> Option<Level> {
    Level::ALL.into_iter().find(|level| format!("{level:?}") == name)
}

fn stages(names: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    for (i, name) in names.iter().enumerate().filter(|(_, name)| stage(name).is_none()) {
        let text = format!(
            "allowed stages are {}",
            STAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")
        );
        errors.push(field::Error::invalid(&path.index(i), name, text));
    }
}

impl Rule {
    fn validate(&self, path: &Path<'_>, errors: &mut ErrorList) {
        let at = path.child("level");
        match self.level.as_str() {
            "" => errors.push(field::Error::required(&at, "")),
            name if level(name).is_none() => {
                let known = Level::ALL.map(|level| format!("{level:?}"));
                errors.push(field::Error::not_supported(&at, name, known));
            }
            _ => {}
        }
        let at = path.child("nonResourceURLs");
        for (i, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let mut invalid = |text| errors.push(field::Error::invalid(&at.index(i), url, text));
            if !url.starts_with('/') {
                invalid("non-resource URL rules must begin with a '/' character");
            }
            if url.find('*').is_some_and(|star| star + 1 < url.len()) {
                invalid("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        let resources = path.child("resources");
        for row in &self.resources {
            if !matches!(row.group.as_str(), "" | "*") {
                let problems = names::name_is_dns_subdomain(&row.group, false);
                if !problems.is_empty() {
                    let text = problems.join(",");
                    errors.push(field::Error::invalid(&resources.child("group"), &row.group, text));
                }
            }
            if !row.resource_names.is_empty() && row.resources.is_empty() {
                errors.push(field::Error::invalid(
                    &resources.child("resourceNames"),
                    BadValue::json(&row.resource_names),
                    "using resourceNames requires at least one resource",
                ));
            }
        }
        stages(&self.omit_stages, &path.child("omitStages"), errors);
        let resourceful = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.non_resource_urls.is_empty() && resourceful {
            errors.push(field::Error::invalid(
                &at,
                BadValue::json(&self.non_resource_urls),
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
    }

    fn matches(&self, user: Option<&User>, wanted: &Attributes) -> bool {
        let or_any = |list: &[String], matches: &dyn Fn(&String) -> bool| {
            list.is_empty() || list.iter().any(matches)
        };
        or_any(&self.users, &|name| user.is_some_and(|user| user.name == *name))
            && or_any(&self.user_groups, &|group| user.is_some_and(|u| u.groups.contains(group)))
            && or_any(&self.verbs, &|verb| wanted.verb == *verb)
            && self.is_about(&wanted.what)
    }

    fn is_about(&self, what: &What) -> bool {
        let resourceful = !self.resources.is_empty() || !self.namespaces.is_empty();
        match what {
            What::Path(path) if !resourceful => {
                let urls = &self.non_resource_urls;
                urls.is_empty() || urls.iter().any(|url| path_matches(path, url))
            }
            What::Path(_) => false,
            What::Resource { .. } if !resourceful => self.non_resource_urls.is_empty(),
            What::Resource { group, resource, subresource, namespace, name, .. } => {
                let placed = self.namespaces.is_empty() || self.namespaces.contains(namespace);
                let named = |row: &GroupResources| {
                    (row.group == *group || row.group == "*")
                        && (row.resources.is_empty()
                            || (row.resource_names.is_empty() || row.resource_names.contains(name))
                                && row.resources.iter().any(|r| is(r, resource, subresource)))
                };
                placed && (self.resources.is_empty() || self.resources.iter().any(named))
            }
        }
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`.
fn is(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => rule == "*" || rule == resource && subresource.is_empty(),
        // Upstream's reading: a resource's subresources, and the resource.
        Some((of, "*")) => of == resource,
        Some(("*", sub)) => sub == subresource,
        Some((of, sub)) => of == resource && sub == subresource,
    }
}

fn path_matches(path: &str, url: &str) -> bool {
    url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}
