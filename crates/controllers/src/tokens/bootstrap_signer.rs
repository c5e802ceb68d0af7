//! `kube-public/cluster-info`, which a machine that joins reads before it trusts anybody, is signed
//! with every token that may sign: who knows a token can tell that it is genuine.
use super::cleaner::{NAMESPACE, TYPE, left};
use super::{data, is_of};
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use ring::hmac;
use std::collections::BTreeMap;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "bootstrap-signer-controller",
    account: "bootstrap-signer",
    workers: 1,
    watch,
    reconcile,
};

const PREFIX: &str = "jws-kubeconfig-";

fn info() -> NamespacedName {
    NamespacedName::new("kube-public", "cluster-info")
}

fn watch(on: &Watching) {
    on.each::<ConfigMap>(|_, change| if change.key == info() { vec![info()] } else { Vec::new() });
    on.each::<Secret>(|_, change| {
        let mut secrets = change.old.iter().chain(&change.new);
        let is_token = *change.key.namespace == *NAMESPACE && secrets.any(|it| is_of(it, TYPE));
        if is_token { vec![info()] } else { Vec::new() }
    });
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(map) = world.get::<ConfigMap>(key) else { return Vec::new() };
    let old = map.data.clone().unwrap_or_default();
    let Some(content) = old.get("kubeconfig") else { return Vec::new() };
    let mut new: BTreeMap<_, _> =
        old.clone().into_iter().filter(|(key, _)| !key.starts_with(PREFIX)).collect();
    let mut next = None::<Duration>;
    for secret in world.in_namespace::<Secret>(NAMESPACE) {
        let Some((id, token)) = signs(&secret, now) else { continue };
        new.insert(format!("{PREFIX}{id}"), signature(content, id, token));
        next = next.into_iter().chain(left(&secret, now)).min();
    }
    let mut actions = Vec::new();
    if new != old {
        let changed = ConfigMap { data: Some(new), ..(*map).clone() };
        actions.push(Action::update(&changed));
    }
    // A signature must not outlive its token, though nobody may clean up.
    actions.extend(next.map(Action::Again));
    actions
}

/// The id and the secret half of a token that may sign.
fn signs(secret: &Secret, now: Timestamp) -> Option<(&str, &str)> {
    let name = secret.metadata.name.as_deref()?.strip_prefix("bootstrap-token-")?;
    let (id, token) = (data(secret, "token-id"), data(secret, "token-secret"));
    let is_over = left(secret, now) == Some(Duration::ZERO);
    let may_sign = data(secret, "usage-bootstrap-signing") == "true";
    let is_fit = is_of(secret, TYPE) && id.len() == 6 && id == name && !token.is_empty();
    (is_fit && may_sign && !is_over).then_some((id, token))
}

/// A JSON Web Signature without what it signs.
fn signature(content: &str, id: &str, token: &str) -> String {
    let header = BASE64.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    let signed = format!("{header}.{}", BASE64.encode(content));
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{header}..{}", BASE64.encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_tree};
    use expect_test::expect;
    use serde_json::json;

    fn token(id: &str, signing: &str, expiration: &str) -> String {
        let text = |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.into()));
        let data = json!({ "token-id": text(id).expect("text"), "token-secret": text("secret").expect("text"),
            "usage-bootstrap-signing": text(signing).expect("text"), "expiration": text(expiration).expect("text") });
        format!("secret kube-system/bootstrap-token-{id} type={TYPE} data={data}\n")
    }

    /// As upstream's `cluster-bootstrap/token/jws` has it.
    #[test]
    fn the_signature_is_upstreams() {
        let text = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(
            signature(text, "joshua", "my voice is my passcode"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
    }

    #[test]
    fn tokens_that_may_sign_do() {
        let info = "configmap kube-public/cluster-info data={\"kubeconfig\":\"k\",\"jws-kubeconfig-gonexx\":\"x\"}\n";
        let world = [
            info.to_owned(),
            token("signer", "true", ""),
            token("nosign", "false", ""),
            token("overdu", "true", "2026-01-01T11:00:00Z"),
        ];
        check_tree(
            &CONTROLLER,
            &world.concat(),
            "kube-public/cluster-info",
            "data",
            expect![[r#"
            update configmaps cluster-info
              {"jws-kubeconfig-signer":"eyJhbGciOiJIUzI1NiIsImtpZCI6InNpZ25lciJ9..xTrcjELVmPGGdLF6WFMXdDtG5rI33dPEAbWduyIKINE","kubeconfig":"k"}
        "#]],
        );
        check_row(
            &CONTROLLER,
            "configmap kube-public/cluster-info data={\"kubeconfig\":\"k\"}",
            &["kube-public/cluster-info"],
            expect![[""]],
        );
    }
}
