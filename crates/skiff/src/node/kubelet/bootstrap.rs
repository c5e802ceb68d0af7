//! `--bootstrap-kubeconfig`: a node that nobody knows yet asks for a certificate with what it was given
//! to join with, and keeps who it is in a kubeconfig of its own (`pkg/kubelet/certificate/bootstrap`).
//! Its certificates are renewed while it runs.
use anyhow::{Context as _, bail};
use client::https::{Config, Https};
use client::source::Collection;
use client::{ApiResource, Client, Context, Informer, Source};
use k8s_openapi::api::core::v1::Node;
use kubelet::identity::{self, Files, Purpose};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Bootstrap {
    /// What to ask for a certificate with while there is no kubeconfig: a token, as kubeadm writes it.
    #[arg(long)]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Whether the client's certificate is renewed before it ends.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    rotate_certificates: bool,
    /// Whether the cluster is asked for the server's certificate, too.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    rotate_server_certificates: bool,
}

/// Upstream's: certificate and key in one file.
const CURRENT: &str = "kubelet-client-current.pem";

impl Bootstrap {
    /// Makes the kubeconfig, if it is not there and there is something to make it with.
    pub async fn join(
        &self,
        context: &Context,
        kubeconfig: &Path,
        certificates: &Path,
        node: &str,
    ) -> anyhow::Result<()> {
        let Some(given) = self.bootstrap_kubeconfig.as_deref().filter(|_| !kubeconfig.exists())
        else {
            return Ok(());
        };
        let current = certificates.join(CURRENT);
        let files = Files { certificate: current.clone(), key: current.clone() };
        let config = Config::from_kubeconfig(given, None)?.for_component("kubelet-bootstrap");
        let client = Client::new(Arc::new(Https::new(context, config)?)).managed_by("kubelet");
        identity::introduce(context, &client, node, &Purpose::Client, &files)
            .await
            .context("the cluster gave this node no certificate")?;
        let text = std::fs::read_to_string(given)?;
        let made = made_of(&serde_saphyr::from_str(&text)?, &current)?;
        if let Some(folder) = kubeconfig.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let temporary = kubeconfig.with_extension("tmp");
        std::fs::write(&temporary, serde_json::to_vec_pretty(&made)?)?;
        std::fs::rename(&temporary, kubeconfig)?;
        Ok(())
    }

    /// What [`Bootstrap::keep`] renews.
    pub fn renewed(&self, certificates: &Path) -> identity::Renewed {
        let client = Some(certificates.join(CURRENT)).filter(|current| {
            (self.rotate_certificates || self.bootstrap_kubeconfig.is_some()) && current.exists()
        });
        let server = Files::at(certificates, "kubelet").certificate;
        let server = self.rotate_server_certificates.then_some(server);
        identity::Renewed { client, server }
    }

    /// Renews what wants to be renewed, until the context stops.
    pub fn keep(
        &self,
        context: &Context,
        source: Arc<dyn Source>,
        certificates: &Path,
        node: &str,
    ) {
        let client = Client::new(source.clone()).managed_by("kubelet");
        if let Some(current) = self.renewed(certificates).client {
            let files = Files { certificate: current.clone(), key: current };
            let (context, client, node) = (context.clone(), client.clone(), node.to_owned());
            tokio::spawn(identity::renew(context, client, node, Purpose::Client, files));
        }
        if self.rotate_server_certificates {
            let fields = api::selector::field::Selector::equals("metadata.name", node);
            let of = Collection::all(ApiResource::of::<Node>()).with_fields(fields);
            let nodes = Informer::<Node>::start(context, source, of);
            let files = Files::at(certificates, "kubelet");
            let (context, node) = (context.clone(), node.to_owned());
            tokio::spawn(identity::keep_server(context, client, nodes, node, files));
        }
    }
}

/// The cluster of the one, and the certificate's owner as its user.
fn made_of(given: &Value, current: &Path) -> anyhow::Result<Value> {
    let named = |list: &str, name: &str| {
        let mut all = given[list].as_array().into_iter().flatten();
        all.find(|one| one["name"] == name).cloned()
    };
    let context = given["current-context"].as_str().unwrap_or_default();
    let Some(context) = named("contexts", context) else { bail!("it has no context {context:?}") };
    let cluster = context["context"]["cluster"].as_str().unwrap_or_default();
    let Some(cluster) = named("clusters", cluster) else { bail!("it has no cluster {cluster:?}") };
    let current = current.display().to_string();
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default-context",
        "clusters": [{ "name": "default-cluster", "cluster": cluster["cluster"] }],
        "contexts": [{ "name": "default-context",
            "context": { "cluster": "default-cluster", "user": "default-auth", "namespace": "default" } }],
        "users": [{ "name": "default-auth",
            "user": { "client-certificate": current, "client-key": current } }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_stays_and_the_user_is_the_node() {
        let given = json!({
            "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "tls-bootstrap-token-user" } }],
            "clusters": [{ "name": "k", "cluster": { "server": "https://a:6443", "certificate-authority-data": "Q0E=" } }],
            "users": [{ "name": "tls-bootstrap-token-user", "user": { "token": "secret" } }],
        });
        let made = made_of(&given, Path::new("/pki/current.pem")).unwrap();
        assert_eq!(made["clusters"][0]["cluster"], given["clusters"][0]["cluster"]);
        assert_eq!(made["users"][0]["user"]["client-key"], "/pki/current.pem");
        assert!(!made.to_string().contains("secret"));
        assert!(made_of(&json!({}), Path::new("/x")).is_err());
    }
}
