//! get and list.
use crate::answer::{self, Answer, Page};
use crate::request::Call;
use crate::resources::{ApiServer, range, status_of};
use crate::selection::Selection;
use crate::serve::{Received, accepted};
use crate::stored;
use api::kinds::Resource;
use api::status::Status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::cache::At;
use store::{KeyRange, KeyValue};

pub async fn get(api: &ApiServer, call: &Call, received: &Received) -> Result<Answer, Status> {
    let accepted = accepted(received)?;
    let found = current(api, call.resource, &call.namespace, &call.name).await?;
    let object = stored::decode(&found, call.resource)?;
    Ok(answer::object(StatusCode::OK, object, call.resource.ty(), &accepted))
}

/// The object as the store has it now.
pub async fn current(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Arc<KeyValue>, Status> {
    let key = resource.key(namespace, name);
    let found = api.store().get(key.as_bytes()).await.map_err(|e| status_of(e, resource))?;
    found.ok_or_else(|| Status::not_found(resource.group_resource(), name))
}

/// Where a list that was cut short goes on: upstream's token.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    start: String,
}

pub async fn list(api: &ApiServer, call: &Call, received: &Received) -> Result<Answer, Status> {
    let accepted = accepted(received)?;
    let selection = Selection::parse(&call.query, call.resource)?;
    let page = page(api, call, &selection).await?;
    answer::list(&page, call.resource, &accepted)
}

/// The page that the query asks for.
pub async fn page(api: &ApiServer, call: &Call, selection: &Selection) -> Result<Page, Status> {
    let limit = usize::try_from(call.query.number("limit")?.unwrap_or(0)).unwrap_or(0);
    let whole = range(call.resource, &call.namespace);
    let (from, at) = place(call, &whole)?;
    let cache = api.cache(call.resource).await?;
    let everything = selection.is_everything();
    let wanted = store::cache::Selection { range: from.clone(), term: None };
    // A selector drops objects, so only what it leaves counts towards the limit.
    let engine_limit = if everything { limit } else { 0 };
    let mut found =
        cache.list(&wanted, engine_limit, at).await.map_err(|e| status_of(e, call.resource))?;
    let mut more = found.more;
    if !everything {
        found.kvs.retain(|stored| selection.matches(stored));
        more = limit > 0 && found.kvs.len() > limit;
        if more {
            found.kvs.truncate(limit);
        }
    }
    let next = match found.kvs.last().filter(|_| more) {
        None => String::new(),
        Some(last) => {
            let start = last.key.next();
            let start = start.strip_prefix(&*whole.start).unwrap_or(&start);
            let start = String::from_utf8_lossy(start).into_owned();
            let rv = i64::try_from(found.revision).unwrap_or(i64::MAX);
            let token = Continue { v: "meta.k8s.io/v1".into(), rv, start };
            BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
        }
    };
    let remaining = (more && everything).then(|| found.count.saturating_sub(found.kvs.len()));
    Ok(Page { objects: found.kvs, revision: found.revision, next, remaining })
}

/// Which keys to read, as of when: from the continue token, or from the resource version.
fn place(call: &Call, whole: &KeyRange) -> Result<(KeyRange, At), Status> {
    let token = call.query.get("continue");
    let version = call.query.get("resourceVersion");
    if !token.is_empty() {
        let bad = || Status::bad_request(format!("continue key is not valid: {token}"));
        let decoded = BASE64.decode(token).map_err(|_| bad())?;
        let token: Continue = serde_json::from_slice(&decoded).map_err(|_| bad())?;
        let start = [&*whole.start, token.start.as_bytes()].concat();
        let revision = u64::try_from(token.rv).map_err(|_| bad())?;
        return Ok((whole.starting_at(start.as_slice()), At::Exactly(revision)));
    }
    let revision = parse_version(version)?;
    let at = match (call.query.get("resourceVersionMatch"), revision) {
        ("Exact", Some(revision)) if revision > 0 => At::Exactly(revision),
        (_, None) => At::Latest,
        (_, Some(0)) => At::Any,
        (_, Some(revision)) => At::NotOlderThan(revision),
    };
    Ok((whole.clone(), at))
}

/// A resource version; `None` when it is left to the server.
pub fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
        }),
    }
}
