//! Questions about identity and rights: answered, never stored.
use super::{AUTHENTICATION, AUTHORIZATION};
use crate::admission;
use crate::answer;
use crate::guard::authn::{User, token};
use crate::guard::authz::{self, Attributes, Selected, What};
use crate::verbs::{Context, Outgoing, managed, object};
use api::codec::given;
use api::status::Status;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Any of the questions.
pub async fn run(context: Context<'_>) -> Outgoing {
    let (call, received) = (context.call, context.received);
    let view = context.own_view()?;
    let (mut review, mut warnings) = object::decode(
        received,
        call,
        call.write_options().check("CreateOptions", false)?.validation(),
    )?;
    object::place(&mut review, call)?;
    object::wipe(&mut review);
    let kind = call.resource.built_in();
    let is_of_oneself = kind == (AUTHENTICATION, "SelfSubjectReview");
    if !is_of_oneself && kind != (AUTHORIZATION, "SelfSubjectRulesReview") {
        let nothing = managed::empty(&call.resource);
        review = managed::updated(context, &nothing, review, Timestamp::now()).await;
    }
    let verdict = (call.resource.rules.validate_create)(&call.resource, &review);
    let errors = verdict.map_err(|error| Status::bad_request(error.to_string()))?.errors;
    if !errors.is_empty() {
        // Upstream leaves the kind out.
        let kind = api::group::GroupKind::new(call.resource.group, "");
        return Err(Status::invalid(kind, "", &errors));
    }
    warnings.extend(admission::pass(context, &mut review).await?);
    let status = match kind {
        (AUTHENTICATION, "SelfSubjectReview") => {
            let now = api::time::format(Timestamp::now().as_second());
            object::metadata(&mut review).insert("creationTimestamp".into(), now.into());
            json!({ "userInfo": received.user.info() })
        }
        (AUTHENTICATION, "TokenReview") => token_review(context, &review).await?,
        (AUTHORIZATION, "SelfSubjectRulesReview") => {
            let status = rules_review(context, &review)?;
            review["spec"] = json!({});
            status
        }
        (_, kind) => access_review(context, kind, &review).await?,
    };
    review["status"] = status;
    given::forget_empty(&mut review, call.resource.ty());
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
    let own = kind == "SelfSubjectAccessReview";
    let (resource, plain) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let user = if own {
        User::clone(&context.received.user)
    } else {
        User {
            name: text(&spec["user"]),
            uid: text(&spec["uid"]),
            groups: strings(&spec["groups"]),
            extra: serde_json::from_value(spec["extra"].clone()).unwrap_or_default(),
        }
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
            selected: Selected::read(resource),
        },
        (None, plain) => {
            let plain = plain.unwrap_or(&Value::Null);
            Attributes {
                verb: text(&plain["verb"]),
                what: What::Path(text(&plain["path"])),
                selected: Selected::default(),
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
    let ignored: Vec<String> = ["fieldSelector", "labelSelector"]
        .into_iter()
        .filter_map(|field| ignored(field, resource?.get(field)?))
        .collect();
    if !ignored.is_empty() {
        status["evaluationError"] = ignored.join("; ").into();
    }
    Ok(status)
}

/// What of a selector says nothing to us, which makes the question a broader one.
fn ignored(field: &str, selector: &Value) -> Option<String> {
    let requirements: Vec<&Value> =
        selector["requirements"].as_array().into_iter().flatten().collect();
    let values = |requirement: &Value| requirement["values"].as_array().map_or(0, Vec::len);
    let understood = |requirement: &&&Value| match (field, text(&requirement["operator"]).as_str())
    {
        ("fieldSelector", "In" | "NotIn") => values(requirement) == 1,
        ("fieldSelector", _) => false,
        (_, "In" | "NotIn") => values(requirement) > 0,
        (_, "Exists" | "DoesNotExist") => values(requirement) == 0,
        _ => false,
    };
    let raw = text(&selector["rawSelector"]);
    let broken = match field {
        "fieldSelector" => api::selector::field::Selector::parse(&raw).is_err(),
        _ => api::selector::label::Selector::parse(&raw).is_err(),
    };
    let good = requirements.iter().filter(understood).count();
    let how = match (requirements.len(), good) {
        (0, _) if raw.is_empty() || !broken => return None,
        (all, good) if all > 0 && all == good => return None,
        (_, 0) => "ignored",
        _ => "partially ignored",
    };
    Some(format!("spec.resourceAttributes.{field} {how} due to parse error"))
}

fn rules_review(context: Context<'_>, review: &Value) -> Result<Value, Status> {
    let namespace = text(&review["spec"]["namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let user = &context.received.user;
    let rules = context.api.rbac().read().rules_for(user, &namespace);
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
