//! How strong TLS has to be: `--tls-min-version` and `--tls-cipher-suites`.
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// By default everything that is served: nothing of it is weak.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strength {
    /// Of TLS 1.2, by their registered names; empty for all. Those of TLS 1.3 cannot be chosen.
    pub suites: Vec<String>,
    pub only_tls13: bool,
}

/// Suites that upstream knows and that are too weak to be served here.
const WEAK: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl Strength {
    /// From what the flags say; a version older than 1.2 is 1.2.
    pub fn new(suites: &[String], version: &str) -> Result<Strength, String> {
        let only_tls13 = match version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(format!("unknown tls version {other:?}")),
        };
        // As upstream spells those that have two names.
        let suites: Vec<String> = suites
            .iter()
            .map(|name| match name.strip_suffix("_POLY1305") {
                Some(_) => format!("{name}_SHA256"),
                None => name.clone(),
            })
            .collect();
        let provider = rustls::crypto::ring::default_provider();
        for name in &suites {
            let served = provider.cipher_suites.iter().any(|suite| name_of(suite) == *name);
            if !served && !WEAK.contains(&name.as_str()) {
                return Err(format!("Cipher suite {name} not supported or doesn't exist"));
            }
        }
        Ok(Strength { suites, only_tls13 })
    }

    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        const NEW: &[&SupportedProtocolVersion] = &[&TLS13];
        const ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        if self.only_tls13 { NEW } else { ALL }
    }

    pub fn limit(&self, provider: &mut CryptoProvider) {
        if !self.suites.is_empty() {
            provider
                .cipher_suites
                .retain(|suite| suite.version() == &TLS13 || self.suites.contains(&name_of(suite)));
        }
    }
}

/// The registered name: those of TLS 1.3 have another here.
fn name_of(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(names: &[&str], version: &str) -> Result<String, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let strength = Strength::new(&names, version)?;
        let mut provider = rustls::crypto::ring::default_provider();
        strength.limit(&mut provider);
        let old = provider.cipher_suites.iter().filter(|suite| suite.version() == &TLS12);
        let old: Vec<_> = old.map(name_of).collect();
        Ok(format!("{} {}", strength.versions().len(), old.join(" ")))
    }

    #[test]
    fn only_what_is_asked_for_is_served() {
        let suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        assert_eq!(
            left(&[suite, "TLS_RSA_WITH_AES_128_CBC_SHA"], "VersionTLS12"),
            Ok(format!("2 {suite}"))
        );
        let both = left(
            &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_AES_128_GCM_SHA256"],
            "VersionTLS13",
        );
        assert_eq!(both, Ok("1 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()));
        assert!(left(&[], "").unwrap().split(' ').count() > 4);
        assert_eq!(
            left(&["TLS_X"], ""),
            Err("Cipher suite TLS_X not supported or doesn't exist".to_owned())
        );
        assert_eq!(left(&[], "TLS1.2"), Err("unknown tls version \"TLS1.2\"".to_owned()));
    }
}
