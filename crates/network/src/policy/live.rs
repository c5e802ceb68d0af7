//! Keeps the rules as the API says, and lets a sandbox in only when they know it.
use super::facts::{NamespaceFacts, NodeFacts, PodFacts, PolicyFacts, ResolverFacts};
use super::tiers::{GROUP, KINDS};
use super::{ClusterPolicy, Firewall, World, plan};
use crate::{NodeNetwork, PodNetworkError};
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::definitions::{self, Defined};
use client::source::{Collection, Source};
use client::{ApiResource, Change, Context, Informer, Informers};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::{Family, Socket};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The policies of a node's pods. Shared by who follows the API and who attaches sandboxes.
pub struct Policies {
    /// The node's network namespace; `None`: that of whoever asks.
    namespace: Option<PathBuf>,
    work: Mutex<Work>,
    /// Once everything is known that there was at the start.
    seen: watch::Sender<Option<Seen>>,
    /// A pod has come or gone since.
    told: watch::Sender<()>,
    changed: Notify,
}

#[derive(Default)]
struct Work {
    firewall: Option<Firewall>,
    /// Whose sandboxes are here, by their ids.
    sandboxes: BTreeMap<String, (NamespacedName, Vec<IpAddr>)>,
}

/// What the API says.
#[derive(Clone)]
struct Seen {
    policies: Informer<PolicyFacts>,
    namespaces: Informer<NamespaceFacts>,
    pods: Informer<PodFacts>,
    resolvers: Informer<ResolverFacts>,
    tiers: Arc<Tiers>,
}

/// Policies of the cluster, where somebody has installed their definitions.
struct Tiers {
    informers: Informers,
    definitions: [Informer<Defined>; KINDS.len()],
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    policies: [Option<(ApiResource, Informer<ClusterPolicy>)>; KINDS.len()],
    /// Who would need them is there.
    nodes: Option<Informer<NodeFacts>>,
}

impl Tiers {
    fn new(informers: &Informers) -> Tiers {
        let definitions = KINDS.map(|kind| informers.keep(definitions::one(kind.plural, GROUP)));
        Tiers { informers: informers.clone(), definitions, found: Mutex::default() }
    }

    /// Follows what is defined, and nothing else.
    fn attend(&self, policies: &Arc<Policies>) {
        let mut found = self.found.lock();
        let Found { policies: known, nodes } = &mut *found;
        for ((kind, definition), known) in KINDS.iter().zip(&self.definitions).zip(known) {
            let defined = definition.read().iter().next().map(|(_, defined)| defined.clone());
            let wanted = defined.and_then(|defined| defined.in_version(kind.version));
            if known.as_ref().map(|(resource, _)| resource) == wanted.as_ref() {
                continue;
            }
            if let Some((resource, _)) = known.take() {
                self.informers.forget(&resource);
            }
            *known = wanted.map(|resource| {
                let informer = self.informers.keep(Collection::all(resource.clone()));
                follow(&informer, policies, |_, _| {});
                (resource, informer)
            });
            if known.is_some() && nodes.is_none() {
                let all = self.informers.keep(Collection::all(ApiResource::of::<Node>()));
                follow(&all, policies, |_, _| {});
                *nodes = Some(all);
            }
        }
    }

    fn policies(&self) -> Vec<Arc<ClusterPolicy>> {
        let found = self.found.lock();
        let all = found.policies.iter().flatten();
        all.flat_map(|(_, informer)| {
            informer.read().iter().map(|(_, one)| one.clone()).collect::<Vec<_>>()
        })
        .collect()
    }

    fn nodes(&self) -> Vec<Arc<NodeFacts>> {
        let nodes = self.found.lock().nodes.clone();
        nodes.map_or_else(Vec::new, |all| all.read().iter().map(|(_, one)| one.clone()).collect())
    }
}

/// What `dns` says of the EndpointSlices that it makes for nodes.
const OURS: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "skiff-dns");

