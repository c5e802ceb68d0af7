//! The one loop that every controller runs in: watch, queue, wait for one's own writes, decide,
//! do, try again.
use crate::action::Action;
use crate::apply::{Hands, Turn};
use crate::world::World;
use api::names::NamespacedName;
use api::object::Keep;
use api::owner;
use api::rules::Form;
use api::selector::label::Selector;
use client::events::{Recorder, Reporter};
use client::source::Collection;
use client::{Change, Client, Context, Informer, OwnWrites, WorkQueue};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use jiff::Timestamp;
use std::fmt::Display;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a key that waits until what it wrote is seen may keep others from its worker. It never acts before
/// that: it would do again what is done.
const PATIENCE: Duration = Duration::from_secs(30);

/// After which its turn comes again.
const AGAIN: Duration = Duration::from_secs(1);

/// One control loop: what it is called, what wakes it, what it decides.
pub struct Controller<K: Key = NamespacedName> {
    /// As `--controllers` has it: `replicaset-controller`.
    pub name: &'static str,
    /// The service account in `kube-system` that it writes as: upstream's, with upstream's roles.
    /// Empty: it writes as the controller manager itself.
    pub account: &'static str,
    /// Keys worked on at once: upstream's.
    pub workers: usize,
    /// Names everything it reads, and how a change of that maps to keys.
    pub watch: fn(&Watching<K>),
    /// Pure: the same world at the same moment gives the same actions.
    pub reconcile: fn(&K, &World, Timestamp) -> Vec<Action>,
}

/// What a queue may hold.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}
impl<K: Clone + Eq + Hash + Display + Send + Sync + 'static> Key for K {}

/// A row of the table, whatever its keys are.
pub trait Row: Sync {
    fn name(&self) -> &'static str;
    fn account(&self) -> &'static str;
    /// Begins to watch; the future works until the context stops.
    fn start(&self, context: &Context, client: &Client, world: &World) -> BoxFuture<'static, ()>;
}

impl<K: Key> Row for Controller<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn account(&self) -> &'static str {
        self.account
    }

    fn start(&self, context: &Context, client: &Client, world: &World) -> BoxFuture<'static, ()> {
        let queue = WorkQueue::new(context, self.name);
        let watching =
            Watching { world: world.clone(), queue: queue.clone(), waits: Waits::default() };
        (self.watch)(&watching);
        let waits = watching.waits.take();
        let hands = Arc::new(Hands {
            client: client.clone(),
            world: world.clone(),
            recorder: Recorder::core(
                context,
                client.clone(),
                Reporter::new(reporter(self.name), ""),
            ),
            own: OwnWrites::new(),
        });
        let (context, row, reconcile) = (context.clone(), self.name, self.reconcile);
        let stopping = context.clone();
        let workers = world.settings.workers.get(self.name).copied().unwrap_or(self.workers);
        let workers = (0..workers.max(1))
            .map(|_| work(context.clone(), row, queue.clone(), hands.clone(), reconcile));
        let workers: Vec<_> = workers.collect();
        async move {
            tokio::select! {
                biased; // the same course of events each time, where time is simulated
                // For its own alone: what a cluster does not serve keeps nobody else waiting.
                _ = join_all(waits) => {}
                // What has not come by now will not come.
                () = stopping.stopped() => return,
            }
            join_all(workers).await;
        }
        .boxed()
    }
}

