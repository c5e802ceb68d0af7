//! APIService: a group and version that another server answers for.
use super::table::{AGE, Column, NAME, with};
use super::{Anew, Field, Kind, Metadata, Part, Strategy, metadata, prepare};
use crate::field::Error;
use crate::names;
use crate::quote::Quoted;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::{Value, json};

impl Kind for APIService {
    const NAMED_ANEW: Anew = Anew::First;
    const REPEATS: bool = true;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Service", |service, _| {
            let reference = service.at("spec.service");
            match reference.exists() {
                true => {
                    format!("{}/{}", reference.at("namespace").text(), reference.at("name").text())
                        .into()
                }
                false => "Local".into(),
            }
        }),
        with("Available", |service, _| {
            let conditions = service.at("status.conditions");
            let found =
                conditions.items().find(|condition| condition.at("type").text() == "Available");
            match found {
                Some(condition) if condition.at("status").text() == "True" => "True".into(),
                Some(condition) => {
                    format!("{} ({})", condition.at("status").text(), condition.at("reason").text())
                        .into()
                }
                None => "Unknown".into(),
            }
        }),
        AGE,
    ];

    fn name_faults(service: &Value, name: &str, _: bool) -> names::Faults {
        let text = |field: &str| service["spec"][field].as_str().unwrap_or_default();
        let wanted = format!("{}.{}", text("version"), text("group"));
        let faults = metadata::path_segment(name, false);
        if !faults.is_empty() || name == wanted {
            return faults;
        }
        vec![format!("must be `spec.version+\".\"+spec.group`: {}", Quoted(&wanted))]
    }

    /// What the server itself serves is there.
    fn prepare_create(service: &mut Value) {
        prepare::create(service, &Self::STRATEGY);
        if service["spec"].get("service").is_none() {
            let now = service["metadata"]["creationTimestamp"].clone();
            service["status"] = json!({ "conditions": [{
                "type": "Available",
                "status": "True",
                "reason": "Local",
                "message": "Local APIServices are always available",
                "lastTransitionTime": now,
            }] });
        }
    }

    fn validate(service: &Field<'_, '_>) {
        let spec = service.at("spec");
        let (group, version) = (spec.at("group"), spec.at("version"));
        if group.is_empty() && version.text() != "v1" {
            group.required("only v1 may have an empty group and it better be legacy kube");
        }
        group.named_if_given(names::dns1123_subdomain);
        version.faults(names::dns1035_label(version.text()));
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec.at(field);
            if !(1..=most).contains(&priority.int()) {
                priority
                    .invalid_as(priority.int(), format!("must be positive and less than {most}"));
            }
        }
        let (reference, bundle, skip) =
            (spec.at("service"), spec.at("caBundle"), spec.at("insecureSkipTLSVerify"));
        if !reference.exists() {
            if !bundle.is_empty() {
                let bytes = bundle.text().len() / 4 * 3 - bundle.text().matches('=').count();
                bundle.invalid_as(
                    format!("{bytes} bytes"),
                    "local APIServices may not have a caBundle",
                );
            }
            if skip.flag() {
                skip.invalid("local APIServices may not have insecureSkipTLSVerify");
            }
            return;
        }
        reference.at("namespace").require();
        reference.at("name").require();
        let port = reference.at("port");
        let faults = names::port_number(port.int());
        if !faults.is_empty() {
            port.invalid_as(port.int(), format!("port is not valid: {}", faults.join(", ")));
        }
        if skip.flag() && !bundle.is_empty() {
            skip.invalid("may not be true if caBundle is present");
        }
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            return Self::validate(new);
        }
        for condition in new.at("status.conditions").items() {
            let status = condition.at("status");
            if !matches!(status.text(), "True" | "False" | "Unknown") {
                status.push(Error::not_supported(
                    status.path(),
                    status.text(),
                    ["True", "False", "Unknown"],
                ));
            }
        }
    }
}
