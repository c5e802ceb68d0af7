//! What a watch tells, before anybody writes it down: the cache's events as a selector sees them, and
//! bookmarks, until the server stops or the watch has fallen behind.
use crate::call::Call;
use crate::extend::definitions;
use crate::server::ApiServer;
use crate::state::keys::status_of;
use crate::state::selection::Selection;
use api::kinds::ResourceRef;
use api::meta::EventType;
use api::status::Status;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use store::KeyValue;
use store::cache::{At, CacheWatch, Item};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, Sleep};

/// How often a client that asked for bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lives when the client does not say.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// How long a watch goes on when its definition has changed or is gone: until what was deleted before
/// it has been told.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// One thing that a watch tells.
pub enum Told {
    /// The object after what happened to it; the last there was, if it is gone.
    Object(EventType, Arc<KeyValue>),
    Bookmark {
        revision: u64,
        /// All that there was at first has been told.
        initial_end: bool,
    },
}

pub struct Telling {
    api: ApiServer,
    resource: ResourceRef,
    selection: Selection,
    events: CacheWatch,
    bookmarks: bool,
    initial_end: bool,
    /// One timer for the whole watch: events in between must not put a bookmark off.
    bookmark: Interval,
    changes: watch::Receiver<u64>,
    /// When it ends by itself.
    over: Pin<Box<Sleep>>,
}

impl Telling {
    pub async fn start(api: &ApiServer, call: &Call) -> Result<Telling, Status> {
        let options = call.watch_options()?;
        let selection = Selection::new(&options.selectors, &call.resource)?.named(&call.name);
        let cache = api.cache(&call.resource).await?;
        let wanted = selection.in_cache(&call.resource, &call.namespace);
        let (version, initial_end) = (options.version?, options.initial_events);
        let failed = |error| status_of(error, &call.resource);
        let events = match version {
            Some(version) if version > 0 && !initial_end => {
                cache.watch(wanted, version).map_err(failed)?
            }
            _ => {
                let at = match version {
                    None => At::Latest,
                    Some(0) => At::Any,
                    Some(version) => At::NotOlderThan(version),
                };
                cache.watch_list(wanted, at).await.map_err(failed)?
            }
        };
        let lifetime = options.lifetime.unwrap_or(LIFETIME);
        let first = Instant::now() + BOOKMARK_EVERY;
        Ok(Telling {
            api: api.clone(),
            resource: call.resource.clone(),
            selection,
            events,
            bookmarks: options.bookmarks,
            initial_end,
            bookmark: tokio::time::interval_at(first, BOOKMARK_EVERY),
            changes: api.registry_changes(),
            over: Box::pin(tokio::time::sleep(lifetime)),
        })
    }

    /// The next things to tell, together; nothing at the end. A failure is the last thing.
    pub async fn next(&mut self) -> Option<Result<Vec<Told>, Status>> {
        let api = self.api.clone();
        loop {
            let told = tokio::select! {
                biased;
                () = api.stopping() => return None,
                () = &mut self.over => return None,
                Ok(()) = self.changes.changed(), if self.resource.definition.is_some() => {
                    if !self.is_served() {
                        let end = (Instant::now() + LAST_WORDS).min(self.over.deadline());
                        self.over.as_mut().reset(end);
                    }
                    continue;
                }
                _ = self.bookmark.tick(), if self.bookmarks => {
                    let revision = self.events.bookmark();
                    vec![Told::Bookmark { revision, initial_end: false }]
                }
                item = self.events.next() => match item {
                    Ok(item) => {
                        match definitions::converted_item(&api, &self.resource, item).await {
                            Ok(item) => self.told(item),
                            Err(status) => return Some(Err(status)),
                        }
                    }
                    Err(error) => return Some(Err(status_of(error, &self.resource))),
                },
            };
            if !told.is_empty() {
                return Some(Ok(told));
            }
        }
    }

    /// Whether objects are still what they were when the watch began.
    fn is_served(&self) -> bool {
        let Some(mine) = &self.resource.definition else { return true };
        let registry = self.api.registry();
        let resource = &self.resource;
        let found = registry.find(resource.group, resource.version, resource.plural);
        let now = found.and_then(|row| row.definition.as_ref());
        now.is_some_and(|now| {
            (&now.family.uid, now.family.generation) == (&mine.family.uid, mine.family.generation)
        })
    }

    fn told(&self, item: Item) -> Vec<Told> {
        match item {
            Item::Initial(objects) => {
                let wanted = objects.iter().filter(|stored| self.selection.matches(stored));
                wanted.map(|stored| Told::Object(EventType::Added, stored.clone())).collect()
            }
            Item::InitialEnd(revision) if self.initial_end => {
                vec![Told::Bookmark { revision, initial_end: true }]
            }
            Item::InitialEnd(_) => Vec::new(),
            Item::Events(batch) => {
                batch.events.iter().filter_map(|event| self.event(event)).collect()
            }
        }
    }

    /// An object that comes to match is added, one that no longer does is deleted.
    fn event(&self, event: &store::Event) -> Option<Told> {
        let was = event.prev.as_ref().filter(|prev| self.selection.matches(prev));
        let is = !event.is_delete() && self.selection.matches(&event.kv);
        Some(match (was, is) {
            (None, true) => Told::Object(EventType::Added, event.kv.clone()),
            (Some(_), true) => Told::Object(EventType::Modified, event.kv.clone()),
            (Some(prev), false) => {
                // The last state, at the revision at which it went.
                let last = KeyValue { mod_revision: event.revision(), ..KeyValue::clone(prev) };
                Told::Object(EventType::Deleted, Arc::new(last))
            }
            (None, false) => return None,
        })
    }
}
