//! What is asked of an API server, as the request that it is in HTTP's words: for whoever sends it, and
//! for a server in the same process that is asked without sending anything.
use super::query::{self, Query};
use super::{Ask, Call, Collection, Page, WatchFrom};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// With the query.
    pub path: String,
    /// Empty where there is no body.
    pub content_type: &'static str,
    pub body: Bytes,
}

const JSON: &str = "application/json";

impl Request {
    fn get(path: String) -> Request {
        Request { method: Method::GET, path, content_type: "", body: Bytes::new() }
    }

    /// All but what is written: for whoever hands that over as it is.
    pub fn without_body(call: &Call) -> Request {
        let Call { resource, namespace, name, subresource, ask } = call;
        let mut query = Query::default();
        let (method, content_type) = match ask {
            Ask::Get => (Method::GET, ""),
            Ask::Create(_, options) => {
                query.write(options);
                (Method::POST, JSON)
            }
            Ask::Update(_, options) => {
                query.write(options);
                (Method::PUT, JSON)
            }
            Ask::Patch(patch, options) => {
                query.write(options);
                query.add("force", if options.force { "true" } else { "" });
                (Method::PATCH, patch.content_type())
            }
            Ask::Delete(_) => (Method::DELETE, JSON),
            Ask::DeleteCollection(_, selectors) => {
                query.select(&selectors.0, &selectors.1);
                (Method::DELETE, JSON)
            }
        };
        let path = query::path(resource, namespace, name, subresource, &query);
        Request { method, path, content_type, body: Bytes::new() }
    }

    pub fn list(of: &Collection, page: &Page) -> Request {
        let mut query = Query::default();
        query.select(&of.labels, &of.fields);
        query.page(page);
        Request::get(query::path(&of.resource, &of.namespace, "", "", &query))
    }

    pub fn watch(of: &Collection, from: &WatchFrom) -> Request {
        let mut query = Query::default();
        query.select(&of.labels, &of.fields);
        query.watch(from);
        Request::get(query::path(&of.resource, &of.namespace, "", "", &query))
    }
}

impl From<&Call> for Request {
    fn from(call: &Call) -> Request {
        let body = match &call.ask {
            Ask::Get => Bytes::new(),
            Ask::Create(body, _) | Ask::Update(body, _) => json(body),
            Ask::Patch(patch, _) => json(patch.value()),
            Ask::Delete(options) | Ask::DeleteCollection(options, _) => json(&options.tree()),
        };
        Request { body, ..Request::without_body(call) }
    }
}

fn json(value: &Value) -> Bytes {
    value.to_string().into()
}
