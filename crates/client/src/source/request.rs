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
        let Call { resource, namespace, name, subresource, ask } = call;
        let mut query = Query::default();
        let (method, content_type, body) = match ask {
            Ask::Get => (Method::GET, "", Bytes::new()),
            Ask::Create(body, options) => {
                query.write(options);
                (Method::POST, JSON, json(body))
            }
            Ask::Update(body, options) => {
                query.write(options);
                (Method::PUT, JSON, json(body))
            }
            Ask::Patch(patch, options) => {
                query.write(options);
                query.add("force", if options.force { "true" } else { "" });
                (Method::PATCH, patch.content_type(), json(patch.value()))
            }
            Ask::Delete(options) => (Method::DELETE, JSON, json(&options.tree())),
            Ask::DeleteCollection(options, selectors) => {
                query.select(&selectors.0, &selectors.1);
                (Method::DELETE, JSON, json(&options.tree()))
            }
        };
        let path = query::path(resource, namespace, name, subresource, &query);
        Request { method, path, content_type, body }
    }
}

fn json(value: &Value) -> Bytes {
    value.to_string().into()
}
