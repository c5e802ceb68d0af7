//! A namespace that is deleted goes when nothing is left in it: its pods first, then the rest.
use crate::action::{Action, Target};
use crate::definitions::{self, Defined};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::kinds::{RESOURCES, Resource, Verb};
use api::names::NamespacedName;
use api::object::Object;
use api::status::Status;
use client::ApiResource;
use client::source::{Collection, Delete, Propagation};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "namespace-controller",
    account: "namespace-controller",
    workers: 10,
    watch,
    reconcile,
};

const FINALIZER: &str = "kubernetes";
/// How long until a look at what is left, when something is.
const PAUSE: Duration = Duration::from_secs(1);

/// What is said of a deletion: the type, then reason and message while all is well.
const CONDITIONS: &[[&str; 3]] = &[
    [
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ],
    [
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ],
    [
        CONTENT_FAILURE,
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ],
    [CONTENT_REMAINING, "ContentRemoved", "All content successfully removed"],
    [FINALIZERS_REMAINING, "ContentHasNoFinalizers", "All content-preserving finalizers finished"],
];
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT_REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS_REMAINING: &str = "NamespaceFinalizersRemaining";

/// A condition that holds: its type, reason and message.
type Trouble = (&'static str, &'static str, String);
type Lists = Vec<(Collection, Vec<Arc<Object>>)>;

fn watch(on: &Watching) {
    on.objects::<Namespace>();
    on.each_of::<Defined>(definitions::collection(), |_, _| Vec::new());
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(namespace) = world.get::<Namespace>(key) else { return Vec::new() };
    let is_deleting = namespace.metadata.deletion_timestamp.is_some();
    if !is_deleting || finalizers(&namespace).is_empty() {
        return Vec::new();
    }
    if namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating") {
        let mut namespace = (*namespace).clone();
        namespace.status.get_or_insert_default().phase = Some("Terminating".to_owned());
        return vec![Action::update_part("status", &namespace)];
    }
    let custom = definitions::resources(world).into_iter();
    let all = deletable().map(ApiResource::from).chain(custom.filter(ApiResource::is_namespaced));
    let is_pods = |resource: &ApiResource| resource.row.is_some_and(|row| row.is("", "Pod"));
    let (pods, others): (Vec<_>, Vec<_>) = all.partition(is_pods);
    let within = |resources: Vec<ApiResource>| -> Vec<Collection> {
        let resources = resources.into_iter();
        resources.map(|each| Collection::all(each).in_namespace(&key.name)).collect()
    };
    let (pods, others) = (within(pods), within(others));
    let again = namespace.clone();
    let rest = move |left: Lists| match left.is_empty() {
        false => wait(&again, Vec::new(), now),
        true => {
            let namespace = again.clone();
            vec![clear(again, now, others, move |left| match left.is_empty() {
                false => wait(&namespace, totals(&left), now),
                true => finish(&namespace, now),
            })]
        }
    };
    vec![clear(namespace, now, pods, rest)]
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

fn deletable() -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(|row| {
        row.is_namespaced()
            && row.is_stored()
            && row.stored_as.is_none()
            && row.verbs.contains(Verb::Delete)
            && row.verbs.contains(Verb::List)
    })
}

/// Deletes all that is in these collections; what is left afterwards decides what follows.
fn clear(
    namespace: Arc<Namespace>,
    now: Timestamp,
    of: Vec<Collection>,
    then: impl FnOnce(Lists) -> Vec<Action> + Send + 'static,
) -> Action {
    let delete = move |lists: Lists| {
        let full: Lists = lists.into_iter().filter(|(_, items)| !items.is_empty()).collect();
        if full.is_empty() {
            return then(full);
        }
        let deletions = full.iter().flat_map(deletions).collect();
        let failed = move |failure: &Status| {
            let message =
                format!("Failed to delete all resource types, 1 remaining: {}", failure.message);
            let trouble = (CONTENT_FAILURE, "ContentDeletionFailed", message);
            say(&namespace, vec![trouble], now).into_iter().collect()
        };
        let of = full.into_iter().map(|(of, _)| of).collect();
        let left =
            |lists: Lists| then(lists.into_iter().filter(|(_, items)| !items.is_empty()).collect());
        vec![
            Action::Several { actions: deletions, otherwise: Some(Box::new(failed)) },
            Action::Gather { of, then: Box::new(left) },
        ]
    };
    Action::Gather { of, then: Box::new(delete) }
}

