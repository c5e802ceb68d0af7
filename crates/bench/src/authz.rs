//! How fast RBAC decides: a thousand bindings, one thread.
use crate::report::Report;
use apiserver::User;
use apiserver::authz::Attributes;
use apiserver::authz::rbac::Index;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use std::hint::black_box;
use std::time::Instant;

const BINDINGS: usize = 1000;
const DECISIONS: usize = 200_000;

pub fn run(_: &[String], report: &mut Report) {
    let mut index = Index::default();
    let text = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    for role in 0..50 {
        let rule = |resource: &str| PolicyRule {
            verbs: vec!["get".into(), "list".into(), "watch".into()],
            api_groups: text(&["", "apps"]),
            resources: text(&[resource]),
            ..PolicyRule::default()
        };
        let rules = ["pods", "services", "configmaps", "deployments"].map(rule).to_vec();
        index.add_cluster_role(&format!("role-{role}"), rules);
    }
    for binding in 0..BINDINGS {
        let role = RoleRef {
            api_group: None,
            kind: "ClusterRole".into(),
            name: format!("role-{}", binding % 50),
        };
        let subject = Subject {
            kind: if binding % 4 == 0 { "Group" } else { "User" }.into(),
            name: format!("subject-{}", binding % 500),
            ..Subject::default()
        };
        let namespace = format!("namespace-{}", binding % 20);
        let place = (binding % 2 == 0).then_some(namespace.as_str());
        index.bind(place, &role, Some(&[subject]), "a binding");
    }
    let user = |name: usize| User {
        name: format!("subject-{name}"),
        groups: vec![format!("subject-{}", name * 4 % 500), "system:authenticated".into()],
        ..User::default()
    };
    for (name, resource) in [("allowed", "deployments"), ("refused", "secrets")] {
        let mut nanos: Vec<u32> = Vec::with_capacity(DECISIONS);
        for i in 0..DECISIONS {
            let (user, namespace) = (user(1 + i % 499), format!("namespace-{}", i % 20));
            let wanted = Attributes::right("list", "apps", resource, &namespace, "");
            let begun = Instant::now();
            black_box(index.find(&user, &wanted));
            nanos.push(begun.elapsed().as_nanos() as u32);
        }
        nanos.sort_unstable();
        let at = |share: f64| f64::from(nanos[(nanos.len() as f64 * share) as usize]) / 1000.0;
        report.row(
            format!("RBAC decision, {BINDINGS} bindings, {name}"),
            &[("p50 µs", at(0.5)), ("p99 µs", at(0.99))],
        );
    }
}
