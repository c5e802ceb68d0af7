//! A request on a resource, whichever door it came through: what it is about, and how it is to be done.
mod options;
mod query;
mod token;

pub use options::{
    DeleteOptions, ListOptions, Options, Place, Selectors, Shown, UNREAD, WatchOptions,
    WriteOptions,
};
pub use query::Query;
pub use token::Token;

use api::kinds::{Registry, ResourceRef, Subresource, Verb, built_in};
use api::names;
use api::status::{ServerResponse, Status};
use http::{HeaderMap, HeaderValue, header};

/// Parts of objects that somebody else answers for.
pub const PASSED_ON: &[&str] = &["attach", "exec", "log", "portforward", "proxy"];

/// A request on a resource.
#[derive(Debug, Clone)]
pub struct Call {
    pub verb: Verb,
    /// The verb as rights name it: empty for a method that has none (`OPTIONS`, which is passed on).
    pub right: &'static str,
    pub resource: ResourceRef,
    pub subresource: Option<&'static Subresource>,
    /// Empty for cluster-scoped resources, and for all namespaces at once.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// What follows the subresource: only what is proxied has a path there.
    pub rest: String,
    pub options: Options,
    pub shown: Shown,
}

impl Call {
    /// The selectors of a request about many objects that could be read.
    pub fn selectors(&self) -> Option<&Selectors> {
        match &self.options {
            Options::List(Ok(list)) => Some(&list.selectors),
            Options::Watch(Ok(watch)) => Some(&watch.selectors),
            Options::DeleteCollection(Ok((_, list))) => Some(&list.selectors),
            _ => None,
        }
    }

    /// The one object that a field selector leaves, or nothing.
    pub fn selected_name(&self) -> String {
        self.selectors()
            .and_then(|selectors| selectors.fields.requires_exact_match("metadata.name"))
            // What is no name names nothing that a right could be about.
            .filter(|name| names::path_segment_name(name).is_empty())
            .map(str::to_owned)
            .unwrap_or_default()
    }

    /// Whether it is for somebody else to answer: a kubelet, a pod, a service.
    pub fn is_passed_on(&self) -> bool {
        self.subresource.is_some_and(|part| PASSED_ON.contains(&part.name))
    }

    /// Whether nothing is to come of it.
    pub fn is_dry_run(&self) -> bool {
        match &self.options {
            Options::Write(write) => write.dry_run,
            Options::Delete(Ok(delete)) | Options::DeleteCollection(Ok((delete, _))) => {
                delete.dry_run
            }
            _ => false,
        }
    }

    /// What is said of a list; what there is to say of everything, if it is none.
    pub fn list_options(&self) -> Result<ListOptions, Status> {
        match &self.options {
            Options::List(list) => list.clone(),
            Options::DeleteCollection(both) => both.clone().map(|(_, list)| list),
            _ => Ok(ListOptions::default()),
        }
    }

    pub fn watch_options(&self) -> Result<WatchOptions, Status> {
        match &self.options {
            Options::Watch(watch) => watch.clone(),
            _ => Ok(WatchOptions::default()),
        }
    }

    /// What is said of a write; it is still to be [checked](WriteOptions::check).
    pub fn write_options(&self) -> &WriteOptions {
        match &self.options {
            Options::Write(write) => write,
            _ => &NONE,
        }
    }

    pub fn delete_options(&self) -> Result<DeleteOptions, Status> {
        match &self.options {
            Options::Delete(delete) => delete.clone(),
            Options::DeleteCollection(both) => both.clone().map(|(delete, _)| delete),
            _ => Ok(DeleteOptions::default()),
        }
    }
}

/// Of what is no write.
static NONE: WriteOptions = WriteOptions::NONE;

/// What a path names, as upstream's `RequestInfo` reads it, whether or not somebody serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The verb as rights name it: empty for a method that has none.
    pub right: &'static str,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// 404 or 405: what those are told who may ask.
    pub code: i32,
}

impl Unserved {
    pub fn status(&self, registry: &Registry) -> Status {
        let row = registry.find(&self.group, &self.version, &self.resource);
        // A part that a definition's objects do not have is missing as the object would be.
        match row.filter(|row| row.definition.is_some() && !self.subresource.is_empty()) {
            Some(row) if self.code == 404 => Status::not_found(row.group_resource(), &self.name),
            _ => ServerResponse { code: self.code, ..ServerResponse::default() }.into(),
        }
    }

    /// Whether nobody is there who could say that it is not served: upstream has somebody for each version
    /// of a built-in group, and for each resource of a definition.
    pub fn leads_nowhere(&self, registry: &Registry) -> bool {
        let rows = || registry.rows_of(&self.group, &self.version);
        match rows().find(|row| row.plural == self.resource) {
            Some(row) if row.definition.is_some() => {
                let everywhere = matches!(self.right, "list" | "watch");
                match row.is_namespaced() {
                    true => self.namespace.is_empty() && !everywhere,
                    false => !self.namespace.is_empty(),
                }
            }
            Some(_) => false,
            None => self.code == 404 && !is_built_in(&self.group),
        }
    }
}

/// Whether a group is one of those that are always there.
pub fn is_built_in(group: &str) -> bool {
    built_in().groups().iter().any(|(built_in, _)| *built_in == group)
}

/// The value of a header; empty if there is none. One that cannot be read is not the same as none: it
/// is like nothing that anybody knows.
pub fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    let value = headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    std::str::from_utf8(value).unwrap_or("\u{fffd}")
}
