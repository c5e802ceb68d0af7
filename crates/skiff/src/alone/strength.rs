//! Flags about how strong TLS has to be, as all of upstream's components have them.
use ::apiserver::tls::Strength;

#[derive(clap::Args, Default)]
pub struct Strong {
    /// The ciphers of TLS 1.2 that are served, by their registered names; by default all that are safe.
    #[arg(long, value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// The oldest version that is served: `VersionTLS12` or `VersionTLS13`.
    #[arg(long, default_value = "")]
    tls_min_version: String,
}

impl Strong {
    pub fn strength(&self) -> anyhow::Result<Strength> {
        Strength::new(&self.tls_cipher_suites, &self.tls_min_version).map_err(anyhow::Error::msg)
    }
}
