//! Upstream's flags that say who decides what somebody may do.
use anyhow::{Context, bail, ensure};
use apiserver::authz::Authorizer;
use apiserver::authz::webhook::AuthorizationWebhook;
use serde_json::Value;
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

/// What an `AuthorizationConfiguration` says. Conditions wait for CEL.
fn configured(file: &Path) -> anyhow::Result<Vec<Authorizer>> {
    let bytes = std::fs::read(file)?;
    let config =
        api::codec::yaml::decode_untyped(&bytes).map_err(|error| anyhow::anyhow!("{error}"))?.value;
    ensure!(config["kind"] == "AuthorizationConfiguration", "it is no AuthorizationConfiguration");
    let authorizers = config["authorizers"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(
        !authorizers.is_empty(),
        "authorizers: at least one authorization mode must be defined"
    );
    authorizers.iter().map(structured).collect()
}

fn structured(entry: &Value) -> anyhow::Result<Authorizer> {
    let kind = entry["type"].as_str().unwrap_or_default();
    if kind != "Webhook" {
        return plain(kind);
    }
    let hook = &entry["webhook"];
    let conditions = hook["matchConditions"].as_array().map_or(0, Vec::len);
    ensure!(conditions == 0, "matchConditions are not supported yet");
    let ttl = |field: &str, default: u64| match hook[field].as_str() {
        None => Ok(Duration::from_secs(default)),
        Some(text) => super::duration(text).map_err(|e| anyhow::anyhow!("{field}: {e}")),
    };
    let connection = &hook["connectionInfo"];
    ensure!(
        connection["type"] == "KubeConfigFile",
        "only connections by KubeConfigFile are supported"
    );
    let file = connection["kubeConfigFile"].as_str().context("kubeConfigFile is missing")?;
    let version = hook["subjectAccessReviewVersion"].as_str().unwrap_or("v1");
    let ttls = (ttl("authorizedTTL", 300)?, ttl("unauthorizedTTL", 30)?);
    let mut webhook = AuthorizationWebhook::read(Path::new(file), version, ttls)?;
    webhook.fails_closed = match hook["failurePolicy"].as_str() {
        Some("Deny") => true,
        Some("NoOpinion") => false,
        _ => bail!("failurePolicy must be Deny or NoOpinion"),
    };
    Ok(Authorizer::Webhook(Box::new(webhook)))
}
