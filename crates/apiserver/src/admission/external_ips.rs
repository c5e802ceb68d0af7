//! No service takes over addresses of others; those it has it may keep.
use super::{Attributes, items};
use api::status::Status;
use serde_json::Value;

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.writes() {
        return Ok(());
    }
    let old = attributes.old.unwrap_or(&Value::Null);
    let known = items(&old["spec"]["externalIPs"]);
    let wanted = items(&attributes.new_object()["spec"]["externalIPs"]);
    if wanted.iter().all(|ip| known.contains(ip)) {
        return Ok(());
    }
    Err(attributes.forbidden("Use of external IPs is denied by admission control"))
}
