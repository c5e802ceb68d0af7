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

/// Group and kind, subresource (empty: the kind itself), what answers.
static ROWS: &[(&str, &str, &str, Handler)] = &[
    ("", "ComponentStatus", "", |context| Box::pin(components::run(context))),
    ("", "Binding", "", |context| Box::pin(binding::run(context))),
    ("", "Pod", "binding", |context| Box::pin(binding::run(context))),
    ("", "Pod", "eviction", |context| Box::pin(eviction::run(context))),
    ("", "ServiceAccount", "token", |context| Box::pin(token::run(context))),
    (AUTHENTICATION, "SelfSubjectReview", "", |context| Box::pin(reviews::run(context))),
    (AUTHENTICATION, "TokenReview", "", |context| Box::pin(reviews::run(context))),
    (AUTHORIZATION, "SubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    (AUTHORIZATION, "LocalSubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    (AUTHORIZATION, "SelfSubjectAccessReview", "", |context| Box::pin(reviews::run(context))),
    (AUTHORIZATION, "SelfSubjectRulesReview", "", |context| Box::pin(reviews::run(context))),
];

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// What answers a call, if it is not one of the verbs over stored objects.
pub fn find(call: &Call) -> Option<Handler> {
    let subresource = call.subresource.map_or("", |subresource| subresource.name);
    if subresource == "scale" {
        // Whatever has one.
        return Some(|context| Box::pin(scale::run(context)));
    }
    let is_it = |(group, kind, name, _): &&(&str, &str, &str, Handler)| {
        *name == subresource && call.resource.is(group, kind)
    };
    ROWS.iter().find(is_it).map(|(_, _, _, handler)| *handler)
}
