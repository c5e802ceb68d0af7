//! What extends the API: CustomResourceDefinition and APIService.
//!
//! The schemas inside a definition are compiled where it is served (`schema::crd`), which also says
//! what is wrong with them.
use super::admission::{client_config_service, client_config_url};
use super::table::{AGE, Column, NAME, text, with};
use super::{Field, Kind, NameRule, Part, Strategy, metadata, prepare};
use crate::field::{BadValue, Error};
use crate::names;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::{Value, json};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

impl Kind for CustomResourceDefinition {
    const STRATEGY: Strategy = Strategy::USUAL.conditional();
    const COLUMNS: &[Column] = &[
        NAME,
        text("Scope", "spec.scope"),
        with("Versions", |definition, _| {
            let versions = definition.at("spec.versions");
            let word = |version: Field<'_, '_>| {
                let marks: Vec<&str> = [
                    (version.at("storage").flag(), "storage"),
                    (!version.at("served").flag(), "unserved"),
                    (version.at("deprecated").flag(), "deprecated"),
                ]
                .into_iter()
                .filter_map(|(is, mark)| is.then_some(mark))
                .collect();
                let name = version.at("name").text();
                if marks.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}({})", marks.join(","))
                }
            };
            versions.items().map(word).collect::<Vec<_>>().join(",").into()
        }),
        text("Created At", "metadata.creationTimestamp").of("date"),
        text("Group", "spec.group").wide(),
        text("Kind", "spec.names.kind").wide(),
        with("ShortNames", |definition, _| {
            definition.at("spec.names.shortNames").texts().collect::<Vec<_>>().join(",").into()
        })
        .wide(),
        with("Established", |definition, _| {
            let conditions = definition.at("status.conditions");
            let established = |condition: Field<'_, '_>| {
                condition.at("type").text() == "Established"
                    && condition.at("status").text() == "True"
            };
            conditions.items().any(established).into()
        })
        .of("boolean")
        .wide(),
    ];

    fn prepare_create(definition: &mut Value) {
        prepare::create(definition, &Self::STRATEGY);
        keep_stored(definition);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        if part == Part::Main {
            keep_stored(new);
        }
    }

    fn validate(definition: &Field<'_, '_>) {
        let (name, spec) = (definition.at("metadata.name"), definition.at("spec"));
        let wanted = format!("{}.{}", spec.at("names.plural").text(), spec.at("group").text());
        if name.text() != wanted {
            name.invalid("must be spec.names.plural+\".\"+spec.group");
        }
        whole(&spec);
        stored(&definition.at("status.storedVersions"), &spec.at("versions"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return;
        }
        let (spec, before) = (new.at("spec"), old.at("spec"));
        whole(&spec);
        let conditions = old.at("status.conditions");
        let established = conditions.items().any(|condition| {
            condition.at("type").text() == "Established" && condition.at("status").text() == "True"
        });
        if established {
            spec.at("scope").immutable(&before.at("scope"));
            spec.at("names.kind").immutable(&before.at("names.kind"));
        }
        spec.at("group").immutable(&before.at("group"));
        spec.at("names.plural").immutable(&before.at("names.plural"));
        stored(&new.at("status.storedVersions"), &spec.at("versions"));
    }
}

/// The version that objects are stored in is remembered for good.
fn keep_stored(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array();
    let stored = versions.into_iter().flatten().find(|version| version["storage"] == true);
    let Some(name) = stored.map(|version| version["name"].clone()) else { return };
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    match definition["status"]["storedVersions"].as_array_mut() {
        Some(list) if list.contains(&name) => {}
        Some(list) => list.push(name),
        None => definition["status"]["storedVersions"] = json!([name]),
    }
}

fn stored(stored: &Field<'_, '_>, versions: &Field<'_, '_>) {
    if stored.is_empty() {
        let shown =
            if stored.exists() { BadValue::json(stored.value()) } else { BadValue::json(&[0; 0]) };
        return stored.invalid_as(shown, "must have at least one stored version");
    }
    for version in stored.items() {
        if !versions.items().any(|each| each.at("name").text() == version.text()) {
            version.invalid(format!("missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions", version.text()));
        }
    }
}

fn whole(spec: &Field<'_, '_>) {
    let group = spec.at("group");
    if group.require() {
        let faults = names::dns1123_subdomain(group.text());
        if !faults.is_empty() {
            group.invalid(faults.join(","));
        } else if !group.text().contains('.') {
            group.invalid("should be a domain with at least one dot");
        }
    }
    spec.at("scope").require_one_of(&["Cluster", "Namespaced"]);
    let versions = spec.at("versions");
    for version in versions.items() {
        if !version.at("schema.openAPIV3Schema").exists() {
            version.at("schema.openAPIV3Schema").required("");
        }
    }
    for each in versions.items() {
        version(&each);
    }
    let list: Vec<&str> = versions.items().map(|version| version.at("name").text()).collect();
    let twice = list.iter().enumerate().any(|(i, name)| list[..i].contains(name));
    let kept = versions.items().filter(|version| version.at("storage").flag()).count();
    let shown =
        || if versions.exists() { BadValue::json(versions.value()) } else { BadValue::null() };
    if twice {
        versions.invalid_as(shown(), "must contain unique version names");
    }
    if kept != 1 {
        versions.invalid_as(shown(), "must have exactly one version marked as storage version");
    }
    definition_names(&spec.at("names"));
    conversion(&spec.at("conversion"));
}

