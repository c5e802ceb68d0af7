//! A Secret of type `kubernetes.io/service-account-token` is filled in for its account, and goes
//! with it.
use super::{Signer, annotation, data, is_of};
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::object::Object;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::json;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "serviceaccount-token-controller",
    // Upstream's writes these as the controller manager itself.
    account: "",
    workers: 5,
    watch,
    reconcile,
};

pub const TYPE: &str = "kubernetes.io/service-account-token";
pub const NAME: &str = "kubernetes.io/service-account.name";
pub const UID: &str = "kubernetes.io/service-account.uid";

fn watch(on: &Watching) {
    on.each::<Secret>(|_, change| {
        let mut secrets = change.old.iter().chain(&change.new);
        let is_token = secrets.any(|secret| is_of(secret, TYPE));
        if is_token { vec![change.key.clone()] } else { Vec::new() }
    });
    on.each::<ServiceAccount>(|world, change| {
        let secrets = world.informer::<Secret>();
        let read = secrets.read();
        let of_it =
            |secret: &Secret| is_of(secret, TYPE) && annotation(secret, NAME) == &*change.key.name;
        let here = read.in_namespace(&change.key.namespace).filter(|(_, secret)| of_it(secret));
        here.map(|(key, _)| key.clone()).collect()
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(secret) = world.get::<Secret>(key) else { return forget(key, world) };
    let name = annotation(&secret, NAME);
    if !is_of(&secret, TYPE) || name.is_empty() {
        return Vec::new();
    }
    let uid = annotation(&secret, UID);
    let is_its =
        |account: &ServiceAccount| uid.is_empty() || account.metadata.uid.as_deref() == Some(uid);
    let account = world.find::<ServiceAccount>(&key.namespace, name);
    if let Some(account) = account.filter(|account| is_its(account)) {
        return fill(&secret, &account, world).into_iter().collect();
    }
    // The account may be so young that we have not heard of it.
    let object = Target {
        resource: client::ApiResource::of::<ServiceAccount>(),
        namespace: key.namespace.to_string(),
        name: name.to_owned(),
        uid: String::new(),
    };
    let uid = uid.to_owned();
    let then = move |live: Option<Arc<Object>>| match live {
        Some(live) if uid.is_empty() || live.uid() == uid => Vec::new(),
        _ => vec![Action::delete(&*secret)],
    };
    vec![Action::Look { object, then: Box::new(then) }]
}

fn fill(secret: &Secret, account: &ServiceAccount, world: &World) -> Option<Action> {
    let ca = &world.settings.root_ca;
    let needs_ca = !ca.is_empty() && data(secret, "ca.crt") != ca;
    let needs_namespace = data(secret, "namespace").is_empty();
    let needs_token = data(secret, "token").is_empty();
    if !needs_ca && !needs_namespace && !needs_token {
        return None;
    }
    let signer = world.settings.token_signer.as_ref()?;
    let mut new = secret.clone();
    let namespace = secret.metadata.namespace.clone().unwrap_or_default();
    let data = new.data.get_or_insert_default();
    let mut put = |key: &str, value: String| data.insert(key.to_owned(), ByteString(value.into()));
    if needs_ca {
        put("ca.crt", ca.clone());
    }
    if needs_namespace {
        put("namespace", namespace.clone());
    }
    if needs_token {
        put("token", token(signer, secret, account, &namespace)?);
    }
    let annotations = new.metadata.annotations.get_or_insert_default();
    let own = |text: &Option<String>| text.clone().unwrap_or_default();
    annotations.insert(NAME.to_owned(), own(&account.metadata.name));
    annotations.insert(UID.to_owned(), own(&account.metadata.uid));
    Some(Action::update(&new))
}

fn token(
    signer: &Signer,
    secret: &Secret,
    account: &ServiceAccount,
    namespace: &str,
) -> Option<String> {
    let name = account.metadata.name.as_deref().unwrap_or_default();
    (signer.0)(&json!({
        "iss": "kubernetes/serviceaccount",
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret.metadata.name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.metadata.uid,
    }))
}

/// An account does not name a token that is gone.
fn forget(key: &NamespacedName, world: &World) -> Vec<Action> {
    let is_it = |named: &Option<String>| named.as_deref() == Some(&*key.name);
    let accounts = world.in_namespace::<ServiceAccount>(&key.namespace);
    let naming = accounts
        .iter()
        .filter(|account| account.secrets.iter().flatten().any(|secret| is_it(&secret.name)));
    let change = |account: &Arc<ServiceAccount>| {
        let mut new = (**account).clone();
        new.secrets.iter_mut().for_each(|all| all.retain(|secret| !is_it(&secret.name)));
        Action::update(&new)
    };
    naming.map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::expect;

    const TOKEN: &str =
        "type=kubernetes.io/service-account-token annotation:kubernetes.io/service-account.name=a";

    #[test]
    fn a_token_is_filled_in_once() {
        let full = "data={\"token\":\"eA==\",\"namespace\":\"eA==\",\"ca.crt\":\"UEVN\"}";
        check_row(
            &CONTROLLER,
            &format!(
                "serviceaccount a\n secret new {TOKEN}\n secret full {TOKEN} {full}\n secret other"
            ),
            &["default/new", "default/full", "default/other"],
            expect![[r#"
                update secrets new
            "#]],
        );
    }

    #[test]
    fn a_token_goes_with_its_account_and_an_account_forgets_a_token_that_went() {
        let another = "annotation:kubernetes.io/service-account.uid=another";
        check_run(
            &CONTROLLER,
            &format!(
                "serviceaccount a\n secret old {TOKEN} {another}\n secret lost {}",
                TOKEN.replace("name=a", "name=b")
            ),
            expect![[r#"
                delete secrets default/lost
                delete secrets default/old
            "#]],
        );
        check_row(
            &CONTROLLER,
            "serviceaccount a secrets=[{\"name\":\"gone\"},{\"name\":\"there\"}]",
            &["default/gone"],
            expect![[r#"
                update serviceaccounts a
            "#]],
        );
    }
}
