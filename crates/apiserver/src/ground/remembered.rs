//! Answers of others that hold for a while, so that they are not asked for every request.
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// As many as upstream keeps; a flood of different questions must not eat the memory.
const MOST: usize = 8192;

pub struct Remembered<K, V> {
    answers: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Remembered { answers: Mutex::new(HashMap::new()) }
    }
}

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    pub fn get(&self, key: &K) -> Option<V> {
        let answers = self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (value, until) = answers.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    pub fn put(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut answers = self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = Instant::now();
        if answers.len() >= MOST {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, (value, now + ttl));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_time_and_a_flood_is_bounded() {
        let answers = Remembered::default();
        answers.put(0, "no", Duration::ZERO);
        assert_eq!(answers.get(&0), None);
        for i in 0..3 * MOST {
            answers.put(i, "yes", Duration::from_secs(60));
        }
        assert_eq!(answers.get(&(3 * MOST - 1)), Some("yes"));
        assert!(answers.answers.lock().expect("no panic").len() <= MOST);
    }
}
