//! Subresources, and kinds that are questions: what has an answer of its own instead of being a
//! part of a stored object. One row each.
mod binding;
mod components;
mod eviction;
mod reviews;
mod scale;
mod token;

use super::{Context, Outgoing};
use crate::call::Call;
use std::pin::Pin;

pub type Handler = for<'a> fn(Context<'a>) -> Pin<Box<dyn Future<Output = Outgoing> + Send + 'a>>;

/// Kind (empty: any), subresource (empty: the kind itself), what answers.
static ROWS: &[(&str, &str, Handler)] = &[
    ("", "scale", |context| Box::pin(scale::run(context))),
    ("ComponentStatus", "", |context| Box::pin(components::run(context))),
    ("Binding", "", |context| Box::pin(binding::run(context))),
    ("Pod", "binding", |context| Box::pin(binding::run(context))),
    ("Pod", "eviction", |context| Box::pin(eviction::run(context))),
    ("ServiceAccount", "token", |context| Box::pin(token::run(context))),
    ("SelfSubjectReview", "", |context| Box::pin(reviews::run(context))),
    ("TokenReview", "", |context| Box::pin(reviews::run(context))),
    ("SubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    ("LocalSubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    ("SelfSubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    ("SelfSubjectRulesReview", "", |context| Box::pin(reviews::run(context))),
];

/// What answers a call, if it is not one of the verbs over stored objects.
pub fn find(call: &Call) -> Option<Handler> {
    let subresource = call.subresource.map_or("", |subresource| subresource.name);
    ROWS.iter()
        .find(|(kind, name, _)| {
            *name == subresource
                && (*kind == call.resource.built_in_kind() && !kind.is_empty()
                    || kind.is_empty() && !name.is_empty())
        })
        .map(|(_, _, handler)| *handler)
}
