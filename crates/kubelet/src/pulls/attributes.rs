//! `tokenAttributes`: what a credential provider is shown of the pod's service account, so that it knows
//! for whom it is asked (`KubeletServiceAccountTokenForCredentialProviders`).
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The only version of the protocol in which tokens are shown.
const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TokenAttributes {
    pub service_account_token_audience: String,
    /// Whether the provider is asked for pods with an account only.
    pub require_service_account: Option<bool>,
    /// Annotations of the account that it is shown; without a required one it is not asked.
    pub required_service_account_annotation_keys: Vec<String>,
    pub optional_service_account_annotation_keys: Vec<String>,
    /// Whether what it says is good for the account, or for the very token that it was shown.
    pub cache_type: String,
}

/// An account, as a provider is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub uid: String,
    pub annotations: BTreeMap<String, String>,
}

/// A token, and until when it is good.
pub type Token = (String, Timestamp);

/// The service account of the pod that an image is for.
pub trait Accounts: Sync {
    /// Its namespace and name; a static pod's has none.
    fn name(&self) -> (&str, &str);
    fn pod_uid(&self) -> &str;
    fn account(&self) -> BoxFuture<'_, Result<Account, String>>;
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, String>>;
}

impl TokenAttributes {
    /// What is wrong with them, in the words of upstream's `validateCredentialProviderConfig`.
    pub fn check(&self, api_version: &str) -> Result<(), String> {
        const PATH: &str = "providers.tokenAttributes";
        let (required, optional) = (
            &self.required_service_account_annotation_keys,
            &self.optional_service_account_annotation_keys,
        );
        let mut faults = Vec::new();
        if self.service_account_token_audience.is_empty() {
            faults.push(format!("{PATH}.serviceAccountTokenAudience: Required value"));
        }
        if self.require_service_account.is_none() {
            faults.push(format!("{PATH}.requireServiceAccount: Required value"));
        }
        if api_version != VERSION {
            faults.push(format!(
                "{PATH}: Forbidden: tokenAttributes is only supported for {VERSION} API version"
            ));
        }
        if self.require_service_account == Some(false) && !required.is_empty() {
            faults.push(format!(
                "{PATH}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
            ));
        }
        for (field, keys) in [
            ("requiredServiceAccountAnnotationKeys", required),
            ("optionalServiceAccountAnnotationKeys", optional),
        ] {
            let mut seen = BTreeSet::new();
            for key in keys {
                for wrong in api::names::qualified_name(&key.to_lowercase()) {
                    faults.push(format!("{PATH}.{field}: Invalid value: {key:?}: {wrong}"));
                }
                if !seen.insert(key) {
                    faults.push(format!("{PATH}.{field}: Duplicate value: {key:?}"));
                }
            }
        }
        let both: BTreeSet<&String> =
            required.iter().filter(|key| optional.contains(key)).collect();
        if !both.is_empty() {
            let list = both.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(",");
            faults.push(format!(
                "{PATH}: Invalid value: [{list}]: annotation keys cannot be both required and optional"
            ));
        }
        match self.cache_type.as_str() {
            "" => faults.push(format!(
                "{PATH}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: {}",
                CACHE_TYPES.join(", ")
            )),
            known if CACHE_TYPES.contains(&known) => {}
            other => {
                let list = CACHE_TYPES.map(|one| format!("{one:?}")).join(", ");
                faults.push(format!(
                    "{PATH}.cacheType: Unsupported value: {other:?}: supported values: {list}"
                ));
            }
        }
        match faults.as_slice() {
            [] => Ok(()),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// Those of the account's annotations that the provider is shown; nothing if one is missing.
    pub fn shown(&self, account: &Account) -> Option<BTreeMap<String, String>> {
        let value =
            |key: &String| account.annotations.get(key).map(|value| (key.clone(), value.clone()));
        let required = self.required_service_account_annotation_keys.iter();
        let required: BTreeMap<String, String> = required.map(value).collect::<Option<_>>()?;
        let optional = self.optional_service_account_annotation_keys.iter().filter_map(value);
        Some(required.into_iter().chain(optional).collect())
    }

    pub fn is_by_token(&self) -> bool {
        self.cache_type == "Token"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> TokenAttributes {
        TokenAttributes {
            service_account_token_audience: "registry".to_owned(),
            require_service_account: Some(true),
            required_service_account_annotation_keys: vec!["a.io/role".to_owned()],
            optional_service_account_annotation_keys: vec!["a.io/more".to_owned()],
            cache_type: "Token".to_owned(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_upstreams_words() {
        let check = |change: fn(&mut TokenAttributes), expected: &str| {
            let mut attributes = good();
            change(&mut attributes);
            let said = attributes.check(VERSION).err().unwrap_or_default();
            assert_eq!(said, expected);
        };
        check(|_| {}, "");
        check(
            |one| one.service_account_token_audience.clear(),
            "providers.tokenAttributes.serviceAccountTokenAudience: Required value",
        );
        check(
            |one| one.require_service_account = Some(false),
            "providers.tokenAttributes.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        );
        check(
            |one| one.cache_type = "Pod".to_owned(),
            "providers.tokenAttributes.cacheType: Unsupported value: \"Pod\": supported values: \"ServiceAccount\", \"Token\"",
        );
        check(
            |one| one.optional_service_account_annotation_keys = vec!["a.io/role".to_owned()],
            "providers.tokenAttributes: Invalid value: [\"a.io/role\"]: annotation keys cannot be both required and optional",
        );
        check(
            |one| *one = TokenAttributes { cache_type: "Token".to_owned(), ..Default::default() },
            "[providers.tokenAttributes.serviceAccountTokenAudience: Required value, providers.tokenAttributes.requireServiceAccount: Required value]",
        );
        let old = good().check("credentialprovider.kubelet.k8s.io/v1beta1").unwrap_err();
        assert!(
            old.ends_with("only supported for credentialprovider.kubelet.k8s.io/v1 API version")
        );
        let mut odd = good();
        odd.required_service_account_annotation_keys = vec!["a b".to_owned()];
        assert!(odd.check(VERSION).unwrap_err().contains("Invalid value: \"a b\""));
    }

    #[test]
    fn only_annotations_that_are_named_are_shown() {
        let annotations = [("a.io/role", "r"), ("other", "x")];
        let annotations: BTreeMap<String, String> =
            annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let account = Account { uid: "u".to_owned(), annotations };
        let shown = good().shown(&account).unwrap();
        assert_eq!(
            shown.into_iter().collect::<Vec<_>>(),
            [("a.io/role".to_owned(), "r".to_owned())]
        );
        assert_eq!(good().shown(&Account { annotations: BTreeMap::new(), ..account }), None);
    }
}
