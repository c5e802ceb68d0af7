//! The verbs, each written once over every row of the registry.
//!
//! ```text
//!  create ┐                          ┌ managed   who owns which field
//!  update ├─► write: old, wanted ──► ┤ rules     prepare, validate (the kind's own)
//!  patch  ┘   until nobody is faster └ store     compare and swap
//! ```
//! A subresource is either a part of its object, written through the same path, or a row of
//! [`subresource`] with an answer of its own.
mod clean_up;
mod create;
mod delete;
mod managed;
mod moments;
mod object;
mod paging;
mod patch;
mod privileged;
mod read;
mod subresource;
mod told;
mod update;
mod watch;
mod write;

pub use crate::extend::definitions::current;
pub use clean_up::start as clean_up;
pub use object::is_gone;
pub use read::{list_of, page};
pub use told::{Telling, Told};
pub use watch::Running;

use crate::answer::Answer;
pub use crate::asked::Context;
use crate::call::Call;
use crate::state::peculiar;
use api::kinds::Verb;
use api::status::Status;

/// Whether a call is about the stored objects of its row, whole.
pub fn is_of_objects(call: &Call) -> bool {
    call.subresource.is_none() && call.resource.is_stored() && subresource::find(call).is_none()
}

/// An answer, and what the client is told beside it.
pub type Outgoing = Result<(Answer, Vec<String>), Status>;

pub async fn run(context: Context<'_>) -> Outgoing {
    let call = context.call;
    if let Some(own) = subresource::find(call) {
        return own(context).await;
    }
    if !call.resource.is_stored() {
        return Err(unsupported(call));
    }
    // A request's future is as large as its largest verb, and is moved a few times before it runs:
    // all but the smallest have a place of their own.
    let answer = match call.verb {
        Verb::Get => read::get(context).await?,
        Verb::List => Box::pin(read::list(context)).await?,
        Verb::Watch => Box::pin(watch::watch(context)).await?,
        Verb::Create => return warned(call, Box::pin(create::create(context)).await),
        Verb::Update => return warned(call, Box::pin(update::update(context)).await),
        Verb::Patch => return warned(call, Box::pin(patch::patch(context)).await),
        Verb::Delete => Box::pin(delete::delete(context)).await?,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(context)).await?,
    };
    Ok((answer, deprecation(call)))
}

/// A write, with what there is to say about a definition's version whose time is over.
fn warned(call: &Call, outgoing: Outgoing) -> Outgoing {
    let first = if call.resource.definition.is_some() { deprecation(call) } else { Vec::new() };
    outgoing.map(|(answer, warnings)| (answer, first.into_iter().chain(warnings).collect()))
}

/// A word about a resource whose time is over, whatever is done with it. Writes of built-in kinds say
/// it by their rules.
fn deprecation(call: &Call) -> Vec<String> {
    if let Some(definition) = &call.resource.definition {
        return definition.version.warning.iter().cloned().collect();
    }
    peculiar::of(&call.resource).deprecated.map(str::to_owned).into_iter().collect()
}

/// The row says that there is such a verb, but nobody does it.
pub fn unsupported(call: &Call) -> Status {
    Status::method_not_supported(call.resource.group_resource(), call.verb.as_str())
}
