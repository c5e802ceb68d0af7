//! Why each node was not for a pod, at its last attempt, for all pods that wait. Bounded: pods that
//! were not tried for longest are forgotten first.
use crate::cluster::Cluster;
use crate::filter::Refusal;
use crate::node::NodeInfo;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Nodes of all pods together.
const LARGEST: usize = 1 << 20;

#[derive(Default)]
pub struct Reasons {
    by_pod: HashMap<Box<str>, Attempt>,
    by_age: BTreeMap<u64, Box<str>>,
    attempts: u64,
    nodes: usize,
}

/// One attempt that came to nothing.
pub struct Attempt {
    number: u64,
    pub at: Timestamp,
    /// Texts, each once.
    texts: Vec<Cow<'static, str>>,
    /// Nodes and what was said of them, by their text's place.
    said: Vec<(Arc<NodeInfo>, u16)>,
}

impl Attempt {
    /// Nodes, and a reason of each.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said.iter().map(|(node, text)| (&*node.name, &*self.texts[usize::from(*text)]))
    }
}

impl Reasons {
    pub fn of(&self, uid: &str) -> Option<&Attempt> {
        self.by_pod.get(uid)
    }

    pub fn keep(
        &mut self,
        uid: &str,
        cluster: &Cluster,
        refused: Vec<(usize, Refusal)>,
        at: Timestamp,
    ) {
        self.remove(uid);
        let mut places: HashMap<Cow<'static, str>, u16> = HashMap::new();
        let (mut texts, mut said) = (Vec::new(), Vec::new());
        for (slot, refusal) in refused {
            for reason in refusal.reasons {
                let place = match places.get(&reason) {
                    Some(place) => *place,
                    None => {
                        let Ok(place) = u16::try_from(texts.len()) else { continue };
                        texts.push(reason.clone());
                        places.insert(reason, place);
                        place
                    }
                };
                said.push((cluster.row(slot).node.clone(), place));
            }
        }
        self.attempts += 1;
        self.nodes += said.len();
        self.by_age.insert(self.attempts, uid.into());
        let number = self.attempts;
        self.by_pod.insert(uid.into(), Attempt { number, at, texts, said });
        while self.nodes > LARGEST
            && let Some((_, oldest)) = self.by_age.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    pub fn remove(&mut self, uid: &str) {
        if let Some(attempt) = self.by_pod.remove(uid) {
            self.nodes -= attempt.said.len();
            self.by_age.remove(&attempt.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{engine, now, put};

    #[test]
    fn what_was_said_of_each_node_is_kept_until_the_pod_has_one() {
        let mut engine = engine("node a cpu=1\nnode b unschedulable=true\npod p cpu=2");
        engine.next(now()).expect("an attempt");
        let attempt = engine.reasons.of("p-uid").expect("it is kept");
        let mut said: Vec<_> = attempt.nodes().collect();
        said.sort_unstable();
        assert_eq!(said, [("a", "Insufficient cpu"), ("b", "node(s) were unschedulable")]);
        put(&mut engine, "node c");
        engine.next(now()).expect("another");
        assert!(engine.reasons.of("p-uid").is_none());
    }
}
