//! How an object is kept: for how long, and how soon it must be on disk.
use super::peculiar::{self, Kept};
use crate::server::ApiServer;
use crate::state::keys::status_of;
use api::kinds::Resource;
use api::status::Status;
use serde_json::Value;
use std::time::{Duration, Instant};
use store::{Durability, LeaseId, WriteOptions};
use tokio::sync::Mutex;

/// Events that come within this time share a lease, so that they go together too.
const SHARED: Duration = Duration::from_secs(60);

/// The lease that new events are put on.
#[derive(Debug)]
pub struct EventLeases {
    lifetime: Duration,
    current: Mutex<Option<(LeaseId, Instant)>>,
}

impl EventLeases {
    pub fn new(lifetime: Duration) -> Self {
        EventLeases { lifetime, current: Mutex::default() }
    }

    async fn lease(&self, api: &ApiServer) -> Result<LeaseId, store::Error> {
        let mut current = self.current.lock().await;
        if let Some((lease, since)) = *current
            && since.elapsed() < SHARED
        {
            return Ok(lease);
        }
        // The last event to join has its whole life before it.
        let lease = api.store().grant((self.lifetime + SHARED).as_secs()).await?;
        *current = Some((lease, Instant::now()));
        Ok(lease)
    }
}

/// How to write an object of the kind.
pub async fn options(
    api: &ApiServer,
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
) -> Result<WriteOptions, Status> {
    let mut options = WriteOptions::default();
    match peculiar::of(resource).kept {
        Kept::ForAWhile => {
            let lease = api.event_leases().lease(api).await;
            options.lease = lease.map_err(|error| status_of(error, resource))?;
        }
        Kept::Renewed if old.is_some_and(|old| is_renewal(old, new)) => {
            options.durability = Durability::Coalescible;
        }
        Kept::Renewed | Kept::UntilDeleted => {}
    }
    Ok(options)
}

/// A lease that is held on to by the same holder: lost in a power cut, it is renewed again.
fn is_renewal(old: &Value, new: &Value) -> bool {
    let rest = |lease: &Value| {
        let mut spec = lease["spec"].clone();
        if let Value::Object(fields) = &mut spec {
            fields.remove("renewTime");
        }
        let meta = &lease["metadata"];
        (spec, meta["labels"].clone(), meta["annotations"].clone(), meta["ownerReferences"].clone())
    };
    new["metadata"].get("deletionTimestamp").is_none() && rest(old) == rest(new)
}

#[cfg(test)]
mod tests {
    use super::is_renewal;
    use serde_json::json;

    #[test]
    fn only_the_time_of_a_lease_may_be_lost() {
        let lease = |holder: &str, time: &str| json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": holder, "renewTime": time}});
        assert!(is_renewal(&lease("a", "1"), &lease("a", "2")));
        assert!(!is_renewal(&lease("a", "1"), &lease("b", "2")));
    }
}
