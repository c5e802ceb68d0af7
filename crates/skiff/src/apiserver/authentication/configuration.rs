//! `AuthenticationConfiguration`, the file. Expressions wait for CEL: what has one is refused, so that
//! nobody is let in whom it would have kept out.
use apiserver::authn::Anonymous;
use apiserver::authn::token::oidc::{Claim, Provider};
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
    user_validation_rules: Vec<Rule>,
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
    #[serde(rename = "message")]
    _message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    #[serde(rename = "expression")]
    _expression: String,
    #[serde(rename = "message")]
    _message: String,
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
    #[serde(rename = "key")]
    _key: String,
    #[serde(rename = "valueExpression")]
    _value_expression: String,
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
    const LATER: &str = "expressions are not supported yet";
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
    if !jwt.user_validation_rules.is_empty() {
        return Err(format!("userValidationRules: {LATER}"));
    }
    if !mappings.extra.is_empty() || !mappings.uid.expression.is_empty() {
        return Err(format!("claimMappings: {LATER}"));
    }
    let mut required = BTreeMap::new();
    for (i, rule) in jwt.claim_validation_rules.into_iter().enumerate() {
        if !rule.expression.is_empty() {
            return Err(format!("claimValidationRules[{i}].expression: {LATER}"));
        }
        if rule.claim.is_empty() {
            return Err(format!(
                "claimValidationRules[{i}]: Required value: claim or expression is required"
            ));
        }
        if required.insert(rule.claim.clone(), rule.required_value).is_some() {
            return Err(format!(
                "claimValidationRules[{i}].claim: Duplicate value: {:?}",
                rule.claim
            ));
        }
    }
    let claim = |mapping: Mapping, place: &str| {
        let Mapping { claim: name, prefix, expression } = mapping;
        if !expression.is_empty() {
            return Err(format!("claimMappings.{place}.expression: {LATER}"));
        }
        match prefix {
            _ if name.is_empty() => Ok(None),
            Some(prefix) => Ok(Some(Claim { name, prefix })),
            None => Err(format!(
                "claimMappings.{place}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            )),
        }
    };
    let username = claim(mappings.username, "username")?
        .ok_or("claimMappings.username: Required value: claim or expression is required")?;
    Ok(Provider {
        issuer: issuer.url,
        discovery: issuer.discovery_url,
        audiences: issuer.audiences,
        username,
        groups: claim(mappings.groups, "groups")?,
        uid: Some(mappings.uid.claim).filter(|claim| !claim.is_empty()),
        required,
        algorithms: algorithms.to_vec(),
        ca: issuer.certificate_authority.map(String::into_bytes),
    })
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
            (
                "audiences: [a]",
                &format!("{username}, userValidationRules: [{{expression: 'true'}}]"),
                "not supported yet",
            ),
            (
                "audiences: [a]",
                &format!("{username}, claimValidationRules: [{{expression: 'true'}}]"),
                "not supported yet",
            ),
        ] {
            let error = issuer(about, rest).expect_err(rest);
            assert!(error.contains(fault), "{about} {rest}: {error}");
        }
    }
}
