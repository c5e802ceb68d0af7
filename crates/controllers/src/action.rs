//! What a decision comes to. Rows return these; [`crate::apply`] does them.
use crate::service_lb::{Failure, Provider};
use crate::world::Memo;
use api::object::Object;
use api::rules::Form;
use api::status::Status;
use bytes::Bytes;
use client::ApiResource;
use client::events::Happening;
use client::source::{Ask, Call, Collection, Delete, Patch, Raw};
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, ObjectReference, Service};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Done one after another; the first that fails ends the turn, and the key comes again later.
pub enum Action {
    Create(Create),
    /// Replaces the object, or a part of it (`status`, `finalize`).
    Update {
        resource: ApiResource,
        part: &'static str,
        object: Value,
    },
    Patch {
        object: Target,
        part: &'static str,
        patch: Patch,
    },
    /// An object that is gone already is as good.
    Delete {
        object: Target,
        options: Delete,
        tell: Option<ObjectReference>,
    },
    DeleteCollection(Collection),
    Record(Happening),
    /// The key is to be looked at again, though nothing may have changed.
    Again(Duration),
    /// Some at once: first one, then twice as many while all succeed, so that what cannot work is
    /// not tried a thousand times.
    Several {
        actions: Vec<Action>,
        otherwise: Option<Otherwise>,
    },
    /// Asks the server itself, where a cache that lags behind would do harm; what follows depends
    /// on the answer.
    Look {
        object: Target,
        then: Looked,
    },
    /// Asks a question that is a kind (a review), and goes on with the answer.
    Ask {
        resource: ApiResource,
        object: Value,
        then: Answered,
    },
    /// The same for lists.
    Gather {
        of: Vec<Collection>,
        then: Gathered,
    },
    /// One request whose failure is part of the decision.
    Try {
        call: Call,
        then: Tried,
    },
    /// Asks APIs that are not made of objects, such as those of metrics; failures are answers too, and so is
    /// that one did not come in time or was too large.
    Read {
        requests: Vec<Raw>,
        then: ReadAll,
    },
    /// The turn has failed, for a reason that an answer gave: the key comes again later.
    Fail(Status),
    /// What a row has to know the next time, and no object says.
    Remember(Memo),
    /// Asks a cloud about a service's load balancer; failures are answers too.
    Balance {
        provider: Provider,
        balance: Balance,
        then: BalancerSaid,
    },
}

/// What a cloud is asked.
pub enum Balance {
    Get(Arc<Service>),
    Ensure(Arc<Service>, Vec<Arc<Node>>),
    Update(Arc<Service>, Vec<Arc<Node>>),
    Delete(Arc<Service>),
}

/// `None`: there is no balancer, or nothing to be said of it.
pub type BalancerSaid =
    Box<dyn FnOnce(Result<Option<LoadBalancerStatus>, Failure>) -> Vec<Action> + Send>;

/// What to do when some of several failed. The turn has failed all the same.
pub type Otherwise = Box<dyn FnOnce(&Status) -> Vec<Action> + Send>;
/// `None`: there is no such object.
pub type Looked = Box<dyn FnOnce(Option<Arc<Object>>) -> Vec<Action> + Send>;
pub type Answered = Box<dyn FnOnce(Value) -> Vec<Action> + Send>;
pub type Tried = Box<dyn FnOnce(Result<Value, Status>) -> Vec<Action> + Send>;
pub type ReadAll = Box<dyn FnOnce(Vec<Result<Bytes, Status>>) -> Vec<Action> + Send>;
pub type Gathered = Box<dyn FnOnce(Vec<(Collection, Vec<Arc<Object>>)>) -> Vec<Action> + Send>;

pub struct Create {
    pub resource: ApiResource,
    pub object: Value,
    /// Whose events say that it was made, or why not.
    pub tell: Option<ObjectReference>,
    /// Somebody may have made it first, which is as good.
    pub may_exist: bool,
}

