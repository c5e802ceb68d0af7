//! patch, in its four languages.
use super::managed::{self, Conversions};
use super::object::{self, text};
use super::write::{self, Owner};
use super::{Context, Outgoing};
use crate::answer::{self, Written};
use crate::call::Call;
use api::codec::json::{self, Decoded};
use api::codec::object::TypeMeta;
use api::codec::{DecodeError, FieldValidation, Problem};
use api::content::PatchType;
use api::custom;
use api::field::Path;
use api::group::GroupKind;
use api::kinds::Resource;
use api::patch::apply::{self, typed};
use api::patch::json_patch::{self, Limits};
use api::patch::{golang, merge, strategic, strict};
use api::rules::Part;
use api::schema::TypeRef;
use api::status::{ServerResponse, Status};
use http::{StatusCode, header};
use serde_json::Value;

pub async fn patch(context: Context<'_>) -> Outgoing {
    let (call, resource) = (context.call, &context.call.resource);
    let view = context.view()?;
    let patch = Patch::read(context)?;
    context.audit(|record| record.request_patch(&patch.document));
    call.write_options().check("PatchOptions", patch.language == PatchType::Apply)?;
    let conversions = Conversions::default();
    let mut written = loop {
        let written = attempt(context, &patch, &conversions).await;
        // Before a webhook had converted what it had to, nothing has come of it.
        if !conversions.ask(context).await {
            break written?;
        }
    };
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let warnings = std::mem::take(&mut written.warnings);
    Ok((answer::written(code, written, resource, &view), warnings))
}

async fn attempt(
    context: Context<'_>,
    patch: &Patch,
    conversions: &Conversions,
) -> Result<Written, Status> {
    let (call, resource) = (context.call, &context.call.resource);
    let is_apply = patch.language == PatchType::Apply;
    let settled = |patched: Value| {
        let (new, warnings) = patch.decoded(patched, Shape::Own(resource), call)?;
        object::check_name(&new, call)?;
        // Nothing but the object itself says what it is.
        if resource.definition.is_some() && TypeMeta::of(&new).api_version.is_empty() {
            let fault = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
            return Err(Status::internal_error(fault));
        }
        Ok((object::typed(new, resource), warnings))
    };
    match write::old(context).await {
        Err(status) if status.is_not_found() && is_apply && context.part() == Part::Main => {
            // Applying to an object that does not exist creates it.
            let nothing = managed::empty(resource);
            let new = managed::applied(context, conversions, &nothing, &patch.document)?;
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
            Ok(written)
        }
        Err(status) => Err(status),
        Ok(old) if is_apply => {
            write::update(context, old, Owner::Settled, |old| {
                settled(managed::applied(context, conversions, old, &patch.document)?)
            })
            .await
        }
        Ok(old) => {
            write::update(context, old, Owner::Client, |old| {
                settled(patch.applied_to(old.clone(), resource.ty())?)
            })
            .await
        }
    }
}

/// A patch as it was sent.
pub struct Patch {
    pub language: PatchType,
    pub document: Value,
    /// What strictness has against the patch itself: a field that is in it twice, or that nobody knows.
    problems: Vec<Problem>,
    /// Why it is no patch of its language.
    fault: Option<String>,
}

