//! The ways to act as somebody else, from the narrowest to the widest, and what each asks of whoever wants to
//! (`apiserver/pkg/endpoints/filters/impersonation/mode.go`).
//!
//! A narrow one takes two rights: to act as that user, and to do so for this very request. Those of nodes and of
//! service accounts name nothing but the user; groups are what they always are.
use super::{SERVICE_ACCOUNTS, service_account};
use crate::guard::authn::User;
use crate::guard::authz::{self, Attributes, What};
use api::field::{Path, aggregate};
use api::names;
use api::status::Status;
use std::collections::BTreeMap;

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
const IDENTITY: &str = "authentication.k8s.io";
const MASTERS: &str = "system:masters";

/// From so many groups or extras on, the right to all of them is asked for first.
const MANY: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A service account as the node that its pod is on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Whoever is neither.
    UserInfo,
    /// Anybody, for anything.
    Legacy,
}

pub const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

/// What somebody has to be allowed, in this order, and who he is then.
#[derive(Debug)]
pub struct Plan {
    /// Who asks, as those who judge it are told.
    pub asker: User,
    pub steps: Vec<Step>,
    pub acting: User,
    /// What the audit log says of it; nothing where nothing is constrained.
    pub constraint: String,
}

#[derive(Debug)]
pub enum Step {
    Right(Attributes),
    /// The first for all the others.
    AllOr(Attributes, Vec<Attributes>),
    /// Nobody may do that.
    Never(Status),
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "legacy",
        }
    }

    /// What this takes of `requester`, who wants to be `wanted` for a request; none if it is not for such users.
    pub fn plan(self, requester: &User, wanted: &User, request: &Attributes) -> Option<Plan> {
        if !self.is_for(requester, wanted) {
            return None;
        }
        let asker = self.asker(requester);
        let Some(verb) = self.constraint() else {
            let group = "";
            let mut rights = Rights { verb: "impersonate", group, asker: &asker, narrow: false };
            let steps = rights.steps(wanted);
            let acting = with_everybody(of_account(wanted.clone()));
            return Some(Plan { asker, steps, acting, constraint: String::new() });
        };
        let on = format!("impersonate-on:{}:{}", self.name(), request.verb);
        let mut steps = vec![Step::Right(Attributes { verb: on, ..request.clone() })];
        let mut rights = Rights { verb: &verb, group: IDENTITY, asker: &asker, narrow: true };
        steps.extend(rights.steps(wanted));
        if self == Mode::AssociatedNode
            && let Some(Step::Right(Attributes { what: What::Resource { name, .. }, .. })) =
                steps.get_mut(1)
        {
            // Which node it is has been told already, by where its pod is.
            *name = "*".into();
        }
        let mut acting = of_account(wanted.clone());
        if node(&wanted.name).is_some() {
            acting.groups = vec!["system:nodes".into()];
        }
        Some(Plan { asker, steps, acting: with_everybody(acting), constraint: verb })
    }

    /// The verb of the right to be somebody.
    fn constraint(self) -> Option<String> {
        (self != Mode::Legacy).then(|| format!("impersonate:{}", self.name()))
    }

    fn is_for(self, requester: &User, wanted: &User) -> bool {
        let is_only_name =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node(&wanted.name);
        let account = service_account(&wanted.name);
        match self {
            Mode::AssociatedNode => is_only_name && node.is_some() && node == node_of(requester),
            Mode::ArbitraryNode => is_only_name && node.is_some(),
            Mode::ServiceAccount => is_only_name && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }

    /// That an account is on a node has been found out, and is the same on all nodes: whoever judges is told which
    /// keys it had, and none of their values.
    fn asker(self, requester: &User) -> User {
        let mut asker = requester.clone();
        if self == Mode::AssociatedNode {
            let keys = requester.extra.keys().cloned().collect();
            asker.extra = BTreeMap::from([(NODE_KEYS.to_owned(), keys)]);
        }
        asker
    }
}

/// The rights to be somebody, by what is said of him.
struct Rights<'a> {
    verb: &'a str,
    /// The API group of users, groups and the like.
    group: &'a str,
    asker: &'a User,
    /// Whether more is refused than was of old.
    narrow: bool,
}

