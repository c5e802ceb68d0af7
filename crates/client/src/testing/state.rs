//! What is in the world, and how it came to be.
use super::{Refusal, done, event};
use crate::context::Context;
use crate::resource::ApiResource;
use crate::source::{Ask, At, Call, Collection, Delete, Event, List, Page, Patch, Said, WatchFrom};
use api::names::{self, NamespacedName};
use api::object::Object;
use api::patch::{json_patch, merge, strategic};
use api::status::{OPTIMISTIC_LOCK, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) struct State {
    context: Context,
    pub revision: u64,
    objects: BTreeMap<Key, Arc<Object>>,
    history: Vec<Past>,
    /// Nothing before this is known.
    compacted: u64,
    pub generation: u64,
    pub bookmarks: u64,
    pub held: bool,
    pub written: Vec<String>,
    pub refusal: Option<Refusal>,
    /// What is read by path.
    pub pages: BTreeMap<String, Value>,
}

/// Versions of a kind are one resource here.
type Key = (String, NamespacedName);

struct Past {
    revision: u64,
    resource: String,
    kind: Kind,
    old: Option<Arc<Object>>,
    new: Arc<Object>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// How far a watch is.
pub(super) struct Cursor {
    of: Collection,
    /// What comes before the changes.
    initial: Vec<Event>,
    revision: u64,
    generation: u64,
    bookmarks: u64,
}

impl State {
    pub fn new(context: &Context) -> State {
        State {
            context: context.clone(),
            revision: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            generation: 0,
            bookmarks: 0,
            held: false,
            written: Vec::new(),
            refusal: None,
            pages: BTreeMap::new(),
        }
    }

    pub fn get(&self, of: &ApiResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.get(&(of.to_string(), NamespacedName::new(namespace, name))).cloned()
    }

    pub fn select(&self, of: &Collection) -> Vec<Arc<Object>> {
        let resource = of.resource.to_string();
        let all = self.objects.iter().filter(|((other, _), _)| *other == resource);
        all.map(|(_, object)| object).filter(|object| matches(of, object)).cloned().collect()
    }

    pub fn list(&self, of: &Collection, page: &Page) -> List {
        let mut items = self.select(of);
        let skip = page.continue_token.parse().unwrap_or(0);
        items.drain(..skip.min(items.len()));
        let limit =
            if page.limit == 0 || page.at == At::Any { usize::MAX } else { page.limit as usize };
        let rest = items.len().saturating_sub(limit);
        items.truncate(limit);
        let continue_token =
            if rest > 0 { (skip + items.len()).to_string() } else { String::new() };
        let remaining_item_count = (rest > 0).then_some(rest as i64);
        List { items, revision: self.revision, continue_token, remaining_item_count }
    }

    pub fn cursor(&self, of: Collection, from: &WatchFrom) -> Result<Cursor, Status> {
        let mut initial = Vec::new();
        let mut revision = from.revision;
        if from.initial_events || revision == 0 {
            initial.extend(self.select(&of).into_iter().map(Event::Added));
            revision = self.revision;
        }
        if from.initial_events {
            initial.push(Event::Bookmark { revision, initial_events_end: true });
        }
        if revision < self.compacted {
            return Err(Status::expired(format!("too old resource version: {revision}")));
        }
        initial.reverse();
        let (generation, bookmarks) = (self.generation, self.bookmarks);
        Ok(Cursor { of, initial, revision, generation, bookmarks })
    }

    /// What a watch hears next: nothing yet, an event, its end (`Ok(None)`), or an error.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Result<Option<Event>, Status>> {
        if let Some(event) = cursor.initial.pop() {
            return Some(Ok(Some(event)));
        }
        if cursor.generation != self.generation {
            return Some(Ok(None));
        }
        if cursor.revision < self.compacted {
            let text = format!("too old resource version: {}", cursor.revision);
            return Some(Err(Status::expired(text)));
        }
        if self.held {
            return None;
        }
        let resource = cursor.of.resource.to_string();
        let next = self.history.partition_point(|past| past.revision <= cursor.revision);
        for past in &self.history[next..] {
            cursor.revision = past.revision;
            if past.resource != resource {
                continue;
            }
            let was = past.old.as_ref().is_some_and(|old| matches(&cursor.of, old));
            let is = past.kind != Kind::Deleted && matches(&cursor.of, &past.new);
            let kind = match (was, is) {
                (false, false) => continue,
                (false, true) => Kind::Added,
                (true, true) => Kind::Modified,
                (true, false) => Kind::Deleted,
            };
            return Some(Ok(Some(event(kind, past.new.clone()))));
        }
        if cursor.bookmarks != self.bookmarks {
            cursor.bookmarks = self.bookmarks;
            let revision = self.revision;
            return Some(Ok(Some(Event::Bookmark { revision, initial_events_end: false })));
        }
        None
    }

    pub fn compact(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.history.clear();
    }

