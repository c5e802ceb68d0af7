//! Extended resources that no node's device plugin has, and a device class does: they become a claim.
//!
//! Containers that run at the same time each get their own devices; init containers that end before them
//! use what comes later, and as much more as the greediest of them needs (upstream's
//! `extendeddynamicresources.go`).
use super::ledger::{CLASS_PREFIX, Ledger};
use crate::config::is_extended;
use k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, PodSpec};
use k8s_openapi::api::resource::v1::{DeviceRequest, ExactDeviceRequest};
use std::collections::BTreeMap;

/// What a container asks for, if it asks for such resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Asking {
    name: Box<str>,
    /// It ends before the pod's own containers start.
    is_short_lived: bool,
    requests: BTreeMap<Box<str>, i64>,
}

pub fn may_be_devices(resource: &str) -> bool {
    is_extended(resource) || resource.starts_with(CLASS_PREFIX)
}

/// Init containers first, as upstream counts them.
pub fn asking(spec: &PodSpec) -> Box<[Asking]> {
    let init = spec.init_containers.iter().flatten().map(|it| (it, true));
    let all = init.chain(spec.containers.iter().map(|it| (it, false)));
    let all: Vec<Asking> = all
        .map(|(container, is_init)| {
            let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
            let amount = |(name, quantity): (&String, &_)| {
                (name.as_str().into(), crate::resources::amount(name, quantity))
            };
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            Asking {
                name: container.name.as_str().into(),
                is_short_lived: is_init && !is_sidecar,
                requests: requests.iter().flat_map(|list| list.iter()).map(amount).collect(),
            }
        })
        .collect();
    match all.iter().any(|it| it.requests.keys().any(|name| may_be_devices(name))) {
        true => all.into(),
        false => Box::default(),
    }
}

/// The claim's requests, and which of them each container gets.
pub fn requests(
    ledger: &Ledger,
    containers: &[Asking],
    resources: &[&str],
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for resource in resources {
        let Some(class) = ledger.class_of(resource) else { continue };
        let class = class.metadata.name.as_deref().unwrap_or_default();
        let mut lasting: Vec<Option<DeviceRequest>> = vec![None; containers.len()];
        for (at, container) in containers.iter().enumerate().filter(|(_, it)| !it.is_short_lived) {
            let (request, own) = one(at, container, resource, class, &[]);
            lasting[at] = request;
            mappings.extend(own);
        }
        let mut largest: Option<DeviceRequest> = None;
        let mut short: Vec<ContainerExtendedResourceRequest> = Vec::new();
        let mut names = Vec::new();
        for (at, container) in containers.iter().enumerate().filter(|(_, it)| it.is_short_lived) {
            let (request, own) = one(at, container, resource, class, &lasting[at..]);
            short.extend(own);
            if let Some(request) = request {
                names.push(request.name.clone());
                if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                    largest = Some(request);
                }
            }
        }
        // They run one after the other and share what the greediest gets.
        if let Some(largest) = &largest {
            for mapping in short.iter_mut().filter(|it| names.contains(&it.request_name)) {
                mapping.request_name.clone_from(&largest.name);
            }
        }
        requests.extend(largest);
        requests.extend(lasting.into_iter().flatten());
        mappings.extend(short);
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    (requests, mappings)
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|exactly| exactly.count).unwrap_or(0)
}

fn one(
    at: usize,
    container: &Asking,
    resource: &str,
    class: &str,
    reusable: &[Option<DeviceRequest>],
) -> (Option<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let mut mappings = Vec::new();
    let wanted = container.requests.get(resource).copied().unwrap_or(0);
    if wanted == 0 {
        return (None, mappings);
    }
    let mapping = |request: &str| ContainerExtendedResourceRequest {
        container_name: container.name.to_string(),
        resource_name: resource.to_owned(),
        request_name: request.to_owned(),
    };
    let mut found = 0;
    for request in reusable.iter().flatten() {
        found += count(request);
        mappings.push(mapping(&request.name));
        if found >= wanted {
            return (None, mappings);
        }
    }
    let number = container.requests.keys().position(|name| **name == *resource).unwrap_or(0);
    let name = format!("container-{at}-request-{number}");
    mappings.push(mapping(&name));
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(wanted - found),
        ..ExactDeviceRequest::default()
    };
    (Some(DeviceRequest { exactly: Some(exactly), first_available: None, name }), mappings)
}