impl Rights<'_> {
    fn steps(&mut self, wanted: &User) -> Vec<Step> {
        let mut steps = vec![Step::Right(self.name(&wanted.name))];
        if !wanted.uid.is_empty() {
            steps.push(Step::Right(self.right(IDENTITY, "uids", "", &wanted.uid)));
        }
        steps.extend(self.groups(&wanted.groups));
        steps.extend(self.extra(&wanted.extra));
        steps
    }

    fn right(&self, group: &str, resource: &str, part: &str, name: &str) -> Attributes {
        let mut right = Attributes::right(self.verb, group, resource, "", name);
        if let What::Resource { version, subresource, .. } = &mut right.what {
            (*version, *subresource) = ("v1".into(), part.into());
        }
        right
    }

    fn name(&self, user: &str) -> Attributes {
        if let (true, Some(node)) = (self.narrow, node(user)) {
            return self.right(self.group, "nodes", "", node);
        }
        let Some((of, account)) = service_account(user) else {
            return self.right(self.group, "users", "", user);
        };
        let mut right = self.right(self.group, "serviceaccounts", "", account);
        if let What::Resource { namespace, .. } = &mut right.what {
            *namespace = of.into();
        }
        right
    }

    fn never(&self, right: &Attributes, cause: &str) -> Vec<Step> {
        vec![Step::Never(authz::refusal(self.asker, right, cause))]
    }

    fn groups(&self, groups: &[String]) -> Vec<Step> {
        let right = |name: &str| self.right(self.group, "groups", "", name);
        if self.narrow && groups.iter().any(String::is_empty) {
            return self.never(&right(""), "impersonating the empty string group is not allowed");
        }
        if self.narrow && groups.iter().any(|group| group == MASTERS) {
            let cause = "impersonating the system:masters group is not allowed";
            return self.never(&right(MASTERS), cause);
        }
        let each = groups.iter().map(|group| right(group)).collect();
        self.each_or_all(groups.len() >= MANY, right("*"), each)
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Vec<Step> {
        let right = |key: &str, value: &str| self.right(IDENTITY, "userextras", key, value);
        if let (true, Some(cause)) = (self.narrow, extra.iter().find_map(unfit)) {
            return self.never(&right("", ""), &cause);
        }
        let values = || extra.iter().flat_map(|(key, all)| all.iter().map(move |one| (key, one)));
        let is_many = extra.len() >= MANY || values().count() >= MANY;
        let each = values().map(|(key, value)| right(key, value)).collect();
        self.each_or_all(is_many, right("*", "*"), each)
    }

    fn each_or_all(&self, is_many: bool, all: Attributes, each: Vec<Attributes>) -> Vec<Step> {
        match self.narrow && is_many {
            true => vec![Step::AllOr(all, each)],
            false => each.into_iter().map(Step::Right).collect(),
        }
    }
}

/// Why an extra may not be said of anybody.
fn unfit((key, values): (&String, &Vec<String>)) -> Option<String> {
    let never = |what: &str| Some(format!("impersonating {what} in extra is not allowed"));
    if key.is_empty() {
        return never("the empty string key");
    }
    let place = Path::new("extra");
    if let Some(faults) = aggregate(&names::domain_prefixed_path(&place.child("key"), key)) {
        return Some(format!("impersonating an invalid key in extra is not allowed: {faults}"));
    }
    if *key != key.to_lowercase() {
        let cause = "impersonating a non-lowercase key in extra is not allowed";
        return Some(format!("{cause}: {key:?}"));
    }
    match values.iter().any(String::is_empty) {
        true => never("the empty string value"),
        false if values.is_empty() => never("empty values"),
        false => None,
    }
}

/// The node that a user name stands for.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    names::name_is_dns_subdomain(name, false).is_empty().then_some(name)
}

/// The node that a service account's token says its pod is on.
fn node_of(requester: &User) -> Option<&str> {
    service_account(&requester.name)?;
    match requester.extra.get(NODE_NAME).map(Vec::as_slice) {
        Some([node]) => Some(node),
        _ => None,
    }
}

