//! Worlds as text, and what a row decides in them.
//!
//! A line is a kind, a name (`other/web` in another namespace than `default`), and what is
//! peculiar: `replicas=2` (a word of [`SHORT`]), or any path (`metadata.labels.app=web`).
use crate::Settings;
use crate::action::Action;
use crate::driver::{Controller, Key, Row};
use crate::world::World;
use api::kinds::Scope;
use api::names::NamespacedName;
use client::{ApiResource, Client, Context, Informers};
use expect_test::Expect;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::fmt::Write;

/// The moment at which every test decides.
pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a moment")
}

/// What a row decides for each key (`web`, `other/web`), as lines.
pub fn check_row(row: &Controller, world: &str, keys: &[&str], expect: Expect) {
    let keys: Vec<_> = keys.iter().map(|key| key_of(key)).collect();
    check_keys(row, world, &keys, expect);
}

pub fn key_of(text: &str) -> NamespacedName {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    NamespacedName::new(namespace, name)
}

pub fn check_keys<K: Key>(row: &Controller<K>, text: &str, keys: &[K], expect: Expect) {
    let mut out = String::new();
    in_world(row, text, |world, _| {
        for key in keys {
            for action in (row.reconcile)(key, world, now()) {
                show(&action, &mut out);
            }
        }
    });
    expect.assert_eq(&out);
}

/// What a row decides for one key after the other, remembering what it asks to be remembered.
pub fn check_turns(row: &Controller, text: &str, keys: &[&str], expect: Expect) {
    let mut out = String::new();
    in_world(row, text, |world, _| {
        for key in keys {
            for action in (row.reconcile)(&key_of(key), world, now()) {
                match action {
                    Action::Remember(memo) => world.remember(memo),
                    action => show(&action, &mut out),
                }
            }
        }
    });
    expect.assert_eq(&out);
}

/// Lets a function look at a world as the row sees it.
pub fn in_world<K: Key>(
    row: &Controller<K>,
    text: &str,
    look: impl FnOnce(&World, &client::testing::World),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let context = Context::simulated(now(), 1);
        let server = client::testing::World::new(&context);
        put(&server, text);
        let informers = Informers::new(&context, server.source());
        let world = World::new(informers, settings(), started());
        drop(row.start(&context, &server.client(), &world));
        world.synced().await;
        look(&world, &server);
    });
}

pub fn settings() -> Settings {
    Settings {
        root_ca: "PEM".to_owned(),
        cluster_cidr: "10.244.0.0/16".to_owned(),
        signers: crate::csr::Signers { authority: Some(authority()), ..Default::default() },
        approve_of_nodes: true,
        servers: vec![[203, 0, 113, 1].into()],
        policy_check: Some(crate::policy_status::testing::check()),
        token_signer: Some(crate::tokens::Signer(std::sync::Arc::new(|claims| {
            Some(format!("token of {}", claims["sub"]))
        }))),
        ..Settings::default()
    }
}

/// A CA, the same in every world of a test.
pub fn authority() -> crate::csr::Authority {
    static MADE: std::sync::LazyLock<crate::csr::Authority> = std::sync::LazyLock::new(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        crate::csr::Authority { certificate, key: key.serialize_pem() }
    });
    MADE.clone()
}

/// A CertificateSigningRequest for an organization and a name, with these other names.
pub fn request_line(
    name: &str,
    signer: &str,
    (organization, subject): (&str, &str),
    names: &[&str],
    usages: &str,
) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !organization.is_empty() {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(rcgen::DnType::CommonName, subject);
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let text = serde_json::to_value(k8s_openapi::ByteString(pem.into_bytes())).expect("text");
    let usages = json!(usages.split(',').collect::<Vec<_>>()).to_string().replace(' ', "\\u0020");
    let text = text.as_str().unwrap_or_default();
    format!(
        "certificatesigningrequest {name} spec.signerName={signer} spec.request={text} spec.usages={usages}"
    )
}

fn started() -> Timestamp {
    now() - SignedDuration::from_hours(1)
}

/// Runs a row on a world until it rests; what it wrote, line by line.
pub fn check_run<K: Key>(row: &'static Controller<K>, text: &str, expect: Expect) {
    check_lines(&run(row, text), expect);
}

/// The same in the order of the alphabet, for worlds in which several keys are worked on side by side.
/// Where one line must come before another, [`check_before`] says so.
pub fn check_written<K: Key>(row: &'static Controller<K>, text: &str, expect: Expect) {
    let mut written = run(row, text);
    written.sort();
    check_lines(&written, expect);
}

fn check_lines(written: &[String], expect: Expect) {
    expect.assert_eq(&written.iter().map(|line| format!("{line}\n")).collect::<String>());
}

