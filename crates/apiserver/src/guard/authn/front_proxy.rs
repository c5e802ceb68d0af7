//! Proxies in front of the server, which have authenticated somebody and say so in headers.
use super::headers::{self, Unreadable};
use super::{Peer, User};
use crate::ground::tls::Trust;
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

    /// Whom a proxy speaks for. What it says must be readable: a group that is left out might be the
    /// one that takes a right away.
    pub fn user(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<User>, Unreadable> {
        let Some(proxy) = peer.front_proxy() else { return Ok(None) };
        let allowed =
            self.allowed_names.is_empty() || self.allowed_names.iter().any(|n| n == proxy);
        let all = |names: &[String]| headers::all(headers, names.iter().map(String::as_str));
        let first = |names: &[String]| {
            Ok(all(names)?.into_iter().find(|value| !value.is_empty()).unwrap_or_default())
        };
        let name = first(&self.username_headers)?;
        if name.is_empty() {
            return Ok(None);
        }
        if !allowed {
            tracing::debug!(proxy, "a front proxy of this name is not believed");
            return Ok(None);
        }
        let (uid, groups) = (first(&self.uid_headers)?, all(&self.group_headers)?);
        Ok(Some(User { name, uid, groups, extra: self.extra(headers)? }))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Unreadable> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_header_prefixes {
            for (key, value) in headers::below(headers, &prefix.to_ascii_lowercase())? {
                all.entry(key).or_default().push(value);
            }
        }
        Ok(all)
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
