//! Questions about identity and rights: answered, never stored.
use crate::admission;
use crate::answer::{self, View};
use crate::authn::{User, token};
use crate::authz::{self, Attributes, What};
use crate::verbs::object;
use crate::verbs::{Context, Outgoing};
use api::codec::object::Encoding;
use api::field::{Error, Path};
use api::status::Status;
use http::{StatusCode, header};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// Any of the questions.
pub async fn run(context: Context<'_>) -> Outgoing {
    let (call, received) = (context.call, context.received);
    let view = View::of(context)?;
    let encoding = Encoding::of_request(received.header(header::CONTENT_TYPE), Encoding::ALL)?;
    let (mut review, mut warnings) =
        object::decode(&received.body, encoding, call, call.query.field_validation()?)?;
    object::metadata(&mut review);
    warnings.extend(admission::pass(context, &mut review).await?);
    let status = match call.resource.kind {
        "SelfSubjectReview" => json!({ "userInfo": received.user.info() }),
        "TokenReview" => token_review(context, &review).await?,
        "SelfSubjectRulesReview" => rules_review(context, &review)?,
        kind => access_review(context, kind, &review).await?,
    };
    review["status"] = status;
    Ok((answer::of_type(StatusCode::CREATED, review, call.resource.ty(), &view), warnings))
}

async fn token_review(context: Context<'_>, review: &Value) -> Result<Value, Status> {
    let token = text(&review["spec"]["token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let issuer = context.api.issuer();
    let asked: Vec<String> = strings(&review["spec"]["audiences"]);
    let audiences = if asked.is_empty() { &issuer.audiences } else { &asked };
    match token::user_of(context.api, &token, audiences).await {
        None => Ok(json!({ "user": {}, "error": "invalid bearer token" })),
        Some((user, meant)) => {
            let audiences = if asked.is_empty() { issuer.audiences.clone() } else { meant };
            Ok(json!({ "authenticated": true, "user": user.info(), "audiences": audiences }))
        }
    }
}

async fn access_review(context: Context<'_>, kind: &str, review: &Value) -> Result<Value, Status> {
    let spec = &review["spec"];
    let (call, own) = (context.call, kind == "SelfSubjectAccessReview");
    let refused = |path: &Path<'_>, text: &'static str| {
        let error = Error::invalid(path, api::field::BadValue::OMITTED, text);
        Err(Status::invalid(call.resource.group_kind(), "", &[error]))
    };
    let path = Path::new("spec");
    let (resource, plain) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if resource.is_some() == plain.is_some() {
        let text = match resource {
            None => "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            Some(_) => "cannot be specified in combination with resourceAttributes",
        };
        return refused(
            &path.child(if resource.is_some() {
                "nonResourceAttributes"
            } else {
                "resourceAttributes"
            }),
            text,
        );
    }
    if kind == "LocalSubjectAccessReview" {
        let within = resource.map(|r| text(&r["namespace"])).unwrap_or_default();
        if plain.is_some() {
            return refused(
                &path.child("nonResourceAttributes"),
                "disallowed on this kind of request",
            );
        }
        if within != call.namespace {
            return refused(
                &path.child("resourceAttributes.namespace"),
                "must match metadata.namespace",
            );
        }
    }
    let user = if own {
        User::clone(&context.received.user)
    } else {
        let user = User {
            name: text(&spec["user"]),
            uid: text(&spec["uid"]),
            groups: strings(&spec["groups"]),
            extra: serde_json::from_value(spec["extra"].clone()).unwrap_or_default(),
        };
        if user.name.is_empty() && user.groups.is_empty() {
            let text = "at least one of user or group must be specified";
            return refused(&path.child("user"), text);
        }
        user
    };
    let attributes = match (resource, plain) {
        (Some(resource), _) => Attributes {
            verb: text(&resource["verb"]),
            what: What::Resource {
                group: text(&resource["group"]),
                version: text(&resource["version"]),
                resource: text(&resource["resource"]),
                subresource: text(&resource["subresource"]),
                namespace: text(&resource["namespace"]),
                name: text(&resource["name"]),
            },
            fields: requirements(&resource["fieldSelector"]),
        },
        (None, plain) => {
            let plain = plain.unwrap_or(&Value::Null);
            Attributes {
                verb: text(&plain["verb"]),
                what: What::Path(text(&plain["path"])),
                fields: Vec::new(),
            }
        }
    };
    let decision = authz::decide(context.api, &user, &attributes).await;
    let mut status = json!({ "allowed": decision.allowed });
    if decision.denied {
        status["denied"] = true.into();
    }
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    Ok(status)
}

fn rules_review(context: Context<'_>, review: &Value) -> Result<Value, Status> {
    let namespace = text(&review["spec"]["namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let user = &context.received.user;
    let mut rules = context.api.rbac().current().rules_for(user, &namespace);
    if authz::is_superuser(user) {
        let all = || Some(vec!["*".to_owned()]);
        rules.push(PolicyRule {
            verbs: vec!["*".into()],
            api_groups: all(),
            resources: all(),
            ..PolicyRule::default()
        });
        rules.push(PolicyRule {
            verbs: vec!["*".into()],
            non_resource_urls: all(),
            ..PolicyRule::default()
        });
    }
    let (plain, resource): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule.non_resource_urls.is_some());
    let mut status =
        json!({ "resourceRules": resource, "nonResourceRules": plain, "incomplete": false });
    if let Some(error) = authz::untold(context.api, user) {
        status["incomplete"] = true.into();
        status["evaluationError"] = error.into();
    }
    Ok(status)
}

/// What a selector asks to be equal: given as requirements, or as a query has it.
fn requirements(selector: &Value) -> Vec<(String, String)> {
    let equal = |requirement: &Value| match (
        &requirement["operator"],
        &strings(&requirement["values"])[..],
    ) {
        (operator, [value]) if operator == "In" => Some((text(&requirement["key"]), value.clone())),
        _ => None,
    };
    if let Some(raw) = selector["rawSelector"].as_str() {
        return authz::equal_fields(raw);
    }
    selector["requirements"].as_array().into_iter().flatten().filter_map(equal).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
