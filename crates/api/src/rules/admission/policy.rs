//! Admission policies and what binds them.
use super::super::table::{AGE, Column, NAME, count, text, with};
use super::super::{Anew, Field, Kind, Metadata, Part, Strategy};
use super::{FAILURE_POLICIES, MATCH_POLICIES, PLAIN, match_conditions, reserved, rule};
use crate::field::Error;
use crate::jsonpath;
use crate::names;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};

const MUTATING_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
const PARAM_KIND: Column = with("ParamKind", |policy, _| {
    let kind = policy.at("spec.paramKind");
    match kind.exists() {
        true => format!("{}/{}", kind.at("apiVersion").text(), kind.at("kind").text()).into(),
        false => "<unset>".into(),
    }
});
const BINDING_COLUMNS: &[Column] = &[
    NAME,
    text("PolicyName", "spec.policyName"),
    with("ParamRef", |binding, _| {
        let reference = binding.at("spec.paramRef");
        match (reference.at("namespace").text(), reference.at("name").text()) {
            (_, "") => "<unset>".into(),
            ("", name) => format!("*/{name}").into(),
            (namespace, name) => format!("{namespace}/{name}").into(),
        }
    }),
    AGE,
];

impl Kind for ValidatingAdmissionPolicy {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = Strategy::USUAL.conditional().status_only();
    const COLUMNS: &[Column] = &[NAME, count("Validations", "spec.validations"), PARAM_KIND, AGE];

    fn validate(policy: &Field<'_, '_>) {
        validating(policy);
        reserved::name(policy);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => validating(new),
            Part::Sub(_) => {
                for warning in new.at("status.typeChecking.expressionWarnings").items() {
                    warning.at("warning").require();
                    let place = warning.at("fieldRef");
                    if place.require()
                        && let Err(fault) = jsonpath::check(&format!("{{{}}}", place.text()))
                    {
                        place.invalid(format!("invalid JSONPath: {fault}"));
                    }
                }
                super::super::conditions(&new.at("status.conditions"));
            }
        }
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        reserved::warnings(new, old)
    }
}

fn validating(policy: &Field<'_, '_>) {
    let spec = policy.at("spec");
    common(&spec);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in [&validations, &annotations] {
            field.required("validations or auditAnnotations must contain at least one item");
        }
    }
    validations.items().for_each(|each| validation(&each));
    if annotations.len() > 20 {
        annotations.invalid("must not have more than 20 auditAnnotations");
    }
    let name = policy.at("metadata.name").text();
    for annotation in annotations.items() {
        let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
        let full = format!("{name}/{}", key.text());
        if name.is_empty() {
            key.invalid("requires metadata.name be non-empty");
        } else {
            for fault in names::qualified_name(&full) {
                key.invalid_as(full.as_str(), fault);
            }
        }
        match value.text().trim().len() {
            0 => value.required("valueExpression is not specified"),
            5121.. => value.required("must not exceed 5120 bytes in length"),
            _ => {}
        }
    }
    duplicates(&annotations, "key");
}

fn duplicates(list: &Field<'_, '_>, field: &'static str) {
    let mut seen = Vec::new();
    for item in list.items() {
        let value = item.at(field);
        if seen.contains(&value.text()) {
            value.push(Error::duplicate(value.path(), value.text()));
        }
        seen.push(value.text());
    }
}

fn common(spec: &Field<'_, '_>) {
    let policy = spec.at("failurePolicy");
    if policy.exists() {
        policy.one_of(FAILURE_POLICIES);
    } else {
        policy.required("");
    }
    if spec.at("paramKind").exists() {
        param_kind(&spec.at("paramKind"));
    }
    let constraints = spec.at("matchConstraints");
    if constraints.exists() {
        match_resources(&constraints);
        constraints.at("resourceRules").require();
    } else {
        constraints.required("");
    }
    match_conditions(&spec.at("matchConditions"));
    for variable in spec.at("variables").items() {
        let (name, expression) = (variable.at("name"), variable.at("expression"));
        if name.text().trim().is_empty() {
            name.required("name is not specified");
        } else if !is_identifier(name.text()) {
            name.invalid("must be a valid CEL identifier");
        }
        if expression.text().trim().is_empty() {
            expression.required("expression is not specified");
        }
    }
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn param_kind(kind: &Field<'_, '_>) {
    let (version, name) = (kind.at("apiVersion"), kind.at("kind"));
    if version.require() {
        let text = version.text();
        match text.matches('/').count() {
            0 | 1 => {
                let (group, of) = text.split_once('/').unwrap_or(("", text));
                let joined = |field: &Field<'_, '_>, part: &str, faults: names::Faults| {
                    if !faults.is_empty() {
                        field.invalid_as(part, faults.join(","));
                    }
                };
                if !group.is_empty() {
                    joined(&version, group, names::dns1123_subdomain(group));
                }
                match of {
                    "" => version.invalid("version must be specified"),
                    of => joined(&version, of, names::dns1035_label(of)),
                }
            }
            _ => version.invalid(format!("unexpected GroupVersion string: {text}")),
        }
    }
    if name.require() {
        let faults = names::dns1035_label(&name.text().to_lowercase());
        if !faults.is_empty() {
            name.invalid(format!(
                "may have mixed case, but should otherwise match: {}",
                faults.join(",")
            ));
        }
    }
}

fn match_resources(matched: &Field<'_, '_>) {
    let policy = matched.at("matchPolicy");
    if policy.exists() {
        policy.one_of(MATCH_POLICIES);
    } else {
        policy.required("");
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        if !matched.at(selector).exists() {
            matched.at(selector).required("");
        }
        matched.at(selector).label_selector();
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for each in matched.at(list).items() {
            let resources = each.at("resourceNames");
            for name in resources.items() {
                name.faults(names::path_segment_name(name.text()));
            }
            resources.unique();
            rule(&each);
        }
    }
}

fn validation(validation: &Field<'_, '_>) {
    let (expression, message) = (validation.at("expression"), validation.at("message"));
    if expression.text().trim().is_empty() {
        expression.required("expression is not specified");
    }
    let worded = validation.at("messageExpression");
    for field in [&worded, &message] {
        if !field.is_empty() && field.text().trim().is_empty() {
            field.invalid("must be non-empty if specified");
        }
    }
    if message.text().trim().contains(['\n', '\r']) {
        message.invalid("must not contain line breaks");
    }
    validation.at("reason").one_of_if_given(REASONS);
}

impl Kind for MutatingAdmissionPolicy {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, count("Mutations", "spec.mutations"), PARAM_KIND, AGE];

    fn validate(policy: &Field<'_, '_>) {
        mutating(policy);
        reserved::name(policy);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, _: Part<'_>) {
        mutating(new);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        reserved::warnings(new, old)
    }
}

