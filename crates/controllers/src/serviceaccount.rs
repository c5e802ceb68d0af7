//! Every namespace has the account `default`, which pods act as that name no other.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub const CONTROLLER: Controller = Controller {
    name: "serviceaccount-controller",
    account: "service-account-controller",
    workers: 1,
    watch,
    reconcile,
};

const NAME: &str = "default";

fn watch(on: &Watching) {
    on.objects::<Namespace>();
    on.each::<ServiceAccount>(|_, change| match change.new {
        Some(_) => Vec::new(),
        None => vec![NamespacedName::new("", &change.key.namespace)],
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(namespace) = world.get::<Namespace>(key) else { return Vec::new() };
    if !is_active(&namespace) || world.find::<ServiceAccount>(&key.name, NAME).is_some() {
        return Vec::new();
    }
    let metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        namespace: Some(key.name.to_string()),
        ..ObjectMeta::default()
    };
    vec![Action::ensure(&ServiceAccount { metadata, ..ServiceAccount::default() })]
}

/// Things can be made in it.
pub fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    phase != Some("Terminating") && namespace.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn a_namespace_gets_its_account_and_one_that_ends_gets_none() {
        check_row(
            &CONTROLLER,
            "namespace a
             namespace b
             serviceaccount b/default
             namespace c status.phase=Terminating",
            &["a", "b", "c", "gone"],
            expect![[r#"
                create serviceaccounts default
            "#]],
        );
    }
}
