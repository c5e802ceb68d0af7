//! patch, in its four languages.
use super::object::{self, text};
use super::write::{self, Owner};
use super::{Context, Outgoing, current, managed};
use crate::answer::{self, View};
use api::codec::json;
use api::content::PatchType;
use api::patch::json_patch::{self, Limits};
use api::patch::{merge, strategic};
use api::rules::Part;
use api::schema::TypeRef;
use api::status::{ServerResponse, Status};
use http::{StatusCode, header};
use serde_json::Value;

pub async fn patch(context: Context<'_>) -> Outgoing {
    let (call, resource) = (context.call, context.call.resource);
    let view = View::of(context)?;
    let patch = Patch::read(context)?;
    context.audit(|record| record.request_patch(&patch.document));
    let is_apply = patch.language == PatchType::Apply;
    managed::check_options(context, "PatchOptions", is_apply)?;
    let settled = |patched: Value| {
        let decoded = json::canonicalize(patched, resource.ty())
            .map_err(|error| object::unfit(resource, &error))?;
        object::settle(decoded, resource, call.query.field_validation()?)
    };
    let mut written = match current(context.api, resource, &call.namespace, &call.name).await {
        Err(status) if status.is_not_found() && is_apply && context.part() == Part::Main => {
            // Applying to an object that does not exist creates it.
            let new = managed::applied(context, &managed::empty(resource), &patch.document)?;
            if !text(&new, "uid").is_empty() {
                return Err(Status::conflict(
                    resource.group_resource(),
                    &call.name,
                    format!(
                        "uid mismatch: the provided object specified uid {}, and no existing object was found",
                        text(&new, "uid")
                    ),
                ));
            }
            let (new, warnings) = settled(new)?;
            let mut written = write::create(context, new, Owner::Settled).await?;
            written.warnings.splice(..0, warnings);
            written
        }
        Err(status) => return Err(status),
        Ok(old) if is_apply => {
            write::update(context, old, Owner::Settled, |old| {
                settled(managed::applied(context, old, &patch.document)?)
            })
            .await?
        }
        Ok(old) => {
            write::update(context, old, Owner::Client, |old| {
                let new = patch.applied_to(old.clone(), resource.ty())?;
                same_name(&new, old)?;
                settled(new)
            })
            .await?
        }
    };
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let warnings = std::mem::take(&mut written.warnings);
    Ok((answer::written(code, written, resource, &view), warnings))
}

/// A patch may not rename its object.
fn same_name(new: &Value, old: &Value) -> Result<(), Status> {
    let (name, expected) = (text(new, "name"), text(old, "name"));
    if name == expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({expected})"
    )))
}

/// A patch as it was sent.
pub struct Patch {
    pub language: PatchType,
    pub document: Value,
}

impl Patch {
    pub fn read(context: Context<'_>) -> Result<Patch, Status> {
        let received = context.received;
        let language =
            PatchType::of_request(received.header(header::CONTENT_TYPE), PatchType::ALL)?;
        let document = match language {
            PatchType::Apply => api::codec::yaml::decode_untyped(&received.body),
            _ => json::decode_untyped(&received.body),
        };
        let document = document.map_err(|e| Status::bad_request(e.to_string()))?.value;
        Ok(Patch { language, document })
    }

    /// The object with the patch in it; an apply merges, where nobody keeps its owners.
    pub fn applied_to(&self, mut object: Value, ty: TypeRef<'_>) -> Result<Value, Status> {
        let invalid = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
        match self.language {
            PatchType::Json => {
                let limits = Limits::default();
                let patch = json_patch::Patch::decode(self.document.clone(), &limits)
                    .map_err(|e| invalid(&e))?;
                patch.apply(object, &limits).map_err(|error| unprocessable(&error.to_string()))
            }
            PatchType::StrategicMerge => Ok(strategic::merge(object, self.document.clone(), ty)?),
            PatchType::Merge | PatchType::Apply => {
                merge::apply(&mut object, &self.document).map_err(|e| invalid(&e))?;
                Ok(object)
            }
        }
    }
}

/// A patch that is sound and yet does not fit its object.
fn unprocessable(body: &str) -> Status {
    ServerResponse { code: 422, body, ..ServerResponse::default() }.into()
}
