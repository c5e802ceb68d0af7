//! Acting as somebody else, for those who may: `wanted` is whom the headers name, a [`Mode`] says what that
//! takes, and here it is asked for. The narrowest way that is open is taken.
mod modes;

use super::User;
use super::headers::{self, Unreadable};
use crate::ground::remembered::Remembered;
use crate::guard::authz::{self, Attributes};
use crate::server::ApiServer;
use api::names::{dns1123_label, dns1123_subdomain};
use api::status::Status;
use client::Metrics;
use http::HeaderMap;
use modes::{MODES, Mode, Plan, Step};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// By which way somebody came last: he will again, and is asked for nothing else first. It changes nothing but
/// that order, and which refusal is told.
pub type LastWays = Remembered<String, usize>;
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// Whom a request is from in the end.
pub struct Acting {
    pub user: Arc<User>,
    /// The right by which he is, where that is one to narrow things; else empty.
    pub constraint: String,
}

/// Who the request is to be from, if its headers say so and its user may do that; none if they say nothing.
pub async fn apply(
    api: &ApiServer,
    user: &User,
    headers: &HeaderMap,
    request: &Attributes,
) -> Result<Option<Acting>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let begun = Instant::now();
    let found = find(api, user, &wanted, request).await;
    let (mode, decision) = match &found {
        Ok((mode, _)) => (mode.name(), "allowed"),
        Err(_) => ("", "denied"),
    };
    let labels = [("mode", mode), ("decision", decision)];
    let counts = &api.extend().counts;
    counts.count("apiserver_impersonation_attempts_total", &labels);
    let took = begun.elapsed().as_secs_f64();
    counts.observe("apiserver_impersonation_attempts_duration_seconds", &labels, took);
    let (_, plan) = found?;
    Ok(Some(Acting { user: Arc::new(plan.acting), constraint: plan.constraint }))
}

/// The first way that is open. Of those that are not, the first refusal is told.
async fn find(
    api: &ApiServer,
    user: &User,
    wanted: &User,
    request: &Attributes,
) -> Result<(Mode, Plan), Status> {
    let ways = &api.authentication().last_ways;
    let last = ways.get(&user.name);
    let mut refused = None;
    for index in order(last) {
        let mode = MODES[index];
        let Some(plan) = mode.plan(user, wanted, request) else { continue };
        match permit(api, mode, &plan).await {
            Ok(()) => {
                if last != Some(index) {
                    ways.put(user.name.clone(), index, REMEMBERED);
                }
                return Ok((mode, plan));
            }
            Err(status) => refused = refused.or(Some(status)),
        }
    }
    Err(refused.unwrap_or_else(|| Status::internal_error("all impersonation modes failed")))
}

/// All ways, the last one first.
fn order(last: Option<usize>) -> impl Iterator<Item = usize> {
    last.into_iter().chain((0..MODES.len()).filter(move |index| Some(*index) != last))
}

