//! One of many acts: leader election on a Lease, as upstream's `tools/leaderelection` does it.
//!
//! Clocks are not compared. A candidate takes a lease over when it has not seen it change for as
//! long as the lease says, by its own clock; a leader gives up when it could not renew in time,
//! well before anybody else may believe so.
use crate::client::Client;
use crate::context::Context;
use crate::events::{Happening, Recorder, reference};
use api::object::Object;
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Upstream's.
const JITTER: f64 = 1.2;

/// Which lease, and how long everything takes.
#[derive(Debug, Clone)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// Who this candidate is; upstream's components are `host_uuid`.
    pub identity: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    /// Gives the lease back when it stops, so that the next leader need not wait.
    pub release_on_stop: bool,
}

impl Election {
    /// With upstream's durations.
    pub fn new(context: &Context, namespace: &str, name: &str, host: &str) -> Election {
        Election {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{host}_{}", context.uuid()),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
        }
    }

    fn validate(&self) -> Result<(), String> {
        let faults = [
            (
                self.lease_duration <= self.renew_deadline,
                "leaseDuration must be greater than renewDeadline",
            ),
            (
                self.renew_deadline <= self.retry_period.mul_f64(JITTER),
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (self.retry_period.is_zero(), "retryPeriod must be greater than zero"),
            (self.identity.is_empty(), "Lock identity is empty"),
        ];
        let fault = faults.into_iter().find(|(is_wrong, _)| *is_wrong);
        fault.map_or(Ok(()), |(_, text)| Err(text.to_owned()))
    }
}

/// How a term ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Told to stop, or its work is done.
    Stopped,
    /// The lease could not be renewed in time; somebody else may lead now.
    Lost,
}

/// A candidate.
pub struct Elector {
    election: Election,
    client: Client,
    context: Context,
    recorder: Option<Recorder>,
    observed: Option<Observed>,
    leader: watch::Sender<String>,
}

/// The lease as it was last seen to change, and when.
struct Observed {
    lease: Lease,
    at: Instant,
}

/// What to do about a lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// It is ours: on with it.
    Renew,
    /// It is nobody's any more.
    Take,
    Wait,
}

impl Observed {
    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    fn is_valid(&self, now: Instant) -> bool {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        self.at + Duration::from_secs(seconds.max(0) as u64) > now
    }

    fn step(&self, identity: &str, now: Instant) -> Step {
        match self.holder() {
            holder if holder == identity => Step::Renew,
            "" => Step::Take,
            _ if self.is_valid(now) => Step::Wait,
            _ => Step::Take,
        }
    }
}

impl Elector {
    pub fn new(context: &Context, client: Client, election: Election) -> Result<Elector, String> {
        election.validate()?;
        let (context, leader) = (context.clone(), watch::Sender::default());
        let elector = Elector { election, client, context, recorder: None, observed: None, leader };
        elector.status(0.0);
        Ok(elector)
    }

    /// Who became leader is an event of the lease.
    #[must_use]
    pub fn recording(self, recorder: Recorder) -> Elector {
        Elector { recorder: Some(recorder), ..self }
    }

    /// Who leads, as far as it is known; empty at first.
    pub fn leader(&self) -> watch::Receiver<String> {
        self.leader.subscribe()
    }

    /// Waits until it leads, then runs `lead` for as long as it does. `lead` gets a context of
    /// its own, and must end soon after that stops.
    pub async fn run<F: Future<Output = ()>>(mut self, lead: impl FnOnce(Context) -> F) -> End {
        let context = self.context.clone();
        tokio::select! {
            () = context.stopped() => return End::Stopped,
            () = self.acquire() => {}
        }
        self.record("became leader");
        self.status(1.0);
        let term = context.part();
        let work = lead(term.clone());
        tokio::pin!(work);
        let (end, is_done) = tokio::select! {
            () = &mut work => (End::Stopped, true),
            () = context.stopped() => (End::Stopped, false),
            () = self.renew() => (End::Lost, false),
        };
        term.stop();
        if !is_done {
            // Nobody else believes to lead before the lease is over: so long there is to finish.
            let rest = self.election.lease_duration - self.election.renew_deadline;
            let _ = tokio::time::timeout(rest, work).await;
        }
        self.status(0.0);
        if end == End::Stopped && self.election.release_on_stop {
            let _ = tokio::time::timeout(self.election.renew_deadline, self.release()).await;
        }
        self.record("stopped leading");
        end
    }

    async fn acquire(&mut self) {
        let lease = format!("{}/{}", self.election.namespace, self.election.name);
        tracing::info!(lease, "attempting to acquire leader lease");
        while !self.attempt().await {
            tokio::time::sleep(self.context.jitter(self.election.retry_period, JITTER)).await;
        }
        tracing::info!(lease, "successfully acquired lease");
    }

