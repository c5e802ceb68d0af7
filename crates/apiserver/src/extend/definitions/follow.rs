//! Keeps the registry in step with the definitions in the store.
//!
//! A definition is served before it says so: the rows are there when `Established` is written, so
//! whoever has seen the condition finds its resource.
use super::definitions;
use crate::server::ApiServer;
use crate::state::following::{Change, follow};
use crate::state::objects;
use crate::state::stored;
use api::custom::accept::{self, CLEANUP, Condition, Taken};
use api::custom::{Defined, define};
use api::kinds::{Registry, Resource, ResourceRef};
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use store::KeyValue;
use store::cache::{At, Item};
use tokio::sync::Mutex;

/// Serves the definitions that there are, and follows them from then on.
pub async fn start(api: &ApiServer, clean_up: CleanUp) -> Result<(), Status> {
    let known = Known { entries: BTreeMap::new(), going: HashSet::new(), clean_up };
    let known = Arc::new(Mutex::new(known));
    // What is served when the server is ready is all that was served before.
    let there = objects::stored(api, definitions(), "", At::Latest).await?;
    known.lock().await.take(api, Item::Initial(there)).await;
    let server = api.clone();
    follow(api, &[definitions()], move |change| {
        let (api, known) = (server.clone(), known.clone());
        async move {
            let mut known = known.lock().await;
            match change {
                Change::Anew => known.refresh(&api).await,
                Change::Item(_, item) => known.take(&api, item).await,
            }
        }
    })
    .await
}

/// A definition as it was last seen.
struct Entry {
    /// Without its versions once they are compiled: a schema's tree is many times its text, and what was
    /// made of it has one.
    definition: Value,
    /// The hash of its whole `spec`.
    spec: u64,
    /// What it makes, once its names are accepted.
    defined: Option<Arc<Defined>>,
    /// It was given other names since: what it makes has to be made anew.
    is_outdated: bool,
}

impl Entry {
    fn new(definition: Value, defined: Option<Arc<Defined>>) -> Entry {
        let spec = hash_of(&definition["spec"]);
        let mut entry = Entry { definition, spec, defined, is_outdated: false };
        entry.forget_versions();
        entry
    }

    fn forget_versions(&mut self) {
        if self.defined.is_some() {
            self.definition["spec"]["versions"].take();
        }
    }

    /// Whether another state of the definition makes the same rows.
    fn makes_the_same(&self, new: &Value) -> bool {
        let old = &self.definition;
        let terminating = |definition: &Value| {
            definition["metadata"]["deletionTimestamp"].is_string()
                || accept::is_true(definition, "Terminating")
        };
        !self.is_outdated
            && uid(old) == uid(new)
            && self.spec == hash_of(&new["spec"])
            && old["status"]["acceptedNames"] == new["status"]["acceptedNames"]
            && accept::is_true(old, "Established") == accept::is_true(new, "Established")
            && terminating(old) == terminating(new)
    }
}

fn hash_of(value: &Value) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value.to_string())
}

/// Begins to delete the objects of the definition of this name and uid, which are at this home if it was
/// ever served, and then the definition.
pub type CleanUp = fn(&ApiServer, String, String, Option<Arc<Resource>>);

/// Every definition, by name.
struct Known {
    entries: BTreeMap<String, Entry>,
    /// Whose objects are being deleted, by uid.
    going: HashSet<String>,
    clean_up: CleanUp,
}

impl Known {
    async fn take(&mut self, api: &ApiServer, item: Item) {
        let mut touched = false;
        match item {
            Item::Initial(objects) => {
                for stored in objects.iter() {
                    touched |= self.put(stored);
                }
            }
            Item::Events(batch) => {
                for event in &batch.events {
                    touched |= match event.is_delete() {
                        true => self.remove(&event.kv),
                        false => self.put(&event.kv),
                    };
                }
            }
            Item::InitialEnd(_) => {}
        }
        if touched {
            self.accept(api).await;
        }
        self.clean_up(api);
    }

    /// Looks at all of them again, at once: what is there is served all the while.
    async fn refresh(&mut self, api: &ApiServer) {
        let there = match objects::stored(api, definitions(), "", At::Latest).await {
            Ok(there) => there,
            // Each of them comes again anyway.
            Err(error) => return tracing::warn!(%error, "failed to read the definitions"),
        };
        let names: HashSet<String> = there.iter().map(|stored| name_of(stored)).collect();
        self.entries.retain(|name, _| names.contains(name));
        self.accept(api).await;
        self.take(api, Item::Initial(there)).await;
    }

