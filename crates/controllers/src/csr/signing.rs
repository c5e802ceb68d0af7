//! Requests that were approved are signed by the cluster's CA, if they are what their signer is for.
use super::{has, is_over, parse, signer, with_condition};
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-signing-controller",
    account: "certificate-controller",
    workers: 1,
    watch: |on: &Watching| on.objects::<CertificateSigningRequest>(),
    reconcile,
};

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(request) = world.get::<CertificateSigningRequest>(key) else { return Vec::new() };
    let signers = &world.settings.signers;
    let Some(authority) = signers.of(&request.spec.signer_name) else { return Vec::new() };
    if is_over(&request) || !has(&request, "Approved") {
        return Vec::new();
    }
    let Some(asked) = parse(&request) else { return Vec::new() };
    let told = match signer::sign(&request.spec, asked, (authority, signers.lifetime), now) {
        None => return Vec::new(),
        Some(Ok(certificate)) => {
            let mut signed = (*request).clone();
            let status = signed.status.get_or_insert_default();
            status.certificate = Some(ByteString(certificate.into_bytes()));
            signed
        }
        Some(Err(cause)) => {
            with_condition(&request, ("Failed", "SignerValidationFailure"), cause, now)
        }
    };
    vec![Action::update_part("status", &told)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_tree, request_line};
    use expect_test::expect;

    #[test]
    fn what_was_approved_is_signed_once() {
        let approved = r#" status.conditions=[{"type":"Approved","status":"True"}]"#;
        let subject = ("system:nodes", "system:node:n");
        let usages = "digital signature,client auth";
        let line = request_line("r", signer::KUBELET_CLIENT, subject, &[], usages);
        // The certificate is another each time.
        let check = |line: String, expect| check_tree(&CONTROLLER, &line, "r", "kind", expect);
        check(line.clone(), expect![[""]]);
        check(
            line.clone() + approved,
            expect![[r#"
                update certificatesigningrequests.certificates.k8s.io/status r
                  "CertificateSigningRequest"
            "#]],
        );
        check(line + approved + " status.certificate=YQ==", expect![[""]]);
        let other = request_line("r", "example.com/signer", subject, &[], usages);
        check(other + approved, expect![[""]]);
    }
}