/// What a patched object must be.
#[derive(Clone, Copy)]
pub enum Shape<'a> {
    /// An object of the resource.
    Own(&'a Resource),
    /// What a subresource is written as.
    Other(TypeRef<'a>),
}

/// Custom resources know no strategic merge: nobody has said how their lists merge.
const WITHOUT_STRATEGIC: &[PatchType] = &[PatchType::Json, PatchType::Merge, PatchType::Apply];

impl Patch {
    pub fn read(context: Context<'_>) -> Result<Patch, Status> {
        let received = context.received;
        let languages = match context.call.resource.definition {
            Some(_) => WITHOUT_STRATEGIC,
            None => PatchType::ALL,
        };
        let language = PatchType::of_request(received.header(header::CONTENT_TYPE), languages)?;
        let document = match (&received.given, language) {
            (Some(given), _) => Ok(Decoded { value: Value::clone(given), problems: Vec::new() }),
            (None, PatchType::Apply) => api::codec::yaml::decode_untyped(&received.body),
            (None, _) => json::decode_untyped(&received.body),
        };
        let Decoded { value: document, mut problems } =
            document.map_err(|error| match language {
                PatchType::Apply => Status::bad_request(error.to_string()),
                _ => Status::bad_request("invalid JSON patch"),
            })?;
        let validation = context.call.write_options().validation();
        let checked = match language {
            _ if validation == FieldValidation::Ignore => Ok(()),
            PatchType::Merge => strict::merge(&document),
            PatchType::Json => strict::operations(&document).map(|unknown| {
                problems.extend(unknown);
                let all = std::mem::take(&mut problems).into_iter();
                problems = all.map(|problem| Problem::InPatch(Box::new(problem))).collect();
            }),
            PatchType::Apply | PatchType::StrategicMerge => Ok(()),
        };
        Ok(Patch { language, document, problems, fault: checked.err() })
    }

    /// The patched object as the type has it. What does not fit is shown as it would have been: a
    /// strategic merge patch by itself, as Go prints it, any other within the object.
    pub fn decoded(
        &self,
        patched: Value,
        shape: Shape<'_>,
        call: &Call,
    ) -> Result<(Value, Vec<String>), Status> {
        // Kept only where a refusal would show it.
        let whole = matches!(self.language, PatchType::Json | PatchType::Merge);
        let whole = whole.then(|| patched.clone());
        let shown = || match &whole {
            Some(patched) => patched.to_string(),
            None => golang::printed(&self.document),
        };
        let refused = |error: &DecodeError| {
            if self.language == PatchType::Apply {
                return unconvertible(&self.document, error);
            }
            let detail = match self.language {
                PatchType::StrategicMerge => golang::conversion_error(error),
                _ => error.to_string(),
            };
            let error = api::field::Error::invalid(&Path::new("patch"), shown(), detail);
            Status::invalid(GroupKind::new("", ""), "", &[error])
        };
        let validation = call.write_options().validation();
        let is_text = matches!(self.language, PatchType::Json | PatchType::Merge);
        if let (Shape::Own(resource), true) = (shape, is_text)
            && let Some(fault) = of_another_type(&patched, resource)
        {
            return Err(refused(&DecodeError::Type(fault)));
        }
        let decoded = match (shape, is_text) {
            (Shape::Own(resource), true) => resource.settle_given(patched),
            (Shape::Own(resource), false) => resource.convert_given(patched),
            (Shape::Other(ty), true) => json::canonicalize_given(patched, ty),
            (Shape::Other(ty), false) => json::convert_given(patched, ty),
        };
        let mut decoded = decoded.map_err(|e| refused(&e))?;
        if is_text {
            decoded.problems.splice(0..0, self.problems.iter().cloned());
        }
        let (object, mut warnings) = decoded.validate(validation).map_err(|e| refused(&e))?;
        warnings.splice(..0, self.strictly(validation)?);
        let unreadable = match shape {
            Shape::Own(resource) => resource.unreadable(&object),
            Shape::Other(_) => None,
        };
        match unreadable {
            Some(fault) => Err(self.unreadable(fault, refused)),
            None => Ok((object, warnings)),
        }
    }

    /// What is to be said of an applied configuration that has a key twice.
    fn strictly(&self, validation: FieldValidation) -> Result<Vec<String>, Status> {
        if self.language != PatchType::Apply || self.problems.is_empty() {
            return Ok(Vec::new());
        }
        let text = |problem: &Problem| format!("error converting YAML to JSON: {problem}");
        let texts: Vec<String> = self.problems.iter().map(text).collect();
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(texts),
            FieldValidation::Strict => Err(Status::bad_request(format!(
                "error strict decoding YAML: {}",
                texts.join(", ")
            ))),
        }
    }

    /// What fits its type and yet cannot be read is a fault of the server to upstream, but in JSON.
    fn unreadable(&self, fault: String, refused: impl Fn(&DecodeError) -> Status) -> Status {
        let message = match self.language {
            PatchType::Json | PatchType::Merge => return refused(&DecodeError::Type(fault)),
            PatchType::StrategicMerge => fault,
            PatchType::Apply => {
                let config = &self.document;
                let word = |field: &str| config[field].as_str().unwrap_or_default();
                let place = format!("{}/{}", text(config, "namespace"), text(config, "name"));
                let (version, kind) = (word("apiVersion"), word("kind"));
                format!(
                    "failed to convert to unversioned ({place}; {version}, Kind={kind}): {fault}"
                )
            }
        };
        Status { code: 500, message, ..Status::default() }
    }

    /// The object with the patch in it; an apply merges, where nobody keeps its owners.
    pub fn applied_to(&self, mut object: Value, ty: TypeRef<'_>) -> Result<Value, Status> {
        let invalid = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
        if let Some(fault) = &self.fault {
            return Err(invalid(fault));
        }
        match self.language {
            PatchType::Json => {
                let limits = Limits::default();
                let patch = json_patch::Patch::decode(self.document.clone(), &limits)
                    .map_err(|e| invalid(&e))?;
                patch.apply(object, &limits).map_err(|error| unprocessable(&error.to_string()))
            }
            PatchType::StrategicMerge => Ok(strategic::merge(object, self.document.clone(), ty)?),
            PatchType::Merge | PatchType::Apply => {
                if self.language == PatchType::Apply {
                    self.check_applied(ty)?;
                }
                merge::apply(&mut object, &self.document).map_err(|e| invalid(&e))?;
                Ok(object)
            }
        }
    }
}

