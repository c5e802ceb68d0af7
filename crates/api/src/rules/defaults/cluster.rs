//! Defaults of what runs a cluster: networks, access, admission, priorities, extensions.
use super::{Fill, Rows, empty};
use serde_json::{Map, Value, json};

pub const ROWS: Rows = &[
    ("networking/v1.NetworkPolicyPort", |port| port.fill("protocol", "TCP")),
    ("networking/v1.NetworkPolicy", network_policy),
    ("networking/v1.IngressClass", |class| {
        if let Some(parameters) = class.inside("spec").given("parameters") {
            parameters.fill("scope", "Cluster");
        }
    }),
    ("discovery/v1.EndpointPort", |port| {
        port.fill("name", "");
        port.fill("protocol", "TCP");
    }),
    ("rbac/v1.ClusterRoleBinding", role_ref),
    ("rbac/v1.RoleBinding", role_ref),
    ("rbac/v1.Subject", |subject| {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.fill("apiGroup", RBAC);
        }
    }),
    ("scheduling/v1.PriorityClass", |class| class.fill("preemptionPolicy", "PreemptLowerPriority")),
    ("flowcontrol/v1.FlowSchemaSpec", |spec| spec.fill_zero("matchingPrecedence", 1000)),
    ("flowcontrol/v1.ExemptPriorityLevelConfiguration", |exempt| {
        exempt.fill("nominalConcurrencyShares", 0);
        exempt.fill("lendablePercent", 0);
    }),
    ("flowcontrol/v1.LimitedPriorityLevelConfiguration", |limited| {
        limited.fill("nominalConcurrencyShares", 30);
        limited.fill("lendablePercent", 0);
    }),
    ("flowcontrol/v1.QueuingConfiguration", |queuing| {
        for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            queuing.fill_zero(field, value);
        }
    }),
    ("admissionregistration/v1.ValidatingWebhook", webhook),
    ("admissionregistration/v1.MutatingWebhook", |hook| {
        webhook(hook);
        hook.fill("reinvocationPolicy", "Never");
    }),
    ("admissionregistration/v1.Rule", |rule| rule.fill("scope", "*")),
    ("admissionregistration/v1.RuleWithOperations", |rule| rule.fill("scope", "*")),
    ("admissionregistration/v1.NamedRuleWithOperations", |rule| rule.fill("scope", "*")),
    ("admissionregistration/v1.ServiceReference", https),
    ("admissionregistration/v1.ValidatingAdmissionPolicySpec", fail),
    ("admissionregistration/v1.MutatingAdmissionPolicySpec", fail),
    ("admissionregistration/v1.MatchResources", selectors),
    ("apiregistration/v1.ServiceReference", https),
    ("apiextensions/v1.ServiceReference", https),
    ("apiextensions/v1.CustomResourceDefinition", custom_resource_definition),
    ("apiextensions/v1.CustomResourceConversion", |conversion| {
        // Upstream keeps what is inside, which may be nothing.
        let says = |webhook: &mut Map<String, Value>| {
            webhook.contains_key("clientConfig") || !webhook.lacks("conversionReviewVersions")
        };
        if conversion.given("webhook").is_some_and(|webhook| !says(webhook)) {
            conversion.remove("webhook");
        }
    }),
    ("authentication/v1.TokenRequestSpec", |spec| spec.fill("expirationSeconds", 3600)),
];

const RBAC: &str = "rbac.authorization.k8s.io";

fn network_policy(policy: &mut Map<String, Value>) {
    let spec = policy.inside("spec");
    let egress = spec.get("egress").is_some_and(|egress| egress.as_array() != Some(&vec![]));
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    spec.fill_zero("policyTypes", types);
}

fn role_ref(binding: &mut Map<String, Value>) {
    binding.inside("roleRef").fill_zero("apiGroup", RBAC);
}

fn https(service: &mut Map<String, Value>) {
    service.fill("port", 443);
}

fn fail(spec: &mut Map<String, Value>) {
    spec.fill("failurePolicy", "Fail");
}

fn selectors(matched: &mut Map<String, Value>) {
    matched.fill("matchPolicy", "Equivalent");
    matched.fill("namespaceSelector", empty());
    matched.fill("objectSelector", empty());
}

fn webhook(hook: &mut Map<String, Value>) {
    fail(hook);
    selectors(hook);
    hook.fill("timeoutSeconds", 10);
}

fn custom_resource_definition(definition: &mut Map<String, Value>) {
    let spec = definition.inside("spec");
    let names = spec.inside("names");
    let kind = names.text("kind").to_owned();
    if !kind.is_empty() {
        names.fill("singular", kind.to_lowercase());
        names.fill("listKind", format!("{kind}List"));
    }
    spec.fill("conversion", json!({ "strategy": "None" }));
    let stored = spec.each("versions").find(|version| version.get("storage") == Some(&true.into()));
    if let Some(stored) = stored.and_then(|version| version.get("name").cloned()) {
        let status = definition.inside("status");
        if status
            .get("storedVersions")
            .is_none_or(|versions| versions.as_array().is_none_or(Vec::is_empty))
        {
            status.insert("storedVersions".into(), json!([stored]));
        }
    }
}
