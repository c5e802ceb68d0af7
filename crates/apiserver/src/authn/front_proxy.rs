//! Proxies in front of the server, which have authenticated somebody and say so in headers.
use super::{Peer, User, percent_decoded};
use crate::tls::Trust;
use http::HeaderMap;
use std::collections::BTreeMap;

/// Which proxies are believed, and the headers they speak in.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    pub trust: Trust,
    /// Common names of their certificates; empty: any that the CA has signed.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_header_prefixes: Vec<String>,
}

impl FrontProxy {
    /// A proxy of this name, in the headers that everybody uses.
    pub fn standard(trust: Trust, name: &str) -> FrontProxy {
        FrontProxy {
            trust,
            allowed_names: vec![name.into()],
            username_headers: vec!["x-remote-user".into()],
            uid_headers: vec!["x-remote-uid".into()],
            group_headers: vec!["x-remote-group".into()],
            extra_header_prefixes: vec!["x-remote-extra-".into()],
        }
    }

    /// Whom a proxy speaks for.
    pub fn user(&self, peer: &Peer, headers: &HeaderMap) -> Option<User> {
        let proxy = peer.front_proxy()?;
        let allowed =
            self.allowed_names.is_empty() || self.allowed_names.iter().any(|n| n == proxy);
        let first = |names: &[String]| {
            let values = names.iter().flat_map(|name| headers.get_all(name));
            values.filter_map(|value| value.to_str().ok()).find(|value| !value.is_empty())
        };
        let name = first(&self.username_headers)?.to_owned();
        if !allowed {
            tracing::debug!(proxy, "a front proxy of this name is not believed");
            return None;
        }
        let uid = first(&self.uid_headers).unwrap_or_default().to_owned();
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect();
        Some(User { name, uid, groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_header_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
                let Ok(value) = value.to_str() else { continue };
                all.entry(percent_decoded(key)).or_default().push(value.to_owned());
            }
        }
        all
    }

    /// What has to be taken off a request before others see it: only a proxy may say it.
    pub fn remove(&self, headers: &mut HeaderMap) {
        for name in self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers)
        {
            headers.remove(name);
        }
        let prefixes: Vec<String> =
            self.extra_header_prefixes.iter().map(|p| p.to_ascii_lowercase()).collect();
        let extra: Vec<_> = headers
            .keys()
            .filter(|name| prefixes.iter().any(|prefix| name.as_str().starts_with(prefix)))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}
