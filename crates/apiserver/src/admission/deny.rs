//! Refuses everything: for those who want to see what a refusal does.
use super::Attributes;
use api::status::Status;

pub async fn deny(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    Err(attributes.forbidden("admission control is denying all modifications"))
}
