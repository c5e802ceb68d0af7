//! The templates that a workload has had, as ControllerRevisions: what may be rolled back to, and
//! which of them a pod was made of.
use crate::action::Action;
use crate::deployment::template;
use crate::pods::controller_ref;
use crate::world::World;
use api::hash;
use api::rules::Form;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label of pods that says which revision they are of.
pub const REVISION: &str = "controller-revision-hash";
/// The label that revisions of StatefulSets say their hash in.
pub const STATEFUL: &str = "controller.kubernetes.io/hash";
/// Old ones that are kept unless the workload says otherwise.
const KEPT: i32 = 10;

/// What a workload's template is among those it has had.
pub struct History {
    /// The revision of the template, which may only be about to be made.
    pub name: String,
    pub hash: String,
    /// `None`: nobody has ever counted any, which a hash can tell from zero.
    pub collisions: Option<i32>,
    /// Those that are there, the oldest first.
    pub all: Vec<Arc<ControllerRevision>>,
    /// What makes it so.
    pub actions: Vec<Action>,
}

impl History {
    /// `label`: where a revision says its hash.
    pub fn of<O: Form>(
        owner: &O,
        template: &PodTemplateSpec,
        label: &str,
        collisions: Option<i32>,
        world: &World,
    ) -> History {
        let uid = owner.metadata().uid.clone().unwrap_or_default();
        let mut all = world.controlled::<ControllerRevision>(&uid);
        all.sort_by_key(|one| (one.revision, one.metadata.name.clone()));
        let data = data_of(template);
        let newest = all.last().map_or(0, |one| one.revision.unwrap_or_default());
        let mut collisions = collisions;
        let is_same = |one: &ControllerRevision| is_equal(&one.data, &data);
        if let Some(found) = all.iter().rev().find(|one| is_same(one)) {
            let mut actions = Vec::new();
            // A template that comes back is the newest again.
            if found.revision < Some(newest) {
                let again = ControllerRevision { revision: Some(newest + 1), ..(**found).clone() };
                actions.push(Action::update(&again));
            }
            let name = found.metadata.name.clone().unwrap_or_default();
            let hash = found.metadata.labels.as_ref().and_then(|labels| labels.get(label));
            let hash = hash.cloned().unwrap_or_else(|| hash_in(&name));
            return History { name, hash, collisions, all, actions };
        }
        let namespace = owner.metadata().namespace.clone().unwrap_or_default();
        let base = owner.metadata().name.clone().unwrap_or_default();
        let (name, hash) = loop {
            let hash = match label {
                STATEFUL => hash::of_revision(&data, collisions.unwrap_or_default()),
                _ => template::hash(template, collisions),
            };
            let name = format!("{}-{hash}", base.get(..223).unwrap_or(&base));
            if world.find::<ControllerRevision>(&namespace, &name).is_none() {
                break (name, hash);
            }
            // Another template, or somebody else, has this name.
            collisions = Some(collisions.unwrap_or_default() + 1);
        };
        let mut labels = template.metadata.as_ref().and_then(|it| it.labels.clone());
        labels.get_or_insert_default().insert(label.to_owned(), hash.clone());
        let made = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                labels,
                annotations: owner.metadata().annotations.clone(),
                owner_references: Some(vec![controller_ref(owner)]),
                ..ObjectMeta::default()
            },
            data: RawExtension(data),
            revision: Some(newest + 1),
        };
        History { name, hash, collisions, all, actions: vec![Action::ensure(&made)] }
    }

    pub fn template(&self, name: &str) -> Option<PodTemplateSpec> {
        let found = self.all.iter().find(|one| one.metadata.name.as_deref() == Some(name))?;
        let mut tree = found.data.0["spec"]["template"].clone();
        tree.as_object_mut()?.remove("$patch");
        serde_json::from_value(tree).ok()
    }

    /// Those that are old, of no use to anybody, and more than are to be kept.
    pub fn surplus(&self, limit: Option<i32>, live: &BTreeSet<&str>) -> Vec<Action> {
        let is_live = |one: &ControllerRevision| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            name == self.name || live.contains(name) || live.contains(hash_in(name).as_str())
        };
        let old: Vec<_> = self.all.iter().filter(|one| !is_live(one)).collect();
        let kept = limit.unwrap_or(KEPT).max(0) as usize;
        let surplus = old.len().saturating_sub(kept);
        old.iter().take(surplus).map(|one| Action::delete(&***one)).collect()
    }
}

fn hash_in(name: &str) -> String {
    name.rsplit_once('-').map_or(name, |(_, hash)| hash).to_owned()
}

/// What is written down: a patch that makes the template this one.
fn data_of(template: &PodTemplateSpec) -> Value {
    let mut tree = json!(template);
    tree["$patch"] = "replace".into();
    json!({ "spec": { "template": tree } })
}

/// Others may write what is empty in other words.
fn is_equal(RawExtension(found): &RawExtension, wanted: &Value) -> bool {
    let template = |tree: &Value| {
        let mut tree = tree["spec"]["template"].clone();
        tree.as_object_mut()?.remove("$patch");
        serde_json::from_value::<PodTemplateSpec>(tree).ok()
    };
    found == wanted
        || matches!((template(found), template(wanted)), (Some(one), Some(other)) if template::is_same(&one, &other))
}