/// One object; with a uid, that very one.
#[derive(Clone, PartialEq)]
pub struct Target {
    pub resource: ApiResource,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Target {
    pub fn of<T: Form>(object: &T) -> Target {
        let metadata = object.metadata();
        Target {
            resource: ApiResource::of::<T>(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }
}

impl Action {
    /// These in any order, if there are any.
    pub fn at_once(actions: impl IntoIterator<Item = Action>) -> Option<Action> {
        let actions: Vec<_> = actions.into_iter().collect();
        (!actions.is_empty()).then_some(Action::Several { actions, otherwise: None })
    }

    pub fn create<T: Form>(object: &T) -> Action {
        Action::Create(Create {
            resource: ApiResource::of::<T>(),
            object: tree(object),
            tell: None,
            may_exist: false,
        })
    }

    /// Creates it for an owner, whose events say so.
    pub fn create_for<T: Form>(owner: ObjectReference, object: &T) -> Action {
        Action::Create(Create {
            resource: ApiResource::of::<T>(),
            object: tree(object),
            tell: Some(owner),
            may_exist: false,
        })
    }

    pub fn ensure<T: Form>(object: &T) -> Action {
        Action::Create(Create {
            resource: ApiResource::of::<T>(),
            object: tree(object),
            tell: None,
            may_exist: true,
        })
    }

    pub fn update<T: Form>(object: &T) -> Action {
        Action::Update { resource: ApiResource::of::<T>(), part: "", object: tree(object) }
    }

    pub fn update_part<T: Form>(part: &'static str, object: &T) -> Action {
        Action::Update { resource: ApiResource::of::<T>(), part, object: tree(object) }
    }

    pub fn delete<T: Form>(object: &T) -> Action {
        let target = Target::of(object);
        let options = Delete::uid(&target.uid);
        Action::Delete { object: target, options, tell: None }
    }

    /// Deletes it for an owner, whose events say so.
    pub fn delete_for<T: Form>(owner: ObjectReference, object: &T) -> Action {
        let target = Target::of(object);
        let options = Delete::uid(&target.uid);
        Action::Delete { object: target, options, tell: Some(owner) }
    }
}

/// Typed objects are made of texts, numbers, lists and maps with text keys: all of it is JSON.
pub fn tree<T: Form>(object: &T) -> Value {
    object.to_tree().expect("a typed object is JSON")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.resource, self.namespace, self.name)
    }
}

/// What was read, if it is JSON.
pub fn json(answer: Result<Bytes, Status>) -> Result<Value, Status> {
    serde_json::from_slice(&answer?).map_err(Status::internal_error)
}

/// One line, for the log and for tests.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Create(create) => {
                let metadata = &create.object["metadata"];
                let text = |field: &str| metadata[field].as_str();
                let name = text("name").or(text("generateName")).unwrap_or_default();
                write!(f, "create {} {name}", create.resource)
            }
            Action::Update { resource, part, object } => {
                let slash = if part.is_empty() { "" } else { "/" };
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                write!(f, "update {resource}{slash}{part} {name}")
            }
            Action::Patch { object, part, patch } => {
                let slash = if part.is_empty() { "" } else { "/" };
                write!(
                    f,
                    "patch {}{slash}{part} {} {}",
                    object.resource,
                    object.name,
                    patch.value()
                )
            }
            Action::Delete { object, .. } => write!(f, "delete {object}"),
            Action::DeleteCollection(of) => {
                write!(f, "deletecollection {} {}", of.resource, of.namespace)
            }
            Action::Record(event) => write!(f, "event {} {}", event.reason, event.note),
            Action::Again(after) => write!(f, "again after {after:?}"),
            Action::Several { actions, .. } => write!(f, "{} at once", actions.len()),
            Action::Look { object, .. } => write!(f, "look at {object}"),
            Action::Ask { resource, object, .. } => {
                let about = object["spec"]["resourceAttributes"]["subresource"].as_str();
                write!(f, "ask {resource} {}", about.unwrap_or_default())
            }
            Action::Gather { of, .. } => write!(f, "gather {} lists", of.len()),
            Action::Try { call, .. } => {
                let verb = match call.ask {
                    Ask::Get => "get",
                    Ask::Create(..) => "create",
                    Ask::Update(..) => "update",
                    Ask::Patch(..) => "patch",
                    Ask::Delete(_) => "delete",
                    Ask::DeleteCollection(..) => "deletecollection",
                };
                let slash = if call.subresource.is_empty() { "" } else { "/" };
                write!(
                    f,
                    "try to {verb} {}{slash}{} {}",
                    call.resource, call.subresource, call.name
                )
            }
            Action::Read { requests, .. } => {
                let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
                write!(f, "read {}", paths.join(" "))
            }
            Action::Fail(status) => write!(f, "fail {}", status.message),
            Action::Remember(memo) => write!(f, "{memo}"),
            Action::Balance { balance, .. } => {
                let (verb, service) = match balance {
                    Balance::Get(service) => ("find", service),
                    Balance::Ensure(service, _) => ("ensure", service),
                    Balance::Update(service, _) => ("update", service),
                    Balance::Delete(service) => ("delete", service),
                };
                let name = service.metadata.name.as_deref().unwrap_or_default();
                write!(f, "{verb} the load balancer of {name}")
            }
        }
    }
}
