//! `AuthenticationConfiguration`, the file. Its expressions are compiled here: what has a fault is
//! refused, so that nobody is let in whom it would have kept out.
use apiserver::authn::Anonymous;
use apiserver::authn::token::claims::{About, Expression, Output, Rule};
use apiserver::authn::token::oidc::{ClaimOrExpression, Provider};
use serde::Deserialize;
use std::collections::BTreeMap;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    jwt: Vec<Jwt>,
    anonymous: Option<AnonymousAuth>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AnonymousAuth {
    enabled: bool,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Condition {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Jwt {
    issuer: Issuer,
    claim_validation_rules: Vec<ClaimRule>,
    claim_mappings: Mappings,
    user_validation_rules: Vec<UserRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Issuer {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: Option<String>,
    certificate_authority: Option<String>,
    audiences: Vec<String>,
    audience_match_policy: String,
    egress_selector_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ClaimRule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UserRule {
    expression: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mappings {
    username: Mapping,
    groups: Mapping,
    uid: Uid,
    extra: Vec<Extra>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mapping {
    claim: String,
    /// Empty is not the same as missing: whoever wants no prefix says so.
    prefix: Option<String>,
    expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Uid {
    claim: String,
    expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Extra {
    key: String,
    value_expression: String,
}

/// The issuers that are believed, and where those are let in who prove nothing if the file says that.
pub fn read(
    bytes: &[u8],
    algorithms: &[String],
) -> Result<(Vec<Provider>, Option<Anonymous>), String> {
    let document: Document =
        apiserver::configuration::read(bytes, GROUP, &VERSIONS, "AuthenticationConfiguration")?;
    let anonymous = document.anonymous.map(anonymous).transpose()?;
    let mut issuers: Vec<Provider> = Vec::new();
    for (i, jwt) in document.jwt.into_iter().enumerate() {
        let provider = provider(jwt, algorithms).map_err(|fault| format!("jwt[{i}].{fault}"))?;
        if issuers.iter().any(|other| other.issuer == provider.issuer) {
            return Err(format!("jwt[{i}].issuer.url: Duplicate value: {:?}", provider.issuer));
        }
        issuers.push(provider);
    }
    Ok((issuers, anonymous))
}

fn anonymous(told: AnonymousAuth) -> Result<Anonymous, String> {
    if let Some(i) = told.conditions.iter().position(|condition| condition.path.is_empty()) {
        return Err(format!("anonymous.conditions[{i}].path: Required value"));
    }
    let paths: Vec<String> = told.conditions.into_iter().map(|condition| condition.path).collect();
    match (told.enabled, paths.is_empty()) {
        (true, true) => Ok(Anonymous::Everywhere),
        (true, false) => Ok(Anonymous::At(paths)),
        (false, true) => Ok(Anonymous::Nowhere),
        (false, false) => Err(
            "anonymous.conditions: Invalid value: enabled should be set to true when conditions are defined"
                .into(),
        ),
    }
}

fn provider(jwt: Jwt, algorithms: &[String]) -> Result<Provider, String> {
    let (issuer, mappings) = (jwt.issuer, jwt.claim_mappings);
    if issuer.url.is_empty() {
        return Err("issuer.url: Required value: URL is required".into());
    }
    if issuer.audiences.iter().all(String::is_empty) {
        let text = "at least one jwt[*].issuer.audiences is required";
        return Err(format!("issuer.audiences: Required value: {text}"));
    }
    if issuer.audiences.len() > 1 && issuer.audience_match_policy != "MatchAny" {
        let text = "must be MatchAny for multiple audiences";
        return Err(format!(
            "issuer.audienceMatchPolicy: Invalid value: {:?}: {text}",
            issuer.audience_match_policy
        ));
    }
    if !issuer.egress_selector_type.is_empty() {
        return Err("issuer.egressSelectorType: is not supported yet".into());
    }
    let (required, claim_rules) = claim_rules(jwt.claim_validation_rules)?;
    let username = from(mappings.username, "username")?
        .ok_or("claimMappings.username: Required value: claim or expression is required")?;
    let extra = extra(mappings.extra)?;
    check_mail(&username, &extra, &claim_rules)?;
    Ok(Provider {
        issuer: issuer.url,
        discovery: issuer.discovery_url,
        audiences: issuer.audiences,
        groups: from(mappings.groups, "groups")?,
        uid: uid(mappings.uid)?,
        username,
        extra,
        required,
        claim_rules,
        user_rules: user_rules(jwt.user_validation_rules)?,
        algorithms: algorithms.to_vec(),
        ca: issuer.certificate_authority.map(String::into_bytes),
    })
}

fn compiled(text: &str, about: About, output: Output, place: &str) -> Result<Expression, String> {
    Expression::compile(text, about, output)
        .map_err(|error| format!("{place}: Invalid value: {text:?}: {error}"))
}

/// A claim with its prefix, or an expression; nothing if neither is given.
fn from(mapping: Mapping, name: &str) -> Result<Option<ClaimOrExpression>, String> {
    let place = format!("claimMappings.{name}");
    let Mapping { claim, prefix, expression } = mapping;
    match (claim.is_empty(), expression.is_empty(), prefix) {
        (true, true, _) => Ok(None),
        (false, false, _) => {
            Err(format!("{place}: Invalid value: \"\": claim and expression can't both be set"))
        }
        (true, false, Some(prefix)) => Err(format!(
            "{place}.prefix: Invalid value: {prefix:?}: may not be specified when expression is set"
        )),
        (true, false, None) => {
            let place = format!("{place}.expression");
            compiled(&expression, About::Claims, Output::Any, &place)
                .map(ClaimOrExpression::Expression)
                .map(Some)
        }
        (false, true, Some(prefix)) => Ok(Some(ClaimOrExpression::Claim { name: claim, prefix })),
        (false, true, None) => Err(format!(
            "{place}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
        )),
    }
}

fn uid(uid: Uid) -> Result<Option<ClaimOrExpression>, String> {
    match (uid.claim.is_empty(), uid.expression.is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(ClaimOrExpression::claim(&uid.claim, ""))),
        (true, false) => {
            let place = "claimMappings.uid.expression";
            let expression = compiled(&uid.expression, About::Claims, Output::Any, place)?;
            Ok(Some(ClaimOrExpression::Expression(expression)))
        }
        (false, false) => {
            Err("claimMappings.uid: Invalid value: \"\": claim and expression can't both be set"
                .into())
        }
    }
}

type Required = BTreeMap<String, String>;

fn claim_rules(rules: Vec<ClaimRule>) -> Result<(Required, Vec<Rule>), String> {
    let (mut required, mut compiled_rules) = (BTreeMap::new(), Vec::<Rule>::new());
    for (i, rule) in rules.into_iter().enumerate() {
        let place = format!("claimValidationRules[{i}]");
        let ClaimRule { claim, required_value, expression, message } = rule;
        let fault = match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                format!(": Invalid value: {claim:?}: claim and expression can't both be set")
            }
            (true, true) => ": Required value: claim or expression is required".to_owned(),
            (false, true) if !message.is_empty() => format!(
                ".message: Invalid value: {message:?}: may not be specified when claim is set"
            ),
            (false, true) => match required.insert(claim.clone(), required_value) {
                None => continue,
                Some(_) => format!(".claim: Duplicate value: {claim:?}"),
            },
            (true, false) if !required_value.is_empty() => format!(
                ".requiredValue: Invalid value: {required_value:?}: may not be specified when expression is set"
            ),
            (true, false) => {
                add_rule(&mut compiled_rules, &expression, message, About::Claims, &place)?;
                continue;
            }
        };
        return Err(format!("{place}{fault}"));
    }
    Ok((required, compiled_rules))
}

fn user_rules(rules: Vec<UserRule>) -> Result<Vec<Rule>, String> {
    let mut compiled_rules = Vec::new();
    for (i, rule) in rules.into_iter().enumerate() {
        let place = format!("userValidationRules[{i}]");
        if rule.expression.is_empty() {
            return Err(format!("{place}.expression: Required value"));
        }
        add_rule(&mut compiled_rules, &rule.expression, rule.message, About::User, &place)?;
    }
    Ok(compiled_rules)
}

fn add_rule(
    rules: &mut Vec<Rule>,
    text: &str,
    message: String,
    about: About,
    place: &str,
) -> Result<(), String> {
    let place = format!("{place}.expression");
    if rules.iter().any(|rule| rule.expression.text == text) {
        return Err(format!("{place}: Duplicate value: {text:?}"));
    }
    let expression = compiled(text, about, Output::Bool, &place)?;
    rules.push(Rule { expression, message });
    Ok(())
}

/// Keys are lower-case paths in a domain that is not Kubernetes' own.
fn extra(all: Vec<Extra>) -> Result<Vec<(String, Expression)>, String> {
    let mut known: Vec<(String, Expression)> = Vec::new();
    for (i, Extra { key, value_expression }) in all.into_iter().enumerate() {
        let place = format!("claimMappings.extra[{i}]");
        let invalid = |fault: &str| Err(format!("{place}.key: Invalid value: {key:?}: {fault}"));
        if key.is_empty() {
            return Err(format!("{place}.key: Required value"));
        }
        let Some((domain, path)) = key.split_once('/').filter(|(domain, path)| {
            api::names::dns1123_subdomain(domain).is_empty() && !path.is_empty()
        }) else {
            return invalid("must be a domain-prefixed path (such as \"acme.io/foo\")");
        };
        if key != key.to_lowercase() {
            return invalid("must be lowercase");
        }
        let reserved = |own: &str| domain == own || domain.ends_with(&format!(".{own}"));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            return invalid(
                "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
            );
        }
        if !path
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
        {
            return invalid("Invalid path");
        }
        if known.iter().any(|(other, _)| *other == key) {
            return Err(format!("{place}.key: Duplicate value: {key:?}"));
        }
        let place = format!("{place}.valueExpression");
        if value_expression.is_empty() {
            return Err(format!("{place}: Required value"));
        }
        let expression = compiled(&value_expression, About::Claims, Output::Any, &place)?;
        known.push((key, expression));
    }
    Ok(known)
}

/// A mail address that nobody has verified is anybody's: whoever makes names of it looks at that, too.
fn check_mail(
    username: &ClaimOrExpression,
    extra: &[(String, Expression)],
    rules: &[Rule],
) -> Result<(), String> {
    let ClaimOrExpression::Expression(name) = username else { return Ok(()) };
    let mut others = extra.iter().map(|(_, expression)| expression);
    let is_verified = |expression: &Expression| expression.reads("email_verified");
    let verified = is_verified(name)
        || others.any(is_verified)
        || rules.iter().any(|rule| is_verified(&rule.expression));
    if !name.reads("email") || verified {
        return Ok(());
    }
    Err(format!(
        "claimMappings.username.expression: Invalid value: {:?}: claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
        name.text
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str) -> Result<String, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{body}"
        );
        let (issuers, anonymous) = read(text.as_bytes(), &[])?;
        let issuers: Vec<String> = issuers.into_iter().map(|issuer| issuer.issuer).collect();
        Ok(format!("{} {anonymous:?}", issuers.join(",")))
    }

    #[test]
    fn a_word_that_is_misspelt_lets_nobody_in() {
        assert_eq!(check("").as_deref(), Ok(" None"));
        let everywhere = check("anonymous: {enabled: true}");
        assert_eq!(everywhere.as_deref(), Ok(" Some(Everywhere)"));
        let somewhere = check("anonymous: {enabled: true, conditions: [{path: /livez}]}");
        assert_eq!(somewhere.as_deref(), Ok(" Some(At([\"/livez\"]))"));
        for (body, fault) in [
            (
                "anonymous: {enabled: true, condition: [{path: /livez}]}",
                "unknown field \"condition\"",
            ),
            (
                "anonymous: {enabled: true, conditions: [{paths: [/livez]}]}",
                "unknown field \"paths\"",
            ),
            ("anonymous: {enabled: true, conditions: [{}]}", "conditions[0].path: Required value"),
            (
                "anonymous: {enabled: false, conditions: [{path: /livez}]}",
                "enabled should be set to true",
            ),
            ("anonymous: {enabled: false, enabled: true}", "already set in map"),
            ("anonymus: {enabled: false}", "unknown field \"anonymus\""),
            ("anonymous: {enabled: 'yes'}", "invalid type"),
        ] {
            let error = check(body).expect_err(body);
            assert!(error.contains(fault), "{body}: {error}");
        }
    }

    #[test]
    fn an_issuer_says_whom_its_tokens_are_for_and_what_they_are_called() {
        let issuer = |issuer: &str, rest: &str| {
            check(&format!("jwt: [{{issuer: {{url: https://id, {issuer}}}, {rest}}}]"))
        };
        let username = "claimMappings: {username: {claim: sub, prefix: ''}}";
        assert_eq!(issuer("audiences: [a]", username).as_deref(), Ok("https://id None"));
        for (about, rest, fault) in [
            ("audiences: []", username, "issuer.audiences: Required value"),
            ("audiences: [a, b]", username, "must be MatchAny"),
            ("audience: [a]", username, "unknown field \"audience\""),
            ("audiences: [a]", "claimMappings: {username: {claim: sub}}", "prefix is required"),
            ("audiences: [a]", "claimMappings: {}", "username: Required value"),
            ("audiences: [a]", "claimValidationRule: []", "unknown field"),
        ] {
            let error = issuer(about, rest).expect_err(rest);
            assert!(error.contains(fault), "{about} {rest}: {error}");
        }
    }

    #[test]
    fn expressions_are_compiled_when_the_file_is_read() {
        let jwt = |rest: &str| {
            check(&format!("jwt: [{{issuer: {{url: https://id, audiences: [a]}}, {rest}}}]"))
        };
        let good = "claimMappings: {username: {expression: 'claims.sub'}, \
            groups: {expression: 'claims.roles.split(\",\")'}, uid: {expression: 'claims.oid'}, \
            extra: [{key: example.org/team, valueExpression: 'claims.team'}]}, \
            claimValidationRules: [{expression: 'claims.hd == \"x\"', message: denied}], \
            userValidationRules: [{expression: 'user.username != \"root\"'}]";
        assert_eq!(jwt(good).as_deref(), Ok("https://id None"));
        let name = |rest: &str| format!("claimMappings: {{username: {{{rest}}}}}");
        let more =
            |rest: &str| format!("claimMappings: {{username: {{claim: sub, prefix: ''}}, {rest}}}");
        let rules = |rest: &str| format!("{}, {rest}", name("claim: sub, prefix: ''"));
        for (rest, fault) in [
            (name("expression: claims.sub, claim: sub"), "can't both be set"),
            (name("expression: claims.sub, prefix: x"), "may not be specified when expression"),
            (name("expression: nobody.sub"), "username.expression: Invalid value: \"nobody.sub\""),
            (name("expression: claims.email"), "claims.email_verified must be used"),
            (more("uid: {claim: a, expression: claims.b}"), "uid: Invalid value"),
            (more("extra: [{key: team, valueExpression: claims.t}]"), "domain-prefixed path"),
            (more("extra: [{key: a.k8s.io/t, valueExpression: claims.t}]"), "reserved"),
            (more("extra: [{key: a.io/T, valueExpression: claims.t}]"), "lowercase"),
            (more("extra: [{key: a.io/t}]"), "valueExpression: Required value"),
            (rules("claimValidationRules: [{}]"), "claim or expression is required"),
            (rules("claimValidationRules: [{claim: a, message: b}]"), "when claim is set"),
            (rules("claimValidationRules: [{expression: claims.a}]"), "must evaluate to bool"),
            (rules("claimValidationRules: [{expression: 'true', requiredValue: a}]"), "when expr"),
            (rules("userValidationRules: [{expression: 'claims.a'}]"), "undeclared reference"),
            (rules("userValidationRules: [{}]"), "userValidationRules[0].expression: Required"),
            (
                rules("userValidationRules: [{expression: 'true'}, {expression: 'true'}]"),
                "userValidationRules[1].expression: Duplicate value",
            ),
        ] {
            let error = jwt(&rest).expect_err(&rest);
            assert!(error.contains(fault), "{rest}: {error}");
        }
        let verified = name("expression: 'claims.email_verified ? claims.email : \"nobody\"'");
        assert!(jwt(&verified).is_ok());
    }
}
