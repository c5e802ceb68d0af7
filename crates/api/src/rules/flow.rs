//! FlowSchema and PriorityLevelConfiguration: whose requests wait for whose.
use super::table::{AGE, Column, NAME, integer, text, text_or, with};
use super::{Anew, Field, Kind, Part, Strategy};
use crate::field::Error;
use crate::names;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde_json::Value;

const STRATEGY: Strategy = Strategy::USUAL.creates_on_update().status_only();
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const MAX_QUEUES: i64 = 10_000_000;
/// What a hash of a flow can tell apart.
const HASH_BITS: u32 = 60;

impl Kind for FlowSchema {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = STRATEGY;
    const COLUMNS: &[Column] = &[
        NAME,
        text("PriorityLevel", "spec.priorityLevelConfiguration.name"),
        integer("MatchingPrecedence", "spec.matchingPrecedence").of("string"),
        text_or("DistinguisherMethod", "spec.distinguisherMethod.type", "<none>"),
        AGE,
        with("MissingPL", |schema, _| {
            let conditions = schema.at("status.conditions");
            let found =
                conditions.items().find(|condition| condition.at("type").text() == "Dangling");
            found.map_or("?", |condition| condition.at("status").text()).into()
        }),
    ];

    fn validate(schema: &Field<'_, '_>) {
        let spec = schema.at("spec");
        let precedence = spec.at("matchingPrecedence");
        match precedence.int() {
            ..=0 => precedence.invalid("must be a positive value"),
            1 if schema.at("metadata.name").text() != "exempt" => {
                precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1");
            }
            10_001.. => precedence.invalid("must not be greater than 10000"),
            _ => {}
        }
        let method = spec.at("distinguisherMethod");
        if method.exists() && !matches!(method.at("type").text(), "ByNamespace" | "ByUser") {
            let place = method.at("type");
            let shown = method.internal(&[("Type", "type", "\"\"")]);
            place.push(Error::not_supported(place.path(), shown, ["ByNamespace", "ByUser"]));
        }
        let level = spec.at("priorityLevelConfiguration.name");
        if level.require_for("must reference a priority level") {
            level.faults(names::name_is_dns_subdomain(level.text(), false));
        }
        spec.at("rules").items().for_each(|each| rule(&each));
        conditions(&schema.at("status.conditions"));
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => conditions(&new.at("status.conditions")),
        }
    }
}

fn conditions(conditions: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for condition in conditions.items() {
        let kind = condition.at("type");
        if seen.contains(&kind.text()) {
            kind.duplicate();
        }
        seen.push(kind.text());
        kind.require();
    }
}

fn rule(rule: &Field<'_, '_>) {
    let subjects = rule.at("subjects");
    subjects.require_for("subjects must contain at least one value");
    subjects.items().for_each(|each| subject(&each));
    let (resources, urls) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for rule in resources.items() {
        verbs(&rule.at("verbs"));
        wildcard(
            &rule.at("apiGroups"),
            "resource rules must supply at least one api group",
            "api groups",
        );
        wildcard(
            &rule.at("resources"),
            "resource rules must supply at least one resource",
            "resources",
        );
        let namespaces = rule.at("namespaces");
        if namespaces.is_empty() && !rule.at("clusterScope").flag() {
            namespaces.required(
                "resource rules that are not cluster scoped must supply at least one namespace",
            );
        } else if !alone(&namespaces, "namespaces") {
            for namespace in namespaces.items() {
                for fault in names::name_is_dns_label(namespace.text(), false) {
                    namespace.invalid(format!(
                        "each member of this list must be '*' or a DNS-1123 label; {fault}"
                    ));
                }
            }
        }
    }
    for rule in urls.items() {
        verbs(&rule.at("verbs"));
        let urls = rule.at("nonResourceURLs");
        if urls.require_for("nonResourceURLs must contain at least one value")
            && !alone(&urls, "non-resource URLs")
        {
            urls.items().for_each(|each| url(&each));
        }
    }
}

/// Whether everything is meant; then nothing else may be named.
fn alone(list: &Field<'_, '_>, what: &str) -> bool {
    let all = list.texts().any(|item| item == "*");
    if all && list.len() > 1 {
        list.invalid(format!("if '*' is present, must not specify other {what}"));
    }
    all
}

fn wildcard(list: &Field<'_, '_>, absent: &'static str, what: &str) {
    if list.require_for(absent) {
        alone(list, what);
    }
}

fn verbs(verbs: &Field<'_, '_>) {
    if verbs.require_for("verbs must contain at least one value")
        && !alone(verbs, "verbs")
        && verbs.texts().any(|verb| !VERBS.contains(&verb))
    {
        verbs.not_supported(VERBS);
    }
}

fn url(url: &Field<'_, '_>) {
    let text = url.text();
    let stars = text.matches('*').count();
    let wrong = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ if stars > 1 || stars == 1 && !text.ends_with("/*") => {
            "wildcard can only do suffix matching"
        }
        _ => return,
    };
    url.invalid(wrong);
}