fn version(version: &Field<'_, '_>) {
    let name = version.at("name");
    let faults = names::dns1035_label(name.text());
    if !faults.is_empty() {
        name.invalid(faults.join(","));
    }
    let warning = version.at("deprecationWarning");
    if warning.exists() {
        if !version.at("deprecated").flag() {
            warning.invalid("can only be set for deprecated versions");
        } else if warning.text().is_empty() {
            warning.invalid("must not be an empty string");
        } else if warning.text().len() > 256 {
            warning.invalid("must be <= 256 characters long");
        }
    }
    scale(&version.at("subresources.scale"));
    for column in version.at("additionalPrinterColumns").items() {
        column.at("name").require();
        let kind = column.at("type");
        if kind.require() {
            enumerated(&kind, COLUMN_TYPES);
        }
        let format = column.at("format");
        if !format.is_empty() {
            enumerated(&format, COLUMN_FORMATS);
        }
        let path = column.at("jsonPath");
        if path.require() && !path.text().starts_with(['.', '[']) {
            path.invalid("must be a json path starting with .");
        }
    }
}

/// Upstream says these lists in a sentence of its own.
fn enumerated(field: &Field<'_, '_>, supported: &[&str]) {
    if !supported.contains(&field.text()) {
        field.invalid(format!("must be one of {}", supported.join(",")));
    }
}

fn scale(scale: &Field<'_, '_>) {
    if !scale.exists() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = scale.at(field);
        if path.require() && !path.text().starts_with(&format!("{root}.")) {
            path.invalid(format!("should be a json path under {root}"));
        }
    }
    let selector = scale.at("labelSelectorPath");
    if !selector.is_empty()
        && ![".spec.", ".status."].iter().any(|root| selector.text().starts_with(root))
    {
        selector.invalid("should be a json path under either .spec or .status");
    }
}

fn definition_names(all: &Field<'_, '_>) {
    for field in ["plural", "singular", "kind", "listKind"] {
        all.at(field).require();
    }
    let joined = |field: &Field<'_, '_>, faults: names::Faults, words: &str| {
        if !faults.is_empty() {
            field.invalid(format!("{words}{}", faults.join(",")));
        }
    };
    let mixed = "may have mixed case, but should otherwise match: ";
    let (plural, singular) = (all.at("plural"), all.at("singular"));
    if !plural.is_empty() {
        joined(&plural, names::dns1035_label(plural.text()), "");
    }
    if !singular.is_empty() {
        joined(&singular, names::dns1035_label(singular.text()), "");
    }
    for field in ["kind", "listKind"] {
        let kind = all.at(field);
        if !kind.is_empty() {
            joined(&kind, names::dns1035_label(&kind.text().to_lowercase()), mixed);
        }
    }
    for list in ["shortNames", "categories"] {
        for name in all.at(list).items() {
            joined(&name, names::dns1035_label(name.text()), "");
        }
    }
    if !all.at("kind").is_empty() && all.at("kind").text() == all.at("listKind").text() {
        all.at("listKind").invalid("kind and listKind may not be the same");
    }
}

fn conversion(conversion: &Field<'_, '_>) {
    if !conversion.exists() {
        return;
    }
    let (strategy, webhook) = (conversion.at("strategy"), conversion.at("webhook"));
    strategy.require_one_of(&["None", "Webhook"]);
    let (config, versions) =
        (conversion.spelled("webhookClientConfig"), conversion.spelled("conversionReviewVersions"));
    if strategy.text() != "Webhook" {
        if webhook.at("clientConfig").exists() {
            config.forbidden("should not be set when strategy is not set to Webhook");
        }
        if !webhook.at("conversionReviewVersions").is_empty() {
            versions.forbidden("should not be set when strategy is not set to Webhook");
        }
        return;
    }
    let client = webhook.at("clientConfig").on_path(*config.path());
    if !client.exists() {
        config.required("required when strategy is set to Webhook");
    } else if client.at("url").exists() == client.at("service").exists() {
        config.required("exactly one of url or service is required");
    } else if client.at("url").exists() {
        client_config_url(&client.at("url"));
    } else {
        client_config_service(&client.at("service"));
    }
    let given = webhook.at("conversionReviewVersions").on_path(*versions.path());
    if given.is_empty() {
        versions.required("");
    } else if !given.texts().any(|version| matches!(version, "v1" | "v1beta1")) {
        given.invalid("must include at least one of v1, v1beta1");
    }
}

impl Kind for APIService {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const NAME: NameRule = metadata::path_segment;
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
        let (name, spec) = (service.at("metadata.name"), service.at("spec"));
        let (group, version) = (spec.at("group"), spec.at("version"));
        let wanted = format!("{}.{}", version.text(), group.text());
        if !name.is_empty()
            && name.text() != wanted
            && names::path_segment_name(name.text()).is_empty()
        {
            name.invalid(format!(
                "must be `spec.version+\".\"+spec.group`: {}",
                crate::quote::Quoted(&wanted)
            ));
        }
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
