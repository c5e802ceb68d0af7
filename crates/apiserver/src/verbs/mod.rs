//! The verbs, each written once over every row of the registry.
mod change;
mod delete;
mod object;
mod read;
mod scale;
mod watch;

pub use object::begin;

use crate::answer::Answer;
use crate::request::Call;
use crate::resources::ApiServer;
use crate::serve::Received;
use api::kinds::Verb;
use api::status::Status;

/// Runs a call. Warnings go to the client beside the answer.
pub async fn run(
    api: &ApiServer,
    call: &Call,
    received: &Received,
) -> Result<(Answer, Vec<String>), Status> {
    if call.subresource.is_some_and(|s| s.name == "scale") {
        return Ok((scale::run(api, call, received).await?, Vec::new()));
    }
    let only_status =
        call.subresource.is_none_or(|s| matches!(s.name, "status" | "finalize" | "approval"));
    if !call.resource.is_stored() || !only_status {
        // Questions and the other subresources have no generic behaviour; their own is to come.
        return Err(Status::method_not_supported(
            call.resource.group_resource(),
            call.verb.as_str(),
        ));
    }
    let answer = match call.verb {
        Verb::Get => read::get(api, call, received).await?,
        Verb::List => read::list(api, call, received).await?,
        Verb::Watch => watch::watch(api, call, received).await?,
        Verb::Create => return change::create(api, call, received).await,
        Verb::Update => return change::update(api, call, received).await,
        Verb::Patch => return change::patch(api, call, received).await,
        Verb::Delete => delete::delete(api, call, received).await?,
        Verb::DeleteCollection => delete::delete_collection(api, call, received).await?,
    };
    Ok((answer, Vec::new()))
}