fn subject(subject: &Field<'_, '_>) {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.at("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        return kind.not_supported(&["Group", "ServiceAccount", "User"]);
    };
    let given = subject.at(own);
    if !given.exists() {
        given.required(format!("{own} is required when subject kind is '{}'", kind.text()));
    } else {
        let name = given.at("name");
        if name.require() && *own == "serviceAccount" && name.text() != "*" {
            name.faults(names::name_is_dns_subdomain(name.text(), false));
        }
        if *own == "serviceAccount" {
            let namespace = given.at("namespace");
            if namespace.require_for("must specify namespace for service account") {
                namespace.faults(names::name_is_dns_label(namespace.text(), false));
            }
        }
    }
    for (name, field) in KINDS.iter().filter(|(_, field)| field != own) {
        if subject.at(field).exists() {
            subject
                .at(field)
                .forbidden(format!("{field} is forbidden when subject kind is not '{name}'"));
        }
    }
}

impl Kind for PriorityLevelConfiguration {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = STRATEGY;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Type", "spec.type"),
        with("NominalConcurrencyShares", |level, _| {
            number(level, "/limited/nominalConcurrencyShares")
        }),
        with("Queues", |level, _| number(level, "/limited/limitResponse/queuing/queues")),
        with("HandSize", |level, _| number(level, "/limited/limitResponse/queuing/handSize")),
        with("QueueLengthLimit", |level, _| {
            number(level, "/limited/limitResponse/queuing/queueLengthLimit")
        }),
        AGE,
    ];

    fn validate(level: &Field<'_, '_>) {
        let spec = level.at("spec");
        let (kind, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
        if (level.at("metadata.name").text() == "exempt") != (kind.text() == "Exempt") {
            kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'");
        }
        match kind.text() {
            "Exempt" if exempt.exists() => {
                shares(&exempt);
                lendable(&exempt);
            }
            "Limited" if limited.exists() => limited_level(&limited),
            "Limited" => limited.declared().required(""),
            "Exempt" => {}
            "" => {}
            _ => kind.not_supported(&["Exempt", "Limited"]),
        }
        for (field, own) in [(&limited, "Limited"), (&exempt, "Exempt")] {
            if field.exists() && kind.text() != own {
                field.declared().forbidden("");
            }
        }
        kind.declared().require();
        if limited.exists() {
            declared_response(&limited.at("limitResponse"));
        }
        conditions(&level.at("status.conditions"));
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => conditions(&new.at("status.conditions")),
        }
    }
}

fn number(level: &Field<'_, '_>, path: &str) -> Value {
    level.value()["spec"].pointer(path).cloned().unwrap_or_else(|| "<none>".into())
}

fn shares(level: &Field<'_, '_>) {
    let shares = level.at("nominalConcurrencyShares");
    if shares.int() < 0 {
        shares.invalid("must be a non-negative integer");
    }
}

fn lendable(level: &Field<'_, '_>) {
    let lendable = level.at("lendablePercent");
    if !(0..=100).contains(&lendable.int()) {
        lendable.invalid("must be between 0 and 100, inclusive");
    }
}

fn limited_level(limited: &Field<'_, '_>) {
    shares(limited);
    limit_response(&limited.at("limitResponse"));
    lendable(limited);
    let borrowing = limited.at("borrowingLimitPercent");
    if borrowing.int() < 0 {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}

fn limit_response(response: &Field<'_, '_>) {
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.text() {
        "Queue" if queuing.exists() => queues(&queuing),
        "Queue" | "Reject" | "" => {}
        _ => kind.not_supported(&["Queue", "Reject"]),
    }
}

/// What is declared about it holds whatever the level is.
fn declared_response(response: &Field<'_, '_>) {
    let (kind, queuing) = (response.at("type").declared(), response.at("queuing").declared());
    match (kind.text() == "Queue", queuing.exists()) {
        (true, false) => queuing.required(""),
        (false, true) => queuing.forbidden(""),
        _ => {}
    }
    kind.require();
}

fn queues(queuing: &Field<'_, '_>) {
    let (queues, hand, length) =
        (queuing.at("queues"), queuing.at("handSize"), queuing.at("queueLengthLimit"));
    if length.int() <= 0 {
        length.invalid("must be positive");
    }
    if queues.int() <= 0 {
        queues.invalid("must be positive");
    } else if queues.int() > MAX_QUEUES {
        queues.invalid(format!("must not be greater than {MAX_QUEUES}"));
    }
    let (deck, size) = (queues.int(), hand.int());
    if size <= 0 {
        hand.invalid("must be positive");
    } else if size > deck {
        hand.invalid(format!("should not be greater than queues ({deck})"));
    } else if entropy_bits(deck, size) > HASH_BITS {
        hand.invalid(format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than {HASH_BITS}"
        ));
    }
}

/// How many bits it takes to deal a hand from a deck.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    (f64::log2(deck as f64) * hand as f64).ceil() as u32
}
