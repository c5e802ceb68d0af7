//! Why each node was not for a pod, at its last attempt, for all pods that wait. Bounded: pods that
//! were not tried for longest are forgotten first.
use crate::cluster::Cluster;
use crate::filter::Refusal;
use crate::node::NodeInfo;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The table, for whoever wants to know why a pod waits; a clone is the same table.
#[derive(Debug, Clone, Default)]
pub struct Pending(Arc<Mutex<Reasons>>);

/// What was said of nodes at a pod's last attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub at: Timestamp,
    /// Each reason with the names of the nodes that it was said of.
    pub nodes: BTreeMap<String, Vec<String>>,
}

impl Pending {
    /// `None`: the pod was not tried, has a node, or was not tried for so long that it is forgotten.
    pub fn of(&self, uid: &str) -> Option<Said> {
        self.with(|reasons| {
            let attempt = reasons.by_pod.get(uid)?;
            let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (node, reason) in attempt.nodes() {
                nodes.entry(reason.to_owned()).or_default().push(node.to_owned());
            }
            nodes.values_mut().for_each(|names| names.sort_unstable());
            Some(Said { at: attempt.at, nodes })
        })
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Reasons) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Nodes of all pods together.
const LARGEST: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Reasons {
    by_pod: HashMap<Box<str>, Attempt>,
    by_age: BTreeMap<u64, Box<str>>,
    attempts: u64,
    nodes: usize,
}

/// One attempt that came to nothing.
#[derive(Debug)]
struct Attempt {
    number: u64,
    at: Timestamp,
    /// Texts, each once.
    texts: Vec<Cow<'static, str>>,
    /// Nodes and what was said of them, by their text's place.
    said: Vec<(Arc<NodeInfo>, u16)>,
}

impl Attempt {
    /// Nodes, and a reason of each.
    fn nodes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said.iter().map(|(node, text)| (&*node.name, &*self.texts[usize::from(*text)]))
    }
}

impl Reasons {
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
        let said = engine.pending.of("p-uid").expect("it is kept").nodes;
        let said: Vec<_> =
            said.iter().map(|(reason, nodes)| (&**reason, nodes.join(","))).collect();
        assert_eq!(
            said,
            [("Insufficient cpu", "a".to_owned()), ("node(s) were unschedulable", "b".to_owned())]
        );
        put(&mut engine, "node c");
        engine.next(now()).expect("another");
        assert!(engine.pending.of("p-uid").is_none());
    }
}
