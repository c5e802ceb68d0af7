//! An etcd cluster as the store: upstream's flags.
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use store::Store;
use store::etcd::{Etcd, EtcdOptions, EtcdTls};

#[derive(clap::Args)]
pub struct Flags {
    /// The etcd cluster that holds the state (scheme://ip:port, comma separated). Without it the
    /// state is kept in --data-dir.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// The CA that signed etcd's certificates.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of the client certificate for etcd.
    #[arg(long, requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// What every key in etcd begins with.
    #[arg(long, default_value = "/registry")]
    etcd_prefix: String,
}

impl Flags {
    /// The store, if there is an etcd cluster.
    pub async fn store(&self) -> anyhow::Result<Option<Store>> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {}", path.display()))
        };
        let mut etcd = EtcdOptions::new(self.etcd_servers.iter().cloned());
        // Our keys begin with upstream's default; what a cluster has in its place goes before.
        etcd.prefix = match self.etcd_prefix.trim_end_matches('/') {
            "/registry" | "registry" => String::new(),
            other => format!("/{}", other.trim_start_matches('/')),
        };
        if let Some(ca) = &self.etcd_cafile {
            etcd.tls = Some(EtcdTls {
                ca: read(ca)?,
                certificate: self.etcd_certfile.as_deref().map(read).transpose()?,
                key: self.etcd_keyfile.as_deref().map(read).transpose()?,
            });
        }
        let servers = self.etcd_servers.join(",");
        let engine = Etcd::connect(etcd)
            .await
            .with_context(|| format!("failed to reach etcd at {servers}"))?;
        Ok(Some(Store::from(engine)))
    }
}
