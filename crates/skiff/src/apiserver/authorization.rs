//! Upstream's flags that say who decides what somebody may do.
use anyhow::{Context, bail, ensure};
use apiserver::authz::Authorizer;
use apiserver::authz::conditions::Conditions;
use apiserver::authz::webhook::AuthorizationWebhook;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Authorization")]
pub struct Flags {
    /// Who is asked, in this order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny.
    #[arg(long, value_delimiter = ',', default_value = "Node,RBAC")]
    authorization_mode: Vec<String>,
    /// A file with an AuthorizationConfiguration, in the place of the modes.
    #[arg(long, conflicts_with_all = ["authorization_mode", "authorization_webhook_config_file"])]
    authorization_config: Option<PathBuf>,
    /// A kubeconfig of the service that the mode Webhook asks.
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// The version of the SubjectAccessReview that it is sent.
    #[arg(long, default_value = "v1beta1", value_parser = ["v1", "v1beta1"])]
    authorization_webhook_version: String,
    /// How long its consent holds.
    #[arg(long, default_value = "5m0s", value_parser = super::duration)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long its refusals hold.
    #[arg(long, default_value = "30s", value_parser = super::duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl Flags {
    pub fn read(&self) -> anyhow::Result<Vec<Authorizer>> {
        if let Some(file) = &self.authorization_config {
            return configured(file).with_context(|| file.display().to_string());
        }
        let mut modes: Vec<&String> = Vec::new();
        for mode in &self.authorization_mode {
            ensure!(
                !modes.contains(&mode),
                "authorization-mode {mode:?} has mode specified more than once"
            );
            modes.push(mode);
        }
        let hook = &self.authorization_webhook_config_file;
        ensure!(
            hook.is_none() || modes.iter().any(|mode| *mode == "Webhook"),
            "cannot specify --authorization-webhook-config-file without mode Webhook"
        );
        modes.iter().map(|mode| self.authorizer(mode)).collect()
    }

    fn authorizer(&self, mode: &str) -> anyhow::Result<Authorizer> {
        if mode != "Webhook" {
            return plain(mode);
        }
        let file = self.authorization_webhook_config_file.as_deref();
        let file =
            file.context("authorization-mode Webhook's authorization config file not passed")?;
        let ttls = (
            self.authorization_webhook_cache_authorized_ttl,
            self.authorization_webhook_cache_unauthorized_ttl,
        );
        let version = &self.authorization_webhook_version;
        Ok(Authorizer::Webhook(Box::new(AuthorizationWebhook::read(file, version, ttls)?)))
    }
}

fn plain(mode: &str) -> anyhow::Result<Authorizer> {
    Ok(match mode {
        "Node" => Authorizer::Node,
        "RBAC" => Authorizer::Rbac,
        "AlwaysAllow" => Authorizer::AlwaysAllow,
        "AlwaysDeny" => Authorizer::AlwaysDeny,
        other => bail!("authorization-mode {other:?} is not a valid mode"),
    })
}

