//! What the components of a cluster say of themselves: Lease, ComponentStatus.
use super::table::{AGE, Column, NAME, text, with};
use super::{Field, Kind, Metadata, Strategy};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ComponentStatus;

impl Kind for Lease {
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().conditional().creates_on_update();
    const COLUMNS: &[Column] = &[NAME, text("Holder", "spec.holderIdentity"), AGE];

    fn validate(lease: &Field<'_, '_>) {
        let spec = lease.at("spec");
        let seconds = spec.at("leaseDurationSeconds");
        if seconds.exists() && seconds.int() <= 0 {
            seconds.invalid("must be greater than 0");
        }
        spec.at("leaseTransitions").nonnegative();
    }
}

impl Kind for ComponentStatus {
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Status", |status, _| {
            match healthy(status, "status").as_str() {
                "" => "Unknown",
                "True" => "Healthy",
                _ => "Unhealthy",
            }
            .into()
        }),
        with("Message", |status, _| healthy(status, "message").into()),
        with("Error", |status, _| healthy(status, "error").into()),
    ];

    fn validate(_: &Field<'_, '_>) {}
}

fn healthy(status: &Field<'_, '_>, part: &'static str) -> String {
    let conditions = status.at("conditions");
    let found = conditions.items().find(|condition| condition.at("type").text() == "Healthy");
    found.map(|condition| condition.at(part).text().to_owned()).unwrap_or_default()
}
