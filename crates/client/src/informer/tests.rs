use super::*;
use crate::resource::ApiResource;
use crate::testing::World;
use api::object::Object;
use api::status::Status;
use expect_test::{Expect, expect};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use std::time::Duration;

/// What somebody keeps who wants little.
struct Small {
    node: String,
}

impl Keep for Small {
    fn keep(object: &Arc<Object>) -> Result<Arc<Small>, api::codec::DecodeError> {
        let tree = object.tree()?;
        Ok(Arc::new(Small { node: tree["spec"]["nodeName"].as_str().unwrap_or("").to_owned() }))
    }
}

fn pods() -> ApiResource {
    ApiResource::of::<Pod>()
}

fn put(world: &World, name: &str, node: &str) {
    let (namespace, name) = name.split_once('/').unwrap();
    world.put_tree(
        &pods(),
        json!({ "metadata": { "namespace": namespace, "name": name, "labels": { "node": node } },
            "spec": { "nodeName": node } }),
    );
}

/// A world, an informer of its pods, and a journal of what it told.
struct Watched {
    world: World,
    context: Context,
    pods: Informer<Small>,
    journal: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    async fn new(of: Collection, before: impl FnOnce(&World)) -> Watched {
        let context = Context::simulated(Timestamp::UNIX_EPOCH, 1);
        let world = World::new(&context);
        before(&world);
        let pods = Informer::<Small>::start(&context, world.source(), of);
        let journal: Arc<Mutex<Vec<String>>> = Arc::default();
        note(&pods, &journal);
        pods.synced().await;
        Watched { world, context, pods, journal }
    }

    /// What was told until the informer was as far as the world.
    async fn check(&self, want: Expect) {
        self.world.bookmark();
        self.pods.seen(self.world.revision()).await;
        let lines = std::mem::take(&mut *self.journal.lock());
        want.assert_eq(&lines.join("\n"));
    }
}

fn note(pods: &Informer<Small>, journal: &Arc<Mutex<Vec<String>>>) {
    let (store, journal) = (pods.clone(), journal.clone());
    pods.on_change(move |change| {
        let node = |kept: &Option<Arc<Small>>| kept.as_ref().map_or("-".into(), |k| k.node.clone());
        let initial = if change.initial { " at first" } else { "" };
        let Change { key, old, new, .. } = change;
        // A handler sees the store as it is after the change.
        assert_eq!(store.get(key).is_some(), new.is_some() || store.get(key).is_some());
        journal.lock().push(format!("{key} {} → {}{initial}", node(old), node(new)));
    });
}

