//! What expressions are evaluated over: the request, its objects, and who may answer.
use super::compiled::{Expression, Variable};
use crate::admission::{Attributes, webhook};
use crate::guard::authn::User;
use crate::guard::authz::{self, Selected, What};
use crate::server::ApiServer;
use api::kinds::{Resource, find_kind};
use cel::{Activation, Authorization, Check, Decision, Error, Value as Cel, View};
use futures_util::FutureExt;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// The variables' values.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub object: &'a Value,
    pub old: &'a Value,
    pub request: &'a Value,
    pub namespace: &'a Value,
    pub params: &'a Value,
    pub authorizer: &'a dyn cel::Authorizer,
}

/// An evaluation's variables, each evaluated at most once.
pub struct Scope<'a, 'v> {
    input: Input<'a>,
    variables: &'v [Variable],
    known: RefCell<HashMap<&'v str, Result<Cel<'a>, Error>>>,
    /// What the variables have cost since somebody asked.
    spent: Cell<u64>,
}

impl<'a, 'v> Scope<'a, 'v> {
    pub fn new(input: Input<'a>, variables: &'v [Variable]) -> Self {
        Scope { input, variables, known: RefCell::default(), spent: Cell::new(0) }
    }

    /// The value of an expression, or why there is none; the budget is less by what it cost. The
    /// outer error is that the budget is used up.
    pub fn evaluate(
        &self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Cel<'a>, String>, String> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {error}"))),
        };
        let evaluated = program.evaluate(self);
        let cost = evaluated.cost.saturating_add(self.spent.take());
        if cost > *budget {
            return Err(OUT_OF_BUDGET.to_owned());
        }
        *budget -= cost;
        Ok(evaluated.value.map_err(|error| {
            format!("expression '{}' resulted in error: {error}", expression.text)
        }))
    }

    fn variable(&self, variable: &'v Variable) -> Result<Cel<'a>, Error> {
        if let Some(known) = self.known.borrow().get(variable.name.as_str()) {
            return known.clone();
        }
        let name = variable.name.trim_start_matches("variables.");
        let wrong = |what: &str, error: String| {
            Error::Said(format!("composited variable {name:?} fails to {what}: {error}"))
        };
        let value = match &variable.expression.program {
            Err(error) => Err(wrong("compile", error.to_string())),
            Ok(program) => {
                let evaluated = program.evaluate(self);
                self.spent.set(self.spent.get().saturating_add(evaluated.cost));
                evaluated.value.map_err(|error| match error {
                    Error::Cost => Error::Cost,
                    error => wrong("evaluate", error.to_string()),
                })
            }
        };
        self.known.borrow_mut().insert(&variable.name, value.clone());
        value
    }
}

pub(super) const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further \
                             validation rules will be run";

impl<'a> Activation<'a> for Scope<'a, '_> {
    fn find(&self, name: &str) -> Option<Result<Cel<'a>, Error>> {
        let input = &self.input;
        let authorization = |authorization| Cel::Authorization(Arc::new(authorization));
        Some(Ok(match name {
            "object" => Cel::json(input.object),
            "oldObject" => Cel::json(input.old),
            "params" => Cel::json(input.params),
            "request" => Cel::json(input.request),
            "namespaceObject" => {
                let namespaces = find_kind("v1", "Namespace").map(Resource::ty);
                Cel::viewed(input.namespace, namespaces.map_or(View::Dyn, View::Typed))
            }
            "authorizer" => authorization(Authorization::new(input.authorizer)),
            "authorizer.requestResource" => {
                let text = |name: &str| input.request[name].as_str().unwrap_or_default().to_owned();
                let resource = &input.request["resource"];
                let part = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
                authorization(Authorization::of_resource(
                    input.authorizer,
                    Check {
                        group: part("group"),
                        resource: part("resource"),
                        subresource: text("subResource"),
                        namespace: text("namespace"),
                        name: text("name"),
                        ..Check::default()
                    },
                ))
            }
            name => {
                let variable = self.variables.iter().find(|variable| variable.name == name)?;
                return Some(self.variable(variable));
            }
        }))
    }
}

