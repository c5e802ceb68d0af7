//! Authorization: whether a user may do what is asked.
//!
//! ```text
//!  request ─► Attributes ─► the superusers' group? ─► each authorizer in turn ─► yes, or why not
//! ```
//! The authorizers are asked in the order they are configured in; the first that allows or denies
//! decides. [`node`] and [`rbac`] read an index in memory that follows the store, and nothing else;
//! a [`webhook`] asks another server. Upstream's default roles are in [`roles`].
pub mod conditions;
pub mod escalation;
pub mod node;
pub mod rbac;
pub mod roles;
pub mod rules;
mod selected;
pub mod webhook;

pub use selected::Selected;

use crate::call::{Call, Unserved};
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::peculiar;
use api::group::GroupResource;
use api::kinds::Verb;
use api::status::Status;
use webhook::AuthorizationWebhook;

/// What is asked for, in the words of roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    pub what: What,
    /// What a list or watch narrows itself to.
    pub selected: Selected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Resource {
        group: String,
        version: String,
        resource: String,
        subresource: String,
        /// Empty: all of them, or a resource that has none.
        namespace: String,
        /// Empty: not one object in particular.
        name: String,
    },
    Path(String),
}

/// Members may do everything; no role can take that away, or lock everybody out.
const SUPERUSERS: &str = "system:masters";

pub fn is_superuser(user: &User) -> bool {
    user.groups.iter().any(|group| group == SUPERUSERS)
}

/// Whoever has a say in it.
pub enum Authorizer {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Webhook(Box<AuthorizationWebhook>),
}

/// What one of them says, with a reason that may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    Allow(String),
    Deny(String),
    NoOpinion(String),
}

impl Opinion {
    fn none(reason: impl Into<String>) -> Opinion {
        Opinion::NoOpinion(reason.into())
    }
}

impl Authorizer {
    async fn decide(&self, api: &ApiServer, user: &User, attributes: &Attributes) -> Opinion {
        match self {
            Authorizer::AlwaysAllow => Opinion::Allow(String::new()),
            Authorizer::AlwaysDeny => Opinion::none("Everything is forbidden."),
            Authorizer::Node => node::decide(&api.node_graph().read(), user, attributes),
            Authorizer::Rbac => match api.rbac().read().find(user, attributes) {
                Some(reason) => Opinion::Allow(reason),
                None => Opinion::none(""),
            },
            Authorizer::Webhook(webhook) => Box::pin(webhook.decide(user, attributes)).await,
        }
    }
}

/// What was decided, and why if there is something to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Somebody said no, beside nobody having said yes.
    pub denied: bool,
    pub reason: String,
}

pub async fn decide(api: &ApiServer, user: &User, attributes: &Attributes) -> Decision {
    if is_superuser(user) {
        return Decision { allowed: true, denied: false, reason: String::new() };
    }
    let mut reasons: Vec<String> = Vec::new();
    for authorizer in api.authorizers() {
        match authorizer.decide(api, user, attributes).await {
            Opinion::Allow(reason) => return Decision { allowed: true, denied: false, reason },
            Opinion::Deny(reason) => return Decision { allowed: false, denied: true, reason },
            Opinion::NoOpinion(reason) if reason.is_empty() => {}
            Opinion::NoOpinion(reason) => reasons.push(reason),
        }
    }
    Decision { allowed: false, denied: false, reason: reasons.join("\n") }
}

/// Why a user's rules are not all that there is to say: some authorizers cannot list theirs.
pub fn untold(api: &ApiServer, user: &User) -> Option<String> {
    let untold: Vec<&str> = api
        .authorizers()
        .iter()
        .filter_map(|authorizer| match authorizer {
            Authorizer::Node if node::identity(user).is_some() => Some("node authorizer"),
            Authorizer::Webhook(_) => Some("webhook authorizer"),
            _ => None,
        })
        .collect();
    let said = untold.iter().map(|who| format!("{who} does not support user rule resolution"));
    Some(said.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Lets a request pass, or says what the user may not do.
pub async fn check(api: &ApiServer, user: &User, attributes: &Attributes) -> Result<(), Status> {
    let decision = decide(api, user, attributes).await;
    if decision.allowed { Ok(()) } else { Err(refusal(user, attributes, &decision.reason)) }
}

pub fn refusal(user: &User, attributes: &Attributes, reason: &str) -> Status {
    let (name, verb) = (&user.name, &attributes.verb);
    let because = |text: String| match reason {
        "" => text,
        reason => format!("{text}: {reason}"),
    };
    match &attributes.what {
        What::Path(path) => {
            let text = format!("User {name:?} cannot {verb} path {path:?}");
            Status::forbidden(GroupResource::default(), "", because(text))
        }
        What::Resource { group, resource, subresource, namespace, name: object, .. } => {
            let full = match subresource.as_str() {
                "" => resource.clone(),
                subresource => format!("{resource}/{subresource}"),
            };
            let place = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let text = format!(
                "User {name:?} cannot {verb} resource {full:?} in API group {group:?} {place}"
            );
            Status::forbidden(GroupResource::new(group, resource), object, because(text))
        }
    }
}

impl Attributes {
    pub fn of_call(call: &Call) -> Attributes {
        // A selector that names one object asks for that one only.
        let name = match (call.name.as_str(), call.verb) {
            ("", Verb::List | Verb::Watch) => call.selected_name(),
            (name, _) => name.to_owned(),
        };
        Attributes {
            verb: call.right.to_owned(),
            what: What::Resource {
                group: call.resource.group.into(),
                version: call.resource.version.into(),
                resource: call.resource.plural.into(),
                subresource: call.subresource.map_or("", |subresource| subresource.name).into(),
                namespace: if peculiar::of(&call.resource).holds_rights && !call.name.is_empty() {
                    // A namespace's own rights may be given within it.
                    call.name.clone()
                } else {
                    call.namespace.clone()
                },
                name,
            },
            selected: selected(call),
        }
    }

    /// What nobody serves is asked for all the same.
    pub fn of_unserved(unserved: &Unserved) -> Attributes {
        let unserved = unserved.clone();
        Attributes {
            verb: unserved.right.into(),
            what: What::Resource {
                group: unserved.group,
                version: unserved.version,
                resource: unserved.resource,
                subresource: unserved.subresource,
                namespace: unserved.namespace,
                name: unserved.name,
            },
            selected: Selected::default(),
        }
    }

    pub fn of_path(method: &http::Method, path: &str) -> Attributes {
        let verb = method.as_str().to_ascii_lowercase();
        Attributes { verb, what: What::Path(path.to_owned()), selected: Selected::default() }
    }

    /// Whether nothing is changed by it.
    pub fn only_reads(&self) -> bool {
        matches!(&*self.verb, "get" | "list" | "watch")
    }

    /// A right on a resource that is no request: to bind, escalate, impersonate, approve.
    pub fn right(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Attributes {
            verb: verb.into(),
            what: What::Resource {
                group: group.into(),
                version: String::new(),
                resource: resource.into(),
                subresource: String::new(),
                namespace: namespace.into(),
                name: name.into(),
            },
            selected: Selected::default(),
        }
    }
}

/// What a request about many objects selects.
fn selected(call: &Call) -> Selected {
    let is_of_many = matches!(call.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    // A watch of one object by its path selects nothing else.
    if !is_of_many || !call.name.is_empty() {
        return Selected::default();
    }
    let selectors = call.selectors();
    selectors.map(|said| Selected::of(&said.fields, &said.labels)).unwrap_or_default()
}
