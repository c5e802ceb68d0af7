//! update: the whole object, put in the old one's place.
use super::object;
use super::write::{self, Owner};
use super::{Context, Outgoing};
use crate::answer;
use api::rules::Part;
use http::StatusCode;
use serde_json::Value;

pub async fn update(context: Context<'_>) -> Outgoing {
    let (call, received) = (context.call, context.received);
    let view = context.view()?;
    let options = call.write_options().check("UpdateOptions", false)?;
    let (mut new, warnings) = object::decode(received, call, options.validation())?;
    context.audit(|record| record.request_object(&new));
    object::place(&mut new, call)?;
    object::check_name(&new, call)?;
    let may_create =
        call.resource.rules.strategy.allow_create_on_update && context.part() == Part::Main;
    let mut written = match write::old(context).await {
        Err(status) if status.is_not_found() && may_create => {
            let written = write::create(context, new, Owner::Client).await;
            let mut written = written.inspect_err(|_| received.remark(&warnings))?;
            written.warnings.splice(..0, warnings);
            written
        }
        Err(status) => return Err(status),
        Ok(old) => {
            let wanted = |_: &Value| Ok((new.clone(), warnings.clone()));
            let written = write::update(context, old, Owner::Client, wanted).await;
            written.inspect_err(|_| received.remark(&warnings))?
        }
    };
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let warnings = std::mem::take(&mut written.warnings);
    Ok((answer::written(code, written, &call.resource, &view), warnings))
}
