//! Acting as somebody else, for those who may.
use super::{User, percent_decoded};
use crate::authz::{self, Attributes, What};
use crate::resources::ApiServer;
use api::status::Status;
use http::HeaderMap;
use std::collections::BTreeMap;
use std::sync::Arc;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Who the request is to be from, if its headers say so and its user may do that.
pub async fn apply(
    api: &ApiServer,
    user: Arc<User>,
    headers: &HeaderMap,
) -> Result<Arc<User>, Status> {
    let text = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let name = text(USER);
    let mut groups: Vec<String> = headers
        .get_all(GROUP)
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    let uid = text(UID);
    let extra = extra(headers);
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(user);
        }
        return Err(Status::internal_error(format!(
            "requested {groups:?} without impersonating a user"
        )));
    }
    let check = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let mut wanted = Attributes::right("impersonate", group, resource, namespace, name);
        if let What::Resource { subresource: of, .. } = &mut wanted.what {
            *of = subresource.into();
        }
        let user = &user;
        async move { authz::check(api, user, &wanted).await }
    };
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => check("", "serviceaccounts", "", namespace, account).await?,
        None => check("", "users", "", "", &name).await?,
    }
    for group in &groups {
        check("", "groups", "", "", group).await?;
    }
    if !uid.is_empty() {
        check("authentication.k8s.io", "uids", "", "", &uid).await?;
    }
    for (key, values) in &extra {
        for value in values {
            check("authentication.k8s.io", "userextras", key, "", value).await?;
        }
    }
    match account {
        Some((namespace, _)) if groups.is_empty() => {
            groups.push("system:serviceaccounts".into());
            groups.push(format!("system:serviceaccounts:{namespace}"));
            groups.push("system:authenticated".into());
        }
        _ => {
            let named = if name == "system:anonymous" {
                "system:unauthenticated"
            } else {
                "system:authenticated"
            };
            if !groups.iter().any(|g| g == named) {
                groups.push(named.into());
            }
        }
    }
    Ok(Arc::new(User { name, uid, groups, extra }))
}

fn extra(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let Ok(value) = value.to_str() else { continue };
        all.entry(percent_decoded(key)).or_default().push(value.to_owned());
    }
    all
}
