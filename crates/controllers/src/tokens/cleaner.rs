//! Tokens that machines join by go when their time is over.
use super::{data, is_of};
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "token-cleaner-controller",
    account: "token-cleaner",
    workers: 1,
    watch,
    reconcile,
};

pub const TYPE: &str = "bootstrap.kubernetes.io/token";
pub const NAMESPACE: &str = "kube-system";

fn watch(on: &Watching) {
    on.each::<Secret>(|_, change| match &change.new {
        Some(secret) if is_of(secret, TYPE) && *change.key.namespace == *NAMESPACE => {
            vec![change.key.clone()]
        }
        _ => Vec::new(),
    });
}

/// How long a token is still good; `None`: for ever. What cannot be read is over.
pub fn left(secret: &Secret, now: Timestamp) -> Option<Duration> {
    let until = Some(data(secret, "expiration")).filter(|text| !text.is_empty())?;
    let until = until.parse::<Timestamp>().unwrap_or(Timestamp::MIN);
    Some(until.duration_since(now).try_into().unwrap_or(Duration::ZERO))
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(secret) = world.get::<Secret>(key) else { return Vec::new() };
    match left(&secret, now) {
        None => Vec::new(),
        Some(Duration::ZERO) => vec![Action::delete(&*secret)],
        Some(left) => vec![Action::Again(left)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn a_token_goes_when_its_time_is_over() {
        let token = |name: &str, expiration: &str| {
            let text = serde_json::to_value(k8s_openapi::ByteString(expiration.into()));
            let text = text.expect("text");
            format!("secret kube-system/{name} type={TYPE} data={{\"expiration\":{text}}}")
        };
        check_row(
            &CONTROLLER,
            &format!(
                "{}\n{}\n{}\n secret kube-system/ever type={TYPE}",
                token("over", "2026-01-01T11:59:59Z"),
                token("good", "2026-01-01T14:00:30+01:00"),
                token("odd", "soon")
            ),
            &["kube-system/over", "kube-system/good", "kube-system/odd", "kube-system/ever"],
            expect![[r#"
                delete secrets kube-system/over
                again after 3630s
                delete secrets kube-system/odd
            "#]],
        );
    }
}