/// What a row writes before something else.
pub fn check_before<K: Key>(row: &'static Controller<K>, text: &str, first: &str, then: &str) {
    let written = run(row, text);
    let place = |line: &str| {
        let found = written.iter().position(|one| one == line);
        found.unwrap_or_else(|| panic!("{line:?} is not among {written:?}"))
    };
    assert!(place(first) < place(then), "{written:?}");
}

fn run<K: Key>(row: &'static Controller<K>, text: &str) -> Vec<String> {
    let mut written = Vec::new();
    after(row, text, |_| {}, |server| written = server.written());
    written
}

/// Runs a row until it rests, in a world that is prepared further; then looks at what came of it.
pub fn after<K: Key>(
    row: &'static Controller<K>,
    text: &str,
    prepare: impl FnOnce(&client::testing::World),
    look: impl FnOnce(&client::testing::World),
) {
    let begin = |server: &client::testing::World| {
        put(server, text);
        prepare(server);
    };
    run_row(row, settings(), begin, None::<fn(&client::testing::World)>, look);
}

/// The same with other settings; what changes, changes once the row rests for the first time.
pub fn after_with<K: Key>(
    row: &'static Controller<K>,
    settings: Settings,
    text: &str,
    change: impl FnOnce(&client::testing::World),
    look: impl FnOnce(&client::testing::World),
) {
    run_row(row, settings, |server| put(server, text), Some(change), look);
}

fn run_row<K: Key>(
    row: &'static Controller<K>,
    settings: Settings,
    begin: impl FnOnce(&client::testing::World),
    change: Option<impl FnOnce(&client::testing::World)>,
    look: impl FnOnce(&client::testing::World),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let context = Context::simulated(now(), 1);
        let server = client::testing::World::new(&context);
        begin(&server);
        let world = World::new(Informers::new(&context, server.source()), settings, started());
        let client = Client::new(server.source());
        tokio::spawn(row.start(&context, &client, &world));
        // The clock is paused: this passes when everybody else waits.
        let rest = std::time::Duration::from_millis(900);
        tokio::time::sleep(rest).await;
        if let Some(change) = change {
            change(&server);
            tokio::time::sleep(rest).await;
        }
        context.stop();
        look(&server);
    });
}

pub fn put(server: &client::testing::World, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let object = parse(line);
        let of = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        server.put_tree(&resource(&of("apiVersion"), &of("kind")), object);
    }
}

/// Kinds that are not served by default, and so have no row: some control loops can be asked for.
const OTHERS: &[(&str, &str, &str, &str, Scope)] = &[
    ("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", Scope::Namespaced),
    ("internal.apiserver.k8s.io", "v1alpha1", "storageversions", "StorageVersion", Scope::Cluster),
    (
        "resource.k8s.io",
        "v1alpha3",
        "resourcepoolstatusrequests",
        "ResourcePoolStatusRequest",
        Scope::Cluster,
    ),
];

fn resources() -> impl Iterator<Item = ApiResource> {
    let rows = api::kinds::RESOURCES.iter().filter(|row| row.is_stored()).map(ApiResource::from);
    let custom = |it: &(&str, &str, &str, &str, Scope)| {
        let (group, version, plural, kind, scope) = *it;
        ApiResource::custom(group, version, plural, kind, scope)
    };
    rows.chain(OTHERS.iter().map(custom))
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let mut all = resources();
    all.find(|row| row.api_version() == api_version && row.kind == kind).expect("a kind we have")
}

fn parse(line: &str) -> Value {
    let mut words = line.split_whitespace();
    let kind = words.next().expect("a kind");
    let row = resources().find(|row| row.kind.to_lowercase() == kind);
    let row = row.unwrap_or_else(|| panic!("no kind is called {kind}"));
    let key = words.next().expect("a name");
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let mut object = json!({ "apiVersion": row.api_version(), "kind": row.kind,
        "metadata": { "name": name, "uid": format!("{name}-uid"), "generation": 1,
            "creationTimestamp": "2026-01-01T11:00:00Z" } });
    if row.is_namespaced() {
        object["metadata"]["namespace"] = namespace.into();
    }
    base(&row.kind, &mut object);
    for word in words {
        let (path, value) = word.split_once('=').unwrap_or((word, ""));
        set(&mut object, path, value);
    }
    object
}

