//! What the certificate of a connection proves.
//!
//! TLS lets anybody connect who holds the key of the certificate that it shows; whether that
//! certificate means anything here is decided by whoever believes its CA. So one that expired or
//! comes from elsewhere is answered with a `Status`, as upstream does, and may still be
//! accompanied by a token that is good.
use super::{User, x509};
use crate::ground::tls::Trust;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use std::time::Duration;

/// The other end of a connection.
#[derive(Debug, Default)]
pub struct Peer {
    /// Who it is, if a CA of clients has signed that.
    user: Option<Arc<User>>,
    /// The common name, if the front proxies' CA has signed it.
    front_proxy: Option<String>,
    /// When the certificate ends, if one was shown.
    until: Option<i64>,
}

impl Peer {
    pub fn of(
        chain: Option<&[CertificateDer<'static>]>,
        clients: Option<&Trust>,
        front_proxies: Option<&Trust>,
    ) -> Peer {
        let Some([certificate, intermediates @ ..]) = chain else { return Peer::default() };
        let signed = |trust: Option<&Trust>| {
            trust.is_some_and(|trust| match trust.verify(certificate, intermediates) {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(%error, "a client's certificate is not believed");
                    false
                }
            })
        };
        Peer {
            user: signed(clients).then(|| x509::user_of(certificate)).flatten().map(Arc::new),
            front_proxy: signed(front_proxies).then(|| x509::common_name(certificate)).flatten(),
            until: Some(x509::not_after(certificate).unwrap_or(0)),
        }
    }

    /// Somebody in this process, who is who he says.
    pub fn within(user: User) -> Peer {
        let user = Some(Arc::new(super::authenticated(user)));
        Peer { user, front_proxy: None, until: Some(i64::MAX) }
    }

    /// Whether a certificate was shown at all.
    pub fn showed_certificate(&self) -> bool {
        self.until.is_some()
    }

    /// For how long what was shown proves anything; nothing, if no certificate was.
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.until?.saturating_sub(now.as_second());
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }

    /// A connection may outlive its certificate.
    fn is_current(&self) -> bool {
        self.until.is_some_and(|until| Timestamp::now().as_second() <= until)
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref().filter(|_| self.is_current())
    }

    pub fn front_proxy(&self) -> Option<&str> {
        self.front_proxy.as_deref().filter(|_| self.is_current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_proves_something_until_it_ends() {
        let left = |until| {
            let peer = Peer { until, ..Peer::default() };
            peer.left(Timestamp::from_second(1000).expect("a moment")).map(|left| left.as_secs())
        };
        assert_eq!(left(Some(1010)), Some(10));
        assert_eq!([left(Some(1000)), left(Some(5)), left(Some(i64::MIN))], [Some(0); 3]);
        assert_eq!(left(None), None);
    }
}
