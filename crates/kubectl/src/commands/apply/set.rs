//! `apply --applyset`: a parent object remembers which kinds in which namespaces were applied with it, and what
//! carries its label and is no longer among what is applied goes (KEP 3659; `kubectl/pkg/cmd/apply/applyset.go`).
use super::Apply;
use crate::builder::Info;
use crate::cluster::{Cluster, collection, propagation};
use crate::failure::{Failure, Outcome};
use crate::mapper::{Mapper, Resource};
use crate::print::Telling;
use crate::session::Session;
use crate::write::DryRun;
use api::quote::Quoted;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::source::{Delete, Patch, Write};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

const TOOLING: &str = "applyset.kubernetes.io/tooling";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// What older clients wrote in the place of kinds.
const RESOURCES: &str = "applyset.kubernetes.io/contains-group-resources";
const ID: &str = "applyset.kubernetes.io/id";
const PART_OF: &str = "applyset.kubernetes.io/part-of";
/// On a definition whose objects may be parents.
const PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";

const TOOL: &str = "kubectl";
const MANAGER: &str = "kubectl-applyset";

/// Kinds by `Kind.group`, and namespaces.
#[derive(Debug, Default, Clone)]
struct Content {
    kinds: BTreeMap<String, Resource>,
    namespaces: BTreeSet<String>,
}

pub struct ApplySet {
    parent: Resource,
    namespace: String,
    name: String,
    before: Content,
    now: Content,
}

impl ApplySet {
    /// The set that `[RESOURCE][.GROUP]/NAME` means; a Secret's name may stand alone.
    pub fn parse(text: &str, cluster: &Cluster, mapper: &Mapper) -> Outcome<ApplySet> {
        let invalid = |cause: String| {
            Failure::Plain(format!("invalid parent reference {}: {cause}", Quoted(text)))
        };
        let (resource, name) = text.split_once('/').unwrap_or(("secrets", text));
        if name.is_empty() {
            return Err(invalid("name cannot be blank".to_owned()));
        }
        let parent = mapper.find(resource).map_err(|_| {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            invalid(format!("no matches for {group}/, Resource={resource}"))
        })?;
        // The namespace of the kubeconfig does not count.
        let namespace = match parent.is_namespaced() && cluster.namespace_given {
            true => cluster.namespace.clone(),
            false => String::new(),
        };
        Ok(ApplySet {
            parent: parent.clone(),
            namespace,
            name: name.to_owned(),
            before: Content::default(),
            now: Content::default(),
        })
    }

    /// Whether the parent may be one.
    pub async fn check(&self, cluster: &Cluster) -> Outcome {
        let mut faults = Vec::new();
        if self.parent.is_namespaced() && self.namespace.is_empty() {
            faults.push("namespace is required to use namespace-scoped ApplySet".to_owned());
        }
        if !self.is_built_in() {
            let allowed = match self.allowed(cluster).await {
                Ok(allowed) => allowed,
                Err(failure) => {
                    let cause = failure.text();
                    faults
                        .push(format!("identifying allowed custom resource parent types: {cause}"));
                    Vec::new()
                }
            };
            if !allowed.contains(&self.parent.full_name()) {
                let api = &self.parent.api;
                let shown = format!("{}/{}, Resource={}", api.group, api.version, api.plural);
                faults.push(format!(
                    "resource {} is not permitted as an ApplySet parent",
                    Quoted(&shown)
                ));
            }
        }
        match &faults[..] {
            [] => Ok(()),
            [one] => Err(one.clone().into()),
            many => Err(format!("[{}]", many.join(", ")).into()),
        }
    }

    fn is_built_in(&self) -> bool {
        matches!(&*self.parent.full_name(), "secrets" | "configmaps")
    }

