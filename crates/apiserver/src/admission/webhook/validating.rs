//! Hooks that only judge: all at once, and all must agree.
use super::call::{self, Failed, Labels};
use super::counts::{self, Ended};
use super::matter::Matter;
use super::versions::{shown, unconverted};
use super::{is_exempt, may_be_asked};
use crate::admission::Attributes;
use api::status::Status;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Instant;

const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let hooks = attributes.api.extend().hooks.current();
    if hooks.validating.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let (matter, labels) = (Matter::of(attributes), Labels::default());
    let mut asked = Vec::new();
    for hook in &hooks.validating {
        if !may_be_asked(hook, attributes) {
            continue;
        }
        if let Some(target) = call::target(hook, attributes, &matter, &labels, false).await? {
            asked.push((hook, target));
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let outcomes = {
        let resource = &attributes.call.resource;
        let (api, matter) = (attributes.api, &matter);
        let questions: FuturesUnordered<_> = FuturesUnordered::new();
        for (index, (hook, target)) in asked.iter().enumerate() {
            let object = shown(api, attributes.object.as_deref(), resource, target).await;
            let object = object.map_err(|status| unconverted(status, false))?;
            let old = shown(api, attributes.old, resource, target).await;
            let old = old.map_err(|status| unconverted(status, false))?;
            questions.push(async move {
                let objects = (object.as_deref(), old.as_deref());
                let begun = Instant::now();
                let outcome = call::ask(api, hook, matter, target, objects, false).await;
                let about = (matter.operation.as_str(), false);
                let ended = Ended::judged(&outcome);
                counts::asked(&api.extend().counts, hook, about, ended, begun.elapsed());
                (index, outcome)
            });
        }
        questions.collect::<Vec<_>>().await
    };
    // The first who objected is heard, as upstream does.
    let mut refused = None;
    for (index, outcome) in outcomes {
        let hook = asked[index].0;
        let objection = match outcome {
            Ok(verdict) => {
                for (key, value) in verdict.audit_annotations {
                    attributes.annotate(&format!("{}/{key}", hook.name), value);
                }
                attributes.notes.warnings.extend(verdict.warnings);
                verdict.refused.map(|status| *status)
            }
            Err(Failed::Calling { reason, .. }) if hook.ignores_failures => {
                tracing::warn!(hook = hook.name, reason, "failed calling webhook, failing open");
                let key = format!("{FAILED_OPEN}round_0_index_{index}");
                attributes.annotate(&key, hook.name.clone());
                None
            }
            Err(failed) => Some(failed.closed(hook)),
        };
        refused = refused.or(objection);
    }
    refused.map_or(Ok(()), Err)
}
