//! Programs beside the scheduler that have a say in its decisions: what they are asked, and what they
//! may answer. How they are reached is the driver's matter.
use crate::pod::PodInfo;
use futures_util::future::BoxFuture;
use std::collections::HashMap;

pub trait Extenders: Send + Sync {
    /// Somebody has a say about nodes of this pod.
    fn filters(&self, pod: &PodInfo) -> bool;
    /// Somebody compares nodes for this pod.
    fn prioritizes(&self, pod: &PodInfo) -> bool;
    /// Somebody has a say about who goes for this pod.
    fn preempts(&self, pod: &PodInfo) -> bool;

    /// Those of the nodes that will do, and why others will not. An error fails the attempt.
    fn filter<'a>(&'a self, pod: &'a PodInfo, nodes: Names) -> BoxFuture<'a, Filtered>;
    /// What to add to a node's score. Who does not answer has nothing to say.
    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: Names,
    ) -> BoxFuture<'a, HashMap<Box<str>, i64>>;
    /// Which of the proposals to make room will do, and whose going they take.
    fn preempt<'a>(
        &'a self,
        pod: &'a PodInfo,
        proposals: Vec<Proposal>,
    ) -> BoxFuture<'a, Result<Vec<Proposal>, String>>;
}

pub type Names = Vec<Box<str>>;
pub type Filtered = Result<Verdicts, String>;

#[derive(Debug, Default, PartialEq)]
pub struct Verdicts {
    pub fitting: Names,
    pub failed: Vec<Failed>,
}

#[derive(Debug, PartialEq)]
pub struct Failed {
    pub node: Box<str>,
    pub reason: String,
    /// Pods that go may change it.
    pub preemption_helps: bool,
}

/// Room on a node, if these pods go.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub node: Box<str>,
    pub victims: Vec<Box<str>>,
    pub violations: i64,
}

/// Nobody else has a say.
pub struct Nobody;

impl Extenders for Nobody {
    fn filters(&self, _: &PodInfo) -> bool {
        false
    }

    fn prioritizes(&self, _: &PodInfo) -> bool {
        false
    }

    fn preempts(&self, _: &PodInfo) -> bool {
        false
    }

    fn filter<'a>(&'a self, _: &'a PodInfo, fitting: Names) -> BoxFuture<'a, Filtered> {
        Box::pin(std::future::ready(Ok(Verdicts { fitting, failed: Vec::new() })))
    }

    fn prioritize<'a>(&'a self, _: &'a PodInfo, _: Names) -> BoxFuture<'a, HashMap<Box<str>, i64>> {
        Box::pin(std::future::ready(HashMap::new()))
    }

    fn preempt<'a>(
        &'a self,
        _: &'a PodInfo,
        proposals: Vec<Proposal>,
    ) -> BoxFuture<'a, Result<Vec<Proposal>, String>> {
        Box::pin(std::future::ready(Ok(proposals)))
    }
}
