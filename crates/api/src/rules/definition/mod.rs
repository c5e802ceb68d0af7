//! CustomResourceDefinition: names, versions, and where conversion happens; the schemas of the
//! versions are in [`schema`].
//!
//! Upstream keeps what all versions have in common once, at the top of the definition, and reports
//! its faults there; so do we ([`Shared`]).
mod default;
mod formats;
mod path;
mod schema;
mod shown;
mod structural;
mod version;

pub use path::field_path;
pub use shown::rule_shown;
pub use version::{Placed, schemas};

use super::admission::{client_config_service, client_config_url};
use super::table::{Column, NAME, text, with};
use super::{Field, Kind, Metadata, Part, Strategy, prepare};
use crate::custom::approval::{self, Approval};
use crate::field::BadValue;
use crate::names;
use crate::pem::{self, Block};
use crate::x509;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use version::Shared;

impl Kind for CustomResourceDefinition {
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const REPEATS: bool = true;
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

    fn name_faults(definition: &Value, name: &str, prefix: bool) -> names::Faults {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut faults = names::name_is_dns_subdomain(name, prefix);
        if name != format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])) {
            faults.push("must be spec.names.plural+\".\"+spec.group".into());
        }
        faults
    }

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

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let known = old.map(|old| formats::warnings(old.value())).unwrap_or_default();
        let mut warnings = formats::warnings(new.value());
        warnings.retain(|warning| !known.contains(warning));
        warnings
    }

    fn validate(definition: &Field<'_, '_>) {
        let spec = definition.at("spec");
        whole(&spec, false);
        definition_names(&definition.at("status.acceptedNames"));
        stored(&definition.at("status.storedVersions"), &spec.at("versions"));
        approve(definition, None);
        keeps_unknown(&spec, None);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return definition_names(&new.at("status.acceptedNames"));
        }
        let (spec, before) = (new.at("spec"), old.at("spec"));
        whole(&spec, checks_bundle(old));
        if is_established(old) {
            spec.at("scope").immutable(&before.at("scope"));
            spec.at("names.kind").immutable(&before.at("names.kind"));
        }
        spec.at("group").immutable(&before.at("group"));
        spec.at("names.plural").immutable(&before.at("names.plural"));
        definition_names(&new.at("status.acceptedNames"));
        stored(&new.at("status.storedVersions"), &spec.at("versions"));
        approve(new, Some(old));
        keeps_unknown(&spec, Some(&before));
    }
}

/// Before it is served, anything goes; later only what was wrong already.
fn checks_bundle(old: &Field<'_, '_>) -> bool {
    let bundle = old.at("spec.conversion.webhook.clientConfig.caBundle");
    is_established(old) && bundle_fault(bundle.text()).is_none()
}

/// What is wrong with a bundle that is not empty: one sound certificate is enough.
pub fn bundle_fault(bundle: &str) -> Option<String> {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    let plain = |block: &Block| block.kind == "CERTIFICATE" && !block.has_headers;
    let mut blocks = pem::blocks(&bytes);
    let read = blocks.by_ref().filter(plain).map(|block| x509::certificate(&block.bytes));
    let read: Vec<_> = read.collect();
    if bundle.is_empty() || read.iter().any(Result::is_ok) {
        return None;
    }
    let fault = match read.into_iter().find_map(Result::err) {
        Some(fault) => format!("failed to parse certificate: {fault}"),
        None if blocks.rest.is_empty() => "no valid certificate authority data seen".to_owned(),
        None => "unable to parse bytes as PEM block".to_owned(),
    };
    Some(format!("unable to load root certificates: {fault}"))
}

fn is_established(definition: &Field<'_, '_>) -> bool {
    definition.at("status.conditions").items().any(|condition| {
        condition.at("type").text() == "Established" && condition.at("status").text() == "True"
    })
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
        return stored.invalid_as(BadValue::null(), "must have at least one stored version");
    }
    let mut seen = Vec::new();
    for version in versions.items() {
        let name = version.at("name").text();
        // A second version of the name counts for none.
        let known = stored.texts().any(|stored| stored == name) && !seen.contains(&name);
        seen.push(name);
        if version.at("storage").flag() && !known {
            stored.invalid(format!("must have the storage version {name}"));
        }
    }
    for version in stored.items() {
        if !versions.items().any(|each| each.at("name").text() == version.text()) {
            version.invalid(format!("missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions", version.text()));
        }
    }
}

