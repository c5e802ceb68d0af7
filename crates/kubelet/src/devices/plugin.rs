//! A device plugin: it registers on our socket; then we follow the list of its devices for as long
//! as it lives, and ask it what containers need.
use super::book::{Device, Needs, Resource, Wish};
use super::{Devices, folder, proto};
use crate::plugins::connect;
use crate::sockets;
use crate::worker::Kubelet;
use proto::device_plugin_client::DevicePluginClient;
use proto::registration_server::{Registration, RegistrationServer};
use proto::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest,
    DevicePluginOptions, Empty, PreStartContainerRequest, PreferredAllocationRequest,
    RegisterRequest,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// How long a plugin may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a plugin that is gone had is forgotten after so long.
const MEMORY: Duration = Duration::from_secs(5 * 60);
/// Longest list of devices.
const MESSAGE_LIMIT: usize = 16 << 20;

#[derive(Clone)]
pub struct Plugin {
    client: DevicePluginClient<Channel>,
    options: DevicePluginOptions,
    /// Which of those that registered one after another under one name.
    generation: u64,
}

impl Plugin {
    pub async fn preferred(&self, wish: &Wish) -> Result<Vec<String>, String> {
        if !self.options.get_preferred_allocation_available || wish.available.len() == wish.count {
            return Ok(Vec::new());
        }
        let one = ContainerPreferredAllocationRequest {
            available_device_i_ds: wish.available.iter().cloned().collect(),
            must_include_device_i_ds: wish.must.iter().cloned().collect(),
            allocation_size: i32::try_from(wish.count).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![one] };
        let mut client = self.client.clone();
        let answer = answer(client.get_preferred_allocation(request)).await;
        let answer = answer.map_err(|why| {
            format!("device plugin GetPreferredAllocation rpc failed with err: {why}")
        })?;
        let mut all = answer.container_responses.into_iter();
        Ok(all.next().map(|one| one.device_i_ds).unwrap_or_default())
    }

    pub async fn allocate(&self, devices: &BTreeSet<String>) -> Result<Needs, String> {
        let one = ContainerAllocateRequest { devices_ids: devices.iter().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![one] };
        let answer = answer(self.client.clone().allocate(request)).await?;
        let mut all = answer.container_responses.into_iter();
        let one = all.next().ok_or("no containers return in allocation response")?;
        Ok(Needs {
            envs: one.envs.into_iter().collect(),
            mounts: one
                .mounts
                .into_iter()
                .map(|mount| (mount.host_path, mount.container_path, mount.read_only))
                .collect(),
            devices: one
                .devices
                .into_iter()
                .map(|device| (device.host_path, device.container_path, device.permissions))
                .collect(),
            annotations: one.annotations.into_iter().collect(),
            cdi: one.cdi_devices.into_iter().map(|device| device.name).collect(),
        })
    }

    pub async fn prepare(&self, devices: &BTreeSet<String>) -> Result<(), String> {
        if !self.options.pre_start_required {
            return Ok(());
        }
        let request = PreStartContainerRequest { devices_ids: devices.iter().cloned().collect() };
        let answer = answer(self.client.clone().pre_start_container(request)).await;
        answer
            .map(drop)
            .map_err(|why| format!("device plugin PreStartContainer rpc failed with err: {why}"))
    }
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => {
            Err(format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))
        }
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".into()),
    }
}

/// Serves the socket that plugins register on, until the context stops.
pub async fn serve(kubelet: &Arc<Kubelet>) {
    let socket = folder(&kubelet.config.root).join("kubelet.sock");
    let desk = RegistrationServer::new(Desk(kubelet.clone()));
    sockets::serve(&kubelet.context, &socket, Routes::new(desk)).await;
}

struct Desk(Arc<Kubelet>);

