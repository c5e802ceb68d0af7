//! Requests for certificates that nobody needs any more go: those that were answered, after an
//! hour; those that were not, after a day.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::pem;
use api::x509;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-cleaner-controller",
    account: "certificate-controller",
    workers: 1,
    watch: |on: &Watching| on.objects::<CertificateSigningRequest>(),
    reconcile,
};

/// Answered, and not: upstream's.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(request) = world.get::<CertificateSigningRequest>(key) else { return Vec::new() };
    let Some(due) = due(&request) else { return Vec::new() };
    match Duration::try_from(due.duration_since(now)) {
        Ok(left) if !left.is_zero() => vec![Action::Again(left)],
        _ => vec![Action::delete(&*request)],
    }
}

/// When a request has outlived its use.
fn due(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let status = request.status.as_ref();
    let certificate = status.and_then(|status| status.certificate.as_ref());
    let certificate = certificate.filter(|certificate| !certificate.0.is_empty());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if conditions.is_empty() {
        return request.metadata.creation_timestamp.as_ref().map(|made| made.0 + PENDING);
    }
    let of_each = conditions.iter().filter_map(|condition| {
        let is_approval = condition.type_ == "Approved";
        let expires = certificate.filter(|_| is_approval).and_then(|it| expiry(&it.0));
        let patience = match &*condition.type_ {
            "Denied" | "Failed" => ANSWERED,
            "Approved" if certificate.is_some() => ANSWERED,
            "Approved" => PENDING,
            _ => return None,
        };
        let due = condition.last_update_time.as_ref().map(|at| at.0 + patience);
        due.into_iter().chain(expires).min()
    });
    of_each.min()
}

fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let block = pem::blocks(certificate).next()?;
    let read = x509::certificate(&block.bytes).ok()?;
    Timestamp::from_second(read.not_after).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn what_was_answered_goes_sooner_than_what_was_not() {
        let answered = |type_: &str, at: &str| {
            format!(
                "status.conditions=[{{\"type\":\"{type_}\",\"status\":\"True\",\"lastUpdateTime\":\"{at}\"}}]"
            )
        };
        let (early, late) = ("2026-01-01T10:30:00Z", "2026-01-01T11:30:00Z");
        check_row(
            &CONTROLLER,
            &format!(
                "certificatesigningrequest denied {}
                 certificatesigningrequest failed-lately {}
                 certificatesigningrequest unsigned {}
                 certificatesigningrequest signed {} status.certificate=\"eA==\"
                 certificatesigningrequest young
                 certificatesigningrequest old age=90000",
                answered("Denied", early),
                answered("Failed", late),
                answered("Approved", early),
                answered("Approved", early),
            ),
            &["denied", "failed-lately", "unsigned", "signed", "young", "old"],
            expect![[r#"
                delete certificatesigningrequests.certificates.k8s.io denied
                again after 1800s
                again after 81000s
                delete certificatesigningrequests.certificates.k8s.io signed
                again after 82800s
                delete certificatesigningrequests.certificates.k8s.io old
            "#]],
        );
    }
}
