//! What pods ask for and nodes have, as whole numbers.
use api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// What a container that says nothing is taken to need, when nodes are compared: upstream's.
const USUAL_MILLI_CPU: i64 = 100;
const USUAL_MEMORY: i64 = 200 << 20;

/// Amounts of resources. Nearly all pods ask for the first three only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and the like, by name.
    pub scalars: Vec<(Box<str>, i64)>,
}

type List = BTreeMap<String, Quantity>;

impl Resources {
    /// `pods` is not an amount of a pod's, so it is no part of it.
    pub fn of(list: &List) -> Resources {
        let mut all = Resources::default();
        for (name, quantity) in list {
            all.set(name, amount(name, quantity));
        }
        all
    }

    pub fn scalar(&self, name: &str) -> i64 {
        let found = self.scalars.binary_search_by(|(other, _)| (**other).cmp(name));
        found.map_or(0, |at| self.scalars[at].1)
    }

    pub fn is_zero(&self) -> bool {
        let Resources { milli_cpu, memory, ephemeral_storage, scalars } = self;
        *milli_cpu == 0 && *memory == 0 && *ephemeral_storage == 0 && scalars.is_empty()
    }

    pub fn add(&mut self, other: &Resources) {
        self.merge(other, |mine, theirs| mine.saturating_add(theirs));
    }

    pub fn subtract(&mut self, other: &Resources) {
        self.merge(other, |mine, theirs| mine.saturating_sub(theirs));
    }

    /// The larger of both, resource by resource.
    pub fn raise(&mut self, other: &Resources) {
        self.merge(other, i64::max);
    }

    fn merge(&mut self, other: &Resources, with: fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            self.set(name, with(self.scalar(name), *amount));
        }
    }

    fn set(&mut self, name: &str, amount: i64) {
        match name {
            "cpu" => self.milli_cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral_storage = amount,
            "pods" => {}
            _ => match self.scalars.binary_search_by(|(other, _)| (**other).cmp(name)) {
                Ok(at) => self.scalars[at].1 = amount,
                Err(at) => self.scalars.insert(at, (name.into(), amount)),
            },
        }
    }
}

/// Thousandths of a processor; whole numbers of everything else.
pub fn amount(name: &str, quantity: &Quantity) -> i64 {
    let parsed = Amount::parse(&quantity.0).unwrap_or(Amount::ZERO);
    if name == "cpu" { parsed.milli_value() } else { parsed.value() }
}

/// What a pod needs of its node (upstream's `resource.PodRequests`).
pub fn requests(pod: &Pod) -> Resources {
    total(pod, |resources| resources)
}

/// The same for comparing nodes: processor and memory, and what says nothing asks for a little.
/// What a pod asks for as a whole does not count here, as upstream has it (`NewFit` does not tell its
/// scorer of pods' own resources).
pub fn non_zero_requests(pod: &Pod) -> [i64; 2] {
    non_zero(pod, [true, true], false)
}

/// What a pod that is on a node counts for there. One that asks as a whole is taken by its word for
/// each resource that it names anywhere (upstream's `getNonMissingContainerRequests`).
pub fn non_zero_placed(pod: &Pod) -> [i64; 2] {
    let Some(spec) = &pod.spec else { return [0, 0] };
    if pod_level(spec).next().is_none() {
        return non_zero(pod, [true, true], true);
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let lists: Vec<&List> = containers
        .filter_map(|it| it.resources.as_ref()?.requests.as_ref())
        .chain(spec.overhead.as_ref())
        .chain(spec.resources.as_ref().and_then(|it| it.requests.as_ref()))
        .collect();
    let is_missing = |name| !lists.iter().any(|list| list.contains_key(name));
    non_zero(pod, ["cpu", "memory"].map(is_missing), true)
}

/// `fill`: whether containers that do not ask for processor, or memory, are taken to.
fn non_zero(pod: &Pod, fill: [bool; 2], whole: bool) -> [i64; 2] {
    let all = total_with(pod, whole, |list, mut resources| {
        if fill[0] && !list.contains_key("cpu") {
            resources.milli_cpu = USUAL_MILLI_CPU;
        }
        if fill[1] && !list.contains_key("memory") {
            resources.memory = USUAL_MEMORY;
        }
        resources
    });
    [all.milli_cpu, all.memory]
}

fn total(pod: &Pod, adjust: fn(Resources) -> Resources) -> Resources {
    total_with(pod, true, |_, resources| adjust(resources))
}

/// `whole`: what it asks for as a whole counts instead of what its containers do.
fn total_with(pod: &Pod, whole: bool, adjust: impl Fn(&List, Resources) -> Resources) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let of = |container: &Container| {
        let empty = List::new();
        let list = container.resources.as_ref().and_then(|it| it.requests.as_ref());
        let list = list.unwrap_or(&empty);
        adjust(list, with_status(pod, &container.name, Resources::of(list)))
    };
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container));
    }
    // Sidecars run beside all that comes after them, ordinary init containers one by one.
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        let mut needed = sidecars.clone();
        needed.add(&own);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            sidecars = needed.clone();
        }
        starting.raise(&needed);
    }
    running.raise(&starting);
    for (name, quantity) in pod_level(spec).filter(|_| whole) {
        running.set(name, amount(name, quantity));
    }
    if let Some(overhead) = &spec.overhead {
        running.add(&Resources::of(overhead));
    }
    running
}