/// Who says so, in events: some of upstream's are called otherwise there.
fn reporter(row: &'static str) -> &'static str {
    match row {
        "disruption-controller" => "controllermanager",
        "endpoints-controller" => "endpoint-controller",
        "endpointslice-controller" => "endpoint-slice-controller",
        "endpointslice-mirroring-controller" => "endpoint-slice-mirroring-controller",
        "ephemeral-volume-controller" => "ephemeral_volume",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "node-ipam-controller" => "cidrAllocator",
        "node-lifecycle-controller" => "node-controller",
        "persistentvolume-attach-detach-controller" => "attachdetach-controller",
        "persistentvolume-binder-controller" => "persistentvolume-controller",
        "persistentvolume-expander-controller" => "volume_expand",
        "replicationcontroller-controller" => "replication-controller",
        "resourceclaim-controller" => "resource_claim",
        "selinux-warning-controller" => "selinux_warning",
        "service-lb-controller" => "service-controller",
        _ => row,
    }
}

/// `None`: the row's code has broken off. The key comes again, after a while that grows; the other
/// keys must not suffer for it.
fn decide(
    context: &Context,
    row: &str,
    reconcile: impl FnOnce() -> Vec<Action>,
) -> Option<Vec<Action>> {
    // A decision changes nothing but what it returns, so a broken one leaves nothing half done.
    let payload = match catch_unwind(AssertUnwindSafe(reconcile)) {
        Ok(actions) => return Some(actions),
        Err(payload) => payload,
    };
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(controller = row, panic = text, "a decision broke off: to be tried again");
    context.metrics().count("controller_panics_total", &[("name", row)]);
    None
}

async fn work<K: Key>(
    context: Context,
    row: &'static str,
    queue: WorkQueue<K>,
    hands: Arc<Hands>,
    reconcile: fn(&K, &World, Timestamp) -> Vec<Action>,
) {
    while let Some(key) = queue.take().await {
        let turn = Turn { hands: &hands, key: key.to_string().into() };
        let is_visible = tokio::select! {
            biased;
            is_visible = hands.own.visible(&turn.key, PATIENCE) => is_visible,
            () = context.stopped() => return,
        };
        if !is_visible {
            tracing::warn!(controller = row, key = &*turn.key, "what was written is not seen yet");
            queue.add_after(key.clone(), AGAIN);
            continue;
        }
        let decided = decide(&context, row, || reconcile(&key, &hands.world, context.now()));
        let Some(actions) = decided else {
            queue.add_rate_limited(key.clone());
            continue;
        };
        match turn.run(actions).await {
            Ok(again) => {
                queue.forget(&key);
                if let Some(after) = again {
                    queue.add_after(key.clone(), after);
                }
            }
            Err(status) => {
                tracing::debug!(key = &*turn.key, failure = status.message, "to be tried again");
                queue.add_rate_limited(key.clone());
            }
        }
    }
}

/// How a row says what wakes it. A clone says it to the same row.
#[derive(Clone)]
pub struct Watching<K: Key = NamespacedName> {
    pub world: World,
    queue: WorkQueue<K>,
    /// The first list of everything that the row reads.
    waits: Waits,
}

#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl Waits {
    fn add<T: Send + Sync + 'static>(&self, informer: &Informer<T>) {
        let informer = informer.clone();
        let wait = async move { informer.synced().await }.boxed();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }

    fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Key> Watching<K> {
    /// A change of such an object wakes these keys.
    pub fn each<T: Form>(
        &self,
        keys: impl Fn(&World, &Change<T>) -> Vec<K> + Send + Sync + 'static,
    ) {
        self.on(&self.world.informer::<T>(), keys);
    }

    /// The same for what `T` makes of any collection.
    pub fn each_of<T: Keep>(
        &self,
        of: Collection,
        keys: impl Fn(&World, &Change<T>) -> Vec<K> + Send + Sync + 'static,
    ) {
        self.on(&self.world.keep::<T>(of), keys);
    }

    fn on<T: Send + Sync + 'static>(
        &self,
        informer: &Informer<T>,
        keys: impl Fn(&World, &Change<T>) -> Vec<K> + Send + Sync + 'static,
    ) {
        self.waits.add(informer);
        let (world, queue) = (self.world.clone(), self.queue.clone());
        informer.on_change(move |change| {
            keys(&world, change).into_iter().for_each(|key| queue.add(key));
        });
    }

    /// Read, but no reason to act.
    pub fn reads<T: Form>(&self) {
        self.waits.add(&self.world.informer::<T>());
    }
}

impl Watching {
    /// A change of such an object wakes its own key.
    pub fn objects<T: Form>(&self) {
        self.each::<T>(|_, change| vec![change.key.clone()]);
    }

    /// A change of a `T` wakes its controller; one of a `T` that has none, each owner that would
    /// adopt it.
    pub fn owned<T: Form, O: Form>(&self, selector: fn(&O) -> Selector) {
        self.reads::<O>();
        self.each::<T>(move |world, change| {
            let mut keys = Vec::new();
            for object in change.old.iter().chain(&change.new) {
                let owners = object.metadata().owner_references.as_deref();
                match owner::controller_of(owners) {
                    Some(owner) if is_a::<O>(&owner.api_version, &owner.kind) => {
                        keys.push(NamespacedName::new(&change.key.namespace, &owner.name));
                    }
                    Some(_) => {}
                    None => {
                        keys.extend(adopters(world, &**object, &change.key.namespace, selector))
                    }
                }
            }
            keys.dedup();
            keys
        });
    }
}

/// The same group and kind, whatever the version.
pub fn is_a<O: Form>(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group == O::GROUP && kind == O::KIND
}

/// Those who would have an object that nobody controls.
pub fn adopters<T: Form, O: Form>(
    world: &World,
    object: &T,
    namespace: &str,
    selector: fn(&O) -> Selector,
) -> Vec<NamespacedName> {
    let owners = world.informer::<O>();
    let read = owners.read();
    let candidates = read.in_namespace(namespace);
    let labels = &object.metadata().labels;
    candidates
        .filter(|(_, owner)| selector(owner).matches(labels))
        .map(|(key, _)| key.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_written;
    use expect_test::expect;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    /// Breaks off at one node, and at the others writes.
    const CONTROLLER: Controller = Controller {
        name: "brittle-controller",
        account: "",
        workers: 1,
        watch: |on: &Watching| on.objects::<Node>(),
        reconcile: |key, world, _| {
            assert_ne!(&*key.name, "bad", "this is what the test is about");
            let node = world.get::<Node>(key);
            let made = node
                .map(|node| ConfigMap { metadata: node.metadata.clone(), ..ConfigMap::default() });
            made.iter().map(Action::ensure).collect()
        },
    };

    #[test]
    fn a_decision_that_breaks_off_stops_nobody_else() {
        check_written(
            &CONTROLLER,
            "node bad\n node good\n node other",
            expect![[r#"
                create configmaps good
                create configmaps other
            "#]],
        );
    }
}
