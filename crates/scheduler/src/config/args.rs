//! What plugins are told by a profile, with upstream's defaults, compiled once.
use super::file::{
    self, BalancedAllocationArgs, DefaultPreemptionArgs, DynamicResourcesArgs,
    InterPodAffinityArgs, NodeAffinityArgs, NodeResourcesFitArgs, PodTopologySpreadArgs,
    ShapePoint, VolumeBindingArgs,
};
use super::validate;
use crate::pod::Spread;
use crate::selectors::NodeTerm;
use api::field::{ErrorList, Path};
use api::selector::label::Selector;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    pub added_affinity: AddedAffinity,
    pub fit: Fit,
    /// Resources that are to be used alike.
    pub balanced: Vec<Box<str>>,
    /// How pods are spread that do not say.
    pub default_spread: DefaultSpread,
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// Nodes that preemption looks at in earnest: a share of them, and so many at least.
    pub min_candidates_percentage: usize,
    pub min_candidates_absolute: usize,
    pub bind_timeout: Duration,
    pub storage_shape: Shape,
    /// How long devices of one node may be searched; zero: as long as it takes.
    pub filter_timeout: Duration,
    /// How long devices may take to be ready for a pod.
    pub binding_timeout: Duration,
}

/// What nodes have to be whatever a pod says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AddedAffinity {
    pub required: Option<Box<[NodeTerm]>>,
    pub preferred: Box<[(i64, NodeTerm)]>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub ignored: Vec<Box<str>>,
    pub ignored_groups: Vec<Box<str>>,
    pub strategy: Strategy,
    pub resources: Vec<(Box<str>, i64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    Least,
    Most,
    Ratio(Shape),
}

#[derive(Debug, Clone, PartialEq)]
pub enum DefaultSpread {
    /// Over nodes and zones, also where nodes lack these labels.
    System,
    List(Vec<Spread>),
}

/// A line through points: how much is used, what that is worth (0..=100).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape(Vec<(i64, i64)>);

impl Shape {
    fn of(points: &[ShapePoint]) -> Shape {
        // A file's scores go up to ten.
        let point = |it: &ShapePoint| (i64::from(it.utilization), i64::from(it.score) * 10);
        Shape(points.iter().map(point).collect())
    }

    /// Upstream's `BuildBrokenLinearFunction`, whose divisions drop what is left.
    pub fn at(&self, utilization: i64) -> i64 {
        for (index, (x, y)) in self.0.iter().enumerate() {
            if utilization <= *x {
                let Some((before, score)) = index.checked_sub(1).map(|at| self.0[at]) else {
                    return *y;
                };
                return score + (y - score) * (utilization - before) / (x - before);
            }
        }
        self.0.last().map_or(0, |(_, score)| *score)
    }
}

impl Default for Args {
    fn default() -> Args {
        let usual = || vec![("cpu".into(), 1), ("memory".into(), 1)];
        Args {
            added_affinity: AddedAffinity::default(),
            fit: Fit {
                ignored: Vec::new(),
                ignored_groups: Vec::new(),
                strategy: Strategy::Least,
                resources: usual(),
            },
            balanced: vec!["cpu".into(), "memory".into()],
            default_spread: DefaultSpread::System,
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            min_candidates_percentage: 10,
            min_candidates_absolute: 100,
            bind_timeout: Duration::from_secs(600),
            storage_shape: Shape(vec![(0, 100), (100, 0)]),
            filter_timeout: Duration::from_secs(10),
            binding_timeout: Duration::from_secs(600),
        }
    }
}

