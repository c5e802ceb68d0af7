//! Upstream's flags that say who is believed about who somebody is.
mod configuration;

use anyhow::Context;
use apiserver::authn::token::file::TokenFile;
use apiserver::authn::token::oidc::{ClaimOrExpression, Oidc, Provider};
use apiserver::authn::token::webhook::TokenWebhook;
use apiserver::authn::{Anonymous, Authentication, FrontProxy};
use apiserver::tls::Trust;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication")]
pub struct Flags {
    /// Let in those who prove nothing, as system:anonymous.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: bool,
    /// A file with an AuthenticationConfiguration.
    #[arg(long, conflicts_with = "oidc_issuer_url")]
    authentication_config: Option<PathBuf>,
    /// Let secrets of kube-system of the type bootstrap.kubernetes.io/token be used as tokens.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_bootstrap_token_auth: bool,
    /// A file of tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    token_auth_file: Option<PathBuf>,

    /// A kubeconfig of a service that is asked about tokens.
    #[arg(long)]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// The version of the TokenReview that it is sent.
    #[arg(long, default_value = "v1beta1", value_parser = ["v1", "v1beta1"])]
    authentication_token_webhook_version: String,
    /// How long its answers hold.
    #[arg(long, default_value = "2m0s", value_parser = super::duration)]
    authentication_token_webhook_cache_ttl: Duration,

    /// The CA of proxies whose headers are believed.
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of those proxies; any that the CA has signed, if there are none.
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user")]
    requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-uid")]
    requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group")]
    requestheader_group_headers: Vec<String>,
    /// What headers with something more about the user begin with.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-")]
    requestheader_extra_headers_prefix: Vec<String>,

    /// An OpenID provider whose tokens are believed.
    #[arg(long, requires = "oidc_client_id")]
    oidc_issuer_url: Option<String>,
    /// Whom its tokens must be for.
    #[arg(long, requires = "oidc_issuer_url")]
    oidc_client_id: Option<String>,
    /// The claim that is the user's name.
    #[arg(long, default_value = "sub")]
    oidc_username_claim: String,
    /// What is put before the user's name: by default the issuer, "-" for nothing.
    #[arg(long)]
    oidc_username_prefix: Option<String>,
    /// The claim that lists the user's groups.
    #[arg(long)]
    oidc_groups_claim: Option<String>,
    /// What is put before each group.
    #[arg(long, default_value = "")]
    oidc_groups_prefix: String,
    /// A claim that must be there: name=value.
    #[arg(long, value_delimiter = ',')]
    oidc_required_claim: Vec<String>,
    /// How its tokens may be signed.
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    oidc_signing_algs: Vec<String>,
    /// The CA of the provider's address.
    #[arg(long)]
    oidc_ca_file: Option<PathBuf>,
}

impl Flags {
    pub fn read(&self, client_ca: Option<&Path>) -> anyhow::Result<Authentication> {
        let anonymous =
            if self.anonymous_auth { Anonymous::Everywhere } else { Anonymous::Nowhere };
        let mut authentication = Authentication {
            clients: client_ca.map(Trust::read).transpose()?,
            front_proxy: self.front_proxy()?,
            token_file: self.token_auth_file.as_deref().map(TokenFile::read).transpose()?,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            webhook: match &self.authentication_token_webhook_config_file {
                None => None,
                Some(file) => {
                    let ttl = self.authentication_token_webhook_cache_ttl;
                    let version = &self.authentication_token_webhook_version;
                    Some(TokenWebhook::read(file, version, ttl)?)
                }
            },
            oidc: self.provider()?.map(Oidc::new).transpose()?.into_iter().collect(),
            anonymous,
            ..Authentication::default()
        };
        if let Some(file) = &self.authentication_config {
            let shown = file.display();
            let bytes = std::fs::read(file).with_context(|| format!("failed to read {shown}"))?;
            let (issuers, anonymous) = configuration::read(&bytes, &self.oidc_signing_algs)
                .map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
            authentication.anonymous = anonymous.unwrap_or(authentication.anonymous);
            for issuer in issuers {
                authentication.oidc.push(Oidc::new(issuer)?);
            }
        }
        Ok(authentication)
    }

    fn front_proxy(&self) -> anyhow::Result<Option<FrontProxy>> {
        let Some(ca) = &self.requestheader_client_ca_file else { return Ok(None) };
        Ok(Some(FrontProxy {
            trust: Trust::read(ca)?,
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_header_prefixes: self.requestheader_extra_headers_prefix.clone(),
        }))
    }

    fn provider(&self) -> anyhow::Result<Option<Provider>> {
        let Some(issuer) = &self.oidc_issuer_url else { return Ok(None) };
        let prefix = match self.oidc_username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            // Names of another place must not be taken for names of this one.
            None if self.oidc_username_claim != "email" => format!("{issuer}#"),
            None => String::new(),
        };
        let mut required = BTreeMap::new();
        for claim in &self.oidc_required_claim {
            let (name, value) = claim
                .split_once('=')
                .with_context(|| format!("--oidc-required-claim {claim:?} is not name=value"))?;
            required.insert(name.to_owned(), value.to_owned());
        }
        let ca = self.oidc_ca_file.as_deref().map(|path| {
            std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))
        });
        let groups = self.oidc_groups_claim.clone();
        Ok(Some(Provider {
            issuer: issuer.clone(),
            audiences: self.oidc_client_id.iter().cloned().collect(),
            username: ClaimOrExpression::claim(&self.oidc_username_claim, &prefix),
            groups: groups.map(|name| ClaimOrExpression::claim(&name, &self.oidc_groups_prefix)),
            required,
            algorithms: self.oidc_signing_algs.clone(),
            ca: ca.transpose()?,
            ..Provider::default()
        }))
    }
}
