//! What the server serves, and what people call it: aggregated discovery, and names in all the forms
//! that kubectl's users type.
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use api::kinds::Scope;
use api::quote::Quoted;
use client::ApiResource;
use serde_json::Value;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// One resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    pub api: ApiResource,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
    pub subresources: Vec<String>,
    /// Among the versions of its group the one that the server prefers.
    pub preferred: bool,
}

impl Resource {
    pub fn is_namespaced(&self) -> bool {
        self.api.is_namespaced()
    }

    /// `pods`, `deployments.apps`.
    pub fn full_name(&self) -> String {
        match &*self.api.group {
            "" => self.api.plural.to_string(),
            group => format!("{}.{group}", self.api.plural),
        }
    }
}

/// Everything that is served: groups in the server's order, versions in the order of its preference.
#[derive(Debug, Default)]
pub struct Mapper {
    pub resources: Vec<Resource>,
    pub group_versions: Vec<String>,
}

pub async fn discover(cluster: &Cluster) -> Outcome<Mapper> {
    let core = cluster.get_json("/api", AGGREGATED).await?;
    let named = cluster.get_json("/apis", AGGREGATED).await;
    let mut mapper = Mapper::default();
    for answer in [Ok(core), named] {
        let answer = match answer {
            Ok(answer) => answer,
            // Somebody may see the core alone.
            Err(Failure::Server(status)) if matches!(status.code, 403 | 404) => continue,
            Err(failure) => return Err(failure),
        };
        match answer["kind"].as_str() {
            Some("APIGroupDiscoveryList") => mapper.add_aggregated(&answer),
            _ => mapper.add_each(cluster, &answer).await?,
        }
    }
    Ok(mapper)
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

impl Mapper {
    pub fn add_aggregated(&mut self, answer: &Value) {
        for group in answer["items"].as_array().into_iter().flatten() {
            let name = text(&group["metadata"]["name"]);
            for (at, version) in group["versions"].as_array().into_iter().flatten().enumerate() {
                let version_name = text(&version["version"]);
                self.group_versions.push(group_version(name, version_name));
                for row in version["resources"].as_array().into_iter().flatten() {
                    let scope = match text(&row["scope"]) {
                        "Namespaced" => Scope::Namespaced,
                        _ => Scope::Cluster,
                    };
                    let (plural, kind) =
                        (text(&row["resource"]), text(&row["responseKind"]["kind"]));
                    let api = ApiResource::custom(name, version_name, plural, kind, scope);
                    let parts = row["subresources"].as_array().into_iter().flatten();
                    let subresources = parts.map(|part| text(&part["subresource"]).to_owned());
                    self.resources.push(Resource {
                        api,
                        singular: text(&row["singularResource"]).to_owned(),
                        short_names: texts(&row["shortNames"]),
                        categories: texts(&row["categories"]),
                        verbs: texts(&row["verbs"]),
                        subresources: subresources.collect(),
                        preferred: at == 0,
                    });
                }
            }
        }
    }

    /// A server that knows no aggregated discovery is asked version by version.
    async fn add_each(&mut self, cluster: &Cluster, answer: &Value) -> Outcome {
        let mut versions: Vec<(String, String, bool)> = Vec::new();
        for version in texts(&answer["versions"]) {
            versions.push((format!("/api/{version}"), version, true));
        }
        for group in answer["groups"].as_array().into_iter().flatten() {
            let preferred = text(&group["preferredVersion"]["groupVersion"]).to_owned();
            let mut of_group: Vec<String> = Vec::new();
            for version in group["versions"].as_array().into_iter().flatten() {
                of_group.push(text(&version["groupVersion"]).to_owned());
            }
            of_group.sort_by_key(|version| *version != preferred);
            for version in of_group {
                let is_preferred = version == preferred;
                versions.push((format!("/apis/{version}"), version, is_preferred));
            }
        }
        for (path, group_version, preferred) in versions {
            self.group_versions.push(group_version.clone());
            let Ok(list) = cluster.get_json(&path, "").await else { continue };
            let (group, version) = group_version.split_once('/').unwrap_or(("", &group_version));
            for row in list["resources"].as_array().into_iter().flatten() {
                self.add_row(row, group, version, preferred);
            }
        }
        Ok(())
    }

    fn add_row(&mut self, row: &Value, group: &str, version: &str, preferred: bool) {
        let name = text(&row["name"]);
        if let Some((plural, part)) = name.split_once('/') {
            let parent = self.resources.iter_mut().find(|resource| {
                resource.api.plural == plural
                    && resource.api.group == group
                    && resource.api.version == version
            });
            if let Some(parent) = parent {
                parent.subresources.push(part.to_owned());
            }
            return;
        }
        let scope = match row["namespaced"] == true {
            true => Scope::Namespaced,
            false => Scope::Cluster,
        };
        let api = ApiResource::custom(group, version, name, text(&row["kind"]), scope);
        self.resources.push(Resource {
            api,
            singular: text(&row["singularName"]).to_owned(),
            short_names: texts(&row["shortNames"]),
            categories: texts(&row["categories"]),
            verbs: texts(&row["verbs"]),
            subresources: Vec::new(),
            preferred,
        });
    }

    /// What somebody typed: `po`, `pod`, `Pods`, `deployments.apps`, `deployments.v1.apps`.
    pub fn find(&self, typed: &str) -> Outcome<&Resource> {
        let unknown = |name: &str| {
            let (name, group) = name.split_once('.').unwrap_or((name, ""));
            Failure::Plain(match group {
                "" => format!("the server doesn't have a resource type {}", Quoted(name)),
                group => format!(
                    "the server doesn't have a resource type {} in group {}",
                    Quoted(name),
                    Quoted(group)
                ),
            })
        };
        let lower = typed.to_ascii_lowercase();
        let (name, rest) = lower.split_once('.').unwrap_or((&lower, ""));
        if name.is_empty() {
            return Err(unknown(typed));
        }
        // `deployments.v1.apps`, and `pods.v1.` for the core.
        if let Some((version, group)) = rest.split_once('.')
            && let Some(found) = self.named(name, |resource| {
                resource.api.group == group && resource.api.version == version
            })
        {
            return Ok(found);
        }
        let found = match rest {
            "" => self.named(name, |resource| resource.preferred).or(self.named(name, |_| true)),
            group => self
                .named(name, |resource| resource.api.group == group && resource.preferred)
                .or_else(|| self.named(name, |resource| resource.api.group == group))
                // The beginning of a group is enough.
                .or_else(|| self.named(name, |resource| resource.api.group.starts_with(group)))
                .or_else(|| self.named(name, |resource| resource.api.version == group)),
        };
        found.ok_or_else(|| unknown(typed))
    }

    /// What is said about a short name that others have, too.
    pub fn ambiguity(&self, typed: &str) -> Option<String> {
        let has = |resource: &&Resource| resource.short_names.iter().any(|short| short == typed);
        let mut all = self.resources.iter().filter(|resource| has(resource) && resource.preferred);
        let first = all.next()?;
        let other = all.find(|other| other.api.group != first.api.group)?;
        Some(format!(
            "Warning: short name {} could also match lower priority resource {}",
            Quoted(typed),
            other.full_name()
        ))
    }

    /// By plural before singular before short name before kind, as groups come.
    fn named(&self, name: &str, fits: impl Fn(&Resource) -> bool) -> Option<&Resource> {
        let forms: [&dyn Fn(&Resource) -> bool; 4] = [
            &|resource| resource.api.plural == name,
            &|resource| resource.singular == name,
            &|resource| resource.short_names.iter().any(|short| short == name),
            &|resource| resource.api.kind.eq_ignore_ascii_case(name),
        ];
        forms.iter().find_map(|is| self.resources.iter().find(|one| is(one) && fits(one)))
    }

    /// What an object's kind is served as.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.resources.iter().find(|resource| {
            resource.api.kind == kind
                && resource.api.group == group
                && resource.api.version == version
        })
    }

    /// What a kind is served as, in the version that the server prefers.
    pub fn preferred(&self, group: &str, kind: &str) -> Option<&Resource> {
        let is = |resource: &&Resource| resource.api.kind == kind && resource.api.group == group;
        let mut all = self.resources.iter().filter(is);
        all.clone().find(|resource| resource.preferred).or_else(|| all.next())
    }

    /// What belongs to a category, as `all`.
    pub fn of_category(&self, category: &str) -> Vec<&Resource> {
        let mut found: Vec<&Resource> = Vec::new();
        for resource in &self.resources {
            let is_in = resource.categories.iter().any(|other| other == category);
            let is_new = !found.iter().any(|other| {
                other.api.group == resource.api.group && other.api.plural == resource.api.plural
            });
            if is_in && is_new {
                found.push(resource);
            }
        }
        found
    }

    /// The words between commas, with categories for what they are.
    pub fn find_all(&self, typed: &str) -> Outcome<Vec<&Resource>> {
        let mut found: Vec<&Resource> = Vec::new();
        for word in typed.split(',').filter(|word| !word.is_empty()) {
            let of_category = self.of_category(word);
            if of_category.is_empty() {
                found.push(self.find(word)?);
            } else {
                found.extend(of_category);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// A server with pods, deployments and a custom resource in two versions.
    pub fn discovery() -> (Value, Value) {
        let row = |plural: &str, singular: &str, kind: &str, short: &[&str], scope: &str| {
            json!({ "resource": plural, "singularResource": singular, "shortNames": short,
                "responseKind": { "kind": kind }, "scope": scope, "categories": ["all"],
                "verbs": ["get", "list", "create", "patch", "delete", "watch", "update"] })
        };
        let mut pods = row("pods", "pod", "Pod", &["po"], "Namespaced");
        pods["subresources"] =
            json!([{ "subresource": "eviction", "responseKind": { "kind": "Eviction" } }]);
        let core = json!({ "kind": "APIGroupDiscoveryList", "items": [{ "metadata": {}, "versions": [
            { "version": "v1", "resources": [
                pods,
                row("secrets", "secret", "Secret", &[], "Namespaced"),
                row("configmaps", "configmap", "ConfigMap", &["cm"], "Namespaced"),
                row("namespaces", "namespace", "Namespace", &["ns"], "Cluster"),
                row("nodes", "node", "Node", &["no"], "Cluster"),
                row("services", "service", "Service", &["svc"], "Namespaced") ] }] }] });
        let apps = json!({ "kind": "APIGroupDiscoveryList", "items": [
            { "metadata": { "name": "apps" }, "versions": [{ "version": "v1", "resources": [
                row("deployments", "deployment", "Deployment", &["deploy"], "Namespaced") ] }] },
            { "metadata": { "name": "example.com" }, "versions": [
                { "version": "v1", "resources": [row("pods", "pod", "Pod", &[], "Namespaced")] },
                { "version": "v1beta1", "resources": [row("pods", "pod", "Pod", &[], "Namespaced")] },
            ] }] });
        (core, apps)
    }

    pub fn mapper() -> Mapper {
        let (core, named) = discovery();
        let mut mapper = Mapper::default();
        mapper.add_aggregated(&core);
        mapper.add_aggregated(&named);
        mapper
    }

    fn check(typed: &str, expected: &str) {
        let mapper = mapper();
        let found = match mapper.find(typed) {
            Ok(found) => format!("{} {}", found.api.api_version(), found.api.plural),
            Err(failure) => failure.message(),
        };
        assert_eq!(found, expected, "{typed}");
    }

    #[test]
    fn resources_are_found_by_all_their_names() {
        for typed in ["pods", "pod", "po", "Pod", "PODS"] {
            check(typed, "v1 pods");
        }
        check("deploy", "apps/v1 deployments");
        check("deployments.apps", "apps/v1 deployments");
        check("deployment.v1.apps", "apps/v1 deployments");
        check("pods.example.com", "example.com/v1 pods");
        check("pods.v1beta1.example.com", "example.com/v1beta1 pods");
        check("x", "error: the server doesn't have a resource type \"x\"");
        check("pods.x", "error: the server doesn't have a resource type \"pods\" in group \"x\"");
    }

    #[test]
    fn a_category_is_all_that_is_in_it() {
        let mapper = mapper();
        let all = mapper.find_all("all").unwrap();
        let names: Vec<String> = all.iter().map(|resource| resource.full_name()).collect();
        assert_eq!(
            names,
            [
                "pods",
                "secrets",
                "configmaps",
                "namespaces",
                "nodes",
                "services",
                "deployments.apps",
                "pods.example.com"
            ]
        );
    }
}
