//! One of the two clusters: what is done to it, and what is there when it rests.
use super::compare::Objects;
use super::plain::{Names, plain, plain_text};
use super::script::Act;
use api::kinds::{self, RESOURCES};
use client::https::{Config, Https};
use client::source::{Ask, Call, Collection, Patch, Write};
use client::{ApiResource, Client, Context, Informer, Informers, Object, Source};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing has changed for so long.
const QUIET: Duration = Duration::from_millis(1500);
/// Something changes all the time.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
/// How long something is waited for that a story is about.
const UNTIL: Duration = Duration::from_secs(150);

/// Kinds that are looked at; `kubectl` names.
const KINDS: &[&str] = &[
    "pods",
    "services",
    "endpoints",
    "replicationcontrollers",
    "configmaps",
    "serviceaccounts",
    "resourcequotas",
    "persistentvolumeclaims",
    "persistentvolumes",
    "namespaces",
    "secrets",
    "replicasets",
    "deployments",
    "statefulsets",
    "daemonsets",
    "controllerrevisions",
    "jobs",
    "cronjobs",
    "endpointslices",
    "poddisruptionbudgets",
    "horizontalpodautoscalers",
    "certificatesigningrequests",
    "events",
    "clusterroles",
    "resourceclaims",
];

pub struct Server {
    client: Client,
    informers: Vec<(String, Informer<Object>)>,
    changed: Arc<Mutex<HashMap<String, Instant>>>,
    /// Lives as long as the server is looked at.
    _context: Context,
}

impl Server {
    pub async fn reach(kubeconfig: &Path) -> Result<Server, String> {
        let context = Context::new();
        let config =
            Config::from_kubeconfig(kubeconfig, None).map_err(|error| error.to_string())?;
        let source: Arc<dyn Source> = Arc::new(
            Https::new(&context, config.for_component("differential"))
                .map_err(|error| error.to_string())?,
        );
        let informers = Informers::new(&context, source.clone());
        let changed: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
        let follow = |name: &&str| {
            let row = row(name).ok_or(format!("no kind is called {name}"))?;
            let informer = informers.objects(Collection::all(row));
            let changed = changed.clone();
            informer.on_change(move |change| {
                let place = place(&change.key.namespace, &change.key.name);
                changed.lock().expect("no panic").insert(place, Instant::now());
            });
            Ok((row.kind.to_owned(), informer))
        };
        let informers_of: Result<Vec<_>, String> = KINDS.iter().map(follow).collect();
        informers.synced().await;
        let client = Client::new(source);
        Ok(Server { client, informers: informers_of?, changed, _context: context })
    }

    /// Does it; what the server said, in a word.
    pub async fn act(&self, story: &str, act: &Act) -> String {
        match act {
            Act::Pause(time) => {
                #[allow(clippy::disallowed_methods, reason = "the story says so")]
                tokio::time::sleep(*time).await;
                String::new()
            }
            Act::Until { resource, name, place, value } => {
                let begun = Instant::now();
                loop {
                    let found = self.find(story, resource, name).await;
                    let is =
                        found.as_ref().and_then(|it| it.pointer(place)).unwrap_or(&Value::Null);
                    if is == value {
                        return String::new();
                    }
                    if begun.elapsed() > UNTIL {
                        return format!("{resource} {name} {place} is {is}, not {value}");
                    }
                    #[allow(clippy::disallowed_methods, reason = "the cluster is another's")]
                    tokio::time::sleep(LOOK).await;
                }
            }
            Act::Do(calls) => {
                let mut said = String::new();
                for call in calls {
                    if let Err(status) = self.client.source().call(call.call(story)).await {
                        said += &format!("{:?} ", status.reason);
                    }
                }
                said
            }
        }
    }

    async fn find(&self, story: &str, resource: &str, name: &str) -> Option<Value> {
        let row = row(resource)?;
        let namespace = if row.is_namespaced() { story } else { "" };
        let name = if row.is_namespaced() { name.to_owned() } else { cluster_name(story, name) };
        self.client.get_in(row, namespace, &name, "").await.ok()?.tree().ok()
    }

    /// What a story has there, once nothing changes any more.
    pub async fn rest(&self, story: &str) -> Objects {
        let begun = Instant::now();
        loop {
            let last = self.changed.lock().expect("no panic").get(story).copied();
            let is_quiet = last.is_none_or(|last| last.elapsed() > QUIET);
            if (is_quiet && begun.elapsed() > QUIET) || begun.elapsed() > PATIENCE {
                return self.objects(story);
            }
            #[allow(clippy::disallowed_methods, reason = "the cluster is another's")]
            tokio::time::sleep(LOOK).await;
        }
    }

