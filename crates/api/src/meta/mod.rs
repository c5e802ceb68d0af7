//! The kinds of `meta.k8s.io` that wrap other objects: the metadata of one, a table of many, a
//! list, an event of a watch; and what discovery answers with.
//!
//! `k8s-openapi` has the types of the published API, which leaves these out. An object inside
//! them is whatever the caller has at hand: encoded JSON (`&RawValue`), a tree, or a typed form.

pub mod discovery;
mod list;
mod partial;
mod table;
mod watch;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResource, APIResourceList, APIVersions, ListMeta, ObjectMeta,
};
pub use list::List;
pub use partial::{PartialObjectMetadata, PartialObjectMetadataList};
pub use table::{IncludeObject, Table, TableColumnDefinition, TableRow, TableRowCondition};
pub use watch::{EventType, WatchEvent, write_watch_event};
