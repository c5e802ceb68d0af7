//! Dynamic resources: claims that drivers on this node prepare before a pod starts, and take back
//! when it has ended (`pkg/kubelet/cm/dra`).
//!
//! ```text
//!  ledger   which claims are prepared, for whom, with which devices; the file of it     (pure)
//!  driver   a driver: registers by the plugin watcher, is asked over its socket
//!  health   how a driver's devices are, as it says it
//! ```
//! What a container gets are names of CDI devices: the runtime knows what they mean.
mod driver;
mod health;
mod ledger;
#[cfg(test)]
mod tests;

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

use crate::devices::proto_v1;
pub use ledger::Device;

use crate::pod;
use crate::worker::Kubelet;
use api::selector::field::Selector;
use client::ApiResource;
use client::source::{Collection, Delete};
use driver::Driver;
use health::Health;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, Pod, PodResourceClaim, ResourceHealth, ResourceStatus,
};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use ledger::{Claim, Ledger};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's: the kubelets of a node take each other's place.
const STATE: &str = "dra_manager_state";
/// A driver that does not come back in this time has no devices any more.
const ABSENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Dra {
    ledger: Mutex<Ledger>,
    /// By name; the last that registered counts.
    drivers: Mutex<BTreeMap<String, Vec<Driver>>>,
    health: Health,
}

/// A claim of a pod's and the object that it is.
struct Wanted {
    claim: Claim,
}

impl Dra {
    /// What was prepared, and known of devices, before this process began.
    pub fn take_up(&self, root: &Path, now: Timestamp) {
        self.health.take_up(root, now);
        let text = match fs::read(root.join(STATE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!("failed to read {STATE}: {error}"),
        };
        match Ledger::read(&text) {
            Ok(ledger) => *self.ledger.lock() = ledger,
            Err(why) => tracing::warn!("{STATE} cannot be read, claims are prepared anew: {why}"),
        }
    }

    fn write(&self, root: &Path) -> Result<(), String> {
        let text = self.ledger.lock().text().map_err(io::Error::other);
        let temporary = root.join(format!(".{STATE}"));
        let written = text.and_then(|text| fs::write(&temporary, text));
        let written = written.and_then(|()| fs::rename(&temporary, root.join(STATE)));
        written.map_err(|error| format!("checkpoint ResourceClaim state: {error}"))
    }

    pub fn add(
        &self,
        kubelet: &Arc<Kubelet>,
        name: &str,
        endpoint: &str,
        versions: &[String],
    ) -> Result<(), String> {
        let driver = Driver::new(kubelet.context.part(), name, endpoint, versions)?;
        let mut drivers = self.drivers.lock();
        let known = drivers.entry(name.to_owned()).or_default();
        if known.iter().any(|one| one.endpoint == endpoint) {
            return Err(format!(
                "endpoint {endpoint} already registered for DRA driver plugin {name}"
            ));
        }
        known.push(driver.clone());
        if driver.tells_health() {
            tokio::spawn(health::watch(kubelet.clone(), name.to_owned(), driver));
        }
        Ok(())
    }

    /// A driver's socket is gone; if it was its last and it stays away, so do its devices.
    pub fn remove(&self, kubelet: &Arc<Kubelet>, name: &str, endpoint: &str) {
        {
            let mut drivers = self.drivers.lock();
            let Some(known) = drivers.get_mut(name) else { return };
            for gone in known.extract_if(.., |one| one.endpoint == endpoint) {
                gone.life.stop();
            }
            if !known.is_empty() {
                return;
            }
            drivers.remove(name);
        }
        let (kubelet, name) = (kubelet.clone(), name.to_owned());
        tokio::spawn(async move {
            if kubelet.context.sleep(ABSENCE).await && !kubelet.dra.has(&name) {
                kubelet.forget_slices(Some(&name)).await;
            }
        });
    }

    fn has(&self, name: &str) -> bool {
        self.drivers.lock().contains_key(name)
    }

    fn driver(&self, name: &str) -> Result<Driver, String> {
        let drivers = self.drivers.lock();
        let last = drivers.get(name).and_then(|all| all.last());
        last.cloned().ok_or_else(|| format!("DRA driver {name} is not registered"))
    }

    /// What the container's claims give it: claim, driver and device.
    pub fn of_container(&self, pod: &Pod, container: &Container) -> Vec<(String, String, Device)> {
        let ledger = self.ledger.lock();
        let mut found = Vec::new();
        for (name, request) in requests(pod, container) {
            let Some(claim) = ledger.get(pod::namespace(pod), &name) else { continue };
            let devices = claim.devices(&request);
            found.extend(
                devices.map(|(driver, one)| (name.clone(), driver.to_owned(), one.clone())),
            );
        }
        found
    }

    /// What a pod's status says of the devices of a container's claims: `claim:NAME`, or
    /// `claim:NAME/REQUEST` where the container uses only one request of it.
    pub fn statuses(
        &self,
        pod: &Pod,
        container: &Container,
        now: Timestamp,
    ) -> Vec<ResourceStatus> {
        let used = container.resources.as_ref().and_then(|all| all.claims.as_deref());
        let ledger = self.ledger.lock();
        let mut told = Vec::new();
        for one in used.unwrap_or_default() {
            let mut claims = pod::spec(pod).resource_claims.iter().flatten();
            let Some(claim) = claims.find(|claim| claim.name == one.name) else { continue };
            let Ok(Some((object, _))) = name_of(pod, claim) else { continue };
            let Some(known) = ledger.get(pod::namespace(pod), &object) else { continue };
            let request = one.request.as_deref().unwrap_or_default();
            // Devices belong to a request, whichever of its alternatives was taken.
            let of = request.split('/').next().unwrap_or_default();
            let mut seen = BTreeSet::new();
            let devices = known.devices(of).filter_map(|(driver, device)| {
                let (pool, name) = (&device.pool_name, &device.device_name);
                let own = || format!("{driver}/{pool}/{name}");
                let resource_id = device.cdi.first().cloned().unwrap_or_else(own);
                let (state, message) = self.health.get(driver, pool, name, now);
                seen.insert(resource_id.clone()).then(|| ResourceHealth {
                    resource_id,
                    health: Some(state.name().to_owned()),
                    message: Some(message).filter(|message| !message.is_empty()),
                })
            });
            let resources: Vec<ResourceHealth> = devices.collect();
            let name = match request {
                "" => format!("claim:{}", one.name),
                request => format!("claim:{}/{request}", one.name),
            };
            if !resources.is_empty() {
                told.push(ResourceStatus { name, resources: Some(resources) });
            }
        }
        told
    }

    /// The names of the container's CDI devices, each once.
    pub fn cdi(&self, pod: &Pod, container: &Container) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let all = self.of_container(pod, container).into_iter().flat_map(|(_, _, one)| one.cdi);
        all.filter(|name| seen.insert(name.clone())).collect()
    }
}

