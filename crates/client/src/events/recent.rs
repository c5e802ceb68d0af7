//! A map that forgets what has not been used for longest.
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Upstream's bound for what is remembered about events.
const MOST: usize = 4096;

pub(super) struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
    most: usize,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0, most: MOST }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// The value of a key, made if there is none; it is now the one used last.
    pub fn use_(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if !self.entries.contains_key(key)
            && self.entries.len() >= self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let (used, value) = self.entries.entry(key.clone()).or_insert_with(|| (0, make()));
        self.by_use.remove(used);
        *used = self.uses;
        self.by_use.insert(self.uses, key.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut recent = Recent { most: 2, ..Recent::default() };
        for (key, value) in [("a", 1), ("b", 2), ("a", 9), ("c", 3)] {
            recent.use_(&key, || value);
        }
        let has =
            |recent: &Recent<&str, i32>, key| recent.entries.get(key).map(|(_, value)| *value);
        assert_eq!(["a", "b", "c"].map(|key| has(&recent, key)), [Some(1), None, Some(3)]);
        assert_eq!(recent.by_use.len(), 2);
    }
}
