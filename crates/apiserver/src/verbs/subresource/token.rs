//! The token subresource of a service account: a token that dies with its account and with what it
//! is bound to.
use crate::admission;
use crate::answer;
use crate::guard::service_account::{Bound, Lifetimes, issue};
use crate::server::ApiServer;
use crate::state::objects;
use crate::verbs::object::{decode_as, metadata, text};
use crate::verbs::{Context, Outgoing};
use api::field::{Error, Path};
use api::group::{GroupKind, GroupResource};
use api::kinds::find_kind;
use api::schema::builtin;
use api::status::Status;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

const DEFAULT_LIFETIME: i64 = 60 * 60;
const MIN_LIFETIME: i64 = 10 * 60;
/// Kubelets ask for this on behalf of clients that may not read a token twice: such a token gets a
/// year, and its late use is remarked.
const LENIENT_LIFETIME: i64 = 60 * 60 + 7;
const YEAR: i64 = 365 * 24 * 60 * 60;

pub async fn run(context: Context<'_>) -> Outgoing {
    let (api, call) = (context.api, context.call);
    let view = context.own_view()?;
    let ty = builtin().named("authentication/v1.TokenRequest").expect("in the facts");
    let (mut request, mut warnings) =
        decode_as(context, ty, "authentication.k8s.io/v1", "TokenRequest")?;
    warnings.extend(admission::pass(context, &mut request).await?);
    for (field, expected, what) in
        [("name", &call.name, "name"), ("namespace", &call.namespace, "namespace")]
    {
        let given = text(&request, field);
        if !given.is_empty() && given != expected {
            let path = Path::new("metadata");
            let detail = format!("must match the service account {what} if specified");
            let error = Error::invalid(&path.child(field), given, detail);
            return Err(invalid(&call.name, error));
        }
    }
    let account = objects::get(api, &call.resource, &call.namespace, &call.name).await?;
    let (given, uid) = (text(&request, "uid"), text(&account, "uid"));
    if !given.is_empty() && given != uid {
        let cause = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        let kind = GroupResource::new("authentication.k8s.io", "TokenRequest");
        return Err(Status::conflict(kind, &call.name, cause));
    }
    let lifetime = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_LIFETIME);
    check_lifetime(lifetime)?;
    let issuer = api.issuer();
    let (lifetime, shortened) = within(issuer.lifetimes, lifetime);
    warnings.extend(shortened);
    let mut audiences: Vec<String> =
        serde_json::from_value(request["spec"]["audiences"].clone()).unwrap_or_default();
    if audiences.is_empty() {
        audiences.clone_from(&issuer.audiences);
    }
    let bound = bound(api, call, &request["spec"]["boundObjectRef"]).await?;
    let to_pod = bound.objects.iter().any(|(kind, ..)| *kind == "pod");
    let ours = audiences.iter().all(|audience| issuer.audiences.contains(audience));
    let times = times(issuer.lifetimes, lifetime, to_pod && ours);
    let now = Timestamp::now();
    let (token, _) = issue(issuer, &account, &bound, &audiences, times, now)
        .map_err(|_| Status::internal_error("failed to sign the token"))?;
    let identity = [
        ("name", call.name.clone()),
        ("namespace", call.namespace.clone()),
        ("uid", uid.to_owned()),
        ("creationTimestamp", api::time::format(now.as_second())),
    ];
    for (field, value) in identity {
        metadata(&mut request).insert(field.into(), value.into());
    }
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = lifetime.into();
    // What the client is told is when to ask again.
    let expires = api::time::format(now.as_second() + lifetime);
    request["status"] = json!({ "token": token, "expirationTimestamp": expires });
    Ok((answer::of_type(StatusCode::CREATED, request, ty, &view), warnings))
}

/// No longer than somebody may ask for, with what is said of that.
fn within(lifetimes: Lifetimes, asked: i64) -> (i64, Option<String>) {
    match lifetimes.longest {
        Some(longest) if asked > longest => {
            let said =
                format!("requested expiration of {asked} seconds shortened to {longest} seconds");
            (longest, Some(said))
        }
        _ => (asked, None),
    }
}

/// How long a token is good, and after which time its use is remarked.
fn times(lifetimes: Lifetimes, lifetime: i64, is_of_a_pod: bool) -> (i64, Option<i64>) {
    match lifetimes.extended && is_of_a_pod && lifetime == LENIENT_LIFETIME {
        true => (YEAR, Some(lifetime)),
        false => (lifetime, None),
    }
}

fn invalid(name: &str, error: Error) -> Status {
    Status::invalid(GroupKind::new("authentication.k8s.io", "TokenRequest"), name, &[error])
}

fn check_lifetime(lifetime: i64) -> Result<(), Status> {
    let path = Path::new("spec");
    let detail = match lifetime {
        short if short < MIN_LIFETIME => "may not specify a duration less than 10 minutes",
        long if long > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    Err(invalid("", Error::invalid(&path.child("expirationSeconds"), lifetime, detail)))
}

/// What the token is bound to; a pod's also says where the pod is.
async fn bound(
    api: &ApiServer,
    call: &crate::call::Call,
    reference: &Value,
) -> Result<Bound, Status> {
    let mut bound = Bound::default();
    if !reference.is_object() {
        return Ok(bound);
    }
    let word = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, name) = (word("kind"), word("name"));
    let (claim, namespace) = match (word("apiVersion"), kind) {
        ("" | "v1", "Pod") => ("pod", call.namespace.as_str()),
        ("" | "v1", "Secret") => ("secret", call.namespace.as_str()),
        ("" | "v1", "Node") => ("node", ""),
        (version, kind) => {
            let shown = match version.split_once('/') {
                Some((group, version)) => format!("{group}/{version}, Kind={kind}"),
                None => format!("/{version}, Kind={kind}"),
            };
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {shown}"
            )));
        }
    };
    let resource = find_kind("v1", kind).expect("it is one of three");
    let object = objects::get(api, resource, namespace, name).await?;
    if claim == "pod" && object["spec"]["serviceAccountName"] != *call.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            call.name
        )));
    }
    let uid = text(&object, "uid");
    if !word("uid").is_empty() && word("uid") != uid {
        let cause = format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            word("uid")
        );
        return Err(Status::conflict(GroupResource::new("", kind), name, cause));
    }
    bound.objects.push((claim, name.to_owned(), uid.to_owned()));
    if let (true, Some(node)) = (claim == "pod", object["spec"]["nodeName"].as_str()) {
        let nodes = find_kind("v1", "Node").expect("nodes are in the registry");
        let uid = match objects::get(api, nodes, "", node).await {
            Ok(node) => text(&node, "uid").to_owned(),
            Err(status) if status.is_not_found() => String::new(),
            Err(status) => return Err(status),
        };
        bound.objects.push(("node", node.to_owned(), uid));
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_as_long_as_the_administrator_allows() {
        let usual = Lifetimes::default();
        assert_eq!(within(usual, YEAR), (YEAR, None));
        assert_eq!(times(usual, LENIENT_LIFETIME, true), (YEAR, Some(LENIENT_LIFETIME)));
        assert_eq!(times(usual, LENIENT_LIFETIME, false), (LENIENT_LIFETIME, None));
        let strict = Lifetimes { extended: false, longest: Some(7200) };
        assert_eq!(times(strict, LENIENT_LIFETIME, true), (LENIENT_LIFETIME, None));
        assert_eq!(within(strict, 7200), (7200, None));
        let said = "requested expiration of 7201 seconds shortened to 7200 seconds".to_owned();
        assert_eq!(within(strict, 7201), (7200, Some(said)));
    }
}