#[tokio::test(start_paused = true)]
async fn objects_come_first_and_changes_after() {
    let watched = Watched::new(Collection::all(pods()), |world| put(world, "a/one", "x")).await;
    watched.check(expect!["a/one - → x at first"]).await;
    put(&watched.world, "a/two", "");
    put(&watched.world, "a/two", "y");
    watched.world.remove::<Pod>("a", "one");
    watched
        .check(expect![[r#"
            a/two - → 
            a/two  → y
            a/one x → -"#]])
        .await;
    // Who comes late hears of what there is, once.
    note(&watched.pods, &watched.journal);
    watched.check(expect!["a/two - → y at first"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_object_of_the_same_name_is_no_change() {
    let watched = Watched::new(Collection::all(pods()), |world| put(world, "a/one", "x")).await;
    watched.world.hold_watches(true);
    watched.world.remove::<Pod>("a", "one");
    put(&watched.world, "a/one", "y");
    watched.world.compact();
    watched.world.hold_watches(false);
    watched
        .check(expect![[r#"
            a/one - → x at first
            a/one x → -
            a/one - → y"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_found_by_comparing() {
    let watched = Watched::new(Collection::all(pods()), |world| {
        ["a/gone", "a/same", "b/new"].iter().for_each(|name| put(world, name, "x"));
    })
    .await;
    watched
        .check(expect![[r#"
        a/gone - → x at first
        a/same - → x at first
        b/new - → x at first"#]])
        .await;
    watched.world.hold_watches(true);
    watched.world.remove::<Pod>("a", "gone");
    put(&watched.world, "b/new", "y");
    put(&watched.world, "c/born", "z");
    watched.world.compact();
    watched.world.hold_watches(false);
    watched
        .check(expect![[r#"
            b/new x → y
            c/born - → z
            a/gone x → -"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_begun_where_it_was() {
    let watched = Watched::new(Collection::all(pods()), |world| put(world, "a/one", "x")).await;
    watched.check(expect!["a/one - → x at first"]).await;
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let asked_of = asked.clone();
    watched.world.refuse(move |line| {
        asked_of.lock().push(line.to_owned());
        // The first two attempts fail.
        (asked_of.lock().len() <= 2).then(|| Status::service_unavailable("not now"))
    });
    // A watch that had lasted is no failure.
    tokio::time::sleep(Duration::from_secs(2)).await;
    watched.world.end_watches();
    put(&watched.world, "a/two", "y");
    let began = tokio::time::Instant::now();
    watched.check(expect!["a/two - → y"]).await;
    assert_eq!(*asked.lock(), ["watch pods", "watch pods", "watch pods"]);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(2400) && waited < Duration::from_secs(6), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_lists_is_listed() {
    for refusal in [
        Status::bad_request("sendInitialEvents is forbidden for watch"),
        // What upstream's says on an etcd that tells no progress, however often it is asked.
        Status::internal_error("the required storage feature RequestWatchProgress is disabled"),
    ] {
        let context = Context::simulated(Timestamp::UNIX_EPOCH, 1);
        let world = World::new(&context);
        for i in 0..1203 {
            put(&world, &format!("a/{i:04}"), "x");
        }
        let mut first = true;
        world.refuse(move |line| {
            let refused = line == "watch pods" && std::mem::take(&mut first);
            refused.then(|| refusal.clone())
        });
        let pods = Informer::<Small>::start(&context, world.source(), Collection::all(pods()));
        pods.synced().await;
        assert_eq!(pods.read().len(), 1203);
        put(&world, "b/more", "x");
        pods.seen(world.revision()).await;
        assert_eq!(pods.read().len(), 1204);
    }
}

#[tokio::test(start_paused = true)]
async fn indexes_follow() {
    let watched = Watched::new(Collection::all(pods()), |world| {
        put(world, "a/one", "x");
        put(world, "b/two", "x");
    })
    .await;
    let by_node = watched.pods.index("node", |_, pod: &Small| vec![pod.node.clone()]);
    assert_eq!(watched.pods.index("node", |_, _| Vec::<String>::new()), by_node);
    let on = |node: &str| {
        let read = watched.pods.read();
        read.by(by_node, node).map(|(key, _)| key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(on("x"), ["a/one", "b/two"]);
    put(&watched.world, "a/one", "y");
    watched.world.remove::<Pod>("b", "two");
    watched.pods.seen(watched.world.revision()).await;
    assert_eq!((on("x"), on("y")), (vec![], vec!["a/one".to_owned()]));
    let read = watched.pods.read();
    assert_eq!(read.values(by_node).collect::<Vec<_>>(), ["y"]);
    assert_eq!(read.in_namespace("a").count(), 1);
    assert_eq!(read.in_namespace("b").count(), 0);
    assert_eq!(read.find("a", "one").unwrap().node, "y");
}

#[tokio::test(start_paused = true)]
async fn what_leaves_a_selection_is_gone() {
    let fields = api::selector::field::Selector::equals("spec.nodeName", "x");
    let of = Collection::all(pods()).with_fields(fields);
    let watched = Watched::new(of, |world| {
        put(world, "a/one", "x");
        put(world, "a/other", "y");
    })
    .await;
    put(&watched.world, "a/one", "y");
    put(&watched.world, "a/other", "x");
    watched
        .check(expect![[r#"
            a/one - → x at first
            a/one x → -
            a/other - → x"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn informers_are_shared_by_what_they_keep() {
    let context = Context::simulated(Timestamp::UNIX_EPOCH, 1);
    let world = World::new(&context);
    let watches = Arc::new(Mutex::new(0));
    let counted = watches.clone();
    world.refuse(move |line| {
        *counted.lock() += u32::from(line.starts_with("watch"));
        None
    });
    let informers = Informers::new(&context, world.source());
    let (one, same) = (informers.of::<Pod>(), informers.of::<Pod>());
    let small = informers.keep::<Small>(Collection::all(pods()));
    let other = informers.of::<ConfigMap>();
    informers.synced().await;
    assert!(Arc::ptr_eq(&one.shared, &same.shared));
    assert!(small.has_synced() && other.has_synced());
    assert_eq!(*watches.lock(), 3);
    put(&world, "a/one", "x");
    one.seen(world.revision()).await;
    let pod = one.get(&NamespacedName::new("a", "one")).unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("x"));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_context() {
    let watched = Watched::new(Collection::all(pods()), |_| ()).await;
    watched.context.stop();
    tokio::task::yield_now().await;
    put(&watched.world, "a/one", "x");
    let seen = tokio::time::timeout(
        Duration::from_secs(3600),
        watched.pods.seen(watched.world.revision()),
    );
    assert!(seen.await.is_err());
}
