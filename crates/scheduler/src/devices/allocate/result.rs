//! What was chosen, as claims say it.
use super::{Chosen, Failure, Search, wishes};
use crate::cluster::NodeRow;
use crate::devices::ledger::requests;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequest,
    DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::HashMap;

impl Search<'_> {
    pub(super) fn results(&self, row: &NodeRow) -> Result<Vec<AllocationResult>, Failure> {
        let mut all = Vec::new();
        for (at, claim) in self.claims.iter().enumerate() {
            let devices = self.chosen[at].iter().map(|chosen| self.result(at, chosen)).collect();
            let config = self.config(at, claim);
            let node_selector = self.node_selector(at, row).map_err(|problem| {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                Failure::Error(format!("create NodeSelector for claim {name}: {problem}"))
            })?;
            all.push(AllocationResult {
                allocation_timestamp: None,
                devices: Some(DeviceAllocationResult {
                    config: Some(config).filter(|config| !config.is_empty()),
                    results: Some(devices),
                }),
                node_selector,
            });
        }
        Ok(all)
    }

    fn result(&self, claim: usize, chosen: &Chosen) -> DeviceRequestAllocationResult {
        let wanted = &self.wanted[claim][chosen.request][chosen.sub];
        let offer = &self.pools[chosen.pool].devices[chosen.device];
        let device = offer.device();
        let text = |(name, amount): (&String, &api::quantity::Quantity)| {
            (name.clone(), Text(amount.to_string()))
        };
        DeviceRequestAllocationResult {
            request: wanted.full_name(),
            driver: offer.id.driver.to_string(),
            pool: offer.id.pool.to_string(),
            device: offer.id.device.to_string(),
            admin_access: wanted.admin_access.then_some(true),
            tolerations: Some(wanted.tolerations.to_vec()).filter(|all| !all.is_empty()),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
            consumed_capacity: chosen.consumed.as_ref().map(|it| it.iter().map(text).collect()),
            // Whoever writes it down gives it a name.
            share_id: chosen.is_share.then(String::new),
            skip_node_operations: None,
        }
    }

    /// Classes' configuration first, then the claim's own.
    fn config(&self, at: usize, claim: &ResourceClaim) -> Vec<DeviceAllocationConfiguration> {
        let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
        let mut of_class: HashMap<&str, std::ops::Range<usize>> = HashMap::new();
        let picked = |number: usize| &self.wanted[at][number][self.picked[at][number]];
        for number in 0..self.wanted[at].len() {
            let wanted = picked(number);
            let class = wanted.class.metadata.name.as_deref().unwrap_or_default();
            if let Some(range) = of_class.get(class) {
                for config in &mut all[range.clone()] {
                    config.requests.get_or_insert_default().push(wanted.full_name());
                }
                continue;
            }
            let start = all.len();
            let spec = wanted.class.spec.iter();
            let configs = spec.flat_map(|spec| spec.config.iter().flatten());
            all.extend(configs.map(|config| DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(vec![wanted.full_name()]),
                source: "FromClass".to_owned(),
            }));
            of_class.insert(class, start..all.len());
        }
        let is_about = |names: &[String], number: usize, request: &DeviceRequest| {
            names.contains(&request.name) || names.contains(&picked(number).full_name())
        };
        let own = wishes(claim).iter().flat_map(|devices| devices.config.iter().flatten());
        for config in own {
            let names = config.requests.as_deref().unwrap_or_default();
            let mut requests = requests(claim).iter().enumerate();
            if names.is_empty() || requests.any(|(number, it)| is_about(names, number, it)) {
                all.push(DeviceAllocationConfiguration {
                    opaque: config.opaque.clone(),
                    requests: config.requests.clone(),
                    source: "FromClaim".to_owned(),
                });
            }
        }
        // What is about all requests needs no list of them.
        for config in &mut all {
            let names = config.requests.clone().unwrap_or_default();
            let mut requests = requests(claim).iter().enumerate();
            if requests.all(|(number, request)| is_about(&names, number, request)) {
                config.requests = None;
            }
        }
        all
    }

    /// Where the devices can be used; `None`: everywhere.
    fn node_selector(&self, at: usize, row: &NodeRow) -> Result<Option<NodeSelector>, String> {
        let mut term = NodeSelectorTerm::default();
        for chosen in &self.chosen[at] {
            let offer = &self.pools[chosen.pool].devices[chosen.device];
            let (spec, device) = (&offer.slice.spec, offer.device());
            let (name, selector) = match spec.per_device_node_selection == Some(true) {
                true => (&device.node_name, &device.node_selector),
                false => (&spec.node_name, &spec.node_selector),
            };
            if name.is_some() || device.binds_to_node == Some(true) {
                let only = NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![row.node.name.to_string()]),
                };
                let term =
                    NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
                return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
            }
            match selector.as_ref().map(|selector| &selector.node_selector_terms[..]) {
                None | Some([]) => {}
                Some([one]) => {
                    add_new(&one.match_fields, &mut term.match_fields);
                    add_new(&one.match_expressions, &mut term.match_expressions);
                }
                Some(several) => {
                    let count = several.len();
                    return Err(format!(
                        "unsupported ResourceSlice.NodeSelector with {count} terms"
                    ));
                }
            }
        }
        let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
        Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] }))
    }
}

fn add_new(
    from: &Option<Vec<NodeSelectorRequirement>>,
    to: &mut Option<Vec<NodeSelectorRequirement>>,
) {
    for requirement in from.iter().flatten() {
        let all = to.get_or_insert_default();
        let sorted = |it: &NodeSelectorRequirement| {
            let mut values = it.values.clone().unwrap_or_default();
            values.sort();
            (it.key.clone(), it.operator.clone(), values)
        };
        if !all.iter().any(|other| sorted(other) == sorted(requirement)) {
            all.push(requirement.clone());
        }
    }
}
