//! What pods that are there say about others: each rule once, with the rows whose pods have it.
//!
//! Pods of one ReplicaSet all have the same rules. To ask every pod of a cluster about each new one is
//! slow; here a rule is asked once, however many pods have it.
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Others must not be near.
    KeepsAway,
    /// It must be near others.
    Near,
    /// It would rather be near, or, if less than nothing, far.
    Prefers(i64),
}

pub struct Rule {
    pub term: PodTerm,
    pub kind: Kind,
    /// Rows, and how many of their pods have the rule.
    pub rows: BTreeMap<usize, u32>,
}

#[derive(Default)]
pub struct Terms {
    rules: HashMap<(Kind, u64), Vec<Rule>>,
}

impl Terms {
    pub fn all(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn pod_changed(&mut self, slot: usize, pod: &PodInfo, is_there: bool) {
        let wishes = &pod.wishes;
        let away = wishes.anti_affinity.iter().map(|term| (Kind::KeepsAway, term));
        let near = wishes.affinity.iter().map(|term| (Kind::Near, term));
        let preferred =
            wishes.preferred_pods.iter().map(|(weight, term)| (Kind::Prefers(*weight), term));
        for (kind, term) in away.chain(near).chain(preferred) {
            match is_there {
                true => self.add(kind, term, slot),
                false => self.remove(kind, term, slot),
            }
        }
    }

    fn add(&mut self, kind: Kind, term: &PodTerm, slot: usize) {
        let alike = self.rules.entry((kind, term.hash)).or_default();
        let at = alike.iter().position(|rule| rule.term == *term).unwrap_or_else(|| {
            alike.push(Rule { term: term.clone(), kind, rows: BTreeMap::new() });
            alike.len() - 1
        });
        *alike[at].rows.entry(slot).or_default() += 1;
    }

    fn remove(&mut self, kind: Kind, term: &PodTerm, slot: usize) {
        let key = (kind, term.hash);
        let Some(alike) = self.rules.get_mut(&key) else { return };
        if let Some(rule) = alike.iter_mut().find(|rule| rule.term == *term)
            && let Some(count) = rule.rows.get_mut(&slot)
        {
            *count -= 1;
            if *count == 0 {
                rule.rows.remove(&slot);
            }
        }
        alike.retain(|rule| !rule.rows.is_empty());
        if alike.is_empty() {
            self.rules.remove(&key);
        }
    }
}