fn mutating(policy: &Field<'_, '_>) {
    let spec = policy.at("spec");
    common(&spec);
    let rules = spec.at("matchConstraints.resourceRules");
    for rule in rules.items() {
        for operation in rule.at("operations").texts() {
            if !MUTATING_OPERATIONS.contains(&operation) {
                let place = rules.spelled("operations");
                place.push(Error::not_supported(place.path(), operation, MUTATING_OPERATIONS));
            }
        }
    }
    let mutations = spec.at("mutations");
    mutations.require_for("mutations must contain at least one item");
    mutations.items().for_each(|each| mutation(&each));
    let reinvocation = spec.at("reinvocationPolicy");
    if reinvocation.require() {
        reinvocation.one_of(&["IfNeeded", "Never"]);
    }
}

fn mutation(mutation: &Field<'_, '_>) {
    let kind = mutation.at("patchType");
    let (apply, patch) = (mutation.at("applyConfiguration"), mutation.at("jsonPatch"));
    let (own, other) = match kind.text() {
        "" => return kind.required(""),
        "ApplyConfiguration" => (apply, patch),
        "JSONPatch" => (patch, apply),
        _ => return kind.not_supported(&["ApplyConfiguration", "JSONPatch"]),
    };
    if !own.exists() {
        own.required(format!("must be specified when patchType is {}", kind.text()));
    } else if own.at("expression").text().trim().is_empty() {
        own.at("expression").required("");
    }
    if other.exists() {
        let shown = if kind.text() == "JSONPatch" { "{applyConfiguration}" } else { "{jsonPatch}" };
        other.invalid_as(shown, format!("must not be specified when patchType is {}", kind.text()));
    }
}

impl Kind for ValidatingAdmissionPolicyBinding {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = BINDING_COLUMNS;

    fn validate(binding: &Field<'_, '_>) {
        validating_binding(binding);
        reserved::name(binding);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, _: Part<'_>) {
        validating_binding(new);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        reserved::warnings(new, old)
    }
}

fn validating_binding(binding: &Field<'_, '_>) {
    let spec = binding.at("spec");
    bound(&spec, &spec.at("policyName").declared());
    let actions = spec.at("validationActions");
    for action in actions.items() {
        action.one_of(&["Audit", "Deny", "Warn"]);
    }
    actions.unique();
    let has = |word: &str| actions.texts().any(|action| action == word);
    if has("Deny") && has("Warn") {
        actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
    actions.declared().require();
}

impl Kind for MutatingAdmissionPolicyBinding {
    const NAMED_ANEW: Anew = Anew::Last;
    const METADATA: Metadata = Metadata::AnyFinalizer;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = BINDING_COLUMNS;

    fn validate(binding: &Field<'_, '_>) {
        mutating_binding(binding);
        reserved::name(binding);
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, _: Part<'_>) {
        mutating_binding(new);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        reserved::warnings(new, old)
    }
}

fn mutating_binding(binding: &Field<'_, '_>) {
    let spec = binding.at("spec");
    bound(&spec, &spec.at("policyName"));
}

/// `policy` is the name of the policy that is bound, declared or not.
fn bound(spec: &Field<'_, '_>, policy: &Field<'_, '_>) {
    if policy.require() {
        spec.at("policyName").faults(names::name_is_dns_subdomain(policy.text(), false));
    }
    if spec.at("paramRef").exists() {
        param_ref(&spec.at("paramRef"));
    }
    if spec.at("matchResources").exists() {
        match_resources(&spec.at("matchResources"));
    }
}

fn param_ref(reference: &Field<'_, '_>) {
    let (name, selector, action) =
        (reference.at("name"), reference.at("selector"), reference.at("parameterNotFoundAction"));
    name.named_if_given(names::path_segment_name);
    selector.label_selector();
    if !name.is_empty() && selector.exists() {
        for field in [&name, &selector] {
            field.forbidden("name and selector are mutually exclusive");
        }
    }
    if name.is_empty() && !selector.exists() {
        reference.required("one of name or selector must be specified");
    }
    if action.require() {
        action.one_of(&["Deny", "Allow"]);
    }
}