#[tonic::async_trait]
impl Registration for Desk {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name, options } = request.into_inner();
        if version != "v1beta1" {
            return Err(Status::invalid_argument(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version is [\"v1beta1\"]"
            )));
        }
        if !is_extended(&resource_name) {
            return Err(Status::invalid_argument(format!(
                "the ResourceName {resource_name:?} is invalid"
            )));
        }
        if endpoint.is_empty() || endpoint.contains('/') {
            return Err(Status::invalid_argument(format!("the endpoint {endpoint:?} is invalid")));
        }
        let socket = folder(&self.0.config.root).join(endpoint);
        // The plugin may wait for this answer before it answers itself.
        self.0
            .devices
            .add(&self.0, &resource_name, &socket, options)
            .map_err(Status::invalid_argument)?;
        Ok(Response::new(Empty {}))
    }
}

/// `vendor.com/thing`: not one of Kubernetes' own.
fn is_extended(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let is_own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let plain = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    !is_own && plain(domain) && plain(rest)
}

impl Devices {
    /// A plugin at a socket: its devices are followed from now on.
    pub fn add(
        &self,
        kubelet: &Arc<Kubelet>,
        resource: &str,
        socket: &Path,
        options: Option<DevicePluginOptions>,
    ) -> Result<(), String> {
        let client =
            DevicePluginClient::new(connect(socket)?).max_decoding_message_size(MESSAGE_LIMIT);
        let generation = kubelet.context.number();
        let plugin = Plugin { client, options: options.unwrap_or_default(), generation };
        self.plugins.lock().insert(resource.to_owned(), plugin.clone());
        let (kubelet, resource) = (kubelet.clone(), resource.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = follow(&kubelet, &resource, plugin) => {}
                () = kubelet.context.stopped() => {}
            }
        });
        Ok(())
    }
}

/// Follows the list of a plugin's devices until it ends; then they are not well any more, and after
/// a while they are not there.
async fn follow(kubelet: &Arc<Kubelet>, resource: &str, mut plugin: Plugin) {
    let is_current = || {
        let plugins = kubelet.devices.plugins.lock();
        plugins.get(resource).is_some_and(|known| known.generation == plugin.generation)
    };
    let mut client = plugin.client.clone();
    // Only the plugin itself knows for sure, however it was registered.
    if let Ok(options) = answer(client.get_device_plugin_options(Empty {})).await
        && is_current()
    {
        plugin.options = options;
        kubelet.devices.plugins.lock().insert(resource.to_owned(), plugin.clone());
    }
    match client.list_and_watch(Empty {}).await {
        Ok(answer) => {
            let mut lists = answer.into_inner();
            while let Ok(Some(list)) = lists.message().await {
                if !is_current() {
                    return;
                }
                let devices = list.devices.into_iter().map(|device| {
                    let numa = device.topology.unwrap_or_default().nodes;
                    let numa = numa.into_iter().map(|node| node.id).collect();
                    (device.id, Device { is_healthy: device.health == "Healthy", numa })
                });
                let listed = Resource { devices: devices.collect() };
                change(kubelet, |book| drop(book.resources.insert(resource.to_owned(), listed)));
            }
        }
        Err(status) => tracing::warn!("the device plugin of {resource} lists nothing: {status}"),
    }
    if !is_current() {
        return;
    }
    change(kubelet, |book| {
        if let Some(resource) = book.resources.get_mut(resource) {
            resource.devices.values_mut().for_each(|device| device.is_healthy = false);
        }
    });
    if kubelet.context.sleep(MEMORY).await && is_current() {
        kubelet.devices.plugins.lock().remove(resource);
        change(kubelet, |book| drop(book.resources.remove(resource)));
    }
}

fn change(kubelet: &Kubelet, change: impl FnOnce(&mut super::Book)) {
    let holders: Vec<String> = {
        let mut book = kubelet.devices.book.lock();
        change(&mut book);
        book.grants.iter().map(|grant| grant.pod.clone()).collect()
    };
    kubelet.config.look_again.notify_one();
    // Their statuses say how their devices are.
    holders.into_iter().for_each(|uid| kubelet.queue.add(uid));
}

#[cfg(test)]
mod tests {
    use super::is_extended;

    #[test]
    fn resources_of_kubernetes_are_not_devices() {
        assert!(is_extended("example.com/gpu"));
        for wrong in ["cpu", "kubernetes.io/x", "a.kubernetes.io/x", "a/", "/b", "a.b/c d"] {
            assert!(!is_extended(wrong), "{wrong}");
        }
    }
}
