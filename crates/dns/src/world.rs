//! What can be asked for.
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Services by namespace and name.
#[derive(Debug, Clone)]
pub struct World {
    /// `cluster.local`, in lower case.
    pub domain: String,
    pub services: BTreeMap<(String, String), Service>,
}

#[derive(Debug, Clone, Default)]
pub struct Service {
    /// Empty for a headless one.
    pub cluster_ips: Vec<IpAddr>,
    /// Of type ExternalName.
    pub external_name: Option<String>,
    /// Name, protocol (`tcp`) and number.
    pub ports: Vec<(String, String, u16)>,
    /// What a headless service's name stands for: those that are ready, or that are published
    /// although they are not.
    pub backends: Vec<Backend>,
}

#[derive(Debug, Clone)]
pub struct Backend {
    /// The pod's hostname, if its subdomain is the service; else made of its address.
    pub hostname: Option<String>,
    pub address: IpAddr,
}

impl Backend {
    /// Its label below the service's name.
    pub fn label(&self) -> String {
        let made = || self.address.to_string().replace(['.', ':'], "-");
        self.hostname.clone().unwrap_or_else(made)
    }
}