    /// Renews until it cannot.
    async fn renew(&mut self) {
        let Election { renew_deadline, retry_period, .. } = self.election;
        loop {
            tokio::time::sleep(retry_period).await;
            let renewed = async {
                while !self.attempt().await {
                    tokio::time::sleep(retry_period).await;
                }
            };
            if tokio::time::timeout(renew_deadline, renewed).await.is_err() {
                tracing::warn!(lease = self.election.name, "failed to renew lease");
                return;
            }
        }
    }

    /// One try to get or keep the lease.
    async fn attempt(&mut self) -> bool {
        let held = self.try_once().await;
        if let Err(status) = &held {
            tracing::debug!(%status, lease = self.election.name, "failed to get or keep a lease");
        }
        let holder = self.observed.as_ref().map_or("", Observed::holder).to_owned();
        self.leader.send_if_modified(|leader| {
            let is_new = *leader != holder;
            *leader = holder;
            is_new
        });
        held.unwrap_or(false)
    }

    async fn try_once(&mut self) -> Result<bool, Status> {
        let identity = self.election.identity.clone();
        // The leader knows how it left the lease: one request less, unless somebody changed it.
        if let Some(observed) = &self.observed
            && observed.holder() == identity
            && observed.is_valid(Instant::now())
            && self.write(Step::Renew).await.is_ok()
        {
            return Ok(true);
        }
        let Election { namespace, name, .. } = &self.election;
        match self.client.get::<Lease>(namespace, name).await {
            Ok(object) => self.observe(&object)?,
            Err(status) if status.is_not_found() => {
                let created = self.client.create(&self.first()).await?;
                self.observe(&created)?;
                return Ok(true);
            }
            Err(status) => return Err(status),
        }
        let step = self.observed.as_ref().map(|seen| seen.step(&identity, Instant::now()));
        match step.unwrap_or(Step::Wait) {
            Step::Wait => Ok(false),
            step => {
                if step == Step::Renew {
                    let labels = [("name", self.election.name.as_str())];
                    self.context.metrics().count("leader_election_slowpath_total", &labels);
                }
                self.write(step).await.map(|()| true)
            }
        }
    }

    /// A lease that has not changed is as old as when it was first seen so.
    fn observe(&mut self, object: &Arc<Object>) -> Result<(), Status> {
        let lease: Lease = object.decode().map_err(Status::internal_error)?;
        match &mut self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.lease = lease,
            observed => *observed = Some(Observed { lease, at: Instant::now() }),
        }
        Ok(())
    }

    fn first(&self) -> Lease {
        let now = Some(MicroTime(micros(self.context.now())));
        let metadata = ObjectMeta {
            namespace: Some(self.election.namespace.clone()),
            name: Some(self.election.name.clone()),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: Some(self.election.lease_duration.as_secs() as i32),
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    /// Writes the lease that was last seen as ours.
    async fn write(&mut self, step: Step) -> Result<(), Status> {
        let Some(observed) = &self.observed else { return Ok(()) };
        let mut lease = observed.lease.clone();
        let old = lease.spec.take().unwrap_or_default();
        let new = self.first().spec.unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or(0);
        lease.spec = Some(match step {
            Step::Renew => LeaseSpec {
                acquire_time: old.acquire_time.or(new.acquire_time.clone()),
                lease_transitions: Some(transitions),
                ..new
            },
            Step::Take | Step::Wait => {
                LeaseSpec { lease_transitions: Some(transitions + 1), ..new }
            }
        });
        let written = self.client.update(&lease).await?;
        self.observe(&written)
    }

    /// Gives the lease to whoever comes next.
    async fn release(&mut self) {
        loop {
            let Election { namespace, name, identity, .. } = &self.election;
            let Ok(object) = self.client.get::<Lease>(namespace, name).await else { return };
            let Ok(mut lease) = object.decode::<Lease>() else { return };
            let old = lease.spec.take().unwrap_or_default();
            if old.holder_identity.as_deref() != Some(identity) {
                return;
            }
            let now = Some(MicroTime(micros(self.context.now())));
            lease.spec = Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                renew_time: now.clone(),
                acquire_time: now,
                lease_transitions: old.lease_transitions,
                ..LeaseSpec::default()
            });
            match self.client.update(&lease).await {
                Err(status) if status.is_conflict() => {}
                Err(status) => return tracing::warn!(%status, "failed to release lease"),
                Ok(_) => return,
            }
        }
    }

    fn record(&self, what: &str) {
        let (Some(recorder), Some(observed)) = (&self.recorder, &self.observed) else { return };
        let note = format!("{} {what}", self.election.identity);
        recorder.record(Happening::normal(reference(&observed.lease), "LeaderElection", note));
    }

    fn status(&self, value: f64) {
        let labels = [("name", self.election.name.as_str())];
        self.context.metrics().set("leader_election_master_status", &labels, value);
    }
}

/// As precise as the API writes it, so that what was written compares equal to what comes back.
fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
