//! The certificates that the API server is trusted by are a ClusterTrustBundle too, so that pods can
//! mount them.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt::Write;

/// All bundles of the signer are one key.
pub const CONTROLLER: Controller = Controller {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    account: "kube-apiserver-serving-clustertrustbundle-publisher",
    workers: 1,
    watch,
    reconcile,
};

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

fn watch(on: &Watching) {
    let key = || vec![NamespacedName::new("", SIGNER)];
    on.each::<ClusterTrustBundle>(move |_, change| {
        let mut bundles = change.old.iter().chain(&change.new);
        if bundles.any(|bundle| is_ours(bundle)) { key() } else { Vec::new() }
    });
    // Every cluster has this one: the first look needs something to come from.
    on.each::<Namespace>(move |_, change| {
        let is_first = change.old.is_none() && *change.key.name == *"kube-system";
        if is_first { key() } else { Vec::new() }
    });
}

fn is_ours(bundle: &ClusterTrustBundle) -> bool {
    bundle.spec.signer_name.as_deref() == Some(SIGNER)
}

fn reconcile(_: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let certificates = &world.settings.root_ca;
    if certificates.is_empty() {
        return Vec::new();
    }
    let name = name_of(certificates);
    let mut actions = Vec::new();
    match world.find::<ClusterTrustBundle>("", &name) {
        None => actions.push(Action::ensure(&ClusterTrustBundle {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: ClusterTrustBundleSpec {
                signer_name: Some(SIGNER.to_owned()),
                trust_bundle: certificates.clone(),
            },
        })),
        Some(old) if old.spec.trust_bundle != *certificates => {
            let mut new = (*old).clone();
            new.spec.trust_bundle.clone_from(certificates);
            actions.push(Action::update(&new));
        }
        Some(_) => {}
    }
    let all = world.all::<ClusterTrustBundle>();
    let others = all.iter().filter(|it| is_ours(it) && it.metadata.name.as_ref() != Some(&name));
    actions.extend(others.map(|other| Action::delete(&**other)));
    actions
}

/// The signer, and the first half of what the certificates hash to.
fn name_of(certificates: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificates.as_bytes());
    let mut name = format!("{}:", SIGNER.replace('/', ":"));
    for byte in &digest.as_ref()[..12] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn the_bundle_is_published_and_those_of_before_go() {
        check_row(
            &CONTROLLER,
            "clustertrustbundle kubernetes.io:kube-apiserver-serving:old spec.signerName=kubernetes.io/kube-apiserver-serving
             clustertrustbundle mine",
            &["x"],
            expect![[r#"
                create clustertrustbundles.certificates.k8s.io kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9
                delete clustertrustbundles.certificates.k8s.io kubernetes.io:kube-apiserver-serving:old
            "#]],
        );
    }
}