    fn objects(&self, story: &str) -> Objects {
        let all = self.of(story);
        let mut names = Names::default();
        all.iter().for_each(|(_, object)| names.learn(object));
        let mut objects = Objects::new();
        for (kind, object) in all.iter().filter(|(kind, _)| kind != "Event") {
            let object = plain(object, &names);
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            objects.entry((kind.clone(), name)).or_default().push(object);
        }
        objects
    }

    /// What was told: about whom, how, why and by whom.
    pub fn events(&self, story: &str) -> BTreeSet<String> {
        let all = self.of(story);
        let mut names = Names::default();
        all.iter().for_each(|(_, object)| names.learn(object));
        // Of objects that are gone, events say the names.
        let mut told = BTreeSet::new();
        for (_, event) in all.iter().filter(|(kind, _)| kind == "Event") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let of = &event["involvedObject"];
            let component = match text(&event["source"]["component"]) {
                component if component.is_empty() => text(&event["reportingComponent"]),
                component => component,
            };
            let message = plain_text(&text(&event["message"]), &names);
            // The scheduler is the same; what is combined depends on how fast things went.
            if component == "default-scheduler" || message.starts_with("(combined from") {
                continue;
            }
            told.insert(format!(
                "{component} {} {} {}: {}",
                text(&of["kind"]),
                text(&event["type"]),
                text(&event["reason"]),
                endless(&message)
            ));
        }
        told
    }

    fn of(&self, story: &str) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        for (kind, informer) in &self.informers {
            for (key, object) in informer.read().iter() {
                if place(&key.namespace, &key.name) == story
                    && let Ok(tree) = object.tree()
                {
                    all.push((kind.clone(), tree));
                }
            }
        }
        all
    }
}

/// `Created pod: web-5d-abcde` of a pod that is gone: its last part is chance's.
fn endless(message: &str) -> String {
    let words = message.split(' ').map(|word| {
        let (word, quote) = word.strip_suffix('"').map_or((word, ""), |word| (word, "\""));
        let told = told(word);
        format!("{told}{quote}")
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A word, whose ends may be chance's.
fn told(word: &str) -> String {
    let is_of_chance = |part: &str| part.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    let is_hash = |part: &str| matches!(part.len(), 8..=10) && is_of_chance(part);
    let (head, tail) = word.rsplit_once('-').unwrap_or((word, ""));
    let is_minute = tail.len() == 8 && tail.chars().all(|c| c.is_ascii_digit());
    let is_chance = tail.len() == 5 && is_of_chance(tail);
    // `web-HASH-abcde`, or the set `web-HASH` itself.
    match (is_chance || is_minute, head.rsplit_once('-')) {
        (true, Some((set, hash))) if is_hash(hash) => format!("{set}-HASH-*"),
        (true, _) => format!("{head}-*"),
        (false, _) if is_hash(tail) => format!("{head}-HASH"),
        _ => word.to_owned(),
    }
}

/// The story that an object is of. What is of no namespace begins with the story's name.
fn place(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.split_once('.').map_or(name, |(story, _)| story).to_owned(),
        namespace => namespace.to_owned(),
    }
}

pub fn cluster_name(story: &str, name: &str) -> String {
    if name.is_empty() { story.to_owned() } else { format!("{story}.{name}") }
}

pub fn row(plural: &str) -> Option<&'static kinds::Resource> {
    RESOURCES.iter().find(|row| row.plural == plural && row.is_stored())
}

/// A request of a story, whatever its namespace will be.
pub struct Asked {
    pub resource: &'static str,
    pub name: String,
    pub subresource: &'static str,
    pub verb: Verb,
}

pub enum Verb {
    Create(Value),
    Merge(Value),
    Delete(Option<client::source::Propagation>),
}

impl Asked {
    fn call(&self, story: &str) -> Call {
        let row = row(self.resource).expect("a kind of ours");
        let is_namespaced = row.is_namespaced();
        let name = if is_namespaced { self.name.clone() } else { cluster_name(story, &self.name) };
        let named = |body: &Value| {
            // `$story` stands for the namespace.
            let text = body.to_string().replace("$story", story);
            let mut body: Value = serde_json::from_str(&text).expect("JSON");
            if body["metadata"]["generateName"].is_null() {
                body["metadata"]["name"] = name.clone().into();
            }
            body
        };
        let write = Write::managed_by("differential");
        let ask = match &self.verb {
            Verb::Create(body) => Ask::Create(named(body), write),
            Verb::Merge(patch) => Ask::Patch(Patch::Merge(patch.clone()), write),
            Verb::Delete(propagation) => {
                let options =
                    client::source::Delete { propagation: *propagation, ..Default::default() };
                Ask::Delete(options)
            }
        };
        let is_new = matches!(self.verb, Verb::Create(_));
        Call {
            resource: ApiResource::from(row),
            namespace: if is_namespaced { story.to_owned() } else { String::new() },
            name: if is_new { String::new() } else { name },
            subresource: self.subresource.into(),
            ask,
        }
    }
}