/// Asks for everything that a way takes.
async fn permit(api: &ApiServer, mode: Mode, plan: &Plan) -> Result<(), Status> {
    let ask = async |right: &Attributes| {
        let begun = Instant::now();
        let asked = authz::check(api, &plan.asker, right).await;
        let decision = if asked.is_ok() { "allowed" } else { "denied" };
        let labels = [("mode", mode.name()), ("decision", decision)];
        let counts = &api.extend().counts;
        counts.count("apiserver_impersonation_authorization_attempts_total", &labels);
        let name = "apiserver_impersonation_authorization_attempts_duration_seconds";
        counts.observe(name, &labels, begun.elapsed().as_secs_f64());
        asked
    };
    for step in &plan.steps {
        match step {
            Step::Right(right) => ask(right).await?,
            Step::AllOr(all, each) => {
                if ask(all).await.is_err() {
                    for right in each {
                        ask(right).await?;
                    }
                }
            }
            Step::Never(status) => return Err(status.clone()),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, until};
    use http::{HeaderName, HeaderValue};
    use serde_json::{Value, json};

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
                let request = Attributes::right("get", "", "pods", "a", "b");
                let plan = Mode::Legacy.plan(&User::default(), &user, &request);
                let user = plan.expect("for anybody").acting;
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
            &[(USER, b"jane"), (GROUP, b"system:unauthenticated")],
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

    #[test]
    fn the_way_somebody_came_last_is_tried_first() {
        assert_eq!(order(None).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(order(Some(3)).collect::<Vec<_>>(), [3, 0, 1, 2, 4]);
    }

    /// Stores a cluster role with these rules and gives it to a user.
    async fn allow(server: &Server, name: &str, rules: Value) {
        let group = "/apis/rbac.authorization.k8s.io/v1";
        let version = "rbac.authorization.k8s.io/v1";
        let role = json!({ "apiVersion": version, "kind": "ClusterRole",
            "metadata": { "name": name }, "rules": rules });
        let said = server.create(&format!("{group}/clusterroles"), role).await;
        assert_eq!(said.code, 201, "{said:?}");
        let subjects =
            json!([{ "kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io" }]);
        let binding = json!({ "apiVersion": version, "kind": "ClusterRoleBinding",
            "metadata": { "name": name }, "subjects": subjects, "roleRef": {
                "kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io" } });
        let said = server.create(&format!("{group}/clusterrolebindings"), binding).await;
        assert_eq!(said.code, 201, "{said:?}");
    }

    #[tokio::test]
    async fn a_user_acts_as_another_as_far_as_roles_let_him() {
        let server = Server::start().await;
        let listing = Attributes::right("list", "", "pods", "a", "");
        let deleting = Attributes::right("delete", "", "pods", "a", "p");
        let identity = "authentication.k8s.io";
        let narrow = json!([
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"] },
            { "apiGroups": [identity], "resources": ["users", "groups"],
                "verbs": ["impersonate:user-info"] },
        ]);
        allow(&server, "narrow", narrow).await;
        let wide = json!([{ "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"] }]);
        allow(&server, "wide", wide).await;
        until("roles count", async || {
            let all = ["narrow", "wide"].map(|name| acts(&server, name, "bob", &listing));
            futures_util::future::join_all(all).await.iter().all(|said| said.starts_with("bob"))
        })
        .await;
        let check = async |who: &str, wanted: &str, request: &Attributes, expected: &str| {
            assert_eq!(acts(&server, who, wanted, request).await, expected);
        };
        check("narrow", "bob", &listing, "bob by impersonate:user-info").await;
        check("wide", "bob", &listing, "bob by ").await;
        check("narrow", "bob", &deleting, "pods \"p\" is forbidden: User \"narrow\" cannot impersonate-on:user-info:delete resource \"pods\" in API group \"\" in the namespace \"a\"").await;
        check("nobody", "bob", &listing, "pods is forbidden: User \"nobody\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"a\"").await;
        // Who came by the old way last is told what is missing there.
        check("wide", "system:serviceaccount:ns:robot", &listing, "serviceaccounts \"robot\" is forbidden: User \"wide\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"ns\"").await;
        check("narrow", "bob+system:masters", &listing, "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"narrow\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed").await;
    }

    /// Who somebody is in the end, and by which right; or why he is not. A plus is before a group.
    async fn acts(server: &Server, who: &str, wanted: &str, request: &Attributes) -> String {
        let user = User { name: who.into(), ..User::default() };
        let mut headers = HeaderMap::new();
        let mut words = wanted.split('+');
        let name = words.next().unwrap_or_default();
        headers.append(USER, HeaderValue::from_str(name).expect("a value"));
        for group in words {
            headers.append(GROUP, HeaderValue::from_str(group).expect("a value"));
        }
        match apply(&server.api, &user, &headers, request).await {
            Ok(Some(acting)) => format!("{} by {}", acting.user.name, acting.constraint),
            Ok(None) => "nobody".to_owned(),
            Err(status) => status.message,
        }
    }
}