    fn put(&mut self, stored: &KeyValue) -> bool {
        let definition = match stored::decode(stored, definitions()) {
            Ok(definition) => definition,
            Err(error) => {
                tracing::error!(%error, key = %stored.key, "a definition cannot be read");
                return false;
            }
        };
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let old = self.entries.remove(&name);
        let same = old.filter(|old| old.makes_the_same(&definition));
        self.entries.insert(name, Entry::new(definition, same.and_then(|old| old.defined)));
        true
    }

    fn remove(&mut self, stored: &KeyValue) -> bool {
        if let Some(entry) = self.entries.remove(&name_of(stored)) {
            let uid = entry.definition["metadata"]["uid"].as_str().unwrap_or_default();
            self.going.remove(uid);
        }
        true
    }

    /// Gives names to those that wait for some, serves whoever has all of its own, and says so.
    async fn accept(&mut self, api: &ApiServer) {
        let mut said = Vec::new();
        let names: Vec<String> = self.entries.keys().cloned().collect();
        for name in &names {
            let definition = &self.entries[name].definition;
            let established = accept::is_true(definition, "Established");
            let approval = Condition::approval(definition);
            let approval = approval.filter(|approval| !approval.holds(definition));
            // Whoever has what it asks for has nothing to ask.
            if established && accept::has_all_names(definition) && approval.is_none() {
                continue;
            }
            let group = definition["spec"]["group"].as_str().unwrap_or_default();
            let others = self.entries.values().map(|entry| &entry.definition);
            let accepted = accept::accept(definition, &Taken::of(group, others));
            let (mut conditions, uid) = (accepted.conditions.to_vec(), uid(definition));
            let mut is_news = !accepted.holds(definition) || approval.is_some();
            if accepted.all_names() && !established {
                let unfit = Condition::unfit_bundle(definition);
                conditions[1] = unfit.unwrap_or_else(Condition::established);
                is_news |= !conditions[1].holds(definition);
            }
            if !is_news {
                continue;
            }
            conditions.extend(approval);
            let now = Timestamp::now();
            let say = move |definition: &mut Value| {
                definition["status"]["acceptedNames"] = accepted.names.clone();
                conditions.iter().for_each(|condition| condition.put(definition, now));
            };
            if let Some(entry) = self.entries.get_mut(name) {
                say(&mut entry.definition);
                // Whoever is served already is compiled anew when what is written now is heard of.
                entry.is_outdated = entry.defined.is_some();
            }
            said.push((name.clone(), uid, say));
        }
        self.serve(api).await;
        for (name, uid, say) in said {
            let written = objects::modify(api, definitions(), ("", &name), false, |definition| {
                if self::uid(definition) != uid {
                    return Err(Status::not_found(definitions().group_resource(), &name));
                }
                say(definition);
                Ok(())
            });
            // Whoever was faster is heard of next, and asks for the same again.
            if let Err(error) = written.await {
                tracing::warn!(%error, name, "failed to write a definition's status");
            }
        }
    }

    /// Makes the rows of all that are established, and swaps the registry if any are new.
    async fn serve(&mut self, api: &ApiServer) {
        for (name, entry) in &mut self.entries {
            let served = accept::is_true(&entry.definition, "Established");
            if !served || entry.defined.is_some() {
                continue;
            }
            match define(&entry.definition) {
                Ok(defined) => {
                    entry.defined = Some(Arc::new(defined));
                    entry.forget_versions();
                }
                Err(error) => tracing::error!(%error, name, "a definition cannot be served"),
            }
        }
        let defined = self.entries.values().filter_map(|entry| entry.defined.as_ref());
        let mut rows: Vec<ResourceRef> =
            defined.flat_map(|defined| &defined.rows).cloned().map(ResourceRef::Defined).collect();
        // The groups by name, of each the best version first.
        rows.sort_by(|a, b| {
            let versions = api::custom::compare(b.version, a.version);
            a.group.cmp(b.group).then(versions).then(a.plural.cmp(b.plural))
        });
        let before = api.registry();
        if !before.is_of(&rows) {
            api.swap_registry(Registry::new(before.generation() + 1, rows)).await;
        }
    }

    /// Begins to delete the objects of definitions that are asked to go.
    fn clean_up(&mut self, api: &ApiServer) {
        for (name, entry) in &self.entries {
            let metadata = &entry.definition["metadata"];
            let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
            let waits = finalizers.into_iter().any(|finalizer| finalizer == CLEANUP);
            if !metadata["deletionTimestamp"].is_string() || !waits {
                continue;
            }
            let uid = uid(&entry.definition);
            if !self.going.insert(uid.clone()) {
                continue;
            }
            let home = entry.defined.as_ref().map(|defined| defined.home.clone());
            (self.clean_up)(api, name.clone(), uid, home);
        }
    }
}

/// The last part of its key.
fn name_of(stored: &KeyValue) -> String {
    stored.key.to_string().rsplit('/').next().unwrap_or_default().to_owned()
}

fn uid(definition: &Value) -> String {
    definition["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