/// The claims that a container uses, and which of their requests (none named: all).
fn requests(pod: &Pod, container: &Container) -> Vec<(String, String)> {
    let used = container.resources.as_ref().and_then(|all| all.claims.as_deref());
    let used = used.unwrap_or_default();
    let mut found = Vec::new();
    for claim in pod::spec(pod).resource_claims.iter().flatten() {
        let Ok(Some((name, _))) = name_of(pod, claim) else { continue };
        let own = used.iter().filter(|one| one.name == claim.name);
        found.extend(own.map(|one| (name.clone(), one.request.clone().unwrap_or_default())));
    }
    // What is counted like memory may be devices of a claim that the scheduler made.
    if let Some(extended) = &pod::status(pod).extended_resource_claim_status {
        let asked = container.resources.as_ref().and_then(|all| all.requests.as_ref());
        let own = extended.request_mappings.iter().filter(|one| {
            one.container_name == container.name
                && asked.is_some_and(|asked| asked.contains_key(&one.resource_name))
        });
        let name = &extended.resource_claim_name;
        found.extend(own.map(|one| (name.clone(), one.request_name.clone())));
    }
    found
}

/// The name of a pod's claim, and whether it was made for the pod; nothing if none is needed.
fn name_of(pod: &Pod, claim: &PodResourceClaim) -> Result<Option<(String, bool)>, String> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some((name.clone(), false)));
    }
    let of = || format!("pod \"{}/{}\"", pod::namespace(pod), pod::name(pod));
    if claim.resource_claim_template_name.is_none() {
        return Err(format!(
            "{}, spec.resourceClaim {:?}: none of the supported fields are set",
            of(),
            claim.name
        ));
    }
    let statuses = pod::status(pod).resource_claim_statuses.as_deref().unwrap_or_default();
    let made = statuses.iter().find(|one| one.name == claim.name);
    let made = made.ok_or_else(|| format!("{}: ResourceClaim not created yet", of()))?;
    Ok(made.resource_claim_name.clone().map(|name| (name, true)))
}

