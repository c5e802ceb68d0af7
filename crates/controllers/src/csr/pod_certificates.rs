//! Requests for pods' certificates go after a quarter of an hour: the kubelet waits no longer.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "podcertificaterequest-cleaner-controller",
    account: "podcertificaterequestcleaner",
    workers: 1,
    watch: |on: &Watching| on.objects::<PodCertificateRequest>(),
    reconcile,
};

const LIFE: SignedDuration = SignedDuration::from_mins(15);

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(request) = world.get::<PodCertificateRequest>(key) else { return Vec::new() };
    let Some(made) = &request.metadata.creation_timestamp else { return Vec::new() };
    match Duration::try_from((made.0 + LIFE).duration_since(now)) {
        Ok(left) if !left.is_zero() => vec![Action::Again(left)],
        _ => vec![Action::delete(&*request)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn old_requests_go() {
        check_row(
            &CONTROLLER,
            "podcertificaterequest old age=901\n podcertificaterequest young age=600",
            &["default/old", "default/young"],
            expect![[r#"
                delete podcertificaterequests.certificates.k8s.io default/old
                again after 300s
            "#]],
        );
    }
}
