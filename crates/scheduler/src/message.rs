//! Why a pod fits nowhere, in upstream's words and order (`framework.FitError`).
use crate::filter::Refusal;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default, Clone)]
pub struct Unfit {
    nodes: usize,
    /// What stopped it before any node was asked; empty: nothing did.
    pub hopeless: String,
    reasons: BTreeMap<Cow<'static, str>, usize>,
    counted: usize,
    /// What came of the attempt to make room.
    pub preemption: String,
}

impl Unfit {
    pub fn new(nodes: usize) -> Unfit {
        Unfit { nodes, ..Unfit::default() }
    }

    pub fn count(&mut self, refused: &[(usize, Refusal)]) {
        for (_, refusal) in refused {
            for reason in &refusal.reasons {
                *self.reasons.entry(reason.clone()).or_default() += 1;
            }
        }
        self.counted += refused.len();
    }

    /// What is said of nodes that nothing was said of.
    pub fn absent(&mut self, reason: &'static str) {
        let rest = self.nodes.saturating_sub(self.counted);
        if rest > 0 {
            *self.reasons.entry(reason.into()).or_default() += rest;
            self.counted = self.nodes;
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if !self.hopeless.is_empty() {
            write!(f, " {}.", self.hopeless)?;
        } else if !self.reasons.is_empty() {
            let counted = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
            let mut lines: Vec<_> = counted.collect();
            // By their text, numbers and all: "10 …" comes before "2 …".
            lines.sort();
            write!(f, " {}.", lines.join(", "))?;
        }
        match self.preemption.is_empty() {
            true => Ok(()),
            false => write!(f, " {}", self.preemption),
        }
    }
}