/// A group of the community needs its approval; one that is there unapproved may stay so.
fn approve(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
    let state = |definition: &Field<'_, '_>| {
        let annotations = definition.at("metadata.annotations");
        Approval::of(annotations.key(approval::ANNOTATION).text())
    };
    if !approval::is_protected(new.at("spec.group").text())
        || old.is_some_and(|old| state(old) == state(new))
    {
        return;
    }
    let annotations = new.at("metadata.annotations");
    let annotation = annotations.key(approval::ANNOTATION);
    let state = state(new);
    match state {
        Approval::Missing => annotation.required(state.said("")),
        Approval::Invalid => annotation.invalid(state.said(annotation.text())),
        Approval::Bypassed | Approval::Approved => {}
    }
}

fn keeps_unknown(spec: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
    let did = old.is_some_and(|old| old.at("preserveUnknownFields").flag());
    let keeps = spec.at("preserveUnknownFields");
    if keeps.flag() && !did {
        keeps.invalid("cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead");
    }
}

fn whole(spec: &Field<'_, '_>, checks_bundle: bool) {
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
    let (versions, keeps) = (spec.at("versions"), spec.at("preserveUnknownFields").flag());
    let shared = Shared::of(versions.list());
    for version in versions.items() {
        let schema = version.at("schema");
        if !schema.at("openAPIV3Schema").exists() {
            schema.at("openAPIV3Schema").required("");
        }
    }
    if keeps && versions.list().iter().any(version::has_defaults) {
        spec.at("preserveUnknownFields")
            .invalid("must be false in order to use defaults in the schema");
    }
    versions.items().for_each(|each| version::own(&each, &shared));
    let list: Vec<&str> = versions.items().map(|version| version.at("name").text()).collect();
    let twice = list.iter().enumerate().any(|(i, name)| list[..i].contains(name));
    let kept = versions.items().filter(|version| version.at("storage").flag()).count();
    let shown = || shown::versions(versions.value(), &shared.fields());
    if twice {
        versions.invalid_as(shown(), "must contain unique version names");
    }
    if kept != 1 {
        versions.invalid_as(shown(), "must have exactly one version marked as storage version");
    }
    // The first version is the definition's own, too.
    if let Some(first) = list.first().filter(|first| !first.is_empty()) {
        let faults = names::dns1035_label(first);
        if !faults.is_empty() {
            spec.spelled("version").invalid_as(*first, faults.join(","));
        }
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        spec.at("names").at(field).require();
    }
    definition_names(&spec.at("names"));
    version::shared(spec, &shared);
    let strategy = spec.at("conversion.strategy");
    if keeps && strategy.exists() && strategy.text() != "None" {
        strategy.invalid("must be None if spec.preserveUnknownFields is true");
    }
    conversion(&spec.at("conversion"), checks_bundle);
}

fn definition_names(all: &Field<'_, '_>) {
    let joined = |field: &Field<'_, '_>, faults: names::Faults, words: &str| {
        if !field.is_empty() && !faults.is_empty() {
            field.invalid(format!("{words}{}", faults.join(",")));
        }
    };
    for field in ["plural", "singular"] {
        let name = all.at(field);
        joined(&name, names::dns1035_label(name.text()), "");
    }
    for field in ["kind", "listKind"] {
        let kind = all.at(field);
        let mixed = "may have mixed case, but should otherwise match: ";
        joined(&kind, names::dns1035_label(&kind.text().to_lowercase()), mixed);
    }
    let labels = |list: &'static str| {
        for name in all.at(list).items() {
            let faults = names::dns1035_label(name.text());
            if !faults.is_empty() {
                name.invalid(faults.join(","));
            }
        }
    };
    labels("shortNames");
    if !all.at("kind").is_empty() && all.at("kind").text() == all.at("listKind").text() {
        all.at("listKind").invalid("kind and listKind may not be the same");
    }
    labels("categories");
}

fn conversion(conversion: &Field<'_, '_>, checks_bundle: bool) {
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
    let bundle = client.at("caBundle");
    if let Some(fault) = bundle_fault(bundle.text()).filter(|_| checks_bundle) {
        bundle.invalid(fault);
    }
    let given = webhook.at("conversionReviewVersions").on_path(*versions.path());
    if given.is_empty() {
        return versions.required("");
    }
    let mut seen = Vec::new();
    for version in given.items() {
        if seen.contains(&version.text()) {
            version.invalid("duplicate version");
            continue;
        }
        seen.push(version.text());
        version.faults(names::dns1035_label(version.text()));
    }
    if !given.texts().any(|version| matches!(version, "v1" | "v1beta1")) {
        given.invalid("must include at least one of v1, v1beta1");
    }
}
