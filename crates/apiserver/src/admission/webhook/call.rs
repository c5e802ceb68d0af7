//! One question to one hook.
use super::configuration::Hook;
use super::matter::{Matter, Named};
use super::review::{self, Verdict};
use super::{counts, rules, versions};
use crate::admission::{Attributes, namespaces};
use crate::extend::backend;
use crate::ground::uuid;
use crate::server::ApiServer;
use crate::state::objects;
use api::status::Status;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::OnceCell;

/// What an answer may weigh: upstream reads whatever comes. A patch is no larger than an object, and
/// an object no larger than a request.
const MAX_ANSWER: usize = 8 << 20;

/// Why a hook did not give its verdict.
pub enum Failed {
    /// It could not be asked, or said nothing that makes sense: its failure policy decides. The code is what
    /// is counted of it.
    Calling { reason: String, code: u16 },
    /// It said no.
    Rejected(Box<Status>),
    /// It may not be asked, or nothing can be made of what it said, whatever its policy.
    Refused(Status),
}

/// The codes of what is wrong with a question, with ourselves, and with an answer.
const ASKED_WRONGLY: u16 = 400;
const NO_CLIENT: u16 = 500;
const NO_ANSWER: u16 = 503;

impl Failed {
    /// What a hook that must be heard makes of it.
    pub fn closed(self, hook: &Hook) -> Status {
        match self {
            Failed::Calling { reason, .. } => {
                let name = &hook.name;
                tracing::warn!(hook = name, reason, "failed calling webhook, failing closed");
                Status::internal_error(format!("failed calling webhook {name:?}: {reason}"))
            }
            Failed::Rejected(status) => *status,
            Failed::Refused(status) => status,
        }
    }

    fn calling(reason: impl Into<String>, code: u16) -> Failed {
        Failed::Calling { reason: reason.into(), code }
    }

    /// Nothing can be made of an answer.
    pub fn unclear(reason: String) -> Failed {
        Failed::calling(reason, NO_ANSWER)
    }
}

/// The labels of the namespace that a request is in, read when the first hook wants to know.
#[derive(Default)]
pub struct Labels(OnceCell<Value>);

impl Labels {
    async fn get(&self, api: &ApiServer, namespace: &str) -> Result<&Value, Status> {
        let read = || async {
            let found = objects::get(api, namespaces(), "", namespace).await?;
            Ok(found["metadata"]["labels"].clone())
        };
        self.0.get_or_try_init(read).await
    }
}

/// The version that a hook is to be asked about, if it is to be asked. Whether it may change the object says how it
/// is told that the object cannot be had in that version.
pub async fn target<'m>(
    hook: &Hook,
    attributes: &Attributes<'_>,
    matter: &'m Matter<'_>,
    labels: &Labels,
    is_mutating: bool,
) -> Result<Option<&'m Named>, Status> {
    let Some(target) = rules::target(hook, matter) else { return Ok(None) };
    let (object, old) = (attributes.object.as_deref(), attributes.old);
    match rules::selects_object(hook, object, old) {
        Ok(false) => return Ok(None),
        Ok(true) => {}
        Err(cause) => return Err(Status::internal_error(cause)),
    }
    if !selects_namespace(hook, attributes, matter, labels).await? {
        return Ok(None);
    }
    if hook.conditions.is_empty() {
        return Ok(Some(target));
    }
    let resource = &attributes.call.resource;
    let unconverted = |status: Status| versions::unconverted(status, is_mutating);
    let object = versions::shown(attributes.api, object, resource, target).await;
    let object = object.map_err(unconverted)?;
    let old = versions::shown(attributes.api, old, resource, target).await.map_err(unconverted)?;
    let none = Value::Null;
    let (object, old) = (object.as_deref().unwrap_or(&none), old.as_deref().unwrap_or(&none));
    let matched = target.row.as_deref().unwrap_or(resource);
    let met = hook.conditions.hold(attributes, matched, object, old);
    let about = (matter.operation.as_str(), is_mutating);
    counts::judged(&attributes.api.extend().counts, hook, about, &met);
    match met.outcome {
        Ok(true) => Ok(Some(target)),
        Ok(false) => Ok(None),
        Err(_) if hook.ignores_failures => Ok(None),
        Err(cause) => Err(Status::forbidden(resource.group_resource(), &matter.name, cause)),
    }
}

/// What is in no namespace is never spared by one.
async fn selects_namespace(
    hook: &Hook,
    attributes: &Attributes<'_>,
    matter: &Matter<'_>,
    labels: &Labels,
) -> Result<bool, Status> {
    if matter.namespace.is_empty() && matter.named.resource != "namespaces" {
        return Ok(true);
    }
    let selector = match &hook.namespace_selector {
        Ok(selector) if selector.is_everything() => return Ok(true),
        Ok(selector) => selector,
        Err(cause) => return Err(Status::internal_error(cause)),
    };
    if matter.brings_its_own_labels() {
        return Ok(selector.matches(&attributes.new_object()["metadata"]["labels"]));
    }
    let found = labels.get(attributes.api, &matter.namespace).await;
    match found {
        Ok(labels) => Ok(selector.matches(labels)),
        Err(status) if status.is_not_found() => Err(status),
        Err(status) => Err(Status::internal_error(status.message)),
    }
}

/// An object as it is to be, and as it was, where there is one.
pub type Objects<'a> = (Option<&'a Value>, Option<&'a Value>);

/// Asks a hook; the objects are as its target's version has them.
pub async fn ask(
    api: &ApiServer,
    hook: &Hook,
    matter: &Matter<'_>,
    target: &Named,
    (object, old): Objects<'_>,
    is_mutating: bool,
) -> Result<Verdict, Failed> {
    if matter.dry_run {
        match hook.side_effects.as_deref() {
            None => return Err(Failed::calling("Webhook SideEffects is nil", ASKED_WRONGLY)),
            Some("None" | "NoneOnDryRun") => {}
            Some(_) => {
                let text = format!("admission webhook {:?} does not support dry run", hook.name);
                return Err(Failed::Refused(Status::bad_request(text)));
            }
        }
    }
    let unasked = |reason: String| Failed::calling(reason, ASKED_WRONGLY);
    let version = review::version(&hook.review_versions).map_err(unasked)?;
    let uid = uuid();
    let body = review::question(version, &uid, matter, target, object, old)
        .map_err(|error| unasked(format!("could not create admission objects: {error}")))?;
    let backend = hook.backend.as_ref().map_err(|cause| {
        Failed::calling(format!("could not get REST client: {cause}"), NO_CLIENT)
    })?;
    let question =
        backend::Question { body: Bytes::from(body), timeout: hook.timeout, limit: MAX_ANSWER };
    let answer = backend.post(api, question).await;
    let answer = answer.map_err(|cause| {
        let code = cause.code().unwrap_or(NO_ANSWER);
        Failed::calling(format!("failed to call webhook: {cause}"), code)
    })?;
    review::verdict(&answer, version, &uid, &hook.name, is_mutating).map_err(Failed::unclear)
}
