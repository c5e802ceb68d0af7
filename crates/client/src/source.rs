//! The one door to an API server: what can be asked, and what comes back.
//!
//! Whoever implements [`Source`] hands out shared [`Object`]s. Over HTTPS they are made of what
//! was received; in process they are the API server's own, and nothing is encoded or decoded for
//! a list or a watch. What is written goes in as a tree, which is what a server works on.
mod options;
mod query;
mod request;

pub use options::{At, Delete, Patch, Preconditions, Propagation, Write};
pub use request::Request;

use crate::resource::ApiResource;
use api::object::Object;
use api::selector::{field, label};
use api::status::Status;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

pub type Answer<'a, T> = BoxFuture<'a, Result<T, Status>>;

/// An API server, as one user sees it. Failures of the way there are a `Status` too, as clients
/// of upstream's make them: `ServiceUnavailable` or `Timeout`.
pub trait Source: Send + Sync + 'static {
    /// One object's verbs.
    fn call(&self, call: Call) -> Answer<'_, Outcome>;

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List>;

    /// The stream ends when the server ends it, which it does every few minutes; an error is the
    /// last thing in it. It holds no more than a few events that nobody has taken.
    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch>;

    /// What is not about objects: discovery, OpenAPI, health, logs.
    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer>;
}

/// Objects of one resource, all or some.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    pub resource: ApiResource,
    /// Empty: of all namespaces.
    pub namespace: String,
    pub labels: label::Selector,
    pub fields: field::Selector,
}

impl Collection {
    pub fn all(resource: impl Into<ApiResource>) -> Collection {
        Collection {
            resource: resource.into(),
            namespace: String::new(),
            labels: label::Selector::everything(),
            fields: field::Selector::everything(),
        }
    }

    /// Everything of its resource.
    pub fn is_whole(&self) -> bool {
        self.namespace.is_empty() && self.labels.is_everything() && self.fields.is_everything()
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Collection {
        Collection { namespace: namespace.to_owned(), ..self }
    }

    #[must_use]
    pub fn with_labels(self, labels: label::Selector) -> Collection {
        Collection { labels, ..self }
    }

    #[must_use]
    pub fn with_fields(self, fields: field::Selector) -> Collection {
        Collection { fields, ..self }
    }
}

/// Which part of a list, and how new it has to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub at: At,
    /// 0: all at once.
    pub limit: u32,
    /// The token that the page before ended with.
    pub continue_token: String,
}

#[derive(Debug, Clone, Default)]
pub struct List {
    pub items: Vec<Arc<Object>>,
    pub revision: u64,
    /// Empty on the last page.
    pub continue_token: String,
    pub remaining_item_count: Option<i64>,
}

/// Where a watch begins.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchFrom {
    /// After this revision; 0: wherever the server likes. With `initial_events`, every object
    /// comes first, at least as new as this.
    pub revision: u64,
    /// A streaming list: objects, then a bookmark that says so, then changes.
    pub initial_events: bool,
    /// When the server is to end it.
    pub timeout: Option<Duration>,
}

pub type Watch = BoxStream<'static, Result<Event, Status>>;

/// What happened to an object, with the object after it; before it, if it was deleted.
#[derive(Debug, Clone)]
pub enum Event {
    Added(Arc<Object>),
    Modified(Arc<Object>),
    Deleted(Arc<Object>),
    /// Everything up to this revision has been told.
    Bookmark {
        revision: u64,
        initial_events_end: bool,
    },
}

/// One request about one object, or about a collection's objects one by one.
#[derive(Debug, Clone)]
pub struct Call {
    pub resource: ApiResource,
    pub namespace: String,
    /// Empty to create.
    pub name: String,
    /// `status`, `scale`, `binding`, `eviction`, `token`, `approval`, `finalize`, `log` …
    pub subresource: Cow<'static, str>,
    pub ask: Ask,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Get,
    Create(Value, Write),
    Update(Value, Write),
    Patch(Patch, Write),
    Delete(Delete),
    /// Deletes what the selectors select; `name` is empty.
    DeleteCollection(Delete, Box<(label::Selector, field::Selector)>),
}

/// What a call came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub object: Said,
    /// What the server wants people to know: deprecations and the like.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone)]
pub enum Said {
    Object(Arc<Object>),
    /// Done, and there is no object to show: most deletions and some subresources.
    Status(Box<Status>),
}

impl Outcome {
    /// The object, which all but deletions answer with.
    pub fn object(self) -> Result<Arc<Object>, Status> {
        match self.object {
            Said::Object(object) => Ok(object),
            Said::Status(status) => {
                let text = format!("the server answered with a status: {}", status.message);
                Err(Status::internal_error(text))
            }
        }
    }
}

/// A request by path.
#[derive(Debug, Clone, Default)]
pub struct Raw {
    pub method: http::Method,
    /// With the query.
    pub path: String,
    pub accept: String,
    pub content_type: String,
    pub body: Bytes,
}

impl Raw {
    /// The same with a parameter; an empty one is left out.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Raw {
        if !value.is_empty() {
            self.path.push(if self.path.contains('?') { '&' } else { '?' });
            self.path.push_str(name);
            self.path.push('=');
            self.path.push_str(&escaped(value));
        }
        self
    }

    pub fn get(path: impl Into<String>) -> Raw {
        Raw { path: path.into(), accept: "application/json, */*".to_owned(), ..Raw::default() }
    }
}

/// A text as it may stand in a path or behind a `=`.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// All but what stays as it is.
pub(crate) const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub struct RawAnswer {
    pub code: u16,
    pub content_type: String,
    /// Comes as it is sent: a log may be followed.
    pub body: BoxStream<'static, Result<Bytes, Status>>,
}

impl RawAnswer {
    /// The whole body.
    pub async fn bytes(self) -> Result<Bytes, Status> {
        self.at_most(usize::MAX).await
    }

    /// The whole body, unless it has more bytes than that.
    pub async fn at_most(mut self, most: usize) -> Result<Bytes, Status> {
        use futures_util::StreamExt;
        let mut all = Vec::new();
        while let Some(piece) = self.body.next().await {
            let piece = piece?;
            if piece.len() > most - all.len() {
                return Err(Status::internal_error(format!(
                    "an answer is larger than {most} bytes"
                )));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }
}