impl Patch {
    /// What is applied has the declared fields.
    fn check_applied(&self, ty: TypeRef<'_>) -> Result<(), Status> {
        let config = &self.document;
        let word = |field: &str| config[field].as_str().unwrap_or_default();
        let (kind, version) = (word("kind"), word("apiVersion"));
        let (namespace, name) = (text(config, "namespace"), text(config, "name"));
        typed::validate(config, ty, false).map_err(|errors| {
            let object = format!("{namespace}/{name}; {version}, Kind={kind}");
            apply::Error::Invalid { object, errors }.into()
        })
    }
}

/// Why a patched object is not one of the resource's kind any more, if it is not. That of a definition may
/// say that it is another: its rules are asked.
fn of_another_type(patched: &Value, resource: &Resource) -> Option<String> {
    if !patched.is_object() {
        return TypeMeta::from_tree(patched.clone()).err().map(|error| error.to_string());
    }
    if resource.definition.is_some() {
        let is_nameless = TypeMeta::of(patched).kind.is_empty();
        return is_nameless.then(|| custom::without_kind(&patched.to_string()));
    }
    let found = TypeMeta::of(patched);
    let or = |said: String, own: &str| if said.is_empty() { own.to_owned() } else { said };
    let own = TypeMeta { api_version: resource.api_version(), kind: resource.kind.to_owned() };
    let said = TypeMeta {
        api_version: or(found.api_version, &own.api_version),
        kind: or(found.kind, &own.kind),
    };
    if said == own {
        return None;
    }
    object::another_type(&said, resource, |ty| json::canonicalize(patched.clone(), ty).err())
}

/// What is applied is merged before anyone asks whether it is of the kind.
fn unconvertible(config: &Value, error: &DecodeError) -> Status {
    let (version, kind) = (&config["apiVersion"], &config["kind"]);
    let (version, kind) = (version.as_str().unwrap_or_default(), kind.as_str().unwrap_or_default());
    let slash = if version.contains('/') { "" } else { "/" };
    let kind = format!("{slash}{version}, Kind={kind}");
    let place = format!("{}/{}; {kind}", text(config, "namespace"), text(config, "name"));
    let error = golang::conversion_error(error);
    let message = format!(
        "failed to convert new object ({place}) to proper version: unable to convert unstructured object to {kind}: {error}"
    );
    Status { code: 500, message, ..Status::default() }
}

/// A patch that is sound and yet does not fit its object.
fn unprocessable(body: &str) -> Status {
    ServerResponse { code: 422, body, ..ServerResponse::default() }.into()
}