fn deletions((of, items): &(Collection, Vec<Arc<Object>>)) -> Vec<Action> {
    if of.resource.row.is_none_or(|row| row.verbs.contains(Verb::DeleteCollection)) {
        return vec![Action::DeleteCollection(of.clone())];
    }
    let delete = |object: &Arc<Object>| Action::Delete {
        object: Target {
            resource: of.resource.clone(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
        },
        options: Delete::uid(object.uid()).propagating(Propagation::Background),
        tell: None,
    };
    items.iter().map(delete).collect()
}

fn wait(namespace: &Namespace, troubles: Vec<Trouble>, now: Timestamp) -> Vec<Action> {
    say(namespace, troubles, now).into_iter().chain([Action::Again(PAUSE)]).collect()
}

/// What is left, and which finalizers keep it.
fn totals(left: &Lists) -> Vec<Trouble> {
    let mut resources: Vec<String> = left
        .iter()
        .map(|(of, items)| {
            let (plural, group) = (&of.resource.plural, &of.resource.group);
            format!("{plural}.{group} has {} resource instances", items.len())
        })
        .collect();
    resources.sort();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for object in left.iter().flat_map(|(_, items)| items) {
        for finalizer in &object.metadata().finalizers {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    let message = format!("Some resources are remaining: {}", resources.join(", "));
    let mut troubles = vec![(CONTENT_REMAINING, "SomeResourcesRemain", message)];
    if !finalizers.is_empty() {
        let all: Vec<_> = finalizers
            .iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let message =
            format!("Some content in the namespace has finalizers remaining: {}", all.join(", "));
        troubles.push((FINALIZERS_REMAINING, "SomeFinalizersRemain", message));
    }
    troubles
}

/// Nothing is left: the namespace may go. Its status was just written, so it is read again.
fn finish(namespace: &Namespace, now: Timestamp) -> Vec<Action> {
    let object = Target::of(namespace);
    let uid = object.uid.clone();
    let then = move |found: Option<Arc<Object>>| {
        let found = found.filter(|found| found.uid() == uid);
        let Some(Ok(mut namespace)) = found.map(|found| found.decode::<Namespace>()) else {
            return Vec::new();
        };
        let finalizers = namespace.spec.get_or_insert_default().finalizers.get_or_insert_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        vec![Action::update_part("finalize", &namespace)]
    };
    let look = Action::Look { object, then: Box::new(then) };
    say(namespace, Vec::new(), now).into_iter().chain([look]).collect()
}

/// The conditions, if one of them is new.
fn say(namespace: &Namespace, troubles: Vec<Trouble>, now: Timestamp) -> Option<Action> {
    let mut said = namespace.clone();
    let conditions = said.status.get_or_insert_default().conditions.get_or_insert_default();
    for [type_, reason, message] in CONDITIONS {
        let trouble = troubles.iter().find(|(of, ..)| of == type_);
        let (status, reason, message) = match trouble {
            Some((_, reason, message)) => ("True", *reason, message.clone()),
            None => ("False", *reason, (*message).to_owned()),
        };
        let old = conditions.iter_mut().find(|condition| condition.type_ == *type_);
        let since = old.as_ref().filter(|old| old.status == status);
        let since = since.and_then(|old| old.last_transition_time.clone());
        let new = NamespaceCondition {
            type_: (*type_).to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: since.or(Some(Time(now))),
        };
        match old {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }
    (said != *namespace).then(|| Action::update_part("status", &said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_run;
    use expect_test::expect;

    #[test]
    fn a_namespace_is_emptied_and_goes() {
        check_run(
            &CONTROLLER,
            "namespace a deleting finalizers=x spec.finalizers=[\"kubernetes\"] status.phase=Terminating
             pod a/web
             configmap a/c
             secret a/s
             configmap other/stays",
            expect![[r#"
                deletecollection pods a/
                deletecollection configmaps a/
                deletecollection secrets a/
                update namespaces/status a
                update namespaces/finalize a
            "#]],
        );
    }

    #[test]
    fn what_a_finalizer_keeps_is_said() {
        check_run(
            &CONTROLLER,
            "namespace a deleting finalizers=x spec.finalizers=[\"kubernetes\"]
             configmap a/c finalizers=mine",
            expect![[r#"
                update namespaces/status a
                deletecollection configmaps a/
                update namespaces/status a
                deletecollection configmaps a/
            "#]],
        );
    }

    #[test]
    fn nothing_goes_while_pods_are_left() {
        check_run(
            &CONTROLLER,
            "namespace a deleting finalizers=x spec.finalizers=[\"kubernetes\"] status.phase=Terminating
             pod a/web finalizers=mine
             configmap a/c",
            expect![[r#"
                deletecollection pods a/
                update namespaces/status a
                deletecollection pods a/
            "#]],
        );
    }
}