const RETRY: Duration = Duration::from_secs(1);
/// How often somebody looks whether the rules are still there, and at which of these looks wholly.
const LOOK: Duration = Duration::from_secs(2);
const WHOLLY: u64 = 15;
/// How long a sandbox waits until the API has told of all policies.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits until the API has told of its pod: one of a file may never be told of.
const PATIENCE_FOR_POD: Duration = Duration::from_secs(1);

impl Policies {
    pub fn new(namespace: Option<PathBuf>) -> Policies {
        Policies {
            namespace,
            work: Mutex::default(),
            seen: watch::Sender::new(None),
            told: watch::Sender::new(()),
            changed: Notify::new(),
        }
    }

    /// Waits until it is known what applies to a pod, or as much of it as will be.
    pub async fn known(&self, key: &NamespacedName, uid: &str) -> Result<(), PodNetworkError> {
        let mut seen = self.seen.subscribe();
        let wait = tokio::time::timeout(PATIENCE, seen.wait_for(Option::is_some)).await;
        let Some(pods) = wait.ok().and_then(|seen| Some(seen.ok()?.as_ref()?.pods.clone())) else {
            return Err(PodNetworkError::Policies);
        };
        let mut told = self.told.subscribe();
        let is_known = || pods.get(key).is_some_and(|pod| pod.uid == uid || pod.is_mirror);
        let wait = async { while !is_known() && told.changed().await.is_ok() {} };
        // Without it the pod begins isolated by whatever might select it.
        let _ = tokio::time::timeout(PATIENCE_FOR_POD, wait).await;
        Ok(())
    }

    /// A sandbox gets these addresses: rules for them are in force when this returns.
    pub fn admit(
        &self,
        sandbox_id: &str,
        key: NamespacedName,
        addresses: &[IpAddr],
    ) -> Result<(), PodNetworkError> {
        let mut work = self.work.lock();
        work.sandboxes.insert(sandbox_id.to_owned(), (key, addresses.to_vec()));
        self.refresh(&mut work)
    }

    pub fn leave(&self, sandbox_id: &str) {
        if self.work.lock().sandboxes.remove(sandbox_id).is_some() {
            self.changed.notify_one();
        }
    }

    /// Sandboxes that an earlier process has attached.
    pub fn remember(&self, all: impl Iterator<Item = (String, NamespacedName, Vec<IpAddr>)>) {
        let known = all.map(|(id, key, addresses)| (id, (key, addresses)));
        self.work.lock().sandboxes.extend(known);
        self.changed.notify_one();
    }

    /// Makes good what somebody did to our rules; whether there was anything.
    fn repair(&self, wholly: bool) -> Result<bool, PodNetworkError> {
        let mut work = self.work.lock();
        let is_whole = match &mut work.firewall {
            Some(firewall) => firewall.is_whole(wholly)?,
            None => true,
        };
        if !is_whole {
            self.refresh(&mut work)?;
        }
        Ok(!is_whole)
    }

    /// The rules become what the API and the sandboxes say.
    fn refresh(&self, work: &mut Work) -> Result<(), PodNetworkError> {
        let Some(seen) = self.seen.borrow().clone() else { return Ok(()) };
        let firewall = match &mut work.firewall {
            Some(firewall) => firewall,
            none => {
                let family = Family::Netfilter;
                let socket = match &self.namespace {
                    Some(path) => Socket::open_in(family, path)?,
                    None => Socket::open(family)?,
                };
                none.insert(Firewall::new(socket))
            }
        };
        let (policies, namespaces, pods) =
            (seen.policies.read(), seen.namespaces.read(), seen.pods.read());
        let (ruling, nodes) = (seen.tiers.policies(), seen.tiers.nodes());
        let mut world = World {
            cluster_policies: ruling.iter().map(|one| &**one).collect(),
            ..World::default()
        };
        for (key, policy) in policies.iter() {
            world.policies.entry(&key.namespace).or_default().push(&policy.0);
        }
        if !world.policies.is_empty() || !world.cluster_policies.is_empty() {
            world.nodes = nodes.iter().map(|one| (&one.labels, one.addresses.as_slice())).collect();
            let resolvers = seen.resolvers.read();
            world.resolvers = resolvers.iter().flat_map(|(_, one)| one.0.iter().copied()).collect();
            let locals = work.sandboxes.values();
            world.locals = locals.map(|(key, addresses)| (key, addresses.as_slice())).collect();
            world.namespaces =
                namespaces.iter().map(|(key, one)| (&*key.name, &one.labels)).collect();
            for (key, facts) in pods.iter() {
                world.pods.entry(&key.namespace).or_default().insert(&key.name, &facts.pod);
            }
        }
        firewall.apply(|family| plan(&world, family))?;
        let links = work.sandboxes.iter().flat_map(|(id, (_, addresses))| {
            addresses.iter().map(|address| (*address, crate::link_name(id)))
        });
        firewall.close(&links.collect());
        Ok(())
    }
}