/// What the kubelet has to do for a claim, if the pod may use it.
fn wanted(pod: &Pod, claim: &ResourceClaim, is_own: bool) -> Result<Wanted, String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, namespace) = (text(&claim.metadata.name), text(&claim.metadata.namespace));
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    if is_own && !owners.any(|owner| owner.uid == pod::uid(pod)) {
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for Pod {}/{} (Pod is not owner)",
            pod::namespace(pod),
            pod::name(pod)
        ));
    }
    let status = claim.status.clone().unwrap_or_default();
    let mut reserved = status.reserved_for.iter().flatten();
    if !reserved.any(|one| one.uid == pod::uid(pod)) {
        return Err(format!(
            "pod {} ({}) is not allowed to use ResourceClaim {name} ({})",
            pod::name(pod),
            pod::uid(pod),
            text(&claim.metadata.uid)
        ));
    }
    let Some(allocation) = status.allocation else {
        return Err(format!("ResourceClaim {name}: not allocated"));
    };
    let results = allocation.devices.unwrap_or_default().results.unwrap_or_default();
    let drivers = results.into_iter().map(|one| (one.driver, ledger::Driver::default())).collect();
    let uid = text(&claim.metadata.uid);
    Ok(Wanted { claim: Claim { uid, name, namespace, drivers, ..Claim::default() } })
}

impl Kubelet {
    /// Has a pod's claims prepared by their drivers; nothing happens to those that are.
    pub async fn prepare_claims(&self, pod: &Pod) -> Result<(), String> {
        let prepared = self.prepare_all(pod).await;
        prepared.map_err(|why| format!("prepare dynamic resources: {why}"))
    }

    async fn prepare_all(&self, pod: &Pod) -> Result<(), String> {
        let mut names = Vec::new();
        for claim in pod::spec(pod).resource_claims.iter().flatten() {
            names.extend(name_of(pod, claim)?);
        }
        let extended = pod::status(pod).extended_resource_claim_status.as_ref();
        names.extend(extended.map(|one| (one.resource_claim_name.clone(), false)));
        if names.is_empty() {
            return Ok(());
        }
        // First everything is looked at: what cannot be prepared must not have to be taken back.
        let mut all = Vec::new();
        for (name, is_own) in names {
            let fetched = self.client.get::<ResourceClaim>(pod::namespace(pod), &name).await;
            let fetched = fetched
                .map_err(|status| format!("fetch ResourceClaim {name}: {}", status.message))?;
            let claim: ResourceClaim = fetched.decode().map_err(|error| error.to_string())?;
            let wanted = wanted(pod, &claim, is_own)?;
            for driver in wanted.claim.drivers.keys() {
                self.dra.driver(driver)?;
            }
            all.push(wanted.claim);
        }
        let mut batches: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
        for claim in &all {
            let asks = self.dra.ledger.lock().begin(pod::uid(pod), claim.clone());
            // That the claim is ours is on the disk before a driver is asked.
            self.dra.write(&self.config.root)?;
            if asks? {
                for driver in claim.drivers.keys() {
                    batches.entry(driver.clone()).or_default().push(claim.clone());
                }
            }
        }
        for (driver, claims) in &batches {
            self.prepare_by(driver, claims).await?;
        }
        {
            let mut ledger = self.dra.ledger.lock();
            for claim in &all {
                if let Some(known) = ledger.get_mut(&claim.namespace, &claim.name) {
                    known.is_prepared = true;
                }
            }
        }
        self.dra.write(&self.config.root)
    }

