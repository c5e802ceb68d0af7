//! What webhooks made of stored objects, so that each is converted once, however many lists and watches show it.
//!
//! Upstream has a watch cache for each version of a definition, and converts what comes into it
//! (`apiserver/pkg/storage/cacher`). Here one cache has what is stored, and this is beside it: bounded, and the
//! eldest goes first. Whoever reads one object has it converted anew, there as here, and so sees at once what a
//! webhook that was mended makes of it.
use crate::state::corrupt::Corrupt;
use api::custom::Definition;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Key, KeyValue};
use tokio::sync::watch;

/// What all of them may weigh.
const MOST: usize = 32 << 20;
/// What one weighs beside its bytes.
const REST: usize = 256;

/// One version of an object, in one version of its definition as that is now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Id {
    key: Key,
    revision: u64,
    version: u64,
    generation: i64,
}

type Outcome = Result<Arc<KeyValue>, Corrupt>;

#[derive(Default)]
pub struct Memo(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    known: HashMap<Id, Arc<KeyValue>>,
    /// In the order in which they came.
    order: VecDeque<Id>,
    weight: usize,
    /// What somebody asks a webhook for at this moment.
    asked: HashMap<Id, watch::Receiver<Option<Outcome>>>,
}

/// How somebody comes to a converted object.
pub enum Turn<'m> {
    Known(Arc<KeyValue>),
    /// Another asks for it.
    Theirs(Waiting),
    Ours(Lead<'m>),
}

/// For what another asks the webhook.
pub struct Waiting(watch::Receiver<Option<Outcome>>);

/// The duty to tell what came of a conversion. Dropped, nobody has asked.
pub struct Lead<'m> {
    memo: &'m Memo,
    id: Id,
    told: watch::Sender<Option<Outcome>>,
}

impl Memo {
    /// What is known of an object in a definition's version.
    pub fn known(&self, stored: &KeyValue, definition: &Definition) -> Option<Arc<KeyValue>> {
        self.lock().known.get(&id(stored, definition)).cloned()
    }

    pub fn turn(&self, stored: &KeyValue, definition: &Definition) -> Turn<'_> {
        let id = id(stored, definition);
        let mut inner = self.lock();
        if let Some(known) = inner.known.get(&id) {
            return Turn::Known(known.clone());
        }
        if let Some(asked) = inner.asked.get(&id) {
            return Turn::Theirs(Waiting(asked.clone()));
        }
        let (told, asked) = watch::channel(None);
        inner.asked.insert(id.clone(), asked);
        Turn::Ours(Lead { memo: self, id, told })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(stored: &KeyValue, definition: &Definition) -> Id {
    Id {
        key: stored.key.clone(),
        revision: stored.mod_revision,
        version: definition.version.id,
        generation: definition.family.generation,
    }
}

impl Inner {
    fn keep(&mut self, id: &Id, converted: Arc<KeyValue>) {
        self.weight += weight(&converted);
        match self.known.insert(id.clone(), converted) {
            Some(before) => self.weight -= weight(&before),
            None => self.order.push_back(id.clone()),
        }
        while self.weight > MOST
            && let Some(eldest) = self.order.pop_front()
        {
            let gone = self.known.remove(&eldest);
            self.weight -= gone.map_or(0, |gone| weight(&gone));
        }
    }
}

fn weight(one: &KeyValue) -> usize {
    one.value.len() + REST
}

impl Waiting {
    /// None: whoever asked went away.
    pub async fn outcome(mut self) -> Option<Outcome> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Lead<'_> {
    /// A failure is told to those who wait, and kept for nobody else.
    pub fn tell(self, outcome: Outcome) {
        if let Ok(converted) = &outcome {
            self.memo.lock().keep(&self.id, converted.clone());
        }
        self.told.send_replace(Some(outcome));
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.memo.lock().asked.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Slot;

    fn object(name: &str, size: usize) -> Arc<KeyValue> {
        Arc::new(KeyValue {
            key: name.into(),
            value: vec![b'x'; size].into(),
            create_revision: 1,
            mod_revision: 2,
            version: 1,
            lease: Default::default(),
            slot: Slot::default(),
        })
    }

    fn number(name: u32) -> Id {
        Id { key: name.to_string().as_str().into(), revision: 2, version: 3, generation: 1 }
    }

    #[test]
    fn the_eldest_go_when_there_are_too_many() {
        let mut inner = Inner::default();
        let size = MOST / 4 - REST;
        for name in 0..6 {
            inner.keep(&number(name), object("a", size));
            inner.keep(&number(name), object("a", size));
        }
        let mut left: Vec<u32> = (0..6).filter(|n| inner.known.contains_key(&number(*n))).collect();
        left.sort_unstable();
        assert_eq!((left, inner.order.len(), inner.known.len()), (vec![2, 3, 4, 5], 4, 4));
        assert_eq!(inner.weight, MOST);
    }

    #[tokio::test]
    async fn those_who_wait_hear_what_came_of_it_or_that_nobody_asks() {
        let memo = Memo::default();
        let lead = || {
            let (told, asked) = watch::channel(None);
            memo.lock().asked.insert(number(1), asked.clone());
            (Lead { memo: &memo, id: number(1), told }, Waiting(asked))
        };
        let (gone, waiting) = lead();
        drop(gone);
        assert!(waiting.outcome().await.is_none());
        assert!(memo.lock().asked.is_empty());
        let (failed, waiting) = lead();
        failed.tell(Err(Corrupt::new(&object("a", 1), "no")));
        assert!(matches!(waiting.outcome().await, Some(Err(_))));
        assert!(memo.lock().known.is_empty() && memo.lock().asked.is_empty());
        let (done, waiting) = lead();
        let converted = object("a", 1);
        done.tell(Ok(converted.clone()));
        let heard = waiting.outcome().await.expect("heard").expect("converted");
        assert!(Arc::ptr_eq(&heard, &converted));
        assert!(memo.lock().known.contains_key(&number(1)) && memo.lock().asked.is_empty());
    }
}
