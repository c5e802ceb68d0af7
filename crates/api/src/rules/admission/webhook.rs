//! Webhook configurations.
use super::super::table::{AGE, Column, NAME, count};
use super::super::{Anew, Field, Kind, Metadata, Part, Strategy};
use super::{FAILURE_POLICIES, MATCH_POLICIES, PLAIN, match_conditions, reserved, rule};
use crate::names;
use crate::url::Url;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};

const COLUMNS: &[Column] = &[NAME, count("Webhooks", "webhooks"), AGE];
const FORM: &str = "; desired format: https://host[/path]";

impl Kind for ValidatingWebhookConfiguration {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = PLAIN.counting_given_empty();
    const COLUMNS: &[Column] = COLUMNS;

    fn validate(configuration: &Field<'_, '_>) {
        webhooks(&configuration.at("webhooks"), |_| ());
        reserved::name(configuration);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, _: Part<'_>) {
        webhooks(&new.at("webhooks"), |_| ());
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        warnings(new, old)
    }
}

impl Kind for MutatingWebhookConfiguration {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = PLAIN.counting_given_empty();
    const COLUMNS: &[Column] = COLUMNS;

    fn validate(configuration: &Field<'_, '_>) {
        webhooks(&configuration.at("webhooks"), reinvocation);
        reserved::name(configuration);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, _: Part<'_>) {
        webhooks(&new.at("webhooks"), reinvocation);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        warnings(new, old)
    }
}

fn reinvocation(hook: &Field<'_, '_>) {
    hook.at("reinvocationPolicy").one_of_if_given(&["IfNeeded", "Never"]);
}

/// Questions that the cluster itself asks about identity and rights
/// (`pkg/kubeapiserver/admission/exclusion`): a hook or a policy in their way would lock everybody out, so
/// none is ever asked about them.
pub const REVIEWS: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Of a name that is reserved, and of rules that name what no hook is asked about.
fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
    let mut warnings = reserved::warnings(new, old);
    for hook in new.at("webhooks").items() {
        for rule in hook.at("rules").items() {
            for name in without_effect(&rule) {
                let place = rule.path();
                warnings.push(format!(
                    "{place}: {name} is excluded from admission webhooks; this rule will have no effect"
                ));
            }
        }
    }
    warnings
}

/// The reviews that a rule names. One about everything is not meant for them.
fn without_effect(rule: &Field<'_, '_>) -> Vec<String> {
    let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
    let mut found = Vec::new();
    if groups.texts().chain(resources.texts()).any(|item| item == "*") {
        return found;
    }
    for group in groups.texts() {
        for resource in resources.texts() {
            let name = format!("{resource}.{group}");
            if REVIEWS.contains(&(group, resource)) && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

fn webhooks(hooks: &Field<'_, '_>, more: fn(&Field<'_, '_>)) {
    for hook in hooks.items() {
        let name = hook.at("name");
        name.extend(names::fully_qualified_name(name.path(), name.text()));
        hook.at("rules").items().for_each(|each| rule(&each));
        hook.at("failurePolicy").one_of_if_given(FAILURE_POLICIES);
        hook.at("matchPolicy").one_of_if_given(MATCH_POLICIES);
        let effects = hook.at("sideEffects");
        if effects.exists() {
            effects.one_of(&["None", "NoneOnDryRun"]);
        } else {
            effects.required("must specify one of None, NoneOnDryRun");
        }
        let timeout = hook.at("timeoutSeconds");
        if timeout.exists() && !(1..=30).contains(&timeout.int()) {
            timeout.invalid("the timeout value must be between 1 and 30 seconds");
        }
        hook.at("namespaceSelector").label_selector();
        hook.at("objectSelector").label_selector();
        more(&hook);
        client_config(&hook.at("clientConfig"));
        match_conditions(&hook.at("matchConditions"));
        review_versions(&hook.at("admissionReviewVersions"));
    }
    hooks.unique_by("name");
}

fn client_config(config: &Field<'_, '_>) {
    let (url, service) = (config.at("url"), config.at("service"));
    if url.exists() == service.exists() {
        config.required("exactly one of url or service is required");
    } else if url.exists() {
        client_config_url(&url);
    } else {
        client_config_service(&service);
    }
}

/// `https://host/path` and nothing more.
pub fn client_config_url(url: &Field<'_, '_>) {
    let parts = match Url::parse(url.text()) {
        Ok(parts) => parts,
        Err(fault) => return url.required(format!("url must be a valid URL: {fault}{FORM}")),
    };
    if parts.scheme != "https" {
        url.invalid_as(
            parts.scheme.as_str(),
            format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if parts.host.is_empty() {
        url.invalid_as("", format!("host must be specified{FORM}"));
    }
    if let Some(user) = parts.user {
        url.invalid_as(user, "user information is not permitted in the URL");
    }
    if !parts.fragment.is_empty() {
        url.invalid_as(parts.fragment, "fragments are not permitted in the URL");
    }
    if !parts.query.is_empty() {
        url.invalid_as(parts.query, "query parameters are not permitted in the URL");
    }
}

pub fn client_config_service(service: &Field<'_, '_>) {
    // Upstream checks the namespace under the name of the name, and the other way round.
    if service.at("namespace").is_empty() {
        service.at("name").required("");
    }
    if service.at("name").is_empty() {
        service.at("namespace").required("");
    }
    let port = service.at("port");
    let faults = names::port_number(port.int());
    if !faults.is_empty() {
        port.invalid_as(port.int(), format!("port is not valid: {}", faults.join(", ")));
    }
    let path = service.at("path");
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid("segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid("must start with a '/'");
    }
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (i, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            path.invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for fault in names::dns1123_subdomain(step) {
            path.invalid(format!("segment[{i}]: {fault}"));
        }
    }
}

fn review_versions(versions: &Field<'_, '_>) {
    if !versions.require_for("must specify one of v1, v1beta1") {
        return;
    }
    let mut seen = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.text()) {
            version.invalid("duplicate version");
            continue;
        }
        seen.push(version.text());
        version.faults(names::dns1035_label(version.text()));
    }
    if !seen.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        versions.invalid("must include at least one of v1, v1beta1");
    }
}