    async fn prepare_by(&self, driver: &str, claims: &[Claim]) -> Result<(), String> {
        let answer = self.dra.driver(driver)?.prepare(claims.iter().map(asked).collect()).await?;
        for claim in claims {
            let Some(result) = answer.claims.get(&claim.uid) else {
                let missing = claims.len().saturating_sub(answer.claims.len());
                return Err(format!("NodePrepareResources skipped {missing} ResourceClaims"));
            };
            if !result.error.is_empty() {
                return Err(format!(
                    "NodePrepareResources failed for ResourceClaim {}: {}",
                    claim.name, result.error
                ));
            }
            let devices = result.devices.iter().cloned().map(|one| Device {
                pool_name: one.pool_name,
                device_name: one.device_name,
                share: one.share_id,
                request_names: one.request_names,
                cdi: one.cdi_device_ids,
            });
            let mut ledger = self.dra.ledger.lock();
            if let Some(known) = ledger.get_mut(&claim.namespace, &claim.name) {
                // What the driver says now counts, whatever it said before.
                known.drivers.entry(driver.to_owned()).or_default().devices = devices.collect();
            }
        }
        Ok(())
    }

    /// Has taken back what a pod used and nobody else does. It may be asked again.
    pub async fn unprepare_claims(&self, uid: &str) -> Result<(), String> {
        if !self.dra.ledger.lock().pods().contains(uid) {
            return Ok(());
        }
        let unprepared = self.unprepare_all(uid).await;
        unprepared.map_err(|why| format!("unprepare dynamic resources: {why}"))
    }

    async fn unprepare_all(&self, uid: &str) -> Result<(), String> {
        let last = self.dra.ledger.lock().end(uid);
        let mut batches: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
        for claim in &last {
            for driver in claim.drivers.keys() {
                batches.entry(driver.clone()).or_default().push(claim.clone());
            }
        }
        for (driver, claims) in &batches {
            let asked = claims.iter().map(asked).collect();
            let answer = self.dra.driver(driver)?.unprepare(asked).await?;
            for claim in claims {
                let Some(result) = answer.claims.get(&claim.uid) else {
                    let missing = claims.len().saturating_sub(answer.claims.len());
                    return Err(format!("NodeUnprepareResources skipped {missing} ResourceClaims"));
                };
                if !result.error.is_empty() {
                    return Err(format!(
                        "NodeUnprepareResources failed for ResourceClaim {}: {}",
                        claim.name, result.error
                    ));
                }
            }
        }
        last.iter().for_each(|claim| self.dra.ledger.lock().remove(claim));
        self.dra.write(&self.config.root)
    }

    /// Has the statuses written anew of pods that use devices which are otherwise than before.
    fn tell_of_devices(&self, driver: &str, devices: &BTreeSet<(String, String)>) {
        if devices.is_empty() {
            return;
        }
        let holders = self.dra.ledger.lock().holders(driver, devices);
        holders.into_iter().for_each(|uid| self.queue.add(uid));
    }

    /// Claims of pods that are no more, which something kept from being taken back.
    pub async fn unprepare_orphans(&self) {
        let pods = self.dra.ledger.lock().pods();
        for uid in pods.into_iter().filter(|uid| !self.holds(uid)) {
            if let Err(why) = self.unprepare_claims(&uid).await {
                tracing::warn!(pod = uid, "failed to {why}");
            }
        }
    }

    /// Deletes what drivers said that this node has: of one driver, or of all at the start, when
    /// none has registered yet (a driver that runs publishes its devices again).
    pub async fn forget_slices(&self, driver: Option<&str>) {
        let mut fields = vec![format!("spec.nodeName={}", self.config.node_name)];
        fields.extend(driver.map(|driver| format!("spec.driver={driver}")));
        let Ok(fields) = Selector::parse(&fields.join(",")) else { return };
        let of = Collection::all(ApiResource::of::<ResourceSlice>()).with_fields(fields);
        if let Err(status) = self.client.delete_collection(of, Delete::default()).await {
            tracing::warn!("failed to delete ResourceSlices: {}", status.message);
        }
    }
}

fn asked(claim: &Claim) -> proto::Claim {
    proto::Claim {
        namespace: claim.namespace.clone(),
        uid: claim.uid.clone(),
        name: claim.name.clone(),
    }
}
