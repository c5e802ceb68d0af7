//! Which keys are whose, and what a failure of the store means.
use api::kinds::Resource;
use api::status::Status;
use store::KeyRange;

/// The keys of a namespace's objects, or of all.
pub fn range(resource: &Resource, namespace: &str) -> KeyRange {
    match namespace {
        "" => KeyRange::prefix(resource.key_prefix().as_str()),
        namespace => KeyRange::prefix(format!("{}{namespace}/", resource.key_prefix()).as_str()),
    }
}

/// What a failure of the store means to a client.
pub fn status_of(error: store::Error, resource: &Resource) -> Status {
    match error {
        store::Error::Compacted { requested, .. } => Status::expired(format!(
            "The resourceVersion for the provided list is too old ({requested})."
        )),
        store::Error::FutureRevision { requested, current } => {
            Status::too_large_resource_version(requested, current, 1)
        }
        store::Error::TooLarge { .. } => {
            Status::request_entity_too_large("etcdserver: request is too large")
        }
        store::Error::NoSpace(_) => Status::internal_error(error),
        store::Error::Unavailable(_) => {
            Status::server_timeout(resource.group_resource(), "access", 1)
        }
        other => Status::internal_error(other),
    }
}
