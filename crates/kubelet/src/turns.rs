//! Work on one thing that has to wait for other work on it, told apart by the thing's name.
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// Names that somebody is at work on or waits for; a turn ends when its guard is dropped.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub async fn wait(&self, name: &str) -> OwnedMutexGuard<()> {
        self.of(name).lock_owned().await
    }

    /// The turn, if nobody has it.
    pub fn try_now(&self, name: &str) -> Option<OwnedMutexGuard<()>> {
        self.of(name).try_lock_owned().ok()
    }

    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(name.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_each_name() {
        let turns = Turns::default();
        let first = turns.wait("a").await;
        assert!(turns.try_now("a").is_none() && turns.try_now("b").is_some());
        drop(first);
        assert!(turns.try_now("a").is_some());
    }
}
