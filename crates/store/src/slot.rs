//! What a reader makes of a value, shared by all who read the same version of it.
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Room beside a value for one thing that readers make of it, and for a mark. The store never looks into
/// it, and it keeps nothing alive: what is in it goes with the last who holds it.
#[derive(Default)]
pub struct Slot {
    held: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
    mark: AtomicU64,
}

impl Slot {
    /// What somebody made of this value and still holds; made now, if there is no such thing.
    pub fn share<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut slot = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = slot.as_ref().and_then(Weak::upgrade).map(Arc::downcast::<T>);
        if let Some(Ok(held)) = held {
            return held;
        }
        let made = Arc::new(make());
        let shared: Arc<dyn Any + Send + Sync> = made.clone();
        *slot = Some(Arc::downgrade(&shared));
        made
    }

    /// A reader has found something out about the value, which never changes: the number, that is not 0,
    /// says what.
    pub fn mark(&self, number: u64) {
        self.mark.store(number, Relaxed);
    }

    pub fn is_marked(&self, number: u64) -> bool {
        self.mark.load(Relaxed) == number
    }
}

/// A copy of a value is another value: it begins with nothing.
impl Clone for Slot {
    fn clone(&self) -> Slot {
        Slot::default()
    }
}

/// What readers make of values says nothing of the values.
impl PartialEq for Slot {
    fn eq(&self, _: &Slot) -> bool {
        true
    }
}

impl Eq for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_a_value_is_shared_while_somebody_holds_it() {
        let slot = Slot::default();
        let first = slot.share(|| 1_u32);
        assert!(Arc::ptr_eq(&first, &slot.share(|| 2_u32)));
        let copy = slot.clone();
        assert_eq!(*copy.share(|| 3_u32), 3, "a copy shares nothing");
        drop(first);
        assert_eq!(*slot.share(|| 4_u32), 4);
        assert_eq!(*slot.share(|| "other"), "other", "the last kind of thing counts");
    }
}