/// `AuthorizationConfiguration`, the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    authorizers: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    webhook: Option<Hook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hook {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    #[serde(rename = "timeout")]
    _timeout: Option<String>,
    subject_access_review_version: Option<String>,
    #[serde(rename = "matchConditionSubjectAccessReviewVersion")]
    match_condition_version: Option<String>,
    failure_policy: Option<String>,
    connection_info: Connection,
    #[serde(default)]
    match_conditions: Vec<MatchCondition>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchCondition {
    #[serde(default)]
    expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connection {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<PathBuf>,
}

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// What an `AuthorizationConfiguration` says.
fn configured(file: &Path) -> anyhow::Result<Vec<Authorizer>> {
    let entries = entries(&std::fs::read(file)?).map_err(|error| anyhow::anyhow!(error))?;
    entries.into_iter().map(structured).collect()
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let (group, kind) = ("apiserver.config.k8s.io", "AuthorizationConfiguration");
    let document: Document = apiserver::configuration::read(bytes, group, &VERSIONS, kind)?;
    let authorizers = document.authorizers;
    if authorizers.is_empty() {
        return Err("authorizers: at least one authorization mode must be defined".into());
    }
    for (i, entry) in authorizers.iter().enumerate() {
        if entry.name.is_empty() {
            return Err(format!("authorizers[{i}].name: Required value"));
        }
        if authorizers[..i].iter().any(|other| other.name == entry.name) {
            return Err(format!("authorizers[{i}].name: Duplicate value: {:?}", entry.name));
        }
        if entry.kind != "Webhook" && authorizers[..i].iter().any(|other| other.kind == entry.kind)
        {
            return Err(format!("authorizers[{i}].type: Duplicate value: {:?}", entry.kind));
        }
        let fault = match (&*entry.kind, &entry.webhook) {
            ("Webhook", None) => "Required value: required when type=Webhook",
            ("Webhook", Some(_)) | (_, None) => continue,
            (_, Some(_)) => "Invalid value: may only be specified when type=Webhook",
        };
        return Err(format!("authorizers[{i}].webhook: {fault}"));
    }
    Ok(authorizers)
}

fn structured(entry: Entry) -> anyhow::Result<Authorizer> {
    let Some(hook) = entry.webhook else { return plain(&entry.kind) };
    let conditions = conditions(&hook).map_err(|error| anyhow::anyhow!(error))?;
    let ttl = |told: Option<&str>, cached: Option<bool>, default: u64| match (told, cached) {
        (_, Some(false)) => Ok(Duration::ZERO),
        (None, _) => Ok(Duration::from_secs(default)),
        (Some(text), _) => super::duration(text).map_err(|e| anyhow::anyhow!("{text}: {e}")),
    };
    ensure!(
        hook.connection_info.kind == "KubeConfigFile",
        "only connections by KubeConfigFile are supported"
    );
    let file = hook.connection_info.kube_config_file.context("kubeConfigFile is missing")?;
    let version = hook.subject_access_review_version.as_deref().unwrap_or("v1");
    let ttls = (
        ttl(hook.authorized_ttl.as_deref(), hook.cache_authorized_requests, 300)?,
        ttl(hook.unauthorized_ttl.as_deref(), hook.cache_unauthorized_requests, 30)?,
    );
    let mut webhook = AuthorizationWebhook::read(&file, version, ttls)?;
    webhook.conditions = conditions;
    webhook.fails_closed = match hook.failure_policy.as_deref() {
        Some("Deny") => true,
        Some("NoOpinion") => false,
        _ => bail!("failurePolicy must be Deny or NoOpinion"),
    };
    Ok(Authorizer::Webhook(Box::new(webhook)))
}

fn conditions(hook: &Hook) -> Result<Conditions, String> {
    let place = "matchConditionSubjectAccessReviewVersion";
    match hook.match_condition_version.as_deref().unwrap_or_default() {
        "" if !hook.match_conditions.is_empty() => {
            return Err(format!(
                "{place}: Required value: required if match conditions are specified"
            ));
        }
        "" | "v1" => {}
        other => {
            return Err(format!("{place}: Unsupported value: {other:?}: supported values: \"v1\""));
        }
    }
    let expressions = hook.match_conditions.iter().map(|condition| condition.expression.clone());
    Conditions::compile(&expressions.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_compiled_when_the_file_is_read() {
        let check = |rest: &str| {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n\
                 authorizers: [{{type: Webhook, name: w, webhook: {{failurePolicy: Deny, \
                 connectionInfo: {{type: KubeConfigFile, kubeConfigFile: /x}}, {rest}}}}}]"
            );
            let entries = entries(text.as_bytes())?;
            let hook = entries[0].webhook.as_ref().expect("a webhook");
            conditions(hook).map(|conditions| conditions.is_empty())
        };
        let version = "matchConditionSubjectAccessReviewVersion: v1";
        let condition = "matchConditions: [{expression: 'request.user == \"jane\"'}]";
        assert_eq!(check("matchConditions: []"), Ok(true));
        assert_eq!(check(&format!("{version}, {condition}")), Ok(false));
        for (rest, fault) in [
            (condition.to_owned(), "required if match conditions are specified"),
            (format!("{condition}, matchConditionSubjectAccessReviewVersion: v2"), "Unsupported"),
            (format!("{version}, matchConditions: [{{}}]"), "[0].expression: Required value"),
            (format!("{version}, matchConditions: [{{expression: 'x'}}]"), "undeclared reference"),
            (format!("{version}, matchConditions: [{{expr: 'true'}}]"), "unknown field"),
        ] {
            let error = check(&rest).expect_err(&rest);
            assert!(error.contains(fault), "{rest}: {error}");
        }
    }

    #[test]
    fn a_word_that_is_misspelt_opens_nothing() {
        let check = |body: &str| {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n{body}"
            );
            entries(text.as_bytes()).map(|entries| entries.len())
        };
        assert_eq!(
            check("authorizers: [{type: Node, name: node}, {type: RBAC, name: rbac}]"),
            Ok(2)
        );
        let hook = "{type: Webhook, name: w, webhook: {failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, kubeConfigFile: /x}";
        assert_eq!(check(&format!("authorizers: [{hook}}}}}]")), Ok(1));
        for (body, fault) in [
            ("authorizers: []".to_owned(), "at least one"),
            ("authorizer: [{type: RBAC, name: r}]".to_owned(), "unknown field"),
            ("authorizers: [{type: RBAC, name: r, webhok: {}}]".to_owned(), "unknown field"),
            (format!("authorizers: [{hook}, matchCondition: []}}}}]"), "unknown field"),
            (format!("authorizers: [{hook}, failurePolicy: NoOpinion}}}}]"), "already set in map"),
            ("authorizers: [{type: RBAC}]".to_owned(), "missing field `name`"),
            ("authorizers: [{type: RBAC, name: a}, {type: RBAC, name: b}]".to_owned(), "Duplicate"),
            ("authorizers: [{type: Webhook, name: a}]".to_owned(), "required when type=Webhook"),
        ] {
            let error = check(&body).expect_err(&body);
            assert!(error.contains(fault), "{body}: {error}");
        }
    }
}
