//! get and list.
use super::{Context, current, paging};
use crate::answer::{self, Answer, Page, View};
use crate::call::{Call, ListOptions, Options, Place};
use crate::extend::definitions;
use crate::ground::turns;
use crate::guard::fairness::List;
use crate::server::ApiServer;
use crate::state::keys::{range, status_of};
use crate::state::selection::Selection;
use api::status::Status;

/// How much larger an object is as a tree: measured.
const TREE: u64 = 10;

pub async fn get(context: Context<'_>) -> Result<Answer, Status> {
    let (api, call) = (context.api, context.call);
    let view = context.view()?;
    let found = current(api, &call.resource, &call.namespace, &call.name).await?;
    answer::stored(&found, &call.resource, &view)
}

pub async fn list(context: Context<'_>) -> Result<Answer, Status> {
    let (api, call) = (context.api, context.call);
    let view = context.view()?;
    let options = call.list_options()?;
    let page = page(api, call, &options).await?;
    turns::share().await;
    let held = api.budget().take(weight(api, call, &page, &view).await).await?;
    let answer = answer::list(api, page, &call.resource, &view).await?;
    Ok(held.until_sent(answer, api.request_timeout()))
}

/// What a list will hold while it is made and sent, about.
async fn weight(api: &ApiServer, call: &Call, page: &Page, view: &View) -> u64 {
    let known = api.known(&call.resource).await;
    let average = known.and_then(|(objects, bytes)| bytes.checked_div(objects as u64));
    let bytes = average.unwrap_or(0) * page.objects.len() as u64;
    // A tree is many times as large as its text.
    if view.makes_trees() { bytes * TREE } else { bytes }
}

/// What there is to know about a list before it is made; nothing if the call is none.
pub async fn list_of(api: &ApiServer, call: &Call) -> Option<List> {
    let limit = match &call.options {
        Options::List(list) => list.as_ref().map_or(0, |list| list.limit),
        Options::Watch(Ok(watch)) if watch.begins_with_list() => 0,
        _ => return None,
    };
    let (objects, bytes) = api.known(&call.resource).await?;
    let objects = objects as u64;
    Some(List {
        objects,
        bytes: bytes.checked_div(objects).unwrap_or(0),
        limit: limit as u64,
        single: !call.name.is_empty() || !call.selected_name().is_empty(),
    })
}

/// The page that is asked for.
pub async fn page(api: &ApiServer, call: &Call, options: &ListOptions) -> Result<Page, Status> {
    let selection = Selection::new(&options.selectors, &call.resource)?.named(&call.name);
    let limit = options.limit;
    let whole = range(&call.resource, &call.namespace);
    let place = options.place.clone()?;
    let (from, at) = paging::range(&place, &whole);
    let cache = api.cache(&call.resource).await?;
    let everything = selection.is_everything();
    let term = selection.in_cache(&call.resource, &call.namespace).term;
    let wanted = store::cache::Selection { range: from.clone(), term };
    // A selector drops objects, so only what it leaves counts towards the limit.
    let engine_limit = if everything { limit } else { 0 };
    let mut found = match cache.list(&wanted, engine_limit, at).await {
        Ok(found) => found,
        Err(error) => {
            return Err(match (error, &place) {
                (store::Error::Compacted { .. }, Place::After(token)) => paging::expired(token),
                (error, _) => status_of(error, &call.resource),
            });
        }
    };
    if call.resource.definition.is_some() {
        found.kvs = definitions::converted(api, &call.resource, found.kvs).await?;
    }
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
        Some(last) => paging::token(&last.key, &whole, found.revision),
    };
    let remaining = (more && everything).then(|| found.count.saturating_sub(found.kvs.len()));
    Ok(Page { objects: found.kvs, revision: found.revision, next, remaining })
}
