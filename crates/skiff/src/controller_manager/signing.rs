//! Which keys certificates are signed with, and for how long.
use crate::alone::span;
use anyhow::{Context as _, bail, ensure};
use controllers::csr::{Authority, CLIENT, KUBELET_CLIENT, KUBELET_SERVING, Signers};
use jiff::SignedDuration;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Signing {
    /// The CA that certificates are signed with, and its key; without them nobody signs.
    #[arg(long, requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// How long certificates live unless they are asked for less.
    #[arg(long, value_parser = span, default_value = "8760h")]
    cluster_signing_duration: SignedDuration,
    /// The CA of the signer kubernetes.io/kube-apiserver-client alone, in the place of that of all.
    #[arg(long, requires = "cluster_signing_kube_apiserver_client_key_file")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_kube_apiserver_client_cert_file")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// The CA of the signer kubernetes.io/kube-apiserver-client-kubelet alone.
    #[arg(long, requires = "cluster_signing_kubelet_client_key_file")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_kubelet_client_cert_file")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// The CA of the signer kubernetes.io/kubelet-serving alone.
    #[arg(long, requires = "cluster_signing_kubelet_serving_key_file")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_kubelet_serving_cert_file")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// The CA of a signer that nobody can ask any more.
    #[arg(long, requires = "cluster_signing_legacy_unknown_key_file")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_legacy_unknown_cert_file")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

type Pair<'a> = (&'a Option<PathBuf>, &'a Option<PathBuf>);

impl Signing {
    pub fn signers(&self) -> anyhow::Result<Signers> {
        let lifetime = self.cluster_signing_duration.as_secs();
        ensure!(lifetime > 0, "--cluster-signing-duration must be longer than nothing");
        let of_all = (&self.cluster_signing_cert_file, &self.cluster_signing_key_file);
        let own: [(&str, Pair<'_>); 3] = [
            (
                CLIENT,
                (
                    &self.cluster_signing_kube_apiserver_client_cert_file,
                    &self.cluster_signing_kube_apiserver_client_key_file,
                ),
            ),
            (
                KUBELET_CLIENT,
                (
                    &self.cluster_signing_kubelet_client_cert_file,
                    &self.cluster_signing_kubelet_client_key_file,
                ),
            ),
            (
                KUBELET_SERVING,
                (
                    &self.cluster_signing_kubelet_serving_cert_file,
                    &self.cluster_signing_kubelet_serving_key_file,
                ),
            ),
        ];
        let mut signers = Signers { authority: authority(of_all)?, lifetime, ..Signers::default() };
        for (signer, pair) in own {
            if let Some(authority) = authority(pair)? {
                signers.own.insert(signer, authority);
            }
        }
        let is_one_named =
            !signers.own.is_empty() || self.cluster_signing_legacy_unknown_cert_file.is_some();
        // In upstream's words (`cmd/kube-controller-manager/app/certificates.go`).
        if signers.authority.is_some() && is_one_named {
            bail!(
                "cannot specify --cluster-signing-{{cert,key}}-file and other --cluster-signing-*-file flags at the same time"
            );
        }
        Ok(signers)
    }
}

fn authority((certificate, key): Pair<'_>) -> anyhow::Result<Option<Authority>> {
    let read = |file: &PathBuf| {
        std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
    };
    Ok(match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(Authority { certificate: read(certificate)?, key: read(key)? })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Cli {
        #[command(flatten)]
        signing: Signing,
    }

    #[test]
    fn signers_have_one_ca_or_each_its_own() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["all", "serving"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let signers = |flags: &str| {
            let flags = flags.replace('@', &format!("{}/", folder.path().display()));
            let cli = Cli::try_parse_from(flags.split_whitespace()).map_err(|e| e.to_string())?;
            cli.signing.signers().map_err(|error| format!("{error:#}"))
        };
        let all = "--cluster-signing-cert-file=@all --cluster-signing-key-file=@all";
        let serving = "--cluster-signing-kubelet-serving-cert-file=@serving \
            --cluster-signing-kubelet-serving-key-file=@serving";
        let of = |signers: &Signers, signer| signers.of(signer).map(|one| one.certificate.clone());

        let none = signers("").unwrap();
        assert_eq!((of(&none, CLIENT), none.lifetime), (None, 365 * 24 * 60 * 60));
        let one = signers(&format!("{all} --cluster-signing-duration=2h")).unwrap();
        assert_eq!((of(&one, CLIENT).as_deref(), one.lifetime), (Some("all"), 7200));
        let own = signers(serving).unwrap();
        assert_eq!(of(&own, KUBELET_SERVING).as_deref(), Some("serving"));
        assert_eq!(of(&own, KUBELET_CLIENT), None);
        let both = signers(&format!("{all} {serving}")).unwrap_err();
        assert!(both.starts_with("cannot specify --cluster-signing-{cert,key}-file"), "{both}");
        assert!(signers("--cluster-signing-cert-file=@all").is_err());
        assert!(signers("--cluster-signing-duration=0s").is_err());
        let missing = all.replace("@all", "@none");
        assert!(signers(&missing).unwrap_err().starts_with("failed to read"));
    }
}
