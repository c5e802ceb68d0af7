//! Authorization: whether a user may do what is asked.
//!
//! ```text
//!  request ─► Attributes ─► the superusers' group? ─► RBAC's index ─► yes, or why not
//! ```
//! A decision reads an index in memory and nothing else; the index follows the roles and bindings
//! in the store ([`rbac`]). Upstream's default roles are in [`roles`].
pub mod escalation;
pub mod rbac;
pub mod roles;
pub mod rules;

use crate::authn::User;
use crate::request::Call;
use crate::resources::ApiServer;
use api::group::GroupResource;
use api::kinds::Verb;
use api::status::Status;

/// What is asked for, in the words of roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    pub what: What,
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

/// What was decided, and why if there is something to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
}

pub fn decide(api: &ApiServer, user: &User, attributes: &Attributes) -> Decision {
    if is_superuser(user) {
        return Decision { allowed: true, reason: String::new() };
    }
    let grant = api.rbac().current().find(user, attributes);
    Decision { allowed: grant.is_some(), reason: grant.unwrap_or_default() }
}

/// Lets a request pass, or says what the user may not do.
pub fn check(api: &ApiServer, user: &User, attributes: &Attributes) -> Result<(), Status> {
    if decide(api, user, attributes).allowed {
        return Ok(());
    }
    Err(refusal(user, attributes))
}

pub fn refusal(user: &User, attributes: &Attributes) -> Status {
    let (name, verb) = (&user.name, &attributes.verb);
    match &attributes.what {
        What::Path(path) => {
            let text = format!("User {name:?} cannot {verb} path {path:?}");
            Status::forbidden(GroupResource::default(), "", text)
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
            Status::forbidden(GroupResource::new(group, resource), object, text)
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
            verb: call.verb.as_str().to_owned(),
            what: What::Resource {
                group: call.resource.group.into(),
                version: call.resource.version.into(),
                resource: call.resource.plural.into(),
                subresource: call.subresource.map_or("", |subresource| subresource.name).into(),
                namespace: if call.resource.kind == "Namespace" && !call.name.is_empty() {
                    // A namespace's own rights may be given within it.
                    call.name.clone()
                } else {
                    call.namespace.clone()
                },
                name,
            },
        }
    }

    pub fn of_path(method: &http::Method, path: &str) -> Attributes {
        let verb = method.as_str().to_ascii_lowercase();
        Attributes { verb, what: What::Path(path.to_owned()) }
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
        }
    }
}