/// Runs until the context stops; the rules stay. The source may list pods, namespaces and policies.
pub async fn run(context: Context, source: Arc<dyn Source>, network: NodeNetwork) {
    let Some(policies) = network.policies() else { return context.stopped().await };
    let informers = Informers::new(&context, source);
    let ours = BTreeMap::from([(OURS.0.to_owned(), OURS.1.to_owned())]);
    let seen = Seen {
        policies: informers.keep(Collection::all(ApiResource::of::<NetworkPolicy>())),
        namespaces: informers.keep(Collection::all(ApiResource::of::<Namespace>())),
        pods: informers.keep(Collection::all(ApiResource::of::<Pod>())),
        resolvers: informers.keep(
            Collection::all(ApiResource::of::<EndpointSlice>())
                .with_labels(Selector::from_set(&ours)),
        ),
        tiers: Arc::new(Tiers::new(&informers)),
    };
    for definition in &seen.tiers.definitions {
        follow(definition, &policies, |_, _| {});
    }
    follow(&seen.resolvers, &policies, |_, _| {});
    follow(&seen.policies, &policies, |_, _| {});
    follow(&seen.namespaces, &policies, |_, _| {});
    // Somebody may wait for just this pod.
    follow(&seen.pods, &policies, |policies, change| {
        if change.old.as_ref().map(|old| &old.uid) != change.new.as_ref().map(|new| &new.uid) {
            policies.told.send_replace(());
        }
    });
    tokio::select! {
        () = informers.synced() => {}
        () = context.stopped() => return,
    }
    let tiers = seen.tiers.clone();
    tiers.attend(&policies);
    // Policies that there were before count from the beginning.
    tokio::select! {
        () = informers.synced() => {}
        () = context.stopped() => return,
    }
    policies.seen.send_replace(Some(seen));
    let mut looks = 0_u64;
    loop {
        tiers.attend(&policies);
        let work = {
            let policies = policies.clone();
            move || policies.refresh(&mut policies.work.lock())
        };
        let failure = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(failure) = failure {
            tracing::error!(failure, "failed to change the rules of policies: trying again");
            if !context.sleep(RETRY).await {
                return;
            }
            continue;
        }
        // Somebody else may take the rules away.
        while tokio::time::timeout(LOOK, async {
            tokio::select! {
                () = policies.changed.notified() => {}
                () = context.stopped() => {}
            }
        })
        .await
        .is_err()
        {
            looks += 1;
            let (policies, wholly) = (policies.clone(), looks.is_multiple_of(WHOLLY));
            match tokio::task::spawn_blocking(move || policies.repair(wholly)).await {
                Ok(Ok(true)) => {
                    tracing::warn!("somebody changed the packet rules of policies: they are back");
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to look at the packet rules of policies");
                }
                Err(_) => return,
            }
        }
        if context.is_stopped() {
            return;
        }
    }
}

/// Wakes whoever keeps the rules when something of interest changes.
fn follow<K: api::object::Keep + PartialEq>(
    informer: &Informer<K>,
    policies: &Arc<Policies>,
    also: impl Fn(&Policies, &Change<K>) + Send + Sync + 'static,
) {
    let policies = policies.clone();
    informer.on_change(move |change| {
        if change.old.as_deref() != change.new.as_deref() {
            also(&policies, change);
            policies.changed.notify_one();
        }
    });
}