    pub fn put(&mut self, of: &ApiResource, mut tree: Value) -> Arc<Object> {
        let text = |tree: &Value, field: &str| {
            tree["metadata"][field].as_str().unwrap_or_default().to_owned()
        };
        let (namespace, name) = (text(&tree, "namespace"), text(&tree, "name"));
        let old = self.get(of, &namespace, &name);
        let metadata = &mut tree["metadata"];
        if metadata["uid"].as_str().is_none_or(str::is_empty) {
            let uid = old.as_ref().map(|old| old.uid().to_owned());
            metadata["uid"] = uid.unwrap_or_else(|| self.context.uuid()).into();
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = api::time::format_timestamp(self.context.now()).into();
        }
        self.store(of, tree, old)
    }

    fn store(
        &mut self,
        of: &ApiResource,
        mut tree: Value,
        old: Option<Arc<Object>>,
    ) -> Arc<Object> {
        self.revision += 1;
        tree["metadata"]["resourceVersion"] = self.revision.to_string().into();
        tree["apiVersion"] = of.api_version().into();
        tree["kind"] = (&*of.kind).into();
        let object = Arc::new(Object::from_tree(&tree).expect("it has metadata"));
        let key = (of.to_string(), NamespacedName::of(&object));
        self.objects.insert(key, object.clone());
        let kind = if old.is_some() { Kind::Modified } else { Kind::Added };
        self.remember(of, kind, old, object.clone());
        object
    }

