//! How fast RBAC decides: a thousand bindings, one thread.
use crate::report::Report;
use apiserver::User;
use apiserver::authz::Attributes;
use apiserver::authz::rbac::Index;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const BINDINGS: usize = 1000;
const DECISIONS: usize = 200_000;

pub fn run(_: &[String], report: &mut Report) {
    let mut index = Index::default();
    let mut put = |kind: &str, place: &str, object: Value| {
        let row = api::kinds::find_kind("rbac.authorization.k8s.io/v1", kind).expect("a row");
        index.put(row, place, Some(object));
    };
    for role in 0..50 {
        let rules: Vec<Value> = ["pods", "services", "configmaps", "deployments"]
            .map(|resource| {
                json!({ "verbs": ["get", "list", "watch"], "apiGroups": ["", "apps"],
                    "resources": [resource] })
            })
            .to_vec();
        put("ClusterRole", &format!("role-{role}"), json!({ "rules": rules }));
    }
    for binding in 0..BINDINGS {
        let object = json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": format!("role-{}", binding % 50) },
            "subjects": [{ "kind": if binding % 4 == 0 { "Group" } else { "User" },
                "name": format!("subject-{}", binding % 500) }],
        });
        match binding % 2 == 0 {
            true => {
                let place = format!("namespace-{}/binding-{binding}", binding % 20);
                put("RoleBinding", &place, object);
            }
            false => put("ClusterRoleBinding", &format!("binding-{binding}"), object),
        }
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