    /// Definitions whose objects may be parents.
    async fn allowed(&self, cluster: &Cluster) -> Outcome<Vec<String>> {
        let definitions = client::ApiResource::custom(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            api::kinds::Scope::Cluster,
        );
        let all = cluster.list(collection(&definitions, "", PARENT_TYPE, "")?, 500).await?;
        let names = all.iter().filter_map(|one| one["metadata"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// What the parent and all members are labelled with.
    fn id(&self) -> String {
        let api = &self.parent.api;
        let text = [&*self.name, &self.namespace, &api.kind, &api.group].join(".");
        format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(Sha256::digest(text)))
    }

    /// As it is typed.
    fn shown(&self) -> String {
        format!("{}.{}/{}", self.parent.api.plural, self.parent.api.group, self.name)
    }

    /// Makes objects members, before anything is sent.
    pub fn label(&self, infos: &mut [Info]) -> Outcome {
        for info in infos {
            let labels = &mut info.object["metadata"]["labels"];
            if labels.get(PART_OF).is_some() {
                return Err(format!(
                    "ApplySet label {} already set in input data",
                    Quoted(PART_OF)
                )
                .into());
            }
            labels[PART_OF] = self.id().into();
        }
        Ok(())
    }

    /// Reads what the parent remembers, and has it remember what is about to be applied too: whatever happens
    /// then, nothing is forgotten.
    pub async fn begin(
        &mut self,
        session: &mut Session,
        apply: &Apply<'_>,
        infos: &[Info],
    ) -> Outcome {
        self.fetch(&apply.cluster).await?;
        for info in infos {
            self.now.kinds.insert(group_kind(&info.resource), info.resource.clone());
            if info.resource.is_namespaced() && !info.namespace.is_empty() {
                self.now.namespaces.insert(info.namespace.clone());
            }
        }
        let mut all = self.before.clone();
        all.kinds.extend(self.now.kinds.clone());
        all.namespaces.extend(self.now.namespaces.clone());
        self.update(session, apply, &all).await
    }

    async fn fetch(&mut self, cluster: &Cluster) -> Outcome {
        let shown = Quoted(&self.shown()).to_string();
        let parent = match cluster.get(&self.parent.api, &self.namespace, &self.name).await {
            Ok(parent) => parent,
            Err(failure) if failure.is_not_found() && self.is_built_in() => return Ok(()),
            Err(failure) if failure.is_not_found() => {
                return Err(
                    "custom resource ApplySet parents cannot be created automatically".into()
                );
            }
            Err(failure) => {
                let cause = failure.text();
                return Err(
                    format!("failed to fetch ApplySet parent object {shown}: {cause}").into()
                );
            }
        };
        let annotation = |name: &str| parent["metadata"]["annotations"][name].as_str();
        let Some(tooling) = annotation(TOOLING) else {
            return Err(format!(
                "ApplySet parent object {shown} already exists and is missing required annotation {}",
                Quoted(TOOLING)
            )
            .into());
        };
        let tool = tooling.rsplit_once('/').map_or(tooling, |(tool, _)| tool);
        if tool != TOOL {
            return Err(format!(
                "ApplySet parent object {shown} already exists and is managed by tooling {} instead of {}",
                Quoted(tool),
                Quoted(TOOL)
            )
            .into());
        }
        match parent["metadata"]["labels"][ID].as_str() {
            None => {
                return Err(format!(
                    "ApplySet parent object {shown} exists and does not have required label {ID}"
                )
                .into());
            }
            Some(id) if id != self.id() => {
                return Err(format!(
                    "ApplySet parent object {shown} exists and has incorrect value for label {} (got: {id}, \
                     want: {})",
                    Quoted(ID),
                    self.id()
                )
                .into());
            }
            Some(_) => {}
        }
        let mapper = cluster.mapper().await?;
        self.before.kinds = kinds(annotation(KINDS), annotation(RESOURCES), mapper)
            .map_err(|text| format!("parsing ApplySet annotation on {shown}: {text}"))?;
        let named = annotation(NAMESPACES).unwrap_or_default().split(',');
        self.before.namespaces = named.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if self.parent.is_namespaced() {
            self.before.namespaces.insert(self.namespace.clone());
        }
        Ok(())
    }

    /// The parent with what it is to remember.
    fn object(&self, content: &Content) -> Value {
        let namespaces = content.namespaces.iter().filter(|name| **name != self.namespace);
        let namespaces: Vec<&str> = namespaces.map(String::as_str).collect();
        let kinds: Vec<&str> = content.kinds.keys().map(String::as_str).collect();
        let mut object = json!({ "apiVersion": self.parent.api.api_version(), "kind": self.parent.api.kind,
            "metadata": { "name": self.name, "labels": { ID: self.id() }, "annotations": {
                TOOLING: format!("{TOOL}/{}", api::VERSION), KINDS: kinds.join(","),
                NAMESPACES: namespaces.join(",") } } });
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        }
        object
    }

    async fn update(&self, session: &mut Session, apply: &Apply<'_>, content: &Content) -> Outcome {
        if apply.dry_run == DryRun::Client {
            return Ok(());
        }
        let write =
            Write { field_manager: MANAGER.to_owned(), force: false, ..apply.write.clone() };
        let place = (&*self.namespace, &*self.name, "");
        let patch = Patch::Apply(self.object(content));
        let patched = apply.cluster.patch(&self.parent.api, place, patch.clone(), &write).await;
        let patched = match patched {
            Err(failure) if failure.is_conflict() => {
                writeln!(
                    session.err,
                    "WARNING: failed to update ApplySet: {}\nApplySet field manager {MANAGER} should own \
                     these fields. Retrying with conflicts forced.",
                    failure.text()
                )?;
                let write = Write { force: true, ..write };
                apply.cluster.patch(&self.parent.api, place, patch, &write).await
            }
            patched => patched,
        };
        match patched {
            Ok(_) => Ok(()),
            Err(failure) => Err(format!("failed to update ApplySet: {}", failure.text()).into()),
        }
    }

    /// Deletes members that were not applied now, and has the parent forget where none are left.
    pub async fn prune(
        &self,
        session: &mut Session,
        apply: &Apply<'_>,
        telling: &mut Telling,
    ) -> Outcome {
        let seen: Vec<&str> =
            apply.applied.iter().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
        for (resource, object) in self.members(&apply.cluster, &seen).await? {
            self.delete(apply, &resource, &object).await?;
            telling.tell(&object, "pruned", &mut session.out)?;
        }
        self.update(session, apply, &self.now).await.map_err(|failure| {
            let cause = failure.text();
            Failure::Plain(format!(
                "apply and prune succeeded, but ApplySet update failed: {cause}"
            ))
        })
    }

    /// All members but those that were just seen.
    async fn members(&self, cluster: &Cluster, seen: &[&str]) -> Outcome<Vec<(Resource, Value)>> {
        let labels = format!("{PART_OF}={}", self.id());
        let mut found = Vec::new();
        for resource in self.before.kinds.values() {
            let places: Vec<&str> = match resource.is_namespaced() {
                true => self.before.namespaces.iter().map(String::as_str).collect(),
                false => vec![""],
            };
            for namespace in places {
                let of = collection(&resource.api, namespace, &labels, "")?;
                let all = cluster.list(of, 500).await.map_err(|failure| {
                    let api = &resource.api;
                    let group = if api.group.is_empty() {
                        String::new()
                    } else {
                        format!("{}/", api.group)
                    };
                    let separator = if group.is_empty() { "/" } else { "" };
                    Failure::Plain(format!(
                        "listing {separator}{group}{}, Kind={} objects for pruning: {}",
                        api.version,
                        api.kind,
                        failure.text()
                    ))
                })?;
                let is_old = |object: &Value| {
                    !seen.contains(&object["metadata"]["uid"].as_str().unwrap_or_default())
                };
                found.extend(
                    all.into_iter().filter(is_old).map(|object| (resource.clone(), object)),
                );
            }
        }
        Ok(found)
    }

    async fn delete(&self, apply: &Apply<'_>, resource: &Resource, object: &Value) -> Outcome {
        if apply.dry_run == DryRun::Client {
            return Ok(());
        }
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let grace = apply.arguments.number("grace-period");
        let options = Delete {
            grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
            propagation: Some(propagation(apply.arguments)?),
            dry_run: apply.dry_run == DryRun::Server,
            ..Delete::default()
        };
        let deleted = apply.cluster.delete(&resource.api, namespace, name, options).await;
        deleted.map(drop).map_err(|failure| {
            let shown = match namespace {
                "" => format!("{} {name}", group_kind(resource)),
                namespace => format!("{} {namespace}/{name}", group_kind(resource)),
            };
            Failure::Plain(format!("pruning {shown}: {}", failure.text()))
        })
    }
}

/// `Deployment.apps`, `Secret`.
fn group_kind(resource: &Resource) -> String {
    match &*resource.api.group {
        "" => resource.api.kind.to_string(),
        group => format!("{}.{group}", resource.api.kind),
    }
}

/// The kinds that annotations name.
fn kinds(
    kinds: Option<&str>,
    resources: Option<&str>,
    mapper: &Mapper,
) -> Result<BTreeMap<String, Resource>, String> {
    let mut found = BTreeMap::new();
    let (text, by_kind) = match (kinds, resources) {
        (Some(kinds), _) => (kinds, true),
        (None, Some(resources)) if !resources.is_empty() => (resources, false),
        _ => {
            return Err(format!(
                "kubectl requires the {} annotation to be set on all ApplySet parent objects",
                Quoted(KINDS)
            ));
        }
    };
    for name in text.split(',').filter(|_| !text.is_empty()) {
        let resource = if by_kind {
            let (kind, group) = name.split_once('.').unwrap_or((name, ""));
            mapper.preferred(group, kind).ok_or_else(|| {
                format!(
                    "could not find mapping for kind in {} annotation: no matches for kind {} in group {}",
                    Quoted(KINDS),
                    Quoted(kind),
                    Quoted(group)
                )
            })?
        } else {
            mapper.find(name).map_err(|_| {
                let (resource, group) = name.split_once('.').unwrap_or((name, ""));
                format!(
                    "invalid group resource in {} annotation: no matches for {group}/, Resource={resource}",
                    Quoted(RESOURCES)
                )
            })?
        };
        found.insert(group_kind(resource), resource.clone());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::tests::mapper;

    fn set(text: &str, namespace: Option<&str>) -> Outcome<ApplySet> {
        let world = crate::session::tests::world();
        let cluster = Cluster::of(world.source(), "default");
        let cluster = namespace.map_or(cluster.clone(), |name| cluster.in_namespace(name));
        ApplySet::parse(text, &cluster, &mapper())
    }

    #[test]
    fn parents_are_named_by_type_and_name() {
        let shown = |text: &str, namespace| match set(text, namespace) {
            Ok(set) => format!("{} in {:?}: {}", set.shown(), set.namespace, set.id()),
            Err(failure) => failure.message(),
        };
        // Hashes as upstream's kubectl makes them of the same four words.
        assert_eq!(
            shown("mine", Some("x")),
            format!(
                "secrets./mine in \"x\": applyset-{}-v1",
                URL_SAFE_NO_PAD.encode(Sha256::digest("mine.x.Secret."))
            )
        );
        assert!(shown("cm/mine", None).starts_with("configmaps./mine in \"\": "));
        assert_eq!(
            shown("pods.bogus/x", None),
            "error: invalid parent reference \"pods.bogus/x\": no matches for bogus/, Resource=pods"
        );
        assert_eq!(
            shown("cm/", None),
            "error: invalid parent reference \"cm/\": name cannot be blank"
        );
    }

    #[test]
    fn annotations_name_kinds() {
        let read = |new: Option<&str>, old: Option<&str>| match kinds(new, old, &mapper()) {
            Ok(found) => found.into_keys().collect::<Vec<_>>().join(" "),
            Err(text) => text,
        };
        assert_eq!(read(Some("ConfigMap,Deployment.apps"), None), "ConfigMap Deployment.apps");
        assert_eq!(read(Some(""), Some("x")), "");
        assert_eq!(read(None, Some("configmaps,deployments.apps")), "ConfigMap Deployment.apps");
        assert_eq!(
            read(Some("Bogus.x"), None),
            "could not find mapping for kind in \"applyset.kubernetes.io/contains-group-kinds\" annotation: no \
             matches for kind \"Bogus\" in group \"x\""
        );
        assert!(read(None, Some("")).starts_with("kubectl requires the"));
    }

    #[test]
    fn a_parent_remembers_kinds_and_other_namespaces() {
        let set = set("mine", Some("x")).unwrap();
        let mut content = Content::default();
        for kind in ["Pod", "ConfigMap"] {
            let resource = mapper().preferred("", kind).unwrap().clone();
            content.kinds.insert(group_kind(&resource), resource);
        }
        content.namespaces.extend(["x", "b", "a"].map(str::to_owned));
        let object = set.object(&content);
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(
            (&annotations[KINDS], &annotations[NAMESPACES]),
            (&json!("ConfigMap,Pod"), &json!("a,b"))
        );
        assert_eq!(object["metadata"]["namespace"], "x");
    }
}
