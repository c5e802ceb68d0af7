//! create.
use super::object::{self, text};
use super::write::{self, Owner};
use super::{Context, Outgoing};
use crate::answer;
use api::status::Status;
use http::StatusCode;

/// Names made up are tried so often before the client is asked to.
const NAME_TRIES: usize = 8;

pub async fn create(context: Context<'_>) -> Outgoing {
    let (call, received) = (context.call, context.received);
    let view = context.view()?;
    let options = call.write_options().check("CreateOptions", false)?;
    let (mut object, mut warnings) = object::decode(received, call, options.validation())?;
    context.audit(|record| record.request_object(&object));
    let base = text(&object, "generateName").to_owned();
    let made_up = text(&object, "name").is_empty() && !base.is_empty();
    let mut left = if made_up { NAME_TRIES } else { 1 };
    let mut written = loop {
        left -= 1;
        let wanted = if left > 0 { object.clone() } else { std::mem::take(&mut object) };
        match write::create(context, wanted, Owner::Client).await {
            Err(status) if status.is_already_exists() && left > 0 => {}
            Err(status) if status.is_already_exists() && made_up => {
                let resource = call.resource.group_resource();
                return Err(Status::generate_name_conflict(resource, &base, 1));
            }
            outcome => break outcome.inspect_err(|_| received.remark(&warnings))?,
        }
    };
    warnings.append(&mut written.warnings);
    let answer = answer::written(StatusCode::CREATED, written, &call.resource, &view);
    Ok((answer, warnings))
}
