//! Every namespace has the ConfigMap by which pods trust the API server.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::serviceaccount::is_active;
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub const CONTROLLER: Controller = Controller {
    name: "root-ca-certificate-publisher-controller",
    account: "root-ca-cert-publisher",
    workers: 1,
    watch,
    reconcile,
};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using \
                    internal endpoints such as the internal service IP or \
                    kubernetes.default.svc. No other usage is guaranteed across distributions of \
                    Kubernetes clusters.";

fn watch(on: &Watching) {
    on.objects::<Namespace>();
    on.each::<ConfigMap>(|_, change| match &*change.key.name {
        NAME => vec![NamespacedName::new("", &change.key.namespace)],
        _ => Vec::new(),
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(namespace) = world.get::<Namespace>(key) else { return Vec::new() };
    let certificates = &world.settings.root_ca;
    if certificates.is_empty() || !is_active(&namespace) {
        return Vec::new();
    }
    let data = Some([("ca.crt".to_owned(), certificates.clone())].into());
    let Some(old) = world.find::<ConfigMap>(&key.name, NAME) else {
        let metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(key.name.to_string()),
            annotations: Some([(DESCRIPTION.to_owned(), TEXT.to_owned())].into()),
            ..ObjectMeta::default()
        };
        return vec![Action::ensure(&ConfigMap { metadata, data, ..ConfigMap::default() })];
    };
    let annotations = old.metadata.annotations.as_ref();
    let is_described = annotations.is_some_and(|all| all.contains_key(DESCRIPTION));
    if old.data == data && is_described {
        return Vec::new();
    }
    let mut new = (*old).clone();
    new.data = data;
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.insert(DESCRIPTION.to_owned(), TEXT.to_owned());
    vec![Action::update(&new)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn the_certificates_are_published_and_kept_right() {
        check_row(
            &CONTROLLER,
            "namespace a
             namespace b
             configmap b/kube-root-ca.crt data.x=wrong
             namespace c status.phase=Terminating",
            &["a", "b", "c"],
            expect![[r#"
                create configmaps kube-root-ca.crt
                update configmaps kube-root-ca.crt
            "#]],
        );
    }
}
