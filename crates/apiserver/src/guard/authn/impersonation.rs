//! Acting as somebody else, for those who may.
use super::User;
use super::headers::{self, Unreadable};
use crate::guard::authz::{self, Attributes, What};
use crate::server::ApiServer;
use api::names::{dns1123_label, dns1123_subdomain};
use api::status::Status;
use http::HeaderMap;
use std::collections::BTreeMap;
use std::sync::Arc;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Who the request is to be from, if its headers say so and its user may do that.
pub async fn apply(
    api: &ApiServer,
    user: Arc<User>,
    headers: &HeaderMap,
) -> Result<Arc<User>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(user) };
    let check = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let mut wanted = Attributes::right("impersonate", group, resource, namespace, name);
        if let What::Resource { subresource: of, .. } = &mut wanted.what {
            *of = subresource.into();
        }
        let user = &user;
        async move { authz::check(api, user, &wanted).await }
    };
    match service_account(&wanted.name) {
        Some((namespace, account)) => check("", "serviceaccounts", "", namespace, account).await?,
        None => check("", "users", "", "", &wanted.name).await?,
    }
    for group in &wanted.groups {
        check("", "groups", "", "", group).await?;
    }
    if !wanted.uid.is_empty() {
        check("authentication.k8s.io", "uids", "", "", &wanted.uid).await?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            check("authentication.k8s.io", "userextras", key, "", value).await?;
        }
    }
    Ok(Arc::new(with_groups(wanted)))
}

/// Whom the headers name, if anybody, exactly as they say it.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let refused = |error: Unreadable| Status::bad_request(error.to_string());
    // Of several the first counts, as upstream's `Header.Get` has it.
    let first = |name| Ok(headers::all(headers, [name])?.into_iter().next().unwrap_or_default());
    let read = || {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in headers::below(headers, EXTRA)? {
            extra.entry(key).or_default().push(value);
        }
        let groups = headers::all(headers, [GROUP])?;
        Ok(User { name: first(USER)?, uid: first(UID)?, groups, extra })
    };
    let wanted = read().map_err(refused)?;
    match wanted.name.is_empty() {
        false => Ok(Some(wanted)),
        true if wanted == User::default() => Ok(None),
        true => Err(Status::bad_request(format!(
            "requested {:?} without impersonating a user name",
            wanted.groups
        ))),
    }
}

/// Namespace and name of the account that a user name stands for, if it is one of an account.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_account = dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty();
    is_account.then_some((namespace, name))
}

/// The groups that somebody is of who names none, and the one that everybody is of.
fn with_groups(mut user: User) -> User {
    if let (Some((namespace, _)), true) = (service_account(&user.name), user.groups.is_empty()) {
        user.groups =
            vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    let is_anonymous = user.name == "system:anonymous";
    let is_said =
        |group: &String| *group == UNAUTHENTICATED || !is_anonymous && *group == AUTHENTICATED;
    if !user.groups.iter().any(is_said) {
        user.groups.push(if is_anonymous { UNAUTHENTICATED } else { AUTHENTICATED }.into());
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    /// Header lines → whom they name.
    fn check(lines: &[(&'static str, &[u8])], expected: &str) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        let shown = match wanted(&headers) {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(user)) => {
                let user = with_groups(user);
                format!("{} {} {:?}", user.name, user.groups.join(","), user.extra)
            }
            Err(status) => format!("{} {}", status.code, status.message),
        };
        assert_eq!(shown, expected, "{lines:?}");
    }

    #[test]
    fn a_header_that_is_there_is_never_left_out() {
        check(&[], "nobody");
        check(&[(USER, "jürgen".as_bytes())], "jürgen system:authenticated {}");
        for name in [USER, GROUP, UID, "impersonate-extra-scopes"] {
            let fault = format!("400 the value of the header {name} is not UTF-8");
            check(&[(name, b"\xff"), (USER, b"jane")], &fault);
        }
        check(&[(GROUP, b"dev")], "400 requested [\"dev\"] without impersonating a user name");
        check(&[(GROUP, b"")], "400 requested [\"\"] without impersonating a user name");
    }

    #[test]
    fn groups_are_those_named_or_those_of_an_account() {
        check(&[(USER, b"jane"), (GROUP, b"dev")], "jane dev,system:authenticated {}");
        check(
            &[(USER, b"jane"), (GROUP, UNAUTHENTICATED.as_bytes())],
            "jane system:unauthenticated {}",
        );
        check(&[(USER, b"system:anonymous")], "system:anonymous system:unauthenticated {}");
        let account = "system:serviceaccount:ns:robot";
        let groups = "system:serviceaccounts,system:serviceaccounts:ns,system:authenticated";
        check(&[(USER, account.as_bytes())], &format!("{account} {groups} {{}}"));
        // No account has such a name: it is a user's.
        let other = "system:serviceaccount:ns:a:b";
        check(&[(USER, other.as_bytes())], &format!("{other} system:authenticated {{}}"));
    }
}