/// What objects of a kind cannot be without. Those of workloads select `app=web`.
fn base(kind: &str, object: &mut Value) {
    let pod = json!({ "containers": [{ "name": "c", "image": "i" }] });
    let labels = json!({ "app": "web" });
    match kind {
        "Pod" => {
            object["metadata"]["labels"] = labels;
            object["spec"] = pod;
            object["status"] = json!({ "phase": "Running" });
        }
        "ReplicaSet" | "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => {
            object["metadata"]["labels"] = labels.clone();
            object["spec"] = json!({ "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod } });
        }
        _ => {}
    }
}

/// Words that stand for a path.
const SHORT: &[(&str, &str)] = &[
    ("replicas", "spec.replicas"),
    ("node", "spec.nodeName"),
    ("phase", "status.phase"),
    ("ip", "status.podIP"),
    ("label", "metadata.labels"),
    ("annotation", "metadata.annotations"),
];

fn set(object: &mut Value, word: &str, value: &str) {
    let ago = |seconds: &str| {
        let seconds = seconds.parse().expect("seconds");
        (now() - SignedDuration::from_secs(seconds)).to_string()
    };
    match word {
        // Ready since so many seconds.
        "ready" => {
            let since = ago(if value.is_empty() { "600" } else { value });
            object["status"]["conditions"] =
                json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]);
        }
        "age" => object["metadata"]["creationTimestamp"] = ago(value).into(),
        "deleting" => object["metadata"]["deletionTimestamp"] = ago("5").into(),
        "finalizers" => {
            let all: Vec<_> = value.split(',').collect();
            object["metadata"]["finalizers"] = json!(all);
        }
        // `owner=replicaset/web`, `owner=replicaset/web/uid-of-another`
        "owner" | "dependson" | "blocks" => {
            let mut parts = value.split('/');
            let kind = parts.next().unwrap_or_default();
            let name = parts.next().expect("the owner's name");
            let uid = parts.next().map_or_else(|| format!("{name}-uid"), str::to_owned);
            let row = api::kinds::RESOURCES.iter().find(|row| row.singular() == kind);
            let row = row.expect("the owner's kind");
            let owner = json!({ "apiVersion": row.api_version(), "kind": row.kind, "name": name,
                "uid": uid, "controller": word == "owner", "blockOwnerDeletion": word != "dependson" });
            let owners = &mut object["metadata"]["ownerReferences"];
            match owners.as_array_mut() {
                Some(owners) => owners.push(owner),
                None => *owners = json!([owner]),
            }
        }
        _ => {
            // `annotation:a.b/c`: what follows the colon is one key.
            let (head, tail) = word.split_once(':').unwrap_or((word, ""));
            let path = SHORT.iter().find(|(short, _)| *short == head).map_or(head, |(_, p)| p);
            let mut at = object;
            for step in path.split('.').chain((!tail.is_empty()).then_some(tail)) {
                at = &mut at[step];
            }
            *at = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        }
    }
}

/// What a row writes, with one part of each object.
pub fn check_tree(row: &Controller, text: &str, key: &str, part: &str, expect: Expect) {
    let mut out = String::new();
    in_world(row, text, |world, _| {
        for action in (row.reconcile)(&key_of(key), world, now()).into_iter().flat_map(each) {
            let _ = writeln!(out, "{action}");
            if let Action::Create(crate::action::Create { object, .. })
            | Action::Update { object, .. } = &action
            {
                let _ = writeln!(out, "  {}", object[part]);
            }
        }
    });
    expect.assert_eq(&out);
}

/// What a row makes of slices: each with its labels, ports and endpoints.
pub fn check_slices(row: &Controller, text: &str, key: &str, expect: Expect) {
    let mut out = String::new();
    in_world(row, text, |world, _| {
        for action in (row.reconcile)(&key_of(key), world, now()).into_iter().flat_map(each) {
            let _ = writeln!(out, "{action}");
            let (Action::Create(crate::action::Create { object, .. })
            | Action::Update { object, .. }) = &action
            else {
                continue;
            };
            let _ = writeln!(out, "  {} {}", object["addressType"], object["metadata"]["labels"]);
            let _ = writeln!(out, "  {}", object["ports"]);
            for endpoint in object["endpoints"].as_array().into_iter().flatten() {
                let _ = writeln!(out, "  {endpoint}");
            }
        }
    });
    expect.assert_eq(&out);
}

/// Those that are done side by side are shown one by one.
fn each(action: Action) -> Vec<Action> {
    match action {
        Action::Several { actions, .. } => actions,
        action => vec![action],
    }
}

/// An action with what matters of its object.
fn show(action: &Action, out: &mut String) {
    if let Action::Several { actions, .. } = action {
        return actions.iter().for_each(|action| show(action, out));
    }
    let _ = match action {
        Action::Update { part: "status" | "finalize", object, .. } => {
            let (status, spec) = (&object["status"], &object["spec"]["finalizers"]);
            let shown = if spec.is_array() { spec } else { status };
            writeln!(out, "{action} {shown}")
        }
        Action::Update { object, .. } if object["spec"]["replicas"].is_i64() => {
            writeln!(out, "{action} replicas={}", object["spec"]["replicas"])
        }
        Action::Create(create) if create.object["spec"]["replicas"].is_i64() => {
            writeln!(out, "{action} replicas={}", create.object["spec"]["replicas"])
        }
        _ => writeln!(out, "{action}"),
    };
}