    pub fn remove(&mut self, of: &ApiResource, namespace: &str, name: &str) {
        let key = (of.to_string(), NamespacedName::new(namespace, name));
        let Some(old) = self.objects.remove(&key) else { return };
        self.revision += 1;
        let mut tree = old.tree().expect("it is JSON");
        tree["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let last = Arc::new(Object::from_tree(&tree).expect("it has metadata"));
        self.remember(of, Kind::Deleted, Some(old), last);
    }

    fn remember(
        &mut self,
        of: &ApiResource,
        kind: Kind,
        old: Option<Arc<Object>>,
        new: Arc<Object>,
    ) {
        let (revision, resource) = (self.revision, of.to_string());
        self.history.push(Past { revision, resource, kind, old, new });
    }

    pub fn act(&mut self, context: &Context, call: Call) -> Result<Said, Status> {
        let Call { resource: of, namespace, name, subresource, ask } = call;
        let missing = || Status::not_found(of.group_resource(), &name);
        let old = self.get(&of, &namespace, &name);
        let object = match ask {
            Ask::Get if subresource == "scale" => scale(&of, &*old.ok_or_else(missing)?)?,
            Ask::Get => old.ok_or_else(missing)?,
            Ask::Create(body, _) if !name.is_empty() => {
                // `binding` has a meaning here; other subresources are only written down.
                let old = old.ok_or_else(missing)?;
                if subresource == "binding" {
                    let mut tree = old.tree().map_err(Status::internal_error)?;
                    tree["spec"]["nodeName"] = body["target"]["name"].clone();
                    self.store(&of, tree, Some(old));
                }
                return Ok(done());
            }
            Ask::Create(mut body, _) => {
                let metadata = &mut body["metadata"];
                if of.is_namespaced() {
                    metadata["namespace"] = namespace.clone().into();
                }
                if metadata["name"].as_str().is_none_or(str::is_empty) {
                    let base = metadata["generateName"].as_str().unwrap_or_default();
                    metadata["name"] = names::generate_name(base, context.number()).into();
                }
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                if self.get(&of, &namespace, &name).is_some() {
                    return Err(Status::already_exists(of.group_resource(), &name));
                }
                body["metadata"]["uid"] = Value::Null;
                body["metadata"]["generation"] = 1.into();
                self.put(&of, body)
            }
            Ask::Update(body, _) => {
                let old = old.ok_or_else(missing)?;
                self.change(&of, old, &subresource, body)?
            }
            Ask::Patch(patch, _) => {
                let Some(old) = old else {
                    let Patch::Apply(mut body) = patch else { return Err(missing()) };
                    body["metadata"]["name"] = name.clone().into();
                    if of.is_namespaced() {
                        body["metadata"]["namespace"] = namespace.into();
                    }
                    return Ok(Said::Object(self.put(&of, body)));
                };
                let body = patched(&of, &old, patch)?;
                self.change(&of, old, &subresource, body)?
            }
            Ask::Delete(options) => {
                let old = old.ok_or_else(missing)?;
                return self.delete(&of, &old, &options);
            }
            Ask::DeleteCollection(options, selectors) => {
                let (labels, fields) = *selectors;
                let all = Collection { resource: of.clone(), namespace, labels, fields };
                for object in self.select(&all) {
                    self.delete(&of, &object, &options)?;
                }
                return Ok(done());
            }
        };
        Ok(Said::Object(object))
    }

    /// What is left out of a subresource's write stays as it is; what changes nothing writes
    /// nothing.
    fn change(
        &mut self,
        of: &ApiResource,
        old: Arc<Object>,
        subresource: &str,
        body: Value,
    ) -> Result<Arc<Object>, Status> {
        let before = old.tree().map_err(Status::internal_error)?;
        let asked = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !asked.is_empty() && asked != old.resource_version() {
            return Err(Status::conflict(of.group_resource(), old.name(), OPTIMISTIC_LOCK));
        }
        let asked = body["metadata"]["uid"].as_str().unwrap_or_default();
        if !asked.is_empty() && asked != old.uid() {
            let text = format!(
                "Precondition failed: UID in precondition: {asked}, UID in object meta: {}",
                old.uid()
            );
            return Err(Status::conflict(of.group_resource(), old.name(), text));
        }
        let mut after;
        match subresource {
            "status" => {
                after = before.clone();
                after["status"] = body["status"].clone();
            }
            "scale" => {
                after = before.clone();
                after["spec"]["replicas"] = body["spec"]["replicas"].clone();
            }
            _ => {
                after = body;
                let has_status = of.row.is_some_and(|row| row.subresource("status").is_some());
                if has_status {
                    after["status"] = before["status"].clone();
                }
                for field in [
                    "uid",
                    "creationTimestamp",
                    "generation",
                    "deletionTimestamp",
                    "namespace",
                    "name",
                ] {
                    after["metadata"][field] = before["metadata"][field].clone();
                }
            }
        }
        prune(&mut after);
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        after["apiVersion"] = of.api_version().into();
        after["kind"] = (&*of.kind).into();
        if after == before {
            return Ok(old);
        }
        if after["spec"] != before["spec"] {
            let generation = old.metadata().generation + 1;
            after["metadata"]["generation"] = generation.into();
        }
        let deleting = old.is_deleting();
        let kept = after["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let stored = self.store(of, after, Some(old));
        if deleting && !kept {
            self.remove(of, stored.namespace(), stored.name());
        }
        Ok(stored)
    }

    fn delete(
        &mut self,
        of: &ApiResource,
        old: &Arc<Object>,
        options: &Delete,
    ) -> Result<Said, Status> {
        let wanted = &options.preconditions;
        let is_another = wanted.uid.as_deref().is_some_and(|uid| uid != old.uid());
        let is_newer = wanted
            .resource_version
            .as_ref()
            .is_some_and(|version| *version != old.resource_version());
        if is_another || is_newer {
            let text = "Precondition failed";
            return Err(Status::conflict(of.group_resource(), old.name(), text));
        }
        if old.metadata().finalizers.is_empty() {
            self.remove(of, old.namespace(), old.name());
            return Ok(done());
        }
        if old.is_deleting() {
            return Ok(Said::Object(old.clone()));
        }
        let mut tree = old.tree().map_err(Status::internal_error)?;
        tree["metadata"]["deletionTimestamp"] =
            api::time::format_timestamp(self.context.now()).into();
        tree["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        Ok(Said::Object(self.store(of, tree, Some(old.clone()))))
    }
}

/// A workload's scale. Its selector is that of its labels, or the text that it has as a custom one.
fn scale(of: &ApiResource, object: &Object) -> Result<Arc<Object>, Status> {
    let tree = object.tree().map_err(Status::internal_error)?;
    let selector = match &tree["spec"]["selector"]["matchLabels"] {
        Value::Object(labels) => {
            let pairs = labels
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            pairs.collect::<Vec<_>>().join(",")
        }
        _ => tree["status"]["selector"].as_str().unwrap_or_default().to_owned(),
    };
    let scale = json!({ "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": { "name": object.name(), "namespace": object.namespace(), "uid": object.uid(),
            "resourceVersion": object.resource_version() },
        "spec": { "replicas": tree["spec"]["replicas"] },
        "status": { "replicas": tree["status"]["replicas"], "selector": selector } });
    let made = Object::from_tree(&scale).map_err(Status::internal_error);
    made.map(Arc::new)
        .map_err(|status| Status { message: format!("{of}: {}", status.message), ..status })
}

fn patched(of: &ApiResource, old: &Object, patch: Patch) -> Result<Value, Status> {
    let mut tree = old.tree().map_err(Status::internal_error)?;
    let failed = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
    match (patch, of.row) {
        (Patch::Json(operations), _) => {
            let limits = json_patch::Limits::default();
            let patch = json_patch::Patch::decode(operations, &limits).map_err(|e| failed(&e))?;
            patch.apply(tree, &limits).map_err(|error| failed(&error))
        }
        (Patch::Strategic(patch) | Patch::Apply(patch), Some(row)) => {
            strategic::merge(tree, patch, row.ty()).map_err(|error| failed(&error))
        }
        (Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply(patch), _) => {
            merge::apply(&mut tree, &patch).map_err(|error| failed(&error))?;
            Ok(tree)
        }
    }
}

/// Nulls that indexing left behind.
fn prune(tree: &mut Value) {
    for part in [&mut *tree].into_iter().filter_map(Value::as_object_mut) {
        part.retain(|_, value| !value.is_null());
    }
    if let Some(metadata) = tree["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
}

fn matches(of: &Collection, object: &Object) -> bool {
    let is_there = of.namespace.is_empty() || of.namespace == object.namespace();
    is_there
        && of.labels.matches(&object.metadata().labels)
        && (of.fields.is_everything() || {
            let tree = object.tree().unwrap_or_default();
            of.fields.matches(|path| {
                let value = path.split('.').fold(&tree, |value, field| &value[field]);
                value.as_str().map(str::to_owned)
            })
        })
}
