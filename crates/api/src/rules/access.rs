//! RBAC: roles and their bindings.
use super::table::{AGE, Column, NAME, with};
use super::{Field, Kind, NameRule, Part, Strategy, metadata};
use crate::field::BadValue;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";
const PLAIN: Strategy = Strategy::USUAL.without_status().without_generation().creates_on_update();
const ROLE_COLUMNS: &[Column] =
    &[NAME, super::table::text("Created At", "metadata.creationTimestamp").of("date")];
const BINDING_COLUMNS: &[Column] = &[
    NAME,
    with("Role", |binding, _| {
        let role = binding.at("roleRef");
        format!("{}/{}", role.at("kind").text(), role.at("name").text()).into()
    }),
    AGE,
    with("Users", |binding, _| subjects(binding, "User")).wide(),
    with("Groups", |binding, _| subjects(binding, "Group")).wide(),
    with("ServiceAccounts", |binding, _| subjects(binding, "ServiceAccount")).wide(),
];

fn subjects(binding: &Field<'_, '_>, kind: &str) -> Value {
    let list = binding.at("subjects");
    let of_kind = list.items().filter(|subject| subject.at("kind").text() == kind);
    let name = |subject: Field<'_, '_>| match subject.at("namespace").text() {
        "" => subject.at("name").text().to_owned(),
        namespace => format!("{namespace}/{}", subject.at("name").text()),
    };
    of_kind.map(name).collect::<Vec<_>>().join(", ").into()
}

macro_rules! roles {
    ($($kind:ty: $columns:expr, $validate:expr, $update:expr;)*) => {
        $(impl Kind for $kind {
            const STRATEGY: Strategy = PLAIN;
            const NAME: NameRule = metadata::path_segment;
            const COLUMNS: &[Column] = $columns;

            fn validate(object: &Field<'_, '_>) {
                $validate(object, true);
            }

            fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
                $validate(new, false);
                $update(new, old);
            }
        })*
    };
}

roles! {
    Role: ROLE_COLUMNS, |role, _| rules(role, true), |_, _| ();
    ClusterRole: ROLE_COLUMNS, cluster_role, |_, _| ();
    RoleBinding: BINDING_COLUMNS, |binding, is_new| validate_binding(binding, &["Role", "ClusterRole"], is_new), same_role;
    ClusterRoleBinding: BINDING_COLUMNS, |binding, is_new| validate_binding(binding, &["ClusterRole"], is_new), same_role;
}

fn cluster_role(role: &Field<'_, '_>, _: bool) {
    rules(role, false);
    if role.at("aggregationRule").exists() {
        let selectors = role.at("aggregationRule.clusterRoleSelectors");
        if selectors
            .require_for("at least one clusterRoleSelector required if aggregationRule is non-nil")
        {
            for selector in selectors.items() {
                let before = selector.count();
                selector.label_selector();
                if selector.count() != before {
                    selector.invalid_as(BadValue::null(), "invalid label selector.");
                }
            }
        }
    }
}

fn rules(role: &Field<'_, '_>, namespaced: bool) {
    for rule in role.at("rules").items() {
        rule.at("verbs").declared().require();
        let urls = rule.at("nonResourceURLs");
        let resourceful = ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|part| !rule.at(part).is_empty());
        if !urls.is_empty() {
            if namespaced {
                urls.invalid("namespaced rules cannot apply to non-resource URLs");
            }
            if resourceful {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                urls.invalid(detail);
            }
            continue;
        }
        rule.at("apiGroups").require_for("resource rules must supply at least one api group");
        rule.at("resources").require_for("resource rules must supply at least one resource");
    }
}

/// What is declared about a role that may not change is not asked, so others speak.
fn validate_binding(binding: &Field<'_, '_>, kinds: &[&str], is_new: bool) {
    let role = binding.at("roleRef");
    if role.at("apiGroup").text() != GROUP {
        role.at("apiGroup").not_supported(&[GROUP]);
    }
    role.at("kind").one_of(kinds);
    let name = role.at("name");
    if is_new || name.require() {
        let faults = metadata::path_segment(name.text(), false);
        name.faults(if name.is_empty() { Vec::new() } else { faults });
    }
    for subject in binding.at("subjects").items() {
        subject.at("name").declared().require();
        let group = subject.at("apiGroup");
        match subject.at("kind").text() {
            "ServiceAccount" => {
                let name = subject.at("name");
                if !name.is_empty() {
                    name.faults(crate::names::name_is_dns_subdomain(name.text(), false));
                }
                if !group.is_empty() {
                    group.not_supported(&[""]);
                }
                // In a namespace, an account is meant to be of the same one.
                if kinds.len() == 1 {
                    subject.at("namespace").require();
                }
            }
            "User" | "Group" => {
                if group.text() != GROUP {
                    group.not_supported(&[GROUP]);
                }
            }
            _ => subject.at("kind").not_supported(&["ServiceAccount", "User", "Group"]),
        }
    }
    if is_new {
        name.declared().require();
    }
}

fn same_role(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    if new.at("roleRef").value() != old.at("roleRef").value() {
        let shown = new.at("roleRef").internal(&[
            ("APIGroup", "apiGroup", "\"\""),
            ("Kind", "kind", "\"\""),
            ("Name", "name", "\"\""),
        ]);
        new.at("roleRef").invalid_as(shown, metadata::IMMUTABLE);
    }
}
