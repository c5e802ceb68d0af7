//! Hooks that may change an object: one after the other, each seeing what those before it changed.
//! When one changes it, whoever came before may want to see that: see [`Reinvocation`](crate::admission::Reinvocation).
use super::call::{self, Failed, Labels};
use super::configuration::Hook;
use super::counts::{self, Ended};
use super::matter::{Matter, Named};
use super::review::Verdict;
use super::versions::{bring_home, put_back, read_again, shown, unconverted};
use super::{is_exempt, may_be_asked};
use crate::admission::{Attributes, Operation};
use api::codec::json::{self as codec, FieldValidation};
use api::codec::object::TypeMeta;
use api::patch::json_patch::{Limits, Patch};
use api::status::Status;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Instant;

const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let hooks = attributes.api.extend().hooks.current();
    if hooks.mutating.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let (matter, labels) = (Matter::of(attributes), Labels::default());
    let home = attributes.object.as_deref().map(TypeMeta::of).unwrap_or_default().api_version;
    let is_again = attributes.reinvocation.is_again;
    if is_again {
        attributes.reinvocation.webhooks.begin_again(attributes.object.as_deref());
    }
    for (index, hook) in hooks.mutating.iter().enumerate() {
        if !may_be_asked(hook, attributes) {
            continue;
        }
        let Some(target) = call::target(hook, attributes, &matter, &labels, true).await? else {
            continue;
        };
        if is_again && attributes.reinvocation.webhooks.spares(&hook.id) {
            continue;
        }
        let place = format!("round_{}_index_{index}", u8::from(is_again));
        go_home_from_other_versions(attributes, target, &home).await?;
        let outcome = ask(attributes, hook, &matter, target, &place).await;
        if matches!(outcome, Ok(true)) {
            attributes.reinvocation.webhooks.object_changed();
            attributes.reinvocation.wanted = true;
        }
        if hook.reinvoked {
            attributes.reinvocation.webhooks.has_asked(hook.id.clone());
        }
        match outcome {
            Ok(_) => {}
            Err(Failed::Calling { reason, .. }) if hook.ignores_failures => {
                tracing::warn!(hook = hook.name, reason, "failed calling webhook, failing open");
                let key = format!("failed-open.{MUTATION}{place}");
                attributes.annotate(&key, hook.name.clone());
            }
            Err(failed) => return Err(failed.closed(hook)),
        }
    }
    if let Some(object) = attributes.object.as_deref_mut() {
        bring_home(attributes.api, object, &attributes.call.resource, &home).await?;
    }
    attributes.reinvocation.webhooks.leave(attributes.object.as_deref());
    Ok(())
}

/// What a hook made of the object stays in that hook's version as long as those that follow speak it. Whoever
/// speaks another sees what the request's version has of it.
async fn go_home_from_other_versions(
    attributes: &mut Attributes<'_>,
    target: &Named,
    home: &str,
) -> Result<(), Status> {
    let Some(object) = attributes.object.as_deref_mut() else { return Ok(()) };
    if object["apiVersion"] == *target.kind.api_version() {
        return Ok(());
    }
    let gone = bring_home(attributes.api, object, &attributes.call.resource, home).await;
    gone.map_err(|status| unconverted(status, true))
}

/// Asks one hook and does what it says; whether that changed the object.
async fn ask(
    attributes: &mut Attributes<'_>,
    hook: &Hook,
    matter: &Matter<'_>,
    target: &Named,
    place: &str,
) -> Result<bool, Failed> {
    let resource = &attributes.call.resource;
    let api = attributes.api;
    let object = shown(api, attributes.object.as_deref(), resource, target).await;
    let refused = |status: Status| Failed::Refused(unconverted(status, true));
    let object = object.map_err(refused)?.map(Cow::into_owned);
    let old = shown(api, attributes.old, resource, target).await.map_err(refused)?;
    let objects = (object.as_ref(), old.as_deref());
    let begun = Instant::now();
    let asked = call::ask(api, hook, matter, target, objects, true).await;
    let changed = match asked {
        Ok(verdict) => apply(attributes, hook, verdict, object, target, place),
        Err(failed) => Err(failed),
    };
    let ended = changed.as_ref().err().map_or(Ended::Allowed, Ended::failed);
    let about = (matter.operation.as_str(), true);
    counts::asked(&api.extend().counts, hook, about, ended, begun.elapsed());
    let mutated = matches!(changed, Ok(true));
    let note = json!({
        "configuration": hook.configuration, "webhook": hook.name, "mutated": mutated,
    });
    attributes.annotate(&format!("{MUTATION}{place}"), note.to_string());
    changed
}

fn apply(
    attributes: &mut Attributes<'_>,
    hook: &Hook,
    verdict: Verdict,
    object: Option<Value>,
    target: &Named,
    place: &str,
) -> Result<bool, Failed> {
    let internal = |cause: String| Failed::Refused(Status::internal_error(cause));
    for (key, value) in verdict.audit_annotations {
        attributes.annotate(&format!("{}/{key}", hook.name), value);
    }
    attributes.notes.warnings.extend(verdict.warnings);
    if let Some(refused) = verdict.refused {
        return Err(Failed::Rejected(refused));
    }
    if verdict.patch.is_empty() {
        return Ok(false);
    }
    let undecodable = |cause: String| {
        Failed::unclear(format!("received undecodable patch in webhook response: {cause}"))
    };
    let document = codec::decode_untyped(&verdict.patch);
    let document: Value = document.map_err(|error| undecodable(error.to_string()))?.value;
    if document.as_array().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let limits = Limits::default();
    let patch = Patch::decode(document.clone(), &limits);
    let patch = patch.map_err(|error| undecodable(error.to_string()))?;
    let (Some(before), true) = (object, attributes.operation != Operation::Connect) else {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for \
             this operation",
            hook.name
        )));
    };
    let patched = patch.apply(before.clone(), &limits).map_err(|e| internal(e.to_string()))?;
    let after = read_again(patched, target, FieldValidation::Ignore).map_err(Failed::Refused)?;
    attributes.annotate_request(&format!("{PATCH}{place}"), || {
        let note = json!({
            "configuration": hook.configuration, "webhook": hook.name, "patch": document,
            "patchType": "JSONPatch",
        });
        note.to_string()
    });
    let changed = after != before;
    if let Some(object) = attributes.object.as_deref_mut() {
        put_back(object, after, &attributes.call.resource, target);
    }
    Ok(changed)
}
