//! What can go wrong, in the words of the interface; the same for every engine.
use crate::model::{LeaseId, MAX_REQUEST_BYTES, Revision};

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The API server answers 410 Gone: the client lists again.
    #[error("revision {requested} was compacted; history begins after {compacted}")]
    Compacted { requested: Revision, compacted: Revision },
    #[error("revision {requested} has not happened yet; the store is at {current}")]
    FutureRevision { requested: Revision, current: Revision },
    #[error(
        "a request of {bytes} bytes is too large: keys and values may take {MAX_REQUEST_BYTES} bytes"
    )]
    TooLarge { bytes: usize },
    /// Nothing was changed. Deletions and compaction still work, and give space back.
    #[error(
        "the disk of the store is full ({0}): free some space or delete objects; \
         until then only deletions are accepted"
    )]
    NoSpace(String),
    /// A write that ends so may or may not have happened; it will not happen half.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    #[error("lease {0:x} does not exist")]
    LeaseNotFound(LeaseId),
    #[error("lease {0:x} already exists")]
    LeaseExists(LeaseId),
    /// The caller's transformation does not know what to make of a value.
    #[error("{0}")]
    Untransformable(String),
    #[error("invalid request: {0}")]
    Invalid(String),
}

pub type Result<T> = std::result::Result<T, Error>;

const CLOSED: &str = "the store was closed";

impl Error {
    /// What everybody is told once the engine stops.
    pub fn closed() -> Error {
        Error::Unavailable(CLOSED.into())
    }

    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Unavailable(cause) if cause == CLOSED)
    }
}