impl Args {
    /// Takes what a file says to one plugin, and says what is wrong with it.
    pub fn set(&mut self, plugin: &str, args: Value, path: &Path<'_>) -> Result<ErrorList, String> {
        let mut errors = ErrorList::new();
        match plugin {
            "DefaultPreemption" => {
                let args: DefaultPreemptionArgs = typed(args)?;
                let percentage = args.min_candidate_nodes_percentage.unwrap_or(10);
                let absolute = args.min_candidate_nodes_absolute.unwrap_or(100);
                validate::preemption(path, percentage, absolute, &mut errors);
                self.min_candidates_percentage = percentage.max(0) as usize;
                self.min_candidates_absolute = absolute.max(0) as usize;
            }
            "InterPodAffinity" => {
                let args: InterPodAffinityArgs = typed(args)?;
                let weight = args.hard_pod_affinity_weight.unwrap_or(1);
                validate::hard_pod_affinity_weight(path, weight, &mut errors);
                self.hard_pod_affinity_weight = i64::from(weight);
                self.ignore_preferred_terms_of_existing_pods =
                    args.ignore_preferred_terms_of_existing_pods;
            }
            "NodeAffinity" => {
                let args: NodeAffinityArgs = typed(args)?;
                let Some(added) = args.added_affinity else { return Ok(errors) };
                validate::added_affinity(path, &added, &mut errors);
                let required = added.required_during_scheduling_ignored_during_execution;
                let preferred = added.preferred_during_scheduling_ignored_during_execution;
                self.added_affinity = AddedAffinity {
                    required: required
                        .map(|it| it.node_selector_terms.iter().map(NodeTerm::of).collect()),
                    preferred: preferred
                        .iter()
                        .flatten()
                        .map(|it| (i64::from(it.weight), NodeTerm::of(&it.preference)))
                        .collect(),
                };
            }
            "NodeResourcesBalancedAllocation" => {
                let mut args: BalancedAllocationArgs = typed(args)?;
                if args.resources.is_empty() {
                    return Ok(errors);
                }
                set_weights(&mut args.resources);
                validate::balanced(path, &args.resources, &mut errors);
                self.balanced = args.resources.into_iter().map(|it| it.name.into()).collect();
            }
            "NodeResourcesFit" => {
                let mut args: NodeResourcesFitArgs = typed(args)?;
                let strategy = args.scoring_strategy.get_or_insert_with(|| file::ScoringStrategy {
                    type_: "LeastAllocated".to_owned(),
                    ..file::ScoringStrategy::default()
                });
                if strategy.resources.is_empty() {
                    let usual = ["cpu", "memory"].map(str::to_owned);
                    strategy.resources =
                        usual.map(|name| file::ResourceSpec { name, weight: 1 }).into();
                }
                set_weights(&mut strategy.resources);
                let strategy = strategy.clone();
                validate::fit(path, &args, &strategy, &mut errors);
                self.fit = Fit {
                    ignored: args.ignored_resources.into_iter().map(Into::into).collect(),
                    ignored_groups: args
                        .ignored_resource_groups
                        .into_iter()
                        .map(Into::into)
                        .collect(),
                    resources: strategy
                        .resources
                        .into_iter()
                        .map(|it| (it.name.into(), it.weight))
                        .collect(),
                    strategy: match strategy.type_.as_str() {
                        "MostAllocated" => Strategy::Most,
                        "RequestedToCapacityRatio" => {
                            let shape = strategy.requested_to_capacity_ratio.unwrap_or_default();
                            Strategy::Ratio(Shape::of(&shape.shape))
                        }
                        _ => Strategy::Least,
                    },
                };
            }
            "PodTopologySpread" => {
                let mut args: PodTopologySpreadArgs = typed(args)?;
                if args.defaulting_type.is_empty() {
                    args.defaulting_type = "System".to_owned();
                }
                validate::spread(path, &args, &mut errors);
                self.default_spread = match args.defaulting_type.as_str() {
                    "List" => {
                        DefaultSpread::List(args.default_constraints.iter().map(spread).collect())
                    }
                    _ => DefaultSpread::System,
                };
            }
            "VolumeBinding" => {
                let args: VolumeBindingArgs = typed(args)?;
                let seconds = args.bind_timeout_seconds.unwrap_or(600);
                validate::volume_binding(path, seconds, &args.shape, &mut errors);
                self.bind_timeout = Duration::from_secs(seconds.max(0) as u64);
                if !args.shape.is_empty() {
                    self.storage_shape = Shape::of(&args.shape);
                }
            }
            "DynamicResources" => {
                let args: DynamicResourcesArgs = typed(args)?;
                validate::dynamic_resources(path, &args, &mut errors);
                let duration = |text: Option<String>, usual: Duration| match text {
                    Some(text) => super::duration(&text).unwrap_or(usual),
                    None => usual,
                };
                self.filter_timeout = duration(args.filter_timeout, self.filter_timeout);
                self.binding_timeout = duration(args.binding_timeout, self.binding_timeout);
            }
            _ => {}
        }
        Ok(errors)
    }
}

fn typed<T: DeserializeOwned>(args: Value) -> Result<T, String> {
    serde_json::from_value(args).map_err(|error| error.to_string())
}

fn set_weights(resources: &mut [file::ResourceSpec]) {
    for resource in resources.iter_mut().filter(|resource| resource.weight == 0) {
        resource.weight = 1;
    }
}

/// Whom it counts is worked out for each pod.
fn spread(constraint: &TopologySpreadConstraint) -> Spread {
    Spread {
        is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
        max_skew: i64::from(constraint.max_skew),
        topology_key: constraint.topology_key.as_str().into(),
        selector: Selector::nothing(),
        min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
        honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_a_line_through_its_points() {
        let shape = Shape(vec![(0, 0), (50, 100), (100, 20)]);
        for (used, worth) in [(-5, 0), (0, 0), (25, 50), (50, 100), (75, 60), (100, 20), (150, 20)]
        {
            assert_eq!(shape.at(used), worth, "{used}");
        }
    }
}
