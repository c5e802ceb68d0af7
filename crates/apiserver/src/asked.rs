//! A request that is known to be allowed, with all that came with it, on its way to be done.
use crate::answer::View;
use crate::answer::budget::Held;
use crate::call::{Call, text};
use crate::guard::audit::Record;
use crate::guard::authn::User;
use crate::server::ApiServer;
use api::content::{self, Endpoint, PatchType};
use api::rules::Part;
use api::status::Status;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// A call on its way: what every verb needs to know.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub api: &'a ApiServer,
    pub call: &'a Call,
    pub received: &'a Received,
}

impl<'a> Context<'a> {
    /// Tells the audit log something, if this call is recorded.
    pub fn audit(&self, tell: impl FnOnce(&Record)) {
        if let Some(record) = &self.received.audit {
            tell(record);
        }
    }

    /// Which part of its object the call is about.
    pub fn part(&self) -> Part<'a> {
        match self.call.subresource.map(|subresource| subresource.name) {
            // A scale is a view of the object itself.
            None | Some("scale") => Part::Main,
            Some(name) => Part::Sub(name),
        }
    }

    /// How the client wants objects of the call's row.
    pub fn view(&self) -> Result<View, Status> {
        View::of(self.call, &self.received.headers, self.endpoint())
    }

    /// The same of an answer that is not an object of the call's row.
    pub fn own_view(&self) -> Result<View, Status> {
        View::of(self.call, &self.received.headers, content::ANSWERS)
    }

    pub fn stream_view(&self) -> Result<View, Status> {
        View::of_stream(self.call, &self.received.headers, self.endpoint())
    }

    /// What the call's own objects can be sent as.
    fn endpoint(&self) -> Endpoint {
        match self.call.resource.definition {
            Some(_) => content::CUSTOM_RESOURCES,
            None => content::OBJECTS,
        }
    }
}

/// A request whose body has been read.
pub struct Received {
    pub user: Arc<User>,
    /// What is recorded about it, if anything is.
    pub audit: Option<Arc<Record>>,
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What is to be written, where it never was a text: a component of this process made it.
    pub given: Option<Arc<Value>>,
    /// What was remarked on a request that is refused after all.
    pub remarks: Mutex<Vec<String>>,
    /// The connection itself, for whoever goes on with it in another protocol.
    pub upgrade: Mutex<Option<OnUpgrade>>,
    /// What its body takes of the memory for bodies.
    pub held: Held,
}

impl Received {
    /// Remembers what was remarked, in case that the request is refused.
    pub fn remark(&self, warnings: &[String]) {
        if !warnings.is_empty() {
            self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(warnings);
        }
    }

    pub fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut *self.remarks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One that came from within the process.
    pub fn within(
        user: Arc<User>,
        audit: Option<Arc<Record>>,
        request: Request<()>,
        given: Option<Arc<Value>>,
    ) -> Received {
        let (head, ()) = request.into_parts();
        Received {
            user,
            audit,
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            body: Bytes::new(),
            given,
            remarks: Mutex::default(),
            upgrade: Mutex::default(),
            held: Held::default(),
        }
    }

    /// Whether it is a server-side apply, which is counted as a verb of its own.
    pub fn is_apply(&self) -> bool {
        let media = PatchType::Apply.media_type().as_bytes();
        let content_type = self.headers.get(header::CONTENT_TYPE);
        content_type.is_some_and(|said| said.as_bytes().starts_with(media))
    }

    pub fn header(&self, name: header::HeaderName) -> &str {
        text(&self.headers, name)
    }
}