/// The groups of an account that is wanted with none.
fn of_account(mut user: User) -> User {
    if let (Some((namespace, _)), true) = (service_account(&user.name), user.groups.is_empty()) {
        user.groups = vec![SERVICE_ACCOUNTS.into(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
    }
    user
}

/// The group that everybody is of who is known, or that the others are of.
fn with_everybody(mut user: User) -> User {
    const AUTHENTICATED: &str = "system:authenticated";
    const UNAUTHENTICATED: &str = "system:unauthenticated";
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
    use expect_test::{Expect, expect};
    use std::fmt::Write;

    fn user(text: &str) -> User {
        let mut user = User::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("uid", uid)) => user.uid = uid.into(),
                Some(("group", group)) => user.groups.push(group.into()),
                Some((key, value)) => {
                    user.extra.entry(key.to_owned()).or_default().push(value.to_owned());
                }
                None => user.name = word.into(),
            }
        }
        user
    }

    fn shown(right: &Attributes) -> String {
        let What::Resource { group, resource, subresource, namespace, name, .. } = &right.what
        else {
            return format!("{} {:?}", right.verb, right.what);
        };
        let place = [resource, subresource].map(String::as_str).join("/");
        let name = [namespace, name].map(String::as_str).join("/");
        format!("{} {group} {} {}", right.verb, place.trim_matches('/'), name.trim_matches('/'))
    }

    /// Who lists pods as whom → the ways that there are, each with what it takes and who he is then.
    fn check(requester: &str, wanted: &str, expected: Expect) {
        let request = Attributes::right("list", "", "pods", "a", "");
        let mut text = String::new();
        for mode in MODES {
            let plan = mode.plan(&user(requester), &user(wanted), &request);
            let Some(Plan { asker, steps, acting, constraint }) = plan else { continue };
            let _ = writeln!(text, "{}", mode.name());
            if asker != user(requester) {
                let _ = writeln!(text, "  asker {:?}", asker.extra);
            }
            for step in steps {
                let line = match step {
                    Step::Right(right) => shown(&right),
                    Step::AllOr(all, each) => {
                        let each: Vec<String> = each.iter().map(shown).collect();
                        format!("{} | {}", shown(&all), each.join(" + "))
                    }
                    Step::Never(status) => format!("never: {}", status.message),
                };
                let _ = writeln!(text, "  {line}");
            }
            let more = if acting.extra.is_empty() { "" } else { " with extra" };
            let groups = acting.groups.join(",");
            let _ = writeln!(text, "  -> {} [{groups}]{more} {constraint}", acting.name);
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_user_is_wanted() {
        check(
            "ann",
            "bob uid=u group=dev acme.io/scope=read",
            expect![[r#"
                user-info
                  impersonate-on:user-info:list  pods a
                  impersonate:user-info authentication.k8s.io users bob
                  impersonate:user-info authentication.k8s.io uids u
                  impersonate:user-info authentication.k8s.io groups dev
                  impersonate:user-info authentication.k8s.io userextras/acme.io/scope read
                  -> bob [dev,system:authenticated] with extra impersonate:user-info
                legacy
                  impersonate  users bob
                  impersonate authentication.k8s.io uids u
                  impersonate  groups dev
                  impersonate authentication.k8s.io userextras/acme.io/scope read
                  -> bob [dev,system:authenticated] with extra 
            "#]],
        );
    }

    #[test]
    fn a_service_account_is_wanted_by_its_name_alone() {
        check(
            "ann",
            "system:serviceaccount:ns:robot",
            expect![[r#"
                serviceaccount
                  impersonate-on:serviceaccount:list  pods a
                  impersonate:serviceaccount authentication.k8s.io serviceaccounts ns/robot
                  -> system:serviceaccount:ns:robot [system:serviceaccounts,system:serviceaccounts:ns,system:authenticated] impersonate:serviceaccount
                legacy
                  impersonate  serviceaccounts ns/robot
                  -> system:serviceaccount:ns:robot [system:serviceaccounts,system:serviceaccounts:ns,system:authenticated] 
            "#]],
        );
        check(
            "ann",
            "system:serviceaccount:ns:robot group=dev",
            expect![[r#"
                legacy
                  impersonate  serviceaccounts ns/robot
                  impersonate  groups dev
                  -> system:serviceaccount:ns:robot [dev,system:authenticated] 
            "#]],
        );
    }

    #[test]
    fn a_node_is_wanted_by_whoever_is_on_it_and_by_others() {
        check(
            "system:serviceaccount:ns:agent authentication.kubernetes.io/node-name=n1 authentication.kubernetes.io/pod-name=p",
            "system:node:n1",
            expect![[r#"
                associated-node
                  asker {"authentication.kubernetes.io/associated-node-keys": ["authentication.kubernetes.io/node-name", "authentication.kubernetes.io/pod-name"]}
                  impersonate-on:associated-node:list  pods a
                  impersonate:associated-node authentication.k8s.io nodes *
                  -> system:node:n1 [system:nodes,system:authenticated] impersonate:associated-node
                arbitrary-node
                  impersonate-on:arbitrary-node:list  pods a
                  impersonate:arbitrary-node authentication.k8s.io nodes n1
                  -> system:node:n1 [system:nodes,system:authenticated] impersonate:arbitrary-node
                legacy
                  impersonate  users system:node:n1
                  -> system:node:n1 [system:authenticated] 
            "#]],
        );
        // On another node, on two, no account, and with a group that it chose itself.
        let arbitrary = |requester: &str| {
            check(
                requester,
                "system:node:n1",
                expect![[r#"
                    arbitrary-node
                      impersonate-on:arbitrary-node:list  pods a
                      impersonate:arbitrary-node authentication.k8s.io nodes n1
                      -> system:node:n1 [system:nodes,system:authenticated] impersonate:arbitrary-node
                    legacy
                      impersonate  users system:node:n1
                      -> system:node:n1 [system:authenticated] 
                "#]],
            );
        };
        let key = "authentication.kubernetes.io/node-name";
        arbitrary(&format!("system:serviceaccount:ns:agent {key}=n2"));
        arbitrary(&format!("system:serviceaccount:ns:agent {key}=n1 {key}=n2"));
        arbitrary(&format!("ann {key}=n1"));
        arbitrary("system:serviceaccount:ns:agent");
        check(
            &format!("system:serviceaccount:ns:agent {key}=n1"),
            "system:node:n1 group=system:masters",
            expect![[r#"
                legacy
                  impersonate  users system:node:n1
                  impersonate  groups system:masters
                  -> system:node:n1 [system:masters,system:authenticated] 
            "#]],
        );
    }

    #[test]
    fn nobody_becomes_a_master_or_says_nonsense_of_himself() {
        let check = |wanted: &str, cause: &str| {
            let request = Attributes::right("list", "", "pods", "a", "");
            let plan = Mode::UserInfo.plan(&user("ann"), &user(wanted), &request);
            let steps = plan.expect("for such users").steps;
            let never = steps.iter().find_map(|step| match step {
                Step::Never(status) => Some(status.message.as_str()),
                _ => None,
            });
            assert!(never.is_some_and(|text| text.ends_with(cause)), "{wanted}: {never:?}");
            // Whatever is refused is asked for by the old right only.
            let plan = Mode::Legacy.plan(&user("ann"), &user(wanted), &request);
            let steps = plan.expect("for anybody").steps;
            assert!(steps.iter().all(|step| matches!(step, Step::Right(_))), "{wanted}");
        };
        check(
            "bob group=dev group=system:masters",
            "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"ann\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed",
        );
        let masters = "bob group=a group=b group=c group=d group=system:masters";
        check(masters, ": impersonating the system:masters group is not allowed");
        check("bob group=", ": impersonating the empty string group is not allowed");
        check("bob =x", ": impersonating the empty string key in extra is not allowed");
        check("bob a.io/b=", ": impersonating the empty string value in extra is not allowed");
        check(
            "bob a.io/B=x",
            ": impersonating a non-lowercase key in extra is not allowed: \"a.io/B\"",
        );
        for key in ["scopes", "a.io/", "/b", "A.io/b", "a.io/b c"] {
            let mut wanted = user("bob");
            wanted.extra.insert(key.into(), vec!["x".into()]);
            let fault = unfit((&key.to_owned(), &wanted.extra[key])).unwrap_or_default();
            let cause = "impersonating an invalid key in extra is not allowed: extra.key: ";
            assert!(fault.starts_with(cause), "{key}: {fault}");
        }
    }

    #[test]
    fn the_right_to_all_stands_for_many() {
        let wanted = "bob group=a group=b group=c group=d a.io/x=1 a.io/x=2 a.io/y=1 a.io/y=2";
        let request = Attributes::right("list", "", "pods", "a", "");
        let plan = Mode::UserInfo.plan(&user("ann"), &user(wanted), &request);
        let steps = plan.expect("for such users").steps;
        let all = steps.iter().filter_map(|step| match step {
            Step::AllOr(all, each) => Some(format!("{} {}", shown(all), each.len())),
            _ => None,
        });
        let expected = [
            "impersonate:user-info authentication.k8s.io groups * 4",
            "impersonate:user-info authentication.k8s.io userextras/* * 4",
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
        let three =
            Mode::UserInfo.plan(&user("ann"), &user("bob group=a group=b group=c"), &request);
        let steps = three.expect("for such users").steps;
        assert!(steps.iter().all(|step| matches!(step, Step::Right(_))));
    }
}