/// An object of the request as another version of its resource has it, or why it cannot be had.
pub async fn in_version_of(
    attributes: &Attributes<'_>,
    matched: &Resource,
    object: &Value,
) -> Result<Value, String> {
    let version = matched.api_version();
    if object.is_null() || object["apiVersion"] == version.as_str() {
        return Ok(object.clone());
    }
    let own = &attributes.call.resource;
    let converted = webhook::converted(attributes.api, object.clone(), own, &version).await;
    converted.map_err(|status| status.message)
}

/// `request`, as an AdmissionRequest without the objects. `matched` is the resource that the policy's
/// rules are about, which may be another version of the same.
pub fn request(attributes: &Attributes<'_>, matched: &Resource) -> Value {
    let (call, user) = (attributes.call, attributes.user);
    let own = &call.resource;
    let kind = |resource: &Resource| match call.subresource.and_then(|part| part.kind) {
        Some(foreign) => {
            json!({"group": foreign.group, "version": foreign.version, "kind": foreign.kind})
        }
        None => {
            json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
        }
    };
    let resource = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let mut request = json!({
        "kind": kind(matched),
        "resource": resource(matched),
        "requestKind": kind(own),
        "requestResource": resource(own),
        "operation": attributes.operation.as_str(),
        "userInfo": user_info(user),
        "dryRun": attributes.dry_run(),
        "options": attributes.write_options(),
    });
    let part = attributes.part();
    let name = match call.name.as_str() {
        "" => attributes.new_object()["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    };
    let texts = [
        ("subResource", part),
        ("requestSubResource", part),
        ("name", name),
        ("namespace", namespace_of(attributes)),
    ];
    for (field, text) in texts {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    request
}

/// The namespace as admission has it: a Namespace is in itself.
pub fn namespace_of<'a>(attributes: &'a Attributes<'_>) -> &'a str {
    let call = attributes.call;
    if !attributes.is("", "Namespace") {
        return &call.namespace;
    }
    match call.name.as_str() {
        "" => attributes.new_object()["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Answers for the server: what the user of the request, or a service account, may do.
pub struct Asked<'a> {
    pub api: &'a ApiServer,
    pub user: &'a User,
}

impl cel::Authorizer for Asked<'_> {
    fn decide(&self, service_account: Option<(&str, &str)>, check: &Check) -> Decision {
        let account;
        let user = match service_account {
            None => self.user,
            Some((namespace, name)) => {
                account = service_account_user(namespace, name);
                &account
            }
        };
        let attributes = authz::Attributes {
            verb: check.verb.clone(),
            what: match &check.path {
                Some(path) => What::Path(path.clone()),
                None => What::Resource {
                    group: check.group.clone(),
                    version: "*".to_owned(),
                    resource: check.resource.clone(),
                    subresource: check.subresource.clone(),
                    namespace: check.namespace.clone(),
                    name: check.name.clone(),
                },
            },
            selected: Selected::parse(
                check.field_selector.as_deref().unwrap_or_default(),
                check.label_selector.as_deref().unwrap_or_default(),
            ),
        };
        let mut asked = Box::pin(authz::decide(self.api, user, &attributes));
        // Indexes in memory answer at once; only a webhook is waited for.
        let decided = asked.as_mut().now_or_never().or_else(|| wait(asked));
        match decided {
            Some(decided) => {
                Decision { allowed: decided.allowed, reason: decided.reason, error: None }
            }
            None => Decision {
                error: Some("the authorizer cannot be waited for".to_owned()),
                ..Decision::default()
            },
        }
    }
}

fn service_account_user(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..User::default()
    }
}

/// Waits where the runtime has other threads to go on with.
fn wait<T>(future: impl Future<Output = T>) -> Option<T> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let several = runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread;
    several.then(|| tokio::task::block_in_place(|| runtime.block_on(future)))
}