/// The resources that a pod may ask for as a whole.
fn pod_level(spec: &PodSpec) -> impl Iterator<Item = (&String, &Quantity)> {
    let requests = spec.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
    requests.filter(|(name, _)| {
        matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-")
    })
}

/// While a container is resized, its node gives the larger of what it has and what is asked.
fn with_status(pod: &Pod, container: &str, asked: Resources) -> Resources {
    let status = pod.status.iter().flat_map(|status| {
        let all = [&status.container_statuses, &status.init_container_statuses];
        all.into_iter().flatten().flatten()
    });
    let Some(status) = status.into_iter().find(|it| it.name == container) else { return asked };
    let ContainerStatus { allocated_resources, resources, .. } = status;
    let actual = resources.as_ref().and_then(|it| it.requests.as_ref());
    let mut larger = asked;
    for list in [allocated_resources.as_ref(), actual].into_iter().flatten() {
        larger.raise(&Resources::of(list));
    }
    larger
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, expected: [i64; 3], non_zero: [i64; 2]) {
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
        let Resources { milli_cpu, memory, ephemeral_storage, .. } = requests(&pod);
        assert_eq!([milli_cpu, memory, ephemeral_storage], expected, "{spec}");
        assert_eq!(non_zero_requests(&pod), non_zero, "{spec}");
    }

    fn container(cpu: &str) -> Value {
        json!({ "name": cpu, "resources": { "requests": { "cpu": cpu } } })
    }

    #[test]
    fn what_runs_at_the_same_time_is_added_up() {
        let usual = USUAL_MEMORY;
        check(json!({ "containers": [{ "name": "a" }] }), [0; 3], [100, usual]);
        check(
            json!({ "containers": [container("1"), container("500m")] }),
            [1500, 0, 0],
            [1500, 2 * usual],
        );
        // An init container alone, or after a sidecar that keeps running.
        let mut sidecar = container("300m");
        sidecar["restartPolicy"] = "Always".into();
        check(
            json!({ "containers": [container("1")],
                "initContainers": [container("900m"), sidecar, container("2")] }),
            [2300, 0, 0],
            [2300, 2 * usual],
        );
        check(
            json!({ "containers": [container("1")], "overhead": { "cpu": "250m", "memory": "1Mi" },
                "resources": { "requests": { "cpu": "3" } } }),
            [3250, 1 << 20, 0],
            [1250, usual + (1 << 20)],
        );
    }

    #[test]
    fn a_resize_counts_as_the_larger_of_both() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": { "containers": [container("1")] },
            "status": { "containerStatuses": [{ "name": "1", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "allocatedResources": { "cpu": "2" } }] },
        }))
        .expect("a pod");
        assert_eq!(requests(&pod).milli_cpu, 2000);
    }

    #[test]
    fn other_resources_have_names() {
        let list = BTreeMap::from([
            ("pods".to_owned(), Quantity("110".to_owned())),
            ("e.com/gpu".to_owned(), Quantity("2".to_owned())),
        ]);
        let mut all = Resources::of(&list);
        all.add(&Resources::of(&list));
        assert_eq!((all.scalar("e.com/gpu"), all.scalar("pods")), (4, 0));
        all.subtract(&Resources::of(&list));
        assert_eq!(all.scalar("e.com/gpu"), 2);
    }
}
